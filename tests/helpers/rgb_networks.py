"""Files of tiny RGB networks for tests: some return their input, some have weights far from the start."""

from pathlib import Path
from typing import Any

import torch
from taylor_networks import small
from torch import Tensor, nn
from vsr_networks import recurrent, tiny

from vidrestore.models.mb_taylorformer import MBTaylorFormer, settings_of
from vidrestore.models.vsr_recurrent import VsrRecurrent, config_of
from vidrestore.models.vsr_transformer import VsrTransformer
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.restorers.vsr_restorer import VsrRestorer
from vidrestore.settings.options import RestoreOptions
from vidrestore.weights.checkpoint import save_model


def keeping() -> MBTaylorFormer:
    """Gives every picture back: what it adds to its input is nothing."""
    return without(small(), "head")


def doubling() -> VsrRecurrent:
    """Enlarges bilinearly: what it adds is nothing, and nothing is handed over."""
    network = recurrent().float()
    handed = (
        f"to_{side}.{layer}"
        for side in ("earlier", "later")
        for layer in ("gate", "outer")
    )
    for part in ("tail", *handed):
        without(network, part)
    return network


def released_form() -> VsrTransformer:
    """Tied to 64x64 pixels and 5 frames, as the release is, but tiny."""
    network = tiny(blocks=1, heads=1, patch=8).float()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.3)
    return network


def without(network: Any, part: str) -> Any:
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.startswith(part):
                parameter.zero_()
    return network


def write_weights(
    folder: Path, network: nn.Module, task: str, **parameters: Any
) -> str:
    """The path of a file that holds the network; `parameters` for its card."""
    path = folder / f"{task}-{len(list(folder.glob('*.safetensors')))}.safetensors"
    if isinstance(network, MBTaylorFormer):
        family, config = "mb-taylorformer", settings_of(network.config)
    else:
        family, config = "vsr-transformer", config_of(network)
    save_model(
        path, network, family=family, config=config, task=task, parameters=parameters
    )
    return str(path)


def image_restorer(
    folder: Path, network: MBTaylorFormer, **options: Any
) -> PictureRestorer:
    """In full precision, unless `options` ask for another."""
    asked = {"precision": "fp32"} | options
    return PictureRestorer(
        "dehaze",
        RestoreOptions(
            model=write_weights(folder, network, "dehaze"), device="cpu", **asked
        ),
    )


def vsr_restorer(
    folder: Path, network: VsrTransformer | VsrRecurrent, **options: Any
) -> VsrRestorer:
    """In full precision, unless `options` ask for another."""
    asked = {"precision": "fp32"} | options
    return VsrRestorer(
        RestoreOptions(
            model=write_weights(folder, network, "sr"), device="cpu", **asked
        )
    )


def whole_clip(
    restorer: PictureRestorer | VsrRestorer, clip: Tensor, precision: str | None = None
) -> Tensor:
    """All frames of a clip, (T, 3, H, W), by a restorer."""
    return torch.stack(list(restorer.frames(clip, (0, len(clip)), precision=precision)))
