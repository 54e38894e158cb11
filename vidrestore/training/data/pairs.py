"""Pairs to train image networks on: clean RGB crops of clips and photos, and degraded copies.

Degradations are mixed as in real video: sometimes two at once, often compressed afterwards by a real encoder,
sometimes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vidrestore.colour import grey_to_planes, planes_to_grey, rgb_to_yuv, yuv_to_rgb
from vidrestore.degrade import BATCHED, DEGRADATIONS, average_exposures, motion, with_moving_things
from vidrestore.degrade.branches import Rows, changed, counters, of_sample
from vidrestore.degrade.coding import random_coding
from vidrestore.degrade.counters import Counters, constants
from vidrestore.degrade.haze import random_scattering
from vidrestore.errors import ConfigError
from vidrestore.frames import ColourTags, PixelFormat
from vidrestore.media.recompress import recompress, recompress_pictures
from vidrestore.training.config import TASK_OF, PairDataConfig
from vidrestore.training.data.batches import WHOLE, Share, Source
from vidrestore.training.data.footage import STILL_PIXELS_SHARE, Footage
from vidrestore.training.data.resident import ResidentSource, Shot

EXPOSURES = (3, 5, 7)  # frames that are averaged to one blurred frame
MEAN_SHARE = 0.25  # of blurred crops that are such averages; the others are blurred along a random path
# Largest motion between frames, in pixels, for which averages show no ghosts; clips that move faster are
# blurred along a path.
MOST_MOTION = 2.0


@dataclass(frozen=True)
class Shares:
    """Shares in [0, 1]: samples left clean; of the others, those degraded twice, and those compressed
    afterwards. Samples with fast motion, single frames among the others, samples with bright moving things.
    """

    untouched: float = 0.0
    combined: float = 0.0
    recompressed: float = 0.0
    fast: float = 0.0
    alone: float = 0.0
    distracted: float = 0.0


NO_SHARES = Shares()


@dataclass(frozen=True)
class HeldOutPairs:
    """Crops for validation, uint8 (N, 3, S, S) each, by degradation.

    Degraded crops are (N, frames, 3, S, S) if the network takes several frames. `tasks` maps each degradation
    to the index of its task if the network has tasks.
    """

    degraded: dict[str, Tensor]
    clean: dict[str, Tensor]
    tasks: dict[str, int] = field(default_factory=dict)


class PairSource(Source):
    """Batches of pairs, for a network with these `tasks`, or of haze, for one that `finds_haze`."""

    def __init__(
        self,
        footage: Footage,
        config: PairDataConfig,
        seed: int,
        tasks: Sequence[str] = (),
        *,
        finds_haze: bool = False,
    ) -> None:
        self.footage, self.config, self.seed = footage, config, seed
        self.tasks, self.finds_haze = task_indices(config, tasks), finds_haze

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, ...]:
        """Return degraded and clean crops, float32 in [0, 1], each with a random degradation.

        Both are (size, 3, S, S). With several frames the degraded ones are (size, frames, 3, S, S) and the
        clean ones their middle frames. If the network has tasks, their indices (size,) come third: the task
        of a crop is that of the degradation drawn, even if the crop is then left clean. With haze to find,
        the clean ones have four more channels: the optical depth and the airlight, as `hazy_pair` has them.
        """
        pairs = [
            self._pair(np.random.default_rng((self.seed, 0, step, number)))
            for number in range(size)[share.of(size)]
        ]
        names, given, clean = zip(*pairs, strict=True)
        tasks = [torch.tensor([self.tasks[name] for name in names])] if self.tasks else []
        return torch.stack(given), torch.stack(clean), *tasks

    def _pair(self, rng: np.random.Generator) -> tuple[str, Tensor, Tensor]:
        """Return the degradation, and the degraded and the clean crop."""
        name = self.config.degradations[rng.integers(len(self.config.degradations))]
        config = self.config
        if self.finds_haze:
            return name, *hazy_pair(self.footage, config, rng)
        shares = Shares(
            config.untouched,
            config.combined,
            config.recompressed,
            config.fast,
            config.alone,
            config.distracted,
        )
        return name, *random_pair(
            self.footage, name, config.crop, rng, config.widest, shares, frames=config.frames
        )


class ResidentPairs(ResidentSource):
    """The same on the device where the data lie, for degradations of `degrade.BATCHED`.

    Encoders are imitated, blur is that of a camera's path and never an average of frames, and clips run
    backwards, too. Raises ConfigError for what isn't there.
    """

    def __init__(
        self,
        shots: Callable[[], Iterable[Shot]],
        device: torch.device,
        config: PairDataConfig,
        seed: int,
        still_share: float,
        tasks: Sequence[str] = (),
        *,
        finds_haze: bool = False,
    ) -> None:
        super().__init__(shots, device, seed, still_share, config.crop)
        self.config, self.finds_haze = config, finds_haze
        self.tasks = task_indices(config, tasks)
        if missing := [name for name in config.degradations if name not in BATCHED]:
            raise ConfigError(
                f"resident data have no {', '.join(missing)}; set data.resident=false, or leave it out of "
                "data.degradations"
            )
        if config.distracted:
            raise ConfigError("resident data have no distracted crops; set data.distracted=0")
        self.shares = occurring(config)

    def draw(self, step: Tensor, size: int) -> tuple[Tensor, ...]:
        """Return the batch of a step as `PairSource.batch` does."""
        config, parts = self.config, []
        for still, samples in self.parts(size):
            draws = self.counters(step, samples)
            moves = {"fast": config.fast, "widest": config.widest, "native": STILL_PIXELS_SHARE}
            parts.append(self.crops(draws, still, config.frames, **moves))
        clean, draws = torch.cat(parts).clamp(0, 1), self.counters(step, range(size), 1)
        primary = draws.integers(0, len(config.degradations))
        untouched, recompressed = draws.chance(config.untouched), draws.chance(config.recompressed)
        if self.finds_haze:
            given, depth, airlight = random_scattering(clean, draws)
            given = torch.where(of_sample(untouched), clean, given)
            depth = torch.where(of_sample(untouched), 0.0, depth)[:, 0]
            truth = (quantised(clean)[:, 0], depth, airlight.expand_as(clean[:, 0]))
            given = self._compressed(given, recompressed, draws)
            return quantised(given)[:, 0], torch.cat(truth, 1)
        given = self._degraded(clean, primary, untouched, draws)
        given = quantised(self._compressed(given, recompressed & ~untouched, draws))
        middle = config.frames // 2
        if config.alone:
            alone = of_sample(draws.chance(config.alone))
            given = torch.where(alone, given[:, middle : middle + 1], given)
        tasks = []
        if self.tasks:
            numbers = tuple(float(self.tasks[name]) for name in config.degradations)
            tasks = [constants(numbers, self.device)[primary].long()]
        clean = quantised(clean[:, middle])
        return given if config.frames > 1 else given[:, 0], clean, *tasks

    def _degraded(self, clips: Tensor, primary: Tensor, untouched: Tensor, draws: Counters) -> Tensor:
        """Return clips (B, T, 3, S, S), each with its degradation, and a share with a second one."""
        names = self.config.degradations
        second = torch.full_like(primary, -1)
        if self.config.combined:
            after = [[ORDER.index(name) for name in SECOND.get(first, ())] or [-1] for first in names]
            table = [float(row[number % len(row)]) for row in after for number in range(6)]  # 1, 2 or 3
            found = constants(tuple(table), self.device)[6 * primary + draws.integers(0, 6)].long()
            second = torch.where(draws.chance(self.config.combined), found, second)
        for name, share in self.shares.items():
            chosen = second == ORDER.index(name)
            if name in names:
                chosen = chosen | (primary == names.index(name))
            own, before = draws.branch(), clips

            def change(rows: Rows, name: str = name, own: Counters = own, before: Tensor = before) -> Tensor:
                return BATCHED[name](before[rows], own.part(rows))

            clips = changed(clips, chosen & ~untouched, share, change)
        return clips

    def _compressed(self, clips: Tensor, chosen: Tensor, draws: Counters) -> Tensor:
        branch = draws.branch()

        def change(rows: Rows) -> Tensor:
            return random_coding(clips[rows], branch.part(rows))

        return changed(clips, chosen, self.config.recompressed, change) if self.config.recompressed else clips


def occurring(config: PairDataConfig) -> dict[str, float]:
    """Return the degradations of a configuration, those that may come second, too, in the order in which they
    happen, and the share of samples that has each. Raises ConfigError if one of the second isn't there.
    """
    shares = dict.fromkeys(ORDER, 0.0)
    each = 1 / len(config.degradations)
    for name in config.degradations:
        shares[name] += each
        for other in SECOND.get(name, ()) if config.combined else ():
            shares[other] += each * config.combined / len(SECOND[name])
            if other not in BATCHED:
                raise ConfigError(f"resident data have no {other} after {name}; set data.combined=0")
    return {name: min(share, 1.0) for name, share in shares.items() if share}


def task_indices(config: PairDataConfig, tasks: Sequence[str]) -> dict[str, int]:
    """Return the index among `tasks` of the task of each degradation; empty if there are no tasks.

    Raises ConfigError for a degradation whose task is missing.
    """
    if not tasks:
        return {}
    if missing := [TASK_OF[name] for name in config.degradations if TASK_OF[name] not in tasks]:
        raise ConfigError(
            f"[model] tasks lacks {', '.join(missing)}, for data.degradations; change one of them"
        )
    return {name: tasks.index(TASK_OF[name]) for name in config.degradations}


def random_pair(
    footage: Footage,
    name: str,
    side: int,
    rng: np.random.Generator,
    widest: int | None = None,
    shares: Shares = NO_SHARES,
    *,
    frames: int = 1,
) -> tuple[Tensor, Tensor]:
    """Return a degraded crop and its clean one (3, side, side), in [0, 1], both rounded to 8 bits.

    With several `frames` the degraded one is a clip (frames, 3, side, side), the clean one its middle frame.
    """
    given, clean = random_clips(footage, name, side, frames, rng, widest, shares)
    return given[0] if frames == 1 else given, clean[frames // 2]


def hazy_pair(footage: Footage, config: PairDataConfig, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return a hazy crop (3, side, side), and what is in it (7, side, side): the clean crop, the optical
    depth of green, and the airlight's R, G and B in linear light.
    """
    clip = turned(footage.rgb_crop(rng, config.crop, 1, config.widest), rng)
    hazy, depth, airlight = (part[0] for part in random_scattering(clip[None], counters(rng)))
    untouched, recompressed = rng.random(2) < (config.untouched, config.recompressed)
    if untouched:
        hazy, depth = clip, torch.zeros_like(depth)
    if recompressed:
        hazy = random_compression(hazy, rng)
    found = quantised(clip)[0], depth[0], airlight
    return quantised(hazy)[0], torch.cat(found)


