"""Clips and photos decoded once, into files that are mapped into memory: shared by processes, kept between
runs, bounded.

A file is named by the hash of its source's content, so a source that was changed is decoded again, and holds
the hash of its own. A file that has another is made anew. Files that were not used for the longest time give
way to new ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from vidrestore.errors import ConfigError, MediaError
from vidrestore.files.atomic import ABANDONED, replacing
from vidrestore.files.checked_json import parse_json
from vidrestore.files.lease import is_own
from vidrestore.files.regular import open_regular

Planes = tuple[Tensor, ...]
VERSION = "1"  # changes when the same source decodes to something else
HEADER = 4096  # bytes of JSON and spaces ahead of the planes
SUFFIX, PARTIAL = ".planes", ".partial"
CACHE_BYTES = 20_000_000_000


@dataclass(frozen=True)
class Decoded:
    """Planes (T, H, W) uint8 in a file."""

    path: Path
    shapes: tuple[tuple[int, ...], ...]

    def planes(self) -> Planes:
        """Mapped into memory: what isn't looked at isn't read, and what is changed is changed for this
        process only.

        Raises FileNotFoundError if another run has made room for files of its own meanwhile, or another
        user has put a file there.
        """
        with _own(self.path) as stream:
            mapped = torch.from_numpy(np.memmap(stream, np.uint8, "c", offset=HEADER))
        parts = mapped.split([math.prod(shape) for shape in self.shapes])
        return tuple(part.view(shape) for part, shape in zip(parts, self.shapes, strict=True))


def user_cache_folder() -> Path:
    """Return the system's folder for files that programs can make again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vidrestore"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "vidrestore" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vidrestore"


class DecodedFiles:
    """A folder of at most `limit` bytes of decoded clips. Raises ConfigError if it can't be created."""

    def __init__(self, folder: Path, limit: int = CACHE_BYTES) -> None:
        self.folder, self.limit = folder, limit
        self._used: set[Path] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{folder}: can't be made a folder ({error.strerror}); choose another `cache`"
            ) from error

    def decoded(self, source: Path, decode: Callable[[Path], Planes]) -> Decoded | None:
        """Return the frames of `source`, from the folder or decoded into it; None if there is no room for it.

        Raises what `decode` raises, and ConfigError if the folder is the source's own or lies below it:
        data folders stay as they are.
        """
        return self._decoded(self.reserved(source), source, decode)

    def reserved(self, source: Path) -> Path:
        """Return the place of `source` in the folder: what is there stays while this run goes on. Raises as
        `decoded`, but for `decode`.
        """
        if self.folder.resolve().is_relative_to(source.resolve().parent):
            raise ConfigError(
                f"{self.folder}: lies within the data in {source.parent}; choose another `cache`"
            )
        path = (
            self.folder
            / f"{_hash_of(source, VERSION.encode() + source.suffix.lower().encode())[:40]}{SUFFIX}"
        )
        self._used.add(path)
        return path

    def all_decoded(
        self,
        sources: Iterable[Path],
        decode: Callable[[Path], Planes],
        bad: Callable[[Path, MediaError], None],
    ) -> dict[Path, Decoded | None]:
        """Return the frames of sources, by source, as `decoded` does; without those that can't be, of which
        `bad` hears.
        """
        found: dict[Path, Decoded | None] = {}
        places = {}
        for (
            source
        ) in sources:  # all before the first is made, which could else take the room of one that is there
            try:
                places[source] = self.reserved(source)
            except MediaError as error:
                bad(source, error)
        for source, path in places.items():
            try:
                found[source] = self._decoded(path, source, decode)
            except MediaError as error:
                bad(source, error)
        return found

    def _decoded(self, path: Path, source: Path, decode: Callable[[Path], Planes]) -> Decoded | None:
        return _opened(path) or self._made(path, decode(source))

    def _made(self, path: Path, planes: Planes) -> Decoded | None:
        planes = tuple(plane.contiguous() for plane in planes)
        if not self._make_room(HEADER + sum(plane.nbytes for plane in planes)):
            return None
        digest = hashlib.sha256()
        for plane in planes:
            digest.update(plane.numpy().data)
        header = json.dumps(
            {"shapes": [list(plane.shape) for plane in planes], "sha256": digest.hexdigest()}
        ).encode()
        try:
            with replacing(path, sync=False) as stream:
                stream.write(header.ljust(HEADER))
                for plane in planes:
                    stream.write(plane.numpy().data)
        except OSError:  # a full disk: as if there were no room
            return None
        return Decoded(path, tuple(tuple(plane.shape) for plane in planes))

    def _make_room(self, size: int) -> bool:
        """Remove what was not used for the longest time, but nothing of this run, until `size` bytes fit;
        nothing where they never do.
        """
        files = {}
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another run makes room, too
                if path.suffix == SUFFIX or (
                    path.suffix == PARTIAL and time.time() - path.stat().st_mtime > ABANDONED
                ):
                    files[path] = path.stat()
        held = sum(status.st_size for status in files.values())
        if sum(files[path].st_size for path in files.keys() & self._used) + size > self.limit:
            return False
        for path in sorted(files.keys() - self._used, key=lambda path: files[path].st_mtime):
            if held + size <= self.limit:
                break
            path.unlink(missing_ok=True)
            held -= files[path].st_size
        return held + size <= self.limit


def _opened(path: Path) -> Decoded | None:
    """A file that is there and whole; it counts as used now."""
    try:
        with _own(path) as stream:
            header = parse_json(stream.read(HEADER))
        shapes = tuple(tuple(shape) for shape in header["shapes"])
        size = HEADER + sum(math.prod(shape) for shape in shapes)
        if path.stat().st_size != size or _hash_of(path, skip=HEADER) != header["sha256"]:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    with suppress(OSError):
        os.utime(path)
    return Decoded(path, shapes)


def _own(path: Path) -> BinaryIO:
    """Open a file of this user: what others put into the folder has a hash, too, but of other pictures."""
    stream = open_regular(path)
    if is_own(os.fstat(stream.fileno()), path.parent):
        return stream
    stream.close()
    raise FileNotFoundError(f"{path}: belongs to another user")


def _hash_of(path: Path, start: bytes = b"", skip: int = 0) -> str:
    """SHA-256 of `start` and of a file's content from byte `skip` on. Raises MediaError for a file that can't
    be read.
    """
    digest = hashlib.sha256(start)
    try:
        with open_regular(path, follow=True) as stream:
            stream.seek(skip)
            while part := stream.read(1 << 20):
                digest.update(part)
    except OSError as error:
        raise MediaError(f"{path}: can't be read ({error.strerror})") from error
    return digest.hexdigest()
