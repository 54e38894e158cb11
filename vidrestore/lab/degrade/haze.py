"""Haze by the scattering model of dehazing papers: I = J t + A (1 - t), t = exp(-density * depth).

S. Narasimhan, S. Nayar, "Vision and the atmosphere", IJCV 2002; ranges of density and airlight are about
those of RESIDE (B. Li et al., "Benchmarking single-image dehazing and beyond", TIP 2019). Clips have no depth
map, so a plausible one is generated: ground and hills, on which parts of the picture stand upright at the
depth of their lowest row, in front of a sky.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vidrestore.lab.degrade.counters import Counters, constants
from vidrestore.lab.degrade.per_sample import (
    Rows,
    changed,
    filtered,
    in_turn,
    of_sample,
)
from vidrestore.lab.degrade.segmentation import (
    COUNT,
    box_filtered,
    lowest_rows,
    members,
    random_regions,
)
from vidrestore.pixels.linear_light import GAMMA, WAVELENGTHS, to_light

DENSITY = (0.5, 8.0)  # optical depth at the largest depth
AIRLIGHT = (0.45, 1.0)  # RESIDE has 0.6 to 1; fog at dusk and smoke are darker
AIRLIGHT_TINT = 0.02  # relative standard deviation of the airlight between colours
# Angstrom's exponent of the scattering: 0 for large drops of fog, above 1 for fine dry haze, which scatters
# blue light more
ANGSTROM_EXPONENT = (0.0, 1.4)
# share of clips with visibly coloured airlight (dust, smoke, evening, blue distance), and its deviation
# between red and blue
COLOURED_SHARE = 0.25
COLOURED = 0.08
NEAREST = 0.15  # largest depth of the nearest point, since a frame shows something near
# share of clips with patchy haze, and the relative deviation of the patches' density
PATCHY_HAZE_SHARE, UNEVEN = (0.35, 0.5)
# largest relative change of the airlight from the middle of a frame to its sides
TOWARDS_SUN = 0.2
DRIFT = 0.01  # standard deviation of the density's relative change from frame to frame
# share of clips with haze added in linear light, as by air; in the others in display values, as RESIDE's
LINEAR_HAZE_SHARE = 0.85
# share of clips whose exposure is changed by haze, and the deviation of its logarithm
EXPOSED_SHARE, EXPOSED = (0.3, 0.08)
# share of clips with upright regions, whose edges are seldom those of objects
STANDING_SHARE = 0.2
SKY_SHARE = 0.5  # share of these whose top region is sky
SKY_FOOT = 0.75  # share of the height that sky reaches down to, at most
MOST_HILLS = 5  # samples across a smooth field, at least 2
BT601_LUMA = (0.299, 0.587, 0.114)


def add_haze(clips: Tensor, transmission: Tensor, airlight: Tensor) -> Tensor:
    """Add haze to (..., T, 3, H, W): transmission (..., T or 1, 3 or 1, H, W) in [0, 1], and airlight
    (..., 3, H or 1, W or 1), the same in every frame.
    """
    airlight = airlight.unsqueeze(-4)
    return airlight + (clips - airlight) * transmission


class Hazy(NamedTuple):
    """Clips (B, T, 3, H, W) R'G'B', green's optical depth (B, T, 1, H, W), light of the air (B, 3, H, W)."""

    clips: Tensor
    depth: Tensor
    airlight: Tensor


@in_turn
def haze(clips: Tensor, draw: Counters) -> Tensor:
    """Add haze of random depth, density and airlight, which are nearly the same in every frame."""
    return random_scattering(clips, draw).clips


def random_scattering(clips: Tensor, draw: Counters) -> Hazy:
    """Add such haze; return also its parameters, as a network's targets."""
    # depth that begins near, and haze that isn't even
    depth = random_depth(clips, draw)
    depth = (
        depth
        - depth.amin((1, 2, 3, 4), keepdim=True)
        + of_sample(draw.uniform(0, NEAREST))
    )
    patches = UNEVEN * draw.uniform(-1, 1) * draw.chance(PATCHY_HAZE_SHARE)
    depth = depth * (1 + of_sample(patches) * _hills(clips, draw))
    growth = 1 + DRIFT * draw.normal(clips.shape[1]).cumsum(1)
    # blue is scattered more
    relative = constants(tuple(length / WAVELENGTHS[1] for length in WAVELENGTHS))
    colours = relative ** -draw.uniform(*ANGSTROM_EXPONENT)[:, None]
    density = (
        draw.log_uniform(DENSITY)[:, None, None] * growth[..., None] * colours[:, None]
    )
    depths = density[..., None, None] * depth
    # the light of the air, as bright as an exposure allows
    base, gradient = random_airlight(clips, draw)
    in_light = draw.chance(LINEAR_HAZE_SHARE)
    exposed = draw.chance(EXPOSED_SHARE) & in_light
    exposure = (EXPOSED * draw.normal() * exposed).exp()[:, None, None, None]
    light = exposure * (base**GAMMA * gradient**GAMMA).clamp(max=1)
    airlight = torch.where(
        in_light[:, None, None, None], light, (base * gradient).clamp(max=1)
    )[:, None]
    rgb = changed(clips, in_light, lambda rows: to_light(clips[rows]))
    # add_haze, and the exposure, in place
    hazy = torch.sub(exposure[:, None] * rgb, airlight).mul_(depths.neg().exp_())
    hazy = hazy.add_(airlight).clamp_(0, 1)
    hazy = changed(hazy, in_light, lambda rows: hazy[rows] ** (1 / GAMMA))
    return Hazy(hazy, depths[:, :, 1:2], light)


