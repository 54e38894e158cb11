"""Haze by the scattering model that dehazing papers share: I = J t + A (1 - t), t = exp(-density * depth).

S. Narasimhan, S. Nayar, "Vision and the atmosphere", IJCV 2002; ranges of density and airlight about those of RESIDE (B. Li et al.,
"Benchmarking single-image dehazing and beyond", TIP 2019). Clips come without depth: it is made up, plausibly.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.light import from_light, to_light

DENSITY = (0.8, 6.0)  # optical depth of the farthest thing
AIRLIGHT = (0.7, 1.0)  # RESIDE's
TINT = 0.02  # standard deviation of a colour's airlight and optical depth from those of the others
NEAREST = 0.15  # depth of the nearest thing, at most: a frame shows something near
TOWARDS_SUN = 0.1  # most that airlight grows or fades from the middle of a frame to its sides
LIGHT_SHARE = 0.85  # of clips whose haze is added as light, as air adds it; the others in display values, as RESIDE's
LUMA = (0.299, 0.587, 0.114)


def add_haze(clip: Tensor, transmission: Tensor, airlight: Tensor) -> Tensor:
    """(T, 3, H, W) seen through haze: transmission (T or 1, 3 or 1, H, W) in [0, 1], airlight (3, 1, 1 or W)."""
    return clip * transmission + airlight * (1 - transmission)


def drawn_haze(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """Haze of drawn depth, density and airlight."""
    density = torch.from_numpy(log_uniform(draw, DENSITY) * (1 + draw.normal(0, TINT, 3))).float()
    depth = drawn_depth(clip, draw)
    transmission = torch.exp(-density[:, None, None] * (depth - depth.amin() + draw.uniform(0, NEAREST)))
    colour = torch.from_numpy(draw.uniform(*AIRLIGHT) * (1 + draw.normal(0, TINT, 3))).float()
    slope = draw.uniform(-TOWARDS_SUN, TOWARDS_SUN)
    airlight = (colour[:, None, None] * (1 + slope * torch.linspace(-1, 1, clip.shape[3]))).clamp(0, 1)
    if draw.random() < LIGHT_SHARE:
        return from_light(add_haze(to_light(clip), transmission, to_light(airlight)))
    return add_haze(clip, transmission, airlight).clamp(0, 1)


def drawn_depth(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """(T, 1, H, W) depth in [0, 1]: farther towards the top, rolling, and in steps between things of different brightness.

    The clip may be a crop of a larger frame, so it spans a drawn part of the depths, often nearly all. Things keep theirs from frame to
    frame.
    """
    height, width = clip.shape[2:]
    parts = [_ramp(height, width, draw), _ground(height, width, draw), _rolling(height, width, draw), _by_brightness(clip, draw)]
    shares = draw.dirichlet([0.3, 0.8, 0.4, 0.3])  # one of them usually prevails
    depth = sum((float(share) * part for share, part in zip(shares, parts, strict=True)), torch.zeros(len(clip), 1, 1, 1))
    near, far = np.sort(draw.beta(0.4, 0.4, 2))
    lowest, highest = depth.amin(), depth.amax()
    scaled: Tensor = near + (far - near) * (depth - lowest) / (highest - lowest).clamp(min=1e-6)
    return scaled


def _ramp(height: int, width: int, draw: np.random.Generator) -> Tensor:
    """(1, 1, H, W): from the bottom to the top, tilted a little."""
    rows, columns = torch.meshgrid(torch.linspace(1, 0, height), torch.linspace(-0.5, 0.5, width), indexing="ij")
    return (rows + draw.normal(0, 0.2) * columns).clamp(0, 1)[None, None] ** draw.uniform(0.5, 3)


def _ground(height: int, width: int, draw: np.random.Generator) -> Tensor:
    """(1, 1, H, W): a plane that runs to a horizon, as a camera above it sees it, and what stands behind it all at one depth."""
    rows, columns = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(-0.5, 0.5, width), indexing="ij")
    below = rows - draw.uniform(-0.3, 0.7) + draw.normal(0, 0.1) * columns
    return (draw.uniform(0.02, 0.4) / below.clamp(min=1e-3)).clamp(max=1)[None, None]


def _rolling(height: int, width: int, draw: np.random.Generator) -> Tensor:
    """(1, 1, H, W): random hills."""
    grid = torch.from_numpy(draw.uniform(0, 1, (1, 1, *draw.integers(2, 6, 2)))).float()
    return F.interpolate(grid, size=(height, width), mode="bicubic", align_corners=True)


def _by_brightness(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """(T, 1, H, W): a random function of the luma around a pixel, so that edges of things are edges of depth."""
    luma = (clip * torch.tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
    radius = int(draw.integers(1, 4))
    smooth = F.avg_pool2d(F.pad(luma, [radius] * 4, mode="replicate"), 2 * radius + 1, stride=1)
    knots = draw.uniform(0, 1, 6)
    return torch.from_numpy(np.interp(smooth.numpy(), np.linspace(0, 1, 6), knots)).float()
