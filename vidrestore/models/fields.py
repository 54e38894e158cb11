"""Deinterlaced planes: the real rows, which a camera recorded, and those that were interpolated.

The detail that interpolation misses is often in the fields before and after, whose real rows lie where this
one has none: they are woven in along the motion, weighted by how well they predict the real rows nearby.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.models.alignment import dense_motion
from vidrestore.models.spynet import warp

# Chosen on training clips, clean and with noise, by the PSNR before and after denoising.
ERROR_WINDOW = (
    2,
    3,
)  # pixels down and across, either side, over which errors are averaged
# square error of interpolation over that of a real row from the mean of the next two
ROUGHNESS = 0.07
# added to errors: squared grey levels, and as many times the noise's variance
LEAST_ERROR, NOISE = 3.0, 1.0

# parity of the real rows of every frame; None: all are real
Rows = Sequence[int | None]


def real_samples(rows: Rows, plane: Tensor) -> Tensor | None:
    """Return (T, H, 1), true in the real rows of a plane (T, H, W); None if all are real."""
    if all(parity is None for parity in rows):
        return None
    parities = torch.arange(plane.shape[1]) % 2
    every = torch.ones_like(parities, dtype=torch.bool)
    real = torch.stack(
        [every if parity is None else parities == parity for parity in rows]
    )
    return real[..., None].to(plane.device)


class Field(NamedTuple):
    """The real rows of those frames that have the same ones."""

    frames: slice | list[int]
    rows: slice
    groups: Tensor  # (S, T), flat origins of patches in the field

    def of(self, plane: Tensor) -> Tensor:
        return plane[self.frames, self.rows]


def field_of(rows: Rows, plane: Tensor, groups: Tensor, side: int) -> Field | None:
    """Return the field of a plane (T, H, W) without interpolated rows, the whole plane if it has none; None
    if it holds no patch of `side` pixels. `groups` (S, T) are flat origins of patches in the plane.
    """
    parity = next((parity for parity in rows if parity is not None), None)
    if parity is None:
        return Field(slice(None), slice(None), groups)
    frames = [frame for frame, other in enumerate(rows) if other == parity]
    field = Field(frames, slice(parity, None, 2), groups)
    height, width = field.of(plane).shape[1:]
    if height < side:
        return None
    place = groups[:, frames] % (plane.shape[1] * width)
    row = (place // width // 2).clamp(max=height - side)
    numbers = torch.arange(len(frames), device=groups.device)
    return field._replace(groups=(numbers * height + row) * width + place % width)


def woven(
    planes: Sequence[Tensor],
    rows: Rows,
    sigma: Sequence[float],
    guide: int = 0,
    step: int = 1,
) -> tuple[Tensor, ...]:
    """Return every `step`th frame of deinterlaced planes (T, H, W), on the 0-255 scale, with the field before
    and the one after woven into its interpolated rows; two on either side if there is no noise. `sigma` is
    the noise of each plane. The motion is that of the plane at `guide`.
    """
    luma = F.pad(planes[guide][:, None] / 255, (0, 0, 1, 1), mode="replicate")
    # bwdif leaves combs
    smooth = (luma[..., :-2, :] + 2 * luma[..., 1:-1, :] + luma[..., 2:, :]) / 4
    reach = 1 if any(sigma) else 2

    def frame_planes(frame: int) -> list[Tensor]:
        """Return the planes of a frame with its neighbours woven in."""
        first, stop = max(0, frame - reach), min(len(rows), frame + reach + 1)
        neighbours = (
            []
            if rows[frame] is None
            else [*range(first, frame), *range(frame + 1, stop)]
        )
        motions = {
            index: dense_motion(smooth[frame][None], smooth[index][None])
            for index in neighbours
        }
        levels = zip(planes, sigma, strict=True)
        return [
            _woven_frame(plane, rows, LEAST_ERROR + NOISE * level**2, frame, motions)
            for plane, level in levels
        ]

    frames = zip(*dealt(frame_planes, range(0, len(rows), step)), strict=True)
    return tuple(map(torch.stack, frames))


def _woven_frame(
    plane: Tensor, rows: Rows, least: float, frame: int, motions: dict[int, Tensor]
) -> Tensor:
    """Return frame number `frame` (H, W) of a plane (T, H, W). `motions` has the motion (1, 2, h, w) to each
    frame that is woven in, by its number; `least` is added to all errors.
    """
    picture, real = plane[frame][None, None], _real(rows[frame], plane)
    padded = F.pad(picture, (0, 0, 2, 2), mode="replicate")
    roughness = picture - (padded[..., :-4, :] + padded[..., 4:, :]) / 2
    weights = 1 / (ROUGHNESS * _mean(roughness, real) + least)
    total = weights * picture
    for index, motion in motions.items():
        if motion.shape[-2:] != picture.shape[-2:]:
            ratio = (
                picture.shape[-1] / motion.shape[-1],
                picture.shape[-2] / motion.shape[-2],
            )
            motion = F.interpolate(motion, picture.shape[-2:], mode="area")
            motion = motion * motion.new_tensor(ratio)[:, None, None]
        warped = warp(plane[index][None, None], motion, border="border", mode="bicubic")
        weight = warp(_real(rows[index], plane), motion, border="border")
        weight = weight / (_mean(warped - picture, real) + least)
        total, weights = total + weight * warped, weights + weight
    return torch.where(real > 0, picture, total / weights)[0, 0]


def _real(parity: int | None, plane: Tensor) -> Tensor:
    """Return (1, 1, H, W), 1 in the real rows and 0 elsewhere."""
    real = plane.new_ones(1, 1, *plane.shape[1:])
    if parity is not None:
        real[..., 1 - parity :: 2, :] = 0
    return real


def _mean(errors: Tensor, real: Tensor) -> Tensor:
    """Return the mean square of errors (1, 1, H, W) in the real rows around each pixel."""
    size = [2 * reach + 1 for reach in ERROR_WINDOW]
    sums = (
        F.avg_pool2d(part, size, 1, ERROR_WINDOW)
        for part in (errors.square() * real, real)
    )
    return torch.div(*sums)
