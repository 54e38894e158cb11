"""Find clips of frames, and their low-resolution frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vidrestore.datasets.layouts import SequenceLayout
from vidrestore.datasets.records import FrameSequence
from vidrestore.datasets.templates import Fields, base, filled, in_order, matches, spelled
from vidrestore.errors import DatasetError
from vidrestore.media.pictures import SUFFIXES

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
