"""Haze by the scattering model that dehazing papers share: I = J t + A (1 - t), t = exp(-density * depth).

S. Narasimhan, S. Nayar, "Vision and the atmosphere", IJCV 2002; ranges of density and airlight about those of
RESIDE (B. Li et al., "Benchmarking single-image dehazing and beyond", TIP 2019). Clips come without depth: it
is made up, plausibly, of ground and hills on which parts of the picture stand upright, each as far as its
foot, before a sky.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.light import from_light, to_light
from vidrestore.degrade.regions import blended, feet, random_regions

DENSITY = (0.3, 6.0)  # optical depth of the farthest thing
AIRLIGHT = (0.6, 1.0)  # about RESIDE's
TINT = 0.02  # standard deviation of a colour's airlight and optical depth from those of the others
# of clips whose airlight has a colour that one sees: dust, smoke, evening, blue distance
COLOURED_SHARE = 0.25
COLOURED = 0.08  # the same deviation of these, between red and blue
NEAREST = 0.15  # depth of the nearest thing, at most: a frame shows something near
# clips whose haze lies in patches, and how much thicker or thinner these are
UNEVEN_SHARE, UNEVEN = (0.35, 0.5)
TOWARDS_SUN = 0.1  # most that airlight grows or fades from the middle of a frame to its sides
DRIFT = 0.01  # standard deviation of what haze gains in density from a frame to the next
# of clips whose haze is added as light, as air adds it; the others in display values, as RESIDE's
LIGHT_SHARE = 0.85
# clips that the camera exposes by what it sees of haze, and how far off, in the logarithm
EXPOSED_SHARE, EXPOSED = (0.3, 0.08)
STANDING_SHARE = 0.6  # of clips with things that stand up
SKY_SHARE = 0.5  # of these, whose highest part is sky
SKY_FOOT = 0.75  # of the height: how far down sky reaches, at most
LUMA = (0.299, 0.587, 0.114)


def add_haze(clip: Tensor, transmission: Tensor, airlight: Tensor) -> Tensor:
    """(T, 3, H, W) through haze: transmission (T or 1, 3 or 1, H, W) in [0, 1], airlight (3, 1, 1 or W)."""
    return airlight + (clip - airlight) * transmission


def drawn_haze(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Haze of drawn depth, density and airlight; all but the same in every frame."""
    depth = random_depth(clip, rng)
    depth = depth - depth.amin() + rng.uniform(0, NEAREST)
    if rng.random() < UNEVEN_SHARE:
        depth = depth * (1 + UNEVEN * rng.uniform(-1, 1) * _rolling(clip.shape[2], clip.shape[3], rng))
    growth = 1 + np.cumsum(rng.normal(0, DRIFT, (len(clip), 1, 1, 1)), 0)
    density = torch.from_numpy(
        log_uniform(rng, DENSITY) * (1 + rng.normal(0, TINT, (1, 3, 1, 1))) * growth
    ).float()
    transmission, airlight = torch.exp(-density * depth), drawn_airlight(clip, rng)
    if rng.random() < LIGHT_SHARE:
        exposure = np.exp(rng.normal(0, EXPOSED)) if rng.random() < EXPOSED_SHARE else 1.0
        return from_light(exposure * add_haze(to_light(clip), transmission, to_light(airlight)))
    return add_haze(clip, transmission, airlight).clamp(0, 1)


