"""Errors in a dataset's folder are named; its pictures are read as the files have them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_folders import VID4, write
from sample_pictures import write_rgb

from vidrestore.errors import DatasetError
from vidrestore.lab.papers.dataset_files import Pair, read_frames, read_pair
from vidrestore.lab.papers.datasets import datasets, find, names

# Errors


def error(name: str, root: Path, split: str) -> str:
    with pytest.raises(DatasetError) as raised:
        find(name, root, split)
    return str(raised.value)


def test_an_unknown_name_or_split_names_the_known_ones(tmp_path):
    assert error("rain14k", tmp_path, "train").startswith(
        "no dataset named 'rain14k'; there are: its, ots, sots-indoor"
    )
    assert (
        error("reds", tmp_path, "val")
        == "reds: has no split 'val'; there are: train, test"
    )


def test_a_missing_dataset_is_refused_with_its_layout(tmp_path):
    assert error("its", tmp_path / "no", "train").startswith(
        f"{tmp_path / 'no'}: no such folder; RESIDE's indoor training set (ITS) is"
    )
    write(tmp_path, *(f"{letter}/1.png" for letter in "abcdefghij"), ".hidden/1.png")
    message = error("rain13k", tmp_path, "train")
    assert message == (
        f"{tmp_path}: no Rain13K, split train, there or in Rain13K/, Datasets/, Datasets/Rain13K/; found "
        "a, b, c, d, e, f, g, h "
        "and 2 more; expected"
        " train/Rain13K/input and train/Rain13K/target, pictures of equal names; unpack the release there "
        "as it is, or name the folder that"
        " holds it"
    )


@pytest.mark.parametrize("name", names())
def test_an_empty_folder_is_an_error_that_names_the_layout(tmp_path, name):
    for split in datasets()[name].splits:
        message = error(name, tmp_path, split)
        assert (
            str(tmp_path) in message
            and "found nothing" in message
            and datasets()[name].expected in message
        )


@pytest.mark.parametrize(
    "name, split, files, message",
    [
        (
            *("rain13k", "train", "input/1.png input/2.png target/1.jpg target/2.txt"),
            "/input/2.png: has no clean picture; expected {}/target/2 with one of .jpg",
        ),
        (
            *("its", "train", "hazy/1_1_0.9.png hazy/preview.png clear/1.png"),
            "/hazy/preview.png: belongs to no pair; pictures are expected as hazy/1_1_0.90179.png and",
        ),
        (
            "its",
            "train",
            "hazy/1_1_0.9.png",
            ": no RESIDE's indoor training set (ITS), split train",
        ),
        (
            "sidd",
            "validation",
            "ValidationNoisyBlocksSrgb.mat",
            ": no SIDD (sRGB), split validation, there or",
        ),
        (
            *("vid4", "test", "GT/calendar/1.png GT/city/1.png GT/foliage/1.png"),
            ": lacks the clips walk; unpack the release again",
        ),
    ],
)
def test_files_that_are_missing_or_too_many_are_named(
    tmp_path, name, split, files, message
):
    write(tmp_path, *files.split())
    assert error(name, tmp_path, split).startswith(
        str(tmp_path) + message.format(tmp_path)
    )


@pytest.mark.parametrize(("folder", "other"), [("GT", "BIx4"), ("BIx4", "GT")])
def test_a_frame_without_its_counterpart_is_named(tmp_path, folder, other):
    write(
        tmp_path,
        *(
            f"{kind}/{clip}/{frame}.png"
            for kind in ("GT", "BIx4")
            for clip in VID4
            for frame in (1, 2)
        ),
    )
    (tmp_path / folder / "city" / "2.png").unlink()
    assert error("vid4", tmp_path, "test").startswith(
        f"{tmp_path}/{folder}/city: no frame 2, which is in {tmp_path}/{other}/city"
    )


def test_a_listed_clip_without_frames_is_named(tmp_path):
    write(tmp_path, *(f"sequences/00001/0001/im{number}.png" for number in range(1, 8)))
    (tmp_path / "sep_trainlist.txt").write_text("00001/0001\n00001/0009\n")
    assert error("vimeo-90k", tmp_path, "train").startswith(
        f"{tmp_path}/sequences/00001/0009: no frames, but {tmp_path}/sep_trainlist.txt"
    )


@pytest.mark.parametrize("kept", [range(2, 8), range(1, 4)])
def test_an_incomplete_septuplet_is_refused(tmp_path, kept):
    write(tmp_path, *(f"sequences/00001/0001/im{number}.png" for number in kept))
    (tmp_path / "sep_testlist.txt").write_text("00001/0001\n")
    message = (
        f"{tmp_path}/sequences/00001/0001: {len(kept)} frames, but each clip has 7; "
    )
    message += "unpack the release again"
    assert error("vimeo-90k", tmp_path, "test") == message


def test_a_list_of_clips_that_is_not_text_is_refused_by_name(tmp_path):
    write(tmp_path, *(f"sequences/00001/0001/im{number}.png" for number in range(1, 8)))
    (tmp_path / "sep_testlist.txt").write_bytes(b"\xff\xfe")
    assert error("vimeo-90k", tmp_path, "test").startswith(
        f"{tmp_path}/sep_testlist.txt: can't be read as a list of clips"
    )


# Reading


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(
        0, 256, (3, height, width), dtype=np.uint8
    )


def test_a_pair_is_read_as_the_files_have_it(tmp_path):
    degraded, clean = picture(16, 24), picture(16, 24, 1)
    write_rgb(tmp_path / "a.png", degraded)
    write_rgb(tmp_path / "b.png", clean)
    read = read_pair(Pair(tmp_path / "a.png", tmp_path / "b.png"))
    assert [part.dtype for part in read] == [torch.uint8] * 2
    assert (read[0].numpy() == degraded).all() and (read[1].numpy() == clean).all()


def test_larger_clean_pictures_are_cut_around_their_middle_only_where_the_release_has_such(
    tmp_path,
):
    clean = picture(20, 26)
    write_rgb(tmp_path / "a.png", clean[:, 2:-2, 1:-1])
    write_rgb(tmp_path / "b.png", clean)
    degraded, cut = read_pair(
        Pair(tmp_path / "a.png", tmp_path / "b.png", centred=True)
    )
    assert torch.equal(degraded, cut)
    with pytest.raises(
        DatasetError,
        match=r"a.png: is 24x16, but its clean picture .*b.png is 26x20; fetch both",
    ):
        read_pair(Pair(tmp_path / "a.png", tmp_path / "b.png"))
    with pytest.raises(
        DatasetError, match=r"b.png: is 26x20, but its clean picture .*a.png is 24x16"
    ):
        read_pair(Pair(tmp_path / "b.png", tmp_path / "a.png", centred=True))


def test_frames_are_read_in_order_and_of_one_size(tmp_path):
    frames = [picture(16, 16, seed) for seed in range(3)]
    for number, frame in enumerate(frames):
        write_rgb(tmp_path / f"{number}.png", frame)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    assert (read_frames(paths).numpy() == np.stack(frames)).all()
    write_rgb(paths[1], picture(16, 20))
    with pytest.raises(
        DatasetError, match=r"1.png: is 20x16, but .*0.png of the same clip is 16x16"
    ):
        read_frames(paths)
