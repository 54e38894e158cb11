"""Checkpoints on disk: the one that is there stays until the next is whole, and one process at a time writes
it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.files.archives import check_pickled
from vidrestore.files.atomic import replacing
from vidrestore.files.lease import BEAT, BusyError, Lock, heartbeat


@contextmanager
def no_other(path: Path) -> Iterator[None]:
    """Keep others from the run of a checkpoint, on machines that share the folder, too.

    Raises ConfigError if another process is at it, CheckpointError if the folder can't be written to.
    """
    beside = path.with_suffix(".lock")
    try:
        lock = Lock(beside)
    except BusyError as error:
        raise ConfigError(f"{path.name} in {error}, with `resume`; or choose another `output`") from error
    except OSError as error:
        raise CheckpointError(
            f"{beside}: can't be written ({error.strerror}); make room, or choose another `output`"
        ) from error
    try:
        with heartbeat(lock.beat, BEAT):  # decoding all clips may take hours
            yield
    finally:
        with suppress(OSError):  # of another system than this, which keeps what is open
            beside.unlink()
        lock.release()


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint beside the old one, then move it over that. Raises CheckpointError if it can't
    be; the old one stays.
    """
    try:
        with replacing(path) as stream:
            torch.save(state, stream)
    except (OSError, RuntimeError) as error:
        told = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        kept = "the one before is still there" if path.exists() else "there is none yet"
        raise CheckpointError(
            f"{path}: step {state['step']} can't be written ({told}); {kept}; make room, then go on with "
            "`resume`"
        ) from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Raises CheckpointError for a file that is damaged or not a checkpoint."""
    try:
        check_pickled(path)
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():  # torch itself doesn't look at checksums
                raise ValueError(damaged)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or not isinstance(state.get("identity", {}), dict):
            raise TypeError(type(state).__name__)
    except Exception as error:  # pickle raises whatever the file makes it raise
        raise CheckpointError(f"{path}: can't be read as a checkpoint; remove it to start anew") from error
    return state
