"""Segment a scene into regions that may be objects: nearby pixels of similar colour, the same from frame to
frame.

Each pixel belongs to the nearest of a few random seeds in the space of position and colour (the first step of
SLIC: R. Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods", TPAMI 2012), so
outlines follow edges of the picture, including leaves and branches.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vidrestore.lab.degrade.counters import Counters

# least and largest number of regions, before those of similar colours are merged
COUNT = (6, 16)
SIMILAR = (0.06, 0.2)  # largest distance of similar colours
# weight of colour relative to position; at the upper end regions break up, as trees do
COLOUR = (0.4, 3.0)
# more than half the square of any distance, and its steps to 1
ABSENT_DISTANCE, DISTANCE_STEPS = 60.0, 2**20
STRAY_SHARE = 0.02  # share of a row below which a region is ignored there


def random_regions(clips: Tensor, draw: Counters) -> Tensor:
    """Return the region of each pixel as a number (B, T, H, W), int64, from 0 to at most COUNT[1] - 1."""
    # seeds at random places, with the colours found there
    frames, _, height, width = clips.shape[1:]
    most = COUNT[1]
    count = draw.integers(COUNT[0], most + 1)
    colour = draw.log_uniform(COLOUR)[:, None, None]
    positions = draw.uniform(0, 1, most, 2)  # (B, seeds, 2), down and across
    seed_rows = (positions[..., 0] * height).long().clamp(max=height - 1)
    seed_columns = (positions[..., 1] * width).long().clamp(max=width - 1)
    smooth = box_filtered(clips)
    middle = smooth[:, frames // 2].flatten(2)
    indices = seed_rows * width + seed_columns
    hues = middle.gather(2, indices[:, None].expand(-1, 3, -1))  # (B, 3, seeds)
    numbers = torch.arange(most)
    absent = numbers >= count[:, None]
    # minus half the squared distance to each seed, without the term that is the same for all seeds
    weights = DISTANCE_STEPS * colour**2 * hues.mT
    nearness = (weights[:, None] @ smooth.flatten(3)).unflatten(3, (height, width))
    bias = (colour**2 * hues.square()).sum(1) + positions.square().sum(2)
    rows, columns = (torch.linspace(0, 1, side) for side in (height, width))
    down, across = positions[..., None, None].unbind(2)
    place = across * columns + down * rows[:, None]
    place = DISTANCE_STEPS * (
        place - (bias / 2 + ABSENT_DISTANCE * absent)[..., None, None]
    )
    # integers with the seed's number as their last digit in base `most`: amax is faster than argmax
    numbered = (
        nearness.add_(place[:, None])
        .int()
        .mul_(most)
        .add_(numbers.int()[:, None, None])
    )
    nearest = numbered.amax(2).remainder_(most).long()
    # regions of similar colours are one, with the first one's number
    alike = torch.cdist(hues.mT, hues.mT) < draw.uniform(*SIMILAR)[:, None, None]
    # the first seed of a similar colour
    first = (alike & ~absent[:, None]).byte().argmax(2)
    return first.gather(1, nearest.flatten(1)).view_as(nearest)


def members(regions: Tensor) -> Tensor:
    """Return (B, COUNT[1], ...) bool of regions (B, ...)."""
    numbers = torch.arange(COUNT[1])
    return regions[:, None] == numbers.view(-1, *[1] * (regions.dim() - 1))


def box_filtered(clips: Tensor) -> Tensor:
    """Average every pixel of (..., H, W) with its neighbours above and to the left, to reduce noise."""
    # a mean of two rows, then of two columns
    blend = clips.clone()
    blend[..., 1:, :] += clips[..., :-1, :]
    blend[..., 1:, :] *= 0.5
    across = blend.clone()
    across[..., 1:] += blend[..., :-1]
    across[..., 1:] *= 0.5
    return across


def lowest_rows(regions: Tensor) -> Tensor:
    """Return (B, COUNT[1]): the lowest row of each region in the middle frame; 0 if it is absent there."""
    middle = regions[:, regions.shape[1] // 2]
    height, width = middle.shape[1:]
    present = members(middle).sum(3) > STRAY_SHARE * width
    return (present * torch.arange(height)).amax(2)