def drawn_airlight(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """(3, H or 1, W) in [0, 1]: nearly grey, or of a colour that one sees; brighter here or there."""
    colour = 1 + rng.normal(0, TINT, 3)
    if rng.random() < COLOURED_SHARE:
        colour += rng.normal(0, COLOURED) * np.array([1.0, 0.1, -1.0])
    even = torch.from_numpy(rng.uniform(*AIRLIGHT) * colour).float()[:, None, None]
    slope = rng.uniform(-TOWARDS_SUN, TOWARDS_SUN)
    uneven = 1 + slope * torch.linspace(-1, 1, clip.shape[3])
    if rng.random() < UNEVEN_SHARE:
        uneven = uneven * (1 + 2 * TOWARDS_SUN * (_rolling(clip.shape[2], clip.shape[3], rng)[0, 0] - 0.5))
    return (even * uneven).clamp(0, 1)


def random_depth(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """(T or 1, 1, H, W) depth in [0, 1]: farther towards the top, rolling, and in steps between things.

    The clip may be a crop of a larger frame, so it spans a drawn part of the depths, often nearly all. Things
    keep theirs from frame to frame.
    """
    height, width = clip.shape[2:]
    standing = rng.random() < STANDING_SHARE
    # one of them usually prevails
    shares = rng.dirichlet([0.3, 0.8, 0.4] if standing else [0.3, 0.8, 0.4, 0.3])
    parts = [_ramp(height, width, rng), _ground(height, width, rng), _rolling(height, width, rng)]
    parts += [] if standing else [_by_brightness(clip, rng)]
    depth = sum(
        (float(share) * part for share, part in zip(shares, parts, strict=True)), torch.zeros(1, 1, 1, 1)
    )
    if standing:
        depth = _standing(depth, clip, rng)
    near, far = np.sort(rng.beta(0.4, 0.4, 2))
    lowest, highest = depth.amin(), depth.amax()
    scaled: Tensor = near + (far - near) * (depth - lowest) / (highest - lowest).clamp(min=1e-6)
    return scaled


def _standing(depth: Tensor, clip: Tensor, rng: np.random.Generator) -> Tensor:
    """(T, 1, H, W): depth (1, 1, H, W) on which regions of the clip stand, as far as their feet; some lie."""
    regions = random_regions(clip, rng)
    count = int(regions.max()) + 1
    lines = depth[0, 0].mean(1)
    lowest = feet(regions, count)
    upright = torch.tensor([float(lines[round(foot * (len(lines) - 1))]) for foot in lowest])
    upright *= torch.from_numpy(np.exp(rng.normal(0, 0.15, count))).float()
    share = torch.from_numpy(rng.random(count) < rng.uniform(0.4, 1)).float()
    sky = int(
        regions[len(regions) // 2, : max(1, regions.shape[1] // 8)]
        .flatten()
        .bincount(minlength=count)
        .argmax()
    )
    if rng.random() < SKY_SHARE and lowest[sky] < SKY_FOOT:
        upright[sky], share[sky] = float(depth.amax()) * rng.uniform(1, 1.5), 1.0
    return blended((share * upright)[regions][:, None] + (1 - share)[regions][:, None] * depth)


def _ramp(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """(1, 1, H, W): from the bottom to the top, tilted a little."""
    rows, columns = torch.meshgrid(
        torch.linspace(1, 0, height), torch.linspace(-0.5, 0.5, width), indexing="ij"
    )
    return (rows + rng.normal(0, 0.2) * columns).clamp(0, 1)[None, None] ** rng.uniform(0.5, 3)


def _ground(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """(1, 1, H, W): a plane that runs to a horizon, as a camera above it sees it, and what stands behind it
    all at one depth.
    """
    rows, columns = torch.meshgrid(
        torch.linspace(0, 1, height), torch.linspace(-0.5, 0.5, width), indexing="ij"
    )
    below = rows - rng.uniform(-0.3, 0.7) + rng.normal(0, 0.1) * columns
    return (rng.uniform(0.02, 0.4) / below.clamp(min=1e-3)).clamp(max=1)[None, None]


def _rolling(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """(1, 1, H, W): random hills."""
    grid = torch.from_numpy(rng.uniform(0, 1, (1, 1, *rng.integers(2, 6, 2)))).float()
    return F.interpolate(grid, size=(height, width), mode="bicubic", align_corners=True).clamp(0, 1)


def _by_brightness(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """(T, 1, H, W): a random function of the local luma, so that edges of objects are edges of depth."""
    luma = (clip * torch.tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
    radius = int(rng.integers(1, 4))
    smooth = F.avg_pool2d(F.pad(luma, [radius] * 4, mode="replicate"), 2 * radius + 1, stride=1)
    knots = rng.uniform(0, 1, 6)
    return torch.from_numpy(np.interp(smooth.numpy(), np.linspace(0, 1, 6), knots)).float()
