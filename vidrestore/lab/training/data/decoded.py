"""A cache of decoded clips and photos in memory-mapped files, shared by processes, kept between runs, bounded
in size.

A file is named by the hash of its source's content, so a changed source is decoded again. It also holds the
hash of its own content; a file whose content doesn't match is made again. The least recently used files are
removed to make room.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from vidrestore.errors import ConfigError, MediaError
from vidrestore.files.atomic import remove_all_partials, replacing
from vidrestore.files.regular import is_own, open_regular, parse_json

Planes = tuple[Tensor, ...]
DECODING_VERSION = "1"  # to be changed if the same source decodes to other samples
HEADER = 4096  # bytes of JSON, padded with spaces, before the planes
PLANES_SUFFIX = ".planes"
_CACHED_NAME = re.compile(rf"[0-9a-f]{{40}}\{PLANES_SUFFIX}")
DISK_CACHE_BYTES = 20_000_000_000


@dataclass(frozen=True)
class Decoded:
    """A file with planes (T, H, W) uint8 of the given shapes."""

    path: Path
    shapes: tuple[tuple[int, ...], ...]

    def planes(self) -> Planes:
        """Return the planes, mapped into memory copy-on-write: only what is used is read, changes stay in
        this process.

        Raises FileNotFoundError if another run has removed the file since, or another user has replaced it.
        """
        # copy-on-write, so that a change never reaches the file
        with _open_own(self.path) as stream:
            mapped = torch.from_numpy(np.memmap(stream, np.uint8, "c", offset=HEADER))
        flat = mapped.split([math.prod(shape) for shape in self.shapes])
        return tuple(
            part.view(shape) for part, shape in zip(flat, self.shapes, strict=True)
        )


class DecodedFiles:
    """A folder of at most `limit` bytes of decoded clips. Raises ConfigError if it can't be created."""

    def __init__(self, folder: Path, limit: int = DISK_CACHE_BYTES) -> None:
        self.folder = folder
        self.limit = limit
        self._used: set[Path] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{folder}: can't create this folder ({error.strerror}); choose another `cache`"
            ) from error

    def reserve(self, source: Path) -> Path:
        """Return the path of `source` in the cache, kept for this run. Raises ConfigError for a cache in the
        data.
        """
        # a cache in the data would be read as data
        if self.folder.resolve().is_relative_to(source.resolve().parent):
            raise ConfigError(
                f"{self.folder}: is inside the data folder {source.parent}; choose another `cache`"
            )
        name = _hash_of(source, (DECODING_VERSION + source.suffix.lower()).encode())[
            :40
        ]
        path = self.folder / f"{name}{PLANES_SUFFIX}"
        self._used.add(path)
        return path

    def all_decoded(
        self,
        sources: Iterable[Path],
        decode: Callable[[Path], Planes],
        on_error: Callable[[Path, MediaError], None],
    ) -> dict[Path, Decoded | None]:
        """Return the frames of all sources by path, decoded into the cache if needed, None if it has no room;
        `on_error` is called for those that can't be read. Raises as `reserve` does.
        """
        decoded: dict[Path, Decoded | None] = {}
        paths = {}
        # reserve all files first, so that making one doesn't remove another
        for source in sources:
            try:
                paths[source] = self.reserve(source)
            except MediaError as error:
                on_error(source, error)
        for source, path in paths.items():
            try:
                decoded[source] = _read_valid(path) or self._write(path, decode(source))
            except MediaError as error:
                on_error(source, error)
        return decoded

    def _write(self, path: Path, planes: Planes) -> Decoded | None:
        """Write decoded planes to the cache and return their record; None if they find no room."""
        # the planes as they lie in memory, and a digest of them
        planes = tuple(plane.contiguous() for plane in planes)
        if not self._make_room(HEADER + sum(plane.nbytes for plane in planes)):
            return None
        digest = hashlib.sha256()
        for plane in planes:
            digest.update(plane.numpy().data)
        header = json.dumps(
            {
                "shapes": [list(plane.shape) for plane in planes],
                "sha256": digest.hexdigest(),
            }
        ).encode()
        try:
            with replacing(path, sync=False, private=True) as stream:
                stream.write(header.ljust(HEADER))
                for plane in planes:
                    stream.write(plane.numpy().data)
        except OSError:  # the disk is full
            return None
        return Decoded(path, tuple(tuple(plane.shape) for plane in planes))

    def _make_room(self, size: int) -> bool:
        """Remove the least recently used files of other runs; return True if `size` bytes fit then."""
        remove_all_partials(self.folder)
        # files that this run uses are never removed
        files = {}
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another run may remove files, too
                if _CACHED_NAME.fullmatch(path.name):
                    files[path] = path.stat()
        total = sum(status.st_size for status in files.values())
        if (
            sum(files[path].st_size for path in files.keys() & self._used) + size
            > self.limit
        ):
            return False
        for path in sorted(
            files.keys() - self._used, key=lambda path: files[path].st_mtime
        ):
            if total + size <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= files[path].st_size
        return total + size <= self.limit


def _read_valid(path: Path) -> Decoded | None:
    """Return a complete, undamaged file and mark it as used now; None if there is none."""
    # the size first, which is cheap; then the content
    try:
        with _open_own(path) as stream:
            header = parse_json(stream.read(HEADER))
        shapes = tuple(tuple(shape) for shape in header["shapes"])
        size = HEADER + sum(math.prod(shape) for shape in shapes)
        if (
            path.stat().st_size != size
            or _hash_of(path, skip=HEADER) != header["sha256"]
        ):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    with suppress(OSError):
        os.utime(path)
    return Decoded(path, shapes)


def _open_own(path: Path) -> BinaryIO:
    """Open a file of this user: others could put files with a matching hash into a shared folder."""
    # the owner of the open file, which can't be exchanged any more
    stream = open_regular(path)
    if is_own(os.fstat(stream.fileno()), path.parent):
        return stream
    stream.close()
    raise FileNotFoundError(f"{path}: belongs to another user")


def _hash_of(path: Path, start: bytes = b"", skip: int = 0) -> str:
    """Return the SHA-256 of `start` and of a file's bytes from `skip`. Raises MediaError."""
    try:
        with open_regular(path) as stream:
            stream.seek(skip)
            return hashlib.file_digest(
                stream, lambda: hashlib.sha256(start)
            ).hexdigest()
    except OSError as error:
        raise MediaError(f"{path}: can't be read ({error.strerror})") from error
