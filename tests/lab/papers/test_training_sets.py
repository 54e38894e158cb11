"""Training from the papers' datasets as released: crops of pairs and clips, and whole runs."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from command_line import run
from sample_pictures import write_rgb
from set_runs import RUNS, configured, noise, write_rain, write_reds
from torch import Tensor

from vidrestore.errors import ConfigError, DatasetError
from vidrestore.lab.degrade import imresize
from vidrestore.lab.papers.dataset_files import (
    PairedImages,
    Sequences,
    read_frames,
    read_pair,
)
from vidrestore.lab.papers.datasets import find
from vidrestore.lab.papers.training_sets import (
    SetSource,
    random_set_clip,
    random_set_pair,
    whole_pictures,
)
from vidrestore.lab.run_config import (
    ClipSetConfig,
    PairTrainingConfig,
    read_config,
)
from vidrestore.lab.training.data import sources
from vidrestore.lab.training.data.batches import Share
from vidrestore.lab.training.data.footage import back_and_forth
from vidrestore.lab.training.data.sources import make_data
from vidrestore.lab.training.objective import PairObjective
from vidrestore.weights import read_card


@pytest.fixture(autouse=True)
def small_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "VALIDATION_PAIRS", 2)


def places(crop: Tensor, pictures: Tensor) -> int:
    """How many crops of (N, 3, H, W) are a crop (3, S, S) mirrored and transposed in any way."""
    side = crop.shape[-1]
    parts = pictures.unfold(2, side, 1).unfold(3, side, 1).permute(0, 2, 3, 1, 4, 5)
    ways = [
        way.flip(flips) for way in (crop, crop.mT) for flips in ([], [1], [2], [1, 2])
    ]
    return sum(int((parts == way).flatten(3).all(3).sum()) for way in ways)


# Pairs


def test_a_crop_is_the_same_place_of_both_pictures_turned_alike(tmp_path):
    write_rain(tmp_path)
    pairs = find("rain13k", tmp_path, "train")
    pictures = torch.stack([read_pair(pair)[1] for pair in pairs]) / 255
    for seed in range(4):
        degraded, clean = random_set_pair(pairs, 16, np.random.default_rng(seed))
        assert (clean.shape, clean.dtype) == ((3, 16, 16), torch.float32)
        assert places(clean, pictures) == 1
        torch.testing.assert_close(degraded, clean + 40 / 255)


def test_crops_come_from_all_places_of_a_picture(tmp_path):
    write_rain(tmp_path, count=1)
    pairs = find("rain13k", tmp_path, "train")
    sums = {
        round(
            random_set_pair(pairs, 16, np.random.default_rng(seed))[1]
            .double()
            .sum()
            .item(),
            6,
        )
        for seed in range(60)
    }
    assert len(sums) > 30  # of 65 places; mirroring changes no sum


def test_smaller_pictures_are_continued_by_reflection(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "vidrestore.lab.papers.training_sets.turned", lambda both, rng: both
    )
    write_rain(tmp_path, (9, 40), 1)
    pairs = find("rain13k", tmp_path, "train")
    _, clean = random_set_pair(pairs, 24, np.random.default_rng(3))
    whole = np.pad(
        read_pair(pairs[0])[1].numpy(), ((0, 0), (0, 15), (0, 0)), mode="reflect"
    )
    found = [
        column
        for column in range(17)
        if (
            whole[:, :24, column : column + 24] / np.float32(255) == clean.numpy()
        ).all()
    ]
    assert len(found) == 1
    assert back_and_forth(np.arange(24), 9).max() == 8


def pair_source(pairs: PairedImages, seed: int) -> SetSource:
    return SetSource(partial(random_set_pair, pairs, 16), seed)


def test_batches_of_pairs_follow_from_the_seed_and_the_step(tmp_path):
    write_rain(tmp_path)
    pairs = find("rain13k", tmp_path, "train")
    one, two, other = (pair_source(pairs, seed) for seed in (3, 3, 4))
    one.batch(0, 2)
    for first, second in zip(one.batch(5, 4), two.batch(5, 4), strict=True):
        assert torch.equal(first, second) and first.shape == (4, 3, 16, 16)
    assert not torch.equal(one.batch(5, 4)[1], one.batch(6, 4)[1])
    assert not torch.equal(one.batch(5, 4)[1], other.batch(5, 4)[1])


def test_held_out_pictures_are_all_whole_ones_of_the_sets_in_validation(tmp_path):
    config = read_config(
        configured(tmp_path, "pairs", data={"validation": ["rain100l/test", "train"]})
    )
    source, held_out = make_data(config, None)
    root = config.folder / config.data.folder
    assert isinstance(source, SetSource) and source.draw.args[0].name == "rain13k"
    sets = {
        "rain100l test": ("rain100l", "test"),
        "rain13k train": ("rain13k", "train"),
    }
    counts = {
        name: len(find(dataset, root, split)) for name, (dataset, split) in sets.items()
    }
    assert held_out.counts == counts
    for name, (dataset, split) in sets.items():
        for index, pair in enumerate(find(dataset, root, split)):
            for picture, expected in zip(
                held_out.read(name, index), read_pair(pair), strict=True
            ):
                assert torch.equal(picture, expected)
    few = read_config(
        configured(
            tmp_path, "pairs", data={"validation": ["train"], "validation_pictures": 2}
        )
    )
    assert make_data(few, None)[1].counts == {"rain13k train": 2}


def test_a_training_set_is_never_read_as_the_test_set_that_is_missing_beside_it(
    tmp_path,
):
    """Both are `input` and `target` in a folder that is named itself."""
    data = {"folder": "sets/Rain13K/train"}
    config = read_config(configured(tmp_path, "pairs", data=data))
    message = r"0\.png: would be trained on as rain13k and judged on as rain100l; name"
    with pytest.raises(DatasetError, match=message):
        make_data(config, None)


def test_without_validation_sets_a_few_of_the_training_pictures_are_held_out(tmp_path):
    config = read_config(configured(tmp_path, "pairs", data={"validation": []}))
    held_out = make_data(config, None)[1]
    assert held_out.counts == {"rain13k train": 2}
    degraded, clean = held_out.read("rain13k train", 1)
    assert torch.equal(clean + 40, degraded)


class Darker(torch.nn.Module):
    """Takes sides that are multiples of 8, as MB-TaylorFormer does."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(multiple=8)
        self.step = torch.nn.Parameter(torch.tensor(20 / 255))

    def forward(self, pictures: Tensor) -> Tensor:
        assert pictures.shape[2] % 8 == pictures.shape[3] % 8 == 0
        return pictures - self.step


