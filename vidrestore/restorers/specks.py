"""Remove dust, hairs and specks of a film, which last for one frame.

Both neighbours of a frame are aligned with it along the motion. A pixel is an outlier if it is brighter or
darker than both, by more than they differ from each other around it, and by more where the frames beside have
outliers at the same place: limbs, spray and confetti have some in every frame, dust hasn't. Outliers form
specks. One whose surroundings are found nearby in a neighbour has only moved, and stays; so does one that
hardly stands out from what differs around it, where the motion is wrong. The others become the mean of the
neighbours.

Where few specks are found in the frames around, where most of them have moved (confetti), or where nearly all
are bright (rain, snow, spray, sparks), nothing changes, unless the option `dust` is "always".
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.alignment import dense_motion, luma_of, means_around
from vidrestore.models.spynet import warp
from vidrestore.restorers.result_cache import ResultCache
from vidrestore.restorers.temporal import TemporalRestorer
from vidrestore.settings.options import RestoreOptions

TASK = "dedust"
LEVELS = 255.0  # grey levels of a picture in [0, 1]


@dataclass(frozen=True)
class SpeckSearch:
    """Constants of the search, chosen on training clips with drawn dust, and without; sides are in pixels,
    odd, and levels of 255.

    level_side, most_level: of the squares over which the neighbours get a frame's brightness, and the most
        levels that they change by
    least: levels that an outlier stands out by
    doubt: levels added for each level that the neighbours differ from each other
    doubt_sides: of the squares that this is averaged over, of which the larger mean counts
    difference, difference_doubt: mean levels by which a frame may differ from its neighbours over
        `level_side`, and levels added for each above
    density_doubt: levels added for a share of 1 % of outliers in both frames beside
    core_share: of a pixel's square of 3, that must be outliers
    speck: side of the square in which a speck's strongest pixel is found
    small_block, large_block: sides of the squares that are looked for in the neighbours, for small specks
        and for those that fill half of the small square
    search: pixels that a speck may have moved by
    moved: share of the difference that is left where it has
    ring, ring_doubt: side of the square around a pixel of a speck, and levels added for each level that the
        frame differs from its neighbours there, beside the speck
    dusty: specks in a square of side `cell` from which on fewer levels are added
    grown: pixels that a speck is grown by, where it stands out by at least a quarter of what an outlier does
    strict_least, strict_doubt: as `least` and `doubt`, of specks that are counted
    cell: side of the squares in which specks are counted; one that lies near others in both frames beside
        doesn't count
    radius: frames on either side whose specks are counted
    fewest: median specks of those frames from which on there is dust
    still_share: of counted specks, that must not have moved
    bright_share: of those, above which they are rain, snow, spray or sparks
    """

    level_side: int = 31
    most_level: float = 12.0
    least: float = 10.0
    doubt: float = 1.5
    doubt_sides: tuple[int, int] = (5, 15)
    difference: float = 3.0
    difference_doubt: float = 2.0
    density_doubt: float = 5.0
    core_share: float = 0.3
    speck: int = 15
    small_block: int = 7
    large_block: int = 15
    search: int = 16
    moved: float = 0.45
    ring: int = 9
    ring_doubt: float = 3.0
    dusty: float = 0.015
    grown: int = 2
    strict_least: float = 24.0
    strict_doubt: float = 3.0
    cell: int = 16
    radius: int = 3
    fewest: int = 2
    still_share: float = 0.5
    bright_share: float = 0.85


SEARCH = SpeckSearch()


class Outliers(NamedTuple):
    """A frame beside its neighbours; maps are (1, 1, H, W), levels of 255.

    neighbours: (2, 3, H, W), aligned, of the frame's brightness
    excess: levels by which luma lies outside those of its neighbours; negative inside
    limit: levels that an outlier stands out by, without the doubt of its density
    strict: the same for specks that are counted
    """

    neighbours: Tensor
    excess: Tensor
    limit: Tensor
    strict: Tensor


class SpeckLook(NamedTuple):
    """A look at a frame.

    motion: (2, 2, h, w), to its neighbours, at half size
    density: (1, 1, H, W), share of outliers around
    counts: (3, rows, columns), in squares of the picture: of specks, of those that haven't moved, and of
        those of them that are bright
    """

    motion: Tensor
    density: Tensor
    counts: Tensor


def neighbours_of(place: int, count: int) -> tuple[int, int]:
    """Return the two neighbours of a frame in a scene of `count`: at its ends, the two next ones."""
    if count == 2:
        return 1 - place, 1 - place
    if place in (0, count - 1):
        return (1, 2) if place == 0 else (count - 3, count - 2)
    return place - 1, place + 1


def motion_to(frame: Tensor, neighbours: Tensor) -> Tensor:
    """Return the motion (2, 2, h, w) from luma (1, 1, H, W) to its neighbours (2, 1, H, W), at half size;
    smoothed, so that grain and small specks don't count.
    """
    halves = [
        F.avg_pool2d(means_around(picture, 3), 2, ceil_mode=True)
        for picture in (frame.expand_as(neighbours), neighbours)
    ]
    return dense_motion(halves[0], halves[1])


def outliers_of(frame: Tensor, neighbours: Tensor, motion: Tensor) -> Outliers:
    """Compare a frame (1, 3, H, W) with its neighbours (2, 3, H, W) along their `motion_to`, at half size."""
    size = frame.shape[-2:]
    flow = 2 * F.interpolate(motion, size, mode="bilinear", align_corners=False)
    aligned = warp(neighbours, flow, border="border", mode="bicubic")

    # The neighbours get the brightness of the frame, so that flicker doesn't count.
    luma = luma_of(frame)
    most = SEARCH.most_level / LEVELS
    aligned = aligned + means_around(luma - luma_of(aligned), SEARCH.level_side).clamp(
        -most, most
    )
    one, other = luma_of(aligned).split(1)
    least, largest, middle = (
        torch.minimum(one, other),
        torch.maximum(one, other),
        (one + other) / 2,
    )
    excess = LEVELS * torch.maximum(luma - largest, least - luma)

    disagreement = [means_around(largest - least, side) for side in SEARCH.doubt_sides]
    doubt = LEVELS * torch.maximum(disagreement[0], disagreement[1])
    difference = LEVELS * means_around((luma - middle).abs(), SEARCH.level_side)
    doubt_of_motion = SEARCH.difference_doubt * (difference - SEARCH.difference).clamp(
        min=0
    )
    limit = SEARCH.least + SEARCH.doubt * doubt + doubt_of_motion
    strict = SEARCH.strict_least + SEARCH.strict_doubt * doubt + doubt_of_motion
    return Outliers(aligned, excess, limit, strict)


def cores_of(excess: Tensor, limit: Tensor) -> Tensor:
    """Return (1, 1, H, W): 1 for outliers that have others beside them, else 0."""
    is_outlier = (excess > limit).float()
    return is_outlier * (means_around(is_outlier, 3) > SEARCH.core_share)


def peaks_of(excess: Tensor, cores: Tensor) -> Tensor:
    """Return (1, 1, H, W): 1 at the strongest pixel of each speck, else 0."""
    strength = excess * cores
    strongest = F.max_pool2d(strength, SEARCH.speck, 1, SEARCH.speck // 2)
    return ((strength == strongest) & (cores > 0)).float()


def moved_peaks(
    peaks: Tensor, cores: Tensor, luma: Tensor, neighbours: Tensor, aligned: Tensor
) -> Tensor:
    """Return (N,): True for peaks, in reading order, whose surroundings in luma (1, 1, H, W) are found nearby
    in one of the `neighbours` (2, 1, H, W) before they were `aligned`, far better than where motion leads.
    """
    places = peaks[0, 0].nonzero()
    filling = means_around(cores, SEARCH.small_block)[0, 0][places[:, 0], places[:, 1]]
    results = [
        _found_nearby(places, luma, neighbours, aligned, side)
        for side in (SEARCH.small_block, SEARCH.large_block)
    ]
    return torch.where(filling > 0.5, results[1], results[0])


def _found_nearby(
    places: Tensor, luma: Tensor, neighbours: Tensor, aligned: Tensor, side: int
) -> Tensor:
    """Return (N,): True for the (N, 2) places whose square of `side` pixels is found in a neighbour."""
    radius, reach = side // 2, side // 2 + SEARCH.search
    span = 2 * reach + 1
    square = _windows(luma, places, radius)
    here = [
        (_windows(one, places, radius) - square).abs().mean((1, 2))
        for one in aligned.split(1)
    ]
    limit = SEARCH.moved * torch.minimum(here[0], here[1])
    is_found = torch.zeros(len(places), dtype=torch.bool, device=luma.device)
    for neighbour in neighbours.split(1):
        around = _windows(neighbour, places, reach)
        for down in range(span - side + 1):
            # all shifts across at once: (N, side, shifts, side)
            rows = around[:, down : down + side].unfold(2, side, 1)
            differences = (rows - square[:, :, None]).abs().mean((1, 3))
            is_found |= differences.amin(1) < limit
    return is_found


def _windows(picture: Tensor, places: Tensor, radius: int) -> Tensor:
    """Return the squares (N, 2 * radius + 1, ...) around places (N, 2) of a picture (1, 1, H, W)."""
    padded = F.pad(picture, [radius] * 4, mode="replicate")[0, 0]
    width, side = padded.shape[1], 2 * radius + 1
    offsets = torch.arange(side, device=picture.device)
    corners = places[:, 0] * width + places[:, 1]
    grid = offsets[:, None] * width + offsets
    return padded.flatten()[corners[:, None, None] + grid]


def still_cores(excess: Tensor, cores: Tensor, peaks: Tensor, moved: Tensor) -> Tensor:
    """Return the cores whose strongest peak nearby hasn't moved."""
    strength = excess * peaks
    has_moved = torch.zeros_like(peaks).masked_scatter(peaks > 0, moved.float())
    strengths = torch.cat((strength * has_moved, strength * (1 - has_moved)))
    around = F.max_pool2d(strengths, SEARCH.speck, 1, SEARCH.speck // 2)
    return cores * (around[1:] >= around[:1])


def plain_cores(
    cores: Tensor, luma: Tensor, outliers: Outliers, limit: Tensor, doubt: Tensor
) -> Tensor:
    """Return the cores of specks of which a part stands out by more than the limit and the difference around
    them, times a doubt.
    """
    middle = luma_of(outliers.neighbours).mean(0, keepdim=True)
    difference = LEVELS * (luma - middle).abs()
    rims = F.max_pool2d(cores, 5, 1, 2) * (outliers.excess > limit / 4)
    surroundings = 1 - F.max_pool2d(torch.maximum(cores, rims), 3, 1, 1)
    share = means_around(surroundings, SEARCH.ring).clamp(min=1 / SEARCH.ring)
    around = means_around(difference * surroundings, SEARCH.ring) / share
    plain = cores * cores_of(outliers.excess, limit + doubt * around)
    return cores * F.max_pool2d(plain, 5, 1, 2)


def near_specks(before: SpeckLook, after: SpeckLook) -> Tensor:
    """Return (1, rows, columns): 1 for squares of the picture near which both frames have specks, else 0."""
    near = [F.max_pool2d(look.counts[:1], 3, 1, 1) > 0 for look in (before, after)]
    return (near[0] & near[1]).float()


class SpeckRestorer(TemporalRestorer):
    """Restorer of `dedust`."""

    name = "speck-search"
    radius = SEARCH.radius + 2
    looks = SEARCH.radius + 1
    reach = 2
    maps = 40
    look_maps = 2

    def __init__(self, options: RestoreOptions) -> None:
        super().__init__(TASK, options)
        self.always = options.dust == "always"

    def look(self, clip: Tensor, place: int) -> SpeckLook:
        """Return where the frame at `place` of a clip has specks, and the motion to its neighbours."""
        frame, neighbours = self._pictures(clip, place)
        luma, lumas = luma_of(frame), luma_of(neighbours)
        motion = motion_to(luma, lumas)
        outliers = outliers_of(frame, neighbours, motion)
        density = means_around(
            (outliers.excess > outliers.limit).float(), SEARCH.level_side
        )

        cores = cores_of(outliers.excess, outliers.strict)
        peaks = peaks_of(outliers.excess, cores)
        moved = moved_peaks(peaks, cores, luma, lumas, luma_of(outliers.neighbours))
        is_bright = (luma > luma_of(outliers.neighbours).mean(0, keepdim=True))[
            peaks > 0
        ]
        places = peaks[0, 0].nonzero() // SEARCH.cell
        rows, columns = (-(-side // SEARCH.cell) for side in luma.shape[-2:])
        kinds = torch.stack(
            (torch.ones_like(moved), ~moved, is_bright & ~moved)
        ).float()
        counts = kinds.new_zeros(3, rows * columns)
        counts.index_add_(1, places[:, 0] * columns + places[:, 1], kinds)
        return SpeckLook(motion, density, counts.view(3, rows, columns))

    def _pictures(self, clip: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """Return a frame (1, 3, H, W) of a scene and its two neighbours (2, 3, H, W)."""
        before, after = neighbours_of(place, len(clip))
        neighbours = torch.stack((clip[before], clip[after]))
        return clip[place : place + 1].to(self.device), neighbours.to(self.device)

    def is_dusty(self, place: int, count: int, looks: dict[int, SpeckLook]) -> bool:
        """Return True if the frames around one of a scene of `count` have dust. Those at its ends don't tell:
        what appears between their neighbours passes for specks.
        """
        first, last = (
            max(1, place - SEARCH.radius),
            min(count - 2, place + SEARCH.radius),
        )
        if first > last or self.always:
            return self.always
        around = [self.lone_specks(index, looks) for index in range(first, last + 1)]
        specks, still, bright = torch.stack(around).cpu().unbind(1)
        return bool(
            still.median() >= SEARCH.fewest
            and still.sum() >= SEARCH.still_share * specks.sum()
            and bright.sum() <= SEARCH.bright_share * still.sum()
        )

    def lone_specks(self, place: int, looks: dict[int, SpeckLook]) -> Tensor:
        """Return the `SpeckLook.counts` (3,) of a frame without specks near others in both frames beside."""
        is_lone = near_specks(looks[place - 1], looks[place + 1]) == 0
        return (looks[place].counts * is_lone).sum((1, 2))

    def specks_of(self, clip: Tensor) -> float:
        """Return the mean number of specks in the frames of a scene (T, 3, H, W), but for those at its ends;
        0 if it has no dust.
        """
        if len(clip) < 3:
            return 0.0
        with torch.inference_mode():
            looks = {place: self.look(clip, place) for place in range(len(clip))}
        if not self.is_dusty(len(clip) // 2, len(clip), looks):
            return 0.0
        return fmean(
            float(looks[place].counts[1].sum()) for place in range(1, len(clip) - 1)
        )

    def restored(self, clip: Tensor, place: int, looks: dict[int, SpeckLook]) -> Tensor:
        """Return the frame at `place` of a clip without its specks, filled from its neighbours."""
        if not self.is_dusty(place, len(clip), looks):
            return clip[place]
        frame, neighbours = self._pictures(clip, place)
        outliers = outliers_of(frame, neighbours, looks[place].motion)

        # Where both frames beside have outliers or specks, too, it is hardly dust.
        before, after = (looks[index] for index in neighbours_of(place, len(clip)))
        near = F.interpolate(
            near_specks(before, after)[None], scale_factor=SEARCH.cell, mode="nearest"
        )
        height, width = frame.shape[-2:]
        limit = torch.where(
            near[..., :height, :width] > 0, outliers.strict, outliers.limit
        )
        limit += (
            100 * SEARCH.density_doubt * torch.minimum(before.density, after.density)
        )
        cores = cores_of(outliers.excess, limit)
        peaks = peaks_of(outliers.excess, cores)
        lumas = luma_of(frame), luma_of(neighbours), luma_of(outliers.neighbours)
        cores = still_cores(
            outliers.excess, cores, peaks, moved_peaks(peaks, cores, *lumas)
        )
        # the more specks there are, the likelier is one
        share = looks[place].counts[1].mean().clamp(min=SEARCH.dusty)
        doubt = SEARCH.ring_doubt * SEARCH.dusty / share
        cores = plain_cores(cores, lumas[0], outliers, limit, doubt)

        grown = F.max_pool2d(cores, 2 * SEARCH.grown + 1, 1, SEARCH.grown) * (
            outliers.excess > limit / 4
        )
        share = torch.maximum(grown, F.max_pool2d(cores, 3, 1, 1))
        return frame.lerp(outliers.neighbours.mean(0, keepdim=True), share)[0].to(
            clip.device
        )

    def count(
        self,
        number: int,
        place: int,
        clip: Tensor,
        looks: dict[int, SpeckLook],
        cache: ResultCache,
    ) -> None:
        is_dusty = self.is_dusty(place, len(clip), looks)
        cache.specks[number] = int(looks[place].counts[1].sum()) if is_dusty else 0
