"""Describe the layout of a dataset in folders as data.

A template is a path below the folder that the user names, without the suffix of its files:
`hazy/{scene}_{haze}` means all pictures in `hazy` whose name has an underscore. `{name}` stands for one or
more characters of one folder's or file's name, as few as fit, and for the same characters wherever it is
repeated, in the same template and in that of the clean pictures. Names are case-sensitive, but the folders
that a template spells out are not: releases have `GT` and `gt`, `Train` and `train`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["pairs", "clips"]  # pairs of pictures, or clips of frames


@dataclass(frozen=True)
class PairLayout:
    """Pairs of pictures: templates of the degraded ones and of the clean one of each."""

    degraded: str
    clean: str
    centred: bool = False  # larger clean pictures are cropped around their middle
    scenes: tuple[int, int] | None = None  # first and last number of `{scene}` in this split
    others: tuple[str, ...] = ()  # templates of other pictures in these folders, to be ignored


@dataclass(frozen=True)
class SequenceLayout:
    """Clips: the template of their frames, with `{clip}` and, in its last part, `{frame}`; without `{frame}`,
    of video files.

    `degraded` are templates of the low-resolution frames; the first whose folder exists is used. `listed` is
    a file with the name of one `{clip}` per line. `only` and `without` select clips by name. `shift` is added
    to the names, which must be numbers then. `frames` is the number of frames of every clip; 0 if they
    differ.
    """

    clean: str
    degraded: tuple[str, ...] = ()
    listed: str = ""
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    shift: int = 0
    frames: int = 0


@dataclass(frozen=True)
class Split:
    """Layouts that releases have, of pairs or of clips; the first that is found is used. Clips may be in
    several parts.
    """

    pairs: tuple[PairLayout, ...] = ()
    clips: tuple[tuple[SequenceLayout, ...], ...] = ()
    measured_frames: tuple[int, ...] = ()  # see `records.Sequences`


@dataclass(frozen=True)
class Dataset:
    """One dataset: its name in papers, its splits, and the folders that releases wrap it in.

    `layout` describes what is expected, `advice` what to do if it isn't found. `refused` are globs of files
    that hold the pictures in a form that is not supported, each with what to do about it.
    """

    title: str
    layout: str
    splits: Mapping[str, Split]
    folders: tuple[str, ...] = ()
    advice: str = "unpack the release there as it is, or name the folder that holds it"
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> Kind:
        return "pairs" if any(split.pairs for split in self.splits.values()) else "clips"
