"""Haze by the scattering model of dehazing papers: I = J t + A (1 - t), t = exp(-density * depth).

S. Narasimhan, S. Nayar, "Vision and the atmosphere", IJCV 2002; ranges of density and airlight are about
those of RESIDE (B. Li et al., "Benchmarking single-image dehazing and beyond", TIP 2019). Clips have no depth
map, so a plausible one is generated: ground and hills, on which parts of the picture stand upright at the
depth of their lowest row, in front of a sky.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.regions import box_filtered, lowest_rows, random_regions
from vidrestore.light import WAVELENGTHS, from_light, to_light

DENSITY = (0.5, 8.0)  # optical depth at the largest depth
AIRLIGHT = (0.45, 1.0)  # RESIDE has 0.6 to 1; fog at dusk and smoke are darker
TINT = 0.02  # relative standard deviation of the airlight between colours
# Angstrom's exponent of the scattering: 0 for large drops of fog, above 1 for fine dry haze, which scatters
# blue light more
EXPONENT = (0.0, 1.4)
# share of clips with visibly coloured airlight (dust, smoke, evening, blue distance), and its deviation
# between red and blue
COLOURED_SHARE = 0.25
COLOURED = 0.08
NEAREST = 0.15  # largest depth of the nearest point, since a frame shows something near
# share of clips with patchy haze, and the relative deviation of the patches' density
UNEVEN_SHARE, UNEVEN = (0.35, 0.5)
TOWARDS_SUN = 0.2  # largest relative change of the airlight from the middle of a frame to its sides
DRIFT = 0.01  # standard deviation of the density's relative change from frame to frame
# share of clips with haze added in linear light, as by air; in the others in display values, as RESIDE's
LIGHT_SHARE = 0.85
# share of clips whose exposure is changed by haze, and the deviation of its logarithm
EXPOSED_SHARE, EXPOSED = (0.3, 0.08)
STANDING_SHARE = 0.2  # of clips with upright regions, whose edges are seldom those of things
SKY_SHARE = 0.5  # of these, those whose top region is sky
SKY_FOOT = 0.75  # share of the height that sky reaches down to, at most
LUMA = (0.299, 0.587, 0.114)


def add_haze(clip: Tensor, transmission: Tensor, airlight: Tensor) -> Tensor:
    """Add haze to (T, 3, H, W): transmission (T or 1, 3 or 1, H, W) in [0, 1], airlight (3, 1, 1 or W)."""
    return airlight + (clip - airlight) * transmission


class Hazy(NamedTuple):
    """A hazy clip (T, 3, H, W) R'G'B', the optical depth (T, 1, H, W) of green in it, and the airlight
    (3, H or 1, W), linear light.
    """

    clip: Tensor
    depth: Tensor
    airlight: Tensor


def random_haze(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Add haze of random depth, density and airlight, which are nearly the same in every frame."""
    return random_scattering(clip, rng).clip


def random_scattering(clip: Tensor, rng: np.random.Generator) -> Hazy:
    """Add such haze, and return with it what a network may learn to find."""
    depth = random_depth(clip, rng)
    depth = depth - depth.amin() + rng.uniform(0, NEAREST)
    if rng.random() < UNEVEN_SHARE:
        depth = depth * (1 + UNEVEN * rng.uniform(-1, 1) * _hills(clip.shape[2], clip.shape[3], rng))
    growth = 1 + np.cumsum(rng.normal(0, DRIFT, (len(clip), 1, 1, 1)), 0)
    colours = (np.array(WAVELENGTHS) / WAVELENGTHS[1]) ** -rng.uniform(*EXPONENT)
    density = torch.from_numpy(log_uniform(rng, DENSITY) * colours[None, :, None, None] * growth).float()
    transmission, airlight = torch.exp(-density * depth), random_airlight(clip, rng)
    light, exposure = to_light(airlight), 1.0
    if rng.random() < LIGHT_SHARE:
        exposure = np.exp(rng.normal(0, EXPOSED)) if rng.random() < EXPOSED_SHARE else 1.0
        hazy = from_light(exposure * add_haze(to_light(clip), transmission, light))
    else:
        hazy = add_haze(clip, transmission, airlight).clamp(0, 1)
    return Hazy(hazy, density[:, 1:2] * depth, exposure * light)


