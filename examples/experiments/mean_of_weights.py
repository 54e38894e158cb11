#!/usr/bin/env python3
"""Write the mean of two weights of one network, of which the second went on from the first.

    mean_of_weights.py FIRST SECOND OUT.safetensors [--share 0.6]

Training on other draws gains on those and forgets some of what was learnt before; between the two lie weights
that keep most of both (M. Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022). FIRST and
SECOND are names or files; the metadata are SECOND's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from vidrestore.weights import load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("first")
    parser.add_argument("second", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--share", type=float, default=0.6, help="of SECOND")
    given = parser.parse_args()
    first, second = (
        load_model(str(each)).network.state_dict()
        for each in (given.first, given.second)
    )
    with safe_open(given.second, "pt") as file:
        metadata = file.metadata()
    means = {
        name: torch.lerp(first[name].float(), second[name].float(), given.share)
        for name in second
    }
    save_file(
        {name: each.contiguous() for name, each in means.items()}, given.out, metadata
    )


if __name__ == "__main__":
    main()
