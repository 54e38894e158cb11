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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from vidrestore.errors import DatasetError
from vidrestore.lab.degrade import add_gaussian_noise
from vidrestore.lab.papers.dataset_files import FrameSequence, clean_frames, stacked
from vidrestore.lab.papers.printed_forms import (
    DEPTH,
    DUST_VALUES,
    INITIAL,
    depth_of,
    trained_frames,
)
from vidrestore.lab.papers.tables import Table, TableSet, seed_of
from vidrestore.lab.sensing.recover import recovery_clips
from vidrestore.models.fast_linear import PackedLinear
from vidrestore.models.grouping import origins_of, restore_patches
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.pages.results import GIVEN, ClipMetrics, Comparison, System
from vidrestore.pages.sequence_frames import area_matrix, grey
from vidrestore.pixels.metrics import psnr, ssim

VIDEO_FRAMES = 200  # most of a video
CLIP_LENGTH = 20  # frames
PATCH_SIDE = 16  # pixels
PRINTED_RATE_DIGITS = 1  # the papers' CS rate "0.2" is 51 / 256


@dataclass(frozen=True)
class Setting:
    """The measurement that a column of a table is.

    rate: CS rate; None for denoising.
    sigma: of the noise on pixels, or on the measurements, in grey levels.
    stride: of the patches, in pixels.
    clip: frames that are recovered together.
    depth: layers or iterations of the networks; None for any.
    initial: values that the networks were trained from; None for any.
    """

    rate: float | None = None
    sigma: float = 0.0
    stride: int = PATCH_SIDE
    clip: int = CLIP_LENGTH
    depth: int | None = None
    initial: Mapping[str, float] | None = None


def setting_of(table: Table, column: str) -> Setting:
    """Return the setting that a column names by what the table's columns are; the rest is the table's."""
    # what the columns mean decides which field they set
    values = {
        name: table.settings[name]
        for name in ("rate", "sigma", "stride")
        if name in table.settings
    }
    if table.column == "task":
        return Setting(**values | table.settings["tasks"][column])
    if table.column == INITIAL:
        name, value = column.split()
        return Setting(**values, initial=DUST_VALUES | {name: float(value)})
    if table.column == DEPTH:
        return Setting(**values, depth=int(column))
    if table.column == "clip length":
        return Setting(**values, clip=int(column))
    name = "rate" if table.column == "CS rate" else "sigma"
    return Setting(**values | {name: float(column)})


def tasks(table: Table) -> tuple[str, ...]:
    """Return the tasks of the weights for a table: "recover", "denoise", or both."""
    settings = [
        setting_of(table, column) for part in table.sets for column in part.columns
    ]
    return tuple(
        dict.fromkeys(
            "denoise" if setting.rate is None else "recover" for setting in settings
        )
    )


def fits(system: System, table: Table, column: str) -> bool:
    """Return True if the weights have a column's patch size, CS rate, depth and initial values and, if on the
    card, its sigma.
    """
    setting = setting_of(table, column)
    # what a network was made for is in its configuration, what it was trained for on its card
    if system.name == GIVEN:
        return setting.rate is None
    assert system.model is not None
    config = system.network.config
    measurements = getattr(config, "measurements", None)
    rate = (
        round(measurements / config.patch**2, PRINTED_RATE_DIGITS)
        if measurements
        else None
    )
    if config.patch != PATCH_SIDE or rate != setting.rate:
        return False
    if setting.depth not in (None, depth_of(config)):
        return False
    frames = trained_frames(system.model.card)
    # fine-tuned on longer clips, as in Table VII b
    if frames not in (CLIP_LENGTH, setting.clip):
        return False
    initial = {
        name: getattr(config, name, value) for name, value in DUST_VALUES.items()
    }
    if setting.initial not in (None, initial):
        return False
    # a network for every sigma has a range on its card
    sigma = system.model.card.parameters.get("sigma")
    if not sigma:
        return True
    levels = sigma if isinstance(sigma, list) else [sigma]
    return (
        bool(min(levels) <= setting.sigma <= max(levels))
        if setting.sigma
        else not any(levels)
    )


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
                    yield _measure_video(
                        table, part, sequence.name, clean, system, column, show
                    )


