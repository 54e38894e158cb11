"""The command in this process, and Python in others."""

import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from vidrestore.cli import main


def run(*arguments: object) -> int:
    """Return the exit code of `vidrestore ARGUMENTS`."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return int(end.value.code or 0)


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run Python in a process of its own, with its output captured as text unless `options` differ."""
    usual = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "timeout": 120,
    }
    return subprocess.run([sys.executable, *arguments], **(usual | options))


def on_terminal(code: str) -> tuple[str, str]:
    """Run Python code with stderr on a terminal of 100 columns; return stdout and the terminal's text."""
    terminal, stderr = os.openpty()
    done = python(
        "-c", code, stderr=stderr, env=os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    )
    os.close(stderr)
    shown = b""
    with suppress(OSError):  # Linux's end of a terminal that nobody writes to any more
        while part := os.read(terminal, 4096):  # at most that many bytes come at once
            shown += part
    os.close(terminal)
    return done.stdout, shown.decode()
