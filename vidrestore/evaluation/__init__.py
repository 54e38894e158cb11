"""Evaluation: networks on test data, by fixed protocols, beside the figures that they should come to.

result = evaluate("bundled")                                        # what ships, on its held-out clips
result = evaluate(config="examples/train/dust-denoise.toml")        # one recipe
result.rows[0].measured["psnr"], result.to_json(), result.to_csv()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vidrestore.engine.devices import torch_device
from vidrestore.errors import OptionError
from vidrestore.evaluation.results import Result, Row

__all__ = ["SUITES", "Result", "Row", "evaluate"]

SUITES = ("bundled",)


def evaluate(
    suite: str | None = None,
    *,
    config: str | Path | None = None,
    data: str | Path | None = None,
    weights: Sequence[str] = (),
    device: str = "auto",
    tell: Callable[[str], None] = lambda line: None,
) -> Result:
    """Evaluate `weights` by a suite, or on the held-out data of a training configuration; one of the two is needed.

    `data` is the folder of the test data; without it the recipe's own. `tell` hears what is being done. Raises OptionError for an unknown
    suite, ConfigError where data is missing, CheckpointError for weights that aren't there or don't fit.
    """
    from vidrestore.evaluation.bundled import evaluate_bundled, evaluate_recipe

    where = str(torch_device(device))
    folder = None if data is None else Path(data)
    if (suite is None) == (config is None):
        raise OptionError(f"give a suite ({', '.join(SUITES)}) or a training configuration")
    if config is not None:
        return evaluate_recipe(Path(config), weights, folder, where, tell)
    if suite not in SUITES:
        raise OptionError(f"no suite named {suite!r}; there are: {', '.join(SUITES)}")
    return evaluate_bundled(weights, folder, where, tell)
