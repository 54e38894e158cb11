"""What is found of a dataset: pairs of pictures, or sequences of frames, as paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload


@dataclass(frozen=True)
class Pair:
    """One degraded picture and its clean one. `centred`: a larger clean picture shows the degraded one's
    scene in its middle.
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
    # degraded and clean, relative to `root`: hundreds of thousands of strings, made paths when asked for
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
    """One clip of a dataset: its frames as pictures in order, or one video file that holds them all.

    `clean_frames` and `degraded_frames` are names of files in their folders. There are as many of one as of
    the other, or none degraded where the release has clean frames alone.
    """

    name: str  # "000", "00001/0001", "calendar"
    clean_folder: Path
    clean_frames: tuple[str, ...]
    degraded_folder: Path | None = None
    degraded_frames: tuple[str, ...] = ()
    video: bool = False  # one file with all frames; `clean` has one path then

    @property
    def clean(self) -> tuple[Path, ...]:
        return tuple(self.clean_folder / frame for frame in self.clean_frames)

    @property
    def degraded(self) -> tuple[Path, ...]:
        """As many paths as `clean` has, or none."""
        return (
            tuple(self.degraded_folder / frame for frame in self.degraded_frames)
            if self.degraded_folder
            else ()
        )

    def __len__(self) -> int:
        """Frames, where they are pictures; 1 for a video file."""
        return len(self.clean_frames)


@dataclass(frozen=True)
class Sequences(Sequence[FrameSequence]):
    """The sequences of one split of a dataset, in order of their names.

    `judged` are the places of the frames that count in its protocol (the fourth of seven in Vimeo-90K); all
    of them where it is empty.
    """

    name: str
    split: str
    root: Path
    sequences: tuple[FrameSequence, ...]
    judged: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.sequences)

    @overload
    def __getitem__(self, index: int) -> FrameSequence: ...
    @overload
    def __getitem__(self, index: slice) -> Sequences: ...
    def __getitem__(self, index: int | slice) -> FrameSequence | Sequences:
        if isinstance(index, slice):
            return Sequences(self.name, self.split, self.root, self.sequences[index], self.judged)
        return self.sequences[index]
