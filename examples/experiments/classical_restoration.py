"""What one could run instead of the networks: methods that learn nothing, to hold them against.

A method is a function of a clip (T, 3, H, W) of R'G'B' in [0, 1], float32, and of keyword settings; it gives
a clip of the same shape. METHODS has those of every task, TUNED the settings that did best on degraded
training clips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from classical_denoisers import (
    block_matching,
    dct_thresholding,
    fft_thresholding,
    means_over_time,
    nonlocal_means,
)
from torch import Tensor

from vidrestore.degrade import gaussian_blurred
from vidrestore.light import from_light, to_light

LUMA = (0.299, 0.587, 0.114)
BRIGHTEST = 0.001  # share of pixels that airlight is read from
STRIP = 16  # rows whose windows are held at once


Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """A way to restore: what tuning may choose from, the usual value first, and how many `frames` in a row it
    looks at.
    """

    name: str
    restore: Callable[..., Tensor]
    choices: Mapping[str, tuple[Any, ...]]
    frames: int = 1

    def middle(self, clip: Tensor, settings: Settings) -> Tensor:
        """(3, H, W): the middle frame of a clip (T, 3, H, W) restored, as 8 bits hold it."""
        first = (len(clip) - self.frames) // 2
        restored = self.restore(clip[first : first + self.frames], **settings)[self.frames // 2]
        return restored.clamp(0, 1).mul(255).round().div(255)


# Haze


def dark_channel_prior(
    clip: Tensor,
    *,
    patch: int = 15,
    omega: float = 0.95,
    least: float = 0.1,
    radius: int = 40,
    eps: float = 1e-3,
    linear: bool = False,
) -> Tensor:
    """K. He, J. Sun, X. Tang, "Single image haze removal using dark channel prior", CVPR 2009, with the
    guided filter instead of matting.

    dark(x) = min over a patch and the channels (eq. 5), t = 1 - omega dark(I / A) (12), J = (I - A) / max(t,
    t0) + A (16); A from the pixels of the brightest dark channel.
    """

    def transmission(hazy: Tensor) -> tuple[Tensor, Tensor]:
        airlight = brightest_mean(hazy, darkest(hazy.amin(1, keepdim=True), patch))
        return 1 - omega * darkest((hazy / airlight).amin(1, keepdim=True), patch), airlight

    return _cleared(clip, transmission, least, radius, eps, linear)


def colour_attenuation_prior(
    clip: Tensor,
    *,
    patch: int = 15,
    beta: float = 1.0,
    least: float = 0.1,
    radius: int = 40,
    eps: float = 1e-3,
    linear: bool = False,
) -> Tensor:
    """Q. Zhu, J. Mai, L. Shao, "A fast single image haze removal algorithm using color attenuation prior",
    TIP 2015.

    Depth d = 0.121779 + 0.959710 v - 0.780245 s for value and saturation (eq. 8), then its minimum over a
    patch; t = exp(-beta d); airlight from where it is deepest; J = (I - A) / min(max(t, 0.1), 0.9) + A.
    """

    def transmission(hazy: Tensor) -> tuple[Tensor, Tensor]:
        value = hazy.amax(1, keepdim=True)
        saturation = (value - hazy.amin(1, keepdim=True)) / value.clamp(min=1e-6)
        depth = darkest(0.121779 + 0.959710 * value - 0.780245 * saturation, patch)
        return torch.exp(-beta * depth).clamp(max=0.9), brightest_mean(hazy, depth)

    return _cleared(clip, transmission, least, radius, eps, linear)


def _cleared(
    clip: Tensor,
    transmission: Callable[[Tensor], tuple[Tensor, Tensor]],
    least: float,
    radius: int,
    eps: float,
    linear: bool,
) -> Tensor:
    """Haze taken off by the transmission and the airlight that a prior finds; both priors refine it with the
    guided filter.
    """
    hazy = to_light(clip) if linear else clip
    through, airlight = transmission(hazy)
    through = guided_filter(luma(hazy), through, radius, eps).clamp(least, 1)
    clear = ((hazy - airlight) / through + airlight).clamp(0, 1)
    return from_light(clear) if linear else clear


def luma(clip: Tensor) -> Tensor:
    """(T, 3, H, W) -> (T, 1, H, W)."""
    return (clip * torch.tensor(LUMA)[:, None, None]).sum(1, keepdim=True)


def darkest(plane: Tensor, side: int) -> Tensor:
    """The minimum over a square around each pixel of (T, 1, H, W), `side` odd."""
    across = -F.max_pool2d(-plane, (1, side), 1, (0, side // 2))
    return -F.max_pool2d(-across, (side, 1), 1, (side // 2, 0))


def brightest_mean(clip: Tensor, measure: Tensor) -> Tensor:
    """(T, 3, 1, 1): the mean of (T, 3, H, W) where `measure` (T, 1, H, W) is highest."""
    count = max(1, int(BRIGHTEST * measure[0].numel()))
    places = measure.flatten(1).topk(count).indices[:, None].expand(-1, 3, -1)
    return clip.flatten(2).gather(2, places).mean(2)[..., None, None]


# Rain and snow


def guided_filter(guide: Tensor, clip: Tensor, radius: int, eps: float) -> Tensor:
    """K. He, J. Sun, X. Tang, "Guided image filtering", TPAMI 2013, eqs. 5, 6 and 8: means over squares of
    side 2 radius + 1.
    """
    mean_guide, mean_clip = box_mean(guide, radius), box_mean(clip, radius)
    covariance = box_mean(guide * clip, radius) - mean_guide * mean_clip
    slope = covariance / (box_mean(guide * guide, radius) - mean_guide**2 + eps)
    return box_mean(slope, radius) * guide + box_mean(mean_clip - slope * mean_guide, radius)


def box_mean(clip: Tensor, radius: int) -> Tensor:
    """The mean over a square around each pixel, of those within the picture: by sums from the border on, at
    any radius as quick.
    """
    means = clip.double()
    for dim in (2, 3):
        places = torch.arange(clip.shape[dim])
        first, last = (places - radius).clamp(min=0), (places + radius).clamp(max=clip.shape[dim] - 1)
        sums = means.cumsum(dim)
        within = sums.index_select(dim, last) - sums.index_select(dim, first) + means.index_select(dim, first)
        count = last - first + 1
        means = within / (count[:, None] if dim == 2 else count)
    return means.to(clip.dtype)


def smoothed_by_guided_filter(clip: Tensor, *, radius: int = 2, eps: float = 0.01) -> Tensor:
    """Every channel guided by itself: edges of less contrast than sqrt(eps) go."""
    return guided_filter(clip, clip, radius, eps)


def bilateral(clip: Tensor, *, reach: float = 1.5, contrast: float = 0.1) -> Tensor:
    """C. Tomasi, R. Manduchi, "Bilateral filtering for gray and color images", ICCV 1998: Gaussians of
    distance and of RGB difference.
    """
    radius = round(2 * reach)
    around = F.pad(clip, [radius] * 4, mode="reflect")
    total, weights = torch.zeros_like(clip), torch.zeros_like(clip[:, :1])
    height, width = clip.shape[2:]
    for down in range(2 * radius + 1):
        for right in range(2 * radius + 1):
            near = around[..., down : down + height, right : right + width]
            distance = ((down - radius) ** 2 + (right - radius) ** 2) / reach**2
            weight = torch.exp(-0.5 * (distance + (near - clip).square().sum(1, keepdim=True) / contrast**2))
            total.addcmul_(weight, near)
            weights += weight
    return total / weights


def spatial_median(clip: Tensor, *, rows: int = 3, columns: int = 3) -> Tensor:
    """The median of a window of odd sides around each sample (J. Tukey, 1971); wider than high, it takes what
    falls.
    """
    padded = F.pad(clip, [columns // 2, columns // 2, rows // 2, rows // 2], mode="reflect")
    windows = padded.unfold(2, rows, 1).unfold(3, columns, 1)
    # whole, windows are gigabytes
    strips = [strip.flatten(4).median(-1).values for strip in windows.split(STRIP, 2)]
    return torch.cat(strips, 2)


def temporal_median(clip: Tensor, *, frames: int = 3) -> Tensor:
    """The median of each sample over `frames` frames, an odd number; at the ends of a clip, over the nearest
    so many.
    """
    first = (torch.arange(len(clip)) - frames // 2).clamp(0, len(clip) - frames)
    return torch.stack([clip[start : start + frames].median(0).values for start in first.tolist()])


def bright_outliers_replaced(clip: Tensor, steady: Tensor, threshold: float) -> Tensor:
    """`steady` where all channels of the clip are brighter by more than a threshold, for drops and flakes
    only add light.

    K. Garg, S. Nayar, "Detection and removal of rain from videos", CVPR 2004, ask the same of both
    neighbouring frames.
    """
    return torch.where((clip - steady).amin(1, keepdim=True) > threshold, steady, clip)


def limited_spatial_median(
    clip: Tensor, *, rows: int = 3, columns: int = 5, threshold: float = 0.05
) -> Tensor:
    """The spatial median of bright outliers."""
    return bright_outliers_replaced(clip, spatial_median(clip, rows=rows, columns=columns), threshold)


def limited_temporal_median(clip: Tensor, *, frames: int = 3, threshold: float = 0.05) -> Tensor:
    """The temporal median of bright outliers."""
    return bright_outliers_replaced(clip, temporal_median(clip, frames=frames), threshold)


def limited_by_both_medians(
    clip: Tensor, *, rows: int = 1, columns: int = 5, frames: int = 3, threshold: float = 0.05
) -> Tensor:
    """The brighter of both medians for pixels that are brighter than both: those stick out in space as well
    as in time.
    """
    steady = torch.maximum(
        spatial_median(clip, rows=rows, columns=columns), temporal_median(clip, frames=frames)
    )
    return bright_outliers_replaced(clip, steady, threshold)


# Blur


def unsharp_masking(clip: Tensor, *, sigma: float = 1.5, amount: float = 0.5) -> Tensor:
    """I + amount (I - Gaussian of I), as R. Gonzalez and R. Woods, "Digital image processing", have it."""
    return clip + amount * (clip - gaussian_blurred(clip, sigma))


def wiener(
    clip: Tensor, *, shape: str = "gaussian", size: float = 1.5, noise: float = 0.03, linear: bool = False
) -> Tensor:
    """H* / (|H|^2 + K) in the Fourier domain (N. Wiener, 1949) for a blur of one fixed shape; K is `noise`.
    Borders are mirrored.
    """
    blurred = to_light(clip) if linear else clip
    mirrored = torch.cat([blurred, blurred.flip(2)], 2)
    mirrored = torch.cat([mirrored, mirrored.flip(3)], 3)
    kernel = point_spread(shape, size)
    reach = len(kernel) // 2
    origin = torch.zeros(mirrored.shape[2:])
    origin[: len(kernel), : len(kernel)] = kernel
    response = torch.fft.rfft2(origin.roll((-reach, -reach), (0, 1)))
    restored = torch.fft.irfft2(
        torch.fft.rfft2(mirrored) * response.conj() / (response.abs() ** 2 + noise), mirrored.shape[2:]
    )
    sharp = restored[..., : clip.shape[2], : clip.shape[3]].clamp(0, 1)
    return from_light(sharp) if linear else sharp


def richardson_lucy(
    clip: Tensor, *, shape: str = "gaussian", size: float = 1.5, steps: int = 5, linear: bool = False
) -> Tensor:
    """u <- u (h' * (I / (h * u))), W. Richardson, JOSA 1972, and L. Lucy, 1974, for a blur of one fixed,
    symmetric shape.
    """
    blurred = (to_light(clip) if linear else clip).clamp(min=1e-4)
    kernel = point_spread(shape, size)
    sharp = blurred
    for _ in range(steps):
        sharp = sharp * filtered(blurred / filtered(sharp, kernel).clamp(min=1e-6), kernel)
    return from_light(sharp) if linear else sharp.clamp(0, 1)


def filtered(clip: Tensor, kernel: Tensor) -> Tensor:
    """(T, 3, H, W) correlated with a kernel of odd side, mirrored at the borders."""
    planes = F.pad(clip, [len(kernel) // 2] * 4, mode="reflect").flatten(0, 1)[:, None]
    return F.conv2d(planes, kernel[None, None]).view_as(clip)


@cache
def point_spread(shape: str, size: float) -> Tensor:
    """(side, side), side odd, sum 1: a Gaussian of sigma `size`, a disc of radius `size`, a line of length 2
    `size` + 1.
    """
    reach = round(3 * size) if shape == "gaussian" else int(size + 1)
    rows, columns = torch.meshgrid(*[torch.arange(-reach, reach + 1).float()] * 2, indexing="ij")
    shapes = {
        "gaussian": torch.exp(-(rows**2 + columns**2) / (2 * size**2)),
        "disc": (size + 0.5 - torch.hypot(rows, columns)).clamp(0, 1),
        "level": (size + 1 - columns.abs()).clamp(0, 1) * (rows == 0),
        "upright": (size + 1 - rows.abs()).clamp(0, 1) * (columns == 0),
    }
    return shapes[shape] / shapes[shape].sum()


HAZE = {
    "omega": (0.95, 0.5, 0.65, 0.8),
    "patch": (15, 9, 25),
    "least": (0.1, 0.2, 0.35),
    "linear": (False, True),
}
DEPTH = {
    "beta": (1.0, 0.6, 0.8, 1.2, 1.5),
    "patch": (15, 9, 25),
    "least": (0.1, 0.2, 0.35),
    "linear": (False, True),
}
WINDOW = {"rows": (3, 1, 5, 9), "columns": (3, 1, 5, 9)}
LIMIT = {"threshold": (0.02, 0.0, 0.01, 0.05)}
BLUR = {
    "size": (1.0, 0.5, 0.7, 1.5, 2.0),
    "shape": ("gaussian", "disc", "level", "upright"),
    "linear": (False, True),
}
WEATHER = (
    Method("median", spatial_median, WINDOW),
    Method(
        "guided filter", smoothed_by_guided_filter, {"radius": (2, 1, 4, 8), "eps": (1e-2, 1e-4, 1e-3, 1e-1)}
    ),
    Method("bilateral", bilateral, {"reach": (1.5, 0.7, 1.0, 2.5), "contrast": (0.12, 0.03, 0.06, 0.25)}),
    Method("temporal median", temporal_median, {"frames": (3, 5)}, 5),
    Method("median of bright outliers", limited_spatial_median, WINDOW | LIMIT),
    Method("temporal median of bright outliers", limited_temporal_median, {"frames": (3, 5)} | LIMIT, 5),
    Method(
        "both medians of outliers bright in both", limited_by_both_medians, LIMIT | {"columns": (5, 3, 7)}, 3
    ),
)
METHODS = {
    "dehaze": (
        Method("dark channel prior", dark_channel_prior, HAZE),
        Method("colour attenuation prior", colour_attenuation_prior, DEPTH),
    ),
    "derain": WEATHER,
    "desnow": WEATHER,
    "deblur": (
        Method(
            "unsharp masking",
            unsharp_masking,
            {"sigma": (1.5, 0.7, 1.0, 2.5, 4.0), "amount": (0.5, 0.25, 0.35, 0.7, 1.0)},
        ),
        Method("Wiener", wiener, BLUR | {"noise": (0.03, 0.003, 0.01, 0.1)}),
        Method("Richardson-Lucy", richardson_lucy, BLUR | {"steps": (4, 2, 6, 10)}),
    ),
    "denoise": (
        Method(
            "nlmeans",
            nonlocal_means,
            {"strength": (0.8, 0.5, 0.65, 1.0, 1.25), "patch": (5, 3, 7), "search": (11, 15)},
        ),
        Method("dctdnoiz", dct_thresholding, {"strength": (1.2, 0.8, 1.0, 1.5), "bits": (3, 4)}),
        Method("bm3d", block_matching, {"strength": (8.0, 6.0, 10.0, 13.0), "group": (1, 8)}),
        Method(
            "fftdnoiz", fft_thresholding, {"strength": (2.0, 0.7, 1.0, 1.5, 3.0), "neighbours": (0, 1)}, 3
        ),
        Method("atadenoise", means_over_time, {"strength": (2.0, 4.0, 8.0, 16.0)}, 5),
    ),
}
FRAMES = 5  # that the longest-sighted of them looks at

# Best of the choices on training clips, as found by examples/experiments/tune_classical.py
TUNED: dict[str, dict[str, Settings]] = {
    "dehaze": {
        "dark channel prior": {"omega": 0.95, "patch": 15, "least": 0.1, "linear": True},
        "colour attenuation prior": {"beta": 1.0, "patch": 15, "least": 0.1, "linear": False},
    },
    "derain": {
        "median": {"rows": 1, "columns": 3},
        "guided filter": {"radius": 4, "eps": 0.0001},
        "bilateral": {"reach": 0.7, "contrast": 0.03},
        "temporal median": {"frames": 3},
        "median of bright outliers": {"rows": 1, "columns": 3, "threshold": 0.0},
        "temporal median of bright outliers": {"frames": 3, "threshold": 0.0},
        "both medians of outliers bright in both": {"threshold": 0.0, "columns": 3},
    },
    "desnow": {
        "median": {"rows": 1, "columns": 3},
        "guided filter": {"radius": 8, "eps": 0.0001},
        "bilateral": {"reach": 0.7, "contrast": 0.03},
        "temporal median": {"frames": 3},
        "median of bright outliers": {"rows": 3, "columns": 5, "threshold": 0.0},
        "temporal median of bright outliers": {"frames": 3, "threshold": 0.0},
        "both medians of outliers bright in both": {"threshold": 0.0, "columns": 7},
    },
    "deblur": {
        "unsharp masking": {"sigma": 1.0, "amount": 0.7},
        "Wiener": {"size": 0.7, "shape": "disc", "linear": True, "noise": 0.01},
        "Richardson-Lucy": {"size": 0.7, "shape": "gaussian", "linear": True, "steps": 4},
    },
    "denoise": {
        "nlmeans": {"strength": 1.0, "patch": 5, "search": 11},
        "dctdnoiz": {"strength": 1.5, "bits": 3},
        "bm3d": {"strength": 10.0, "group": 1},
        "fftdnoiz": {"strength": 2.0, "neighbours": 1},
        "atadenoise": {"strength": 4.0},
    },
}
