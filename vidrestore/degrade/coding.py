"""Imitate lossy coding for batches on any device: a block DCT, quantised, predicted in time.

H.264 is imitated by 4:2:0, a quantiser, blocks copied from the frame before, and rounding towards it, so that
faint detail comes late or never; without motion and in-loop filter. Motion JPEG is imitated by the weights of
frequencies. The device is never waited for.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vidrestore.colour import rgb_to_yuv, yuv_to_rgb
from vidrestore.degrade.counters import Counters, constants
from vidrestore.frames import ColourTags, PixelFormat

CODED = (PixelFormat("yuv420p", "yuv", 8, 1, 1), ColourTags(matrix=6, range=1, chroma_location=1))
CRF = (16.0, 36.0)
# The quantiser (H.264's QP) is that much above the quality: libx264 leaves out more than its quantiser does.
COARSER = 5.0
FIRST_FINER = 3.0  # by so much less for a first frame
MJPEG_SHARE = 0.25
MJPEG_SCALE = (2, 13)
ROUNDING = (0.1, 0.0)  # added before rounding towards zero, to frames by themselves and to changes
BLOCKS = (8, 4, 4)  # sides in luma and chroma


def random_coding(clips: Tensor, draws: Counters) -> Tensor:
    """Code clips (B, T, 3, H, W) in [0, 1] at random strength; 8 bits, sides are multiples of 8."""
    crf, scale = draws.uniform(*CRF), draws.integers(*MJPEG_SCALE)
    return coded(clips, crf, scale.float(), draws.chance(MJPEG_SHARE))


def coded(clips: Tensor, crf: Tensor, scale: Tensor, is_jpeg: Tensor) -> Tensor:
    """Code clips (B, T, 3, H, W) by H.264 at `crf` (B,), or by Motion JPEG at `scale` (B,) if `is_jpeg`
    (B,).
    """
    (layout, tags), height = CODED, clips.shape[-2]
    planes = rgb_to_yuv(clips, layout, tags, height)
    coded_planes = []
    for plane, side in zip(planes, BLOCKS, strict=True):
        blocks = in_blocks(plane.round().clamp(0, 255), side)
        predicted = 0.625 * 2 ** ((crf + COARSER) / 6)
        first = predicted * 2 ** (-FIRST_FINER / 6)
        weights = frequency_weights(side, clips.device)
        steps = [
            torch.where(is_jpeg.view(-1, 1, 1), scale.view(-1, 1, 1) * weights, step.view(-1, 1, 1))
            for step in (first, predicted)
        ]
        coded_planes.append(joined(_coded_blocks(blocks, steps, is_jpeg), plane.shape))
    return yuv_to_rgb(coded_planes, layout, tags, height).mul(255).round().clamp(0, 255).div(255)


def _coded_blocks(blocks: Tensor, steps: list[Tensor], is_jpeg: Tensor) -> Tensor:
    """Return decoded blocks (B, T, N, side, side); `steps` (B, side, side) of first and of later frames."""
    cosines = cosine_basis(blocks.shape[-1], blocks.device)
    previous: Tensor | None = None
    decoded = []
    for frame in blocks.unbind(1):
        step = steps[previous is not None][:, None]
        levels = _quantised(cosines @ (frame - 128) @ cosines.mT, step, ROUNDING[0])
        base: Tensor | float = 128.0
        if previous is not None:
            change = _quantised(cosines @ (frame - previous) @ cosines.mT, step, ROUNDING[1])
            cheaper = change.abs().sum((-2, -1)) <= levels.abs().sum((-2, -1))
            is_predicted = (cheaper & ~is_jpeg[:, None])[..., None, None]
            levels = torch.where(is_predicted, change, levels)
            base = torch.where(is_predicted, previous, base)
        previous = (base + cosines.mT @ (levels * step) @ cosines).round().clamp(0, 255)
        decoded.append(previous)
    return torch.stack(decoded, 1)


def _quantised(values: Tensor, step: Tensor, rounding: float) -> Tensor:
    return values.sign() * (values.abs() / step + rounding).floor()


def in_blocks(plane: Tensor, side: int) -> Tensor:
    """Cut planes (B, T, H, W) into blocks (B, T, N, side, side)."""
    rows: Tensor = plane.unflatten(-1, (-1, side)).unflatten(-3, (-1, side))
    return rows.transpose(-3, -2).flatten(2, 3)


def joined(blocks: Tensor, shape: torch.Size) -> Tensor:
    """Join blocks to planes of a shape: the inverse of `in_blocks`."""
    side = blocks.shape[-1]
    rows: Tensor = blocks.unflatten(2, (shape[-2] // side, shape[-1] // side))
    return rows.transpose(-3, -2).reshape(shape)


def cosine_basis(side: int, device: torch.device) -> Tensor:
    """Return the orthonormal cosine transform (side, side): one row for each frequency."""
    values = [
        math.sqrt((2 if row else 1) / side) * math.cos(math.pi * (2 * column + 1) * row / (2 * side))
        for row in range(side)
        for column in range(side)
    ]
    return constants(tuple(values), device).view(side, side)


def frequency_weights(side: int, device: torch.device) -> Tensor:
    """Return the steps (side, side) of Motion JPEG at quantiser 1, nearly MPEG's: 1 at the mean."""
    values = [1 + 3.4 * (row + column) / (2 * side - 2) for row in range(side) for column in range(side)]
    return constants(tuple(values), device).view(side, side)
