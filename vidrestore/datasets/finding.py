"""Datasets found in the folder that a user gives."""

from __future__ import annotations

from pathlib import Path

from vidrestore.datasets.catalogue import DATASETS
from vidrestore.datasets.layouts import Dataset, PairLayout, SequenceLayout
from vidrestore.datasets.pairing import paired_files
from vidrestore.datasets.records import PairedImages, Sequences
from vidrestore.datasets.sequencing import sequences
from vidrestore.datasets.templates import listing
from vidrestore.errors import DatasetError

SHOWN = 8  # names in messages


def names() -> tuple[str, ...]:
    """Of all datasets that `find` knows."""
    return tuple(DATASETS)


def splits(name: str) -> tuple[str, ...]:
    """Of one dataset. Raises DatasetError for a name that is none."""
    return tuple(_dataset(name).splits)


def find(name: str, root: Path, split: str) -> PairedImages | Sequences:
    """The pictures of a dataset's split below `root`: the folder that the release was unpacked to, or the one that holds it.

    Nothing is decoded. Raises DatasetError for a dataset or split that is unknown, that isn't there, or that lacks clean pictures.
    """
    dataset = _dataset(name)
    if split not in dataset.splits:
        raise DatasetError(f"{name}: has no split {split!r}; there are: {', '.join(dataset.splits)}")
    for folder in dataset.folders:
        for layout in dataset.splits[split].layouts:
            if found := _found(name, root / folder, split, dataset, layout):
                return found
    raise _absent(name, root, split, dataset)


def _dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise DatasetError(f"no dataset named {name!r}; there are: {', '.join(DATASETS)}")
    return DATASETS[name]


def _found(
    name: str, root: Path, split: str, dataset: Dataset, layout: tuple[PairLayout, ...] | tuple[SequenceLayout, ...]
) -> PairedImages | Sequences | None:
    """What lies below `root` in one layout; None where nothing does."""
    pairs = [part for part in layout if isinstance(part, PairLayout)]
    if pairs:
        files = tuple(file for part in pairs for file in paired_files(root, part))
        return PairedImages(name, split, root, files, pairs[0].centred) if files else None
    clips = tuple(clip for part in layout if isinstance(part, SequenceLayout) for clip in sequences(root, part))
    return Sequences(name, split, root, clips, dataset.splits[split].judged) if clips else None


def _absent(name: str, root: Path, split: str, dataset: Dataset) -> DatasetError:
    """What was looked for, what is there, what should be, and what to do."""
    if not root.is_dir():
        return DatasetError(f"{root}: no such folder; {name} is expected there as {dataset.layout}")
    for pattern, advice in dataset.refused.items():
        if refused := next((path for folder in dataset.folders for path in sorted((root / folder).glob(pattern))), None):
            return DatasetError(f"{refused}: {advice}; expected instead: {dataset.layout}")
    layouts = dataset.splits[split].layouts
    wanted = " and ".join(map(_described, layouts[0])) + (f" or {len(layouts) - 1} other spellings" if len(layouts) > 1 else "")
    below = [f"{folder}/" for folder in dataset.folders if folder]
    places = "there" + (f" and below {', '.join(below)}" if below else "")
    entries = listing(root)
    more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return DatasetError(
        f"{root}: no {dataset.title}, split {split}: looked for {wanted}, {places};"
        f" found {', '.join(entries[:SHOWN]) or 'nothing'}{more}; expected {dataset.layout};"
        f" {dataset.advice or 'unpack the release there as it is, or name the folder that it is in'}"
    )


def _described(part: PairLayout | SequenceLayout) -> str:
    """What to look for on a disk."""
    if isinstance(part, PairLayout):
        return f"{part.degraded} with {part.clean}"
    return part.clean + (f" as listed in {part.listed}" if part.listed else "")
