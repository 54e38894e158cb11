"""Disks that fail: a call of the C library on one file fails in the process of a command."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def library(folder: Path) -> Path:
    """The library to preload, compiled in a folder; skips the test where that can't be done."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")
    source, built = Path(__file__).with_suffix(".c"), folder / "disk_faults.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(built), str(source), "-ldl"], check=True
    )
    return built


def fault(
    call: str, path: object, nth: int = 1, *, once: bool = False, error: int = errno.EIO
) -> str:
    """Code for `Commands.start(before=...)`: the `nth` call on files with `path` in their names fails, and
    all later ones unless `once`.
    """
    last = nth if once else 1 << 30
    settings = {"PATH": path, "NTH": nth, "LAST": last, "ERRNO": error, "CALL": call}
    return f"os.environ.update({ {f'FAULT_{name}': str(value) for name, value in settings.items()} })"
