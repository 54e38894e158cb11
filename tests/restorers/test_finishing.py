"""Estimates of any layout go through the finisher and come back at their own sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vidrestore.errors import CheckpointError
from vidrestore.models.dust import Dust, DustConfig
from vidrestore.models.finisher import Finisher, FinisherConfig
from vidrestore.restorers.finishing import Finish, _small_sigma
from vidrestore.weights.checkpoint import save_model

CONFIG = FinisherConfig(widths=(8, 8), blocks=(0, 0), neighbours=0)
CPU = torch.device("cpu")


@pytest.fixture
def brightening(tmp_path: Path) -> Finish:
    """Adds sigma to every sample."""
    network = Finisher(CONFIG)
    torch.nn.init.ones_(network.tail.bias)  # type: ignore[arg-type]
    path = tmp_path / "brightening.safetensors"
    save_model(path, network, family="finisher", config=CONFIG, task="finish")
    return Finish(str(path), CPU)


@pytest.mark.parametrize("luma", [(16, 24), (17, 23), (5, 4)])
@pytest.mark.parametrize("chroma", [None, (1, 1), (1, 2), (2, 2)])
def test_every_plane_is_corrected_at_its_own_size(brightening: Finish, luma: tuple[int, int], chroma: tuple[int, int] | None) -> None:
    shapes = [luma]
    if chroma:
        shapes += [(-(-luma[0] // chroma[0]), -(-luma[1] // chroma[1]))] * 2
    planes = tuple(torch.rand(3, *shape) * 200 for shape in shapes)
    sigma = (6.0, 4.0, 4.0)[: len(planes)]
    with torch.inference_mode():
        finished = brightening(planes, planes, sigma, torch.float32)
    for before, after, shape in zip(planes, finished, shapes, strict=True):
        assert after.shape[1:] == shape
        added = (after - before).flatten()
        assert float(added.min()) == pytest.approx(float(added.max()), abs=1e-3)
    assert float((finished[0] - planes[0]).mean()) == pytest.approx(6, abs=1e-3)


def test_means_of_chroma_samples_are_less_noisy() -> None:
    full, half = torch.zeros(1, 16, 24), torch.zeros(1, 8, 12)
    assert _small_sigma((full, half, half), (9.0, 6.0, 6.0), (8, 12)) == pytest.approx(6)
    assert _small_sigma((full, full, full), (9.0, 6.0, 6.0), (8, 12)) == pytest.approx(3)


def test_weights_of_another_family_are_refused(tmp_path: Path) -> None:
    config = DustConfig(patch=4, atoms=16)
    save_model(tmp_path / "dust.safetensors", Dust(config), family="dust", config=config, task="denoise")
    with pytest.raises(CheckpointError, match="do not finish"):
        Finish(str(tmp_path / "dust.safetensors"), CPU)
