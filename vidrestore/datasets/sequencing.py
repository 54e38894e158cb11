"""Clips of frames, and the small or noisy ones that belong to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vidrestore.datasets.layouts import SequenceLayout
from vidrestore.datasets.records import FrameSequence
from vidrestore.datasets.templates import base, filled, in_order, matches
from vidrestore.errors import DatasetError
from vidrestore.media.pictures import SUFFIXES

VIDEO_SUFFIXES = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".mpg", ".y4m")


def sequences(root: Path, layout: SequenceLayout) -> list[FrameSequence]:
    """The clips below `root`, in order of their names; none where no folder fits the layout.

    Raises DatasetError for a clip that is listed and not there, and for frames without their counterparts.
    """
    if not layout.clean.endswith("{frame}") and "{frame}" not in layout.clean:
        return [_video(root, file, fields["clip"]) for file, fields in matches(root, layout.clean, VIDEO_SUFFIXES)]
    degraded = next((template for template in layout.degraded if (root / base(template)).is_dir()), None)
    return [
        clip
        for folder, fields in _folders(root, layout)
        if _chosen(layout, fields["clip"]) and (clip := _clip(root, layout, folder, fields, degraded)) is not None
    ]


def _video(root: Path, file: str, clip: str) -> FrameSequence:
    path = root / file
    return FrameSequence(clip, path.parent, (path.name,), video=True)


def _chosen(layout: SequenceLayout, clip: str) -> bool:
    return clip not in layout.without and (not layout.only or clip in layout.only)


def _folders(root: Path, layout: SequenceLayout) -> Iterator[tuple[str, dict[str, str]]]:
    """Folders of clips relative to `root`: those that are listed, or all that fit."""
    template = layout.clean.rpartition("/")[0]
    if not layout.listed:
        yield from matches(root, template)
    elif (root / layout.listed).is_file():
        for line in (root / layout.listed).read_text(encoding="utf-8").split():
            yield filled(template, {"clip": line}), {"clip": line}


def _clip(root: Path, layout: SequenceLayout, folder: str, fields: dict[str, str], degraded: str | None) -> FrameSequence | None:
    clean = _frames(root / folder, layout.clean)
    name = "/".join(value for value in fields.values())
    if not clean and layout.listed:
        raise DatasetError(f"{root / folder}: no frames; the clip is listed in {root / layout.listed}; unpack the release again")
    if not clean:
        return None
    if layout.shift:
        name = f"{int(name) + layout.shift:0{len(name)}d}"
    if degraded is None:
        return FrameSequence(name, root / folder, tuple(clean.values()))
    other = root / filled(degraded.rpartition("/")[0], fields)
    frames = _frames(other, degraded)
    if lacking := sorted(clean.keys() ^ frames.keys()):
        raise DatasetError(
            f"{other if lacking[0] in clean else root / folder}: no frame {lacking[0]!r}, which is in"
            f" {root / folder if lacking[0] in clean else other}; unpack the release again"
        )
    return FrameSequence(name, root / folder, tuple(clean.values()), other, tuple(frames[key] for key in clean))


def _frames(folder: Path, template: str) -> dict[str, str]:
    """Files of a clip by their number, in order."""
    last = template.rpartition("/")[2]
    found = {fields["frame"]: name for name, fields in matches(folder, last, SUFFIXES)}
    return {key: found[key] for key in in_order(list(found))}
