"""The protocol of the DUST paper (Section IV): gray frames in patches of 16x16 pixels, clips of 20 frames,
sensed or made noisy.

What the paper leaves open, and what stands here: gray is BT.601's; frames are made smaller by area means, in
8 bits, their width rounded down; overlapping patches (compressed sensing) lie 8 pixels apart; denoising takes
patches side by side; the last row and column of patches end with the frame; each pixel is the mean of its
patches; noise is neither clipped nor rounded, and drawn once per pixel or, after sensing, per measurement;
the last clip of a video reaches back to full length and gives the frames that no other has; output is clamped
to [0, 255] and not rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from vidrestore.datasets import FrameSequence
from vidrestore.degrade import add_gaussian_noise
from vidrestore.errors import DatasetError
from vidrestore.evaluation.contestants import GIVEN, Contestant, seed_of
from vidrestore.evaluation.further_metrics import FurtherMetrics
from vidrestore.evaluation.papers.published import Table, TableSet
from vidrestore.evaluation.results import ClipFigures, Shown
from vidrestore.evaluation.sequence_frames import clean_frames, grey, shrunk, stacked
from vidrestore.metrics import psnr, ssim
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.grouping import origins_of, restore_patches
from vidrestore.models.matching import Grid, fixed_places

FRAMES = 200  # of a video, at most
CLIP = 20
PATCH = 16
RATE_DIGITS = 1  # "0.2" is 51 / 256


@dataclass(frozen=True)
class Setting:
    """One column of a table: noise of standard deviation `sigma` on what the network is given, clips of
    `clip` frames.
    """

    sigma: float = 0.0
    clip: int = CLIP


def setting_of(table: Table, column: str) -> Setting:
    if table.column == "sigma":
        return Setting(sigma=float(column))
    return Setting(clip=int(column)) if table.column == "clip length" else Setting()


def fits(contestant: Contestant, table: Table, column: str) -> bool:
    """Return True if the weights are for a column: by their patches and rate and, where the card tells it,
    their noise (or that there is none).
    """
    if contestant.system == GIVEN:
        return True
    assert contestant.model is not None
    if contestant.network.config.patch != PATCH:
        return False
    card, measurements = contestant.model.card, getattr(contestant.network.config, "measurements", None)
    rate = measurements / contestant.network.config.patch**2 if measurements else None
    wanted = float(column) if table.column == "CS rate" else table.settings.get("rate")
    if (rate is None) != (wanted is None) or (rate is not None and round(rate, RATE_DIGITS) != wanted):
        return False
    trained = card.parameters.get("sigma")
    if not trained:
        return True
    levels = trained if isinstance(trained, list) else [trained]
    return bool(min(levels) <= float(column) <= max(levels)) if table.column == "sigma" else not any(levels)


def judge(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    taking: Sequence[Contestant],
    looked_at: int,
    metrics: Sequence[str] = (),
) -> Iterator[ClipFigures]:
    """Yield the figures of every system and column on every video; the first `looked_at` videos with a frame
    to see.

    `metrics` are measured besides PSNR and SSIM.
    """
    for number, sequence in enumerate(sequences):
        clean = gray_video(sequence, part.lines).float()
        for contestant in taking:
            for column in part.columns:
                if fits(contestant, table, column):
                    further = FurtherMetrics(metrics, clean.shape)
                    yield _judged(
                        table, part, sequence.name, clean, contestant, column, further, number < looked_at
                    )


def gray_video(sequence: FrameSequence, lines: int) -> Tensor:
    """(T, H, W) uint8: the first 200 frames in gray, at `lines` lines unless that is 0. DatasetError where
    they hold no patch.
    """
    frames = stacked(map(grey, islice(clean_frames(sequence), FRAMES)), sequence.name)
    made = shrunk(frames, lines) if lines else frames
    if min(made.shape[1:]) < PATCH:
        raise DatasetError(
            f"{sequence.clean_folder}: frames of {made.shape[2]}x{made.shape[1]} hold no patch of "
            f"{PATCH}x{PATCH}"
        )
    return made


def _judged(
    table: Table,
    part: TableSet,
    clip: str,
    clean: Tensor,
    contestant: Contestant,
    column: str,
    further: FurtherMetrics,
    looked_at: bool,
) -> ClipFigures:
    setting = setting_of(table, column)
    seed = seed_of(part.name, clip, f"sigma {setting.sigma:g}")
    noisy = (
        add_gaussian_noise(clean, setting.sigma, seed, clip_and_round=False)
        if setting.sigma and "rate" not in table.settings
        else clean
    )
    if contestant.system == GIVEN:
        restored = noisy
    else:
        work = restorer(contestant.network, setting.sigma, seed if "rate" in table.settings else None)
        restored = restored_video(
            work,
            noisy,
            contestant.network.config.patch,
            table.settings["stride"],
            setting.clip,
            contestant.device,
        )
    restored = restored.clamp(0, 255)
    pairs = list(zip(restored, clean, strict=True))
    frames = {"psnr": tuple(psnr(*pair) for pair in pairs), "ssim": tuple(ssim(*pair) for pair in pairs)}
    with further:
        for one, other in pairs:
            further.add(one.round().to(torch.uint8)[None], other.to(torch.uint8)[None])
        frames |= further.frames()
    shown = shown_gray(noisy, restored, clean) if looked_at else None
    return ClipFigures(contestant.system, part.name, column, clip, frames, contestant.weights, shown)


def restorer(network: Any, sigma: float, seed: int | None) -> Callable[[Tensor], Tensor]:
    """Groups of patches (B, T, N) on the 0-255 scale -> recovered ones; with a seed, noise of `sigma` is on
    the measurements.
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
    """A video (T, H, W) on the 0-255 scale, clip by clip."""
    restored = torch.empty_like(video)
    for first, stop, fresh in clip_spans(len(video), length):
        clip = video[first:stop].to(device)
        height, width = clip.shape[1:]
        origins = origins_of(
            fixed_places(len(clip), Grid(height, width, patch, stride), clip.device), height, width
        )
        restored[fresh:stop] = restore_patches(clip, origins, patch, work)[fresh - first :].cpu()
    return restored


def clip_spans(count: int, length: int) -> Iterator[tuple[int, int, int]]:
    """(first, stop, first that no earlier clip has) of clips side by side; the last one reaches back, a short
    video is one clip.
    """
    for fresh in range(0, count, length):
        stop = min(fresh + length, count)
        yield max(0, stop - length), stop, fresh


def shown_gray(given: Tensor, restored: Tensor, clean: Tensor) -> Shown:
    """The middle frame of videos (T, H, W)."""
    at = len(clean) // 2
    stored = [
        video[at].round().clamp(0, 255).to(torch.uint8)[..., None].expand(-1, -1, 3).numpy()
        for video in (given, restored, clean)
    ]
    return Shown(at, *stored)


PROTOCOL = (
    "gray frames (BT.601, 8 bits), the first 200 of each video; Avenue and ShanghaiTech at 160 lines (area "
    "means)",
    f"patches of {PATCH}x{PATCH}, {{stride}} pixels apart, the last ones flush with the border; each pixel "
    "is the mean of its patches",
    "clips of {clip} frames side by side, the last one reaching back to full length",
    "PSNR and SSIM (Gaussian window, 255 to black) of each frame, output clamped and not rounded, mean over "
    "all frames of the set",
)
