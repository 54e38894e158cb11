"""Pictures as PNG files in memory, and as the data URIs that a page holds."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 6  # of compression
PAETH = 4  # the filter of every row: what is left of photographs compresses best

# Colours of an error map, purple for none to yellow, as R, G, B at even steps.
HEAT = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], dtype=np.float64)


def png(picture: NDArray[np.uint8]) -> bytes:
    """(H, W, 3) R, G, B as a PNG file; the same picture gives the same bytes."""
    height, width, _ = picture.shape
    rows = np.concatenate([np.full((height, 1), PAETH, np.uint8), paeth(picture).reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows.tobytes(), LEVEL)) + _chunk(b"IEND", b"")


def paeth(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What each sample differs, modulo 256, from the one of its neighbours (left, above, between) that is nearest to their plane."""
    padded = np.pad(picture.astype(np.int16), ((1, 0), (1, 0), (0, 0)))
    left, above, between = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    plane = left + above - between
    to_left, to_above, to_between = (np.abs(plane - other) for other in (left, above, between))
    predicted = np.where((to_left <= to_above) & (to_left <= to_between), left, np.where(to_above <= to_between, above, between))
    return (padded[1:, 1:] - predicted).astype(np.uint8)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def data_uri(picture: NDArray[np.uint8]) -> str:
    """A picture for `src`."""
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def error_map(picture: NDArray[np.uint8], reference: NDArray[np.uint8], most: float) -> NDArray[np.uint8]:
    """Mean absolute difference of R, G, B, (H, W, 3) each, in colours: purple for none, yellow for `most` grey levels and more."""
    error: NDArray[Any] = np.abs(picture.astype(np.int16) - reference).sum(2)
    steps = np.arange(3 * 255 + 1) / (3 * most)  # every error that there can be
    positions = np.linspace(0, 1, len(HEAT))
    colours = np.stack([np.interp(steps, positions, HEAT[:, channel]) for channel in range(3)], axis=1)
    mapped: NDArray[np.uint8] = colours.round().astype(np.uint8)[error]
    return mapped
