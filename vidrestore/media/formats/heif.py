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
_FORMATS = {
    "L": ("gray", "gray16le"),
    "RGB": ("rgb24", "rgb48le"),
    "RGBA": ("rgba", "rgba64le"),
}
_LARGEST_META = 1 << 24  # bytes
# marks of items of an AVIF that FFmpeg doesn't read -> kinds of side data
_UNREAD = {b"systems:auxiliary:alpha": "ALPHA_LAYER", b"Exif\0": "EXIF"}


class HeifNotes(NamedTuple):
    """The notes of a HEIF file; empty without."""

    exif: bytes  # from its byte order on
    profile: bytes  # ICC
    extras: tuple[str, ...]  # other content of the file, in words


def _open(path: str) -> Any:
    try:
        return import_module("pillow_heif").open_heif(
            path, convert_hdr_to_8bit=False, hdr_to_16bit=False
        )
    except (ValueError, SyntaxError, EOFError, RuntimeError) as error:
        raise MediaError(
            f"{path}: can't be read as HEIF ({error}); replace it"
        ) from error


def heif_notes(path: str) -> HeifNotes:
    """Return the notes of a HEIF file. Raises MediaError if it can't be read."""
    file = _open(path)
    extras = [f"{len(file) - 1} more pictures"] if len(file) > 1 else []
    extras += ["a map of depth"] if file.info.get("depth_images") else []
    extras += (
        ["a map of brightness"]
        if any("gainmap" in kind for kind in file.info.get("aux") or ())
        else []
    )
    exif = (file.info.get("exif") or b"").removeprefix(b"Exif\0\0")
    return HeifNotes(exif, file.info.get("icc_profile") or b"", tuple(extras))


def avif_profile(path: str) -> bytes:
    """Return the colour profile (ICC) of an AVIF; empty without. Raises OSError."""
    meta = _described(path)
    place = meta.find(b"colrprof") - 4
    return (
        meta[place + 12 : place + int.from_bytes(meta[place : place + 4])]
        if place > 0
        else b""
    )


def avif_losses(path: str) -> frozenset[str]:
    """Return what an AVIF has that FFmpeg doesn't read, by the names of side data. Raises OSError."""
    meta = _described(path)
    return frozenset(kind for mark, kind in _UNREAD.items() if mark in meta)


def has_tiles(path: str) -> bool:
    """Return True for an AVIF of several tiles, of which FFmpeg reads one. Raises OSError."""
    return b"grid" in _described(path)


def _described(path: str) -> bytes:
    """Return the box of an AVIF that describes its pictures and their properties."""
    with open(path, "rb") as file:
        data = file.read(_LARGEST_META)
    place = data.find(b"meta") - 4
    return (
        data[place : place + int.from_bytes(data[place : place + 4])]
        if place >= 0
        else b""
    )


def heif_frame(path: str) -> VideoFrame:
    """Return the primary picture, upright, as 8-bit grey, RGB or RGBA, or as 16-bit if it has more bits."""
    file = _open(path)
    channels, _, bits = file.mode.partition(";")
    if channels not in _FORMATS:
        raise MediaError(
            f"{path}: its samples ({file.mode}) are not supported; convert it to PNG first"
        )
    try:
        samples: NDArray[Any] = np.ascontiguousarray(file)
    except (ValueError, EOFError, RuntimeError) as error:
        raise MediaError(
            f"{path}: the picture is damaged ({error}); replace it"
        ) from error
    if depth := int(bits or 0):
        # the largest becomes 65535
        samples = samples << (16 - depth) | samples >> (2 * depth - 16)
    return VideoFrame.from_ndarray(samples, _FORMATS[channels][bool(depth)])
