"""Parts of a scene that may be things: pixels near each other and of like colours, the same from frame to
frame.

Nearest of a few drawn places in the space of place and colour (the first step of SLIC: R. Achanta et al.,
"SLIC superpixels compared to state-of-the-art superpixel methods", TPAMI 2012), so outlines follow edges of
the picture, leaves and branches, too.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vidrestore.degrade.draws import log_uniform

COUNT = (6, 16)  # of regions, before those of like colours become one
LIKE = (0.06, 0.2)  # how far apart such colours are, at most
# colour counts that much more than place; at the upper end regions go to pieces, as trees do
COLOUR = (0.4, 3.0)


def random_regions(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """(T, H, W) int64: the number of each pixel's region, from 0, at most COUNT[1] - 1."""
    frames, _, height, width = clip.shape
    count = int(rng.integers(*COUNT, endpoint=True))
    colour = log_uniform(rng, COLOUR)
    places = rng.uniform(0, 1, (2, count))
    rows, columns = (
        torch.from_numpy(place * side).long() for place, side in zip(places, (height, width), strict=True)
    )
    smooth = blended(clip)
    # (5, count)
    seeds = torch.cat((colour * smooth[frames // 2, :, rows, columns], torch.from_numpy(places).float()))
    nearness = (colour * smooth.permute(0, 2, 3, 1).reshape(-1, 3)) @ seeds[:3]
    nearness = nearness.view(frames, height, width, count)
    nearness += (torch.linspace(0, 1, height)[:, None] * seeds[3])[:, None]
    nearness += torch.linspace(0, 1, width)[:, None] * seeds[4] - seeds.square().sum(0) / 2
    apart = torch.cdist(seeds[:3].T / colour, seeds[:3].T / colour)
    first = (apart < rng.uniform(*LIKE)).int().argmax(1)  # of those of like colours
    return first[torch.from_numpy(nearness.numpy().argmax(-1))]


def blended(clip: Tensor) -> Tensor:
    """The mean of every pixel and its neighbours above and to the left, (T, C, H, W), which calms noise."""
    blend = clip.clone()
    blend[:, :, 1:] += clip[:, :, :-1]
    blend[:, :, 1:] *= 0.5
    across = blend.clone()
    across[..., 1:] += blend[..., :-1]
    across[..., 1:] *= 0.5
    return across


def feet(regions: Tensor, count: int) -> list[float]:
    """The lowest row of each region in the middle frame, as a share of the height; 0 if it isn't there."""
    middle = regions[len(regions) // 2].numpy()
    lowest = np.zeros(count)
    for row, line in enumerate(middle):
        present = np.bincount(line, minlength=count)
        lowest[present > 0.02 * middle.shape[1]] = row  # a few stray pixels are no foot
    return list(lowest / max(1, len(middle) - 1))
