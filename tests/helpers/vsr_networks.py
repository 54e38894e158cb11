"""The tiny released network of the golden numbers, and recurrent ones."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from vidrestore.models.spynet import SpynetConfig
from vidrestore.models.vsr_recurrent import RecurrentConfig, VsrRecurrent, build
from vidrestore.models.vsr_transformer import VsrConfig, VsrTransformer
from vidrestore.weights.releases import adopt_vsr

GOLDEN = Path(__file__).parents[1] / "golden"
# of the golden network, which its tensors don't show
ARGUMENTS: dict[str, Any] = {"num_frame": 5}


@cache
def golden(name: str) -> dict[str, Tensor]:
    """The tensors of a golden file; weights ("w/...") are halves that are exact in single precision."""
    return {
        key: tensor.float() if tensor.dtype == torch.float16 else tensor
        for key, tensor in load_file(GOLDEN / name).items()
    }


def weights_of(name: str) -> dict[str, Tensor]:
    """The weights of a golden file by their names."""
    return {
        key[2:]: tensor for key, tensor in golden(name).items() if key.startswith("w/")
    }


def spynet_tensors() -> dict[str, Tensor]:
    """Weights of a SPyNet as mmediting names them."""
    return weights_of("spynet_tiny.safetensors")


def released_tensors() -> dict[str, Tensor]:
    """A state dict of the release, with few channels and blocks."""
    return weights_of("vsr_tiny.safetensors") | {
        f"spynet.spynet.{key}": tensor for key, tensor in spynet_tensors().items()
    }


def released(dtype: torch.dtype = torch.float32) -> VsrTransformer:
    """The network of the golden numbers."""
    adopted = adopt_vsr(released_tensors(), ARGUMENTS)
    network = build(dict(adopted.config))
    network.load_state_dict(dict(adopted.tensors))
    return network.to(dtype).eval()


def tiny(**changes: Any) -> VsrTransformer:
    """A small network of the released form in double precision, with weights that let every part be seen."""
    settings: dict[str, Any] = {
        "features": 8,
        "blocks": 2,
        "heads": 2,
        "patch": 16,
        "tail": 4,
    }
    settings |= {"extraction": 1, "propagation": 1, "reconstruction": 1}
    settings |= {"flow": SpynetConfig(levels=2, widths=(8, 8), kernel=3)}
    return _seen(VsrTransformer(VsrConfig(**(settings | changes))))


def recurrent(**changes: Any) -> VsrRecurrent:
    """A small recurrent network, likewise."""
    settings: dict[str, Any] = {
        "features": 8,
        "extraction": 1,
        "layers": 1,
        "reconstruction": 1,
    }
    settings |= {"shared": 3, "keys": 2, "hidden": 4}
    network: VsrRecurrent = _seen(VsrRecurrent(RecurrentConfig(**(settings | changes))))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.startswith(("to_", "tail")):
                parameter.mul_(0.3)  # or what is handed over grows from frame to frame
    return network


def _seen(network: Any) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.15)
    return network.double().eval()
