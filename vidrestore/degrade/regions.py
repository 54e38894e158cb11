"""Segment a scene into regions that may be objects: nearby pixels of similar colour, the same from frame to
frame.

Each pixel belongs to the nearest of a few random seeds in the space of position and colour (the first step of
SLIC: R. Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods", TPAMI 2012), so
outlines follow edges of the picture, including leaves and branches.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vidrestore.degrade.draws import log_uniform

COUNT = (6, 16)  # of regions, before those of similar colours are merged
SIMILAR = (0.06, 0.2)  # largest distance of similar colours
# weight of colour relative to position; at the upper end regions break up, as trees do
COLOUR = (0.4, 3.0)


def random_regions(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T, H, W) int64: the number of each pixel's region, from 0, at most COUNT[1] - 1."""
    frames, _, height, width = clip.shape
    count = int(rng.integers(*COUNT, endpoint=True))
    colour = log_uniform(rng, COLOUR)
    positions = rng.uniform(0, 1, (2, count))
    rows, columns = (
        torch.from_numpy(position * side).long()
        for position, side in zip(positions, (height, width), strict=True)
    )
    smooth = box_filtered(clip)
    # (5, count)
    seeds = torch.cat((colour * smooth[frames // 2, :, rows, columns], torch.from_numpy(positions).float()))
    nearness = (colour * smooth.permute(0, 2, 3, 1).reshape(-1, 3)) @ seeds[:3]
    nearness = nearness.view(frames, height, width, count)
    nearness += (torch.linspace(0, 1, height)[:, None] * seeds[3])[:, None]
    nearness += torch.linspace(0, 1, width)[:, None] * seeds[4] - seeds.square().sum(0) / 2
    apart = torch.cdist(seeds[:3].T / colour, seeds[:3].T / colour)
    first = (apart < rng.uniform(*SIMILAR)).int().argmax(1)  # the first seed of a similar colour
    return first[torch.from_numpy(nearness.numpy().argmax(-1))]


def box_filtered(clip: Tensor) -> Tensor:
    """Average every pixel of (T, C, H, W) with its neighbours above and to the left, to reduce noise."""
    blend = clip.clone()
    blend[:, :, 1:] += clip[:, :, :-1]
    blend[:, :, 1:] *= 0.5
    across = blend.clone()
    across[..., 1:] += blend[..., :-1]
    across[..., 1:] *= 0.5
    return across


def lowest_rows(regions: Tensor, count: int) -> list[float]:
    """Return the lowest row of each region in the middle frame, as a share of the height; 0 if it isn't
    there.
    """
    middle = regions[len(regions) // 2].numpy()
    lowest = np.zeros(count)
    for row, line in enumerate(middle):
        present = np.bincount(line, minlength=count)
        lowest[present > 0.02 * middle.shape[1]] = row  # ignore a few stray pixels
    return list(lowest / max(1, len(middle) - 1))
