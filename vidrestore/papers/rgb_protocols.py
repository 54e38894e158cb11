"""The protocols of single pictures, of super-resolution and of white noise, all on R, G, B.

Pictures, as in MB-TaylorFormer V2's release: whole, reflected to multiples of 8, output clamped, no border
cropped. For desnowing nothing was released; it is measured as the training validates it.

Super-resolution, as in VSR-Transformer's release: x4 from bicubically downscaled frames. Frames are cropped
at the right and bottom to multiples of 4. Low-resolution frames are the release's own (REDS) or made here as
MATLAB's imresize does, in 8 bits. A window never leaves its clip: beyond its ends, frames are taken from the
window's other side. Output is clamped and rounded to 8 bits; PSNR and SSIM are of R, G, B, or of BasicSR's Y
(BT.601, limited range, not rounded), without cropping borders.

White noise, as in the video denoising literature: at most 85 frames of a sequence; each has its own noise,
neither clipped nor rounded, drawn once per sequence. Output is clamped and not rounded. PSNR of each frame
over all samples, mean over the frames, then over the sequences (M. Tassano et al., "FastDVDnet", CVPR 2020,
and its authors' answers). DUST works on luma and colour differences (`vidrestore.colour.rgb_to_opponent`);
the sigma of each is the norm of its row times the sigma of R, G, B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.clips import clip_bounds, crossfade, join_clips
from vidrestore.colour import OPPONENT_NORMS, opponent_to_rgb, rgb_to_opponent
from vidrestore.degrade import add_gaussian_noise, imresize
from vidrestore.errors import DatasetError
from vidrestore.evaluation.results import BICUBIC, GIVEN, ClipMetrics, Comparison, System
from vidrestore.evaluation.sequence_frames import channels_last, eight_bits
from vidrestore.metrics import SSIM_K1, SSIM_K2, SSIM_SIGMA, SSIM_WINDOW, bgr_to_luma, psnr, ssim
from vidrestore.models.dust import Dust
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.options import RestoreOptions
from vidrestore.papers.dataset_files import (
    FrameSequence,
    Pair,
    clean_frames,
    picture_frames,
    read_pair,
    stacked,
)
from vidrestore.papers.tables import Table, TableSet, seed_of
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.restorers.vsr_restorer import VsrRestorer

Metrics = Callable[[Tensor, Tensor], dict[str, float]]
Enlarger = Callable[[Tensor, tuple[int, ...]], Iterator[Tensor]]  # see `enlarger`
Denoiser = Callable[[Tensor, float], Iterator[Tensor]]  # see `denoiser`


def _options(system: System) -> RestoreOptions:
    return RestoreOptions(model=system.source, device=system.device, precision="fp32", quality=system.quality)


def _comparison(index: int, *pictures: Tensor) -> Comparison:
    return Comparison(index, *map(channels_last, pictures))


# Metrics of pictures (C, H, W) of R, G, B, uint8 or float in [0, 1], as the papers' scripts compute them

MATLAB_LUMA = (65.481, 128.553, 24.966)  # weights of rgb2ycbcr for R, G, B in [0, 1]; the offset is 16


def rgb_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR over all samples and SSIM as the mean of the channels; uint8, or floats in [0, 1]."""
    top = 255.0 if restored.dtype == torch.uint8 else 1.0
    output, target = channels_last(restored), channels_last(clean)
    return {"psnr": psnr(output, target, top), "ssim": ssim(output, target, top)}


def luma_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR and SSIM of BasicSR's Y (BT.601, limited range, not rounded) of uint8 pictures."""
    output, target = (
        bgr_to_luma(channels_last(picture.flip(0)).astype(np.uint8)) for picture in (restored, clean)
    )
    return {"psnr": psnr(output, target), "ssim": ssim(output, target)}


def matlab_luma(picture: Tensor) -> NDArray[np.uint8]:
    """Return Y of MATLAB's rgb2ycbcr of a uint8 picture, rounded to 8 bits: (H, W)."""
    weights = torch.tensor(MATLAB_LUMA, dtype=torch.float64)[:, None, None]
    luma = (picture.double() / 255 * weights).sum(0) + 16
    return (luma + 0.5).floor_().to(torch.uint8).numpy()


def matlab_luma_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR and SSIM of `matlab_luma` of uint8 pictures, as the deraining papers' scripts do."""
    output, target = matlab_luma(restored), matlab_luma(clean)
    return {"psnr": psnr(output, target), "ssim": ssim(output, target)}


