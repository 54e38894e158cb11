"""The files of a dataset as paths: pairs of pictures, or sequences of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload


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

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> PairedImages: ...
    def __getitem__(self, index: int | slice) -> Pair | PairedImages:
        if isinstance(index, slice):
            return PairedImages(self.name, self.split, self.root, self.files[index], self.centred)
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

    @overload
    def __getitem__(self, index: int) -> FrameSequence: ...
    @overload
    def __getitem__(self, index: slice) -> Sequences: ...
    def __getitem__(self, index: int | slice) -> FrameSequence | Sequences:
        if isinstance(index, slice):
            return Sequences(self.name, self.split, self.root, self.sequences[index], self.measured_frames)
        return self.sequences[index]
