"""A command in a process of its own, forked from one that has imported everything: it may crash or hang."""

import os
import sys
from multiprocessing import get_context
from pathlib import Path

SECONDS = 60  # a command that takes longer hangs: all inputs are tiny

CONTEXT = get_context("forkserver")
OWN = ("vidrestore.cli", "vidrestore.scale.workers", "vidrestore.jobs.segmented")
CONTEXT.set_forkserver_preload(["av", "torch", "rich.progress", *OWN])


def run_apart(arguments: list[str], folder: Path, said: Path) -> tuple[int, str]:
    """The exit code of `vidrestore ARGUMENTS`, begun in `folder`, and what it said, which goes through the
    file `said`.

    The code is that of a signal, negative, where one ended it; a command that hangs is killed.
    """
    process = CONTEXT.Process(target=_command, args=(arguments, str(folder), str(said)))
    process.start()
    process.join(SECONDS)
    if hung := process.exitcode is None:
        process.kill()
        process.join()
    words = said.read_text(errors="replace")
    return process.exitcode or 0, f"still running after {SECONDS} s\n{words}" if hung else words


def _command(arguments: list[str], folder: str, said: str) -> None:
    import no_change

    from vidrestore.cli import main
    from vidrestore.tasks import TASKS

    output = os.open(said, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(output, number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.chdir(folder)
    TASKS["denoise"] = no_change.IDENTITY_DENOISE
    main(arguments)