def volume_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR over all samples and MATLAB's `ssim` of a colour picture; uint8, or floats in [0, 1]."""
    top = 255.0 if restored.dtype == torch.uint8 else 1.0
    return {
        "psnr": psnr(channels_last(restored), channels_last(clean), top),
        "ssim": volume_ssim(restored, clean, top),
    }


def volume_ssim(restored: Tensor, clean: Tensor, top: float) -> float:
    """Return the SSIM of a colour picture read as a volume, as MATLAB's `ssim` does: an 11x11x11 Gaussian
    window that mixes the channels, borders padded by replication, the mean over all positions.
    """
    a, b = restored.double(), clean.double()
    mean_a, mean_b = _smooth(a), _smooth(b)
    variance_a, variance_b = _smooth(a * a) - mean_a**2, _smooth(b * b) - mean_b**2
    covariance = _smooth(a * b) - mean_a * mean_b
    c1, c2 = (SSIM_K1 * top) ** 2, (SSIM_K2 * top) ** 2
    index = (
        (2 * mean_a * mean_b + c1)
        * (2 * covariance + c2)
        / ((mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2))
    )
    return float(index.mean())


def _smooth(volume: Tensor) -> Tensor:
    """Filter (C, H, W) by a Gaussian along all three axes."""
    for axis in range(3):
        matrix = _gaussian(volume.shape[axis])
        volume = torch.tensordot(matrix, volume, dims=([1], [axis])).movedim(0, axis)
    return volume


def _gaussian(length: int) -> Tensor:
    """Return (length, length): rows are windows; what is outside is added to the border samples."""
    offset = torch.arange(SSIM_WINDOW, dtype=torch.float64) - SSIM_WINDOW // 2
    window = torch.exp(-(offset**2) / (2 * SSIM_SIGMA**2))
    window /= window.sum()
    positions = (torch.arange(length)[:, None] + offset.long()).clamp(0, length - 1)
    return torch.zeros(length, length, dtype=torch.float64).scatter_add_(
        1, positions, window.expand(length, -1)
    )


# Pictures

PICTURE_PROTOCOL = (
    "whole pictures as long as memory allows, reflected to multiples of 8 at the right and bottom; output "
    "clamped",
    "{task}",
    "no border cropped; mean over pictures",
)
COLOUR_SSIM = "SSIM as MATLAB's of a colour picture, whose window spans the channels"
# Task -> its metrics, True if the output is rounded to 8 bits first, and both in words.
RULES: dict[str, tuple[Metrics, bool, str]] = {
    "dehaze": (rgb_metrics, False, "PSNR and SSIM of R, G, B in floats, not rounded"),
    "derain": (
        matlab_luma_metrics,
        True,
        "pictures in 8 bits; PSNR and SSIM of MATLAB's Y (rgb2ycbcr, rounded)",
    ),
    "desnow": (
        luma_metrics,
        True,
        "pictures in 8 bits; PSNR and SSIM of BasicSR's Y, as the release validates: it has no test for snow",
    ),
    "deblur": (volume_metrics, True, f"pictures in 8 bits; PSNR of R, G, B; {COLOUR_SSIM}"),
    "denoise": (volume_metrics, False, f"PSNR of R, G, B in floats, not rounded; {COLOUR_SSIM}"),
}