def test_pictures_of_all_processes_together_have_the_metrics_of_one(tmp_path):
    """Pictures are 40 levels too bright, and 20 after the network: 16.09 and 22.11 dB."""
    write_rain(tmp_path, (19, 30), 5)
    pictures = whole_pictures([find("rain13k", tmp_path, "train")], "dehaze", 0)
    network = Darker()
    after, before = PairObjective(PairTrainingConfig(1)).measure(network, pictures)
    assert before == {"rain13k train": pytest.approx(20 * np.log10(255 / 40), abs=1e-3)}
    assert after == {"rain13k train": pytest.approx(20 * np.log10(255 / 20), abs=1e-3)}
    sums = []
    for rank in range(2):
        PairObjective(PairTrainingConfig(1), Share(rank, 2)).measure(
            network, pictures, sums.extend
        )
    assert [part[0, 0, 1].item() for part in sums] == [3, 2]
    assert pictures.means(sums[0] + sums[1]) == (
        pytest.approx(after),
        pytest.approx(before),
    )


# Clips


def clip_config(**changes: Any) -> ClipSetConfig:
    return ClipSetConfig("reds", "sets", **{"frames": 2, "crop": 8} | changes)


def clip_source(clips: Sequences, seed: int, **changes: Any) -> SetSource:
    return SetSource(partial(random_set_clip, clips, clip_config(**changes)), seed)


def test_large_and_small_crops_are_of_the_same_frames_and_place(tmp_path):
    write_reds(tmp_path)
    clips = find("reds", tmp_path, "train")
    assert [clip.name for clip in clips] == ["001", "002"]
    whole = torch.cat([read_frames(clip.clean) for clip in clips]) / 255
    for seed in range(3):
        small, large = random_set_clip(
            clips, clip_config(), np.random.default_rng(seed)
        )
        assert (small.shape, large.shape) == ((2, 3, 8, 8), (2, 3, 32, 32))
        assert [places(frame, whole) for frame in large] == [1, 1]


def test_downscaled_crops_equal_crops_of_downscaled_frames(tmp_path):
    write_reds(tmp_path)
    clips = find("reds", tmp_path, "train")
    whole = torch.cat([read_frames(clip.clean) for clip in clips]) / 255
    shrunk = imresize(whole, 0.25).clamp(0, 1).mul(255).round()
    for seed in range(8):
        small, _ = random_set_clip(clips, clip_config(), np.random.default_rng(seed))
        assert [places((frame * 255).round(), shrunk) for frame in small] == [1, 1]


