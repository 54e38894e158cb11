"""Tensors stored in 8 bits: blocks of 32 integers in -127..127, each block with a scale in half precision.

A file has the integers under the tensor's own name and the scales under that name and `SCALES`. Networks
still compute with floating point numbers: this halves the file, not the time.
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
    """Return True for a float32 matrix, or larger array, of at least `least` values in whole blocks."""
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
    """Return the float32 tensor that integers and scales stand for."""
    return (integers.reshape(-1, BLOCK).float() * scales.float()[:, None]).view(integers.shape)
