"""Evaluation: networks on test data, by fixed protocols, beside the figures that they should come to.

result = evaluate("bundled")                                        # what ships, on its held-out clips
result = evaluate(config="examples/train/dust-denoise.toml")        # one recipe
result.rows[0].measured["psnr"], result.to_json(), result.to_csv()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vidrestore.errors import OptionError
from vidrestore.evaluation.bundled import evaluate_bundled, evaluate_recipe
from vidrestore.evaluation.pair import compare_videos
from vidrestore.evaluation.papers.published import table_names
from vidrestore.evaluation.quick import SECONDS, evaluate_films
from vidrestore.evaluation.results import ClipFigures, Result, Row
from vidrestore.evaluation.suites import evaluate_table
from vidrestore.restorers.devices import torch_device

__all__ = ["ClipFigures", "Result", "Row", "evaluate", "suite_names"]


def suite_names() -> tuple[str, ...]:
    """Return the names of the suites."""
    return ("bundled", "quick", *table_names())


def evaluate(
    suite: str | None = None,
    *,
    config: str | Path | None = None,
    data: str | Path | None = None,
    weights: Sequence[str] = (),
    systems: Sequence[str] = (),
    sets: Sequence[str] = (),
    metrics: Sequence[str] = (),
    videos: Sequence[str | Path] = (),
    reference: str | Path | None = None,
    seconds: float | None = None,
    device: str = "auto",
    threads: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Result:
    """Evaluate `weights` by a suite, or on the held-out data of a training configuration; one of the two is
    needed.

    `data` is the folder of the test data; without it the recipe's own. `systems` and `sets` choose rows of
    the papers' tables, `metrics` (`further_metrics.NAMES`: vmaf) are measured there besides PSNR and SSIM.
    `videos` are for the suite `quick`, which looks at their first `seconds` (`quick.SECONDS` unless given)
    with `threads` of the CPU (0: all); with `reference` they are compared with that video. `tell` hears what
    is being done. Raises OptionError for an unknown suite, system, set or metric and for what the suite has
    no use for, ConfigError or DatasetError where data is missing, CheckpointError for weights that aren't
    there or don't fit.
    """
    if reference is not None:
        if suite or config or weights or data or seconds is not None:
            raise OptionError(
                "`reference` compares the named videos with it; leave out suites, weights and data"
            )
        return compare_videos([Path(video) for video in videos], Path(reference), tell)
    where = str(torch_device(device))
    folder = None if data is None else Path(data)
    if (suite is None) == (config is None):
        raise OptionError(
            f"give a suite ({', '.join(suite_names())}), a training configuration, or `reference`"
        )
    if suite not in (None, *suite_names()):
        raise OptionError(f"no suite named {suite!r}; there are: {', '.join(suite_names())}")
    if suite not in table_names() and (systems or sets):
        raise OptionError("systems and sets choose rows of a paper's table; leave them out here")
    if suite not in table_names() and metrics:
        raise OptionError(
            f"further metrics ({', '.join(metrics)}) are for the papers' tables; leave them out here"
        )
    if videos and suite != "quick":
        raise OptionError("videos are for `suite=quick`; the others take the folder of their data, `data`")
    if seconds is not None and suite != "quick":
        raise OptionError("`seconds` is for `suite=quick`; the others look at all of their data")
    if folder is not None and suite == "quick":
        raise OptionError(
            "`data` is for the other suites; name videos for `suite=quick`: "
            "`vidrestore eval --suite quick video.mp4`"
        )
    if config is not None:
        return evaluate_recipe(Path(config), weights, folder, where, tell)
    if suite == "quick":
        return evaluate_films(
            [Path(video) for video in videos],
            weights,
            SECONDS if seconds is None else seconds,
            where,
            tell,
            threads,
        )
    if suite is None or suite == "bundled":
        return evaluate_bundled(weights, folder, where, tell)
    return evaluate_table(suite, folder, weights, systems, sets, metrics, where, tell)
