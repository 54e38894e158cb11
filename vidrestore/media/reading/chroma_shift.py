"""Move the chroma of a tape back over its luma: recorders delay it by some columns, copies by some lines."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from math import hypot
from typing import Any

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from vidrestore.media.formats.pixel_formats import Plane, planes_of, store_plane
from vidrestore.media.reading.scan import FramesFrom, starts
from vidrestore.media.reading.tape_fields import copied
from vidrestore.pixels.frames import Frame, PixelFormat, VideoInfo
from vidrestore.settings.options import Shift

Map = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ShiftSearch:
    """Constants of the search for a shift, chosen on training clips with drawn shifts, and without.

    frames: at each place of a video that is looked at
    columns, rows: of luma that chroma lies away at most
    least: pixels of luma that it lies away at least, for clean video reads as less
    agreement: correlation of the edges of luma and chroma; where there is little colour it is less
    most: times its mean that an edge counts as at most
    smallest: lines and columns of a picture, below which too few are left to compare
    """

    frames: int = 3
    columns: int = 12
    rows: int = 8
    least: float = 1.5
    agreement: float = 0.03
    most: float = 4.0
    smallest: int = 48


SHIFT_SEARCH = ShiftSearch()
NO_SHIFT: Shift = (0.0, 0.0)


def without_shift(
    pictures: Generator[VideoFrame],
    shift: Shift,
    pixels: PixelFormat,
    is_interlaced: Callable[[VideoFrame], bool] | None,
) -> Generator[VideoFrame]:
    """Yield copies of pictures whose chroma is moved back; of interlaced ones each field by itself."""
    ratios = 1 << pixels.chroma_width_shift, 1 << pixels.chroma_height_shift
    columns, rows = (-side / ratio for side, ratio in zip(shift, ratios, strict=True))
    with closing(pictures):
        for picture in pictures:
            result = copied(picture)
            step = 2 if is_interlaced and is_interlaced(picture) else 1
            for index, plane in enumerate(planes_of(picture)[:3]):
                moved_plane = plane.copy()
                for first in range(step if index else 0):
                    field = plane[first::step]
                    moved_plane[first::step] = moved(field, columns, rows / step)
                store_plane(result, index, moved_plane)
            yield result


def moved(plane: Plane, columns: float, rows: float) -> Plane:
    """Return a plane moved right and down, interpolated linearly; its edges are repeated."""
    result = plane.astype(np.float32)
    for axis, distance in ((1, columns), (0, rows)):
        places = np.arange(plane.shape[axis]) - distance
        before = np.floor(places).astype(int)
        share = (places - before).astype(np.float32)
        share = share if axis else share[:, None]
        lower = result.take(before, axis, mode="clip")
        result = lower + share * (result.take(before + 1, axis, mode="clip") - lower)
    return result.round().astype(plane.dtype) if plane.dtype.kind == "u" else result


def measured_shift(video: VideoInfo, frames_from: FramesFrom) -> Shift:
    """Return the shift of a video's chroma, to half a pixel, by several of its places; 0, 0 if it is small,
    farther than is looked, or can't be told, as of small pictures.
    """
    if min(video.height, video.width) < SHIFT_SEARCH.smallest:
        return NO_SHIFT
    surfaces = []
    for start in starts(video):
        with closing(frames_from(start)) as frames:
            looked_at = islice(frames, SHIFT_SEARCH.frames)
            surfaces += [_agreement(frame, video.format) for frame in looked_at]
    if not surfaces:
        return NO_SHIFT
    surface = np.mean(surfaces, 0)
    row, column = np.unravel_index(surface.argmax(), surface.shape)
    last_row, last_column = surface.shape[0] - 1, surface.shape[1] - 1
    at_edge = row in (0, last_row) or column in (0, last_column)
    if at_edge or surface.max() < SHIFT_SEARCH.agreement:
        return NO_SHIFT
    across, down = video.format.chroma_width_shift, video.format.chroma_height_shift
    away_columns = _peak(surface[row], int(column)) - last_column / 2
    away_rows = _peak(surface[:, column], int(row)) - last_row / 2
    columns = round(away_columns * (2 << across)) / 2
    rows = round(away_rows * (2 << down)) / 2
    return (columns, rows) if hypot(columns, rows) >= SHIFT_SEARCH.least else NO_SHIFT


def _agreement(frame: Frame, pixels: PixelFormat) -> Map:
    """Return how well edges of luma and chroma agree, for each shift in samples of chroma."""
    luma, *chroma = (plane.astype(np.float32) for plane in frame.planes[:3])
    height, width = chroma[0].shape
    across, down = pixels.chroma_width_shift, pixels.chroma_height_shift
    columns, rows = SHIFT_SEARCH.columns >> across, SHIFT_SEARCH.rows >> down
    luma = _means(luma, height << down, width << across, 1 << down, 1 << across)
    reach = slice(rows, height - rows), slice(columns, width - columns)
    fixed = _centred(_edges(luma)[reach])
    other = _centred((_edges(chroma[0]) + _edges(chroma[1]))[reach])
    spectrum = np.fft.rfft2(other) * np.fft.rfft2(fixed).conj()
    surface = np.roll(np.fft.irfft2(spectrum, fixed.shape), (rows, columns), (0, 1))
    energy = np.sqrt(np.square(fixed).sum() * np.square(other).sum())
    result: Map = surface[: 2 * rows + 1, : 2 * columns + 1] / max(energy, 1e-6)
    return result


def _means(luma: Map, height: int, width: int, down: int, across: int) -> Map:
    """Return the means of luma, continued to a size, over the blocks of `down` by `across` samples."""
    lacking = (0, height - luma.shape[0]), (0, width - luma.shape[1])
    blocks = np.pad(luma, lacking, mode="edge").reshape(
        height // down, down, width // across, across
    )
    result: Map = blocks.mean((1, 3))
    return result


def _smoothed(plane: Map, axis: int) -> Map:
    """Return the means (1, 2, 1)/4 along an axis."""
    padding = [(1, 1) if axis == index else (0, 0) for index in (0, 1)]
    padded = np.pad(plane, padding, mode="edge")
    size = plane.shape[axis]
    before, middle, after = (
        padded.take(range(first, first + size), axis) for first in range(3)
    )
    result: Map = (before + 2 * middle + after) / 4
    return result


def _edges(plane: Map) -> Map:
    """Return how steep a plane is at each sample, limited."""
    smooth = _smoothed(_smoothed(plane, 0), 1)
    steepness = np.abs(np.gradient(smooth, axis=0)) + np.abs(
        np.gradient(smooth, axis=1)
    )
    result: Map = np.minimum(steepness, SHIFT_SEARCH.most * steepness.mean())
    return result


def _centred(edges: Map) -> Map:
    result: Map = edges - edges.mean()
    return result


def _peak(values: Map, index: int) -> float:
    """Return the place of the largest of some values, by a parabola through it and its neighbours."""
    before, middle, after = values[index - 1 : index + 2]
    curve = 2 * middle - before - after
    return index + (float(0.5 * (after - before) / curve) if curve > 0 else 0.0)
