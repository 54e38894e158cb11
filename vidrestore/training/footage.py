"""Clean windows to train on: stretches of clips, and slow pans and zooms over photos."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.colour import planes_to_grey
from vidrestore.errors import ConfigError
from vidrestore.media.pictures import SUFFIXES, read_picture
from vidrestore.media.reader import VideoReader

Window = tuple[Tensor, ...]  # planes (T, H, W) uint8: Y, U, V, or gray alone
CACHE_BYTES = 1_500_000_000
PAN_SIZE = (288, 384)


class Footage:
    """Draws windows of `frames` consecutive frames. Same generator state, same windows."""

    def __init__(self, clips: Sequence[Path], stills: Sequence[Path], frames: int, still_share: float) -> None:
        if not clips and not stills:
            raise ConfigError("no clips and no photos to train on; check data.clips and data.stills")
        self.clips, self.stills, self.frames = list(clips), list(stills), frames
        self.still_share = still_share if stills and clips else float(bool(stills))
        self._cache: OrderedDict[Path, Window] = OrderedDict()

    def window(self, draw: np.random.Generator) -> Window:
        """One window of a randomly chosen clip or photo."""
        if draw.random() < self.still_share:
            return pan(read_picture(self.stills[draw.integers(len(self.stills))]), self.frames, draw)
        return self._stretch(self._decoded(self.clips[draw.integers(len(self.clips))]), draw)

    def _stretch(self, planes: Window, draw: np.random.Generator) -> Window:
        """`frames` frames in a row, sometimes every second one; a clip that is too short runs back and forth."""
        count = len(planes[0])
        step = 2 if count >= 2 * self.frames and draw.random() < 0.25 else 1
        first = draw.integers(max(1, count - (self.frames - 1) * step))
        order = first + step * np.arange(self.frames)
        period = max(2 * count - 2, 1)
        order = np.abs((order + count - 1) % period - (count - 1)) if count > 1 else np.zeros(self.frames, dtype=int)
        return tuple(plane[torch.from_numpy(order)] for plane in planes)

    def _decoded(self, path: Path) -> Window:
        if path in self._cache:
            self._cache.move_to_end(path)
            return self._cache[path]
        self._cache[path] = decode_clip(path)
        while sum(plane.nbytes for planes in self._cache.values() for plane in planes) > CACHE_BYTES and len(self._cache) > 1:
            self._cache.popitem(last=False)
        return self._cache[path]


def find_footage(folder: Path, exclude: Sequence[str], suffixes: tuple[str, ...]) -> list[Path]:
    """Files of a folder with one of the suffixes, in order of name. Raises ConfigError where there is no such folder."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; paths in a training configuration are relative to its own folder")
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
    return [path for path in found if path.name not in exclude]


CLIP_SUFFIXES = (".mp4", ".mkv", ".mov", ".webm")
STILL_SUFFIXES = SUFFIXES


def decode_clip(path: Path) -> Window:
    """All colour planes of a clip as 8-bit grey levels."""
    with VideoReader(str(path)) as reader:
        layout = reader.info.video.format
        frames = [planes_to_grey(frame.planes[: layout.plane_count - layout.alpha], layout) for frame in reader.frames()]
    return tuple(torch.stack(plane).round().clamp(0, 255).to(torch.uint8) for plane in zip(*frames, strict=True))


def pan(picture: Sequence[np.ndarray], frames: int, draw: np.random.Generator) -> Window:
    """A camera that drifts, zooms and turns slowly over a photo: Y, U, V of 4:2:0."""
    source = torch.from_numpy(np.stack(picture)).float()[None]
    height, width = source.shape[2:]
    zoom, centre = draw.uniform(1.0, 2.0), draw.uniform(0.3, 0.7, 2) * (height, width)
    drift = draw.normal(0, 1, 2) * draw.choice([0, 1, 4])
    growth, turn = draw.normal(0, 0.003), draw.normal(0, 0.003) * draw.choice([0, 1])
    y, x = torch.meshgrid(*(torch.arange(size).float() - size / 2 for size in PAN_SIZE), indexing="ij")
    shots = []
    for step in np.arange(frames) - frames / 2:
        scale, cosine, sine = zoom * math.exp(growth * step), math.cos(turn * step), math.sin(turn * step)
        rows = centre[0] + drift[0] * step + scale * (y * cosine + x * sine)
        columns = centre[1] + drift[1] * step + scale * (x * cosine - y * sine)
        at = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], -1)[None]
        shots.append(F.grid_sample(source, at, mode="bicubic", padding_mode="reflection", align_corners=True)[0])
    film = torch.stack(shots)
    chroma = F.avg_pool2d(film[:, 1:], 2)
    return tuple(plane.round().clamp(0, 255).to(torch.uint8) for plane in (film[:, 0], chroma[:, 0], chroma[:, 1]))
