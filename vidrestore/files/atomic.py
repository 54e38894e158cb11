"""A file that appears under its name only when it is whole: written beside it under a hidden name, then renamed."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from vidrestore.errors import MediaError, OutputExistsError

LONGEST_NAME = 255  # bytes, on every file system in use


def check_output(output: str, source: str, *, overwrite: bool) -> None:
    """Refuse an output that is the input, that exists (unless `overwrite`), or whose folder can't be written to.

    Raises OutputExistsError or MediaError.
    """
    target = Path(output)
    if (length := len(os.fsencode(target.name))) > LONGEST_NAME:
        raise MediaError(f"{output}: the name has {length} bytes, and file systems hold {LONGEST_NAME}; give a shorter one with -o")
    if same_file(target, Path(source)):
        raise MediaError(f"{output}: the output is the input {source}; give -o another name (--overwrite does not change this)")
    if target.is_dir():
        raise MediaError(f"{output}: a folder, but a file name was expected; give -o a name in it")
    refuse_existing(target, overwrite=overwrite)
    folder = target.parent
    if not folder.is_dir():
        raise MediaError(f"{output}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MediaError(f"{output}: the folder {folder} can't be written to; choose another with -o")


def same_file(first: Path, second: Path) -> bool:
    """Do two names lead to one file, through links of both kinds? A name that leads nowhere is no file."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def refuse_existing(target: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError where `target` is there (a dangling link too) and may not be overwritten."""
    if os.path.lexists(target) and not overwrite:
        raise OutputExistsError(f"{target}: already exists; add --overwrite to replace it, or give -o another name")


def partial_path(output: str) -> Path:
    """The hidden name beside `output` under which it is written until it is whole."""
    target = Path(output)
    name = f".{target.name}.partial"
    while len(os.fsencode(name)) > LONGEST_NAME:
        name = "." + name[2:]
    return target.with_name(name)


def own_partial_path(output: str) -> Path:
    """As `partial_path`, but a name that no other process has, for when several may come to write the same file."""
    return Path(output).with_name(f".{_place(output)}.{secrets.token_hex(8)}.partial")


def remove_partials(output: str) -> None:
    """Remove whatever was left of writing a file."""
    left = Path(output).parent.glob(f".{_place(output)}.*.partial")
    for path in (partial_path(output), *left):
        path.unlink(missing_ok=True)


def _place(output: str) -> str:
    return hashlib.sha256(os.fsencode(Path(output).name)).hexdigest()[:16]


def put_in_place(partial: Path, target: Path, *, overwrite: bool) -> None:
    """Give the finished file its name, in one step; OutputExistsError where another file took the name meanwhile."""
    if overwrite:
        os.replace(partial, target)
        return
    try:
        os.link(partial, target)  # unlike a rename, fails where the name is taken, with no gap between looking and doing
    except FileExistsError:
        raise OutputExistsError(f"{target}: appeared while it was being made; the new file was discarded, --overwrite replaces") from None
    except OSError:  # a file system without hard links
        refuse_existing(target, overwrite=False)
        os.replace(partial, target)
    else:
        partial.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a power cut, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_problem(output: str, error: OSError) -> MediaError:
    """The MediaError for a failed write, in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return MediaError(f"{output}: no space left to write it ({error.strerror}); free some, or choose another folder with -o")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return MediaError(f"{output}: can't be written ({error.strerror}); choose another folder with -o")
    return MediaError(f"{output}: writing it failed ({error})")