def random_airlight(clips: Tensor, draw: Counters) -> tuple[Tensor, Tensor]:
    """Return two factors of airlight, of at least 0: the colour, (B, 3, 1, 1), nearly grey, or
    visibly coloured; and (B, 1, H, W) for its gradient, about 1. Their product is to be cut at 1.
    """
    # nearly grey, or tinted
    colour = 1 + AIRLIGHT_TINT * draw.normal(3)
    tint = COLOURED * draw.normal() * draw.chance(COLOURED_SHARE)
    colour = colour + tint[:, None] * constants((1.0, 0.1, -1.0))
    base = (draw.uniform(*AIRLIGHT)[:, None] * colour).clamp(min=0)
    # brighter towards the sun, and in patches
    slope = draw.uniform(-TOWARDS_SUN, TOWARDS_SUN)[:, None, None, None]
    gradient = 1 + slope * torch.linspace(-1, 1, clips.shape[4])
    patches = 2 * TOWARDS_SUN * draw.chance(PATCHY_HAZE_SHARE)[:, None, None, None]
    gradient = gradient * (1 + patches * (_hills(clips, draw)[:, 0] - 0.5))
    return base[..., None, None], gradient.clamp(min=0)


def random_depth(clips: Tensor, draw: Counters) -> Tensor:
    """Return (B, T, 1, H, W) depth in [0, 1]: farther towards the top, with hills and steps between regions.

    A clip may be a crop, so it spans a random range of depths, often nearly all. Regions keep their depth.
    """
    standing = draw.chance(STANDING_SHARE)
    # the parameters are below 1, so that one part usually dominates
    shares = draw.gamma(0.5, 0.8, 0.5, 0.08)
    by_brightness = shares[:, 3] * ~standing
    shares = torch.cat((shares[:, :3], by_brightness[:, None]), 1)
    shares = shares / shares.sum(1, keepdim=True)
    parts = (
        _ramp(clips, draw),
        _ground(clips, draw),
        _hills(clips, draw),
        _by_brightness(clips, draw),
    )
    weighted = (
        of_sample(share) * part
        for share, part in zip(shares.unbind(1), parts, strict=True)
    )
    smooth = sum(weighted, clips[:, :1, :1, :1, :1] * 0)
    branch = draw.branch()

    def upright(rows: Rows) -> Tensor:
        return _with_upright_regions(smooth[rows], clips[rows], branch.part(rows))

    depth = changed(smooth, standing, upright)
    # the range of depths that the clip spans
    one, two = draw.gamma(0.4, 0.4, 0.4, 0.4).unflatten(1, (2, 2)).unbind(1)
    ends = torch.stack((one[:, 0] / one.sum(1), two[:, 0] / two.sum(1)))
    nearest = of_sample(ends.amin(0))
    farthest = of_sample(ends.amax(0))
    lowest = depth.amin((1, 2, 3, 4), keepdim=True)
    extent = depth.amax((1, 2, 3, 4), keepdim=True) - lowest
    span = farthest - nearest
    scaled: Tensor = nearest + span * (depth - lowest) / extent.clamp(min=1e-6)
    return scaled


