"""Clips as files hold them: compressed by real encoders of drawn strengths."""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import Tensor

from vidrestore.colour import grey_to_planes, planes_to_grey, rgb_to_yuv, yuv_to_rgb
from vidrestore.frames import ColourTags, PixelFormat
from vidrestore.media.recompress import recompress, recompress_pictures

# what is handed to the encoder
ENCODED = (PixelFormat("yuv420p", "yuv", 8, 1, 1), ColourTags(matrix=6, range=1, chroma_location=1))
CRF = (16.0, 36.0)
PRESETS = ("superfast", "veryfast")
PICTURES_SHARE = 0.25  # of compressed clips that are Motion JPEG; the others are H.264
SCALE = (2, 12)  # of Motion JPEG


def encoded(clip: Tensor, crf: float, preset: str = "veryfast") -> Tensor:
    """(T, 3, H, W) in [0, 1], even sides, as H.264 of a quality `crf` leaves it, in 8 bits."""
    return _through(partial(recompress, crf=crf, preset=preset), clip)


def drawn_compression(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """(T, 3, H, W) in [0, 1], even sides, as an encoder of a drawn kind and strength leaves it, in 8 bits."""
    if draw.random() < PICTURES_SHARE:
        return _through(partial(recompress_pictures, scale=int(draw.integers(*SCALE, endpoint=True))), clip)
    return encoded(clip, draw.uniform(*CRF), PRESETS[draw.integers(len(PRESETS))])


def _through(encoder: partial[list[tuple[np.ndarray, ...]]], clip: Tensor) -> Tensor:
    """Planes of the clip in 4:2:0 through an encoder, and back."""
    (layout, tags), height = ENCODED, clip.shape[-2]
    stored = grey_to_planes(rgb_to_yuv(clip, layout, tags, height), layout)
    back = encoder([tuple(planes) for planes in zip(*stored, strict=True)])
    planes = planes_to_grey([np.stack(plane) for plane in zip(*back, strict=True)], layout)
    return yuv_to_rgb(planes, layout, tags, height).mul(255).round_().clamp_(0, 255).div_(255)
