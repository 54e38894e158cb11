"""Clean windows to train on: stretches of clips, and slow pans and zooms over photos."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.colour import planes_to_grey, yuv_to_rgb
from vidrestore.errors import ConfigError, MediaError
from vidrestore.frames import ColourTags, PixelFormat
from vidrestore.media import pictures
from vidrestore.media.probe import probe
from vidrestore.media.reader import VideoReader
from vidrestore.training.data.decoded import Decoded
from vidrestore.training.data_config import LARGEST_CROP

Window = tuple[Tensor, ...]  # planes (T, H, W) uint8: Y, U, V (R, G, B of an RGB clip), or gray alone
Coding = tuple[PixelFormat, ColourTags]
CLIP_SUFFIXES = (".mp4", ".mkv", ".mov", ".webm")
STILL_SUFFIXES = pictures.SUFFIXES
CACHE_BYTES = 1_500_000_000
SHOT = (LARGEST_CROP, 384)  # height and width of what the camera sees of a photo
TRIES = 30  # clips that are drawn until one is large enough
SNAPSHOTS = 0.5  # of single frames that are drawn from photos: not filmed
# what a filmed photo comes as
FILMED = (PixelFormat("yuv420p", "yuv", 8, 1, 1), ColourTags(matrix=6, range=1, chroma_location=2))


class Footage:
    """Draws windows of `frames` consecutive frames. Same generator state, same windows.

    `still_share` of them are pans over photos, as long as there are both clips and photos. Clips and photos
    in `decoded` are read from there, others are decoded, and the clips kept, up to `cache_bytes`. Raises
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
        """Another process decodes for itself."""
        return vars(self) | {"_cache": OrderedDict()}

    def window(self, draw: np.random.Generator, side: int = 1) -> Window:
        """One window of a randomly chosen clip or photo. Raises MediaError for clips that are all smaller
        than `side`.
        """
        still, path = self._chosen(draw)
        if still:
            picture = self._picture(path)
            return filmed(picture, drawn_move(picture[0].shape[1:], draw), self.frames)
        return stretch(self._clip(draw, path, side)[1], self.frames, draw)

    def rgb_crop(
        self, draw: np.random.Generator, side: int, frames: int, widest: int | None = None
    ) -> Tensor:
        """(frames, 3, side, side) R'G'B' in [0, 1] from a random place of such a window. Raises MediaError as
        `window` does.

        With `widest` the crop is cut at a drawn even size from `side` to that, or to what the clip holds, and
        resized. Only what is seen of a photo is filmed; a single frame of it is as likely to be the photo's
        own pixels.
        """
        still, path = self._chosen(draw)
        path, picture = (path, self._picture(path)) if still else self._clip(draw, path, side)
        format, tags = FILMED if still else self._coding(path)
        height, width = SHOT if still else picture[0].shape[1:]
        if widest is not None:
            side, given = (
                2 * int(draw.integers(side // 2, max(side, min(widest, height, width)) // 2 + 1)),
                side,
            )
        snapshot = still and frames == 1 and draw.random() < SNAPSHOTS and min(picture[0].shape[1:]) >= side
        place = drawn_place(picture[0].shape[1:] if snapshot else (height, width), format, side, draw)
        if snapshot:
            window = as_filmed(
                torch.stack([plane[:, place.rows, place.columns].float() for plane in picture], 1)
            )
        elif still:
            window = filmed(picture, drawn_move(picture[0].shape[1:], draw), frames, place)
        else:
            window = stretch(parts(picture, format, place), frames, draw)
        rgb = yuv_to_rgb([plane.float() for plane in window], format, tags, height).clamp_(0, 1)
        if widest is None:
            return rgb
        return F.interpolate(rgb, (given, given), mode="bilinear", antialias=True, align_corners=False)

    def _coding(self, path: Path) -> Coding:
        """Pixel format and colour tags of a clip."""
        if path not in self._codings:
            video = probe(str(path)).video
            self._codings[path] = (video.format, video.colour)
        return self._codings[path]

    def _chosen(self, draw: np.random.Generator) -> tuple[bool, Path]:
        """Return if it is a photo, and the file."""
        still = bool(draw.random() < self.still_share)
        paths = self.stills if still else self.clips
        return still, paths[draw.integers(len(paths))]

    def _clip(self, draw: np.random.Generator, path: Path, side: int) -> tuple[Path, Window]:
        """A clip; in place of one that is too small for `side`, another. Raises MediaError if they all
        seem to be.
        """
        for _ in range(TRIES):
            planes = self._decoded(path)
            height, width = planes[0].shape[1:]
            if min(height, width) >= side:
                return path, planes
            path = self.clips[draw.integers(len(self.clips))]
        raise MediaError(
            f"{path}: frames of {width}x{height} hold no patch of {side}x{side}, nor do others; add larger "
            "clips"
        )

    def _picture(self, path: Path) -> Window:
        """A photo as a clip of one frame, chroma of its full size."""
        return self._stored(path) or decode_whole(path)

    def _stored(self, path: Path) -> Window | None:
        """Return what was decoded before the run; None if nothing was, or another run has made room for its
        own files since.
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
        """Memory of the decoded clips that are kept: at most `cache_bytes`, or one clip."""
        return sum(plane.nbytes for planes in self._cache.values() for plane in planes)


@dataclass(frozen=True)
class Place:
    """The place of a square crop, in pixels of luma."""

    row: int
    column: int
    side: int

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.side)

    @property
    def columns(self) -> slice:
        return slice(self.column, self.column + self.side)


def drawn_place(size: Sequence[int], format: PixelFormat, side: int, draw: np.random.Generator) -> Place:
    """A random one within `size` (height, width); where chroma is coarser, at its steps."""
    steps = (1 << format.chroma_height_shift, 1 << format.chroma_width_shift)
    row, column = (
        int(draw.integers((length - side) // step + 1)) * step
        for length, step in zip(size, steps, strict=True)
    )
    return Place(row, column, side)


def parts(planes: Window, format: PixelFormat, place: Place) -> Window:
    """Return the part of all frames of a clip at a place."""
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


def stretch(planes: Window, frames: int, draw: np.random.Generator) -> Window:
    """`frames` frames in a row, sometimes every second one; a clip that is too short runs back and forth."""
    count = len(planes[0])
    step = 2 if count >= 2 * frames and draw.random() < 0.25 else 1
    first = int(draw.integers(max(1, count - (frames - 1) * step)))
    order = torch.from_numpy(back_and_forth(first + step * np.arange(frames), count))
    return tuple(plane[order] for plane in planes)


def back_and_forth(order: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Frame numbers of any size as numbers in [0, count): 0 1 2 1 0 1 2 ... for 3 frames."""
    if count == 1:
        return np.zeros_like(order)
    period = 2 * count - 2
    return count - 1 - np.abs(order % period - (count - 1))


def find_footage(folder: Path, exclude: Sequence[str], suffixes: tuple[str, ...]) -> list[Path]:
    """Files of a folder with one of the suffixes, in order of name. Raises ConfigError for one that can't be
    read.
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
    """As `decode_clip`, or a photo as a clip of one frame. Raises MediaError for a file that is damaged."""
    if path.suffix.lower() in STILL_SUFFIXES:
        return tuple(torch.from_numpy(plane.copy())[None] for plane in pictures.read_picture(path))
    return decode_clip(path)


def decode_clip(path: Path) -> Window:
    """All colour planes of a whole clip as 8-bit grey levels. Raises MediaError for a file that is damaged or
    holds no frames.
    """
    frames = []
    with VideoReader(str(path)) as reader:
        layout = reader.info.video.format
        for frame in reader.frames():
            planes = planes_to_grey(frame.planes[: layout.plane_count - layout.alpha], layout)
            # at once: floats take four times as much
            frames.append([plane.round().clamp(0, 255).to(torch.uint8) for plane in planes])
    if reader.damage.found:
        raise MediaError(
            f"{path}: {reader.damage.summary()}; take the clip out of the folder, or out of a training with "
            "`skip_bad`"
        )
    if not frames:
        raise MediaError(f"{path}: no frame can be decoded; take the clip out of the folder")
    return tuple(torch.stack(plane) for plane in zip(*frames, strict=True))


@dataclass(frozen=True)
class Move:
    """The motion of a camera over a photo, in pixels of the photo and per frame, seen from the middle of the
    shot.
    """

    centre: tuple[float, float]  # row and column that it looks at
    zoom: float  # pixels of the photo per pixel of the shot
    drift: tuple[float, float] = (0.0, 0.0)  # rows and columns
    growth: float = 0.0  # of the logarithm of the zoom
    turn: float = 0.0  # radians


def drawn_move(size: Sequence[int], draw: np.random.Generator) -> Move:
    """A slow one over a photo of `size` (height, width): often still or nearly so, sometimes some pixels per
    frame.
    """
    zoom, centre = draw.uniform(1.0, 2.0), draw.uniform(0.3, 0.7, 2) * size[:2]
    drift = draw.normal(0, 1, 2) * draw.choice([0, 1, 4])
    growth, turn = draw.normal(0, 0.003), draw.normal(0, 0.003) * draw.choice([0, 1])
    return Move((centre[0], centre[1]), zoom, (drift[0], drift[1]), growth, turn)


def filmed(picture: Window, move: Move, frames: int, place: Place | None = None) -> Window:
    """The shot (Y, U, V of 4:2:0) that a camera makes of a picture (three planes (1, H, W)); beyond its
    borders it is mirrored.

    With `place` (at even pixels, of an even side) only that part of the shot is computed.
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
    return as_filmed(torch.stack(shots))


def as_filmed(video: Tensor) -> Window:
    """Frames (T, 3, H, W) of Y, U, V on the 0-255 scale as 4:2:0 in 8 bits."""
    chroma = F.avg_pool2d(video[:, 1:], 2)
    return tuple(
        plane.round().clamp(0, 255).to(torch.uint8) for plane in (video[:, 0], chroma[:, 0], chroma[:, 1])
    )
