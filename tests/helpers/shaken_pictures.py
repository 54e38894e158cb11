"""A sharp picture, and the same shaken."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.pixels.linear_light import from_light, to_light


def boxes(height: int = 176, width: int = 208) -> Tensor:
    """A sharp picture (3, H, W) of even rectangles of all sizes, with fine grain of one level."""
    draw, picture = (
        torch.Generator().manual_seed(7),
        torch.full((3, height, width), 0.5),
    )
    for _ in range(120):
        top, left = (
            int(torch.randint(0, side - 8, (1,), generator=draw))
            for side in (height, width)
        )
        high, wide = torch.randint(4, 50, (2,), generator=draw).tolist()
        picture[:, top : top + high, left : left + wide] = (
            torch.rand(3, 1, 1, generator=draw) * 0.8 + 0.1
        )
    return (picture + torch.randn(picture.shape, generator=draw) / 255).clamp(0, 1)


def shaken(picture: Tensor) -> Tensor:
    """The picture moved evenly by 11 pixels to the right while it was exposed."""
    light = F.pad(to_light(picture)[:, None], (5, 5, 0, 0), mode="reflect")
    return from_light(F.conv2d(light, torch.full((1, 1, 1, 11), 1 / 11))[:, 0])
