"""Checkpoints on disk: the one that is there stays until the next is whole, and one process at a time writes it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.files.lease import BEAT, BusyError, Lock


@contextmanager
def no_other(path: Path) -> Iterator[None]:
    """Keep others from the run of a checkpoint, on machines that share the folder, too.

    Raises ConfigError where another process is at it, CheckpointError where the folder can't be written to.
    """
    beside = path.with_suffix(".lock")
    try:
        lock = Lock(beside)
    except BusyError as error:
        raise ConfigError(f"{path.name} in {error}, with --resume; or choose another --output") from error
    except OSError as error:
        raise CheckpointError(f"{beside}: can't be written ({error.strerror}); make room, or choose another --output") from error
    ended = Event()
    beats = Thread(target=_beat, args=(lock, ended), daemon=True)
    beats.start()
    try:
        yield
    finally:
        ended.set()
        beats.join()
        with suppress(OSError):  # of another system than this, which keeps what is open
            beside.unlink()
        lock.release()


def _beat(lock: Lock, ended: Event) -> None:
    """Show a sign of life now and then, whatever the run is at: decoding all clips may take hours."""
    while not ended.wait(BEAT):
        lock.beat()


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint beside the old one, then move it over that. Raises CheckpointError where it can't be; the old one stays."""
    partial = path.with_suffix(".partial")
    try:
        with partial.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except (OSError, RuntimeError) as error:
        partial.unlink(missing_ok=True)
        told = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        kept = "the one before is still there" if path.exists() else "there is none yet"
        raise CheckpointError(
            f"{path}: step {state['step']} can't be written ({told}); {kept}; make room, then go on with --resume"
        ) from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What was written. Raises CheckpointError for a file that is damaged or no checkpoint."""
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():  # torch itself doesn't look at checksums
                raise ValueError(damaged)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle raises whatever the file makes it raise
        raise CheckpointError(f"{path}: can't be read as a checkpoint; remove it to start anew") from error
    return state
