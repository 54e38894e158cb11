"""Read pictures of phones, HEIF with HEVC (.heic), by pillow-heif (`vidrestore[heic]`): FFmpeg reads one tile
of a grid only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from av import VideoFrame
from numpy.typing import NDArray

from vidrestore.errors import MediaError

# channels and bits -> FFmpeg's format of that
_FORMATS = {"L": ("gray", "gray16le"), "RGB": ("rgb24", "rgb48le"), "RGBA": ("rgba", "rgba64le")}


class HeifNotes(NamedTuple):
    """The notes of a HEIF file; empty without."""

    exif: bytes  # from its byte order on
    profile: bytes  # ICC
    extras: tuple[str, ...]  # other content of the file, in words


def _open(path: str) -> Any:
    try:
        return import_module("pillow_heif").open_heif(path, convert_hdr_to_8bit=False, hdr_to_16bit=False)
    except (ValueError, SyntaxError, EOFError, RuntimeError) as error:
        raise MediaError(f"{path}: can't be read as HEIF ({error}); replace it") from error


def heif_notes(path: str) -> HeifNotes:
    """Return the notes of a HEIF file. Raises MediaError if it can't be read."""
    file = _open(path)
    extras = [f"{len(file) - 1} more pictures"] if len(file) > 1 else []
    extras += ["a map of depth"] if file.info.get("depth_images") else []
    extras += ["a map of brightness"] if any("gainmap" in kind for kind in file.info.get("aux") or ()) else []
    exif = (file.info.get("exif") or b"").removeprefix(b"Exif\0\0")
    return HeifNotes(exif, file.info.get("icc_profile") or b"", tuple(extras))


def heif_frame(path: str) -> VideoFrame:
    """Return the primary picture, upright, as 8-bit grey, RGB or RGBA, or as 16-bit if it has more bits."""
    file = _open(path)
    channels, _, bits = file.mode.partition(";")
    if channels not in _FORMATS:
        raise MediaError(f"{path}: its samples ({file.mode}) are not supported; convert it to PNG first")
    try:
        samples: NDArray[Any] = np.ascontiguousarray(file)
    except (ValueError, EOFError, RuntimeError) as error:
        raise MediaError(f"{path}: the picture is damaged ({error}); replace it") from error
    if depth := int(bits or 0):
        samples = samples << (16 - depth) | samples >> (2 * depth - 16)  # the largest becomes 65535
    return VideoFrame.from_ndarray(samples, _FORMATS[channels][bool(depth)])
