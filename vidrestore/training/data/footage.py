"""Clean windows to train on: stretches of clips, and slow pans and zooms over photos."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.colour import chroma_grid, planes_to_grey, rgb_matrix, yuv_to_rgb
from vidrestore.errors import ConfigError, MediaError
from vidrestore.frames import ColourTags, PixelFormat
from vidrestore.media import pictures
from vidrestore.media.probe import probe
from vidrestore.media.reader import VideoReader
from vidrestore.training.config import LARGEST_CROP
from vidrestore.training.data.decoded import Decoded
from vidrestore.training.data.resident import (
    DRIFTS,
    FAST_DRIFTS,
    GROWTH,
    REDUCED,
    REDUCED_SHARE,
    SLIDES,
    ZOOMED,
    Shot,
)

Window = tuple[Tensor, ...]  # planes (T, H, W) uint8: Y, U, V (R, G, B of an RGB clip), or gray alone
Coding = tuple[PixelFormat, ColourTags]
CLIP_SUFFIXES = (".mp4", ".mkv", ".mov", ".webm")
STILL_SUFFIXES = pictures.SUFFIXES
CACHE_BYTES = 1_500_000_000
SHOT = (LARGEST_CROP, 384)  # height and width of the frames of a pan over a photo
TRIES = 30  # clips that are tried until one is large enough
STILL_PIXELS_SHARE = 0.5  # of single frames from photos: the photo's own pixels, no pan
# pixel format and colour tags of a pan
SHOT_CODING = (PixelFormat("yuv420p", "yuv", 8, 1, 1), ColourTags(matrix=6, range=1, chroma_location=2))
# and of a photo
PHOTO_CODING = (PixelFormat("yuv444p", "yuv", 8, 0, 0), SHOT_CODING[1])


class Footage:
    """Draw windows of `frames` consecutive frames; the same generator state gives the same windows.

    `still_share` of them are pans over photos, if there are both clips and photos. Clips and photos in
    `decoded` are read from there; others are decoded, and the clips cached, up to `cache_bytes`. Raises
    ConfigError if there is neither clip nor photo.
    """

    def __init__(
        self,
        clips: Sequence[Path],
        stills: Sequence[Path],
        frames: int,
        still_share: float,
        cache_bytes: int = CACHE_BYTES,
        decoded: Mapping[Path, Decoded | None] | None = None,
    ) -> None:
        if not clips and not stills:
            raise ConfigError("no clips and no photos to train on; check data.clips and data.stills")
        self.clips, self.stills, self.frames = list(clips), list(stills), frames
        self.still_share = still_share if stills and clips else float(bool(stills))
        self.cache_bytes, self.decoded = cache_bytes, decoded or {}
        self._cache: OrderedDict[Path, Window] = OrderedDict()
        self._codings: dict[Path, Coding] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cache out when pickling: another process decodes for itself."""
        return vars(self) | {"_cache": OrderedDict()}

    def window(self, rng: np.random.Generator, side: int = 1) -> Window:
        """Return a window of a random clip or photo. Raises MediaError if all clips are smaller than
        `side`.
        """
        still, path = self._random_source(rng)
        if still:
            picture = self._picture(path)
            return pan_over(picture, random_move(picture[0].shape[1:], rng), self.frames)
        return random_frames(self._clip(rng, path, side)[1], self.frames, rng)

    def rgb_crop(
        self,
        rng: np.random.Generator,
        side: int,
        frames: int,
        widest: int | None = None,
        *,
        fast: bool = False,
        native: float = 0.0,
    ) -> Tensor:
        """Return a random crop (frames, 3, side, side) of such a window, R'G'B' in [0, 1]. Raises MediaError
        as `window` does.

        `fast` windows are of clips at two to four times their speed, and of fast pans over photos. With
        `widest` the crop has a random even size from `side` to `widest`, or to the clip's size, and is
        resized to `side`. A single frame of a photo is as likely to be the photo's own pixels as a frame of a
        pan. A share of `native` of the crops of photos slide over their pixels as `slide_over` does.
        """
        still, path = self._random_source(rng)
        if still and native and rng.random() < native:
            return slide_over(self._picture(path), side, frames, rng)
        path, picture = (path, self._picture(path)) if still else self._clip(rng, path, side)
        format, tags = SHOT_CODING if still else self._coding(path)
        height, width = SHOT if still else picture[0].shape[1:]
        if widest is not None:
            side, target_side = (
                2 * int(rng.integers(side // 2, max(side, min(widest, height, width)) // 2 + 1)),
                side,
            )
        still_pixels = (
            still and frames == 1 and rng.random() < STILL_PIXELS_SHARE and min(picture[0].shape[1:]) >= side
        )
        place = random_place(picture[0].shape[1:] if still_pixels else (height, width), format, side, rng)
        if still_pixels:
            window = to_yuv420(
                torch.stack([plane[:, place.rows, place.columns].float() for plane in picture], 1)
            )
        elif still:
            window = pan_over(picture, random_move(picture[0].shape[1:], rng, fast=fast), frames, place)
        else:
            window = random_frames(crop_planes(picture, format, place), frames, rng, fast=fast)
        rgb = yuv_to_rgb([plane.float() for plane in window], format, tags, height).clamp_(0, 1)
        if widest is None:
            return rgb
        return F.interpolate(
            rgb, (target_side, target_side), mode="bilinear", antialias=True, align_corners=False
        )

    def shots(self) -> Iterator[Shot]:
        """Yield all clips, then all photos, decoded."""
        for path in self.clips:
            planes = self._decoded(path)
            yield shot_of(path, False, planes, self._coding(path))
        for path in self.stills:
            yield shot_of(path, True, self._picture(path), PHOTO_CODING)

    def _coding(self, path: Path) -> Coding:
        """Return the pixel format and the colour tags of a clip."""
        if path not in self._codings:
            video = probe(str(path)).video
            self._codings[path] = (video.format, video.colour)
        return self._codings[path]

    def _random_source(self, rng: np.random.Generator) -> tuple[bool, Path]:
        """Return True if it is a photo, and the path of a random clip or photo."""
        still = bool(rng.random() < self.still_share)
        paths = self.stills if still else self.clips
        return still, paths[rng.integers(len(paths))]

    def _clip(self, rng: np.random.Generator, path: Path, side: int) -> tuple[Path, Window]:
        """Return the planes of a clip, or of another if it is smaller than `side`. Raises MediaError if all
        seem to be.
        """
        for _ in range(TRIES):
            planes = self._decoded(path)
            height, width = planes[0].shape[1:]
            if min(height, width) >= side:
                return path, planes
            path = self.clips[rng.integers(len(self.clips))]
        raise MediaError(
            f"{path}: frames of {width}x{height} are smaller than a patch of {side}x{side}, as are those "
            "of other clips; add larger clips"
        )

    def _picture(self, path: Path) -> Window:
        """Return a photo as a clip of one frame, with chroma of full size."""
        return self._stored(path) or decode_whole(path)

    def _stored(self, path: Path) -> Window | None:
        """Return the planes decoded before the run; None if there are none, or another run has removed the
        file since.
        """
        stored = self.decoded.get(path)
        with suppress(FileNotFoundError):
            return stored.planes() if stored else None
        return None

    def _decoded(self, path: Path) -> Window:
        if stored := self._stored(path):
            return stored
        if path in self._cache:
            self._cache.move_to_end(path)
            return self._cache[path]
        decoded = decode_clip(path)
        self._cache[path] = decoded
        while len(self._cache) > 1 and self.cached_bytes > self.cache_bytes:
            self._cache.popitem(last=False)
        return decoded

    @property
    def cached_bytes(self) -> int:
        """The memory of the cached clips: at most `cache_bytes`, or one clip."""
        return sum(plane.nbytes for planes in self._cache.values() for plane in planes)


def shot_of(path: Path, still: bool, planes: Window, coding: Coding) -> Shot:
    """Return decoded planes with what makes RGB of them."""
    format, tags = coding
    matrix = rgb_matrix(format, tags, planes[0].shape[1])
    down, right = chroma_grid(format, tags)
    return Shot(path.name, still, planes, (down[0], right[0]), (down[1], right[1]), matrix)


@dataclass(frozen=True)
class Place:
    """A square crop, in pixels of luma."""

    row: int
    column: int
    side: int

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.side)

    @property
    def columns(self) -> slice:
        return slice(self.column, self.column + self.side)


def random_place(size: Sequence[int], format: PixelFormat, side: int, rng: np.random.Generator) -> Place:
    """Return a random place within `size` (height, width), a multiple of the chroma subsampling."""
    steps = (1 << format.chroma_height_shift, 1 << format.chroma_width_shift)
    row, column = (
        int(rng.integers((length - side) // step + 1)) * step
        for length, step in zip(size, steps, strict=True)
    )
    return Place(row, column, side)


def crop_planes(planes: Window, format: PixelFormat, place: Place) -> Window:
    """Return the crop at a place of all frames of a clip."""
    cut = []
    for plane in planes:
        down, right = (
            (1, 1)
            if plane is planes[0]
            else (1 << format.chroma_height_shift, 1 << format.chroma_width_shift)
        )
        rows = slice(place.rows.start // down, -(-place.rows.stop // down))
        cut.append(plane[:, rows, place.columns.start // right : -(-place.columns.stop // right)])
    return tuple(cut)


def random_frames(planes: Window, frames: int, rng: np.random.Generator, *, fast: bool = False) -> Window:
    """Return `frames` frames in a row, sometimes every second one, or, if `fast`, every second to fourth; a
    clip that is too short runs back and forth.
    """
    count = len(planes[0])
    if fast:
        step = int(rng.integers(2, 4, endpoint=True))
    else:
        step = 2 if count >= 2 * frames and rng.random() < 0.25 else 1
    first = int(rng.integers(max(1, count - (frames - 1) * step)))
    order = torch.from_numpy(back_and_forth(first + step * np.arange(frames), count))
    return tuple(plane[order] for plane in planes)


def back_and_forth(order: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Map frame numbers of any size to [0, count) by reflection: 0 1 2 1 0 1 2 ... for 3 frames."""
    if count == 1:
        return np.zeros_like(order)
    period = 2 * count - 2
    return count - 1 - np.abs(order % period - (count - 1))


def find_footage(folder: Path, exclude: Sequence[str], suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files of a folder with one of the suffixes, sorted by name. Raises ConfigError if it can't
    be read.
    """
    try:
        if not folder.is_dir():
            raise ConfigError(
                f"{folder}: no such folder; paths in a training configuration are relative to its own folder"
            )
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
    except OSError as error:
        raise ConfigError(f"{folder}: the folder can't be read ({error.strerror})") from error
    return [path for path in found if path.name not in exclude]


def decode_whole(path: Path) -> Window:
    """Decode a clip as `decode_clip` does, or a photo as a clip of one frame. Raises MediaError for a damaged
    file.
    """
    if path.suffix.lower() in STILL_SUFFIXES:
        return tuple(torch.from_numpy(plane.copy())[None] for plane in pictures.read_picture(path))
    return decode_clip(path)


def decode_clip(path: Path) -> Window:
    """Decode all colour planes of a clip to 8-bit grey levels. Raises MediaError if it is damaged or has no
    frames.
    """
    frames = []
    with VideoReader(str(path)) as reader:
        layout = reader.info.video.format
        for frame in reader.frames():
            planes = planes_to_grey(frame.planes[: layout.plane_count - layout.alpha], layout)
            # convert frame by frame, because floats take four times the memory
            frames.append([plane.round().clamp(0, 255).to(torch.uint8) for plane in planes])
    if reader.damage.found:
        raise MediaError(
            f"{path}: {reader.damage.summary()}; remove the clip from the folder, or skip it with `skip_bad`"
        )
    if not frames:
        raise MediaError(f"{path}: has no frame that can be decoded; remove the clip from the folder")
    return tuple(torch.stack(plane) for plane in zip(*frames, strict=True))


@dataclass(frozen=True)
class Move:
    """The motion of a camera over a photo, in pixels of the photo and per frame, as seen in the middle of the
    shot.
    """

    centre: tuple[float, float]  # row and column
    zoom: float  # pixels of the photo per pixel of the shot
    drift: tuple[float, float] = (0.0, 0.0)  # rows and columns
    growth: float = 0.0  # change of the zoom's logarithm
    turn: float = 0.0  # rotation in radians


def random_move(size: Sequence[int], rng: np.random.Generator, *, fast: bool = False) -> Move:
    """Return a move over a photo of `size` (height, width): often nearly still, sometimes some pixels per
    frame; if `fast`, up to dozens.
    """
    zoom, centre = rng.uniform(1.0, ZOOMED), rng.uniform(0.3, 0.7, 2) * size[:2]
    drift = rng.normal(0, 1, 2) * rng.choice(FAST_DRIFTS if fast else DRIFTS)
    growth, turn = rng.normal(0, GROWTH), rng.normal(0, 0.003) * rng.choice([0, 1])
    if fast:
        growth, turn = 5 * growth, 5 * turn
    return Move((centre[0], centre[1]), zoom, (drift[0], drift[1]), growth, turn)


def pan_over(picture: Window, move: Move, frames: int, place: Place | None = None) -> Window:
    """Return the shot (Y, U, V of 4:2:0) of a camera that moves over a picture (three planes (1, H, W)).

    The picture is reflected at its borders. With `place` (at even pixels, of an even side) only that part of
    the shot is computed.
    """
    source = torch.cat(list(picture)).float()[None]
    height, width = source.shape[2:]
    seen = (place.rows, place.columns) if place else (slice(None), slice(None))
    y, x = torch.meshgrid(
        *((torch.arange(size).float() - size / 2)[part] for size, part in zip(SHOT, seen, strict=True)),
        indexing="ij",
    )
    shots = []
    for time in np.arange(frames) - frames / 2:
        scale, cosine, sine = (
            move.zoom * math.exp(move.growth * time),
            math.cos(move.turn * time),
            math.sin(move.turn * time),
        )
        rows = move.centre[0] + move.drift[0] * time + scale * (y * cosine + x * sine)
        columns = move.centre[1] + move.drift[1] * time + scale * (x * cosine - y * sine)
        at = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], -1)[None]
        shots.append(
            F.grid_sample(source, at, mode="bicubic", padding_mode="reflection", align_corners=True)[0]
        )
    return to_yuv420(torch.stack(shots))


def slide_over(picture: Window, side: int, frames: int, rng: np.random.Generator) -> Tensor:
    """Return crops (frames, 3, side, side) of a picture (three planes (1, H, W)), R'G'B' in [0, 1], which
    move on by whole pixels, or stand still.

    So all detail that a camera recorded is there, with colour of full size. The picture is often reduced
    before, by up to REDUCED, and enlarged if it is too small.
    """
    height, width = picture[0].shape[1:]
    speed = rng.normal(0, 1, 2) * rng.choice(SLIDES)
    way = np.round(speed[:, None] * np.arange(frames)).astype(np.int64)
    way -= way.min(1, keepdims=True)
    seen = side + way.max(1)
    most = min(height / seen[0], width / seen[1])
    factor = min(most, rng.uniform(1, REDUCED) if rng.random() < REDUCED_SHARE else 1.0)
    rows, columns = (math.floor(factor * int(length)) for length in seen)
    top, left = (int(rng.integers(whole - part + 1)) for whole, part in ((height, rows), (width, columns)))
    yuv = [plane[:, top : top + rows, left : left + columns].float() for plane in picture]
    rgb = yuv_to_rgb(yuv, *PHOTO_CODING, rows)
    if (rows, columns) != tuple(seen):
        size = (int(seen[0]), int(seen[1]))
        rgb = F.interpolate(rgb, size, mode="bicubic", antialias=True, align_corners=False)
    return torch.stack([rgb[0, :, row : row + side, column : column + side] for row, column in way.T]).clamp_(
        0, 1
    )


def to_yuv420(video: Tensor) -> Window:
    """Convert frames (T, 3, H, W) of Y, U, V on the 0-255 scale to 4:2:0 planes in 8 bits."""
    chroma = F.avg_pool2d(video[:, 1:], 2)
    return tuple(
        plane.round().clamp(0, 255).to(torch.uint8) for plane in (video[:, 0], chroma[:, 0], chroma[:, 1])
    )
