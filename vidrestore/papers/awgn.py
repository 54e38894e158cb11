"""The protocol of the video denoising literature: white Gaussian noise on R, G, B, neither clipped nor
rounded.

At most 85 frames of a sequence; each frame has its own noise, drawn once per sequence. Output is clamped and
not rounded. PSNR of each frame over all samples, mean over the frames, then over the sequences (M. Tassano et
al., "FastDVDnet", CVPR 2020, and its authors' answers).

DUST works on luma and colour differences (`vidrestore.colour.rgb_to_opponent`); the sigma of each is the norm
of its row times the sigma of R, G, B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vidrestore.clips import clip_bounds, crossfade, join_clips
from vidrestore.colour import OPPONENT_NORMS, opponent_to_rgb, rgb_to_opponent
from vidrestore.degrade import add_gaussian_noise
from vidrestore.evaluation.reference import FurtherMetrics
from vidrestore.evaluation.results import GIVEN, ClipMetrics, Comparison, System
from vidrestore.evaluation.sequence_frames import channels_last, eight_bits
from vidrestore.metrics import psnr
from vidrestore.models.dust import Dust
from vidrestore.options import RestoreOptions
from vidrestore.papers.set_files import FrameSequence, clean_frames, stacked
from vidrestore.papers.tables import Table, TableSet, seed_of
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.restorers.picture_restorer import PictureRestorer

FRAMES = 85
GIVEN_SIGMA = 20.0  # any: the restorer only has to know that noise is given and not measured
# (T, 3, H, W) in [0, 1] and sigma on the 0-255 scale -> frames (3, H, W)
Denoiser = Callable[[Tensor, float], Iterator[Tensor]]


def fits(system: System, table: Table, column: str) -> bool:
    """Return True if the network takes any sigma; the planes' sigmas differ from that of R, G, B."""
    return system.model is None or not isinstance(system.network, Dust)


def measure(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    systems: Sequence[System],
    shown_count: int,
    metrics: Sequence[str] = (),
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system and sigma on every sequence, with a frame to show of the first
    `shown_count`.

    `metrics` are measured in addition to PSNR.
    """
    denoisers = [denoiser(system) for system in systems]
    for number, sequence in enumerate(sequences):
        clean = stacked(clean_frames(sequence, FRAMES), sequence.name)
        for column in part.columns:
            sigma = float(column)
            noisy = noisy_video(clean, sigma, seed_of(part.name, sequence.name, column))
            for system, denoise in zip(systems, denoisers, strict=True):
                further = FurtherMetrics(metrics, clean.shape)
                frames, comparison = _measure_frames(
                    denoise(noisy, sigma), noisy, clean, further, number < shown_count
                )
                yield ClipMetrics(
                    system.name, part.name, column, sequence.name, frames, system.weights, comparison
                )


def noisy_video(clean: Tensor, sigma: float, seed: int) -> Tensor:
    """Add white Gaussian noise to a (T, 3, H, W) uint8 video; return it as floats on the scale of [0, 1]."""
    return add_gaussian_noise(clean.float(), sigma, seed, clip_and_round=False).div_(255)


def _measure_frames(
    restored: Iterator[Tensor], noisy: Tensor, clean: Tensor, further: FurtherMetrics, show: bool
) -> tuple[dict[str, tuple[float, ...]], Comparison | None]:
    values, comparison = [], None
    with further:
        for index, frame in enumerate(restored):
            frame = frame.clamp(0, 1)
            values.append(psnr(channels_last(frame), channels_last(clean[index]) / 255, 1.0))
            stored = eight_bits(frame)
            further.add(stored, clean[index])

            if show and index == len(clean) // 2:
                comparison = Comparison(
                    index,
                    *(channels_last(picture) for picture in (eight_bits(noisy[index]), stored, clean[index])),
                )
        return {"psnr": tuple(values)} | further.frames(), comparison


def denoiser(system: System) -> Denoiser:
    """Return a function that yields the frames of a noisy video as a system restores them."""
    if system.name == GIVEN:
        return lambda noisy, sigma: iter(noisy)
    options = RestoreOptions(
        model=system.source, device=system.device, precision="fp32", quality=system.quality
    )
    assert system.model is not None
    if system.model.card.family == "mb-taylorformer":
        restorer = PictureRestorer("denoise", options)
        return lambda noisy, sigma: restorer.frames(noisy, (0, len(noisy)))
    planes = DenoiseRestorer(replace(options, sigma=GIVEN_SIGMA))
    return lambda noisy, sigma: denoise_by_planes(planes, noisy, sigma)


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


PROTOCOL = (
    "the first 85 frames; noise on R, G, B, neither clipped nor rounded, drawn once per sequence from a "
    "seed of its name",
    "DUST on planes of an opponent transform with orthogonal rows, each with its own sigma",
    "output clamped and not rounded; PSNR of each frame over R, G, B, mean over frames, then over sequences",
)
