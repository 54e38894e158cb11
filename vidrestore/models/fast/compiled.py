"""Networks compiled by torch for each shape that they are given; on an NVIDIA GPU as a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor


def in_one_piece() -> bool:
    """Return True if maps are to be computed whole, in fresh memory: for gradients, and for a compiler, which
    finds strips and reused memory itself.
    """
    return torch.is_grad_enabled() or torch.compiler.is_compiling()


class Compiled:
    """A function of tensors, compiled at the first call with each shape, for one thread at a time.

    If that fails, one warning, and from then on the function as it is.
    """

    def __init__(self, work: Callable[..., Tensor], device: torch.device) -> None:
        self.work, self.on_gpu = work, device.type == "cuda"
        mode = "reduce-overhead" if self.on_gpu else None  # CUDA graphs
        self._compiled: Callable[..., Tensor] | None = torch.compile(work, dynamic=False, mode=mode)

    def __call__(self, *given: Tensor) -> Tensor:
        if self._compiled is not None:
            try:
                return self._computed(self._compiled, given)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # of a compiler that is missing, or of any of its many parts
                self._compiled = None
                found = (str(error).splitlines() or [""])[0]
                told = f"torch.compile failed, and the model runs uncompiled: {type(error).__name__}: {found}"
                warnings.warn_explicit(told, RuntimeWarning, "vidrestore", 1)
        return self.work(*given)

    def _computed(self, compiled: Callable[..., Tensor], given: tuple[Tensor, ...]) -> Tensor:
        if not self.on_gpu:
            return compiled(*given)
        cast("Callable[[], None]", torch.compiler.cudagraph_mark_step_begin)()
        return compiled(*given).clone()  # the next call of the graph writes to the same memory
