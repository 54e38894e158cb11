"""Evaluate networks on test data by fixed protocols and compare them with published metrics.

result = evaluate("bundled")                                # the bundled weights, on held-out clips
result = evaluate(config="examples/train/dust-denoise.toml")        # one training configuration
result.rows[0].measured["psnr"], result.to_json(), result.to_csv()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from vidrestore.errors import OptionError
from vidrestore.lab.evaluation.held_out import evaluate_held_out
from vidrestore.lab.evaluation.reference import compare_videos
from vidrestore.pages.results import ClipMetrics, Result, Row
from vidrestore.restorers.devices import torch_device

__all__ = ["ClipMetrics", "Result", "Row", "evaluate", "suites"]


def _tables() -> Any:
    """Return the module of the papers' tables, loaded when one of them may be meant."""
    return import_module("vidrestore.lab.papers.suites")


def suites() -> dict[str, str]:
    """Return the suites by name, each with a description: `bundled` and every table of a paper."""
    tables = {
        name: _tables().read_table(name).title for name in _tables().table_names()
    }
    return {"bundled": "all that ships, on held-out clips"} | tables


def evaluate(
    suite: str | None = None,
    *,
    config: str | Path | None = None,
    data: str | Path | None = None,
    weights: Sequence[str] = (),
    systems: Sequence[str] = (),
    sets: Sequence[str] = (),
    videos: Sequence[str | Path] = (),
    reference: str | Path | None = None,
    device: str = "auto",
    on_progress: Callable[[str], None] = lambda line: None,
) -> Result:
    """Evaluate weights by a suite or on the held-out data of a training configuration, or compare videos with
    a reference: one of `suite`, `config` and `reference` says which.

    Raises OptionError for an unknown suite, system or set and for options that the suite doesn't take,
    ConfigError or DatasetError if data is missing, CheckpointError for weights that are missing or don't fit.

    Args:
        suite (str): Name of one of `suites()`; default None.
        config (str or path): Training configuration whose held-out clips are measured; default None.
        data (str or path): Folder of the test data; default None: that of the configuration, or of each
            weights' own.
        weights (sequence of str): Names or files of weights, `SET=` before those of one test set; default
            empty: the bundled ones, with `config` those of its name.
        systems (sequence of str): Rows of a paper's table; default empty: all.
        sets (sequence of str): Test sets of a paper's table; default empty: all.
        videos (sequence of str or path): Videos to compare with `reference`; default empty.
        reference (str or path): Clean video with the same frames; default None.
        device (str): "cpu", "cuda", "cuda:1" and so on; default "auto": an NVIDIA GPU if there is one.
        on_progress (callable): Called with a line of text as the work proceeds; by default it is dropped.
    """
    # which of the three is meant
    if reference is not None:
        if suite or config or weights or data:
            raise OptionError(
                "`reference` compares the named videos with it; remove suites, weights and data"
            )
        return compare_videos(list(map(Path, videos)), Path(reference), on_progress)
    if (suite is None) == (config is None):
        raise OptionError(
            "give `reference` and the clean video, `config` and a training configuration, or `suite` and one "
            "of those that `vidrestore eval --list` shows"
        )
    # suites of our own, or a paper's table
    device = str(torch_device(device))
    folder = None if data is None else Path(data)
    _check_suite(suite, bool(systems or sets), bool(videos))
    if suite in (None, "bundled"):
        return evaluate_held_out(
            None if config is None else Path(config),
            weights,
            folder,
            device,
            on_progress,
        )
    result: Result = _tables().evaluate_table(
        suite, folder, weights, systems, sets, device, on_progress
    )
    return result


def _check_suite(suite: str | None, rows_chosen: bool, videos: bool) -> None:
    """Raise OptionError for an unknown suite, and for options that the suite doesn't take."""
    # an unknown name gets a suggestion
    of_table = suite not in (None, "bundled")
    if of_table and suite not in suites():
        names = get_close_matches(str(suite), suites())
        close = f" (did you mean {' or '.join(names)}?)" if names else ""
        raise OptionError(
            f"no suite named {suite!r}{close}; `vidrestore eval --list` shows all"
        )
    if not of_table and rows_chosen:
        raise OptionError(
            "systems and sets choose rows of a paper's table; remove them for other suites"
        )
    if videos:
        raise OptionError(
            "videos are compared with `reference`; name the folder of a suite's data by `data`"
        )
