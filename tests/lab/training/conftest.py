"""Fixtures of all tests of training."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from training_runs import tiny_run

from vidrestore.lab.run_config import RunConfig
from vidrestore.lab.training.data import sources
from vidrestore.lab.training.loop import train


def hold_out_little(patched: pytest.MonkeyPatch) -> None:
    """Let few groups and crops be held out, which takes milliseconds."""
    patched.setattr(sources, "VALIDATION_GROUPS", 40)
    patched.setattr(sources, "VALIDATION_PAIRS", 2)
    patched.setattr(sources, "VALIDATION_SIDE", 16)


@pytest.fixture(autouse=True)
def small_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    hold_out_little(monkeypatch)


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default commands train with as many threads as there are cores, which alter sums in their last
    bits; tests share the cores.
    """
    monkeypatch.setattr("vidrestore.working.available_cores", lambda: 1)


@dataclass(frozen=True)
class Trained:
    """A run that is only read: its weights, checkpoint and records lie in `folder`."""

    config: RunConfig
    folder: Path

    @property
    def weights(self) -> Path:
        return self.folder / "tiny.safetensors"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A tiny denoiser, trained on the CPU."""
    folder = tmp_path_factory.mktemp("trained")
    config = tiny_run(folder)
    with pytest.MonkeyPatch.context() as patched:
        hold_out_little(patched)
        train(config, folder / "runs", device="cpu")
    return Trained(config, folder / "runs")
