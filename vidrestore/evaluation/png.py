"""Encode pictures as data URIs for the page, and draw error maps."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.media.pictures import png

# R, G, B of the error map's colours at even steps, from purple (no error) to yellow.
HEAT = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], dtype=np.float64)


def data_uri(picture: NDArray[np.uint8]) -> str:
    """Return a picture (H, W, 3) as a PNG data URI for the `src` of an image."""
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def error_map(picture: NDArray[np.uint8], reference: NDArray[np.uint8], most: float) -> NDArray[np.uint8]:
    """Return the mean absolute difference of R, G, B, (H, W, 3) each, as colours.

    Purple is no difference, yellow a difference of `most` grey levels and more.
    """
    error: NDArray[Any] = np.abs(picture.astype(np.int16) - reference).sum(2)
    steps = np.arange(3 * 255 + 1) / (3 * most)  # every possible sum over R, G, B
    positions = np.linspace(0, 1, len(HEAT))
    colours = np.stack([np.interp(steps, positions, HEAT[:, channel]) for channel in range(3)], axis=1)
    mapped: NDArray[np.uint8] = colours.round().astype(np.uint8)[error]
    return mapped
