#!/usr/bin/env python3
"""Count the channels between two convolutions of residual blocks that are never positive, and give them new
filters.

    dead_channels.py RECIPE.toml WEIGHTS [--revived NEW.safetensors]

With a plain ReLU (a slope of 0) such a channel is dead: it adds a constant and gets no gradients. It counts
as dead if it is positive at less than a thousandth of the places in training batches of RECIPE. In NEW, which
`train --init` takes, dead channels begin anew: random filters before the ReLU and zeros behind it, so the
network computes what it did, and the channels learn. Prints dead and all channels of each block.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from vidrestore.lab.run_config import read_config
from vidrestore.lab.training.data.sources import make_data
from vidrestore.lab.training.loop import Run
from vidrestore.models.mb_taylorformer import ConvolutionPair
from vidrestore.models.vsr_transformer import ResidualBlock
from vidrestore.weights import load_model

RARE = 1e-3  # share of places
BATCHES = 6


def convolutions(block: nn.Module) -> tuple[nn.Conv2d, nn.Conv2d] | None:
    """Return the two convolutions of a residual block, None for other modules."""
    if isinstance(block, ConvolutionPair):
        return block.first, block.second
    return (block.conv1, block.conv2) if isinstance(block, ResidualBlock) else None


class Counter:
    """Counts at how many places each channel of a convolution is positive."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        self.positive, self.places = torch.zeros(convolution.out_channels), 0
        convolution.register_forward_hook(self.count)

    def count(self, _: nn.Module, given: tuple[Tensor, ...], maps: Tensor) -> None:
        self.positive += (maps > 0).sum((0, 2, 3))
        self.places += maps[:, 0].numel()

    @property
    def dead(self) -> Tensor:
        return self.positive < RARE * self.places


def dead_channels(recipe: Path, weights: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the name of each residual block and which of its channels (C,) are dead."""
    with TemporaryDirectory() as folder:
        run = Run(read_config(recipe), Path(folder), torch.device("cpu"))
        run.initialise_from(weights)
        blocks = {
            name: pair
            for name, part in run.network.named_modules()
            if (pair := convolutions(part))
        }
        counters = {name: Counter(first) for name, (first, _) in blocks.items()}
        source, _ = make_data(run.config, run.network)
        with torch.no_grad():
            for batch in islice(
                source.batches(range(BATCHES), run.config.training.batch), BATCHES
            ):
                run.learner.objective.loss(run.network, batch, 0)
    for name, counter in counters.items():
        yield name, counter.dead


def revived(
    tensors: dict[str, Tensor], network: nn.Module, name: str, dead: Tensor
) -> dict[str, Tensor]:
    """Return new tensors for the block `name`, the same but for its dead channels."""
    pair = convolutions(network.get_submodule(name))
    assert pair is not None
    names = {part: own for own, part in network.get_submodule(name).named_children()}
    before, behind = (f"{name}.{names[part]}" for part in pair)
    first, bias, second = (
        tensors[key].float()
        for key in (f"{before}.weight", f"{before}.bias", f"{behind}.weight")
    )
    fresh = torch.empty_like(first)
    nn.init.kaiming_normal_(fresh, a=1.0)
    first[dead], bias[dead], second[:, dead] = fresh[dead], 0.0, 0.0
    return {
        f"{before}.weight": first,
        f"{before}.bias": bias,
        f"{behind}.weight": second,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--revived", type=Path, metavar="NEW.safetensors")
    options = parser.parse_args()
    torch.manual_seed(0)
    network = load_model(options.weights).network
    tensors = {
        name: value.float().clone() for name, value in network.state_dict().items()
    }
    total, everything = 0, 0
    for name, dead in dead_channels(options.recipe, options.weights):
        print(f"{name:44} {int(dead.sum()):3} of {len(dead)}")
        total, everything = total + int(dead.sum()), everything + len(dead)
        tensors |= revived(tensors, network, name, dead)
    print(f"{'all':44} {total:3} of {everything}")
    if options.revived:
        with safe_open(options.weights, "pt") as file:
            metadata = file.metadata()
        save_file(
            {name: value.contiguous() for name, value in tensors.items()},
            options.revived,
            metadata,
        )


if __name__ == "__main__":
    main()
