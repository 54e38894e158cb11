"""Draw pairs to train image networks on: clean RGB crops of clips and photos, and degraded copies.

Degradations are mixed as in real video: sometimes two at once, often compressed afterwards by a real encoder,
sometimes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vidrestore.errors import ConfigError
from vidrestore.lab.degrade import (
    BATCHED,
    DEGRADATIONS,
    add_moving_objects,
    average_exposures,
    motion,
)
from vidrestore.lab.degrade.counters import Counters, constants
from vidrestore.lab.degrade.haze import random_scattering
from vidrestore.lab.degrade.per_sample import degraded, of_sample, one_by_one
from vidrestore.lab.run_config import TASK_OF, PairDataConfig
from vidrestore.lab.training.data.batches import WHOLE_BATCH, Share
from vidrestore.lab.training.data.footage import Footage, PlaneSource
from vidrestore.lab.training.data.planes import Camera
from vidrestore.lab.training_events import Metrics
from vidrestore.media.writing.recompress import recompress, recompress_pictures
from vidrestore.pixels.colour import (
    grey_to_planes,
    planes_to_grey,
    rgb_to_yuv,
    yuv_to_rgb,
)
from vidrestore.pixels.frames import ColourTags, PixelFormat

EXPOSURES = (3, 5, 7)  # frames that are averaged to one blurred frame
# share of blurred crops that are such averages; the others are blurred along a random path
MEAN_SHARE = 0.25
# Largest motion between frames, in pixels, for which averages show no ghosts; clips that move faster are
# blurred along a path.
MOST_MOTION = 2.0
# share of crops of photos that slide over the photo's own pixels; the others pan
NATIVE = 0.5


@dataclass(frozen=True)
class HeldOutPairs:
    """Crops for validation, uint8, by degradation."""

    # (N, 3, S, S), or (N, frames, 3, S, S) if the network takes several frames
    degraded: dict[str, Tensor]
    clean: dict[str, Tensor]  # (N, 3, S, S)
    # indices of the tasks, if the network has some
    tasks: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class HeldOutPictures:
    """Whole pictures of test sets, read when they are measured, each by one of the training's processes.

    counts: number of pictures by test set.
    read: (test set, index) -> a degraded and a clean picture, (3, H, W) uint8 each.
    psnr: (restored picture in [0, 1], clean one in uint8) -> PSNR (dB) as the papers' tables have it.
    """

    counts: dict[str, int]
    read: Callable[[str, int], tuple[Tensor, Tensor]]
    psnr: Callable[[Tensor, Tensor], float]

    @property
    def first(self) -> HeldOutPictures:
        """The first picture of each test set."""
        return replace(self, counts=dict.fromkeys(self.counts, 1))

    def sums(
        self, restored: Callable[[Tensor], Tensor], share: Share = WHOLE_BATCH
    ) -> Tensor:
        """Return (test sets, 2, 2) float64: sum and number of the finite PSNRs of a share of the pictures,
        after `restored` and before. Infinite ones, of equal pictures, are left out as in the papers' tables.
        """
        # the pictures of this process, which are every so many of all
        pictures = [
            (name, index)
            for name, count in self.counts.items()
            for index in range(count)
        ]
        rows = {name: row for row, name in enumerate(self.counts)}
        sums = torch.zeros(len(rows), 2, 2, dtype=torch.float64)
        for name, index in pictures[share.rank :: share.count]:
            degraded, clean = self.read(name, index)
            given = degraded.float() / 255
            for column, picture in enumerate((restored(given).clamp(0, 1), given)):
                psnr = self.psnr(picture, clean)
                if math.isfinite(psnr):
                    sums[rows[name], column] += torch.tensor([psnr, 1.0])
        return sums

    def means(self, sums: Tensor) -> tuple[Metrics, Metrics]:
        """Return the mean PSNR of each test set after and before, from `sums` (sets, 2, 2) of all shares."""
        after: Metrics = {}
        before: Metrics = {}
        for row, name in enumerate(self.counts):
            after[name], before[name] = (
                _mean(*column.tolist()) for column in sums[row]
            )
        return after, before


def _mean(total: float, count: float) -> float:
    return total / count if count else math.inf


class PairSource(PlaneSource):
    """Batches of pairs, for a network with these `tasks`, or of haze, for one that `finds_haze`. Raises
    ConfigError for a degradation whose task is missing.
    """

    def __init__(
        self,
        footage: Footage,
        config: PairDataConfig,
        seed: int,
        tasks: Sequence[str] = (),
        *,
        finds_haze: bool = False,
    ) -> None:
        camera = Camera(config.crop, config.frames, NATIVE, config.fast, config.widest)
        super().__init__(footage, seed, camera)
        self.config = config
        self.finds_haze = finds_haze
        self.tasks = task_indices(config, tasks)

    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Tensor, ...]:
        """Return degraded and clean crops, float32 in [0, 1], each with a random degradation.

        Both are (size, 3, S, S). With several frames the degraded ones are (size, frames, 3, S, S) and the
        clean ones their middle frames. If the network has tasks, their indices (size,) come third: the task
        of a crop is that of the degradation drawn, even if the crop is then left clean. With haze to find,
        the clean ones have four more channels: the optical depth of green, and the airlight's R, G and B in
        linear light.
        """
        config = self.config
        samples = range(size)[share.of(size)]
        clean = self._windows(step, size, samples, config.frames)
        draws = self.counters(step, samples, 1)
        # the degradation of each crop, and those that stay clean
        primary = draws.integers(0, len(config.degradations))
        untouched = draws.chance(config.untouched)
        recompressed = draws.chance(config.recompressed)
        # a network that finds haze needs its parameters
        if self.finds_haze:
            inputs, depth, airlight = random_scattering(clean, draws)
            inputs = torch.where(of_sample(untouched), clean, inputs)
            depth = torch.where(of_sample(untouched), 0.0, depth)[:, 0]
            truth = (quantised(clean)[:, 0], depth, airlight.expand_as(clean[:, 0]))
            inputs = self._compressed(inputs, recompressed, draws)
            return quantised(inputs)[:, 0], torch.cat(truth, 1)
        if config.distracted:
            object_draws = draws.branch()
            mask = draws.chance(config.distracted)
            clean = degraded(clean, mask, one_by_one(add_moving_objects), object_draws)
        # blur as the mean of frames, where a clip moves slowly
        averages = {}
        if "blur" in config.degradations:
            blurred = (primary == config.degradations.index("blur")) & ~untouched
            lengths = torch.where(
                blurred & draws.chance(MEAN_SHARE),
                draws.integers(0, len(EXPOSURES)),
                -1,
            )
            averages = self._averages(step, size, samples, lengths.tolist())
            clean = torch.stack(
                [averages.get(row, (clip,))[0] for row, clip in enumerate(clean)]
            )
        inputs = self._degraded(clean, primary, untouched, draws, averages)
        inputs = quantised(self._compressed(inputs, recompressed & ~untouched, draws))
        # some clips repeat their middle frame, as those of photos do
        middle = config.frames // 2
        if config.alone:
            stills = of_sample(draws.chance(config.alone))
            inputs = torch.where(stills, inputs[:, middle : middle + 1], inputs)
        # the index of each crop's task
        tasks = []
        if self.tasks:
            numbers = tuple(float(self.tasks[name]) for name in config.degradations)
            tasks = [constants(numbers)[primary].long()]
        clean = quantised(clean[:, middle])
        return inputs if config.frames > 1 else inputs[:, 0], clean, *tasks

    def _windows(self, step: int, size: int, samples: range, frames: int) -> Tensor:
        """Return the clean clips (B, frames, 3, S, S) of some samples of a batch."""
        return self.crops(step, size, samples, frames).clamp(0, 1)

    def _averages(
        self, step: int, size: int, samples: range, lengths: Sequence[int]
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """Return sharp clips and averages of as many frames as the exposure drawn has, if any is, by row, for
        those that move slowly. They have no bright moving things.
        """
        averages = {}
        # a long clip of the same crop, of which the exposure takes parts
        for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
            if length >= 0:
                exposure = EXPOSURES[length]
                part = range(sample, sample + 1)
                clip = self._windows(step, size, part, self.config.frames * exposure)[0]
                if motion(clip) < MOST_MOTION:
                    averages[row] = (
                        clip[exposure // 2 :: exposure],
                        average_exposures(clip, exposure),
                    )
        return averages

    def _degraded(
        self,
        clips: Tensor,
        primary: Tensor,
        untouched: Tensor,
        draws: Counters,
        averages: dict[int, tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Return clips (B, T, 3, S, S), each with its degradation, some with a second; `averages` are
        blurred.
        """
        # one degradation, some with a second one
        names = self.config.degradations
        order = list(BATCHED)
        second = torch.full_like(primary, -1)
        if self.config.combined:
            # a row of six for each degradation, in which its 1, 2 or 3 second ones are equally often
            table: list[float] = []
            for first in names:
                seconds = [order.index(name) for name in SECOND.get(first, ())] or [-1]
                table += [float(seconds[number % len(seconds)]) for number in range(6)]
            candidates = constants(tuple(table))[
                6 * primary + draws.integers(0, 6)
            ].long()
            second = torch.where(draws.chance(self.config.combined), candidates, second)
        for name in occurring(self.config):
            mask = second == order.index(name)
            if name in names:
                mask = mask | (primary == names.index(name))
            if name == "blur" and averages:
                mask[list(averages)] = False
                clips = torch.stack(
                    [averages.get(row, (clip,))[-1] for row, clip in enumerate(clips)]
                )
            clips = degraded(clips, mask & ~untouched, BATCHED[name], draws.branch())
        return clips

    def _compressed(self, clips: Tensor, mask: Tensor, draws: Counters) -> Tensor:
        return degraded(clips, mask, one_by_one(random_compression), draws.branch())


