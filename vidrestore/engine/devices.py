"""Where tensors are computed, and in which number format."""

from __future__ import annotations

import torch

from vidrestore.errors import OptionError


def torch_device(name: str) -> torch.device:
    """The device that an option names; "auto" is a GPU where there is one. Raises OptionError for one that isn't there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise OptionError(f"device {name!r} is unknown; expected auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise OptionError(f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices; use --device cpu")
    if device.type not in ("cpu", "cuda"):
        raise OptionError(f"device {name!r} is not supported; expected auto, cpu, cuda or cuda:N")
    return device


def uses_bf16(precision: str, device: torch.device) -> bool:
    """Whether products are done in bf16: "auto" takes it where the device multiplies it faster than fp32."""
    if precision != "auto":
        return precision == "bf16"
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else torch.cpu._is_avx512_bf16_supported()
