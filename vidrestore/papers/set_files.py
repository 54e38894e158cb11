"""A dataset's files: found in a folder, as pairs of pictures or clips of frames, and read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vidrestore.errors import DatasetError
from vidrestore.evaluation.sequence_frames import video_frames
from vidrestore.media.pictures import SUFFIXES, read_rgb
from vidrestore.papers.datasets import (
    DATASETS,
    Dataset,
    Fields,
    Kind,
    PairLayout,
    SequenceLayout,
    Split,
    base,
    filled,
    in_order,
    listing,
    matches,
    spelled,
)


@dataclass(frozen=True)
class Pair:
    """A degraded picture and its clean one. `centred`: the degraded one shows the middle of a larger clean
    picture.
    """

    degraded: Path
    clean: Path
    centred: bool = False


@dataclass(frozen=True)
class PairedImages(Sequence[Pair]):
    """The pairs of one split of a dataset, in order of the degraded pictures' names."""

    name: str
    split: str
    root: Path
    # degraded and clean, relative to `root`; strings, because there may be hundreds of thousands
    files: tuple[tuple[str, str], ...]
    centred: bool = False

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return replace(self, files=self.files[index])
        degraded, clean = self.files[index]
        return Pair(self.root / degraded, self.root / clean, self.centred)


@dataclass(frozen=True)
class FrameSequence:
    """One clip of a dataset: its frames as pictures in order, or one video file.

    `clean_frames` and `degraded_frames` are names of files in their folders, in equal number; there are no
    degraded ones if the release has clean frames alone.
    """

    name: str  # "000", "00001/0001", "calendar"
    clean_folder: Path
    clean_frames: tuple[str, ...]
    degraded_folder: Path | None = None
    degraded_frames: tuple[str, ...] = ()
    video: bool = False  # `clean` is one path, a video file with all frames

    @property
    def clean(self) -> tuple[Path, ...]:
        return tuple(self.clean_folder / frame for frame in self.clean_frames)

    @property
    def degraded(self) -> tuple[Path, ...]:
        """As many paths as in `clean`, or none."""
        return (
            tuple(self.degraded_folder / frame for frame in self.degraded_frames)
            if self.degraded_folder
            else ()
        )

    def __len__(self) -> int:
        """Return the number of frames if they are pictures; 1 for a video file."""
        return len(self.clean_frames)


@dataclass(frozen=True)
class Sequences(Sequence[FrameSequence]):
    """The sequences of one split of a dataset, sorted by name.

    `measured_frames` are the indices of the frames that its protocol measures, such as the fourth of seven in
    Vimeo-90K; empty for all.
    """

    name: str
    split: str
    root: Path
    sequences: tuple[FrameSequence, ...]
    measured_frames: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, index: Any) -> Any:
        found = self.sequences[index]
        return replace(self, sequences=found) if isinstance(index, slice) else found


def read_pair(pair: Pair) -> tuple[Tensor, Tensor]:
    """Return the degraded and the clean picture, (3, H, W) uint8 R, G, B.

    Raises DatasetError if their sizes differ, MediaError if one can't be read.
    """
    degraded, clean = (torch.from_numpy(read_rgb(path)) for path in (pair.degraded, pair.clean))
    if pair.centred:
        clean = _middle(clean, *degraded.shape[1:])
    if degraded.shape != clean.shape:
        raise DatasetError(
            f"{pair.degraded}: is {_size(degraded)}, but its clean picture {pair.clean} is {_size(clean)}; "
            "fetch both again"
        )
    return degraded, clean


def read_frames(paths: Sequence[Path]) -> Tensor:
    """Return pictures of one size, (T, 3, H, W) uint8 R, G, B. Raises DatasetError if sizes differ,
    MediaError as `read_rgb` does.
    """
    frames = [torch.from_numpy(read_rgb(path)) for path in paths]
    for path, frame in zip(paths, frames, strict=True):
        if frame.shape != frames[0].shape:
            raise DatasetError(
                f"{path}: is {_size(frame)}, but {paths[0]} of the same clip is {_size(frames[0])}; unpack "
                "the release again"
            )
    return torch.stack(frames)


def _size(picture: Tensor) -> str:
    return f"{picture.shape[-1]}x{picture.shape[-2]}"