def random_airlight(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (3, H or 1, W) in [0, 1]: nearly grey, or visibly coloured, with a gradient."""
    colour = 1 + rng.normal(0, TINT, 3)
    if rng.random() < COLOURED_SHARE:
        colour += rng.normal(0, COLOURED) * np.array([1.0, 0.1, -1.0])
    even = torch.from_numpy(rng.uniform(*AIRLIGHT) * colour).float()[:, None, None]
    slope = rng.uniform(-TOWARDS_SUN, TOWARDS_SUN)
    uneven = 1 + slope * torch.linspace(-1, 1, clip.shape[3])
    if rng.random() < UNEVEN_SHARE:
        uneven = uneven * (1 + 2 * TOWARDS_SUN * (_hills(clip.shape[2], clip.shape[3], rng)[0, 0] - 0.5))
    return (even * uneven).clamp(0, 1)


def random_depth(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T or 1, 1, H, W) depth in [0, 1]: farther towards the top, with hills, and with steps between
    regions.

    The clip may be a crop of a larger frame, so it spans a random range of depths, often nearly all. Regions
    keep their depth from frame to frame.
    """
    height, width = clip.shape[2:]
    standing = rng.random() < STANDING_SHARE
    # the parameters are below 1, so that one part usually dominates
    shares = rng.dirichlet([0.5, 0.8, 0.5] if standing else [0.5, 0.8, 0.5, 0.08])
    parts = [_ramp(height, width, rng), _ground(height, width, rng), _hills(height, width, rng)]
    parts += [] if standing else [_by_brightness(clip, rng)]
    depth = sum(
        (float(share) * part for share, part in zip(shares, parts, strict=True)), torch.zeros(1, 1, 1, 1)
    )
    if standing:
        depth = _with_upright_regions(depth, clip, rng)
    near, far = np.sort(rng.beta(0.4, 0.4, 2))
    lowest, highest = depth.amin(), depth.amax()
    scaled: Tensor = near + (far - near) * (depth - lowest) / (highest - lowest).clamp(min=1e-6)
    return scaled


def _with_upright_regions(depth: Tensor, clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T, 1, H, W): depth (1, 1, H, W) with random regions standing upright at the depth of their
    lowest row.
    """
    regions = random_regions(clip, rng)
    count = int(regions.max()) + 1
    lines = depth[0, 0].mean(1)
    lowest = lowest_rows(regions, count)
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
    return box_filtered((share * upright)[regions][:, None] + (1 - share)[regions][:, None] * depth)


def _ramp(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """Return (1, 1, H, W): increasing from the bottom to the top, slightly tilted."""
    rows, columns = torch.meshgrid(
        torch.linspace(1, 0, height), torch.linspace(-0.5, 0.5, width), indexing="ij"
    )
    return (rows + rng.normal(0, 0.2) * columns).clamp(0, 1)[None, None] ** rng.uniform(0.5, 3)


def _ground(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """Return (1, 1, H, W): a plane that runs to a horizon, and everything above it at one depth."""
    rows, columns = torch.meshgrid(
        torch.linspace(0, 1, height), torch.linspace(-0.5, 0.5, width), indexing="ij"
    )
    below = rows - rng.uniform(-0.3, 0.7) + rng.normal(0, 0.1) * columns
    return (rng.uniform(0.02, 0.4) / below.clamp(min=1e-3)).clamp(max=1)[None, None]


def _hills(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """Return (1, 1, H, W): a smooth random field in [0, 1]."""
    grid = torch.from_numpy(rng.uniform(0, 1, (1, 1, *rng.integers(2, 6, 2)))).float()
    return F.interpolate(grid, size=(height, width), mode="bicubic", align_corners=True).clamp(0, 1)


def _by_brightness(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T, 1, H, W): a random function of the local luma, so that edges of objects are edges of
    depth.
    """
    luma = (clip * torch.tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
    radius = int(rng.integers(1, 4))
    smooth = F.avg_pool2d(F.pad(luma, [radius] * 4, mode="replicate"), 2 * radius + 1, stride=1)
    knots = rng.uniform(0, 1, 6)
    return torch.from_numpy(np.interp(smooth.numpy(), np.linspace(0, 1, 6), knots)).float()
