"""Remove haze by the scattering model, whose few parameters a network estimates.

In linear light I = J t + A (1 - t), with t = exp(-depth (wavelength / 532 nm) ^ -exponent) (S. Narasimhan, S.
Nayar, "Vision and the atmosphere", IJCV 2002). A network that estimates these instead of colours can't invent
any: it finds a depth for every pixel, and an exponent and an airlight, brighter towards the sun, for the
picture. The colours of the airlight are those of the picture where, by the network, only haze is visible, so
they are as exact as the picture.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.pixels.linear_light import GAMMA, WAVELENGTHS, to_light

# maps: depth, weight of the pixel for the airlight, change of its colours by logarithm, exponent
OUTPUTS = 6
EXPONENTS = 1.4  # the largest; about half of it where the network gives 0
SHARPNESS = 4.0  # sharpness of the bend of depths near 0, as of a softplus
LEAST_LIGHT = 0.02  # added before logarithms of light
LEAST_TRANSMISSION = 0.08  # least divisor, so that noise isn't amplified without bound
# Power of a pixel's darkest colour that it counts by for the airlight, before the network's weight: a pixel
# whose darkest colour is bright is haze alone, or something white.
DARKNESS = 4.0
AIRLIGHTS = (-4.0, 0.5)  # range of the logarithm of light
# added to the variance of places: haze seen in one place only leaves the airlight level
LEVEL = 0.2
# Of the light of the darkest colour in a square of so many pixels, the share that may be haze: the light of a
# scene isn't negative (G. Meng et al., "Efficient image dehazing with boundary constraint", ICCV 2013), and
# seldom 0.
HAZE_SHARE, DARKEST_WINDOW = 0.9, 5
# light below which the slope of display values is 1: theirs has no bound, and none below 0
TOE = 1e-3


class Scattering(NamedTuple):
    """Optical depth of green (B, 1, H, W), at least 0; exponent (B, 1, 1, 1); airlight (B, 3, 1, W) in linear
    light.
    """

    depth: Tensor
    exponent: Tensor
    airlight: Tensor


def scattering_from(maps: Tensor, pictures: Tensor) -> Scattering:
    """Return the haze of R'G'B' pictures (B, 3, H, W) in [0, 1] by a network's maps (B, OUTPUTS, H, W). Maps
    of 0 mean almost no haze. The airlight's logarithm is linear from left to right: least squares over all
    pixels with the network's weights, leaning towards a level one.
    """
    maps = maps.float()
    depth, weight, colours, exponent = maps.split((1, 1, 3, 1), 1)
    light = (to_light(pictures.float()) + LEAST_LIGHT).log()
    votes = light + colours
    weight = (
        (weight + DARKNESS * light.amin(1, keepdim=True))
        .flatten(1)
        .softmax(1)
        .view_as(weight)
    )
    place = torch.linspace(-1, 1, maps.shape[3], device=maps.device)
    mean, centre = (
        (weight * votes).sum((2, 3), keepdim=True),
        (weight * place).sum((2, 3), keepdim=True),
    )
    aside = weight * (place - centre)
    slope = (aside * (votes - mean)).sum((2, 3), keepdim=True)
    slope = slope / ((aside * (place - centre)).sum((2, 3), keepdim=True) + LEVEL)
    airlight = (mean + slope * (place - centre)).clamp(*AIRLIGHTS).exp()
    exponent = EXPONENTS * exponent.mean((2, 3), keepdim=True).sigmoid()
    depth = F.softplus(depth - 0.5, beta=SHARPNESS)
    return Scattering(
        torch.minimum(depth, _deepest(pictures, exponent, airlight)), exponent, airlight
    )


def _deepest(pictures: Tensor, exponent: Tensor, airlight: Tensor) -> Tensor:
    """Return the depth (B, 1, H, W) at which HAZE_SHARE of the light of the darkest colour around is haze."""
    light = (to_light(pictures.float()) / airlight).clamp(max=1)
    depths = -(1 - HAZE_SHARE * light).log() / relative_scattering(exponent)
    return -F.max_pool2d(
        -depths.amin(1, keepdim=True),
        DARKEST_WINDOW,
        stride=1,
        padding=DARKEST_WINDOW // 2,
    )


def without_haze(pictures: Tensor, haze: Scattering) -> Tensor:
    """Return R'G'B' (B, 3, H, W) of the scene behind this haze; negative if it has more light."""
    light = to_light(pictures.float())
    transmission = transmission_of(haze).clamp(min=LEAST_TRANSMISSION)
    clear = (light - haze.airlight) / transmission + haze.airlight
    sloped = clear.clamp(min=TOE) ** (1 / GAMMA) + (clear - TOE).clamp(max=0)
    restored: Tensor = (
        sloped
        + (clear.clamp(min=0) ** (1 / GAMMA) + clear.clamp(max=0) - sloped).detach()
    )
    return restored


def transmission_of(haze: Scattering) -> Tensor:
    """Return the share of a scene's light (B, 3, H, W) that comes through."""
    transmission: Tensor = (-haze.depth * relative_scattering(haze.exponent)).exp()
    return transmission


def relative_scattering(exponent: Tensor) -> Tensor:
    """Return how much R, G and B (B, 3, 1, 1) are scattered, in units of green."""
    ratio = exponent.new_tensor(WAVELENGTHS)[:, None, None] / WAVELENGTHS[1]
    scattered: Tensor = ratio**-exponent
    return scattered
