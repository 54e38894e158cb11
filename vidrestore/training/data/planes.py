"""Draw batches of crops of clips and photos from decoded planes in memory-mapped files.

A sample depends on the seed, the step and its number alone, so a resumed run and any number of processes draw
the same. The first samples of a batch are of photos, a fixed number of them, the others of clips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from vidrestore.degrade.counters import Counters, constants
from vidrestore.degrade.resize import keys_cubic
from vidrestore.errors import ConfigError
from vidrestore.training.data.batches import WHOLE, BatchSource, Share

SLOW_SHARE = 0.75  # share of crops of clips with consecutive frames; the others take every second one
# standard deviations of the speed of slides, in whole pixels a frame, one of which is drawn
SLIDES = (0.0, 1.0, 4.0, 12.0)
DRIFTS = (0.0, 1.0, 4.0)  # the same of pans, in any fraction of a pixel
FAST_DRIFTS = (8.0, 16.0)
GROWTH = 0.003  # standard deviation of the change of a pan's zoom per frame
REDUCED_SHARE, REDUCED = 0.5, 2.5  # share of slides that is downscaled, and the largest factor
ZOOMED = 2.0  # largest factor by which pans are reduced
REACH = 2  # samples on both sides that the cubic takes


@dataclass(frozen=True)
class Shot:
    """A decoded clip or photo."""

    name: str
    still: bool  # True for a photo
    planes: tuple[Tensor, ...]  # one or three, (T, H, W) uint8
    steps: tuple[int, int]  # luma samples per chroma sample, down and right
    sites: tuple[float, float]  # place of the first chroma sample, in luma samples
    matrix: tuple[tuple[float, ...], ...]  # (3, 4); times the three planes and 1: R, G, B in [0, 1]


class Shots(Protocol):
    """Clips, then photos, by number; batches have a `still_share` of photos, if there are both."""

    still_share: float

    def shots(self) -> Iterable[Shot]:
        """Return all of them, decoded."""

    def shot(self, number: int) -> Shot:
        """Return one of them, decoded."""


@dataclass(frozen=True)
class View:
    """The places of B crops of S x S pixels in T frames each of their shots."""

    shots: Tensor  # (B,), numbers
    frames: Tensor  # (B, T), numbers
    rows: Tensor  # (B, T, S), in luma samples
    columns: Tensor  # (B, T, S)
    stretch: Tensor  # (B, T), the distance of two rows or columns
    transposed: Tensor  # (B,), bool: rows become columns

    def part(self, rows: slice) -> View:
        """Return some of the crops."""
        return View(*(part[rows] for part in vars(self).values()))


class Planes:
    """The planes of all shots whose frames have at least `side` lines and columns. `loader` returns a shot by
    its number, when a crop of it is drawn. Raises ConfigError if none is large enough.
    """

    def __init__(self, shots: Iterable[Shot], side: int, loader: Callable[[int], Shot]) -> None:
        self.loader, self.numbers, subset, sizes = loader, list[int](), list[Shot](), list[Any]()
        for number, shot in enumerate(shots):
            if min(shot.planes[0].shape[1:]) >= side or shot.still:
                self.numbers.append(number)
                sizes.append([plane.shape for plane in (shot.planes * 3)[:3]])
                subset.append(replace(shot, planes=()))
        if not subset:
            raise ConfigError(
                f"no clip has frames of at least {side}x{side} pixels; name larger ones in [data]"
            )
        self.sizes = torch.tensor(sizes)
        steps, sites, matrices = zip(*((shot.steps, shot.sites, shot.matrix) for shot in subset), strict=True)
        self.steps, self.sites, self.matrices = (
            torch.tensor(values, dtype=torch.float32) for values in (steps, sites, matrices)
        )
        stills = torch.tensor([shot.still for shot in subset])
        self.stills, self.clips = stills.nonzero()[:, 0], (~stills).nonzero()[:, 0]

    def _samples_at(self, shots: Tensor, plane: Tensor, index: Tensor) -> Tensor:
        """Return float32 samples (B, ...) of planes (B,) of shots (B,), by their number in each."""
        samples = [
            (self.loader(self.numbers[shot]).planes * 3)[number].flatten().take(indices)
            for shot, number, indices in zip(shots.tolist(), plane.tolist(), index, strict=True)
        ]
        return torch.stack(samples).float()

    def rgb(self, view: View) -> Tensor:
        """Return the crops (B, T, 3, S, S), R'G'B' nominally in [0, 1].

        Reduced pixels are antialiased. Between the samples of luma lies a cubic, between those of chroma a
        line, and beyond the border its samples are repeated.
        """
        # one by one, each with as many samples around as it needs
        return torch.cat([self._rgb(view.part(slice(n, n + 1))) for n in range(len(view.shots))])

    def _rgb(self, view: View) -> Tensor:
        steps, sites = self.steps[view.shots], self.sites[view.shots]
        planes = []
        for number in range(3):
            places = [view.rows, view.columns]
            if number:
                places = [
                    (place - sites[:, axis, None, None]) / steps[:, axis, None, None]
                    for axis, place in enumerate(places)
                ]
            planes.append(self._sampled(view, torch.full_like(view.shots, number), places, steps))
        stacked, matrix = torch.stack(planes, 2), self.matrices[view.shots][:, None]
        rgb = (matrix[..., :3] @ stacked.flatten(3) + matrix[..., 3:]).view_as(stacked)
        turn = view.transposed.view(-1, 1, 1, 1, 1)
        return torch.where(turn, rgb.mT, rgb)

    def patches(self, view: View, plane: Tensor) -> Tensor:
        """Return the crops (B, T, S, S) of a plane of each shot, whose numbers are `plane` (B,), rounded to 8
        bits; rows and columns are samples of that plane.
        """
        steps = torch.ones_like(self.steps[view.shots])
        cut = self._sampled(view, plane, [view.rows, view.columns], steps)
        return torch.where(view.transposed.view(-1, 1, 1, 1), cut.mT, cut).round().clamp(0, 255)

    def _sampled(self, view: View, plane: Tensor, places: list[Tensor], steps: Tensor) -> Tensor:
        """Return (B, T, S, S) of `plane` (B,) at `places` in its samples; `steps` (B, 2) as in Shot."""
        size = self.sizes[view.shots, plane]
        indices, weights = list[Tensor](), list[Tensor | None]()
        for axis, place in enumerate(places):
            coarse = ((plane > 0) * (steps[:, axis] > 1))[:, None, None]
            stretch = (view.stretch / torch.where(coarse[..., 0], steps[:, axis, None], 1.0)).clamp(min=1)
            last = size[:, 1 + axis, None, None] - 1
            if float(stretch.max()) == 1 and bool((place == place.round()).all()):  # the samples themselves
                indices.append(torch.minimum(place.long().clamp(min=0), last))
                weights.append(None)
                continue
            reach = int(float(stretch.max()) * REACH)
            extent = math.ceil(float((place.amax(-1) - place.amin(-1)).max()))
            first = place.amin(-1, keepdim=True).floor() - reach - 1
            offsets = torch.arange(extent + 2 * reach + 4)
            weights.append(_weights(place - first, offsets, stretch, coarse))
            indices.append(torch.minimum((first + offsets).long().clamp(min=0), last))
        lines = (view.frames[..., None] * size[:, 1, None, None] + indices[0]) * size[:, 2, None, None]
        samples = self._samples_at(view.shots, plane, lines[..., None] + indices[1][..., None, :])
        down, right = weights
        samples = samples if down is None else down @ samples
        return samples if right is None else samples @ right.mT


def _weights(places: Tensor, samples: Tensor, stretch: Tensor, coarse: Tensor) -> Tensor:
    """Return the weights (B, T, S, W) of W samples at places (B, T, S), antialiased by `stretch` (B, T); of a
    line where `coarse` (B, 1, 1), else of a cubic. T is 1 if all frames have the same.
    """
    if bool((places == places[:, :1]).all() and (stretch == stretch[:, :1]).all()):
        places, stretch = places[:, :1], stretch[:, :1]
    distance = (places[..., None] - samples) / stretch[..., None, None]
    weights = torch.where(coarse[..., None], (1 - distance.abs()).clamp(min=0), keys_cubic(distance))
    return weights / weights.sum(-1, keepdim=True)


class _Moves(NamedTuple):
    """Random numbers for the motion of B crops: (B,), `speed` (B, 2), `time` (B, T). Photos and clips each
    use some.
    """

    quick: Tensor
    time: Tensor
    growth: Tensor
    speed: Tensor
    native: Tensor
    reduced: Tensor
    zoom: Tensor
    spread: Tensor
    step: Tensor
    first: Tensor


@dataclass(frozen=True)
class Camera:
    """Draws the `View` of random crops. Clips keep their pixels; over photos the
    camera moves: it slides over their own pixels, which are often reduced before, or pans, by fractions of a
    pixel.
    """

    side: int  # pixels
    frames: int
    native: float = 0.0  # share of crops of photos that slide
    fast: float = 0.0  # share of crops with fast motion
    widest: int | None = None  # pixels; areas of up to this side are reduced to `side`

    def view(self, draws: Counters, planes: Planes, still: bool) -> View:
        """Return random crops of photos or clips, mirrored, transposed and reversed in time."""
        candidates = planes.stills if still else planes.clips
        shots = candidates[draws.integers(0, len(candidates))]
        length, height, width = planes.sizes[shots, 0].float().unbind(1)
        moves = self._moves(draws)
        ways, growth, stretch = self._over_photos(moves, draws) if still else self._at_rest(moves)
        # the extent of all frames together, as a multiple of a crop's side
        span = 1 + 2 * ways.abs().amax(2) / self.side
        stretch = torch.minimum(stretch, torch.minimum(height / span[:, 0], width / span[:, 1]) / self.side)
        most = max(REDUCED, ZOOMED) * (self.widest or self.side) / self.side
        stretches = (stretch[:, None] * (growth[:, None] * moves.time).exp()).clamp(max=most)
        index = torch.arange(self.side) + 0.5 - self.side / 2
        positions = []
        for axis, length_of_axis in enumerate((height, width)):
            half = stretch * span[:, axis] * self.side / 2
            centre = half + draws.uniform() * (length_of_axis - 2 * half)
            centre = centre.clamp(min=self.side // 2).floor()
            sign = torch.where(draws.chance(0.5), -1.0, 1.0)
            along = stretches[..., None] * index * sign[:, None, None]
            positions.append((centre[:, None] + stretch[:, None] * ways[:, axis])[..., None] + along - 0.5)
        numbers = torch.zeros_like(moves.time) if still else self._numbers(moves, draws, length)
        return View(shots, numbers, positions[0], positions[1], stretches, draws.chance(0.5))

    def _moves(self, draws: Counters) -> _Moves:
        quick = draws.chance(self.fast)
        time = torch.arange(self.frames) - self.frames // 2
        time = time * torch.where(draws.chance(0.5), -1, 1)[:, None]
        growth, speed, native = draws.normal() * GROWTH, draws.normal(2), draws.chance(self.native)
        reduced = torch.where(draws.chance(REDUCED_SHARE), draws.uniform(1, REDUCED), 1.0)
        zoom, spread = draws.uniform(1, ZOOMED), draws.uniform(1, (self.widest or self.side) / self.side)
        step, first = 1 + (~draws.chance(SLOW_SHARE)).long(), draws.uniform()
        return _Moves(quick, time, growth, speed, native, reduced, zoom, spread, step, first)

    @staticmethod
    def _over_photos(moves: _Moves, draws: Counters) -> tuple[Tensor, Tensor, Tensor]:
        """Return ways (B, 2, T) over photos, growth of the zoom per frame (B,), and stretch (B,)."""
        slides, drifts, rapid = (
            constants(part)[draws.integers(0, len(part))] for part in (SLIDES, DRIFTS, FAST_DRIFTS)
        )
        growth = torch.where(moves.native, 0.0, moves.growth * torch.where(moves.quick, 5.0, 1.0))
        drifts = torch.where(moves.quick, rapid, torch.where(moves.native, slides, drifts))
        ways = moves.speed[:, :, None] * drifts[:, None, None] * moves.time[:, None]
        ways = torch.where(moves.native[:, None, None], ways.round(), ways)
        return ways, growth, torch.where(moves.native, moves.reduced, moves.zoom) * moves.spread

    @staticmethod
    def _at_rest(moves: _Moves) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same of clips, over which the camera doesn't move."""
        ways = torch.zeros(len(moves.time), 2, moves.time.shape[1])
        return ways, torch.zeros_like(moves.growth), moves.spread

    @staticmethod
    def _numbers(moves: _Moves, draws: Counters, length: Tensor) -> Tensor:
        """Return numbers of frames (B, T) of clips, which run back and forth if they are too short."""
        frames = moves.time.shape[1]
        step = torch.where(
            moves.quick, draws.integers(2, 5), torch.where(length >= 2 * frames, moves.step, 1)
        )
        spare = (length - (frames - 1) * step).clamp(min=1)
        order = (moves.first * spare).floor()[:, None] + step[:, None] * (moves.time + frames // 2)
        last = length[:, None] - 1
        return (last - (order % (2 * last).clamp(min=1) - last).abs()).clamp(min=0).long()


class PlaneSource(BatchSource):
    """Batches drawn from the decoded files of footage."""

    def __init__(self, footage: Shots, seed: int, camera: Camera) -> None:
        self.footage, self.seed, self.camera = footage, seed, camera
        self._planes: Planes | None = None

    @property
    def planes(self) -> Planes:
        """The decoded data."""
        if self._planes is None:
            self._planes = Planes(self.footage.shots(), self.camera.side, self.footage.shot)
        return self._planes

    def batches(
        self, steps: range, size: int, workers: int = 0, share: Share = WHOLE
    ) -> Generator[tuple[Any, ...]]:
        """Yield the batches of all steps."""
        self.planes  # noqa: B018  before workers get a copy of this, so that they needn't look at all files
        return super().batches(steps, size, workers, share)

    def counters(self, step: int, samples: range, stage: int = 0) -> Counters:
        """Return the random numbers of some samples of a step's batch, others at each stage of making it."""
        numbers = torch.arange(samples.start, samples.stop)
        return Counters(self.seed, step, numbers + (stage << 24))

    def crops(self, step: int, size: int, samples: range, frames: int) -> Tensor:
        """Return the crops (B, T, 3, S, S) of some samples of a step's batch, R'G'B' nominally in [0, 1]."""
        camera = replace(self.camera, frames=frames)
        parts = [
            self.planes.rgb(camera.view(self.counters(step, part), self.planes, still))
            for still, part in self.parts(size, samples)
        ]
        return torch.cat(parts)

    def parts(self, size: int, samples: range) -> list[tuple[bool, range]]:
        """Return the samples of a batch that are photos, with True, and of clips, where there are any."""
        photos = self.footage.still_share if len(self.planes.clips) else 1.0
        photos = photos if len(self.planes.stills) else 0.0
        stills = round(size * photos)
        if 0 < photos < 1 and size > 1:
            stills = min(max(stills, 1), size - 1)
        stills = min(max(stills, samples.start), samples.stop)
        parts = (True, range(samples.start, stills)), (False, range(stills, samples.stop))
        return [(still, part) for still, part in parts if part]
