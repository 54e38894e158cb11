"""BEFORE and AFTER, drawn into the corner of each half of a preview, in a font of our own, upright as
shown.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.frames import Frame, PixelFormat
from vidrestore.media.probe import VideoInfo

# rows of five pixels each
_GLYPHS = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "B": "11110 10001 10001 11110 10001 10001 11110",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "F": "11111 10000 10000 11110 10000 10000 10000",
    "O": "01110 10001 10001 10001 10001 10001 01110",
    "R": "11110 10001 10001 11110 10100 10010 10001",
    "T": "11111 00100 00100 00100 00100 00100 00100",
}
_LINES = 180  # of the picture for each pixel of the font: a letter is a 26th as high
_BOX, _TEXT = 1, 2


def labelled(frame: Frame, video: VideoInfo, text: str) -> Frame:
    """Return a frame with a word in the corner that is shown as the upper left; as it is if it's too small
    for that.
    """
    mask = _mask(text, frame.planes[0].shape, video.display_matrix)
    if mask is None:
        return frame
    pixels = video.format
    planes = [
        _drawn(plane, number, mask, pixels, video.colour.range) for number, plane in enumerate(frame.planes)
    ]
    return replace(frame, planes=tuple(planes))


def _drawn(
    plane: NDArray[Any], number: int, mask: NDArray[np.uint8], pixels: PixelFormat, range: int
) -> NDArray[Any]:
    made = plane.copy()
    white = 1.0 if pixels.depth == 32 else 2**pixels.depth - 1
    if pixels.family == "yuv" and number in (1, 2):
        small = mask[:: 1 << pixels.chroma_height_shift, :: 1 << pixels.chroma_width_shift]
        made[small > 0] = 128 * pixels.unit
    elif number == pixels.plane_count - pixels.alpha:
        made[mask > 0] = white
    else:
        limited = range == 1 or (range == 0 and pixels.family == "yuv")
        made[mask == _BOX] = 16 * pixels.unit if limited else 0
        made[mask == _TEXT] = 235 * pixels.unit if limited else white
    return made


@lru_cache(8)
def _mask(text: str, size: tuple[int, int], matrix: tuple[int, ...] | None) -> NDArray[np.uint8] | None:
    """Return a mask of box and text in a stored picture; None if it's too small for them.

    A display matrix (ISO/IEC 14496-12) takes column p and row q to x = a p + c q, y = b p + d q.
    """
    a, b, c, d = (1, 0, 0, 1) if matrix is None else (matrix[0], matrix[1], matrix[3], matrix[4])
    upright = abs(a) >= abs(c)
    shown = _shown_mask(text, size if upright else size[::-1])
    if shown is None:
        return None
    if upright:
        return shown[:: -1 if d < 0 else 1, :: -1 if a < 0 else 1]
    return shown.T[:: -1 if c < 0 else 1, :: -1 if b < 0 else 1]


def _shown_mask(text: str, size: tuple[int, int]) -> NDArray[np.uint8] | None:
    letters = [np.array([list(row) for row in _GLYPHS[each].split()], np.uint8) for each in text]
    line = np.concatenate([np.pad(letter, ((0, 0), (0, 1))) for letter in letters], axis=1)[:, :-1]
    box = np.pad(line * (_TEXT - _BOX) + _BOX, 2, constant_values=_BOX)
    box = np.kron(box, np.ones((max(1, size[0] // _LINES),) * 2, np.uint8))
    if box.shape[0] > size[0] or box.shape[1] > size[1]:
        return None
    shown = np.zeros(size, np.uint8)
    shown[: box.shape[0], : box.shape[1]] = box
    return shown
