"""Commands under the rules of Windows, as far as this system can be made to follow them: what Windows lacks
is taken away, names and paths that it refuses are refused, and an open file can't be renamed, replaced or
removed.

    OTHER_SYSTEM='{"lines": [["denoise", "in.mkv"]], "links": true, "stopped": false}' python other_system.py

runs commands in one process, with a model that changes nothing. `links`: the file system has hard links;
`stopped`: as by Ctrl-C while segments are joined. A process that is started by `spawn` imports this file
again, and so has the same rules.
"""

import builtins
import errno
import io
import json
import multiprocessing  # noqa: F401   # it and the following know the real system
import os
import shutil  # noqa: F401
import signal
import socket  # noqa: F401
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from collections.abc import Callable
from fcntl import F_GETFL, fcntl
from typing import Any

import av  # noqa: F401
import numpy  # noqa: F401
import torch  # noqa: F401

LACKING = ("fcntl", "resource", "pwd", "grp")
LONGEST_FILE, LONGEST_FOLDER = 259, 247  # MAX_PATH is 260 with the zero at the end
REFUSED = set('<>:"|?*') | {chr(number) for number in range(32)}

plain_import, readlink, listdir = builtins.__import__, os.readlink, os.listdir


class OtherSystem:
    """`sys`, for our own modules alone."""

    platform = "win32"

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(sys, name, value)


other = OtherSystem()


def is_ours(names: Any) -> bool:
    return str((names or {}).get("__name__", "")).startswith("vidrestore")


def imported(name: str, names: Any = None, *rest: Any, **more: Any) -> Any:
    if name in LACKING:
        raise ImportError(name)
    return (
        other
        if name == "sys" and is_ours(names)
        else plain_import(name, names, *rest, **more)
    )


def check_name(path: Any, longest: int = LONGEST_FILE) -> None:
    """Raise the error of Windows for a name that it refuses."""
    if isinstance(path, int):
        return
    text = os.fsdecode(path)
    for part in text.split("/"):
        if set(part) & REFUSED or (part.strip(".") and part[-1] in ". "):
            error = OSError(
                errno.EINVAL,
                "The filename, directory name or volume label is incorrect",
                text,
            )
            error.winerror = 123  # which pathlib looks at
            raise error
    if len(os.path.abspath(text)) > longest:
        raise FileNotFoundError(
            errno.ENOENT, "The system cannot find the path specified", text
        )


def held_open(full: str) -> bool:
    """Return True if this process has a file open, or mapped into its memory."""
    for number in listdir("/proc/self/fd"):
        try:
            if readlink(f"/proc/self/fd/{number}") == full:
                return True
        except OSError:
            continue
    with plain_open(
        "/proc/self/maps", encoding="utf-8", errors="surrogateescape"
    ) as maps:
        return any(line.endswith(f" {full}\n") for line in maps)


def wrap(home: Any, name: str, check: Callable[..., None]) -> None:
    quick = getattr(home, name)

    def careful(*given: Any, **more: Any) -> Any:
        check(*given)
        return quick(*given, **more)

    setattr(home, name, careful)


def refuse_held(*paths: Any) -> None:
    for path in paths:
        if held_open(os.path.realpath(os.fspath(path))):
            raise PermissionError(
                errno.EACCES, "The process cannot access the file", os.fspath(path)
            )


def refuse_folder(path: Any, *rest: Any) -> None:
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))


def refuse_read_only(descriptor: Any) -> None:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    if fcntl(number, F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")


def refuse_signals(*given: Any) -> None:
    """There, 0 is Ctrl-C for a whole group, and most others end the process."""
    assert not is_ours(sys._getframe(2).f_globals), "os.kill asks nobody on Windows"


def refuse_links(*names: Any) -> None:
    raise OSError(errno.EPERM, "a file system without hard links, such as exFAT")


def decoded(name: Any) -> str:
    """As `os.fsdecode` there: bytes that are not UTF-8 are an error."""
    name = os.fspath(name)
    return name if isinstance(name, str) else name.decode("utf-8", "surrogatepass")


given = json.loads(os.environ["OTHER_SYSTEM"])
plain_open = builtins.open
for module in LACKING:
    sys.modules.pop(module, None)
builtins.__import__ = imported
LACKING_OF_OS = """fchmod fork O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_NOCTTY sched_getaffinity
getuid geteuid getgid getegid getgroups lchown"""
for lacking in LACKING_OF_OS.split():
    if hasattr(os, lacking):
        delattr(os, lacking)
for lacking in ("SIGHUP", "SIGKILL", "SIGQUIT", "alarm"):
    delattr(signal, lacking)
os.supports_fd.discard(os.utime)
real_exists = os.path.exists
os.path.exists = lambda path: (
    not str(path).startswith(("/proc", "/dev/shm")) and real_exists(path)
)
wrap(os, "fsync", refuse_read_only)
wrap(os, "kill", refuse_signals)
if not given["links"]:
    wrap(os, "link", refuse_links)
for function in ("rename", "replace"):
    wrap(os, function, refuse_held)
for function in ("unlink", "remove"):
    wrap(os, function, lambda path: refuse_held(path))
wrap(os, "open", refuse_folder)
for home, function in (
    *(
        (os, function)
        for function in (
            "open",
            "stat",
            "lstat",
            "listdir",
            "scandir",
            "unlink",
            "remove",
        )
    ),
    (io, "open"),
    (builtins, "open"),
):
    wrap(home, function, lambda path=".", *rest: check_name(path))
wrap(os, "mkdir", lambda path, *rest: check_name(path, LONGEST_FOLDER))
for function in ("rename", "replace", "link"):
    wrap(os, function, lambda *paths: [check_name(path) for path in paths])
os.fsdecode = decoded

sys.stdout.reconfigure(encoding="cp1252")
sys.stderr.reconfigure(encoding="cp1252", errors="backslashreplace")
import no_change  # noqa: E402

from vidrestore.media.writing import muxer  # noqa: E402
from vidrestore.settings.tasks import TASKS  # noqa: E402

TASKS["denoise"] = no_change.IDENTITY_DENOISE


def stop(*arguments: Any) -> None:
    raise KeyboardInterrupt


if given["stopped"]:
    muxer.Muxer.put = stop

if __name__ == "__main__":
    from vidrestore.cli import main

    code = 0
    for line in given["lines"]:
        sys.argv[1:] = line
        try:
            main(line)
        except SystemExit as end:
            sys.stderr.write(f"ended with {end.code}\n")
            code = code or end.code
    sys.exit(code)
