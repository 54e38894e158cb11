"""Restoration without learning: the strongest methods of each task, to compare networks with.

A method maps a clip (T, 3, H, W) of R'G'B' in [0, 1], float32, to a clip of the same shape. Its settings did
best on degraded training clips, of those that are usual. Weaker methods were dropped: colour attenuation,
guided filter, bilateral filter, median over time alone, Richardson-Lucy, and FFmpeg's nlmeans, bm3d, fftdnoiz
and atadenoise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import av.filter
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.lab.degrade import gaussian_blurred
from vidrestore.noise import NoiseEstimator
from vidrestore.pixels.linear_light import from_light, to_light

LUMA = (0.299, 0.587, 0.114)
BRIGHTEST = 0.001  # share of pixels that the airlight is read from
STRIP = 16  # rows whose windows are held at once
FRAMES = 5  # of a clip that is judged by its middle frame


@dataclass(frozen=True)
class Method:
    """A method and the number of consecutive frames that it needs."""

    name: str
    restore: Callable[[Tensor], Tensor]
    frames: int = 1

    def middle(self, clip: Tensor) -> Tensor:
        """Return the middle frame (3, H, W) of a clip (T, 3, H, W), restored and rounded to 8 bits."""
        first = (len(clip) - self.frames) // 2
        restored = self.restore(clip[first : first + self.frames])[self.frames // 2]
        return restored.clamp(0, 1).mul(255).round().div(255)


# Haze


def dark_channel_prior(
    clip: Tensor,
    *,
    patch: int = 15,
    omega: float = 0.95,
    least: float = 0.1,
    radius: int = 40,
) -> Tensor:
    """K. He, J. Sun, X. Tang, "Single image haze removal using dark channel prior", CVPR 2009, in linear
    light, with the guided filter instead of matting.

    dark(x) = min over a patch and the channels (eq. 5), t = 1 - omega dark(I / A) (12), J = (I - A) / max(t,
    t0) + A (16); A is the mean of the pixels whose dark channel is brightest.
    """
    hazy = to_light(clip)
    airlight = brightest_mean(hazy, darkest(hazy.amin(1, keepdim=True), patch))
    transmission = 1 - omega * darkest((hazy / airlight).amin(1, keepdim=True), patch)
    luma = (hazy * torch.tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
    transmission = guided_filter(luma, transmission, radius, 1e-3).clamp(least, 1)
    return from_light(((hazy - airlight) / transmission + airlight).clamp(0, 1))


def darkest(plane: Tensor, side: int) -> Tensor:
    """Return the minimum over a square around each pixel of (T, 1, H, W); `side` is odd."""
    across = -F.max_pool2d(-plane, (1, side), 1, (0, side // 2))
    return -F.max_pool2d(-across, (side, 1), 1, (side // 2, 0))


def brightest_mean(clip: Tensor, measure: Tensor) -> Tensor:
    """Return the mean (T, 3, 1, 1) of (T, 3, H, W) where `measure` (T, 1, H, W) is highest."""
    count = max(1, int(BRIGHTEST * measure[0].numel()))
    places = measure.flatten(1).topk(count).indices[:, None].expand(-1, 3, -1)
    return clip.flatten(2).gather(2, places).mean(2)[..., None, None]


def guided_filter(guide: Tensor, clip: Tensor, radius: int, eps: float) -> Tensor:
    """K. He, J. Sun, X. Tang, "Guided image filtering", TPAMI 2013, eqs. 5, 6 and 8: means over squares of
    side 2 radius + 1.
    """
    mean_guide, mean_clip = box_mean(guide, radius), box_mean(clip, radius)
    covariance = box_mean(guide * clip, radius) - mean_guide * mean_clip
    slope = covariance / (box_mean(guide * guide, radius) - mean_guide**2 + eps)
    return box_mean(slope, radius) * guide + box_mean(
        mean_clip - slope * mean_guide, radius
    )


def box_mean(clip: Tensor, radius: int) -> Tensor:
    """Return the mean over a square around each pixel, of those within the picture."""
    rows = F.avg_pool2d(
        clip, (2 * radius + 1, 1), 1, (radius, 0), count_include_pad=False
    )
    return F.avg_pool2d(
        rows, (1, 2 * radius + 1), 1, (0, radius), count_include_pad=False
    )


# Rain and snow


def spatial_median(clip: Tensor, rows: int, columns: int) -> Tensor:
    """Return the median of a window of odd sides around each sample."""
    padded = F.pad(
        clip, [columns // 2, columns // 2, rows // 2, rows // 2], mode="reflect"
    )
    windows = padded.unfold(2, rows, 1).unfold(3, columns, 1)
    # whole, windows are gigabytes
    strips = [strip.flatten(4).median(-1).values for strip in windows.split(STRIP, 2)]
    return torch.cat(strips, 2)


def temporal_median(clip: Tensor, frames: int = 3) -> Tensor:
    """Return the median of each sample over `frames` frames, at the ends of a clip over the nearest ones."""
    first = (torch.arange(len(clip)) - frames // 2).clamp(0, len(clip) - frames)
    return torch.stack(
        [clip[start : start + frames].median(0).values for start in first.tolist()]
    )


def bright_outliers_replaced(clip: Tensor, steady: Tensor) -> Tensor:
    """Return `steady` where all channels of the clip are brighter, because drops and flakes only add light
    (K. Garg, S. Nayar, "Detection and removal of rain from videos", CVPR 2004).
    """
    return torch.where((clip - steady).amin(1, keepdim=True) > 0, steady, clip)


def limited_spatial_median(clip: Tensor, *, rows: int, columns: int) -> Tensor:
    """Replace bright outliers by the spatial median."""
    return bright_outliers_replaced(clip, spatial_median(clip, rows, columns))


def limited_by_both_medians(clip: Tensor, *, columns: int) -> Tensor:
    """Replace pixels that are brighter than both medians, in space and in time, by the brighter of these."""
    steady = torch.maximum(spatial_median(clip, 1, columns), temporal_median(clip))
    return bright_outliers_replaced(clip, steady)


# Blur


def unsharp_masking(clip: Tensor, *, sigma: float = 1.0, amount: float = 0.7) -> Tensor:
    """I + amount (I - Gaussian of I)."""
    return clip + amount * (clip - gaussian_blurred(clip, sigma))


def wiener(clip: Tensor, *, radius: float = 0.7, noise: float = 0.01) -> Tensor:
    """H* / (|H|^2 + K) in the Fourier domain (N. Wiener, 1949) for the blur of a disc in linear light; K is
    `noise`. Borders are mirrored.
    """
    blurred = to_light(clip)
    mirrored = torch.cat([blurred, blurred.flip(2)], 2)
    mirrored = torch.cat([mirrored, mirrored.flip(3)], 3)
    kernel = disc(radius)
    reach = len(kernel) // 2
    origin = torch.zeros(mirrored.shape[2:])
    origin[: len(kernel), : len(kernel)] = kernel
    response = torch.fft.rfft2(origin.roll((-reach, -reach), (0, 1)))
    inverse = response.conj() / (response.abs() ** 2 + noise)
    restored = torch.fft.irfft2(torch.fft.rfft2(mirrored) * inverse, mirrored.shape[2:])
    return from_light(restored[..., : clip.shape[2], : clip.shape[3]].clamp(0, 1))


def disc(radius: float) -> Tensor:
    """Return a disc (side, side) with a smooth edge, whose sum is 1; the side is odd."""
    reach = int(radius + 1)
    rows, columns = torch.meshgrid(
        *[torch.arange(-reach, reach + 1).float()] * 2, indexing="ij"
    )
    kernel = (radius + 0.5 - torch.hypot(rows, columns)).clamp(0, 1)
    return kernel / kernel.sum()


# Noise


def dct_thresholding(clip: Tensor, *, strength: float = 1.5) -> Tensor:
    """G. Yu, G. Sapiro, "DCT image denoising: a simple and effective image denoising algorithm", IPOL 2011,
    by FFmpeg's `dctdnoiz` in blocks of 8 x 8, for `strength` times the measured sigma.
    """
    pictures = clip.permute(0, 2, 3, 1).mul(255).round().byte().numpy()
    sigma = np.sqrt(
        np.mean([estimated(plane) ** 2 for plane in clip.mul(255).unbind(1)])
    )
    results = filtered(
        pictures, "dctdnoiz", f"s={min(strength * sigma, 999.0):.3f}:n=3", "rgb24"
    )
    return torch.from_numpy(results).permute(0, 3, 1, 2).float() / 255


def estimated(plane: Tensor) -> float:
    """Return the sigma of a video of one plane (T, H, W), on the 0-255 scale."""
    estimator = NoiseEstimator()
    for picture in plane:
        estimator.add(picture.numpy())
    return estimator.sigma()


def filtered(
    pictures: NDArray[Any], name: str, settings: str, pixels: str
) -> NDArray[Any]:
    """Return pictures (T, H, W) or (T, H, W, 3) after one of FFmpeg's filters, run by one thread."""
    graph = av.filter.Graph()
    graph.threads = 1
    height, width = pictures.shape[1:3]
    source = graph.add_buffer(
        width=width,
        height=height,
        format=av.VideoFormat(pixels),
        time_base=Fraction(1, 24),
    )
    graph.link_nodes(
        source, graph.add(name, settings), graph.add("buffersink")
    ).configure()
    for number, picture in enumerate(pictures):
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format=pixels)
        frame.pts, frame.time_base = number, Fraction(1, 24)
        graph.push(frame)
    graph.push(None)
    return np.stack([graph.pull().to_ndarray(format=pixels) for _ in pictures])


def _weather(rows: int, columns: int, along: int) -> tuple[Method, ...]:
    """Return both medians with their windows: of the picture alone, and of one row beside that of time."""
    return (
        Method(
            "median of bright outliers",
            lambda clip: limited_spatial_median(clip, rows=rows, columns=columns),
        ),
        Method(
            "medians in space and time",
            lambda clip: limited_by_both_medians(clip, columns=along),
            3,
        ),
    )


METHODS = {
    "dehaze": (Method("dark channel prior", dark_channel_prior),),
    "derain": _weather(rows=1, columns=3, along=3),
    "desnow": _weather(rows=3, columns=5, along=7),
    "deblur": (Method("unsharp masking", unsharp_masking), Method("Wiener", wiener)),
    "denoise": (Method("thresholded DCT", dct_thresholding),),
}
