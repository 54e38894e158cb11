"""Fresh interpreters: the modules that one loads for a command, and how one ends at Ctrl-C."""

import signal
import subprocess
import sys

from command_line import python

HEAVY = {"torch", "av", "numpy", "safetensors", "huggingface_hub"}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running `code`."""
    names = "{name.partition('.')[0] for name in sys.modules}"
    report = f"{code}\nimport sys; print(*{names}, file=sys.stderr)"
    return set(python("-c", report, check=True).stderr.split())


def command(*arguments: str) -> str:
    call = f"from vidrestore.cli import main\ntry:\n    main({list(arguments)!r})\n"
    return call + "except SystemExit as end:\n    assert not end.code, end.code"


def interrupted(code: str) -> tuple[int, str, str]:
    """Run `code`, send SIGINT once it has printed a line, and return the exit code, the rest of stdout, and
    stderr.
    """
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            rest, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    return process.returncode, rest, errors
