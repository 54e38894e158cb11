"""Pictures of a sensor behind a Bayer filter, after interpolation.

Green is interpolated along edges and corrected by the second difference of the colour measured there (J.
Hamilton and J. Adams, US patent 5,629,734, 1997); red and blue are interpolated as differences to green (D.
Cok, US patent 4,642,678, 1987). So noise becomes coarse and partly the same in all colours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BILINEAR = ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25))


def demosaiced(light: Tensor, bend: float = 1.0, follow: float = 1.0) -> Tensor:
    """Keep one colour per site (red, green / green, blue) of (T, 3, H, W) and interpolate the others; at
    least 3x3 pixels.

    `bend` is the share of the measured colour's second difference that corrects green; `follow` is the share
    of green that is subtracted from red and blue for interpolation (0, 0: all colours are interpolated by
    themselves).
    """
    sites = _sites(light)
    raw = (light * sites).sum(1, keepdim=True)
    green = torch.where(sites[1] > 0, raw, _green_between(raw, bend))
    differences = (raw - follow * green) * sites[::2]
    kernel = torch.tensor(BILINEAR).expand(2, 1, 3, 3)
    red, blue = (
        F.conv2d(F.pad(differences, (1, 1, 1, 1), mode="reflect"), kernel, groups=2) + follow * green
    ).split(1, 1)
    return torch.cat((red, green, blue), 1)


def _sites(light: Tensor) -> Tensor:
    """Return (3, H, W), 1 where a colour is measured."""
    height, width = light.shape[2:]
    cell = torch.zeros(3, 2, 2)
    cell[0, 0, 0] = cell[1, 0, 1] = cell[1, 1, 0] = cell[2, 1, 1] = 1
    return cell.repeat(1, -(-height // 2), -(-width // 2))[:, :height, :width]


def _green_between(raw: Tensor, bend: float) -> Tensor:
    """Interpolate green where red or blue is measured, in the direction that changes less."""
    across, change_across = _along(raw, bend)
    down, change_down = (each.mT for each in _along(raw.mT, bend))
    chosen = torch.where(change_across < change_down, across, down)
    return torch.where(change_across == change_down, (across + down) / 2, chosen)


def _along(raw: Tensor, bend: float) -> tuple[Tensor, Tensor]:
    """Return the value between neighbours in a row, and the amount of change of the row there."""
    padded = F.pad(raw, (2, 2, 0, 0), mode="reflect")
    second_left, left, _, right, second_right = padded.unfold(3, raw.shape[3], 1).unbind(3)
    second = 2 * raw - second_left - second_right
    return (left + right) / 2 + bend * second / 4, (left - right).abs() + second.abs()