def random_clips(
    footage: Footage,
    name: str,
    side: int,
    frames: int,
    rng: np.random.Generator,
    widest: int | None = None,
    shares: Shares = NO_SHARES,
) -> tuple[Tensor, Tensor]:
    """Return a window (frames, 3, side, side) degraded and clean, in [0, 1], both rounded to 8 bits.

    It is mirrored and transposed before it is degraded, so that rain falls downwards and haze thickens
    upwards.
    """
    exposure = int(rng.choice(EXPOSURES)) if name == "blur" and rng.random() < MEAN_SHARE else 1
    fast, alone, distracted = (
        bool(share) and rng.random() < share for share in (shares.fast, shares.alone, shares.distracted)
    )
    clip = turned(footage.rgb_crop(rng, side, frames * exposure, widest, fast=fast), rng)
    if distracted:
        clip = with_moving_things(clip, rng)
    clean = clip[exposure // 2 :: exposure]
    means = average_exposures(clip, exposure) if exposure > 1 and motion(clip) < MOST_MOTION else None
    given = quantised(degrade_clip(clean, name, shares, rng, means))
    if alone and not fast:
        given = given[frames // 2].expand_as(given)
    return given, quantised(clean)


def held_out_pairs(
    footage: Footage, config: PairDataConfig, side: int, count: int, tasks: Sequence[str] = ()
) -> HeldOutPairs:
    """Return `count` pairs of every degradation, the same for every run of a configuration."""
    given, clean = {}, {}
    for name in config.degradations:
        draws = (np.random.default_rng((1, number)) for number in range(count))
        pairs = [random_pair(footage, name, side, rng, config.widest, frames=config.frames) for rng in draws]
        given[name], clean[name] = (
            torch.stack(part).mul(255).round().to(torch.uint8) for part in zip(*pairs, strict=True)
        )
    return HeldOutPairs(given, clean, task_indices(config, tasks))


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
# from the scene through the lens to the sensor
ORDER = ("haze", "rain", "snow", "blur", "noise", "white", "coloured")


def degrade_clip(
    clip: Tensor, name: str, shares: Shares, rng: np.random.Generator, precomputed: Tensor | None = None
) -> Tensor:
    """Degrade a clip (T, 3, H, W) in [0, 1], of even sides, by `name` and by what `shares` adds at random.

    `precomputed` is the clip with the degradation `name`, if that was computed already.
    """
    untouched, combined, recompressed = rng.random(3) < (
        shares.untouched,
        shares.combined,
        shares.recompressed,
    )
    if untouched:
        return clip
    names = [name]
    if combined and name in SECOND:
        names.append(SECOND[name][rng.integers(len(SECOND[name]))])
    for each in sorted(names, key=ORDER.index):
        clip = precomputed if precomputed is not None and each == name else DEGRADATIONS[each](clip, rng)
    return random_compression(clip, rng) if recompressed else clip


# pixel format and colour tags of the encoder's input
ENCODED = (PixelFormat("yuv420p", "yuv", 8, 1, 1), ColourTags(matrix=6, range=1, chroma_location=1))
CRF = (16.0, 36.0)
PRESETS = ("superfast", "veryfast")
MJPEG_SHARE = 0.25  # of compressed clips that are Motion JPEG; the others are H.264
MJPEG_SCALE = (2, 12)  # the encoder's quantiser scale, 1 (best) to 31


def encoded(clip: Tensor, crf: float, preset: str = "veryfast") -> Tensor:
    """Encode and decode (T, 3, H, W) in [0, 1], of even sides, by H.264 at quality `crf`; the result has 8
    bits.
    """
    return _through(partial(recompress, crf=crf, preset=preset), clip)


def random_compression(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Encode and decode (T, 3, H, W) in [0, 1], of even sides, by an encoder of random kind and strength, in
    8 bits.
    """
    if rng.random() < MJPEG_SHARE:
        return _through(
            partial(recompress_pictures, scale=int(rng.integers(*MJPEG_SCALE, endpoint=True))), clip
        )
    return encoded(clip, rng.uniform(*CRF), PRESETS[rng.integers(len(PRESETS))])


def _through(encoder: partial[list[tuple[np.ndarray, ...]]], clip: Tensor) -> Tensor:
    """Convert a clip to 4:2:0 planes, pass them through an encoder and convert them back to RGB."""
    (layout, tags), height = ENCODED, clip.shape[-2]
    stored = grey_to_planes(rgb_to_yuv(clip, layout, tags, height), layout)
    back = encoder([tuple(planes) for planes in zip(*stored, strict=True)])
    planes = planes_to_grey([np.stack(plane) for plane in zip(*back, strict=True)], layout)
    return yuv_to_rgb(planes, layout, tags, height).mul(255).round_().clamp_(0, 255).div_(255)
