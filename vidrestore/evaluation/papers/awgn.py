"""The protocol of the video denoising literature: white Gaussian noise on R, G, B, neither clipped nor
rounded.

At most 85 frames of a sequence, noise new in every frame and drawn once per sequence; output clamped and not
rounded; PSNR of each frame over all samples, mean over the frames, then over the sequences (M. Tassano et
al., "FastDVDnet", CVPR 2020, and its authors' answers).

DUST sees planes: R, G, B go through an opponent transform with orthogonal rows, so that noise stays white and
independent; each plane is scaled to the range 0-255 and its sigma is the length of its row times that of R,
G, B (K. Dabov et al., "Color image denoising via sparse 3D collaborative filtering", ICIP 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from vidrestore.clips import clip_bounds, crossfade, join_clips
from vidrestore.datasets import FrameSequence
from vidrestore.degrade import add_gaussian_noise
from vidrestore.evaluation.contestants import GIVEN, Contestant, seed_of
from vidrestore.evaluation.figures import rows_last
from vidrestore.evaluation.further_metrics import FurtherMetrics
from vidrestore.evaluation.papers.published import Table, TableSet
from vidrestore.evaluation.results import ClipFigures, Shown
from vidrestore.evaluation.sequence_frames import clean_frames, eight_bits, stacked
from vidrestore.metrics import psnr
from vidrestore.models.dust import Dust
from vidrestore.options import RestoreOptions
from vidrestore.restorers.dust_restorer import DenoiseRestorer
from vidrestore.restorers.mb_taylorformer_restorer import ImageRestorer

FRAMES = 85
# rows of R, G, B; each of range 1
OPPONENT = ((1 / 3, 1 / 3, 1 / 3), (1 / 2, 0.0, -1 / 2), (1 / 4, -1 / 2, 1 / 4))
MIDDLE = (0.0, 127.5, 127.5)

# (T, 3, H, W) in [0, 1] and sigma on the 0-255 scale -> frames (3, H, W)
Denoiser = Callable[[Tensor, float], Iterator[Tensor]]


def fits(contestant: Contestant, table: Table, column: str) -> bool:
    """Return True if the network is for a sigma: the planes' are others than that of R, G, B, so one that is
    for a single sigma isn't.
    """
    return contestant.model is None or not isinstance(contestant.network, Dust)


def judge(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    taking: Sequence[Contestant],
    looked_at: int,
    metrics: Sequence[str] = (),
) -> Iterator[ClipFigures]:
    """Yield the figures of every system and sigma on every sequence; the first `looked_at` sequences with a
    frame to see.

    `metrics` are measured besides PSNR.
    """
    denoisers = [denoiser(contestant) for contestant in taking]
    for number, sequence in enumerate(sequences):
        clean = stacked(clean_frames(sequence, FRAMES), sequence.name)
        for column in part.columns:
            sigma = float(column)
            noisy = noisy_video(clean, sigma, seed_of(part.name, sequence.name, column))
            for contestant, denoise in zip(taking, denoisers, strict=True):
                further = FurtherMetrics(metrics, clean.shape)
                frames, shown = _judged(denoise(noisy, sigma), noisy, clean, further, number < looked_at)
                yield ClipFigures(
                    contestant.system, part.name, column, sequence.name, frames, contestant.weights, shown
                )


def noisy_video(clean: Tensor, sigma: float, seed: int) -> Tensor:
    """(T, 3, H, W) uint8 -> the same in noise, on the scale of [0, 1]."""
    return add_gaussian_noise(clean.float(), sigma, seed, clip_and_round=False).div_(255)


def _judged(
    restored: Iterator[Tensor], noisy: Tensor, clean: Tensor, further: FurtherMetrics, looked_at: bool
) -> tuple[dict[str, tuple[float, ...]], Shown | None]:
    values, shown = [], None
    with further:
        for index, frame in enumerate(restored):
            frame = frame.clamp(0, 1)
            values.append(psnr(rows_last(frame), rows_last(clean[index]) / 255, 1.0))
            stored = eight_bits(frame)
            further.add(stored, clean[index])
            if looked_at and index == len(clean) // 2:
                shown = Shown(
                    index,
                    *(rows_last(picture) for picture in (eight_bits(noisy[index]), stored, clean[index])),
                )
        return {"psnr": tuple(values)} | further.frames(), shown


def denoiser(contestant: Contestant) -> Denoiser:
    """Yield the frames of a noisy video restored by a system."""
    if contestant.system == GIVEN:
        return lambda noisy, sigma: iter(noisy)
    options = RestoreOptions(
        model=contestant.source, device=contestant.device, precision="fp32", quality=contestant.quality
    )
    assert contestant.model is not None
    if contestant.model.card.family == "mb-taylorformer":
        pictures = ImageRestorer("denoise", options)
        return lambda noisy, sigma: pictures.frames(noisy, (0, len(noisy)))
    planes = DenoiseRestorer(options)
    return lambda noisy, sigma: through_planes(planes, noisy, sigma)


def through_planes(restorer: DenoiseRestorer, noisy: Tensor, sigma: float) -> Iterator[Tensor]:
    """Frames of a video (T, 3, H, W) in [0, 1], restored as planes of the opponent transform."""
    opponent = torch.tensor(OPPONENT)
    middle = torch.tensor(MIDDLE)[:, None, None]
    planes = torch.einsum("pc,tchw->tphw", opponent, noisy * 255) + middle
    sigmas = tuple(sigma * length for length in opponent.norm(dim=1).tolist())

    def clips() -> Iterator[tuple[tuple[int, int], list[tuple[Tensor, ...]]]]:
        for bounds in clip_bounds(len(noisy), [], restorer.facts.clip, restorer.facts.overlap):
            restored = restorer.restore(planes[slice(*bounds)].unbind(1), sigmas)
            yield bounds, list(zip(*restored, strict=True))

    back = torch.linalg.inv(opponent.double()).float()
    for frame in join_clips(clips(), crossfade):
        yield torch.einsum("cp,phw->chw", back, torch.stack(frame) - middle) / 255


PROTOCOL = (
    "the first 85 frames; noise on R, G, B, neither clipped nor rounded, drawn once per sequence from a "
    "seed of its name",
    "DUST on planes of an opponent transform with orthogonal rows, each with its own sigma",
    "output clamped and not rounded; PSNR of each frame over R, G, B, mean over frames, then over sequences",
)
