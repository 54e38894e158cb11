"""Open files that other users may have put there: regular files only, never larger than expected, without
waiting, and for writing never through a link; and JSON in them, whose types are checked.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import mmap
import os
import secrets
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, create_model

from vidrestore.errors import MediaError
from vidrestore.settings.checking import converted

MEGABYTE = 1 << 20
LARGEST_PLAN = 64 * MEGABYTE  # the plan of a video of ten hours has 20
LARGEST_TOML = MEGABYTE
LONGEST_PATH = 247  # characters of a folder's; a file may have 259

# Flags that Windows lacks count as 0 there.
_SAFE = sum(
    getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")
)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_OF_DISKS = [
    getattr(errno, name, 0) for name in ("EIO", "ESTALE", "ENODEV", "ETIMEDOUT")
]
_KINDS_OF_FILES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


class UnexpectedFileError(OSError):
    """Not a regular file, or too large; `filename` names it, `strerror` gives the reason."""


def create_new(path: Path, mode: int = 0o600) -> int:
    """Create a new file and return its descriptor. Raises FileExistsError, even for a dangling link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK | _SAFE, mode)


def open_descriptor(path: Path, flags: int = os.O_RDONLY, *, mode: int = 0o600) -> int:
    """Open a regular file, for writing not through a link. Raises UnexpectedFileError for anything else."""
    # the descriptor is that of the file that was checked, whatever the name leads to later
    try:
        descriptor = os.open(
            path, flags | _SAFE | (0 if flags == os.O_RDONLY else _NO_LINK), mode
        )
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise _wrong_kind(path, os.lstat(path)) from error
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor
    os.close(descriptor)
    raise _wrong_kind(path, status)


def open_regular(path: Path | str) -> io.BufferedReader:
    """Open a regular file for reading. Raises OSError with the reason."""
    return os.fdopen(open_descriptor(Path(path)), "rb")


def check_regular(path: Path) -> None:
    """Raise OSError unless `path` leads to a regular file, for libraries that open files by name."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise _wrong_kind(path, status)


def read_limited(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes. Raises OSError with the reason."""
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        reason = f"larger than {limit // MEGABYTE} MB, which no such file is"
        raise UnexpectedFileError(errno.EINVAL, reason, str(path))
    return content


def _wrong_kind(path: Path | str, status: os.stat_result) -> UnexpectedFileError:
    kind = _KINDS_OF_FILES.get(stat.S_IFMT(status.st_mode), "something else")
    return UnexpectedFileError(
        errno.EINVAL, f"{kind}, but a regular file was expected", str(path)
    )


def is_own(status: os.stat_result, folder: Path) -> bool:
    """Return True if a file in a folder belongs to the user of this process, or to the user that new files
    there belong to, as on some file systems.
    """
    if not hasattr(os, "geteuid") or status.st_uid == os.geteuid():
        return True
    # the owner that a new file gets there, as on some network shares
    probe = folder / f".{secrets.token_hex(8)}.partial"
    with suppress(OSError):
        descriptor = create_new(probe)
        try:
            return os.fstat(descriptor).st_uid == status.st_uid
        finally:
            os.close(descriptor)
            probe.unlink()
    return False


def is_own_or_guarded(path: Path) -> bool:
    """Return True for a file that no other user can have put there: the user's own, or one in a folder where
    nobody else may write. Raises OSError.
    """
    others = stat.S_IWGRP | stat.S_IWOTH
    is_guarded = not hasattr(os, "geteuid") or not os.stat(path.parent).st_mode & others
    return is_guarded or is_own(os.stat(path), path.parent)


def is_too_long(path: str | os.PathLike[str]) -> bool:
    """Return True for a path that Windows takes only if long paths are enabled there."""
    return sys.platform == "win32" and len(os.path.abspath(path)) > LONGEST_PATH


