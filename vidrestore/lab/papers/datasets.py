"""Find the papers' datasets in a folder, by the layout that each is released in.

`datasets.toml` has a table for each. In the path of a folder "*" is any text, and upper and lower case are
the same: releases have `GT` and `gt`, `Train` and `train`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from vidrestore.errors import DatasetError
from vidrestore.lab.papers.dataset_files import FrameSequence, PairedImages, Sequences
from vidrestore.media.formats.source import natural_order

Kind = Literal["pairs", "clips"]  # pairs of pictures, or clips of frames
# of the pictures in releases; masks beside them are .bmp
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
DATASET_VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".mpg", ".y4m")
MOST_NAMES = 8  # most names in a message


@dataclass(frozen=True)
class Pairs:
    """Folders of degraded and of clean pictures; the defaults are those of sets of haze."""

    places: tuple[str, ...] = ("",)  # folders that hold both
    degraded: tuple[str, ...] = ("hazy", "haze", "input")
    clean: tuple[str, ...] = ("clear", "gt", "target")
    # regular expression for the degraded pictures' names without suffix
    names: str = "(.+)"
    clean_names: str = r"\1"  # the name of the clean picture of each
    # regular expression for further pictures in these folders, to be ignored
    ignored: str = ""
    # first and last number that `names` begin with, of this split
    scenes: tuple[int, int] | None = None
    centred: bool = False  # larger clean pictures are cropped around their middle


@dataclass(frozen=True)
class Clips:
    """A folder of clips."""

    folder: str
    small: str = ""  # folder of the same clips at low resolution
    listed: str = ""  # file with the name of one clip per line
    only: frozenset[str] = frozenset()  # names of the clips to take; empty for all
    without: frozenset[str] = frozenset()  # names of the clips to leave out
    shift: int = 0  # added to names that are numbers
    prefix: str = ""  # put before names that aren't shifted
    frames: int = 0  # of every clip; 0 if they differ
    videos: bool = False  # clips are video files, not folders of frames


@dataclass(frozen=True)
class Dataset:
    """One dataset."""

    title: str  # its name in papers
    expected: str  # the layout in words
    folders: tuple[str, ...]  # that releases wrap it in
    # layouts by split, of which the first that fits is used; clips may be in several parts
    pairs: Mapping[str, tuple[Pairs, ...]] = field(default_factory=dict)
    clips: Mapping[str, tuple[tuple[Clips, ...], ...]] = field(default_factory=dict)
    # see `Sequences`, by split
    measured: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # height that the DUST paper downscales its frames to; 0 for their own
    lines: int = 0

    @property
    def kind(self) -> Kind:
        return "pairs" if self.pairs else "clips"

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.pairs or self.clips)


@cache
def datasets() -> dict[str, Dataset]:
    """Return all datasets by name."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Dataset]).validate_python(tomllib.loads(text))


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the names of all datasets, or of those of pairs of pictures or of clips."""
    return tuple(
        name for name, dataset in datasets().items() if kind in (None, dataset.kind)
    )


def splits(name: str) -> tuple[str, ...]:
    """Return the splits of a dataset. Raises DatasetError for an unknown name."""
    return _dataset(name).splits


def find(name: str, root: Path, split: str) -> PairedImages | Sequences:
    """Return the pictures of a dataset's split below `root`: the unpacked release, or the folder that holds
    it. Raises DatasetError for an unknown dataset or split, and a missing or incomplete one.
    """
    # the release as it unpacks, or a folder that holds it
    dataset = _dataset(name)
    if split not in dataset.splits:
        raise DatasetError(
            f"{name}: has no split {split!r}; there are: {', '.join(dataset.splits)}"
        )
    for folder in (
        path for pattern in ("", *dataset.folders) for path in folders(root, pattern)
    ):
        for pairs in dataset.pairs.get(split, ()):
            if files := _paired_files(folder, pairs, dataset.expected):
                return PairedImages(name, split, folder, tuple(files), pairs.centred)
        for parts in dataset.clips.get(split, ()):
            if clips := _find_clips(folder, parts):
                return Sequences(
                    name, split, folder, clips, dataset.measured.get(split, ())
                )
    raise _absent(name, root, split, dataset)


def _dataset(name: str) -> Dataset:
    if name not in datasets():
        raise DatasetError(
            f"no dataset named {name!r}; there are: {', '.join(datasets())}"
        )
    return datasets()[name]


def _absent(name: str, root: Path, split: str, dataset: Dataset) -> DatasetError:
    """Return an error that names the place, the files found, the layout expected, and the way out."""
    if not root.is_dir():
        return DatasetError(
            f"{root}: no such folder; {dataset.title} is expected there: {dataset.expected}"
        )
    # what is there instead helps to find what is missing
    entries = listing(root)
    more = f" and {len(entries) - MOST_NAMES} more" if len(entries) > MOST_NAMES else ""
    places = ", ".join(f"{folder}/" for folder in dataset.folders)
    names = ", ".join(entries[:MOST_NAMES]) or "nothing"
    return DatasetError(
        f"{root}: no {dataset.title}, split {split}, there or in {places}; found {names}{more}; expected "
        f"{dataset.expected}; unpack the release there as it is, or name the folder that holds it"
    )


def listing(folder: Path) -> list[str]:
    """Return the sorted names in a folder but hidden ones; [] if it is missing. Raises DatasetError."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DatasetError(
            f"{folder}: the folder can't be read ({error.strerror})"
        ) from error


