"""How a dataset lies in folders, as data.

A template is a path without its suffix, relative to the folder that the user gives: `hazy/{scene}_{haze}` means all pictures in `hazy`
whose name has an underscore. `{name}` stands for one or more characters of one folder's or file's name, as few as fit; it means the same
wherever it comes again, in the same template and in the one of the clean pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PairLayout:
    """Pairs of pictures: templates of the degraded ones, and of the clean one that belongs to each."""

    degraded: str
    clean: str
    centred: bool = False  # larger clean pictures are cut around their middle


@dataclass(frozen=True)
class SequenceLayout:
    """Clips: the template of their frames, `{frame}` last, or of video files where there is no `{frame}`.

    `degraded` are templates of the small or noisy frames: the first one whose folder is there counts; without any the clips are clean
    alone. `listed` is a file with one clip per line, the names that `{clip}` may have. `only` and `without` choose clips by name too.
    `shift` is added to clips' names, which are numbers then.
    """

    clean: str
    degraded: tuple[str, ...] = ()
    listed: str = ""
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    shift: int = 0


@dataclass(frozen=True)
class Split:
    """Layouts that releases have, the first that is there counts. One may be of several parts, which are put together."""

    layouts: tuple[tuple[PairLayout, ...] | tuple[SequenceLayout, ...], ...]
    judged: tuple[int, ...] = ()  # see `records.Sequences`


@dataclass(frozen=True)
class Dataset:
    """One dataset: its name in papers, where it may begin below the folder that is given, and its splits.

    `layout` says in words what is expected, `advice` what to do where the pictures lie in another form.
    """

    title: str
    layout: str
    splits: Mapping[str, Split]
    folders: tuple[str, ...] = ("",)
    advice: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)  # glob of files that are not read -> why, and what to do
