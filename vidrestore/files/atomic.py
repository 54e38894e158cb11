"""Write files atomically: under a hidden name in the same folder, then renamed.

The hidden name is random, so that no other user can put a link there first and two processes that write the
same file don't write into each other's. The file is locked while it is written: one that isn't was left by a
process that died.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import lock_descriptor

from vidrestore.errors import MediaError, OutputExistsError
from vidrestore.files.regular import (
    create_new,
    is_own,
    open_descriptor,
    write_problem,
)

LONGEST_NAME = 255  # bytes, on every file system in use
# On Windows ":" leads to a hidden stream of another file, a device's name with any suffix to the device, and
# a dot or space at the end is dropped.
_NOT_ON_WINDOWS = re.compile(
    r'(?i)[<>:"|?*\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)'
)
_KEEPS_OPEN_FILES = sys.platform == "win32"  # a file that is open can't be replaced
OPEN_SECONDS = 2.0  # for which a file that is open is waited for
_PARTIAL = re.compile(r"\.[0-9a-f]{16}\.[0-9a-f]{16}\.partial")


def check_output(
    output: str | Path,
    sources: Iterable[str | Path],
    *,
    overwrite: bool = False,
    option: str = "output",
    existing: Iterable[str] | None = None,
) -> None:
    """Check a file before the work for it begins, whatever writes it: refuse one of `sources`, the files that
    the same command reads, one that exists, and one that can't be written.

    `overwrite` allows to replace an existing file. `existing` are the files of a pattern. `option` names the
    file in messages. Raises OutputExistsError or MediaError.
    """
    target, way_out = Path(output), f"give `{option}` another name"

    # the name, on any file system and on this one
    if (length := len(os.fsencode(target.name))) > LONGEST_NAME:
        raise MediaError(
            f"{output}: the name has {length} bytes, and file systems hold {LONGEST_NAME}; give a shorter "
            f"one with `{option}`"
        )
    if sys.platform == "win32" and (odd := _NOT_ON_WINDOWS.search(target.name)):
        raise MediaError(
            f"{output}: Windows takes no file name with {odd[0]!r} there; give `{option}` another name"
        )

    # what is there under that name
    paths = [str(output)] if existing is None else list(existing)
    refuse_sources(paths, sources, option)
    if target.is_dir():
        raise MediaError(
            f"{output}: a folder, but a file name was expected; give `{option}` a name in it"
        )
    conflicts = [path for path in paths if os.path.lexists(path)]
    if conflicts and not overwrite:
        problem = "already exists"
        if existing is not None:
            count = len(conflicts)
            pictures = "1 picture exists" if count == 1 else f"{count} pictures exist"
            problem = f"{pictures} already, such as {conflicts[0]}"
        raise OutputExistsError(
            f"{output}: {problem}; add `overwrite` to replace it, or {way_out}"
        )
    if target.is_symlink():
        raise MediaError(
            f"{output}: a link to {os.readlink(target)}, and nothing is written through links; give "
            f"`{option}` that name, or remove the link"
        )

    # the folder that it is written into
    folder = target.parent
    if not folder.is_dir():
        raise MediaError(f"{output}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MediaError(
            f"{output}: the folder {folder} can't be written to; choose another `{option}`"
        )


def refuse_sources(
    written: Iterable[str], sources: Iterable[str | Path], option: str = "output"
) -> None:
    """Raise MediaError if a file that is to be written is one of `sources`, through links of both kinds."""
    names = {_place_on_disk(path): path for path in written}
    for source in sources if names.keys() - {None} else ():
        place = _place_on_disk(source)
        if place and place in names:
            raise MediaError(
                f"{names[place]}: the output is the input {source}; give `{option}` another name "
                "(`overwrite` does not change this)"
            )


def _place_on_disk(path: str | Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


class Partial:
    """A file under its hidden name, until `put_in_place` renames it to `target` or `discard` removes it.

    `file` is open for reading and writing; `url` names it for libraries that open files themselves. A
    `private` file can be read by its owner alone. Raises OSError.
    """

    def __init__(self, target: Path, *, private: bool = False) -> None:
        self.target, self.private = target, private
        self.path = target.with_name(
            f".{_place(target)}.{secrets.token_hex(8)}.partial"
        )
        self.file: BinaryIO = os.fdopen(
            create_new(self.path, 0o600 if private else 0o666), "w+b"
        )
        with suppress(OSError):  # a file system without locks
            lock_descriptor(self.file.fileno(), blocking=False)

    @property
    def url(self) -> str:
        """A name for FFmpeg: that of the open file if the system has one, which can't be replaced."""
        opened = f"/proc/self/fd/{self.file.fileno()}"
        return f"file:{opened if os.path.exists(opened) else self.path}"

    def sync(self) -> None:
        """Flush what was written to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file, which keeps its hidden name."""
        self.file.close()

    def has_content(self) -> bool:
        """Return True if a file of this name and content exists, from a run that was killed meanwhile."""
        with suppress(OSError):
            return filecmp.cmp(self.path, self.target, shallow=False)
        return False

    def put_in_place(self, *, overwrite: bool = True) -> None:
        """Rename the finished file in one step. Raises MediaError if a file of another content has the
        name and `overwrite` is False, or if another program keeps that file open on Windows.
        """
        self.close()
        if overwrite or self.has_content():
            self._replace()
            return
        try:
            # unlike a rename, fails if the name is taken, with no gap between check and action
            os.link(self.path, self.target)
        except OSError as error:
            if isinstance(error, FileExistsError) or os.path.lexists(self.target):
                raise MediaError(
                    f"{self.target}: appeared while it was being made; the new file was discarded, "
                    "`overwrite` replaces"
                ) from None
            self._replace()  # on a file system without hard links
        else:
            # the file has its name; the next run removes what stays
            with suppress(OSError):
                self.path.unlink()

    def _replace(self) -> None:
        """Rename the file over another one, for which Windows waits until no program has that open: after two
        seconds a file for the user is kept under another name, which the MediaError tells.
        """
        # other systems replace a file that is open
        deadline = time.monotonic() + OPEN_SECONDS
        while True:
            try:
                os.replace(self.path, self.target)
                return
            except PermissionError:
                is_late = time.monotonic() >= deadline
                if not _KEEPS_OPEN_FILES or (is_late and self.private):
                    raise
                if is_late:
                    break
                time.sleep(OPEN_SECONDS / 20)
        # under another name rather than lost
        stem, suffix = self.target.stem, self.target.suffix
        place = self.target.with_name(f"{stem}.new{suffix}")
        if os.path.lexists(place):
            place = self.target.with_name(f"{stem}.{secrets.token_hex(4)}{suffix}")
        os.rename(self.path, place)
        raise MediaError(
            f"{self.target}: another program has this file open, so it can't be replaced; the finished file "
            f"is kept as {place.name}: close that program, and give it its name"
        )

    def discard(self) -> None:
        """Close and remove the file."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


@contextmanager
def replacing(
    target: Path, *, sync: bool = True, private: bool = False
) -> Iterator[BinaryIO]:
    """Yield a file that replaces `target` at the end of the block; after an error `target` is unchanged.
    Raises OSError.
    """
    remove_partials(target)
    # those that killed runs of the same target have left
    partial = Partial(target, private=private)
    try:
        yield partial.file
        if sync:
            partial.sync()
        partial.put_in_place()
    except BaseException:
        partial.discard()
        raise


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, or leave the one that is there unchanged. Raises MediaError."""
    try:
        with replacing(Path(path)) as file:
            file.write(content)
    except OSError as error:
        raise write_problem(str(path), error) from error


def remove_partials(target: Path) -> None:
    """Remove partial files of `target` that dead processes left."""
    _remove_left(target.parent.glob(f".{_place(target)}.*.partial"))


def remove_all_partials(folder: Path) -> None:
    """Remove partial files of any target in a folder as `remove_partials` does."""
    _remove_left(folder.glob(".*.partial"))


def _remove_left(partials: Iterable[Path]) -> None:
    for path in partials:
        if _PARTIAL.fullmatch(path.name):
            # another process may write, finish or remove it meanwhile
            with suppress(OSError):
                status = os.lstat(path)
                if (
                    stat.S_ISREG(status.st_mode)
                    and is_own(status, path.parent)
                    and _is_left(path)
                ):
                    path.unlink()  # fails on Windows while a process has it open


def _is_left(partial: Path) -> bool:
    """Return True if no process holds the lock of a partial file."""
    descriptor = open_descriptor(partial, os.O_RDWR)
    try:
        return lock_descriptor(descriptor, blocking=False)
    finally:
        os.close(descriptor)


def _place(target: Path) -> str:
    return hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
