"""Datasets of degraded pictures and their clean ones."""

from __future__ import annotations

from itertools import product

from vidrestore.datasets.layouts import Dataset, PairLayout, Split

HAZY, CLEAR = ("hazy", "haze", "input"), ("clear", "gt", "GT", "target")
RESIDE = ("", "RESIDE/", "reside-indoor/", "reside-outdoor/", "RESIDE/reside-indoor/", "RESIDE/reside-outdoor/")


def beside(
    degraded: tuple[str, ...], clean: tuple[str, ...], names: str = "{name}", clean_names: str = "{name}", centred: bool = False
) -> tuple[tuple[PairLayout], ...]:
    """Layouts of a folder of degraded pictures and one of clean ones, each under any of the names that releases give them."""
    return tuple((PairLayout(f"{one}/{names}", f"{other}/{clean_names}", centred),) for one, other in product(degraded, clean))


def _within(folders: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for folder, name in product(folders, names))


DATASETS = {
    "its": Dataset(
        title="RESIDE, indoor training set (ITS)",
        layout="hazy/SCENE_NUMBER_HAZE.png and clear/SCENE.png, or train/ITS_haze and train/ITS_clear as in the newer release",
        folders=("", "ITS", "RESIDE/ITS", "reside-indoor", "train"),
        splits={
            "train": Split(
                (
                    *beside(("train/ITS_haze", "ITS_haze"), ("train/ITS_clear", "ITS_clear"), "{scene}_{haze}", "{scene}", centred=True),
                    *beside(_within(("train",), HAZY), _within(("train",), CLEAR), "{scene}_{haze}", "{scene}", centred=True),
                    *beside(HAZY, CLEAR, "{scene}_{haze}", "{scene}", centred=True),
                )
            ),
        },
    ),
    "rain13k": Dataset(
        title="Rain13K",
        layout="train/Rain13K/input and train/Rain13K/target, pictures of equal names",
        folders=("", "Rain13K", "train/Rain13K", "Datasets", "Datasets/train/Rain13K"),
        splits={
            "train": Split(beside(("train/Rain13K/input", "train/input", "input"), ("train/Rain13K/target", "train/target", "target")))
        },
    ),
}