def occurring(config: PairDataConfig) -> list[str]:
    """Return the degradations that may occur, also as second ones, in physical order."""
    names = set(config.degradations)
    if config.combined:
        names |= {
            second for first in config.degradations for second in SECOND.get(first, ())
        }
    return [name for name in BATCHED if name in names]


def task_indices(config: PairDataConfig, tasks: Sequence[str]) -> dict[str, int]:
    """Return the index among `tasks` of the task of each degradation; empty if there are no tasks.

    Raises ConfigError for a degradation whose task is missing.
    """
    # each degradation belongs to the task that removes it
    if not tasks:
        return {}
    if missing := [
        TASK_OF[name] for name in config.degradations if TASK_OF[name] not in tasks
    ]:
        raise ConfigError(
            f"[model] tasks lacks {', '.join(missing)}, for data.degradations; change one of them"
        )
    return {name: tasks.index(TASK_OF[name]) for name in config.degradations}


def held_out_pair(
    footage: Footage,
    name: str,
    config: PairDataConfig,
    side: int,
    rng: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """Return a degraded and a clean crop (3, side, side), in [0, 1], both rounded to 8 bits; with several
    frames a clip (frames, 3, side, side) and its middle. They are turned first, so that rain falls downwards.
    """
    # the draws are those of the cards, whatever is needed of them
    exposure = (
        int(rng.choice(EXPOSURES))
        if name == "blur" and rng.random() < MEAN_SHARE
        else 1
    )
    clip = turned(
        footage.rgb_crop(rng, side, config.frames * exposure, config.widest), rng
    )
    clean = clip[exposure // 2 :: exposure]
    rng.random(3)  # unused, but held-out crops must stay those of the cards
    averaged = exposure > 1 and motion(clip) < MOST_MOTION
    inputs = (
        average_exposures(clip, exposure)
        if averaged
        else DEGRADATIONS[name](clean, rng)
    )
    return quantised(inputs if config.frames > 1 else inputs[0]), quantised(
        clean[config.frames // 2]
    )


def held_out_pairs(
    footage: Footage,
    config: PairDataConfig,
    side: int,
    count: int,
    tasks: Sequence[str] = (),
) -> HeldOutPairs:
    """Return `count` pairs of every degradation, the same for every run of a configuration."""
    inputs, clean = {}, {}
    for name in config.degradations:
        draws = (np.random.default_rng((1, number)) for number in range(count))
        pairs = [held_out_pair(footage, name, config, side, rng) for rng in draws]
        inputs[name], clean[name] = map(stacked_bytes, zip(*pairs, strict=True))
    return HeldOutPairs(inputs, clean, task_indices(config, tasks))


def stacked_bytes(pictures: tuple[Tensor, ...]) -> Tensor:
    """Stack pictures in [0, 1] as uint8."""
    return torch.stack(pictures).mul(255).round().to(torch.uint8)


def turned(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Mirror and transpose square frames (T, 3, S, S) at random: the eight symmetries of a square."""
    mirrored = clip.flip([axis for axis in (2, 3) if rng.random() < 0.5])
    return mirrored.transpose(2, 3).contiguous() if rng.random() < 0.5 else mirrored


def quantised(picture: Tensor) -> Tensor:
    """Round to 8 bits; the result is still in [0, 1]."""
    return picture.mul(255).round_().div_(255)


SECOND = {  # degradations that may be combined with each
    "haze": ("noise", "rain", "snow"),
    "rain": ("haze", "blur", "noise"),
    "snow": ("haze", "blur", "noise"),
    "blur": ("noise",),
}


# pixel format and colour tags of the encoder's input
ENCODED = (
    PixelFormat("yuv420p", "yuv", 8, 1, 1),
    ColourTags(matrix=6, range=1, chroma_location=1),
)
CRF = (16.0, 36.0)
X264_PRESETS = ("superfast", "veryfast")
# share of compressed clips that are Motion JPEG; the others are H.264
MJPEG_SHARE = 0.25
MJPEG_SCALE = (2, 12)  # the encoder's quantiser scale, 1 (best) to 31


def random_compression(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Encode and decode (T, 3, H, W) in [0, 1], of even sides, at random, in 8 bits."""
    # by one of two real encoders
    if rng.random() < MJPEG_SHARE:
        encode = partial(
            recompress_pictures, scale=int(rng.integers(*MJPEG_SCALE, endpoint=True))
        )
    else:
        crf = rng.uniform(*CRF)
        encode = partial(
            recompress, crf=crf, preset=X264_PRESETS[rng.integers(len(X264_PRESETS))]
        )
    # to the encoder's pixels and back
    layout, tags = ENCODED
    height = clip.shape[-2]
    yuv = grey_to_planes(rgb_to_yuv(clip, layout, tags, height), layout)
    frames = encode([tuple(planes) for planes in zip(*yuv, strict=True)])
    planes = planes_to_grey(
        [np.stack(plane) for plane in zip(*frames, strict=True)], layout
    )
    return (
        yuv_to_rgb(planes, layout, tags, height)
        .mul(255)
        .round_()
        .clamp_(0, 255)
        .div_(255)
    )
