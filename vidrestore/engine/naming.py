"""Which files are meant: inputs from folders and patterns, outputs from inputs."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from vidrestore.errors import MediaError, OptionError
from vidrestore.media.encoders import MUXERS, PIPE

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mts", ".mpg", ".mpeg", ".vob", ".wmv", ".asf", ".flv", ".ogv"}
    | {".mxf", ".nut", ".3gp", ".y4m", ".ivf", ".h264", ".264", ".hevc", ".265", ".gif", ".dv", ".rm"}
)
# What a task's outputs are called: in.mp4 -> in.denoised.mp4
SUFFIXES = {
    "denoise": "denoised",
    "dehaze": "dehazed",
    "derain": "derained",
    "desnow": "desnowed",
    "deblur": "deblurred",
    "sr": "x4",
    "<identity>": "identity",
}
PREVIEW = "preview"
ANY_CONTAINER = ".mkv"  # for sources whose own container can't be written


def expand_sources(sources: Sequence[str]) -> list[str]:
    """The inputs meant by files, folders (the videos in them, not below) and patterns such as "*.mp4".

    Our own outputs and hidden files are never inputs, unless one is named alone. Raises MediaError where a folder or pattern holds
    no video.
    """
    if len(sources) == 1 and not _is_many(sources[0]):
        return list(sources)
    found = [path for source in sources for path in _expand(source)]
    return list(dict.fromkeys(path for path in found if not is_our_output(path)))


def _is_many(source: str) -> bool:
    return source != PIPE and (os.path.isdir(source) or (not os.path.exists(source) and glob.has_magic(source)))


def _expand(source: str) -> Iterator[str]:
    if not _is_many(source):
        yield source
        return
    paths = sorted(str(path) for path in Path(source).iterdir()) if os.path.isdir(source) else sorted(glob.glob(source))
    videos = [path for path in paths if os.path.isfile(path) and Path(path).suffix.lower() in VIDEO_SUFFIXES and not is_our_output(path)]
    if not videos:
        kind = "the folder" if os.path.isdir(source) else "the pattern"
        raise MediaError(f"{source}: {kind} holds no video file to restore; expected files such as film.mp4 or film.mkv")
    yield from videos


def is_our_output(path: str) -> bool:
    """Whether a file is named like something that vidrestore wrote, or is still writing."""
    name = Path(path).name
    parts = name.split(".")
    return name.startswith(".") or (len(parts) > 2 and parts[-2] in {*SUFFIXES.values(), PREVIEW})


def output_for(source: str, output: str | None, suffix: str, *, several: bool = False) -> str:
    """Where the restored film of `source` goes: `output`, a file of the default name in the folder `output`, or beside the source.

    Raises OptionError where several inputs would go to one file, or a pipe has no output.
    """
    if output == PIPE:
        if several:
            raise OptionError("several inputs can't go into one pipe; give -o a folder")
        return output
    into_folder = output is not None and (os.path.isdir(output) or output.endswith(("/", os.sep)))
    if output is not None and not into_folder:
        if several:
            raise OptionError(
                f"several inputs can't be written to one file, {output}; give -o a folder (with a slash at its end if it doesn't exist yet)"
            )
        return output
    if source == PIPE:
        raise OptionError("a pipe has no name: give the output with -o FILE, or -o - for a pipe")
    path = Path(source)
    name = f"{path.stem}.{suffix}{path.suffix if path.suffix.lower() in MUXERS else ANY_CONTAINER}"
    return str(Path(output) / name) if output is not None else str(path.with_name(name))