def _middle(picture: Tensor, height: int, width: int) -> Tensor:
    """Crop (3, H, W) to a size around its middle; a smaller picture is unchanged."""
    top, left = (picture.shape[1] - height) // 2, (picture.shape[2] - width) // 2
    return picture[:, top : top + height, left : left + width] if top >= 0 and left >= 0 else picture


def clean_frames(sequence: FrameSequence, most: int | None = None) -> Iterator[Tensor]:
    """Yield the clean frames in order, at most `most` of them, each (3, H, W) uint8 R, G, B. Raises
    MediaError.
    """
    frames = video_frames(str(sequence.clean[0])) if sequence.video else picture_frames(sequence.clean)
    return islice(frames, most)


def picture_frames(paths: Iterable[Path]) -> Iterator[Tensor]:
    """Yield pictures one by one, (3, H, W) uint8 R, G, B."""
    for path in paths:
        yield torch.from_numpy(read_rgb(path))


def stacked(frames: Iterator[Tensor], where: str) -> Tensor:
    """Stack frames to one tensor (T, ...). Raises DatasetError if there are none or their sizes differ."""
    stack = list(frames)
    if not stack:
        raise DatasetError(f"{where}: has no frame that can be decoded; unpack the release again")
    for number, frame in enumerate(stack):
        if frame.shape != stack[0].shape:
            sizes = (f"{shape[-1]}x{shape[-2]}" for shape in (frame.shape, stack[0].shape))
            raise DatasetError(
                f"{where}: frame {number} is {' but the first '.join(sizes)}; unpack the release again"
            )
    return torch.stack(stack)


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
    found = listing(root)
    more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    return DatasetError(
        f"{root}: no {dataset.title}, split {split}: looked for {_template_text(dataset.splits[split])}, "
        f"there and in {', '.join(f'{folder}/' for folder in dataset.folders)}; found "
        f"{', '.join(found[:MOST_NAMES]) or 'nothing'}{more}; expected {dataset.layout}; {dataset.advice}"
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


File = tuple[str, str]  # paths of degraded and clean picture, relative to the dataset's folder


def paired_files(root: Path, layout: PairLayout) -> list[File]:
    """Return the pairs below `root`, sorted by the degraded pictures; none if no folder or file fits the
    layout.

    Raises DatasetError for a degraded picture without a clean one, and for other pictures beside them.
    """
    if not (root / spelled(root, base(layout.clean))).is_dir():
        return []
    found = list(matches(root, layout.degraded, SUFFIXES))
    search = _CleanPictures(root)
    pairs = [
        (degraded, search.belonging_to(degraded, filled(layout.clean, fields))) for degraded, fields in found
    ]
    _refuse_others(root, pairs, layout)
    if layout.scenes is None:
        return pairs
    first, last = layout.scenes
    scenes = [fields["scene"] for _, fields in found]
    return [
        pair
        for pair, scene in zip(pairs, scenes, strict=True)
        if scene.isdecimal() and first <= int(scene) <= last
    ]


class _CleanPictures:
    """Finds clean pictures with any suffix; every folder is listed once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._stems = cache(self._listed)

    def belonging_to(self, degraded: str, expected: str) -> str:
        folder, _, stem = expected.rpartition("/")
        place, stems = self._stems(folder)
        if stem not in stems:
            raise DatasetError(
                f"{self.root / degraded}: has no clean picture; expected {self.root / place / stem} with "
                f"one of {', '.join(SUFFIXES)}; fetch it, or remove the degraded picture from the folder"
            )
        return place + stems[stem]

    def _listed(self, folder: str) -> tuple[str, dict[str, str]]:
        """Return the folder as spelled on disk, with a trailing slash, and its pictures by stem."""
        place = spelled(self.root, folder)
        pictures = {
            os.path.splitext(name)[0]: name
            for name in listing(self.root / place)
            if name.lower().endswith(SUFFIXES)
        }
        return f"{place}/" if place else "", pictures


def _refuse_others(root: Path, pairs: list[File], layout: PairLayout) -> None:
    """Raise DatasetError for a picture in a folder of degraded ones that belongs to no pair."""
    known = {file for pair in pairs for file in pair}
    for folder in sorted({degraded.rpartition("/")[0] for degraded, _ in pairs}):
        ignored = {
            name
            for template in layout.others
            for name, _ in matches(root / folder, template.rpartition("/")[2], SUFFIXES)
        }
        for name in listing(root / folder):
            file = f"{folder}/{name}" if folder else name
            if name.lower().endswith(SUFFIXES) and name not in ignored and file not in known:
                raise DatasetError(
                    f"{root / file}: belongs to no pair; pictures are expected as {layout.degraded} and "
                    f"{layout.clean}; remove it from the folder"
                )


VIDEO_SUFFIXES = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".mpg", ".y4m")


def find_clips(root: Path, parts: tuple[SequenceLayout, ...]) -> tuple[FrameSequence, ...]:
    """Return the clips of all parts, sorted by name; none if a part is missing.

    Raises DatasetError for a missing clip and for frames without their counterparts.
    """
    clips = [list(_clips(root, part)) for part in parts]
    if not all(clips):
        return ()
    found = sorted((clip for part in clips for clip in part), key=lambda clip: clip.name)
    if missing := set().union(*(part.only for part in parts)) - {clip.name for clip in found}:
        raise DatasetError(f"{root}: lacks the clips {', '.join(sorted(missing))}; unpack the release again")
    return tuple(found)


def _clips(root: Path, layout: SequenceLayout) -> Iterator[FrameSequence]:
    if "{frame}" not in layout.clean:
        for file, fields in matches(root, layout.clean, VIDEO_SUFFIXES):
            path = root / file
            yield FrameSequence(fields["clip"], path.parent, (path.name,), video=True)
        return
    degraded = next(
        (template for template in layout.degraded if (root / spelled(root, base(template))).is_dir()), None
    )
    shared: dict[
        tuple[str, ...], tuple[str, ...]
    ] = {}  # names of frames; equal tuples are shared between clips to save memory
    for folder, fields in _folders(root, layout):
        if fields["clip"] in layout.without or (layout.only and fields["clip"] not in layout.only):
            continue
        if clean := _frames(root / folder, layout.clean):
            names = tuple(clean.values())
            if layout.frames not in (0, len(names)):
                raise DatasetError(
                    f"{root / folder}: {len(names)} frames, but each clip has {layout.frames}; unpack the "
                    "release again"
                )
            name = _name(layout, fields)
            small = (
                (None, ())
                if degraded is None
                else _small_frames(root, degraded, fields, root / folder, clean)
            )
            yield FrameSequence(
                name,
                root / folder,
                shared.setdefault(names, names),
                small[0],
                shared.setdefault(small[1], small[1]),
            )
        elif layout.listed:
            raise DatasetError(
                f"{root / folder}: no frames, but {root / layout.listed} lists the clip; unpack the release "
                "again"
            )


def _folders(root: Path, layout: SequenceLayout) -> Iterator[tuple[str, Fields]]:
    """Yield folders of clips relative to `root`: those of the list, or all that fit."""
    template = layout.clean.rpartition("/")[0]
    listed = root / spelled(root, layout.listed)
    if not layout.listed:
        yield from matches(root, template)
    elif listed.is_file():
        for clip in _listed(listed):
            yield filled(template, {"clip": clip}), {"clip": clip}


def _listed(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{file}: can't be read as a list of clips ({error}); unpack the release again"
        ) from error


def _name(layout: SequenceLayout, fields: Fields) -> str:
    if layout.shift:
        return f"{int(fields['clip']) + layout.shift:0{len(fields['clip'])}d}"
    return "/".join(fields.values())


def _small_frames(
    root: Path, template: str, fields: Fields, large: Path, clean: dict[str, str]
) -> tuple[Path, tuple[str, ...]]:
    """Return the folder and the names of the low-resolution frames. Raises DatasetError unless each clean
    frame has one.
    """
    folder = root / spelled(root, filled(template.rpartition("/")[0], fields))
    frames = _frames(folder, template)
    if differing := sorted(clean.keys() ^ frames.keys()):
        has, lacks = (large, folder) if differing[0] in clean else (folder, large)
        raise DatasetError(
            f"{lacks}: no frame {differing[0]}, which is in {has}; unpack the release again, or remove both "
            "folders"
        )
    return folder, tuple(frames[frame] for frame in clean)


def _frames(folder: Path, template: str) -> dict[str, str]:
    """Return the files of a clip by the value of `{frame}`, in order."""
    found = {fields["frame"]: name for name, fields in matches(folder, template.rpartition("/")[2], SUFFIXES)}
    return {frame: found[frame] for frame in in_order(list(found))}
