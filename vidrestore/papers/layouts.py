"""Describe the layout of a dataset in folders as data.

A template is a path below the folder that the user names, without the suffix of its files:
`hazy/{scene}_{haze}` means all pictures in `hazy` whose name has an underscore. `{name}` stands for one or
more characters of one folder's or file's name, as few as fit, and for the same characters wherever it is
repeated, in the same template and in that of the clean pictures. Names are case-sensitive, but the folders
that a template spells out are not: releases have `GT` and `gt`, `Train` and `train`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from vidrestore.errors import DatasetError

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


Fields = dict[str, str]
_NAMES = re.compile(r"\{(\w+)\}")


def base(template: str) -> str:
    """Return the folders of a template before the first part with a placeholder."""
    parts = template.split("/")
    return "/".join(parts[: next(index for index, part in enumerate(parts) if "{" in part)])


def spelled(root: Path, path: str) -> str:
    """Return `path` as it is spelled below `root` if only upper and lower case differ; else unchanged."""
    found = ""
    for part in path.split("/") if path else []:
        folder = root / found
        exact = (folder / part).exists()
        alike = [] if exact else [name for name in listing(folder) if name.lower() == part.lower()]
        found = f"{found}/{alike[0] if alike else part}".removeprefix("/")
    return found


def filled(template: str, fields: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced."""
    return _NAMES.sub(lambda name: fields[name[1]], template)


def matches(root: Path, template: str, suffixes: tuple[str, ...] = ()) -> Iterator[tuple[str, Fields]]:
    """Yield the matches below `root`, in order: relative paths, and the values of the template's
    placeholders.

    Matches are files with one of `suffixes`, which the template omits; without suffixes they are folders.
    """
    yield from _walk(root, "", template.split("/"), suffixes, {})


def _walk(
    root: Path, folder: str, parts: list[str], suffixes: tuple[str, ...], known: Fields
) -> Iterator[tuple[str, Fields]]:
    part, *rest = parts
    ends = () if rest else suffixes
    for name, found in _fitting(root / folder, part, ends, known):
        if rest:
            yield from _walk(root, f"{folder}{name}/", rest, suffixes, known | found)
        elif ends or (root / folder / name).is_dir():
            yield folder + name, known | found


def _fitting(folder: Path, part: str, ends: tuple[str, ...], known: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield names in a folder that fit one part of a template; with suffixes `ends`, files by their stems."""
    if "{" not in part:
        yield spelled(folder, part), {}
        return
    pattern = _pattern(part, tuple((name, known[name]) for name in _NAMES.findall(part) if name in known))
    for name in listing(folder):
        if ends and not name.lower().endswith(ends):
            continue
        if found := pattern.fullmatch(os.path.splitext(name)[0] if ends else name):
            yield name, found.groupdict()


@lru_cache
def _pattern(part: str, known: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """Compile one part of a template: other text is literal; a known or repeated placeholder must have its
    earlier value.
    """
    pieces = []
    seen: set[str] = set()
    for index, piece in enumerate(_NAMES.split(part)):
        if index % 2 == 0:
            pieces.append(re.escape(piece))
        elif piece in dict(known):
            pieces.append(re.escape(dict(known)[piece]))
        else:
            pieces.append(f"(?P={piece})" if piece in seen else f"(?P<{piece}>.+?)")
            seen.add(piece)
    return re.compile("".join(pieces))


def listing(folder: Path) -> list[str]:
    """Return the sorted names in a folder without hidden ones; none if it doesn't exist. Raises DatasetError
    if it can't be read.
    """
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DatasetError(f"{folder}: the folder can't be read ({error.strerror})") from error


def in_order(names: list[str]) -> list[str]:
    """Sort names with numbers by value: im2 before im10."""
    return sorted(
        names,
        key=lambda name: [
            (len(part), part) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)
        ],
    )