def write_problem(output: str, error: OSError) -> MediaError:
    """Return the MediaError that explains a failed write."""
    # what the user can do about it
    if isinstance(error, UnexpectedFileError):
        return MediaError(f"{error.filename}: {error.strerror}; remove it")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return MediaError(
            f"{output}: no space left to write it ({error.strerror}); free some, or choose another folder "
            "with `output`"
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return disk_problem(output, error)
    if error.errno == errno.ENOENT and is_too_long(
        path := str(error.filename or output)
    ):
        return MediaError(
            f"{output}: the path of what is written for it has {len(os.path.abspath(path))} characters, too "
            "many for Windows; choose a shorter folder with `output`, or enable long paths in Windows"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return MediaError(
            f"{output}: can't be written ({error.strerror}); choose another folder with `output`"
        )
    return MediaError(f"{output}: writing it failed ({error})")


def disk_problem(name: str, error: OSError) -> MediaError:
    """Return the MediaError that explains why the system failed to read, write or remove a file."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return MediaError(
            f"{name}: too many open files; raise the limit (`ulimit -n 256`) and run again"
        )
    advice = (
        "; check the disk, or the share that it is on"
        if error.errno in _OF_DISKS
        else ""
    )
    place = error.filename or name
    return MediaError(
        f"{place}: can't be read or written ({error.strerror or error}){advice}"
    )


@contextmanager
def readable(source: str) -> Iterator[None]:
    """Raise errors of the system while a source is read as MediaError."""
    try:
        yield
    except OSError as error:
        raise disk_problem(source, error) from error


# Checkpoints of others, as `torch.save` writes them

# the only type that torch unpickles with a claimed size and no content
_ASKS_FOR_MEMORY = b"bytearray"


def check_pickled(path: Path) -> None:
    """Raise OSError unless `path` leads to a regular file, ValueError if its content would be larger than the
    file.

    `torch.save` makes archives with uncompressed members. A member that is compressed, or that shares bytes
    with others, may be a thousand times as large; and a pickle may ask for any amount of memory.
    """
    check_regular(path)
    size = path.stat().st_size
    # members must lie in the archive as they are
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        if packed := [
            member.filename
            for member in members
            if member.compress_type != zipfile.ZIP_STORED
        ]:
            raise ValueError(f"{len(packed)} of its members are compressed")
        if (unpacked := sum(member.file_size for member in members)) > size:
            raise ValueError(f"its members have {unpacked} bytes, and the file {size}")
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content.find(_ASKS_FOR_MEMORY) >= 0:
            raise ValueError("it asks for memory without content for it")


# JSON that this program wrote, with limits on size and depth

DEEPEST = 32  # most levels of objects and lists; ours have 6
Count = Annotated[int, Field(ge=0, lt=1 << 62)]


def stored(**fields: Any) -> Any:
    """Return the kind of an object with these fields, of exact types and finite numbers, and any others."""
    config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
    definitions: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
    return create_model("Stored", __config__=config, **definitions)


def parse_json(content: bytes | str) -> Any:
    """Parse JSON of at most `DEEPEST` levels. Raises ValueError with the reason."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("not text") from None
    # level by level, as recursion would end in a crash
    level: list[Any] = [[value]]
    for _ in range(DEEPEST + 1):
        groups = (
            group.values() if isinstance(group, dict) else group for group in level
        )
        level = [
            child
            for group in groups
            for child in group
            if isinstance(child, dict | list)
        ]
        if not level:
            return value
    raise ValueError("nested too deeply")


def parse_object(content: bytes | str, kind: Any = None) -> dict[str, Any]:
    """Parse a JSON object of a `stored` kind. Raises ValueError with the reason."""
    fields = parse_json(content)
    if not isinstance(fields, dict):
        raise ValueError(f"an object was expected, found {type(fields).__name__}")
    if kind:
        converted(fields, kind)
    return fields


def read_object(path: Path, kind: Any = None, limit: int = MEGABYTE) -> dict[str, Any]:
    """Parse the object in a file. Raises OSError if it can't be read, ValueError for other content."""
    return parse_object(read_limited(path, limit), kind)


def places_digest(path: str | Path, places: int, width: int) -> str:
    """Return the sha256 of a file's size and of `width` bytes at each of some places: the first at its
    beginning, the last at its end, the others evenly between; of all bytes of a small file. Raises OSError.
    """
    with open_regular(path) as file:
        # all of a small file, spread over a large one
        size = os.fstat(file.fileno()).st_size
        width = min(width, -(-size // places))
        sha256 = hashlib.sha256(str(size).encode())
        for place in range(places):
            file.seek((size - width) * place // (places - 1))
            sha256.update(file.read(width))
        return sha256.hexdigest()


def digest(content: Mapping[str, Any]) -> str:
    """Return a short name for plain values."""
    return hashlib.sha256(
        json.dumps(as_json(content), sort_keys=True).encode()
    ).hexdigest()[:16]


def as_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON gives them back: tuples become lists."""
    return dict(json.loads(json.dumps(content)))
