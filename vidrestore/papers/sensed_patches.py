"""The protocol of the DUST paper (Section IV): gray frames in 16x16 patches, clips of 20 frames, sensed or
noisy.

The paper leaves some choices open; these are ours. Gray is BT.601's. Frames are downscaled by area means, in
8 bits, their width rounded down. Patches overlap by 8 pixels in compressed sensing and lie side by side in
denoising; the last row and column of patches end with the frame; each pixel is the mean of its patches. Noise
is neither clipped nor rounded, and drawn once per pixel or, after sensing, per measurement. The last clip of
a video reaches back to full length and contributes the frames that no other clip has. Output is clamped to
[0, 255] and not rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from vidrestore.degrade import add_gaussian_noise
from vidrestore.errors import DatasetError
from vidrestore.evaluation.results import GIVEN, ClipMetrics, Comparison, System
from vidrestore.evaluation.sequence_frames import area_matrix, grey
from vidrestore.metrics import psnr, ssim
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.grouping import origins_of, restore_patches
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.papers.dataset_files import FrameSequence, clean_frames, stacked
from vidrestore.papers.tables import Table, TableSet, seed_of
from vidrestore.sensing.recover import recovery_clips

FRAMES = 200  # most of a video
CLIP = 20
PATCH = 16
RATE_DIGITS = 1  # the papers' CS rate "0.2" is 51 / 256


def fits(system: System, table: Table, column: str) -> bool:
    """Return True if the weights have a column's patch size, CS rate and, if on the card, sigma."""
    if system.name == GIVEN:
        return True
    assert system.model is not None
    if system.network.config.patch != PATCH:
        return False
    card, measurements = system.model.card, getattr(system.network.config, "measurements", None)
    rate = measurements / system.network.config.patch**2 if measurements else None
    target = float(column) if table.column == "CS rate" else table.settings.get("rate")
    if (rate is None) != (target is None) or (rate is not None and round(rate, RATE_DIGITS) != target):
        return False
    sigma = card.parameters.get("sigma")
    if not sigma:
        return True
    levels = sigma if isinstance(sigma, list) else [sigma]
    return bool(min(levels) <= float(column) <= max(levels)) if table.column == "sigma" else not any(levels)


def measure(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    systems: Sequence[System],
    shown_count: int,
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system, column and video; the first `shown_count` with a frame."""
    for number, sequence in enumerate(sequences):
        clean = gray_video(sequence, part.lines).float()
        for system in systems:
            for column in part.columns:
                if fits(system, table, column):
                    show = number < shown_count
                    yield _measure_video(table, part, sequence.name, clean, system, column, show)


def gray_video(sequence: FrameSequence, lines: int, most_frames: int = FRAMES) -> Tensor:
    """Return the first frames in gray, (T, H, W) uint8, downscaled to `lines` lines unless that is 0. Raises
    DatasetError if the frames are smaller than a patch.
    """
    frames = stacked(map(grey, islice(clean_frames(sequence), most_frames)), sequence.name)
    video = downscaled(frames, lines) if lines else frames
    if min(video.shape[1:]) < PATCH:
        raise DatasetError(
            f"{sequence.clean_folder}: frames of {video.shape[2]}x{video.shape[1]} are smaller than "
            f"a patch of {PATCH}x{PATCH}"
        )
    return video


def downscaled(frames: Tensor, lines: int) -> Tensor:
    """Downscale by area means: (T, H, W) uint8 -> (T, lines, floor(W * lines / H)) uint8."""
    height, width = frames.shape[1:]
    down, right = area_matrix(height, lines), area_matrix(width, width * lines // height)
    small: Tensor = (down @ frames.double() @ right.mT).round_()
    return small.to(torch.uint8)


def _measure_video(
    table: Table,
    part: TableSet,
    clip: str,
    clean: Tensor,
    system: System,
    column: str,
    show: bool,
) -> ClipMetrics:
    sigma = float(column) if table.column == "sigma" else 0.0
    length = int(column) if table.column == "clip length" else CLIP
    seed = seed_of(part.name, clip, f"sigma {sigma:g}")
    noisy = clean
    if sigma and "rate" not in table.settings:
        noisy = add_gaussian_noise(clean, sigma, seed, clip_and_round=False)
    if system.name == GIVEN:
        restored = noisy
    else:
        work = restorer(system.network, sigma, seed if "rate" in table.settings else None)
        patch, stride = system.network.config.patch, table.settings["stride"]
        restored = restored_video(work, noisy, patch, stride, length, system.device)
    restored = restored.clamp(0, 255)
    pairs = list(zip(restored, clean, strict=True))
    frames = {"psnr": tuple(psnr(*pair) for pair in pairs), "ssim": tuple(ssim(*pair) for pair in pairs)}
    comparison = gray_comparison(noisy, restored, clean) if show else None
    return ClipMetrics(system.name, part.name, column, clip, frames, system.weights, comparison)


def restorer(network: Any, sigma: float, seed: int | None) -> Callable[[Tensor], Tensor]:
    """Return the function that recovers groups of patches (B, T, N) on the 0-255 scale; with a seed, noise of
    `sigma` is added to the measurements.
    """
    work = network.at(sigma, torch.float32, PackedLinear)
    generator = None if seed is None else torch.Generator().manual_seed(seed)

    def recovered(groups: Tensor) -> Tensor:
        measured = network.measure(groups)
        if generator is not None:
            measured = add_gaussian_noise(measured, sigma, generator, clip_and_round=False)
        restored: Tensor = work(measured)
        return restored

    return recovered


@torch.no_grad()
def restored_video(
    work: Callable[[Tensor], Tensor], video: Tensor, patch: int, stride: int, length: int, device: str
) -> Tensor:
    """Restore a video (T, H, W) on the 0-255 scale clip by clip."""
    restored = torch.empty_like(video)
    for first, start, stop in recovery_clips(len(video), length):
        clip = video[first:stop].to(device)
        height, width = clip.shape[1:]
        origins = origins_of(
            fixed_positions(len(clip), Grid(height, width, patch, stride), clip.device), height, width
        )
        restored[start:stop] = restore_patches(clip, origins, patch, work)[start - first :].cpu()
    return restored


def gray_comparison(source: Tensor, restored: Tensor, clean: Tensor) -> Comparison:
    """Return the middle frame of videos (T, H, W) on the 0-255 scale."""
    middle = len(clean) // 2
    pictures = [
        video[middle].round().clamp(0, 255).to(torch.uint8)[..., None].expand(-1, -1, 3).numpy()
        for video in (source, restored, clean)
    ]
    return Comparison(middle, *pictures)


PROTOCOL = (
    "gray frames (BT.601, 8 bits), the first 200 of each video; Avenue and ShanghaiTech at 160 lines (area "
    "means)",
    f"patches of {PATCH}x{PATCH}, {{stride}} pixels apart, the last ones flush with the border; each pixel "
    "is the mean of its patches",
    "clips of {clip} frames side by side, the last one reaching back to full length",
    "PSNR and SSIM (Gaussian window, 255 to black) of each frame, output clamped and not rounded, mean over "
    "all frames of the set",
)
