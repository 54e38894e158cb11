"""Compile networks by torch.compile for each shape of their input; on an NVIDIA GPU as a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor


class Compiled:
    """A function of tensors, compiled at the first call with each shape. Not thread-safe.

    If compiling fails, it warns once and from then on calls the function uncompiled.
    """

    def __init__(self, work: Callable[..., Tensor], device: torch.device) -> None:
        self.work, self.on_gpu = work, device.type == "cuda"
        mode = "reduce-overhead" if self.on_gpu else None  # CUDA graphs
        self._compiled: Callable[..., Tensor] | None = torch.compile(work, dynamic=False, mode=mode)

    def __call__(self, *inputs: Tensor) -> Tensor:
        if self._compiled is not None:
            try:
                if not self.on_gpu:
                    return self._compiled(*inputs)
                cast("Callable[[], None]", torch.compiler.cudagraph_mark_step_begin)()
                return self._compiled(*inputs).clone()  # the next call of the graph writes to the same memory
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # the compiler is missing or fails in any of its parts
                self._compiled = None
                reason = (str(error).splitlines() or [""])[0]
                message = f"torch.compile failed; the model runs uncompiled: {type(error).__name__}: {reason}"
                warnings.warn_explicit(message, RuntimeWarning, "vidrestore", 1)
        return self.work(*inputs)
