"""Restored frames of a segment that takes long to finish, stored without loss for the next run.

Encoders can't stop halfway and resume, and short segments make larger videos. So slow work is not lost with
an unfinished segment: its frames wait in a journal, from which the next run fills the segment. A journal
ends with the last whole record; whatever follows it is discarded.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import MediaError
from vidrestore.files.regular import open_descriptor
from vidrestore.frames import Frame, PixelFormat

SLOW = 30.0  # seconds; segments that take less have no journal
HELD_SECONDS = 5.0  # time on a segment before its pace is known
HELD_BYTES = 16 << 20  # frames held until then
SYNC_SECONDS = 10.0
_RECORD = struct.Struct(">qII")  # pts, bytes that follow, their checksum
_SPARE = 1 << 10  # bytes by which compression may enlarge a frame


class FrameJournal:
    """The file `path`, for frames of this size and format; `label` identifies its segment.

    Raises OSError, and MediaError for records that hold no frames.
    """

    def __init__(self, path: Path, label: str, pixels: PixelFormat, height: int, width: int) -> None:
        self.path, self.head = path, label.encode()
        self.sizes = [pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)]
        self.kind = np.dtype("<f4" if pixels.depth == 32 else "u1" if pixels.depth == 8 else "<u2")
        self.size = self.kind.itemsize * sum(rows * columns for rows, columns in self.sizes)
        self._file: BinaryIO | None = None
        self._synced = 0.0

    def count(self, times: Sequence[int]) -> int:
        """Return how many frames are there, the first of those with these `times`."""
        return sum(1 for _ in self._records(times))

    def frames(self, times: Sequence[int]) -> Iterator[Frame]:
        """Yield the frames with these times."""
        for pts, data in self._records(times):
            yield Frame(self._planes(data), pts)

    def _records(self, times: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        with suppress(FileNotFoundError), os.fdopen(open_descriptor(self.path), "rb") as file:
            if file.read(len(self.head)) != self.head:
                return
            for pts in times:
                if (data := self._record(file, pts)) is None:
                    return
                yield pts, data

    def _record(self, file: BinaryIO, pts: int) -> bytes | None:
        head = file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            return None
        time, size, check = _RECORD.unpack(head)
        data = file.read(size) if time == pts and size <= self.size + _SPARE else b""
        return data if data and zlib.crc32(data) == check else None

    def resume(self, times: Sequence[int]) -> None:
        """Append after the frames with these times; whatever follows them is discarded."""
        kept = sum(_RECORD.size + len(data) for _, data in self._records(times))
        descriptor = open_descriptor(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._file.truncate(len(self.head) + kept if kept else 0)
        if not kept:
            self._file.write(self.head)

    def add(self, frame: Frame) -> None:
        """Store one more frame."""
        assert self._file is not None
        data = zlib.compress(b"".join(_differences(plane, self.kind) for plane in frame.planes), 1)
        self._file.write(_RECORD.pack(frame.pts, len(data), zlib.crc32(data)) + data)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def _planes(self, data: bytes) -> tuple[NDArray[Any], ...]:
        """Unpack a record. Raises MediaError for one that holds no frame, though its checksum is right."""
        try:
            raw = zlib.decompressobj().decompress(data, self.size)
        except zlib.error:
            raw = b""
        if len(raw) != self.size:
            raise MediaError(
                f"{self.path}: holds something that vidrestore did not write; add `restart` to begin again"
            )
        planes, at = [], 0
        for rows, columns in self.sizes:
            stored = np.frombuffer(raw, self.kind, rows * columns, at).reshape(rows, columns)
            at += stored.nbytes
            summed = stored if self.kind.kind == "f" else np.cumsum(stored, axis=1, dtype=self.kind)
            planes.append(summed.astype(self.kind.newbyteorder("="), copy=True))
        return tuple(planes)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def remove(self) -> None:
        """Remove the file: the segment is finished."""
        self.close()
        self.path.unlink(missing_ok=True)


def _differences(plane: NDArray[Any], kind: np.dtype[Any]) -> bytes:
    """Return integer samples as differences along each row, which compress better."""
    plane = plane.astype(kind, copy=False)
    if kind.kind != "f":
        plane = np.diff(plane, axis=1, prepend=kind.type(0))  # wraps around, as the sum does
    return plane.tobytes()


class SafeFrames:
    """Stores the frames of one segment of about `length` frames in a journal if the work is slow.

    The first `kept` frames are in the journal already. `began`: when work on the segment began.
    """

    def __init__(self, journal: FrameJournal, length: int, began: float, kept: Sequence[int] = ()) -> None:
        self.journal, self.length, self.began, self.kept = journal, length, began, kept
        self.frames = 0
        self._slow: bool | None = True if kept else None
        self._held: list[Frame] = []
        self._bytes = 0
        self._open = False

    def add(self, frame: Frame) -> None:
        """Record one more restored frame of the segment."""
        self.frames += 1
        if self._slow is False or self.frames <= len(self.kept):
            return
        self._held.append(frame)
        self._bytes += frame.nbytes
        if self._slow is None:
            seconds = time.monotonic() - self.began
            if seconds < HELD_SECONDS and self._bytes < HELD_BYTES:
                return
            self._slow = seconds / self.frames * self.length >= SLOW
        self._store()

    def _store(self) -> None:
        """Store what is held if the work is slow. A journal that can't be written to is given up."""
        held, self._held = self._held, []
        if not self._slow:
            return
        try:
            if not self._open:
                self.journal.resume(self.kept)
                self._open = True
            for frame in held:
                self.journal.add(frame)
        except OSError:
            self._slow = False

    def close(self) -> None:
        self._held.clear()
        self.journal.close()

    def remove(self) -> None:
        """Remove the journal of a finished segment."""
        self._held.clear()
        self.journal.remove()
