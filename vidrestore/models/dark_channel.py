"""Remove haze by the dark channel prior: without haze, some colour in every place is nearly black.

K. He, J. Sun, X. Tang, "Single image haze removal using dark channel prior", CVPR 2009: a place's darkest
colour over that of the airlight is its share of haze. Sky breaks the prior, and its blocks and dirt would
come out: what is as bright as the airlight and smooth is spared.
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
        luma, dark = luma_of(pictures), self._darkest(pictures)
        count = max(1, int(self.brightest * dark[0].numel()))
        places = dark.flatten(1).topk(count).indices[:, None].expand(-1, 3, -1)
        airlight = (
            pictures.flatten(2)
            .gather(2, places)
            .mean(2)[..., None, None]
            .clamp(min=1e-3)
        )
        haze = self._darkest(pictures / airlight)
        transmission = self._edged(
            luma, self._with_sky(1 - self.removed * haze, haze, luma)
        )
        clear = (pictures - airlight) / transmission.clamp(
            self.least_transmission, 1
        ) + airlight
        return luma_of(clear.clamp(0, 1))

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

    def _edged(self, luma: Tensor, transmission: Tensor) -> Tensor:
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


def share(values: Tensor, least: float, most: float) -> Tensor:
    """Return where values lie between two limits: 0 up to the first, 1 from the second on."""
    return ((values - least) / (most - least)).clamp(0, 1)
