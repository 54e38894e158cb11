"""Load constants that a script of examples/experiments fitted; the metadata of their file name the script.
Bring constants to a device.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import torch
from safetensors.torch import load
from torch import Tensor


@cache
def fitted(path: str) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors file of the package, such as "models/bayes_gains"."""
    return load(files("vidrestore").joinpath(f"{path}.safetensors").read_bytes())


def on_device(values: Tensor, device: torch.device) -> Tensor:
    """Return values on a device. Copies to a GPU are from pinned memory and asynchronous."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
