"""Training of the DUST paper's networks on its own datasets, from folders as they are released."""

from collections import Counter
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from command_line import run
from sample_pictures import write_frame
from torch import Tensor
from training_runs import SENSING, WINDOWS, write_config

from vidrestore.errors import ConfigError, DatasetError
from vidrestore.lab.papers.datasets import find
from vidrestore.lab.papers.training_groups import (
    ClipGroups,
    EpochSource,
    divided,
    set_groups,
)
from vidrestore.lab.run_config import read_config
from vidrestore.lab.training.data.sources import Reading
from vidrestore.models.dust import Dust, DustConfig
from vidrestore.weights import read_card

NETWORK = Dust(DustConfig(patch=4, atoms=64, blocks=2, measurements=6))
WITHOUT_WINDOWS = dict.fromkeys(WINDOWS, None)
DATA = WITHOUT_WINDOWS | {
    "clips": None,
    "validation": None,
    "folder": "sets",
    "stride": 4,
}
TRAINING = {"steps": 2, "validate_every": 2, "warmup": 1}


def write_avi(path: Path, frames: int, size: tuple[int, int] = (64, 48)) -> Tensor:
    """Write a grey video and return its frames (T, H, W)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = sum(path.stem.encode())
    video = np.random.default_rng(seed).integers(
        0, 256, (frames, size[1], size[0]), dtype=np.uint8
    )
    with av.open(str(path), "w") as output:
        stream = output.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = *size, "gray"
        for picture in video:
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "gray")))
        output.mux(stream.encode(None))
    return torch.from_numpy(video)


def configured(folder: Path, dataset: str, **changes: object) -> Path:
    data = DATA | {"dataset": dataset} | changes
    return write_config(
        folder, SENSING | {"data": data, "training": SENSING["training"] | TRAINING}
    )


def write_avenue(
    folder: Path, count: int = 5, frames: int = 20, size: tuple[int, int] = (64, 48)
) -> None:
    for number in range(1, count + 1):
        write_avi(
            folder / "sets" / "training_videos" / f"{number:02d}.avi", frames, size
        )


def test_groups_are_all_patches_of_all_whole_groups_of_frames():
    clips = [
        torch.randint(0, 256, (45, 33, 40), dtype=torch.uint8),
        torch.randint(0, 256, (20, 16, 16)),
    ]
    groups = ClipGroups(clips, patch=16, stride=8, frames=20)
    # the last patches end with the frame, and 5 frames are left over
    corners = [(y, x) for y in (0, 8, 16, 17) for x in (0, 8, 16, 24)]
    expected = [
        clips[0][start : start + 20, y : y + 16, x : x + 16].reshape(20, 256)
        for start in (0, 20)
        for y, x in corners
    ]
    assert len(groups) == 33
    whole = torch.cat(list(groups.split(7)))
    assert torch.equal(whole, torch.stack([*expected, clips[1].reshape(20, 256)]))


def test_an_epoch_has_every_group_once_in_an_order_of_its_own():
    clip = (
        torch.arange(20)[None]
        .expand(3, 20)
        .repeat_interleave(1, 0)[:, None]
        .expand(3, 4, 20)
    )
    source = EpochSource(
        ClipGroups([clip.contiguous()], patch=4, stride=4, frames=3), (0.0,), seed=5
    )
    drawn = [
        int(group[0, 0]) for step in range(5) for group in source.batch(step, 2)[0]
    ]
    first, second = drawn[:5], drawn[5:]
    assert Counter(first) == Counter(second) == Counter([0, 4, 8, 12, 16])
    assert first != second
    clean, sigma = source.batch(3, 2)
    assert torch.equal(clean, source.batch(3, 2)[0]) and sigma == 0.0


def test_a_fifth_of_the_clips_is_held_out_the_same_in_every_run(tmp_path):
    for count, expected in ((16, 3), (50, 10), (330, 66), (2, 1), (1, 0)):
        clips = [object() for _ in range(count)]
        training, held_out = divided(clips, 0.2)  # type: ignore[arg-type]
        assert len(held_out) == expected and {*training, *held_out} == {*clips}
        assert divided(clips, 0.2)[1] == held_out  # type: ignore[arg-type]
    assert divided([1, 2, 3], 0.0) == ([1, 2, 3], [])  # type: ignore[list-item]


def test_avenue_is_read_in_gray_with_160_lines_and_at_most_200_frames(tmp_path):
    size = (128, 320)
    videos = [
        write_avi(tmp_path / "sets" / "training_videos" / f"{name}.avi", frames, size)
        for name, frames in (("01", 202), ("02", 41))
    ]
    config = read_config(configured(tmp_path, "avenue"))
    notices: list[str] = []
    source, held_out = set_groups(config, NETWORK, Reading(notice=notices.append))
    by_length = {
        len(groups.clips[0]): groups.clips[0] for groups in (source.groups, held_out)
    }
    for video, count in zip(videos, (200, 41), strict=True):
        means = (
            video[:count]
            .double()
            .unflatten(2, (64, 2))
            .unflatten(1, (160, 2))
            .mean((2, 4))
        )
        assert (by_length[count].double() - means).abs().max() <= 0.5
    counts = {200: 10 * 40 * 16, 41: 2 * 40 * 16}
    assert len(source.groups) == counts[len(source.groups.clips[0])]
    assert (
        f"{len(source.groups):,} groups of 20 frames in 1 clips: an epoch is"
        in notices[0]
    )


def test_ucsd_is_read_at_its_own_size_from_folders_of_tif(tmp_path):
    for scene, size in (("1", (23, 38)), ("2", (24, 36))):
        for clip in ("001", "002"):
            for number in range(1, 4):
                picture = np.full(size, 10 * number, dtype=np.uint8)
                folder = (
                    tmp_path / "sets" / f"UCSDped{scene}" / "Train" / f"Train{clip}"
                )
                folder.mkdir(parents=True, exist_ok=True)
                write_frame(
                    folder / f"{number:03d}.tif",
                    "tiff",
                    av.VideoFrame.from_ndarray(picture, "gray"),
                )
    config = read_config(configured(tmp_path, "ucsd", frames=3))
    source, held_out = set_groups(config, NETWORK, Reading())
    shapes = [
        tuple(clip.shape)
        for groups in (source.groups, held_out)
        for clip in groups.clips
    ]
    assert sorted(shapes) == [(3, 23, 38), (3, 23, 38), (3, 24, 36), (3, 24, 36)]
    assert source.batch(0, 4)[0][:, :, 0].tolist() == [[10, 20, 30]] * 4


@pytest.mark.parametrize(
    ("dataset", "folder"),
    [("shanghaitech", "training/videos"), ("avenue", "training_videos")],
)
def test_the_command_trains_on_videos_as_released(tmp_path, capsys, dataset, folder):
    for number in range(2):
        write_avi(tmp_path / "sets" / folder / f"{number:02d}_001.avi", 20, (40, 32))
    path = configured(tmp_path, dataset, lines=0)
    assert (
        run("train", "--config", path, "-o", tmp_path / "runs", "--device", "cpu") == 0
    )
    printed = capsys.readouterr().err
    assert (
        "80 groups of 20 frames in 1 clips: an epoch is 5 steps; 80 groups in 1 clips are held out"
        in printed
    )
    assert "held out  sigma 0" in printed and "training data" not in printed
    card = read_card(tmp_path / "runs" / "tiny.safetensors")
    assert (
        card.training["data"] == f"dataset: {dataset} train; held out: 20% of the clips"
    )


def test_a_readers_own_recipe_of_avenue_trains(tmp_path, given, capsys):
    """The recipe that a reader of the paper would write, on a made-up Avenue of its size."""
    write_avenue(tmp_path, 2, 20, (284, 160))
    short = (
        "--set",
        "training.steps=2",
        "--set",
        "training.batch=2",
        "--device",
        "cpu",
    )
    arguments = (
        "--config",
        given("dust_on_avenue.toml"),
        "--data",
        tmp_path / "sets",
        "-o",
        tmp_path / "runs",
    )
    assert run("train", *arguments, *short) == 0
    assert "665 groups of 20 frames in 1 clips" in capsys.readouterr().err
    card = read_card(tmp_path / "runs" / "dust-avenue-cs20.safetensors")
    assert 'schedule = "plateau"' in card.training["configuration"]


def test_clips_shorter_than_a_group_and_wide_strides_are_refused(tmp_path):
    write_avenue(tmp_path, 2, 9)
    with pytest.raises(
        DatasetError, match=r"0\d has 9 frames, but \[data\] frames is 20; set fewer"
    ):
        set_groups(
            read_config(configured(tmp_path, "avenue", lines=0)), NETWORK, Reading()
        )
    with pytest.raises(
        ConfigError, match="stride must be at most the patch's 4 pixels, found 8"
    ):
        set_groups(
            read_config(configured(tmp_path, "avenue", stride=8)), NETWORK, Reading()
        )
    assert len(find("avenue", tmp_path / "sets", "train")) == 2
