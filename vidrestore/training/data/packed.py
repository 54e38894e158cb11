"""Training data as parts: ZIP files of at most 50 MB with all that resident training needs. They hold every
bit of the decoded planes, and no PyAV is needed to read them.

    write_parts(Path("parts"), source.shots(), held_out, config.data)
    parts = Parts(Path("parts"))
    parts.shots(), parts.held_out

A plane of a frame is an entry, SHOT/PLANE/FRAME: zlib of the differences of its samples to those on the left
and above, or of its change since the frame before, whichever are smaller. The last part has index.json and
the held-out crops.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vidrestore.errors import ConfigError
from vidrestore.files.atomic import replacing
from vidrestore.training.config import FootageConfig
from vidrestore.training.data.pairs import HeldOutPairs
from vidrestore.training.data.planes import Shot
from vidrestore.training.data.super_resolution import HeldOutClips

LARGEST = 50_000_000  # bytes of a part
TAIL = 100_000  # of them, kept for the list of entries
NAME, INDEX, HELD_OUT = "part-{:03}.zip", "index.json", "held-out.pt"
KINDS = {kind.__name__: kind for kind in (HeldOutClips, HeldOutPairs)}
MOVABLE = ("clips", "stills", "resident")  # settings of [data] that may differ where the parts are read
Samples = NDArray[np.uint8]


class Parts:
    """Parts in a folder: `shots` yields what was written, `held_out` are the crops to validate on.

    Raises ConfigError if some are missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            paths = sorted(folder.glob(NAME.replace("{:03}", "*")))
            self._files = [zipfile.ZipFile(path) for path in paths]
            self._entries = {name: file for file in self._files for name in file.namelist()}
            self.index = json.loads(self._read(INDEX))
            stored = torch.load(io.BytesIO(self._read(HELD_OUT)), weights_only=True)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise self._damaged(error) from error
        kind = self.index["held out"]
        self.held_out: Any = KINDS[kind](**stored) if kind in KINDS else stored
        self.still_share = float(self.index["data"]["still_share"])

    def check(self, data: FootageConfig) -> None:
        """Raise ConfigError unless the parts were written for a [data] like this one."""
        written, now = self.index["data"], _plain(data)
        for name in now:
            if name not in MOVABLE and written.get(name) != now[name]:
                raise ConfigError(
                    f"{self.folder}: was packed with data.{name} = {written.get(name)!r}, but it is "
                    f"{now[name]!r}; change it back, or pack again"
                )

    def shots(self) -> Iterator[Shot]:
        """Yield the clips, then the photos."""
        return map(self.shot, range(len(self.index["shots"])))

    def shot(self, number: int) -> Shot:
        """Return one of them."""
        described = self.index["shots"][number]
        planes = [
            torch.from_numpy(self._plane(f"{number:05}/{plane}", shape))
            for plane, shape in enumerate(described["shapes"])
        ]
        steps, sites, matrix = (described[name] for name in ("steps", "sites", "matrix"))
        return Shot(described["name"], described["still"], tuple(planes), steps, sites, matrix)

    def _plane(self, name: str, shape: list[int]) -> Samples:
        frames = np.zeros(shape, np.uint8)
        for number, frame in enumerate(frames):
            try:
                differences = np.frombuffer(zlib.decompress(self._read(f"{name}/{number:05}")), np.uint8)
                follows, differences = bool(differences[0]), differences[1:].reshape(frame.shape)
            except (OSError, KeyError, ValueError, IndexError, zlib.error, zipfile.BadZipFile) as error:
                raise self._damaged(error) from error
            np.cumsum(differences, 0, np.uint8, frame)
            np.cumsum(frame, 1, np.uint8, frame)
            if follows:
                frame += frames[number - 1]
        return frames

    def _read(self, name: str) -> bytes:
        return self._entries[name].read(name)  # checks its sum

    def _damaged(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"{self.folder}: the parts of training data are incomplete or damaged ({error}); copy or pack "
            "them again"
        )


def is_packed(folder: Path) -> bool:
    """Return True if a folder holds parts of training data."""
    return (folder / NAME.format(1)).is_file()


def write_parts(folder: Path, shots: Iterable[Shot], held_out: Any, data: FootageConfig) -> list[Path]:
    """Write the parts to a folder and return their paths. Raises ConfigError if it holds parts already, or
    can't be written.
    """
    if is_packed(folder):
        raise ConfigError(f"{folder}: holds parts of training data already; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            writer = _Writer(folder, stack)
            index = [_write_shot(writer, number, shot) for number, shot in enumerate(shots)]
            kind = type(held_out).__name__
            stored = io.BytesIO()
            torch.save(vars(held_out) if kind in KINDS else held_out, stored)
            writer.write(HELD_OUT, stored.getvalue())
            described = {"shots": index, "held out": kind, "data": _plain(data)}
            writer.write(INDEX, json.dumps(described).encode())
    except OSError as error:
        raise ConfigError(f"{folder}: parts can't be written there ({error.strerror})") from error
    return writer.paths


class _Writer:
    """Writes entries to parts, a new one when an entry doesn't fit."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.paths: list[Path] = []
        self.size = LARGEST
        self.file: zipfile.ZipFile

    def write(self, name: str, content: bytes) -> None:
        taken = len(content) + 2 * len(name) + 200
        if self.size + taken > LARGEST - TAIL:
            self.stack.close()
            self.paths.append(self.folder / NAME.format(len(self.paths) + 1))
            stream = self.stack.enter_context(replacing(self.paths[-1]))
            self.file, self.size = self.stack.enter_context(zipfile.ZipFile(stream, "w")), 0
        self.file.writestr(name, content)
        self.size += taken


def _write_shot(writer: _Writer, number: int, shot: Shot) -> dict[str, Any]:
    for plane, samples in enumerate(shot.planes):
        before: Samples | None = None
        for time, tensor in enumerate(samples):
            frame = tensor.numpy()
            writer.write(f"{number:05}/{plane}/{time:05}", _packed(frame, before))
            before = frame
    described = {"shapes": [list(plane.shape) for plane in shot.planes]}
    return described | {name: getattr(shot, name) for name in ("name", "still", "steps", "sites", "matrix")}


def _packed(frame: Samples, before: Samples | None) -> bytes:
    """Return 0 or 1, whether it is of the change since the frame before, and the differences, by zlib."""
    found = [_differences(frame)] + ([] if before is None else [_differences(frame - before)])
    sizes = [int(np.abs(each.view(np.int8), dtype=np.int16).sum()) for each in found]
    best = int(np.argmin(sizes))
    return zlib.compress(bytes([best]) + found[best].tobytes())


def _differences(frame: Samples) -> Samples:
    """Return the differences of the differences along both axes, modulo 256."""
    return np.diff(np.diff(frame, axis=0, prepend=np.uint8(0)), axis=1, prepend=np.uint8(0))


def _plain(data: FootageConfig) -> dict[str, Any]:
    """Return the settings of [data] as JSON has them."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(data)))
    return plain
