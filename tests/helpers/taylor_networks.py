"""Networks of MB-TaylorFormer for tests: the released code's golden numbers, and small ones of our own."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from vidrestore.models.mb_taylorformer import MBTaylorFormer, build
from vidrestore.models.taylor_attention import AttentionRule
from vidrestore.weights.releases import adopt_taylorformer

GOLDEN = Path(__file__).parents[1] / "golden"
INPUTS = ("", "_odd", "_batch2")
# Attention as the paper prints it; the released code, and ours by default, differ.
PRINTED = AttentionRule(
    4,
    "norm-preserving",
    "plain",
    temperature=False,
    position="convolution",
    eps_length=1e-12,
    eps_sum=1e-6,
)


@cache
def golden(branches: int) -> dict[str, Tensor]:
    """Weights (`w/<name>`), inputs and outputs of the released code, by the arguments in the JSON file."""
    return load_file(GOLDEN / f"mbt_tiny_{branches}branch.safetensors")


def their_weights(branches: int) -> dict[str, Tensor]:
    return {
        name[2:]: tensor
        for name, tensor in golden(branches).items()
        if name.startswith("w/")
    }


def released(
    branches: int, dtype: torch.dtype = torch.float32, **changes: Any
) -> MBTaylorFormer:
    """The golden network; `changes` are arguments beside the authors', such as `attention`."""
    adopted = adopt_taylorformer(their_weights(branches), changes)
    network = build(dict(adopted.config))
    network.load_state_dict(dict(adopted.tensors), strict=True)
    return network.to(dtype).eval()


def restored(network: MBTaylorFormer, images: Tensor) -> Tensor:
    """As the released tests run it: reflected on the right and at the bottom to multiples of 8, and cut
    again.
    """
    height, width = images.shape[2:]
    padded = F.pad(
        images.to(network.head.dtype), (0, -width % 8, 0, -height % 8), mode="reflect"
    )
    with torch.no_grad():
        return network(padded)[..., :height, :width]


def small(**changes: Any) -> MBTaylorFormer:
    """A tiny network whose weights are far from their symmetric start."""
    torch.manual_seed(5)
    sizes = {"widths": [4, 8, 12, 16], "blocks": [1, 1, 1, 1]}
    sizes |= {"branches": [1, 2, 2, 2], "heads": [1, 2, 4, 8]}
    network = build(sizes | changes).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if not name.endswith("one"):
                parameter += 0.2 * torch.randn_like(parameter)
    return network
