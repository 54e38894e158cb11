"""Store tensors in 8 bits: blocks of 32 integers from -127 to 127, each block with a scale in half precision.

A file holds the integers under the tensor's name, and the scales under that name with `SCALES` appended.
Networks still compute in floating point: this halves the size of files, not the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SCALES = ".scales"
BLOCK = 32
DTYPES = ("I8", "F16")  # of integers and of scales, as safetensors names them
_LARGEST = 127


def fits(tensor: Tensor, least: int) -> bool:
    """Return True if a tensor can be stored so: float32, of two or more dimensions, with at least `least`
    values in whole blocks.
    """
    count = tensor.numel()
    return (
        tensor.dtype.itemsize == 4
        and tensor.is_floating_point()
        and tensor.ndim > 1
        and (count >= least and count % BLOCK == 0)
    )


def to_eight_bits(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the integers (int8, of the tensor's shape) and the scales (float16, one per block)."""
    import torch

    blocks = tensor.reshape(-1, BLOCK)
    scales = (blocks.abs().amax(1) / _LARGEST).half()
    divisors = scales.float().where(scales > 0, torch.ones(()))[:, None]  # a block of zeros remains zero
    integers = (blocks / divisors).round().clamp(-_LARGEST, _LARGEST)
    return integers.to(torch.int8).view(tensor.shape), scales


def from_eight_bits(integers: Tensor, scales: Tensor) -> Tensor:
    """Return the float32 tensor of integers and scales."""
    return (integers.reshape(-1, BLOCK).float() * scales.float()[:, None]).view(integers.shape)