def folders(root: Path, pattern: str) -> list[Path]:
    """Return the folders below `root` that match a pattern in any case; `root` itself for ""."""
    # a name that fits exactly wins over one in another case
    matches = [root]
    for part in pattern.split("/") if pattern else ():
        if all((folder / part).is_dir() for folder in matches):
            matches = [folder / part for folder in matches]
            continue
        entries = (folder / name for folder in matches for name in listing(folder))
        matches = [
            path
            for path in entries
            if fnmatch(path.name.lower(), part.lower()) and path.is_dir()
        ]
    return matches


def _pictures(folder: Path) -> dict[str, str]:
    """Return the names of the pictures in a folder by their stems, numbers in order: im2 before im10."""
    names = [
        name for name in listing(folder) if name.lower().endswith(PICTURE_SUFFIXES)
    ]
    return {
        os.path.splitext(name)[0]: name for name in sorted(names, key=natural_order)
    }


# paths of degraded and clean picture, relative to the dataset's folder
File = tuple[str, str]


def _paired_files(root: Path, layout: Pairs, expected: str) -> list[File]:
    """Return the pairs below `root`; [] if nothing fits. Raises DatasetError for other pictures."""
    for place, degraded, clean in product(layout.places, layout.degraded, layout.clean):
        pairs: list[File] = []
        for folder in folders(root, place):
            if cleans := folders(folder, clean):
                for one in folders(folder, degraded):
                    pairs += _pairs_of(root, one, cleans[0], layout, expected)
        if pairs:
            return pairs
    return []


def _pairs_of(
    root: Path, degraded: Path, clean: Path, layout: Pairs, expected: str
) -> Iterator[File]:
    """Yield the pairs of two folders, sorted by the degraded pictures."""
    # by names without suffix, as releases mix kinds of pictures
    pictures = _pictures(degraded)
    cleans = _pictures(clean)
    matches = {
        stem: match for stem in pictures if (match := re.fullmatch(layout.names, stem))
    }
    partners = {
        stem: match.expand(layout.clean_names) for stem, match in matches.items()
    }
    members = {*partners, *(partners.values() if degraded == clean else ())}
    # a picture of no pair would be missed in the mean
    for stem in sorted(pictures.keys() - members) if partners else ():
        if not re.fullmatch(layout.ignored, stem):
            raise DatasetError(
                f"{degraded / pictures[stem]}: belongs to no pair; pictures are expected as {expected}; "
                "remove it from the folder"
            )
    degraded_prefix, clean_prefix = (
        f"{folder.relative_to(root).as_posix()}/".removeprefix("./")
        for folder in (degraded, clean)
    )
    for stem in sorted(partners, key=pictures.__getitem__):
        if (partner := partners[stem]) not in cleans:
            raise DatasetError(
                f"{degraded / pictures[stem]}: has no clean picture; expected {clean / partner} with one of "
                f"{', '.join(PICTURE_SUFFIXES)}; fetch it, or remove the degraded picture from the folder"
            )
        if (
            layout.scenes is None
            or layout.scenes[0] <= int(matches[stem][1]) <= layout.scenes[1]
        ):
            yield degraded_prefix + pictures[stem], clean_prefix + cleans[partner]


