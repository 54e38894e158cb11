"""Matrix products with a fixed weight: plain for gradients, or packed in the layout that is fastest on the
processor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 2560  # number of rows that the packed layout is tuned for; others work as well
# Rows are padded to a multiple of this, because oneDNN keeps about a megabyte of code and memory for every
# number of rows that it has seen.
STEP = 160
# Up to `STEP` rows are padded to a multiple of this; recurrent networks have few rows per frame.
SMALL_STEP = 32


def packed(weight: Tensor, rows: int) -> Callable[[Tensor], Tensor] | None:
    """Return the product x -> x W^T with the weight in oneDNN's fastest layout for a number of rows.

    None if this torch doesn't offer it: its operators for that are private.
    """
    try:
        reordered = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        product = torch.ops.mkldnn._linear_pointwise
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
    return lambda rows: product(rows, reordered, None, "none", [], "")


class Linear(Protocol):
    """x (rows, in) -> x W^T (rows, out) for W (out, in)."""

    def __init__(self, weight: Tensor, dtype: torch.dtype) -> None: ...

    def __call__(self, rows: Tensor) -> Tensor: ...


class PlainLinear:
    """The plain product; gradients reach the weight."""

    def __init__(self, weight: Tensor, dtype: torch.dtype) -> None:
        self.weight = weight.to(dtype)

    def __call__(self, rows: Tensor) -> Tensor:
        return rows @ self.weight.mT


class PackedLinear:
    """The fastest product, for inference.

    On a CPU the weight is reordered once for oneDNN: on AMD processors the default float32 product takes a
    path of half the speed (208 against 457 GFLOP/s on a 2-core Zen 5, 191 against 218 on a Zen 4).
    """

    def __init__(self, weight: Tensor, dtype: torch.dtype) -> None:
        weight = weight.detach().to(dtype).contiguous()
        self.product = (
            packed(weight, ROWS)
            if weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
            else None
        )
        self.weight = None if self.product else weight

    def __call__(self, rows: Tensor) -> Tensor:
        if self.product:
            missing = -len(rows) % (STEP if len(rows) > STEP else SMALL_STEP)
            filled = F.pad(rows, (0, 0, 0, missing)) if missing else rows
            return self.product(filled)[: len(rows)]
        assert self.weight is not None
        return rows @ self.weight.mT


class Product:
    """A product computed in `dtype`, whose result has the dtype of its input: (rows, in) -> (rows, out)."""

    def __init__(
        self, weight: Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> None:
        self.product, self.dtype = linear(weight, dtype), dtype

    def __call__(self, rows: Tensor) -> Tensor:
        return self.product(rows.to(self.dtype)).to(rows.dtype)


def on_tokens(product: Callable[[Tensor], Tensor], groups: Tensor) -> Tensor:
    """Apply a product to every token of groups (..., in) -> (..., out)."""
    return product(groups.flatten(0, -2)).view(*groups.shape[:-1], -1)


def processor_has(feature: str) -> bool:
    """Return True if the processor has a feature, by torch's name for it, such as "avx2" or "avx512_bf16".

    Versions of torch without `get_capabilities` only know AVX2.
    """
    if hasattr(torch.cpu, "get_capabilities"):
        return bool(torch.cpu.get_capabilities().get(feature))
    return feature == "avx2" and torch.backends.cpu.get_cpu_capability() in (
        "AVX2",
        "AVX512",
    )