def measure_pictures(
    table: Table, part: TableSet, pairs: Sequence[Pair], systems: Sequence[System], shown_count: int
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system on every picture, with a comparison of the first `shown_count`."""
    task, column = table.settings["task"], part.columns[0]
    restorers = [picture_restorer(task, system) for system in systems]
    for number, pair in enumerate(pairs):
        degraded, clean = read_pair(pair)
        for system, restore in zip(systems, restorers, strict=True):
            restored = restore(degraded.float() / 255).clamp(0, 1)
            frames = {name: (value,) for name, value in picture_metrics(task, restored, clean).items()}
            example = _comparison(0, degraded, eight_bits(restored), clean) if number < shown_count else None
            name = pair.degraded.stem
            yield ClipMetrics(system.name, part.name, column, name, frames, system.weights, example)


def picture_metrics(task: str, restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return the metrics of a task; `restored` is (3, H, W) in [0, 1], `clean` uint8."""
    metrics_of, in_eight_bits, _ = RULES[task]
    if in_eight_bits:
        return metrics_of(eight_bits(restored), clean)
    return metrics_of(restored, clean.float() / 255)


def picture_restorer(task: str, system: System) -> Callable[[Tensor], Tensor]:
    """Return the function that restores a picture (3, H, W) in [0, 1]; its output is not clamped."""
    if system.name == GIVEN:
        return lambda picture: picture
    restorer = PictureRestorer(task, _options(system))
    return lambda picture: next(restorer.frames(picture[None], (0, 1)))


# Super-resolution

ENLARGING_PROTOCOL = (
    "frames cropped to multiples of 4; low-resolution frames {small}, 8 bits",
    "windows reflected within the clip; {restored}, output clamped and rounded to 8 bits",
    "PSNR and SSIM of {channels}, no border cropped; mean per clip, then over the clips",
)
CHANNELS = {"RGB": rgb_metrics, "Y": luma_metrics}
FRAMES_AT_ONCE = 16  # most enlarged frames in memory


def measure_enlarging(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    systems: Sequence[System],
    shown_count: int,
    measured_frames: tuple[int, ...] = (),
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system and channel on every clip. `measured_frames` are the indices of the
    frames to enlarge and measure, all of them if empty.
    """
    enlargers, channels = [enlarger(system) for system in systems], table.settings["channels"]
    for number, sequence in enumerate(sequences):
        clean = stacked(map(_cropped, clean_frames(sequence)), sequence.name)
        small = small_frames(sequence, clean, bool(table.settings.get("made")))
        indices = measured_frames or tuple(range(len(clean)))
        middle = indices[len(indices) // 2] if number < shown_count else None
        for system, enlarge in zip(systems, enlargers, strict=True):
            by_channel, comparison = _enlarged_metrics(enlarge, small, clean, indices, channels, middle)
            for channel, values in by_channel.items():
                frames = {metric: tuple(value[metric] for value in values) for metric in values[0]}
                yield ClipMetrics(
                    system.name, part.name, channel, sequence.name, frames, system.weights, comparison
                )


def _enlarged_metrics(
    enlarge: Enlarger,
    small: Tensor,
    clean: Tensor,
    indices: tuple[int, ...],
    channels: Sequence[str],
    shown_index: int | None,
) -> tuple[dict[str, list[dict[str, float]]], Comparison | None]:
    """Return the metrics of each frame by channel, and the frame of `shown_index`."""
    by_channel: dict[str, list[dict[str, float]]] = {channel: [] for channel in channels}
    comparison = None
    for index, large in zip(indices, enlarge(small, indices), strict=True):
        for channel in channels:
            by_channel[channel].append(CHANNELS[channel](large, clean[index]))
        if index == shown_index:
            comparison = _comparison(index, bicubic(small[index]), large, clean[index])
    return by_channel, comparison


def _cropped(frame: Tensor) -> Tensor:
    """Crop (3, H, W) at the right and bottom to multiples of 4."""
    return frame[:, : frame.shape[1] // SCALE * SCALE, : frame.shape[2] // SCALE * SCALE]


def small_frames(sequence: FrameSequence, clean: Tensor, downscale: bool) -> Tensor:
    """Return low-resolution frames (T, 3, h, w) uint8, the release's own if it has them, unless `downscale`.
    Raises DatasetError for another size than a quarter.
    """
    if downscale or not sequence.degraded:
        return torch.stack([eight_bits(imresize(frame.double() / 255, 1 / SCALE)) for frame in clean])
    small = stacked(picture_frames(sequence.degraded), sequence.name)
    if (*small.shape[-2:],) != tuple(side // SCALE for side in clean.shape[-2:]):
        raise DatasetError(
            f"{sequence.degraded_folder}: frames of {small.shape[-1]}x{small.shape[-2]}, but a quarter of "
            f"the clean ones is {clean.shape[-1] // SCALE}x{clean.shape[-2] // SCALE}; unpack the release "
            "again"
        )
    return small


def enlarger(system: System) -> Enlarger:
    """Return the function (clip (T, 3, h, w) uint8, indices of frames) -> frames (3, 4h, 4w) uint8."""
    if system.name == BICUBIC:
        return lambda small, indices: (bicubic(small[index]) for index in indices)
    return partial(_enlarged, VsrRestorer(_options(system)))


def _enlarged(restorer: VsrRestorer, small: Tensor, indices: tuple[int, ...]) -> Iterator[Tensor]:
    clip = small.float() / 255
    for first in range(indices[0], indices[-1] + 1, FRAMES_AT_ONCE):
        stop = min(first + FRAMES_AT_ONCE, indices[-1] + 1)
        for index, large in zip(range(first, stop), restorer.frames(clip, (first, stop)), strict=True):
            if index in indices:
                yield eight_bits(large)


def bicubic(small: Tensor) -> Tensor:
    """Enlarge (3, h, w) uint8 to (3, 4h, 4w) uint8 as MATLAB's imresize does."""
    return eight_bits(imresize(small.double() / 255, SCALE))


# White noise

NOISE_PROTOCOL = (
    "the first 85 frames; noise on R, G, B, neither clipped nor rounded, drawn once per sequence from a "
    "seed of its name",
    "DUST on planes of an opponent transform with orthogonal rows, each with its own sigma",
    "output clamped and not rounded; PSNR of each frame over R, G, B, mean over frames, then over sequences",
)
FRAMES = 85
GIVEN_SIGMA = 20.0  # any: the restorer only has to know that noise is given and not measured


def takes_any_sigma(system: System, table: Table, column: str) -> bool:
    """Return True if the network takes any sigma; the planes' sigmas differ from that of R, G, B."""
    return system.model is None or not isinstance(system.network, Dust)


def measure_denoising(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    systems: Sequence[System],
    shown_count: int,
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system, sigma and sequence; the first `shown_count` with a frame."""
    denoisers = [denoiser(system) for system in systems]
    for number, sequence in enumerate(sequences):
        clean = stacked(clean_frames(sequence, FRAMES), sequence.name)
        middle = len(clean) // 2 if number < shown_count else None
        for column in part.columns:
            noisy = noisy_video(clean, float(column), seed_of(part.name, sequence.name, column))
            for system, denoise in zip(systems, denoisers, strict=True):
                values, comparison = _denoised_metrics(denoise(noisy, float(column)), noisy, clean, middle)
                frames = {"psnr": values}
                yield ClipMetrics(
                    system.name, part.name, column, sequence.name, frames, system.weights, comparison
                )


def noisy_video(clean: Tensor, sigma: float, seed: int) -> Tensor:
    """Add white Gaussian noise to a (T, 3, H, W) uint8 video; return it as floats on the scale of [0, 1]."""
    return add_gaussian_noise(clean.float(), sigma, seed, clip_and_round=False).div_(255)


def _denoised_metrics(
    restored: Iterator[Tensor], noisy: Tensor, clean: Tensor, shown_index: int | None
) -> tuple[tuple[float, ...], Comparison | None]:
    """Return the PSNR of each frame, and the frame of `shown_index`."""
    values, comparison = [], None
    for index, frame in enumerate(picture.clamp(0, 1) for picture in restored):
        values.append(psnr(channels_last(frame), channels_last(clean[index]) / 255, 1.0))
        if index == shown_index:
            comparison = _comparison(index, eight_bits(noisy[index]), eight_bits(frame), clean[index])
    return tuple(values), comparison


def denoiser(system: System) -> Denoiser:
    """Return the function (noisy (T, 3, H, W) in [0, 1], sigma in 0-255) -> restored frames (3, H, W)."""
    if system.name == GIVEN:
        return lambda noisy, sigma: iter(noisy)
    assert system.model is not None
    if system.model.card.family == "mb-taylorformer":
        restorer = PictureRestorer("denoise", _options(system))
        return lambda noisy, sigma: restorer.frames(noisy, (0, len(noisy)))
    return partial(denoise_by_planes, DenoiseRestorer(replace(_options(system), sigma=GIVEN_SIGMA)))


def denoise_by_planes(restorer: DenoiseRestorer, noisy: Tensor, sigma: float) -> Iterator[Tensor]:
    """Yield the frames of a video (T, 3, H, W) in [0, 1], restored as planes of the opponent transform."""
    planes = rgb_to_opponent((noisy * 255).unbind(1))
    sigmas = tuple(sigma * norm for norm in OPPONENT_NORMS)

    def clips() -> Iterator[tuple[tuple[int, int], list[tuple[Tensor, ...]]]]:
        for bounds in clip_bounds(len(noisy), [], restorer.facts.clip, restorer.facts.overlap):
            restored = restorer.restore(tuple(plane[slice(*bounds)] for plane in planes), sigmas)
            yield bounds, list(zip(*restored, strict=True))

    for frame in join_clips(clips(), crossfade):
        yield torch.stack(opponent_to_rgb(frame)) / 255
