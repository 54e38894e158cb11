"""What an odd input is: how it is made, and what `vidrestore denoise` is to do with it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odd_files import KINDS, clip, made
from odd_videos import Content, write_content

Bytes = Callable[[], bytes]


@dataclass(frozen=True)
class Outcome:
    """The exit code of a command, the frames of its output, and what it prints."""

    codes: tuple[int, ...]
    frames: int | None = None
    says: str = ""  # a regular expression
    moved: bool = False  # all times moved alike: the source begins before 0
    mended: bool = False  # a time is none of the source's


@dataclass(frozen=True)
class Case:
    """`write` makes the input `name` in a folder; `apart` is run in its own process; `slow` takes seconds."""

    group: str
    what: str
    name: str
    write: Callable[[Path], object]
    outcome: Outcome
    arguments: tuple[str, ...] = ("--lossless",)
    apart: bool = False
    slow: bool = False


def kept(frames: int, *, says: str = "", moved: bool = False) -> Outcome:
    """Every sample, time, tag and packet is that of the source, and nothing is printed but `says`."""
    return Outcome((0,), frames, says, moved)


def damaged(frames: int, says: str) -> Outcome:
    """So many frames, all with times that the source has, and a word about the damage."""
    return Outcome((4,), frames, says)


def scaled(frames: int, first: str) -> Outcome:
    """So many frames, all with times of the source, and a warning of those that are made like the first."""
    return Outcome(
        (0, 4), frames, rf"12 frames are of another size or format \({first}"
    )


def maybe_damaged(frames: int) -> Outcome:
    """As `damaged` if the decoder notices, else 0 with all frames: few codecs have checksums."""
    return Outcome((0, 4), frames)


def refused(says: str, code: int = 1) -> Outcome:
    """The file is named, and what is wrong with it; there is no output."""
    return Outcome((code,), None, says)


def of_bytes(
    group: str, what: str, name: str, data: Bytes, outcome: Outcome, **more: Any
) -> Case:
    return Case(
        group, what, name, lambda path: path.write_bytes(data()), outcome, **more
    )


def of_clip(
    group: str,
    what: str,
    kind: str,
    edit: Callable[[bytes], bytes],
    outcome: Outcome,
    **more: Any,
) -> Case:
    """A clip of a kind after an edit."""
    return of_bytes(
        group, what, f"video{KINDS[kind][0]}", lambda: edit(clip(kind)), outcome, **more
    )


def of_content(
    what: str, name: str, content: Content, outcome: Outcome, **more: Any
) -> Case:
    return Case(
        "streams",
        what,
        name,
        lambda path: write_content(path, content),
        outcome,
        **more,
    )


def of_video(
    group: str,
    what: str,
    name: str,
    outcome: Outcome,
    codec: str,
    frames: int = 12,
    **settings: Any,
) -> Case:
    """A clip that `write_video` makes, unharmed."""
    more = {
        key: settings.pop(key)
        for key in ("arguments", "apart", "slow")
        if key in settings
    }
    suffix = os.path.splitext(name)[1]
    return of_bytes(
        group,
        what,
        name,
        lambda: made(suffix, frames, codec, **settings),
        outcome,
        **more,
    )


NO_INDEX = r"its index \(moov\) is missing, so the recording was not finished"
