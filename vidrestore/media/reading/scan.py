"""Measure how a video was scanned: as whole frames, as fields, as film within fields, or as these by turns.

The two fields of an interlaced frame are half a frame apart in time. So the later field of a frame and the
earlier one of the next are half a frame apart as well, and the other two are three times as far apart. In a
progressive video both pairs are equally far apart; if the two fields of one moment lie in different frames,
such a pair fits better than the fields of a frame do. A distance is the combing of rows with those above and
below in the next frame, minus the combing within that frame, which comes from detail and noise. Distances are
averaged over a position's frames, then compared. Film in video of 30 frames per second (3:2 pulldown) repeats
one top field and one bottom field in every five frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise
from math import ceil
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import MediaError, OptionError
from vidrestore.pixels.frames import Frame, VideoInfo

Kind: TypeAlias = Literal["whole", "fields", "film", "mixed"]
Plane: TypeAlias = NDArray[np.float32]
# the frames from a pts on
FramesFrom: TypeAlias = Callable[[int | None], Generator[Frame]]

POSITIONS = (0.0, 0.4, 0.8, 0.2, 0.6, 0.95)  # shares of the video's length
ENOUGH_POSITIONS = 3  # after which the search ends if all agree
LOOK_FRAMES = 16  # consecutive frames at each position: three cycles of film
# frames that are enough if nothing moves, or if they are clearly progressive
GLANCE = 4
STRONG = 8  # pairs of frames from which they overrule the stream's marks
SHARE = 0.8  # share of the positions, and of the cycles of film, that must agree
HIGHEST, FASTEST = 1088, 31  # lines and frames per second of interlaced video, at most
LEAST_LINES = 64
SWITCHING = 12  # lines at the bottom that the switching heads of a tape machine disturb
LEAST_AREA = 16  # rows and columns that are looked at
BLOCK = (
    16,
    8,
)  # rows and columns, of every other one, of the blocks among which the liveliest are chosen
LIVELY = 0.9  # share of the blocks that are less lively
# share of the largest deviation of a row or column: those of a bar have less
BAR = 1 / 8
# codecs of graphics, never recorded in fields
_GRAPHICS = frozenset({"gif", "apng", "png", "webp"})


@dataclass(frozen=True)
class ScanLimits:
    """Limits by which the two distances of a position's fields, in grey levels, are judged.

    motion: least distance; still frames with noise of 12 have 0.03
    fields, coded_fields, whole, apart: the smaller distance over the larger. On 12 training clips with noise
        of 0 to 12: fields and film -0.07 to 0.15, or up to 0.8 behind a coder, whose errors are alike in both
        fields of a frame; progressive 0.77 to 1, fields of a moment in two frames -4.8 to -0.55
    flat: share of samples equal to those of the next row, from which a picture counts as drawn. Drawn shapes
        that move by whole rows have ratios of 0.2 to 0.9, so that they can't be taken for coded fields; of
        pictures of a camera without noise the share is 0.1 to 0.8
    recorded: lines of the least standard with fields, 480 without those of a tape's heads and the edges.
        Smaller pictures are hardly fields: behind a coder they must have combs. That tells drawn shapes in
        noise, too: FFmpeg's test picture of 320x240 and 160x120 has -0.5 to -0.06, of 480 lines and more
        ratios above 0.7
    certain, coded_certain, film_certain: least difference of the two distances, in its standard errors; in
        film only two frames in five have combs, and behind a coder it had 3 to 8 that was not recognised,
        fields 9 and more
    """

    motion: float = 0.1
    fields: float = 0.2
    coded_fields: float = 0.7
    whole: float = 0.9
    apart: float = -0.4
    flat: float = 0.6
    recorded: int = 400
    certain: float = 3
    coded_certain: float = 8
    film_certain: float = 2


SCAN_LIMITS = ScanLimits()
TAPE_REACH = 2  # pictures before and after one, by which its dropouts are found
CYCLE = 5  # frames in which film repeats two fields
RESULTS: dict[Kind, str] = {
    "whole": "frames left whole",
    "fields": "deinterlaced",
    "film": "film, 4 frames of 5",
    "mixed": "fields matched, deinterlaced where they differ",
}
MATCHES = {
    "film": "fields repeat as in 3:2 pulldown",
    "apart": "the fields of a moment lie in two frames",
    "turns": "whole frames and fields take turns",
}
# pixel formats of FFmpeg's fieldmatch
MATCHED = frozenset({"yuv411p", "yuv420p", "yuv422p", "yuv444p"})


@dataclass(frozen=True)
class Scan:
    """The scan of a video."""

    # "whole" frames, two "fields" a frame, "film" of 4 frames in 5, or "mixed", frame by frame
    kind: Kind
    # the earlier field of all frames, "tff" or "bff"; None if each frame's mark decides
    order: str | None = None
    # the reason; None without a sign of fields, though later frames may be marked
    why: str | None = None

    @property
    def in_words(self) -> str | None:
        """The effect on the frames, and the reason."""
        return f"{RESULTS[self.kind]} ({self.why})" if self.why else None


@dataclass(frozen=True)
class Look:
    """The scan that the frames of one position show."""

    kind: Kind | Literal["apart"]  # "apart": the fields of a moment lie in two frames
    order: str | None  # the field that is earlier: "tff" or "bff"
    pairs: int  # pairs of frames that were compared


def measured_looks(video: VideoInfo, frames_from: FramesFrom) -> list[Look]:
    """Return the scan at several positions of a video, but for those where too little moves to tell."""
    rate = video.rate or video.base_rate
    is_usual = LEAST_LINES <= video.height <= HIGHEST and not (rate and rate > FASTEST)
    looks: list[Look] = []
    if video.codec in _GRAPHICS or not is_usual:
        return looks
    # most videos are decided by the first few places
    for start in starts(video):
        try:
            with closing(frames_from(start)) as frames:
                planes = (_luma(frame, video) for frame in islice(frames, LOOK_FRAMES))
                look = look_at(planes, glance=not video.interlaced)
        except MediaError:  # the restoration will raise it again
            break
        looks += [look] if look else []
        if (
            len(looks) >= ENOUGH_POSITIONS
            and len({(look.kind, look.order) for look in looks}) == 1
        ):
            break
    return looks


def chosen_scan(
    request: str, video: VideoInfo, frames_from: FramesFrom | None, *, fields: bool
) -> Scan:
    """Return the scan by the option `scan`; for "auto" and "film" frames are measured, if they can be read
    twice. `fields` asks for a frame per field. Raises OptionError for film and whole frames, whose fields
    show one moment.
    """
    # a scan that was asked for needs no look
    if request == "progressive":
        return Scan("whole", None, "as asked")
    if request in ("tff", "bff"):
        return Scan("fields", request, f"{_first(request)}, as asked")
    # else what the frames show, by marks where that isn't enough
    looks = measured_looks(video, frames_from) if frames_from else []
    scan = measured_scan(video, looks)
    order = scan.order or video.marked_order
    if request == "film":
        return Scan("film", order or "tff", "as asked")
    # one moment in both fields gives no frame per field
    if fields:
        # few frames don't overrule the marks
        is_whole = {look.kind for look in looks} == {"whole"} and scan.kind != "fields"
        if is_whole or scan.kind == "film":
            form = "has whole frames, which" if is_whole else "is film, whose frames"
            raise OptionError(
                f"`double_rate`: the video {form} have no fields of two moments; leave it out, or "
                f"deinterlace all the same by `scan={order or 'tff'}`"
            )
        reason = scan.why or "a guess"
        reason = reason if _first(order) in reason else f"{_first(order)}, {reason}"
        return Scan("fields", order or "tff", reason)
    if scan.kind in ("film", "mixed") and video.pix_fmt not in MATCHED:
        why = scan.why and f"{scan.why}, but fields of {video.pix_fmt} can't be matched"
        return Scan("fields", scan.order, why)
    return scan


def measured_scan(video: VideoInfo, looks: list[Look]) -> Scan:
    """Return the scan of a video by its frames, and by its marks where those are not enough."""
    # the kind that most places agree on, and the field that is earlier there
    kinds, orders = (
        Counter(look.kind for look in looks),
        Counter(look.order for look in looks if look.order),
    )
    commonest, count = kinds.most_common(1)[0] if kinds else (None, 0)
    kind = "turns" if count < SHARE * len(looks) else commonest
    order = max(orders, key=orders.__getitem__, default=None)
    marked = video.marked_order
    is_strong = sum(look.pairs for look in looks) >= STRONG
    # frames overrule marks: first where no mark could be right, then where many pairs of fields say so
    if kind in MATCHES:
        return Scan("film" if kind == "film" else "mixed", order, MATCHES[kind])
    if not video.interlaced:
        if kind == "fields":
            return Scan("fields", order, f"looks interlaced, {_first(order)}")
        return Scan("mixed")
    if kind == "whole" and is_strong:
        return Scan("whole", None, "marked interlaced, but both fields show one moment")
    if kind == "fields" and is_strong and marked not in (None, order):
        early = "bottom" if order == "bff" else "top"
        return Scan(
            "fields",
            order,
            f"marked {_first(marked)}, but the {early} field is earlier",
        )
    return Scan(
        "fields",
        video.unmarked_order,
        f"marked interlaced{f', {_first(marked)}' if marked else ''}",
    )


def _first(order: str | None) -> str:
    return "bottom field first" if order == "bff" else "top field first"


def starts(video: VideoInfo) -> list[int | None]:
    """Return the pts to look from, None for the beginning; in a short video fewer, so that none overlap."""
    if not video.duration or video.start is None:
        return [None]
    rate = video.rate or video.base_rate
    frame = 1 / rate / video.time_base if rate else Fraction(0)  # in ticks
    # places so far apart that no frame is looked at twice
    spacing = max(LOOK_FRAMES * frame, Fraction(1))
    last = video.start + video.duration - 2 * frame
    starts = [video.start]
    for share in POSITIONS[1:]:
        start = ceil(video.start + share * video.duration)
        if start <= last and all(abs(start - earlier) >= spacing for earlier in starts):
            starts.append(start)
    return [None, *starts[1:]]


def _luma(frame: Frame, video: VideoInfo) -> Plane:
    """Return every other column of luma (or green) on the 0-255 scale, without the lowest lines of a tape."""
    plane = frame.planes[1 if video.format.family == "rgb" else 0][:, ::2]
    plane = plane[:-SWITCHING] if len(plane) > 2 * LEAST_LINES else plane
    grey: Plane = np.divide(plane, video.format.unit, dtype=np.float32)
    return grey


def look_at(pictures: Iterator[Plane], *, glance: bool = False) -> Look | None:
    """Return the scan of consecutive pictures (H, W); None if it is uncertain, as with little motion. With
    `glance` the first few are enough if nothing moves, or if they are clearly progressive.
    """
    # a glance first: most of progressive video is decided by it
    planes = list(islice(pictures, GLANCE))
    if len(planes) < GLANCE:
        return None
    distances, changes, is_drawn = _measured(planes)
    minimum, maximum = np.sort(distances).T
    is_still = max(maximum.mean(), -minimum.mean()) < SCAN_LIMITS.motion / 2
    if not (
        glance and (is_still or (minimum > SCAN_LIMITS.coded_fields * maximum).all())
    ):
        distances, changes, is_drawn = _measured([*planes, *pictures])
    return _look(distances, changes, is_drawn=is_drawn)


def _measured(pictures: list[Plane]) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Return the distances and the changes of the two fields in pairs of pictures, both (pairs, 2), and
    whether the pictures may be drawn; of the liveliest picture's area without bars.
    """
    liveliest = max(pictures, key=lambda picture: float(picture.std()))
    area = _without_bars(liveliest)
    distances, changes, combs = list[list[float]](), list[list[float]](), list[float]()
    # distances of the later field of a frame to the next, and of the earlier one
    for before, after in pairwise(picture[area] for picture in pictures):
        distances.append(
            [
                _combing(before, after, row) - _combing(after, after, row)
                for row in (2, 1)
            ]
        )
        changes.append(
            [np.abs(after[first::2] - before[first::2]).mean() for first in (0, 1)]
        )
        combs.append(_combs(before, after))
    is_small = len(liveliest) < SCAN_LIMITS.recorded
    is_drawn = _flat_share(liveliest[area]) > SCAN_LIMITS.flat
    is_drawn |= is_small and sum(combs) <= 0
    return np.array(distances), np.array(changes), is_drawn


