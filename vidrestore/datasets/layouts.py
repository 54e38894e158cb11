"""The layout of a dataset in folders, as data.

A template is a path below the folder that the user gives, without the suffix of its files:
`hazy/{scene}_{haze}` means all pictures in `hazy` whose name has an underscore. `{name}` stands for one or
more characters of one folder's or file's name, as few as fit, and for the same ones wherever it comes again,
in the same template and in the one of the clean pictures. Upper and lower case count in names, but not in the
folders that a template spells out: releases have `GT` and `gt`, `Train` and `train`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["pairs", "clips"]  # of pictures; of frames


@dataclass(frozen=True)
class PairLayout:
    """Pairs of pictures: templates of the degraded ones, and of the clean one that belongs to each."""

    degraded: str
    clean: str
    centred: bool = False  # larger clean pictures are cut around their middle
    scenes: tuple[int, int] | None = None  # first and last number that `{scene}` has in this split
    others: tuple[str, ...] = ()  # templates of pictures that lie beside and are none of ours


@dataclass(frozen=True)
class SequenceLayout:
    """Clips: the template of their frames, with `{clip}` and, in its last part, `{frame}`; of video files
    where there is no `{frame}`.

    `degraded` are templates of the small frames: the first one whose folder is there counts; without any,
    clips are clean alone. `listed` is a file with one clip per line, the names that `{clip}` has. `only` and
    `without` choose clips by name too. `shift` is added to the names, which are numbers then. `frames` is how
    many every clip has; 0 where they differ.
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
    """Layouts that releases have, of pairs or of clips; the first that is there counts. Clips may lie in
    several parts.
    """

    pairs: tuple[PairLayout, ...] = ()
    clips: tuple[tuple[SequenceLayout, ...], ...] = ()
    judged: tuple[int, ...] = ()  # see `records.Sequences`


@dataclass(frozen=True)
class Dataset:
    """One dataset: its name in papers, its splits, and the folders that releases wrap it in.

    `layout` says in words what is expected, `advice` what to do where something else is found. `refused` are
    globs of files that hold the pictures in a form that is not read, and what to do about them.
    """

    title: str
    layout: str
    splits: Mapping[str, Split]
    folders: tuple[str, ...] = ()
    advice: str = "unpack the release there as it is, or name the folder that it is in"
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> Kind:
        return "pairs" if any(split.pairs for split in self.splits.values()) else "clips"
