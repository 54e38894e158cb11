"""Draw crops of clips and photos from their decoded planes, which may be mapped into memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vidrestore.errors import ConfigError
from vidrestore.lab.degrade.counters import Counters, constants
from vidrestore.lab.degrade.resize import keys_cubic

# share of crops of clips with consecutive frames; the others take every second one
SLOW_SHARE = 0.75
# standard deviations of the speed of slides, in whole pixels a frame, one of which is drawn
SLIDES = (0.0, 1.0, 4.0, 12.0)
DRIFTS = (0.0, 1.0, 4.0)  # the same of pans, in any fraction of a pixel
FAST_DRIFTS = (8.0, 16.0)
GROWTH = 0.003  # standard deviation of the change of a pan's zoom per frame
# share of slides that is downscaled, and the largest factor
REDUCED_SHARE, REDUCED = 0.5, 2.5
ZOOMED = 2.0  # largest factor by which pans are reduced
CUBIC_REACH = 2  # samples on both sides that the cubic takes


@dataclass(frozen=True)
class Shot:
    """A decoded clip or photo."""

    name: str
    still: bool  # True for a photo
    planes: tuple[Tensor, ...]  # one or three, (T, H, W) uint8
    steps: tuple[int, int]  # luma samples per chroma sample, down and right
    sites: tuple[float, float]  # place of the first chroma sample, in luma samples
    # (3, 4); times the three planes and 1: R, G, B in [0, 1]
    matrix: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class View:
    """The places of B crops of S x S pixels in T frames each of their shots."""

    shots: Tensor  # (B,), numbers
    frames: Tensor  # (B, T), numbers
    rows: Tensor  # (B, T, S), in luma samples
    columns: Tensor  # (B, T, S)
    stretch: Tensor  # (B, T), the distance of two rows or columns
    transposed: Tensor  # (B,), bool: rows become columns

    def crop(self, number: int) -> View:
        """Return one of the crops, without the axis B."""
        return View(*(part[number] for part in vars(self).values()))


class Planes:
    """All shots whose frames have at least `side` lines and columns. `loader` returns a shot by its number,
    when a crop of it is drawn. Raises ConfigError if none is large enough.
    """

    def __init__(
        self, shots: Iterable[Shot], side: int, loader: Callable[[int], Shot]
    ) -> None:
        self.loader = loader
        self.numbers = list[int]()
        sizes = list[Any]()
        stills = list[bool]()
        # photos are enlarged where they must, clips aren't
        for number, shot in enumerate(shots):
            if min(shot.planes[0].shape[1:]) >= side or shot.still:
                self.numbers.append(number)
                sizes.append(shot.planes[0].shape)
                stills.append(shot.still)
        if not sizes:
            raise ConfigError(
                f"no clip has frames of at least {side}x{side} pixels; name larger ones in [data]"
            )
        self.sizes = torch.tensor(sizes)  # (N, 3): frames, rows and columns
        still = torch.tensor(stills)
        self.stills = still.nonzero()[:, 0]
        self.clips = (~still).nonzero()[:, 0]

    def rgb(self, view: View) -> Tensor:
        """Return the crops (B, T, 3, S, S), R'G'B' nominally in [0, 1].

        Reduced pixels are antialiased. Between the samples of luma lies a cubic, between those of chroma a
        line, and beyond the border its samples are repeated.
        """
        # one by one, each with as many samples around as it needs
        return torch.stack(
            [self._rgb(view.crop(number)) for number in range(len(view.shots))]
        )

    def _rgb(self, crop: View) -> Tensor:
        # the three planes of gray are one
        shot = self.loader(self.numbers[int(crop.shots)])
        luma, *chroma = (shot.planes * 3)[:3]
        # rows and columns of the chroma planes
        positions = zip((crop.rows, crop.columns), shot.sites, shot.steps, strict=True)
        places = [(place - site) / step for place, site, step in positions]
        parts = [_sampled(luma, crop, [crop.rows, crop.columns])]
        parts += [_sampled(plane, crop, places, shot.steps) for plane in chroma]
        stacked = torch.stack(parts, 1)
        matrix = torch.tensor(shot.matrix)
        rgb = (matrix[:, :3] @ stacked.flatten(2) + matrix[:, 3:]).view_as(stacked)
        return rgb.mT if crop.transposed else rgb


def pan_of(planes: tuple[Tensor, ...], crop: View) -> tuple[Tensor, ...]:
    """Return a crop (T, S, S) of each plane, uint8; rows and columns are samples of the planes."""
    pans = (_sampled(plane, crop, [crop.rows, crop.columns]) for plane in planes)
    return tuple(
        (pan.mT if crop.transposed else pan).round().clamp(0, 255).to(torch.uint8)
        for pan in pans
    )


def _sampled(
    plane: Tensor, crop: View, places: list[Tensor], steps: tuple[int, int] = (1, 1)
) -> Tensor:
    """Return (T, S, S) of a plane at rows and columns (T, S) in its samples; `steps` as in Shot."""
    # samples around each place, with their weights, down and across
    height, width = plane.shape[1:]
    indices = list[Tensor]()
    weights = list[Tensor | None]()
    for place, step, length in zip(places, steps, (height, width), strict=True):
        stretch = (crop.stretch / step).clamp(min=1)
        # the samples themselves
        if float(stretch.max()) == 1 and bool((place == place.round()).all()):
            indices.append(place.long().clamp(0, length - 1))
            weights.append(None)
            continue
        reach = int(float(stretch.max()) * CUBIC_REACH)
        extent = math.ceil(float((place.amax(-1) - place.amin(-1)).max()))
        first = place.amin(-1, keepdim=True).floor() - reach - 1
        offsets = torch.arange(extent + 2 * reach + 4)
        weights.append(_weights(place - first, offsets, stretch, linear=step > 1))
        indices.append((first + offsets).long().clamp(0, length - 1))
    # all rows of all frames in one gather
    lines = (crop.frames[:, None] * height + indices[0]) * width
    samples = plane.flatten().take(lines[..., None] + indices[1][:, None]).float()
    down, right = weights
    samples = samples if down is None else down @ samples
    return samples if right is None else samples @ right.mT


def _weights(
    places: Tensor, samples: Tensor, stretch: Tensor, *, linear: bool
) -> Tensor:
    """Return the weights (T, S, W) of W samples at places (T, S), antialiased by `stretch` (T,): of a line or
    of a cubic. T is 1 if all frames have the same.
    """
    # one set of weights serves all frames that have the same places
    if bool((places == places[:1]).all() and (stretch == stretch[:1]).all()):
        places = places[:1]
        stretch = stretch[:1]
    distance = (places[..., None] - samples) / stretch[:, None, None]
    weights = (1 - distance.abs()).clamp(min=0) if linear else keys_cubic(distance)
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
        # which shot, and how the camera moves over it
        candidates = planes.stills if still else planes.clips
        shots = candidates[draws.integers(0, len(candidates))]
        length, height, width = planes.sizes[shots].float().unbind(1)
        moves = self._moves(draws)
        ways, growth, stretch = (
            self._over_photos(moves, draws) if still else self._at_rest(moves)
        )
        # the extent of all frames together, as a multiple of a crop's side
        span = 1 + 2 * ways.abs().amax(2) / self.side
        room = torch.minimum(height / span[:, 0], width / span[:, 1])
        stretch = torch.minimum(stretch, room / self.side)
        most = max(REDUCED, ZOOMED) * (self.widest or self.side) / self.side
        stretches = (stretch[:, None] * (growth[:, None] * moves.time).exp()).clamp(
            max=most
        )
        # the position of each pixel in each frame
        index = torch.arange(self.side) + 0.5 - self.side / 2
        positions = []
        for axis, length_of_axis in enumerate((height, width)):
            half = stretch * span[:, axis] * self.side / 2
            centre = half + draws.uniform() * (length_of_axis - 2 * half)
            centre = centre.clamp(min=self.side // 2).floor()
            sign = torch.where(draws.chance(0.5), -1.0, 1.0)
            along = stretches[..., None] * index * sign[:, None, None]
            way = centre[:, None] + stretch[:, None] * ways[:, axis]
            positions.append(way[..., None] + along - 0.5)
        numbers = (
            torch.zeros_like(moves.time)
            if still
            else self._numbers(moves, draws, length)
        )
        return View(
            shots, numbers, positions[0], positions[1], stretches, draws.chance(0.5)
        )

    def _moves(self, draws: Counters) -> _Moves:
        # numbers are drawn in a fixed order, whatever is used of them
        quick = draws.chance(self.fast)
        time = torch.arange(self.frames) - self.frames // 2
        time = time * torch.where(draws.chance(0.5), -1, 1)[:, None]
        growth = draws.normal() * GROWTH
        speed = draws.normal(2)
        native = draws.chance(self.native)
        reduced = torch.where(
            draws.chance(REDUCED_SHARE), draws.uniform(1, REDUCED), 1.0
        )
        zoom = draws.uniform(1, ZOOMED)
        spread = draws.uniform(1, (self.widest or self.side) / self.side)
        step = 1 + (~draws.chance(SLOW_SHARE)).long()
        first = draws.uniform()
        return _Moves(
            quick, time, growth, speed, native, reduced, zoom, spread, step, first
        )

    @staticmethod
    def _over_photos(moves: _Moves, draws: Counters) -> tuple[Tensor, Tensor, Tensor]:
        """Return ways (B, 2, T) over photos, growth of the zoom per frame (B,), and stretch (B,)."""
        slides, drifts, rapid = (
            constants(part)[draws.integers(0, len(part))]
            for part in (SLIDES, DRIFTS, FAST_DRIFTS)
        )
        # over the photo's own pixels motion is whole, else it may be any
        growth = torch.where(
            moves.native, 0.0, moves.growth * torch.where(moves.quick, 5.0, 1.0)
        )
        drifts = torch.where(
            moves.quick, rapid, torch.where(moves.native, slides, drifts)
        )
        ways = moves.speed[:, :, None] * drifts[:, None, None] * moves.time[:, None]
        ways = torch.where(moves.native[:, None, None], ways.round(), ways)
        return (
            ways,
            growth,
            torch.where(moves.native, moves.reduced, moves.zoom) * moves.spread,
        )

    @staticmethod
    def _at_rest(moves: _Moves) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same of clips, over which the camera doesn't move."""
        ways = torch.zeros(len(moves.time), 2, moves.time.shape[1])
        return ways, torch.zeros_like(moves.growth), moves.spread

    @staticmethod
    def _numbers(moves: _Moves, draws: Counters, length: Tensor) -> Tensor:
        """Return numbers of frames (B, T) of clips, which run back and forth if they are too short."""
        # frames in a row or every second one, faster if asked for
        frames = moves.time.shape[1]
        step = torch.where(
            moves.quick,
            draws.integers(2, 5),
            torch.where(length >= 2 * frames, moves.step, 1),
        )
        spare = (length - (frames - 1) * step).clamp(min=1)
        first = (moves.first * spare).floor()
        order = first[:, None] + step[:, None] * (moves.time + frames // 2)
        # beyond the last frame back again
        last = length[:, None] - 1
        beyond = (order % (2 * last).clamp(min=1) - last).abs()
        return (last - beyond).clamp(min=0).long()