def _look(
    distances: NDArray[Any], changes: NDArray[Any], *, is_drawn: bool
) -> Look | None:
    """Judge the distances and changes of the two fields in pairs of frames, both (pairs, 2)."""
    limits = SCAN_LIMITS
    minimum, maximum = sorted(distances.mean(0))
    pairs = len(distances)
    differences = np.subtract(*distances.T)
    # too little moves to tell
    order = "tff" if differences.mean() > 0 else "bff"
    if max(maximum, -minimum) < limits.motion:
        return None
    if minimum > limits.whole * maximum:
        return Look("whole", None, pairs)
    # the difference must stand out from that of one pair to the next
    size = abs(differences.mean())
    error = differences.std(ddof=1) / pairs**0.5
    is_apart = minimum < limits.apart * maximum
    is_film = minimum > limits.apart * maximum and size > limits.film_certain * error
    if is_film and _repeats_as_film(changes):
        return Look("film", order, pairs)
    if size < limits.certain * error:
        return None
    if is_apart:
        return Look("apart", order, pairs)
    is_fields = abs(minimum) < limits.fields * maximum
    # a coder's errors, or drawn shapes
    if 0 < minimum < limits.coded_fields * maximum and not is_drawn:
        is_fields |= size > limits.coded_certain * error
    return Look("fields", order, pairs) if is_fields else None