def _with_upright_regions(depth: Tensor, clips: Tensor, draw: Counters) -> Tensor:
    """Return depth (B, T, 1, H, W) with random regions upright at the depth of their lowest row."""
    # a region that stands has the depth of its foot
    regions = random_regions(clips, draw)
    height = clips.shape[3]
    lowest = lowest_rows(regions)
    count = COUNT[1]
    upright = (
        depth[:, 0, 0].mean(2).gather(1, lowest) * (0.15 * draw.normal(count)).exp()
    )
    stands = draw.chance(draw.uniform(0.4, 1)[:, None], count)
    top = members(regions[:, clips.shape[1] // 2, : max(1, height // 8)])
    # the largest region at the top is sky, if it ends high enough
    sky = torch.arange(count) == top.sum((2, 3)).argmax(1, keepdim=True)
    sky = sky & (lowest < SKY_FOOT * (height - 1)) & draw.chance(SKY_SHARE)[:, None]
    farthest = depth.amax((1, 2, 3, 4))[:, None] * draw.uniform(1, 1.5)[:, None]
    upright = torch.where(sky, farthest, upright)
    stands = (stands | sky).float()

    def of_regions(values: Tensor) -> Tensor:
        return values.gather(1, regions.flatten(1)).view_as(regions)[:, :, None]

    return box_filtered(of_regions(stands * upright) + of_regions(1 - stands) * depth)


def _ramp(clips: Tensor, draw: Counters) -> Tensor:
    """Return (B, 1, 1, H, W): increasing from the bottom to the top, slightly tilted."""
    rows, columns = _plane(clips)
    tilt = of_sample(0.2 * draw.normal())
    tilted = (1 - rows + tilt * columns).clamp(0, 1)
    return tilted ** of_sample(draw.uniform(0.5, 3))


def _ground(clips: Tensor, draw: Counters) -> Tensor:
    """Return (B, 1, 1, H, W): a plane that runs to a horizon, and everything above it at one depth."""
    rows, columns = _plane(clips)
    horizon = of_sample(draw.uniform(-0.3, 0.7))
    tilt = of_sample(0.1 * draw.normal())
    below = rows - horizon + tilt * columns
    return (of_sample(draw.uniform(0.02, 0.4)) / below.clamp(min=1e-3)).clamp(max=1)


def _plane(clips: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows (H, 1) from 0 to 1 and columns (W,) from -0.5 to 0.5."""
    height, width = clips.shape[3:]
    rows = torch.linspace(0, 1, height)[:, None]
    return rows, torch.linspace(-0.5, 0.5, width)


def _hills(clips: Tensor, draw: Counters) -> Tensor:
    """Return (B, 1, 1, H, W): a smooth random field in [0, 1]."""
    # few samples, smoothly between them
    cells = draw.integers(2, MOST_HILLS + 1, 2)
    grid = draw.uniform(0, 1, MOST_HILLS, MOST_HILLS)
    down = _smooth_lines(clips.shape[3], cells[:, 0], MOST_HILLS)
    across = _smooth_lines(clips.shape[4], cells[:, 1], MOST_HILLS)
    return (down @ grid @ across.mT).clamp_(0, 1)[:, None, None]


def _smooth_lines(side: int, cells: Tensor, most: int) -> Tensor:
    """Return (B, side, most): weights that stretch the first `cells` (B,) of `most` samples to `side`, as
    bicubic interpolation with aligned corners does.
    """
    # cubic weights, with the last sample repeated
    line = torch.arange(side) / max(side - 1, 1)
    last = (cells - 1)[:, None, None]
    positions = line[:, None] * last
    taps = positions.floor() + torch.arange(-1, 3)
    distance = (positions - taps).abs()
    inner = 1.25 * distance**3 - 2.25 * distance**2 + 1
    outer = -0.75 * distance**3 + 3.75 * distance**2 - 6 * distance + 3
    weights = torch.where(distance <= 1, inner, outer)
    taps = taps.clamp(min=0).minimum(last.float())
    one_hot = taps[..., None] == torch.arange(most)
    return (weights[..., None] * one_hot).sum(2)


def _by_brightness(clips: Tensor, draw: Counters) -> Tensor:
    """Return (B, T, 1, H, W): a random function of local luma, so edges of objects are edges of depth."""
    # luma of the surroundings, by a random curve
    luma = (clips * constants(BT601_LUMA)[:, None, None]).sum(2)
    reach = torch.arange(-3, 4).abs() <= draw.integers(1, 4)[:, None]
    smooth = filtered(luma, reach / reach.sum(1, keepdim=True))
    place = smooth.clamp(0, 1) * 5
    knots = draw.uniform(0, 1, 6)
    low = place.long().clamp_(max=4)
    lower = knots.gather(1, low.flatten(1)).view_as(low)
    upper = knots.gather(1, (low + 1).flatten(1)).view_as(low)
    return torch.lerp(lower, upper, place - low)[:, :, None]
