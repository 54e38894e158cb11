"""Haze removed from a picture by a prior: in scenes without haze, most patches have a dark pixel.

K. He, J. Sun, X. Tang, "Single Image Haze Removal Using Dark Channel Prior", IEEE TPAMI 33, 2011, in linear
light. The transmission is found in a small picture, and refined by the fast guided filter (arXiv 1505.00996)
instead of soft matting: in every window a linear function of luma, which holds for the frame's pixels too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.light import from_light, to_light
from vidrestore.restorers.small_picture import enlarged

# In pixels of small pictures of about 168 lines
PATCH = 5  # side
RADIUS = 14  # of the guided filter's windows
KEPT = 0.95  # omega: the rest of the haze remains, for far things without any look unnatural
LEAST = 0.1  # transmission, t0
BRIGHTEST = 0.001  # share of pixels that the airlight is the mean of
EPSILON = 1e-3
LUMA = (0.299, 0.587, 0.114)


class Haze(NamedTuple):
    """Airlight (B, 3, 1, 1) in linear light; the transmission is slope * luma + offset, (B, 1, h, w) each."""

    airlight: Tensor
    slope: Tensor
    offset: Tensor

    def removed_from(self, picture: Tensor) -> Tensor:
        """Return R'G'B' (B, 3, H, W) of this scene without haze, eq. 22, in [0, 1]; any size will do."""
        light = to_light(picture)
        slope, offset = (enlarged(maps, picture) for maps in (self.slope, self.offset))
        transmission = (slope * _luma(light) + offset).clamp(LEAST, 1)
        return from_light((light - self.airlight) / transmission + self.airlight)


def prior_haze(small: Tensor, frame: Tensor) -> Haze:
    """Return the haze in R'G'B' (B, 3, H, W), given a small picture (B, 3, h, w) of it.

    Means over areas have no dark pixels left, so each area's darkest pixel of the frame is taken.
    """
    light = to_light(small)
    dark = to_light(-F.adaptive_max_pool2d(-frame, small.shape[-2:]))
    airlight = _brightest(light, _darkest(dark))
    return Haze(airlight, *_guided(_luma(light), 1 - KEPT * _darkest(dark / airlight)))  # eq. 12


def _darkest(picture: Tensor) -> Tensor:
    """Return the dark channel (B, 1, h, w), eq. 5: the minimum over a patch and all channels."""
    return -F.max_pool2d(-picture.amin(1, keepdim=True), PATCH, stride=1, padding=PATCH // 2)


def _brightest(light: Tensor, dark: Tensor) -> Tensor:
    """Return the mean colour (B, 3, 1, 1) of the pixels whose dark channel is brightest."""
    count = max(1, int(BRIGHTEST * dark[0].numel()))
    places = dark.flatten(1).topk(count).indices[:, None].expand(-1, 3, -1)
    return light.flatten(2).gather(2, places).mean(2)[..., None, None].clamp(min=1e-3)


def _luma(light: Tensor) -> Tensor:
    return (light * light.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)


def _guided(guide: Tensor, plane: Tensor) -> tuple[Tensor, Tensor]:
    """Return slope and offset that make `plane` of `guide`, means over the windows that cover a pixel."""
    mean, aim = _means(guide), _means(plane)
    slope = (_means(guide * plane) - mean * aim) / (_means(guide * guide) - mean * mean + EPSILON)
    return _means(slope), _means(aim - slope * mean)


def _means(plane: Tensor) -> Tensor:
    """Return means over windows, of which borders cut off a part; over columns, then over rows."""
    for size, padding in (((2 * RADIUS + 1, 1), (RADIUS, 0)), ((1, 2 * RADIUS + 1), (0, RADIUS))):
        plane = F.avg_pool2d(plane, size, stride=1, padding=padding, count_include_pad=False)
    return plane
