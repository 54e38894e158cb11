"""Remove haze by the dark channel prior: without haze, some colour in every place is nearly black.

K. He, J. Sun, X. Tang, "Single image haze removal using dark channel prior", CVPR 2009: a place's darkest
colour over that of the airlight is its share of haze. Sky breaks the prior, and its blocks and dirt would
come out: what is as bright as the airlight and smooth is spared.

Thick haze hides where the sky ends. What is bright and smooth down from the upper edge of a picture is sky,
if it spans the picture and the rest is darker.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.alignment import luma_of, means_around


@dataclass(frozen=True)
class DarkChannel:
    """The prior for small pictures of about 144 lines; radii and sides of squares are in pixels.

    radius: of the places whose darkest colour counts
    removed: share of the haze that is taken off
    brightest: share of the pixels that the airlight is the mean of: those whose darkest colour is brightest
    bright: shares of haze between which a place may become sky
    smooth, smooth_side: deviations of luma in a square around a pixel between which it may be no sky
    sky_transmission: the least of the sky
    least_transmission: of any place
    edge_side, edge_variance: of the guided filter that brings the edges of luma to the transmission
    """

    radius: int = 3
    removed: float = 0.95
    brightest: float = 1e-3
    bright: tuple[float, float] = (0.6, 0.9)
    smooth: tuple[float, float] = (0.01, 0.04)
    smooth_side: int = 11
    sky_transmission: float = 0.9
    least_transmission: float = 0.25
    edge_side: int = 25
    edge_variance: float = 1e-3

    def clear_luma(self, pictures: Tensor) -> Tensor:
        """Return the luma (B, 1, H, W) in [0, 1] of R'G'B' pictures (B, 3, H, W) without haze."""
        luma, airlight = luma_of(pictures), self._airlight(pictures)
        haze = self._darkest(pictures / airlight)
        transmission = self.edged(
            luma, self._with_sky(1 - self.removed * haze, haze, luma)
        )
        clear = (pictures - airlight) / transmission.clamp(
            self.least_transmission, 1
        ) + airlight
        return luma_of(clear.clamp(0, 1))

    def haze(self, pictures: Tensor) -> Tensor:
        """Return the shares of haze (B, 1, H, W) of the places of R'G'B' pictures (B, 3, H, W)."""
        return self._darkest(pictures / self._airlight(pictures))

    def _airlight(self, pictures: Tensor) -> Tensor:
        dark = self._darkest(pictures)
        count = max(1, int(self.brightest * dark[0].numel()))
        places = dark.flatten(1).topk(count).indices[:, None].expand(-1, 3, -1)
        colours = pictures.flatten(2).gather(2, places)
        return colours.mean(2)[..., None, None].clamp(min=1e-3)

    def _darkest(self, pictures: Tensor) -> Tensor:
        darkest = -pictures.amin(1, keepdim=True)
        return -F.max_pool2d(
            darkest, 2 * self.radius + 1, stride=1, padding=self.radius
        )

    def _with_sky(self, transmission: Tensor, haze: Tensor, luma: Tensor) -> Tensor:
        variance = (
            means_around(luma * luma, self.smooth_side)
            - means_around(luma, self.smooth_side) ** 2
        )
        sky = share(haze, *self.bright) * (
            1 - share(variance.clamp(min=0).sqrt(), *self.smooth)
        )
        return transmission.lerp(transmission.clamp(min=self.sky_transmission), sky)

    def edged(self, luma: Tensor, transmission: Tensor) -> Tensor:
        """Return maps (B, 1, H, W) with the edges of luma (B, 1, H, W)."""
        mean, aim = (
            means_around(luma, self.edge_side),
            means_around(transmission, self.edge_side),
        )
        covariance = means_around(luma * transmission, self.edge_side) - mean * aim
        variance = means_around(luma * luma, self.edge_side) - mean * mean
        slope = covariance / (variance + self.edge_variance)
        offset = aim - slope * mean
        return means_around(slope, self.edge_side) * luma + means_around(
            offset, self.edge_side
        )


@dataclass(frozen=True)
class HazySky:
    """What is sky in small pictures of about 144 lines with thick haze; sides of squares are in pixels.

    bright: shares of haze between which a place may become sky
    detail_side, smooth_side: detail is luma less its mean in the first square; its deviation is taken in the
        second
    smooth: deviations of detail between which a place may be no sky
    growth: radius by which sky grows, as smoothness ends before things do
    edge_side, edge_variance: of the guided filter that brings the edges of luma to the sky
    upper_edge: the share of the rows that sky must span
    span: shares of their width between which sky may be the scene's
    above, below: shares of the rows at either end whose lumas are compared
    lighter: differences of them between which sky may be the scene's
    """

    bright: tuple[float, float] = (0.4, 0.7)
    detail_side: int = 5
    smooth_side: int = 11
    smooth: tuple[float, float] = (0.002, 0.006)
    growth: int = 4
    edge_side: int = 15
    edge_variance: float = 1e-4
    upper_edge: float = 1 / 18
    span: tuple[float, float] = (0.6, 0.9)
    above: float = 1 / 6
    below: float = 1 / 3
    lighter: tuple[float, float] = (0.2, 0.35)

    def shares(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return how much each place (B, 1, H, W) of R'G'B' pictures (B, 3, H, W) looks like sky, and how
        much their scenes (B, 1, 1, 1) seem to have any, from 0 to 1.
        """
        luma = luma_of(pictures)
        detail = luma - means_around(luma, self.detail_side)
        deviation = means_around(detail * detail, self.smooth_side).sqrt()
        likeness = share(DarkChannel().haze(pictures), *self.bright)
        likeness = likeness * (1 - share(deviation, *self.smooth))
        # it ends where something stands before it
        sky = likeness.cummin(2).values
        parts, height = (self.upper_edge, self.above, self.below), luma.shape[2]
        edge, above, below = (max(1, round(part * height)) for part in parts)
        span = sky[:, :, :edge].mean((2, 3), keepdim=True)
        difference = luma[:, :, :above].mean((2, 3), keepdim=True)
        difference = difference - luma[:, :, -below:].mean((2, 3), keepdim=True)
        scene = share(span, *self.span) * share(difference, *self.lighter)
        grown = F.max_pool2d(sky, 2 * self.growth + 1, stride=1, padding=self.growth)
        return grown, scene

    def edged(self, luma: Tensor, sky: Tensor) -> Tensor:
        """Return how much places are sky (B, 1, H, W), with the edges of luma (B, 1, H, W)."""
        prior = DarkChannel(edge_side=self.edge_side, edge_variance=self.edge_variance)
        return prior.edged(luma, sky).clamp(0, 1)


def share(values: Tensor, least: float, most: float) -> Tensor:
    """Return where values lie between two limits: 0 up to the first, 1 from the second on."""
    return ((values - least) / (most - least)).clamp(0, 1)
