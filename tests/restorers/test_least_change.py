"""Frames in which a network changes no detail stay as they are, if its weights ask for that."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from rgb_networks import write_weights
from taylor_networks import small
from torch import Tensor, nn

from vidrestore.errors import CheckpointError
from vidrestore.models.mb_taylorformer import SIZES
from vidrestore.options import RestoreOptions
from vidrestore.restorers.least_change import changed_detail, if_detail_changed
from vidrestore.restorers.mb_taylorformer_restorer import ImageRestorer


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(7))


def checkerboard(grey: float) -> Tensor:
    """(1, 3, 48, 64): plus and minus so many grey levels, from pixel to pixel."""
    rows, columns = torch.arange(48)[:, None], torch.arange(64)
    return (grey / 255) * (1 - 2.0 * ((rows + columns) % 2)).expand(1, 3, -1, -1)


class Sprinkler(nn.Module):
    """Darkens every picture, and adds a checkerboard of so many grey levels."""

    def __init__(self, grey: float) -> None:
        super().__init__()
        self.config, self.grey = SIZES["t"], grey

    def forward(self, images: Tensor) -> Tensor:
        return images - 0.02 + checkerboard(self.grey)


def test_a_change_of_brightness_is_no_detail_and_a_checkerboard_is_all_of_it() -> None:
    given = noise(1, 3, 48, 64)
    assert float(changed_detail(given, given - 0.1)) < 1e-4
    torch.testing.assert_close(
        changed_detail(given, given - 0.1 + checkerboard(3)), torch.full((1, 1, 1, 1), 3.0), rtol=1e-4, atol=0
    )


def test_each_picture_of_a_batch_gets_a_share_by_its_own_detail() -> None:
    given = noise(1, 3, 48, 64)
    changes = torch.cat([checkerboard(grey) - 0.02 for grey in (1.0, 2.5, 5.0)])
    changed = if_detail_changed(given.expand(3, -1, -1, -1), given + changes, (2.0, 4.0))
    shares = torch.tensor([0.0, 0.25, 1.0]).view(3, 1, 1, 1)
    torch.testing.assert_close(changed, given + shares * changes, rtol=0, atol=1e-4)
    assert torch.equal(changed[:1], given)


@pytest.mark.parametrize("grey, kept", [(0.5, True), (3.0, False)])
def test_a_frame_stays_to_the_bit_unless_the_network_changes_its_detail(
    tmp_path: Path, grey: float, kept: bool
) -> None:
    weights = write_weights(tmp_path, small(), "derain", detail_levels=[1.0, 2.0])
    restorer = ImageRestorer("derain", RestoreOptions(model=weights, device="cpu"))
    restorer.network = Sprinkler(grey)  # type: ignore[assignment]
    clip = noise(1, 3, 48, 64)
    (frame,) = restorer.frames(clip, (0, 1))
    if kept:
        assert torch.equal(frame, clip[0])
    else:
        torch.testing.assert_close(frame, (clip - 0.02 + checkerboard(grey))[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "levels", [2.0, [1.0], [2.0, 1.0], ["a", "b"], [1.0, 1.0], [True, 2], [math.nan, 1.0], [0.0, math.nan]]
)
def test_levels_that_are_not_two_increasing_numbers_are_named(tmp_path: Path, levels: object) -> None:
    weights = write_weights(tmp_path, small(), "derain", detail_levels=levels)
    with pytest.raises(CheckpointError, match="detail_levels must be 2 increasing numbers, found"):
        ImageRestorer("derain", RestoreOptions(model=weights, device="cpu"))
