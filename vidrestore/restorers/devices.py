"""Where tensors are computed, and in which number format."""

from __future__ import annotations

import math

import torch

from vidrestore.errors import OptionError
from vidrestore.models.fast.processor import processor_has

# bytes for all that networks hold at once while they work on RGB frames: with the rest of a run it stays
# under 4 GB
CPU_MEMORY = 3 << 30
GPU_SHARE = 0.7  # of what is free
MOST_TILES = 64  # at once
PIXELS_PER_PROCESSOR = 2048.0  # of a GPU: as many threads as one holds


def torch_device(name: str) -> torch.device:
    """The device that an option names; "auto" is a GPU where there is one. Raises OptionError for one that
    isn't there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise OptionError(f"device {name!r} is unknown; expected auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (
        not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()
    ):
        raise OptionError(
            f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices; use "
            "`device=cpu`"
        )
    if device.type not in ("cpu", "cuda"):
        raise OptionError(f"device {name!r} is not supported; expected auto, cpu, cuda or cuda:N")
    return device


def uses_bf16(precision: str, device: torch.device) -> bool:
    """Whether products are done in bf16: "auto" takes it where the device multiplies it faster than fp32."""
    if precision != "auto":
        return precision == "bf16"
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else processor_has("avx512_bf16")


def halves(precision: str, device: torch.device) -> bool:
    """Whether networks on RGB frames compute in bf16: "auto" does on GPUs only, as long as nobody has
    measured what it costs in quality.
    """
    return uses_bf16(precision, device) and (precision != "auto" or device.type != "cpu")


def batch_for(device: torch.device, usual: int, each: int, per_processor: float) -> int:
    """Return how many things to compute at once: `usual` on a CPU, whose caches are small.

    On a GPU as many as keep its processors busy, `per_processor` of them on each, if memory holds them: each
    takes `each` bytes.
    """
    if device.type != "cuda":
        return usual
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(memory_for(device) // each, math.ceil(per_processor * processors)))


def tiles_for(device: torch.device, tile: tuple[int, int], each_pixel: int) -> int:
    """Return how many tiles to compute at once; a pixel takes `each_pixel` bytes."""
    pixels = tile[0] * tile[1]
    return min(MOST_TILES, batch_for(device, 1, pixels * each_pixel, PIXELS_PER_PROCESSOR / pixels))


def memory_for(device: torch.device) -> int:
    """Bytes that networks may hold at once: tiles, clips and how many of them are restored at a time follow
    from it.
    """
    if device.type == "cpu":
        return CPU_MEMORY
    free, _ = torch.cuda.mem_get_info(device)
    return int(GPU_SHARE * free)
