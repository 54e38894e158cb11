"""Small networks for compressed sensing whose answer is known beforehand."""

from pathlib import Path

import torch

from vidrestore.models.dust import Dust, DustConfig
from vidrestore.models.dust_sigma import config_of
from vidrestore.weights import Card, save_model

PATCH, ATOMS = 4, 64


def exact_network(scale: float = 1.0, seed: int = 0) -> Dust:
    """As many measurements as pixels, by an orthonormal sensing matrix times `scale`, undone in one block:
    what comes out is what went in.

    The codes are V y with V = (Q D)^T / scale; with a threshold of nearly 0 and D D^T = I, D V y is Q^T y /
    scale.
    """
    network = Dust(DustConfig(PATCH, ATOMS, blocks=1, measurements=PATCH**2))
    matrix = torch.linalg.qr(
        torch.randn(PATCH**2, PATCH**2, generator=torch.Generator().manual_seed(seed))
    )[0]
    with torch.no_grad():
        network.sensing.copy_(matrix * scale)
        network.analysis.copy_((matrix @ network.dictionary).mT / scale)
        network.raw_threshold.fill_(-8.0)
    return network


def save_network(path: Path, network: Dust) -> Card:
    return save_model(
        path, network, family="dust", config=config_of(network), task="recover"
    )