def gray_video(
    sequence: FrameSequence, lines: int, most_frames: int = VIDEO_FRAMES
) -> Tensor:
    """Return the first frames in gray, (T, H, W) uint8, downscaled to `lines` lines unless that is 0. Raises
    DatasetError if the frames are smaller than a patch.
    """
    # few frames in gray, as small as the paper has them
    frames = stacked(
        map(grey, islice(clean_frames(sequence), most_frames)), sequence.name
    )
    video = downscaled(frames, lines) if lines else frames
    if min(video.shape[1:]) < PATCH_SIDE:
        raise DatasetError(
            f"{sequence.clean_folder}: frames of {video.shape[2]}x{video.shape[1]} are smaller than "
            f"a patch of {PATCH_SIDE}x{PATCH_SIDE}"
        )
    return video


def downscaled(frames: Tensor, lines: int) -> Tensor:
    """Downscale by area means: (T, H, W) uint8 -> (T, lines, floor(W * lines / H)) uint8."""
    height, width = frames.shape[1:]
    down = area_matrix(height, lines)
    right = area_matrix(width, width * lines // height)
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
    """Return the metrics of a system on a clip (T, H, W) as a column of the table sets it."""
    # the noise follows from the names, so that every system sees the same
    setting = setting_of(table, column)
    seed = seed_of(part.name, clip, f"sigma {setting.sigma:g}")
    noisy = clean
    if setting.sigma and setting.rate is None:
        noisy = add_gaussian_noise(clean, setting.sigma, seed, clip_and_round=False)
    if system.name == GIVEN:
        restored = noisy
    else:
        measured_seed = seed if setting.sigma and setting.rate is not None else None
        work = restorer(system.network, setting.sigma, measured_seed)
        patch = system.network.config.patch
        restored = restored_video(
            work, noisy, patch, setting.stride, setting.clip, system.device
        )
    restored = restored.clamp(0, 255)
    pairs = list(zip(restored, clean, strict=True))
    frames = {
        "psnr": tuple(psnr(*pair) for pair in pairs),
        "ssim": tuple(ssim(*pair) for pair in pairs),
    }
    comparison = gray_comparison(noisy, restored, clean) if show else None
    return ClipMetrics(
        system.name, part.name, column, clip, frames, system.weights, comparison
    )


def restorer(
    network: Any, sigma: float, seed: int | None
) -> Callable[[Tensor], Tensor]:
    """Return the function that recovers groups of patches (B, T, N) on the 0-255 scale; with a seed, noise of
    `sigma` is added to the measurements.
    """
    # the network's parts for this sigma, made once
    work = network.at(sigma, torch.float32, PackedLinear)
    generator = None if seed is None else torch.Generator().manual_seed(seed)

    def recovered(groups: Tensor) -> Tensor:
        measured = network.measure(groups)
        if generator is not None:
            measured = add_gaussian_noise(
                measured, sigma, generator, clip_and_round=False
            )
        restored: Tensor = work(measured)
        return restored

    return recovered


@torch.no_grad()
def restored_video(
    work: Callable[[Tensor], Tensor],
    video: Tensor,
    patch: int,
    stride: int,
    length: int,
    device: str,
) -> Tensor:
    """Restore a video (T, H, W) on the 0-255 scale clip by clip."""
    # each clip of the paper by itself; the last one shares frames with the one before
    restored = torch.empty_like(video)
    for first, start, stop in recovery_clips(len(video), length):
        clip = video[first:stop].to(device)
        height, width = clip.shape[1:]
        positions = fixed_positions(
            len(clip), Grid(height, width, patch, stride), clip.device
        )
        origins = origins_of(positions, height, width)
        restored[start:stop] = restore_patches(clip, origins, patch, work)[
            start - first :
        ].cpu()
    return restored


def gray_comparison(source: Tensor, restored: Tensor, clean: Tensor) -> Comparison:
    """Return the middle frame of videos (T, H, W) on the 0-255 scale."""
    middle = len(clean) // 2
    pictures = []
    for video in (source, restored, clean):
        picture = video[middle].round().clamp(0, 255).to(torch.uint8)
        pictures.append(picture[..., None].expand(-1, -1, 3).numpy())
    return Comparison(middle, *pictures)


PATCH_PROTOCOL = (
    "gray frames (BT.601, 8 bits), the first 200 of each video; Avenue and ShanghaiTech at 160 lines (area "
    "means)",
    f"patches of {PATCH_SIDE}x{PATCH_SIDE}, {{stride}} pixels apart, the last ones flush with the border; "
    "each pixel is the mean of its patches",
    "clips of {clip} frames side by side, the last one reaching back to full length",
    "PSNR and SSIM (Gaussian window, 255 to black) of each frame, output clamped and not rounded, mean over "
    "all frames of the set",
)
