"""The containers of outputs, by the suffix of the name."""

from __future__ import annotations

from pathlib import Path

from vidrestore.errors import MediaError
from vidrestore.media.pipes import PIPE
from vidrestore.media.sequences import PICTURES, is_pattern

# FFmpeg's names of the muxers
MUXERS = {".mp4": "mp4", ".m4v": "mp4", ".mkv": "matroska", ".mov": "mov", ".webm": "webm"}
SUFFIXES = {"mp4": ".mp4", "matroska": ".mkv", "mov": ".mov", "webm": ".webm"}

PICTURE_ENCODERS = {
    ".png": "png",
    ".jpg": "mjpeg",
    ".jpeg": "mjpeg",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".exr": "exr",
}


def names_pictures(output: str) -> bool:
    """Return True for an output of pictures: a pattern, or a name with their suffix."""
    return is_pattern(output) or Path(output).suffix.lower() in PICTURE_ENCODERS


def container_of(output: str) -> str:
    """Return FFmpeg's name of an output's container by its suffix; "-" is a y4m pipe. Raises MediaError for
    any other suffix.
    """
    if output == PIPE:
        return "yuv4mpegpipe"
    suffix = Path(output).suffix.lower()
    if names_pictures(output):
        return PICTURES
    if suffix not in MUXERS:
        found = (
            f"the suffix {suffix!r} is not one that can be written"
            if suffix
            else "the name has no suffix to say the container"
        )
        raise MediaError(
            f"{output}: {found}; expected .mp4, .mkv, .mov or .webm, or - for a y4m pipe, or pictures such "
            "as %04d.png"
        )
    return MUXERS[suffix]
