"""Checkpoints on disk, and the settings that may not change between a run and its continuation.

A new checkpoint replaces the old one when it is complete; one process at a time writes them.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vidrestore.errors import BusyError, CheckpointError, ConfigError
from vidrestore.files.atomic import replacing
from vidrestore.files.locks import locked
from vidrestore.files.regular import Count, check_pickled, stored
from vidrestore.lab.run_config import RunConfig
from vidrestore.settings.checking import converted

_BEST = stored(step=Count, psnr=float, weights=dict) | None
_CURVE = list[stored(step=Count)]  # type: ignore[misc, valid-type]
_PLATEAU = stored(waited=Count, share=float)
_STATE = stored(
    step=Count,
    seconds=float,
    losses=list,
    init=list,
    identity=dict,
    curve=_CURVE,
    best=_BEST,
    plateau=_PLATEAU,
)


@contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Lock a run, also for machines that share the folder. Raises ConfigError if another process has it,
    MediaError if the folder can't be written to.
    """
    with ExitStack() as lock:
        try:
            lock.enter_context(locked(path.with_name(f".{path.stem}.vidrestore.lock")))
        except BusyError as error:
            raise ConfigError(
                f"{path.name} in {error}, with `resume`; or choose another `output`"
            ) from error
        yield


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Replace a checkpoint in one step. Raises CheckpointError, and leaves the old one."""
    try:
        with replacing(path) as stream:
            torch.save(state, stream)
    except (OSError, RuntimeError) as error:
        # if a write fails, torch raises an error of its own while that of the system is handled
        cause = error if isinstance(error, OSError) else error.__context__
        reason = (
            cause.strerror if isinstance(cause, OSError) else str(error).splitlines()[0]
        )
        remaining = (
            "the earlier one is unchanged"
            if path.exists()
            else "there is no earlier one"
        )
        free = shutil.disk_usage(path.parent).free / 1e6
        raise CheckpointError(
            f"{path}: step {state['step']} can't be written ({reason}; {free:.1f} MB are free); {remaining}; "
            "free some space, then go on with `resume`"
        ) from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Raises CheckpointError if the file is damaged or not a checkpoint."""
    try:
        check_pickled(path)
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():  # torch doesn't check checksums
                raise ValueError(damaged)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        # that checkpoints before 28 November lack
        state.setdefault("plateau", {"waited": 0, "share": 1.0})
        converted(state, _STATE)
        json.dumps(state["identity"])  # a tensor in it can't be compared
    except Exception as error:  # a damaged pickle may raise any exception
        raise CheckpointError(
            f"{path}: can't be read as a checkpoint; remove it to start again"
        ) from error
    return state


def check_alike(tensors: Mapping[str, Any], expected: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless tensors have the names and shapes of those that are expected."""
    # names and shapes, as a stranger's file may hold anything
    shapes = {
        name: tensor.shape if isinstance(tensor, Tensor) else None
        for name, tensor in tensors.items()
    }
    if shapes != {name: tensor.shape for name, tensor in expected.items()}:
        raise ValueError("tensors of another network")


def identity_of(
    config: RunConfig, model: Mapping[str, Any], fixed: Iterable[str]
) -> dict[str, Any]:
    """Return the settings of the full network (`model`), the data, and of training those in `fixed`."""
    # what decides the result: the full network, the data, and these settings
    sections = {"model": model, "data": asdict(config.data)}
    values = {
        f"[{section}] {name}": value
        for section, part in sections.items()
        for name, value in part.items()
    }
    values |= {f"[training] {name}": getattr(config.training, name) for name in fixed}
    return {"task": config.task, "family": config.family} | values


def check_same(
    checkpoint: Path, earlier: Mapping[str, Any], current: Mapping[str, Any]
) -> None:
    """Raise ConfigError, with the old and new values, if the configuration has changed since, or if it has
    not but another version of this package, with other settings, wrote the checkpoint.
    """
    # settings that only one of the two has are those of another version
    changed = [
        name
        for name in earlier.keys() | current.keys()
        if earlier.get(name) != current.get(name)
    ]
    others = sorted(earlier.keys() ^ current.keys())
    if changed and set(changed) <= set(others):
        raise ConfigError(
            f"{checkpoint}: was written by another version of vidrestore, whose settings differ in "
            f"{', '.join(others)}; continue it with that version, or begin a run in another `output` with "
            "`init` = its .best.safetensors"
        )
    if changed:
        details = "; ".join(
            f"{name} was {earlier.get(name)!r} and is {current.get(name)!r}"
            for name in sorted(changed)
        )
        raise ConfigError(
            f"{checkpoint}: belongs to another run: {details}; change them back, or choose another `output`"
        )
