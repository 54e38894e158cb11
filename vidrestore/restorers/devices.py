"""Devices that compute, and their number formats."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import TypeVar, cast

import torch

from vidrestore.errors import OptionError
from vidrestore.event_log import counted_words
from vidrestore.models.fast_linear import processor_has
from vidrestore.settings import option_values
from vidrestore.working import available_cores

T = TypeVar("T")
_END = object()
# bytes for all that networks hold at once while they work on RGB frames: with the rest of a run it stays
# under 4 GB
CPU_MEMORY = 3 << 30
FIRST_BF16 = (8, 0)  # compute capability: Ampere
GPU_SHARE = 0.7  # share of the free memory
MOST_TILES = 64  # at once
# Pixels of tiles or pictures for each processor of a GPU: 54 million on an H100, 26 frames of 1080p, so that
# these take no more launches than small frames. Small GPUs take as many as their memory holds.
PIXELS_PER_PROCESSOR = 409600.0


def torch_device(name: str) -> torch.device:
    """Return the device that an option names; "auto" is an NVIDIA GPU if there is one.

    Raises OptionError for one that isn't there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(option_values.device(name))
    except (RuntimeError, ValueError) as error:
        raise OptionError(str(error)) from error
    if device.type == "cuda" and (
        not torch.cuda.is_available()
        or (device.index or 0) >= torch.cuda.device_count()
    ):
        if not torch.version.cuda and not torch.version.hip:
            raise OptionError(
                f"device {name!r} needs another PyTorch: {gpu_advice()}; or use `device=cpu`"
            )
        raise OptionError(
            f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices; use "
            "`device=cpu`"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise OptionError(
            f"device {name!r} is not there: torch sees no Apple GPU; use `device=cpu`"
        )
    return device


def device_name(device: torch.device | str) -> str:
    """Return a device's name for the user, as in "cuda:0 (NVIDIA H100)"."""
    if torch.device(device).type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_properties(device).name})"


def available_devices() -> Iterator[tuple[str, str]]:
    """Yield the names of this machine's devices with their descriptions."""
    cores, threads = os.cpu_count() or 1, available_cores()
    yield "cpu", f"{counted_words(cores, 'core')}, {counted_words(threads, 'thread')}"
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        yield (
            f"cuda:{number}",
            f"{properties.name}, {properties.total_memory / 1e9:.0f} GB",
        )
    if torch.backends.mps.is_available():
        yield "mps", "Apple GPU (untested)"


def gpu_advice() -> str | None:
    """Return a sentence on how to install a PyTorch that uses a GPU; None if this one can."""
    if torch.version.cuda or torch.version.hip or torch.backends.mps.is_built():
        return None
    return (
        f"this PyTorch ({torch.__version__}) is for CPUs only; for a GPU of NVIDIA: pip install "
        '--force-reinstall "torch>=2.10,<2.16" --index-url https://download.pytorch.org/whl/cu130'
    )


def uses_bf16(precision: str, device: torch.device) -> bool:
    """Return True for products in bf16: "auto" takes it if the device multiplies it faster than fp32.

    GPUs before Ampere emulate it, at a fraction of the speed.
    """
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FIRST_BF16
    return device.type == "cpu" and processor_has("avx512_bf16")


def half_type(precision: str, device: torch.device) -> torch.dtype | None:
    """Return the half precision that networks on RGB frames compute in, None for fp32.

    "auto" takes bf16 where the device multiplies it faster (`uses_bf16`), and fp16 on NVIDIA GPUs without it.
    Clips that fp16 can't hold are restored again in fp32.
    """
    if uses_bf16(precision, device):
        return torch.bfloat16
    return torch.float16 if precision == "auto" and device.type == "cuda" else None


class _AllBits:
    """cuDNN's switch for TF32, one for all threads: off while any of them needs fp32, then restored."""

    def __init__(self) -> None:
        self._lock, self._users, self._before = Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._before, torch.backends.cudnn.allow_tf32 = (
                    torch.backends.cudnn.allow_tf32,
                    False,
                )
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                torch.backends.cudnn.allow_tf32 = self._before


_ALL_BITS = _AllBits()


def all_bits(
    device: torch.device, half: torch.dtype | None
) -> AbstractContextManager[None]:
    """Compute convolutions of the block in full fp32, unless they are in `half` precision.

    By default cuDNN multiplies 10 of the 23 bits (TF32); matrix products keep all of them anyway. The
    switch is the process's, so nothing is yielded in the block: `in_all_bits` is for generators.
    """
    return _ALL_BITS if device.type == "cuda" and half is None else nullcontext()


def in_all_bits(
    items: Iterator[T], device: torch.device, half: torch.dtype | None
) -> Iterator[T]:
    """Yield the same items, each of them computed in an `all_bits` block of its own."""
    while True:
        with all_bits(device, half):
            item = next(items, _END)
        if item is _END:
            return
        yield cast("T", item)


def batch_for(
    device: torch.device, usual: int, item_bytes: int, per_processor: float
) -> int:
    """Return the batch size: `usual` on a CPU, whose caches are small.

    On a GPU as many as keep its processors busy, `per_processor` of them on each, if memory holds them, each
    of `item_bytes` bytes.
    """
    if device.type != "cuda":
        return usual
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(
        1, min(memory_for(device) // item_bytes, math.ceil(per_processor * processors))
    )


def tiles_for(device: torch.device, tile: tuple[int, int], pixel_bytes: int) -> int:
    """Return how many tiles to compute at once; a pixel takes `pixel_bytes` bytes."""
    pixels = tile[0] * tile[1]
    return min(
        MOST_TILES,
        batch_for(device, 1, pixels * pixel_bytes, PIXELS_PER_PROCESSOR / pixels),
    )


def memory_for(device: torch.device) -> int:
    """Return the bytes that networks may hold at once, which limit tiles and clips."""
    if device.type == "cpu":
        return CPU_MEMORY
    if device.type == "mps":
        free = torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    else:
        free, _ = torch.cuda.mem_get_info(device)
        # memory that torch caches counts as used, but is available
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(GPU_SHARE * free)
