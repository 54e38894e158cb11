"""Decoded clips and photos to train on: random windows and crops of one at a time, for groups of patches and
validation, and batches of crops.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.errors import ConfigError, MediaError
from vidrestore.lab.degrade.counters import Counters
from vidrestore.lab.degrade.per_sample import counters
from vidrestore.lab.training.data.batches import WHOLE_BATCH, BatchSource, Share
from vidrestore.lab.training.data.decoded import Decoded
from vidrestore.lab.training.data.planes import Camera, Planes, Shot, pan_of
from vidrestore.media.reading import pictures
from vidrestore.media.reading.probe import probe
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pixels.colour import chroma_grid, planes_to_grey, rgb_matrix, yuv_to_rgb
from vidrestore.pixels.frames import ColourTags, PixelFormat

# planes (T, H, W) uint8: Y, U, V (R, G, B of an RGB clip), or gray alone
Window = tuple[Tensor, ...]
Coding = tuple[PixelFormat, ColourTags]
CLIP_SUFFIXES = (".mp4", ".mkv", ".mov", ".webm")
STILL_SUFFIXES = pictures.READABLE_SUFFIXES
MEMORY_CACHE_BYTES = 1_500_000_000
PAN = 224  # side in pixels of a window that moves over a photo
CLIP_TRIES = 30  # clips that are tried until one is large enough
# pixel format and colour tags of a photo
PHOTO_CODING = (
    PixelFormat("yuv444p", "yuv", 8, 0, 0),
    ColourTags(matrix=6, range=1, chroma_location=2),
)


class Footage:
    """Clips and photos, and windows of `frames` consecutive frames that follow from a generator's state.

    `still_share` of them are pans over photos, if there are both clips and photos. Clips and photos in
    `decoded` are read from there; others are decoded and cached, up to `cache_bytes`. Raises ConfigError if
    there is neither clip nor photo.
    """

    def __init__(
        self,
        clips: Sequence[Path],
        stills: Sequence[Path],
        frames: int,
        still_share: float,
        cache_bytes: int = MEMORY_CACHE_BYTES,
        decoded: Mapping[Path, Decoded | None] | None = None,
    ) -> None:
        if not clips and not stills:
            raise ConfigError(
                "no clips and no photos to train on; check data.clips and data.stills"
            )
        self.clips = list(clips)
        self.stills = list(stills)
        self.frames = frames
        self._photos = frozenset(stills)
        self.still_share = still_share if stills and clips else float(bool(stills))
        self.cache_bytes = cache_bytes
        self.decoded = decoded or {}
        self._cache: OrderedDict[Path, Window] = OrderedDict()
        self._codings: dict[Path, Coding] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cache out when pickling: another process decodes for itself."""
        return vars(self) | {"_cache": OrderedDict()}

    def window(self, rng: np.random.Generator, side: int = 1) -> Window:
        """Return a window of a random clip, or square and with chroma of full size, of a photo. Raises
        MediaError if all clips are smaller than `side`.
        """
        # clips as they are; over a photo the camera moves
        path = self._random_source(rng)
        if path not in self._photos:
            return random_frames(self._large(rng, path, side)[1], self.frames, rng)
        shot = self._shot(path)
        view = Camera(PAN, self.frames).view(
            counters(rng), Planes([shot], PAN, lambda number: shot), still=True
        )
        return pan_of(shot.planes, view.crop(0))

    def rgb_crop(
        self,
        rng: np.random.Generator,
        side: int,
        frames: int,
        widest: int | None = None,
    ) -> Tensor:
        """Return a random crop (frames, 3, side, side) of a clip, or of a photo that stands still, R'G'B' in
        [0, 1]. Raises MediaError if all seem to be smaller than `side`.

        With `widest` the crop has a random even size from `side` to `widest`, or to the clip's size, and is
        resized to `side`.
        """
        path, planes = self._large(rng, self._random_source(rng), side)
        # the crop may be larger than asked, and is then reduced
        (format, tags), (height, width), target = (
            self._coding(path),
            planes[0].shape[1:],
            side,
        )
        if widest is not None:
            side = 2 * int(
                rng.integers(side // 2, max(side, min(widest, height, width)) // 2 + 1)
            )
        window = random_frames(random_crop(planes, format, side, rng), frames, rng)
        rgb = yuv_to_rgb(
            [plane.float() for plane in window], format, tags, height
        ).clamp_(0, 1)
        if widest is None:
            return rgb
        return F.interpolate(
            rgb, (target, target), mode="bilinear", antialias=True, align_corners=False
        )

    def shots(self) -> Iterator[Shot]:
        """Yield all clips, then all photos, decoded."""
        return map(self._shot, [*self.clips, *self.stills])

    def shot(self, number: int) -> Shot:
        """Return one of the shots, decoded, or mapped into memory."""
        clips = len(self.clips)
        return self._shot(
            self.clips[number] if number < clips else self.stills[number - clips]
        )

    def _shot(self, path: Path) -> Shot:
        return shot_of(
            path, path in self._photos, self._planes(path), self._coding(path)
        )

    def _coding(self, path: Path) -> Coding:
        """Return the pixel format and the colour tags of a clip or photo."""
        if path in self._photos:
            return PHOTO_CODING
        if path not in self._codings:
            video = probe(str(path)).video
            self._codings[path] = (video.format, video.colour)
        return self._codings[path]

    def _random_source(self, rng: np.random.Generator) -> Path:
        """Return the path of a random clip or photo."""
        paths = self.stills if rng.random() < self.still_share else self.clips
        return paths[rng.integers(len(paths))]

    def _large(
        self, rng: np.random.Generator, path: Path, side: int
    ) -> tuple[Path, Window]:
        """Return the planes of a clip, or of another if it is small. Raises MediaError if all are."""
        # a few others may be large enough
        candidates = self.clips or self.stills
        for _ in range(CLIP_TRIES):
            planes = self._planes(path)
            height, width = planes[0].shape[1:]
            if min(height, width) >= side:
                return path, planes
            path = candidates[rng.integers(len(candidates))]
        raise MediaError(
            f"{path}: frames of {width}x{height} are smaller than a patch of {side}x{side}, as are those "
            "of other clips; add larger clips"
        )

    def _planes(self, path: Path) -> Window:
        """Return the planes decoded before the run; decode them if missing, or removed since."""
        # from the cache on the disk, else from that in memory
        file = self.decoded.get(path)
        with suppress(FileNotFoundError):
            if file:
                return file.planes()
        if path in self._cache:
            self._cache.move_to_end(path)
            return self._cache[path]
        decoded = decode_whole(path)
        self._cache[path] = decoded
        while len(self._cache) > 1 and self.cached_bytes > self.cache_bytes:
            self._cache.popitem(last=False)
        return decoded

    @property
    def cached_bytes(self) -> int:
        """The memory of the cached clips: at most `cache_bytes`, or one clip."""
        return sum(plane.nbytes for planes in self._cache.values() for plane in planes)


class PlaneSource(BatchSource):
    """Batches of crops drawn from footage.

    A sample depends on the seed, the step and its number alone, so a resumed run and any number of processes
    draw the same. The first samples of a batch are of photos, a fixed number of them, the others of clips.
    """

    def __init__(self, footage: Footage, seed: int, camera: Camera) -> None:
        self.footage = footage
        self.seed = seed
        self.camera = camera
        self._planes: Planes | None = None

    @property
    def planes(self) -> Planes:
        """The decoded data."""
        if self._planes is None:
            self._planes = Planes(
                self.footage.shots(), self.camera.side, self.footage.shot
            )
        return self._planes

    def batches(
        self, steps: range, size: int, workers: int = 0, share: Share = WHOLE_BATCH
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
        crops = []
        for still, part in self.parts(size, samples):
            view = camera.view(self.counters(step, part), self.planes, still)
            crops.append(self.planes.rgb(view))
        return torch.cat(crops)

    def parts(self, size: int, samples: range) -> list[tuple[bool, range]]:
        """Return the samples of a batch that are photos, with True, and of clips, where there are any."""
        # at least one sample of each kind, however small the batch
        photos = self.footage.still_share if len(self.planes.clips) else 1.0
        photos = photos if len(self.planes.stills) else 0.0
        stills = round(size * photos)
        if 0 < photos < 1 and size > 1:
            stills = min(max(stills, 1), size - 1)
        stills = min(max(stills, samples.start), samples.stop)
        parts = (
            (True, range(samples.start, stills)),
            (False, range(stills, samples.stop)),
        )
        return [(still, part) for still, part in parts if part]


def shot_of(path: Path, still: bool, planes: Window, coding: Coding) -> Shot:
    """Return decoded planes with their conversion to RGB."""
    format, tags = coding
    matrix = rgb_matrix(format, tags, planes[0].shape[1])
    down, right = chroma_grid(format, tags)
    return Shot(
        path.name, still, planes, (down[0], right[0]), (down[1], right[1]), matrix
    )


def random_crop(
    planes: Window, format: PixelFormat, side: int, rng: np.random.Generator
) -> Window:
    """Return a random square crop of all frames, at a place that is a multiple of the chroma subsampling."""
    # a place that chroma has, too
    coarse = 1 << format.chroma_height_shift, 1 << format.chroma_width_shift
    height, width = planes[0].shape[1:]
    row = int(rng.integers((height - side) // coarse[0] + 1)) * coarse[0]
    column = int(rng.integers((width - side) // coarse[1] + 1)) * coarse[1]
    cut = []
    for plane in planes:
        down, right = (1, 1) if plane is planes[0] else coarse
        rows = slice(row // down, -(-(row + side) // down))
        cut.append(plane[:, rows, column // right : -(-(column + side) // right)])
    return tuple(cut)


def random_frames(planes: Window, frames: int, rng: np.random.Generator) -> Window:
    """Return `frames` frames in a row, or every second one; a short clip runs back and forth."""
    # every second frame is faster motion
    count = len(planes[0])
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


def find_footage(
    folder: Path, exclude: Sequence[str], suffixes: tuple[str, ...]
) -> list[Path]:
    """Return the files of a folder with a suffix, sorted. Raises ConfigError if it can't be read."""
    try:
        if not folder.is_dir():
            raise ConfigError(
                f"{folder}: no such folder; name that of your videos and photos by `data`, or in the "
                "configuration, where paths are relative to its own folder"
            )
        paths = sorted(
            path for path in folder.iterdir() if path.suffix.lower() in suffixes
        )
    except OSError as error:
        raise ConfigError(
            f"{folder}: the folder can't be read ({error.strerror})"
        ) from error
    return [path for path in paths if path.name not in exclude]


def decode_whole(path: Path) -> Window:
    """Decode a clip, or a photo as a clip of one frame. Raises MediaError for a damaged file."""
    if path.suffix.lower() in STILL_SUFFIXES:
        return tuple(
            torch.from_numpy(plane.copy())[None]
            for plane in pictures.read_picture(path)
        )
    return decode_clip(path)


def decode_clip(path: Path) -> Window:
    """Decode a clip's colour planes to 8-bit grey levels. Raises MediaError for damage or no frames."""
    frames = []
    with VideoReader(str(path)) as reader:
        layout = reader.info.video.format
        for frame in reader.frames():
            planes = planes_to_grey(
                frame.planes[: layout.plane_count - layout.alpha], layout
            )
            # convert frame by frame, because floats take four times the memory
            frames.append(
                [plane.round().clamp(0, 255).to(torch.uint8) for plane in planes]
            )
    if reader.damage.found:
        raise MediaError(
            f"{path}: {reader.damage.sentence}; remove the clip from the folder, or skip it with `skip_bad`"
        )
    if not frames:
        raise MediaError(
            f"{path}: has no frame that can be decoded; remove the clip from the folder"
        )
    return tuple(torch.stack(plane) for plane in zip(*frames, strict=True))
