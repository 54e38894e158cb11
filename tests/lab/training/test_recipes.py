"""Every recipe of `examples/train` takes two steps as it is but for its sizes, on made-up data in the folders
that its head names.
"""

import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from command_line import run
from paper_test_sets import picture
from sample_pictures import write_frame, write_rgb
from sample_videos import write_video
from training_runs import RELEASED, SMALL, TAYLOR

from vidrestore.lab.run_config import RunConfig, SetConfig, read_config
from vidrestore.lab.training.data import sources
from vidrestore.weights import read_card

RECIPES = Path(__file__).parents[3] / "examples" / "train"
NAMES = sorted(path.relative_to(RECIPES).as_posix() for path in RECIPES.rglob("*.toml"))
PAIRS = (
    "RESIDE/ITS/train/{ITS_haze/1_1_0.9,ITS_clear/1}.png",
    "RESIDE/SOTS/indoor/{hazy/1400_1,gt/1400}.png",
    "Rain13K/train/{input,target}/1.png",
    "Rain13K/test/Rain100L/{input,target}/1.png",
    "Rain13K/test/Rain100H/{input,target}/1.png",
    "Snow100K/train2500/{Snow,Gt}/1.png",
    "Snow100K/test2000/{Snow,Gt}/1.png",
    "GOPRO_Large/train/GOPR0372_07_00/{blur,sharp}/000047.png",
    "GOPRO_Large/test/GOPR0384_11_00/{blur,sharp}/000001.png",
    "HIDE_dataset/{test/test-close-ups,GT}/1.png",
    "SIDD_Medium_Srgb/Data/0001_001_S6/0001_{NOISY,GT}_SRGB_010.png",
    "SIDD/val/{input,target}_crops/1.png",
)
FRAMES = tuple(f"{number:08d}" for number in range(5))
SEPTUPLET = tuple(f"im{number}" for number in range(1, 8))
CLIPS = (  # folders of large and of small frames, clips in them, frames of each
    (
        "REDS/train_sharp",
        "REDS/train_sharp_bicubic/X4",
        ("000", "001", "011", "015", "020"),
        FRAMES,
    ),
    ("REDS/val_sharp", "REDS/val_sharp_bicubic/X4", ("000",), FRAMES),
    (
        "vimeo90k/vimeo_septuplet/sequences",
        "vimeo90k/vimeo_septuplet_matlabLRx4/sequences",
        ("00001/0001", "00001/0002"),
        SEPTUPLET,
    ),
)
VIDEOS = (
    "training_videos/01",
    "training_videos/02",
    "training/videos/01_001",
    "training/videos/01_002",
)
SHARED = ("train", "train_more", "stills", "photos", "photos_by_sa")
HELD_OUT = ("davis_libby", "davis_goat", "davis_scooter-black", "sam2_cups")
SIZES: Mapping[str, Mapping[str, Any]] = {  # of each family
    "dust": {"atoms": 256, "blocks": 1},
    "algorithm1": {"atoms": 256, "iterations": 2},
    "sista": {"atoms": 256, "layers": 2},
    "vit": {"width": 8, "hidden": 8, "blocks": 1},
    "unfolded-transformer": {"blocks": 1},
    "mb-taylorformer": {
        name: value for name, value in TAYLOR.items() if name != "size"
    },
    "vsr-transformer": {
        name: value for name, value in RELEASED.items() if name != "size"
    },
}
RNN = {"atoms": 256, "layers": 1}
# of the bundled size
VSR = {name: value for name, value in SMALL.items() if name != "size"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipes in a checkout of their own, with the folders `shared` and `datasets` beside it."""
    root = tmp_path_factory.mktemp("recipes")
    shutil.copytree(RECIPES, root / "checkout" / "examples" / "train")
    write_video(root / "checkout" / "examples" / "clip.mkv", 20)
    write_footage(root / "shared" / "data")
    write_sets(root / "datasets")
    return root


def write_footage(root: Path) -> None:
    """Videos and photos, those among them that recipes hold out."""
    for folder in SHARED:
        (root / folder).mkdir(parents=True)
    for name in ("train/a", "train_more/b", *(f"train/{name}" for name in HELD_OUT)):
        write_video(root / f"{name}.mp4", 20, "mpeg4")
    for number, folder in enumerate(SHARED[2:]):
        write_rgb(root / folder / "a.png", picture(number, 1, 48, 64))


def write_sets(root: Path) -> None:
    """Each data set as it is released: a picture of each split, clips of as many frames as are read."""
    for number, pattern in enumerate(PAIRS):
        before, choice = pattern.split("{")
        sides, after = choice.split("}")
        for side, name in enumerate(sides.split(",")):
            write_rgb(root / f"{before}{name}{after}", picture(number, side))
    frames = {side: picture(1, 1, side, side) for side in (64, 256)}
    for large, small, clips, numbers in CLIPS:
        for clip, number in product(clips, numbers):
            write_rgb(root / large / clip / f"{number}.png", frames[256])
            write_rgb(root / small / clip / f"{number}.png", frames[64])
    lists = root / "vimeo90k" / "vimeo_septuplet"
    for split, number in (("train", 1), ("test", 2)):
        (lists / f"sep_{split}list.txt").write_text(f"00001/000{number}\n")
    for name in VIDEOS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_video(root / f"{name}.avi", 20, "mpeg4", size=(32, 160))
    for clip in ("UCSDped1/Train/Train001", "UCSDped2/Train/Train001"):
        (root / clip).mkdir(parents=True)
        for number in range(1, 21):
            grey = av.VideoFrame.from_ndarray(picture(number, 1)[0], "gray")
            write_frame(root / clip / f"{number:03d}.tif", "tiff", grey)


def sizes(config: RunConfig) -> dict[str, Any]:
    """Settings of a quick run: a small network, small crops, few groups and two steps."""
    model = VSR if config.model.get("size") == "n" else SIZES.get(config.family, RNN)
    settings = {f"model.{name}": value for name, value in model.items()}
    settings |= {"training.steps": 2, "training.batch": 2, "training.validate_every": 2}
    if config.training.warmup:
        settings["training.warmup"] = 1
    data = config.data
    if hasattr(data, "groups_per_window"):
        settings |= {"data.groups_per_window": 8, "data.pool": 16}
    if config.family == "mb-taylorformer":
        settings["data.crop"] = 16
    if config.family == "vsr-transformer" and not isinstance(data, SetConfig):
        settings["data.crop"] = 8
    return settings


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_takes_two_steps(name, checkout, tmp_path, monkeypatch, capsys):
    for constant, value in {"GROUPS": 8, "PAIRS": 2, "SIDE": 16}.items():
        monkeypatch.setattr(sources, f"VALIDATION_{constant}", value)
    path = checkout / "checkout" / "examples" / "train" / name
    config = read_config(path)
    settings = [
        part
        for key, value in sizes(config).items()
        for part in ("--set", f"{key}={text(value)}")
    ]
    options = ("--device", "cpu", "--threads", 1, "--cache", checkout / "cache")
    assert run("train", "--config", path, "-o", tmp_path, *options, *settings) == 0, (
        capsys.readouterr().err
    )
    card = read_card(tmp_path / f"{config.name}.safetensors")
    assert card.training["steps"] == 2
    assert all(
        np.isfinite(list(point["psnr"].values())).all()
        for point in card.training["curve"]
    )


def text(value: object) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{name} = {text(part)}" for name, part in value.items())
            + "}"
        )
    return str(value).lower() if isinstance(value, bool) else str(value)
