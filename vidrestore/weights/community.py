"""Networks for single pictures by other authors, recognised and built by the package spandrel from their own
files: the family "spandrel". https://github.com/chaiNNer-org/spandrel

Only tensors are read from a file, by the same reader as for `weights import`; spandrel gets them, not the
file.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from vidrestore.errors import CheckpointError
from vidrestore.weights.checkpoint import Model
from vidrestore.weights.importing import read_tensors
from vidrestore.weights.manifest import Card, sha256_of

SPANDREL = "spandrel"
# greatest number of a layer over the count of tensors; layers of one tensor with activations between them: 2
GREATEST_LAYER = 8


class Community(nn.Module):
    """(B, 3, H, W) in [0, 1] -> (B, 3, scale H, scale W), one at a time; float32 unless bf16 works.

    Networks that have the noise's level as a fourth channel (DRUNet, FDnCNN) need `sigma` in grey levels;
    spandrel would call them with 15.
    """

    def __init__(self, described: Any) -> None:
        super().__init__()
        self.described, self.body = described, described.model
        self.takes_sigma = (
            described.architecture.id == "DRUNet" or "FDnCNN" in described.tags
        )
        self.sigma = 0.0
        needs = described.size_requirements
        self.config = SimpleNamespace(
            multiple=max(1, needs.multiple_of), scale=described.scale
        )

    def forward(self, pictures: Tensor) -> Tensor:
        half = self.described.supports_bfloat16 and torch.is_autocast_enabled(
            pictures.device.type
        )
        with torch.autocast(pictures.device.type, enabled=half, dtype=torch.bfloat16):
            return torch.cat(
                [self._restored(picture[None]).float() for picture in pictures]
            )

    def _restored(self, picture: Tensor) -> Tensor:
        if not self.takes_sigma:
            return cast("Tensor", self.described(picture))
        level = torch.full_like(picture[:, :1], self.sigma / 255)
        return cast("Tensor", self.body(torch.cat((picture, level), 1))).clamp(0, 1)


def read(path: Path) -> Model:
    """Return the network in a file of another project. Raises CheckpointError."""
    try:
        spandrel: Any = import_module("spandrel")
    except ImportError as error:
        raise CheckpointError(
            f"{path}: the family {SPANDREL!r} needs another package ({error}): "
            "pip install 'vidrestore[spandrel]'"
        ) from error
    except RuntimeError as error:
        raise CheckpointError(
            f"{path}: the package of the family {SPANDREL!r} doesn't load ({error}): torchvision is that of "
            "another PyTorch; install both again in one command, from the same index"
        ) from error

    # refuse what would fill the memory, then let the package build the network
    with suppress(ImportError):
        import_module("spandrel_extra_arches").install(ignore_duplicates=True)
    tensors = {
        name.removeprefix("module."): tensor
        for name, tensor in read_tensors(path).items()
    }
    numbers = [
        int(part[:18])
        for name in tensors
        for part in name.split(".")
        if part.isdecimal()
    ]
    if (layer := max(numbers, default=0)) > GREATEST_LAYER * len(tensors):
        raise CheckpointError(
            f"{path}: names a layer {layer}, but holds {len(tensors)} tensors only; spandrel would build all "
            "layers up to that: not a network that was trained"
        )
    try:
        described = spandrel.ModelLoader().load_from_state_dict(tensors)
    except Exception as error:  # the code of another package may raise any exception
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"{path}: not a network that spandrel knows ({reason:.200})"
        ) from error

    # only networks that restore pictures
    channels = described.input_channels, described.output_channels
    if channels != (3, 3) or described.purpose not in ("SR", "Restoration"):
        raise CheckpointError(
            f"{path}: a network of the kind {described.purpose} with {channels[0]} channels in and "
            f"{channels[1]} out; expected SR or Restoration with 3 and 3"
        )
    for layer in described.model.modules():
        # SPAN sets its convolutions' weights in each call, which spoils those of other threads
        if hasattr(layer, "update_params"):
            layer.update_params()
            layer.update_params = lambda: None
    card = Card(
        path.stem, SPANDREL, {}, "restore", sha256_of(path), path.stat().st_size
    )
    return Model(Community(described).eval(), card)
