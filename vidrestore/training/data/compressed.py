"""Compress clips by real encoders of random strengths."""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import Tensor

from vidrestore.colour import grey_to_planes, planes_to_grey, rgb_to_yuv, yuv_to_rgb
from vidrestore.frames import ColourTags, PixelFormat
from vidrestore.media.recompress import recompress, recompress_pictures

# pixel format and colour tags of the encoder's input
ENCODED = (PixelFormat("yuv420p", "yuv", 8, 1, 1), ColourTags(matrix=6, range=1, chroma_location=1))
CRF = (16.0, 36.0)
PRESETS = ("superfast", "veryfast")
MJPEG_SHARE = 0.25  # of compressed clips that are Motion JPEG; the others are H.264
MJPEG_SCALE = (2, 12)  # the encoder's quantiser scale, 1 (best) to 31


def encoded(clip: Tensor, crf: float, preset: str = "veryfast") -> Tensor:
    """Encode and decode (T, 3, H, W) in [0, 1], of even sides, by H.264 at quality `crf`; the result has 8
    bits.
    """
    return _through(partial(recompress, crf=crf, preset=preset), clip)


def random_compression(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Encode and decode (T, 3, H, W) in [0, 1], of even sides, by an encoder of random kind and strength, in
    8 bits.
    """
    if rng.random() < MJPEG_SHARE:
        return _through(
            partial(recompress_pictures, scale=int(rng.integers(*MJPEG_SCALE, endpoint=True))), clip
        )
    return encoded(clip, rng.uniform(*CRF), PRESETS[rng.integers(len(PRESETS))])


def _through(encoder: partial[list[tuple[np.ndarray, ...]]], clip: Tensor) -> Tensor:
    """Convert a clip to 4:2:0 planes, pass them through an encoder and convert them back to RGB."""
    (layout, tags), height = ENCODED, clip.shape[-2]
    stored = grey_to_planes(rgb_to_yuv(clip, layout, tags, height), layout)
    back = encoder([tuple(planes) for planes in zip(*stored, strict=True)])
    planes = planes_to_grey([np.stack(plane) for plane in zip(*back, strict=True)], layout)
    return yuv_to_rgb(planes, layout, tags, height).mul(255).round_().clamp_(0, 255).div_(255)
