"""Read the files of a dataset: pairs of pictures, or clips of frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vidrestore.errors import DatasetError
from vidrestore.media.reading.pictures import read_rgb
from vidrestore.pages.sequence_frames import video_frames


@dataclass(frozen=True)
class Pair:
    """A degraded picture and its clean one, of which it shows the middle if `centred`."""

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
        degraded, clean = self.files[index]
        return Pair(self.root / degraded, self.root / clean, self.centred)


@dataclass(frozen=True)
class FrameSequence:
    """One clip of a dataset: names of its frames in their folders, in order, or one video file; as many
    degraded frames, or none.
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
        folder = self.degraded_folder
        return tuple(folder / frame for frame in self.degraded_frames) if folder else ()

    def __len__(self) -> int:
        """Return the number of frames if they are pictures; 1 for a video file."""
        return len(self.clean_frames)


@dataclass(frozen=True)
class Sequences(Sequence[FrameSequence]):
    """The sequences of one split of a dataset, sorted by name. `measured_frames` are the indices of the
    frames that its protocol measures, such as the fourth of seven in Vimeo-90K; empty for all.
    """

    name: str
    split: str
    root: Path
    sequences: tuple[FrameSequence, ...]
    measured_frames: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, index: Any) -> Any:
        return self.sequences[index]


def read_pair(pair: Pair) -> tuple[Tensor, Tensor]:
    """Return the degraded and the clean picture, (3, H, W) uint8 R, G, B. Raises DatasetError if their sizes
    differ, MediaError if one can't be read.
    """
    # some releases have clean pictures with a border that the hazy ones lack
    degraded, clean = (
        torch.from_numpy(read_rgb(path)) for path in (pair.degraded, pair.clean)
    )
    if pair.centred:
        clean = _middle(clean, *degraded.shape[1:])
    if degraded.shape != clean.shape:
        raise DatasetError(
            f"{pair.degraded}: is {_size(degraded)}, but its clean picture {pair.clean} is {_size(clean)}; "
            "fetch both again"
        )
    return degraded, clean


def read_frames(paths: Sequence[Path]) -> Tensor:
    """Return pictures as (T, 3, H, W) uint8 R, G, B. Raises DatasetError if sizes differ, MediaError."""
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
    top = (picture.shape[1] - height) // 2
    left = (picture.shape[2] - width) // 2
    if min(top, left) < 0:
        return picture
    return picture[:, top : top + height, left : left + width]


def clean_frames(sequence: FrameSequence) -> Iterator[Tensor]:
    """Yield the clean frames in order, (3, H, W) uint8 R, G, B. Raises MediaError."""
    return (
        video_frames(str(sequence.clean[0]))
        if sequence.video
        else picture_frames(sequence.clean)
    )


def picture_frames(paths: Iterable[Path]) -> Iterator[Tensor]:
    """Yield pictures one by one, (3, H, W) uint8 R, G, B."""
    for path in paths:
        yield torch.from_numpy(read_rgb(path))


def stacked(frames: Iterator[Tensor], place: str) -> Tensor:
    """Stack frames to one tensor (T, ...). Raises DatasetError without frames, or if their sizes differ."""
    # frames of one clip have one size
    stack = list(frames)
    if not stack:
        raise DatasetError(
            f"{place}: has no frame that can be decoded; unpack the release again"
        )
    for number, frame in enumerate(stack):
        if frame.shape != stack[0].shape:
            sizes = (
                f"{shape[-1]}x{shape[-2]}" for shape in (frame.shape, stack[0].shape)
            )
            raise DatasetError(
                f"{place}: frame {number} is {' but the first '.join(sizes)}; unpack the release again"
            )
    return torch.stack(stack)