def _repeats_as_film(changes: NDArray[Any]) -> bool:
    """Return True if cycles of five frames agree on where a top field is repeated and, two or three frames
    from there, a bottom field. With noise of 0 to 12 none did of 448 looks at fields or whole frames, of 120
    at film all, or 103 if coded as MPEG-2.
    """
    # the frame of each cycle in which a field is repeated, for top and bottom
    cycles = changes[: len(changes) // CYCLE * CYCLE].reshape(-1, CYCLE, 2)
    if len(cycles) < 2:
        return False
    phases = cycles.mean(0).argmin(0)
    agreeing = (cycles.argmin(1) == phases).mean()
    return bool(agreeing >= SHARE and abs(phases[0] - phases[1]) in (2, 3))


def _flat_share(picture: Plane) -> float:
    """Return the share of samples that differ from those of the next row by a grey level at most."""
    return float((np.abs(np.diff(picture, axis=0)) <= 1).mean())


def _combs(before: Plane, picture: Plane) -> float:
    """Return how much more rows differ from those beside them than from those of their own field, in grey
    levels, where a picture differs most from the one before. Noise is alike in all rows; what moves has combs
    in fields only.
    """
    rows = picture[2:-2]
    beside = np.abs(rows - (picture[1:-3] + picture[3:-1]) / 2)
    own = np.abs(rows - (picture[:-4] + picture[4:]) / 2)
    change = _means_of_blocks(np.abs(rows - before[2:-2]))
    lively = change >= np.quantile(change, LIVELY)
    return float(_means_of_blocks(beside - own)[lively].mean())


def _means_of_blocks(values: Plane) -> Plane:
    """Return the mean of each whole block; a side that is shorter has one."""
    height, width = (min(pair) for pair in zip(BLOCK, values.shape, strict=True))
    bottom = len(values) // height * height
    right = values.shape[1] // width * width
    blocks = values[:bottom, :right].reshape(-1, height, right // width, width)
    means: Plane = blocks.mean((1, 3))
    return means


def _without_bars(picture: Plane) -> tuple[slice, slice]:
    """Return the rows, from one of even number, and the columns of a picture without bars of one colour; all
    if fewer than `LEAST_AREA` would be left, as of a line on black.
    """
    spreads = picture.std(1), picture.std(0)
    rows, columns = (np.flatnonzero(spread >= BAR * spread.max()) for spread in spreads)
    top, left = int(rows[0]) // 2 * 2, int(columns[0])
    if min(rows[-1] - top, columns[-1] - left) < LEAST_AREA:
        return slice(None), slice(None)
    return slice(top, int(rows[-1]) + 1), slice(left, int(columns[-1]) + 1)


def _combing(picture: Plane, other: Plane, first: int) -> float:
    """Return the mean distance of every other row of a picture, from `first` on, to the mean of the rows
    above and below it in another.
    """
    # rows that have one above and one below
    stop = (len(other) - 1 - first) // 2 * 2 + first
    means = (other[first - 1 : stop - 1 : 2] + other[first + 1 : stop + 1 : 2]) / 2
    return float(np.abs(picture[first:stop:2] - means).mean())