def test_small_frames_are_read_if_the_configuration_asks_for_them(tmp_path):
    write_reds(tmp_path, small=True)
    clips = find("reds", tmp_path, "train")
    same = 0
    for seed in range(8):
        small, large = random_set_clip(
            clips, clip_config(read_small=True), np.random.default_rng(seed)
        )
        # whichever way it is turned
        corners = [
            large[:, :, row::4, column::4] for row in (0, 3) for column in (0, 3)
        ]
        same += any(torch.equal(small, corner) for corner in corners)
    assert same == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": 4}, r"3 frames, but \[data\] frames is 4"),
        ({"crop": 16}, "a quarter of 56x40 is smaller than a crop of 16x16"),
        (
            {"read_small": True},
            "has no low-resolution frames beside it; remove read_small",
        ),
    ],
)
def test_clips_with_too_few_frames_are_refused_by_name(tmp_path, changes, message):
    write_reds(tmp_path)
    with pytest.raises(DatasetError, match=f"train_sharp/00[12]: {message}"):
        clip_source(find("reds", tmp_path, "train"), 0, **changes).batch(0, 1)


def test_small_frames_of_another_size_and_video_files_are_refused(tmp_path):
    write_reds(tmp_path, size=(40, 56), small=True)
    for path in (tmp_path / "train_sharp_bicubic").rglob("*.png"):
        write_rgb(path, noise(10, 13))
    with pytest.raises(
        DatasetError,
        match=r"X4/00[12]: frames of 13x10, but those of .* are 56x40; expected a quarter of that, 14x10",
    ):
        clip_source(find("reds", tmp_path, "train"), 0, read_small=True).batch(0, 1)
    (tmp_path / "training_videos").mkdir()
    (tmp_path / "training_videos" / "01.avi").touch()
    with pytest.raises(
        DatasetError, match=r"01.avi: is a video file; to train on video files"
    ):
        clip_source(find("avenue", tmp_path, "train"), 0).batch(0, 1)


# Configurations


WRONG: list[tuple[str, str, object, str]] = [
    ("pairs", "dataset", "rain14k", "dataset must be one of its, ots"),
    ("pairs", "dataset", "reds", "dataset must be one of its, ots"),
    (
        "clips",
        "dataset",
        "rain13k",
        "dataset must be one of reds, vimeo-90k, vid4, davis, set8, avenue, ucsd, shanghaitech, found "
        "'rain13k'",
    ),
    ("pairs", "split", "test", "split of rain13k must be train, found 'test'"),
    (
        "pairs",
        "validation",
        ["rain100l/train"],
        "split of rain100l must be test, found 'train'",
    ),
    ("pairs", "validation", ["fog/test"], "dataset must be one of its"),
    ("pairs", "crop", 20, "crop must be a multiple of 8, found 20"),
    ("clips", "frames", 0, "frames must be greater than or equal to 1, found 0"),
    ("clips", "crop", 12, "crop must be a multiple of 8, found 12"),
    ("pairs", "folder", None, "[data]: missing: folder"),
    (
        "pairs",
        "degradations",
        ["rain"],
        "[data]: unknown: degradations; there are: dataset, folder, split, validation, crop, validation_pict",
    ),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    WRONG,
    ids=[f"{name}={value}" for _, name, value, _ in WRONG],
)
def test_a_wrong_value_is_named_with_its_place(tmp_path, kind, name, value, message):
    path = configured(tmp_path, kind, data={name: value})
    with pytest.raises(ConfigError) as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}, [data]: ") and message in str(
        error.value
    )


# Whole runs


@pytest.mark.parametrize(
    ("kind", "figure"), [("pairs", "rain100l test"), ("clips", "x4")]
)
def test_the_command_trains_from_a_folder_as_released(tmp_path, capsys, kind, figure):
    configured(tmp_path, kind)
    assert (
        run(
            "train",
            "--config",
            tmp_path / "tiny.toml",
            "-o",
            tmp_path / "runs",
            "--device",
            "cpu",
        )
        == 0
    )
    measured = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("step ")
    ]
    assert f"{figure}: " in measured[-1]
    card = read_card(tmp_path / "runs" / "tiny.safetensors")
    dataset, held_out = (
        RUNS[kind]["data"]["dataset"],
        ", ".join(RUNS[kind]["data"]["validation"]),
    )
    assert card.training["data"] == f"dataset: {dataset} train; held out: {held_out}"
