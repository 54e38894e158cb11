"""Load constants that a script of examples/experiments fitted; the metadata of their file name the script."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from safetensors.torch import load
from torch import Tensor


@cache
def fitted(path: str) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors file of the package, such as "models/second_gains"."""
    return load(files("vidrestore").joinpath(f"{path}.safetensors").read_bytes())
