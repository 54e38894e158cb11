"""Denoisers that FFmpeg has, told how strong the noise is by the tool's own estimate. See
`classical_restoration`.

Most work on Y, U and V apart, each of its own sigma: noise of cameras is stronger in colour. `strength` is
what the sigma is multiplied by.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import av
import av.filter
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.colour import rgb_to_yuv, yuv_to_rgb
from vidrestore.frames import ColourTags, PixelFormat
from vidrestore.noise import NoiseEstimator

Pictures = NDArray[Any]  # (T, H, W) or (T, H, W, 3)
APART = PixelFormat("yuv444p", "yuv", 8, 0, 0), ColourTags(matrix=6, range=2)
MOST = 999.0  # sigma that the filters take; nlmeans takes 1 to 30


def nonlocal_means(clip: Tensor, *, strength: float = 0.8, patch: int = 5, search: int = 11) -> Tensor:
    """A. Buades, B. Coll, J.-M. Morel, "A non-local algorithm for image denoising", CVPR 2005 (`nlmeans`)."""
    return _by_plane(
        clip,
        lambda sigma: f"s={np.clip(strength * sigma, 1, 30):.3f}:p={patch}:r={search}",
        "nlmeans",
        np.uint8,
    )


def dct_thresholding(clip: Tensor, *, strength: float = 1.2, bits: int = 3) -> Tensor:
    """G. Yu, G. Sapiro, "DCT image denoising: a simple and effective image denoising algorithm", IPOL 2011
    (`dctdnoiz`).

    Blocks of side 2^bits. It takes the colours apart itself.
    """
    pictures = clip.permute(0, 2, 3, 1).mul(255).round().byte().numpy()
    sigma = np.sqrt(np.mean([estimated(plane) ** 2 for plane in clip.mul(255).unbind(1)]))
    results = filtered(pictures, "dctdnoiz", f"s={min(strength * sigma, MOST):.3f}:n={bits}", "rgb24")
    return torch.from_numpy(results).permute(0, 3, 1, 2).float() / 255


def block_matching(clip: Tensor, *, strength: float = 10.0, group: int = 1, step: int = 2) -> Tensor:
    """K. Dabov et al., "Image denoising by sparse 3-D transform-domain collaborative filtering", TIP 2007,
    first stage (`bm3d`).

    With groups of 1 nothing is matched, and blocks of 8x8 are thresholded each by itself: the filter does
    better so. Its sigma is none.
    """
    matching = f"group={group}:range=8:mstep=2:thmse=400"
    return _by_plane(
        clip,
        lambda sigma: f"sigma={min(strength * sigma, MOST):.3f}:block=8:bstep={step}:{matching}",
        "bm3d",
        np.uint16,
    )


def fft_thresholding(clip: Tensor, *, strength: float = 2.0, neighbours: int = 0) -> Tensor:
    """The Wiener filter in overlapping blocks, over three frames with 1 for `neighbours` (`fftdnoiz`)."""
    around = f"overlap=0.75:prev={neighbours}:next={neighbours}"
    return _by_plane(
        clip, lambda sigma: f"sigma={min(strength * sigma, 100):.3f}:{around}", "fftdnoiz", np.uint16
    )


def means_over_time(clip: Tensor, *, strength: float = 2.0) -> Tensor:
    """D. Bartovčak, M. Vrankić, "Video denoising based on adaptive temporal averaging" (`atadenoise`): means
    where frames differ little.
    """

    def settings(sigma: float) -> str:
        limit = min(strength * sigma / 255, 0.3)
        return ":".join(f"{plane}a={limit:.4f}:{plane}b={2 * limit:.4f}" for plane in range(3)) + ":s=5"

    return _by_plane(clip, settings, "atadenoise", np.uint8)


def _by_plane(
    clip: Tensor, settings: Callable[[float], str], name: str, stored: type[np.uint8] | type[np.uint16]
) -> Tensor:
    """A filter over Y, U and V as grey videos of 8 or 16 bits; the sigma of each decides the settings."""
    planes = []
    for plane in rgb_to_yuv(clip, *APART, clip.shape[2]):
        steps = 256 if stored is np.uint16 else 1
        pictures = (plane * steps).round().clamp(0, 256 * steps - 1).numpy().astype(stored)
        results = filtered(
            pictures, name, settings(estimated(plane)), "gray16le" if stored is np.uint16 else "gray"
        )
        planes.append(torch.from_numpy(results.astype(np.float32)) / steps)
    return yuv_to_rgb(planes, *APART, clip.shape[2])


def estimated(plane: Tensor) -> float:
    """Sigma of a film of one plane (T, H, W), 0-255 scale."""
    estimator = NoiseEstimator()
    for picture in plane:
        estimator.add(picture.numpy())
    return estimator.sigma()


def filtered(pictures: Pictures, name: str, settings: str, format: str) -> Pictures:
    """A film through one of FFmpeg's filters, on one thread."""
    graph = av.filter.Graph()
    graph.threads = 1
    height, width = pictures.shape[1:3]
    source = graph.add_buffer(
        width=width, height=height, format=av.VideoFormat(format), time_base=Fraction(1, 24)
    )
    graph.link_nodes(source, graph.add(name, settings), graph.add("buffersink")).configure()
    for number, picture in enumerate(pictures):
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format=format)
        frame.pts, frame.time_base = number, Fraction(1, 24)
        graph.push(frame)
    graph.push(None)
    return np.stack([graph.pull().to_ndarray(format=format) for _ in pictures])
