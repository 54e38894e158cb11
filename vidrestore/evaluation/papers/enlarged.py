"""The protocol of VSR-Transformer's release: x4 from frames made small bicubically, judged in 8 bits, border
frames and all.

Frames are cut at the right and bottom to multiples of 4. Small frames are the release's own (REDS) or made
here as MATLAB's imresize does, in 8 bits. A window never leaves its clip: beyond the ends frames come from
the window's other side. Output is clamped and rounded to 8 bits; PSNR and SSIM are of R, G, B, or of
BasicSR's Y (BT.601, in the range of video, not rounded), without cutting the border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from vidrestore.datasets import FrameSequence
from vidrestore.degrade import imresize
from vidrestore.errors import DatasetError
from vidrestore.evaluation.contestants import BICUBIC, Contestant
from vidrestore.evaluation.figures import luma_figures, rgb_figures, rows_last
from vidrestore.evaluation.further_metrics import FurtherMetrics
from vidrestore.evaluation.papers.published import Table, TableSet
from vidrestore.evaluation.results import ClipFigures, Shown
from vidrestore.evaluation.sequence_frames import clean_frames, eight_bits, picture_frames, stacked
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.options import RestoreOptions
from vidrestore.restorers.vsr_restorer import VsrRestorer

CHANNELS = {"RGB": rgb_figures, "Y": luma_figures}
HELD = 16  # enlarged frames at once

# a clip and the numbers of frames of it to those frames enlarged
Enlarger = Callable[[Tensor, tuple[int, ...]], Iterator[Tensor]]


def judge(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    taking: Sequence[Contestant],
    looked_at: int,
    metrics: Sequence[str] = (),
    judged: tuple[int, ...] = (),
) -> Iterator[ClipFigures]:
    """Yield the figures of every system and channel on every clip; `judged` are the frames that count, all of
    them unless given.

    `metrics` are measured besides PSNR and SSIM, the same for each channel.
    """
    enlargers = [enlarger(contestant) for contestant in taking]
    for number, sequence in enumerate(sequences):
        clean = stacked(map(cut, clean_frames(sequence)), sequence.name)
        small = small_frames(sequence, clean, bool(table.settings.get("made")))
        at = judged or tuple(range(len(clean)))
        for contestant, enlarge in zip(taking, enlargers, strict=True):
            further = FurtherMetrics(metrics, clean.shape)
            yield from _judged(
                table, part, sequence.name, small, clean, at, contestant, enlarge, further, number < looked_at
            )


def cut(frame: Tensor) -> Tensor:
    """(3, H, W) without the last rows and columns beyond a multiple of 4."""
    return frame[:, : frame.shape[1] // SCALE * SCALE, : frame.shape[2] // SCALE * SCALE]


def small_frames(sequence: FrameSequence, clean: Tensor, made: bool) -> Tensor:
    """(T, 3, h, w) uint8: the release's own small frames where there are some and they are not to be `made`.

    Raises DatasetError if the release's are not a quarter of the clean ones.
    """
    if made or not sequence.degraded:
        return torch.stack([eight_bits(imresize(frame.double() / 255, 1 / SCALE)) for frame in clean])
    small = stacked(picture_frames(sequence.degraded), sequence.name)
    if (*small.shape[-2:],) != tuple(side // SCALE for side in clean.shape[-2:]):
        raise DatasetError(
            f"{sequence.degraded_folder}: frames of {small.shape[-1]}x{small.shape[-2]}, but a quarter of "
            "the clean ones is "
            f"{clean.shape[-1] // SCALE}x{clean.shape[-2] // SCALE}; unpack the release again"
        )
    return small


def _judged(
    table: Table,
    part: TableSet,
    clip: str,
    small: Tensor,
    clean: Tensor,
    at: tuple[int, ...],
    contestant: Contestant,
    enlarge: Enlarger,
    further: FurtherMetrics,
    looked_at: bool,
) -> Iterator[ClipFigures]:
    channels: list[str] = table.settings["channels"]
    figures: dict[str, list[dict[str, float]]] = {channel: [] for channel in channels}
    middle, shown = at[len(at) // 2], None
    with further:
        for index, large in zip(at, enlarge(small, at), strict=True):
            for channel in channels:
                figures[channel].append(CHANNELS[channel](large, clean[index]))
            further.add(large, clean[index])
            if looked_at and index == middle:
                pictures = (bicubic(small[index]), large, clean[index])
                shown = Shown(index, *(rows_last(picture) for picture in pictures))
        more = further.frames()
    for channel, values in figures.items():
        frames = {metric: tuple(value[metric] for value in values) for metric in values[0]} | more
        yield ClipFigures(contestant.system, part.name, channel, clip, frames, contestant.weights, shown)


def enlarger(contestant: Contestant) -> Enlarger:
    """How a system makes frames of a clip (T, 3, h, w) uint8 four times larger: each (3, 4h, 4w) uint8."""
    if contestant.system == BICUBIC:
        return lambda small, at: (bicubic(small[index]) for index in at)
    assert contestant.model is not None
    return partial(
        enlarged,
        VsrRestorer(RestoreOptions(model=contestant.source, device=contestant.device, precision="fp32")),
    )


def enlarged(restorer: VsrRestorer, small: Tensor, at: tuple[int, ...]) -> Iterator[Tensor]:
    """Frames `at` of a clip by a network, as `enlarger` has it."""
    clip = small.float() / 255
    for first in range(at[0], at[-1] + 1, HELD):
        stop = min(first + HELD, at[-1] + 1)
        for index, large in zip(range(first, stop), restorer.frames(clip, (first, stop)), strict=True):
            if index in at:
                yield eight_bits(large)


def bicubic(small: Tensor) -> Tensor:
    """(3, h, w) uint8 -> (3, 4h, 4w) uint8 as MATLAB's imresize gives it."""
    return eight_bits(imresize(small.double() / 255, SCALE))


PROTOCOL = (
    "frames cut to multiples of 4; small frames {small}, 8 bits",
    "windows reflected within the clip; {restored}, output clamped and rounded to 8 bits",
    "PSNR and SSIM of {channels}, no border cut; mean per clip, then over the clips",
)
