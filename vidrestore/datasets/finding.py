"""Find a dataset in the folder that a user names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vidrestore.datasets import image_sets, video_sets
from vidrestore.datasets.layouts import Dataset, Kind, Split
from vidrestore.datasets.pairing import paired_files
from vidrestore.datasets.records import PairedImages, Sequences
from vidrestore.datasets.sequencing import find_clips
from vidrestore.datasets.templates import listing, spelled
from vidrestore.errors import DatasetError

DATASETS: Mapping[str, Dataset] = image_sets.DATASETS | video_sets.DATASETS
MOST_NAMES = 8  # in a message


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the names of all datasets, or of those of pairs of pictures or of clips."""
    return tuple(name for name, dataset in DATASETS.items() if kind in (None, dataset.kind))


def splits(name: str) -> tuple[str, ...]:
    """Return the splits of a dataset. Raises DatasetError for an unknown name."""
    return tuple(_dataset(name).splits)


def find(name: str, root: Path, split: str) -> PairedImages | Sequences:
    """Return the pictures of a dataset's split below `root`: the unpacked release, or the folder that holds
    it.

    Nothing is decoded. Raises DatasetError for an unknown dataset or split, and for one that is missing or
    lacks clean pictures.
    """
    dataset = _dataset(name)
    if split not in dataset.splits:
        raise DatasetError(f"{name}: has no split {split!r}; there are: {', '.join(dataset.splits)}")
    for folder in ("", *dataset.folders):
        if found := _found(name, root / spelled(root, folder), split, dataset.splits[split]):
            return found
    raise _absent(name, root, split, dataset)


def _dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise DatasetError(f"no dataset named {name!r}; there are: {', '.join(DATASETS)}")
    return DATASETS[name]


def _found(name: str, root: Path, split: str, layouts: Split) -> PairedImages | Sequences | None:
    """Return the files below `root` by the first layout that fits; None if none does."""
    for pairs in layouts.pairs:
        if files := paired_files(root, pairs):
            return PairedImages(name, split, root, tuple(files), pairs.centred)
    for parts in layouts.clips:
        if clips := find_clips(root, parts):
            return Sequences(name, split, root, clips, layouts.measured_frames)
    return None


def _absent(name: str, root: Path, split: str, dataset: Dataset) -> DatasetError:
    """Return an error that names the place, the files found, the layout expected, and the way out."""
    if not root.is_dir():
        return DatasetError(f"{root}: no such folder; {dataset.title} is expected there: {dataset.layout}")
    for pattern, advice in dataset.refused:
        if files := sorted(root.glob(pattern)):
            return DatasetError(f"{files[0]}: {advice}; expected of {name}: {dataset.layout}")
    return DatasetError(
        f"{root}: no {dataset.title}, split {split}: looked for {_template_text(dataset.splits[split])}, "
        f"there and in {', '.join(f'{folder}/' for folder in dataset.folders)}; found "
        f"{_joined_names(listing(root))}; expected {dataset.layout}; {dataset.advice}"
    )


def _template_text(layouts: Split) -> str:
    """Return the first layout as templates, and the number of further layouts."""
    first = [f"{part.degraded} with {part.clean}" for part in layouts.pairs[:1]]
    first += [
        part.clean + (f" as listed in {part.listed}" if part.listed else "")
        for parts in layouts.clips[:1]
        for part in parts
    ]
    more = len(layouts.pairs) + len(layouts.clips) - 1
    return " and ".join(first) + (f" (or {more} other spellings)" if more else "")


def _joined_names(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return (", ".join(names[:MOST_NAMES]) or "nothing") + more
