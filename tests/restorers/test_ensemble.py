"""The ensemble of two denoisers: which weights ask for it, its name and options, and the share of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rgb_networks import write_weights
from taylor_networks import small

from vidrestore.errors import CheckpointError, OptionError
from vidrestore.options import RestoreOptions
from vidrestore.restorers.base import Restorer, load_restorer
from vidrestore.restorers.ensemble import NOISE, Ensemble


def denoiser(folder: Path, share: Any = None, **options: Any) -> Restorer:
    """The denoiser of small weights for pictures; with `share` they ask for an ensemble."""
    parameters = {} if share is None else {"ensemble_share": share}
    model = write_weights(folder, small(), "denoise", **parameters)
    return load_restorer("denoise", RestoreOptions(model=model, device="cpu", **options))


def ensemble(folder: Path, **options: Any) -> Ensemble:
    restorer = denoiser(folder, 0.4, **options)
    assert isinstance(restorer, Ensemble)
    return restorer


def test_weights_that_ask_for_it_restore_beside_dust(tmp_path: Path) -> None:
    best = ensemble(tmp_path)
    dust = load_restorer("denoise", RestoreOptions(device="cpu"))
    assert best.facts.name == f"{dust.facts.name} and {best.pictures.facts.name}"
    assert dust.facts.weights in best.facts.weights and best.pictures.facts.weights in best.facts.weights
    assert best.facts.needs_sigma and best.clip_length(480, 854) == dust.clip_length(480, 854)
    assert best.sample() is not None
    assert denoiser(tmp_path).sees == "rgb"


def test_beside_dust_the_options_of_both_hold_but_steady(tmp_path: Path) -> None:
    best = ensemble(tmp_path, sigma=8.0, quality="fast", match=False, tile=64)
    assert best.planes.preset is not ensemble(tmp_path).planes.preset  # type: ignore[attr-defined]
    assert best.pictures.tile_size(480, 854) == (64, 64)
    with pytest.raises(OptionError, match="works beside DUST, which sees 20 frames; remove `steady`"):
        ensemble(tmp_path, steady=True)
    for options in ({"sigma": 8.0}, {"quality": "fast"}, {"match": False}):
        with pytest.raises(OptionError, match="estimates noise itself; remove `sigma`"):
            denoiser(tmp_path, **options)


def test_the_share_of_pictures_grows_with_the_noise_and_is_none_without(tmp_path: Path) -> None:
    best, (low, high) = ensemble(tmp_path), NOISE
    assert best.share(0) == best.share(low) == 0
    assert best.share((low + high) / 2) == pytest.approx(0.2)
    assert best.share(high) == best.share(50) == 0.4


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 1, "half", None, [0.5], float("nan")], ids=str)
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: Any) -> None:
    model = write_weights(tmp_path, small(), "denoise", ensemble_share=share)
    with pytest.raises(CheckpointError, match="ensemble_share must be above 0 and below 1, found"):
        load_restorer("denoise", RestoreOptions(model=model, device="cpu"))


def test_both_compute_less_if_memory_runs_out(tmp_path: Path) -> None:
    best = ensemble(tmp_path)
    batch, tiles = best.planes.batch, best.pictures.most_tiles  # type: ignore[attr-defined]
    assert best.halve_batch()
    assert best.planes.batch == batch // 2  # type: ignore[attr-defined]
    assert best.pictures.most_tiles == tiles // 2  # type: ignore[attr-defined]
