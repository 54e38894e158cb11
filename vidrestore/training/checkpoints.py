"""Checkpoints on disk: a new one replaces the old one when it is complete; one process at a time writes
them.
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
def run_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a checkpoint's run, which also excludes processes on other machines that share the
    folder.

    Raises ConfigError if another process holds it, CheckpointError if the folder can't be written to.
    """
    lock_path = path.with_suffix(".lock")
    try:
        lock = Lock(lock_path)
    except BusyError as error:
        raise ConfigError(f"{path.name} in {error}, with `resume`; or choose another `output`") from error
    except OSError as error:
        raise CheckpointError(
            f"{lock_path}: can't be written ({error.strerror}); make room, or choose another `output`"
        ) from error
    try:
        with heartbeat(lock.beat, BEAT):  # decoding all clips may take hours
            yield
    finally:
        with suppress(OSError):  # Windows doesn't remove an open file
            lock_path.unlink()
        lock.release()


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint to a temporary file, then replace the old one. Raises CheckpointError; the old one
    remains then.
    """
    try:
        with replacing(path) as stream:
            torch.save(state, stream)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        remaining = "the earlier one is unchanged" if path.exists() else "there is no earlier one"
        raise CheckpointError(
            f"{path}: step {state['step']} can't be written ({reason}); {remaining}; free some space, then "
            "go on with "
            "`resume`"
        ) from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Raises CheckpointError if the file is damaged or not a checkpoint."""
    try:
        check_pickled(path)
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():  # torch doesn't check checksums
                raise ValueError(damaged)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or not isinstance(state.get("identity", {}), dict):
            raise TypeError(type(state).__name__)
    except Exception as error:  # a damaged pickle may raise anything
        raise CheckpointError(f"{path}: can't be read as a checkpoint; remove it to start again") from error
    return state