def _find_clips(root: Path, parts: tuple[Clips, ...]) -> tuple[FrameSequence, ...]:
    """Return the clips of all parts by name; () if a part is missing. Raises DatasetError if it is
    incomplete.
    """
    # a split may lie in several folders, of which none may be missing
    clips = [list(_clips(root, part)) for part in parts]
    if not all(clips):
        return ()
    sequences = sorted(
        (clip for part in clips for clip in part), key=lambda clip: clip.name
    )
    if missing := set().union(*(part.only for part in parts)) - {
        clip.name for clip in sequences
    }:
        raise DatasetError(
            f"{root}: lacks the clips {', '.join(sorted(missing))}; unpack the release again"
        )
    return tuple(sequences)


def _clips(root: Path, layout: Clips) -> Iterator[FrameSequence]:
    for folder in folders(root, layout.folder):
        if layout.videos:
            files = (
                name
                for name in listing(folder)
                if name.lower().endswith(DATASET_VIDEOS)
            )
            yield from (
                FrameSequence(Path(name).stem, folder, (name,), video=True)
                for name in files
            )
        else:
            yield from _frame_clips(root, folder, layout)


def _frame_clips(root: Path, folder: Path, layout: Clips) -> Iterator[FrameSequence]:
    """Yield the folders of frames below `folder`, with low-resolution frames if there are any."""
    # low-resolution frames where the release has them
    small_root = next(iter(folders(root, layout.small)), None) if layout.small else None
    # equal names of frames take memory once
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    for name in _listed(root / layout.listed) if layout.listed else listing(folder):
        if name in layout.without or (layout.only and name not in layout.only):
            continue
        large = folder / name
        small = small_root / name if small_root else None
        frames = _pictures(large)
        _check_frames(root, large, len(frames), layout)
        if not frames:
            continue
        clean = tuple(frames.values())
        degraded = _small_frames(large, small, frames) if small else ()
        # shifted numbers keep their leading zeros
        title = (
            f"{int(name) + layout.shift:0{len(name)}d}"
            if layout.shift
            else layout.prefix + name
        )
        yield FrameSequence(
            title,
            large,
            shared.setdefault(clean, clean),
            small,
            shared.setdefault(degraded, degraded),
        )


def _listed(file: Path) -> list[str]:
    """Return the clips that a file lists; none if it isn't there."""
    try:
        return file.read_text(encoding="utf-8").split() if file.is_file() else []
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{file}: can't be read as a list of clips ({error}); unpack the release again"
        ) from error


def _check_frames(root: Path, clip: Path, count: int, layout: Clips) -> None:
    """Raise DatasetError for a listed clip without frames, or one of another length than all have."""
    if layout.listed and not count:
        raise DatasetError(
            f"{clip}: no frames, but {root / layout.listed} lists the clip; unpack the release again"
        )
    if count and layout.frames not in (0, count):
        raise DatasetError(
            f"{clip}: {count} frames, but each clip has {layout.frames}; unpack the release again"
        )


def _small_frames(large: Path, small: Path, clean: dict[str, str]) -> tuple[str, ...]:
    """Return the names of the low-resolution frames. Raises DatasetError unless each clean frame has one."""
    frames = _pictures(small)
    if differing := sorted(clean.keys() ^ frames.keys()):
        has, lacks = (large, small) if differing[0] in clean else (small, large)
        raise DatasetError(
            f"{lacks}: no frame {differing[0]}, which is in {has}; unpack the release again, or remove both "
            "folders"
        )
    return tuple(frames[frame] for frame in clean)
