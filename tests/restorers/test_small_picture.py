"""Frames restored as small pictures of them, whose change is done to their own pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rgb_networks import keeping, write_weights
from torch import Tensor, nn

from vidrestore.errors import CheckpointError
from vidrestore.models.mb_taylorformer import SIZES
from vidrestore.options import RestoreOptions
from vidrestore.restorers.mb_taylorformer_restorer import ImageRestorer, pixel_memory
from vidrestore.restorers.small_picture import changed_as, coarse_size, downscale


class Levels(nn.Module):
    """Adds a level to what it sees, another one for every size of picture and every call."""

    def __init__(self, *levels: float) -> None:
        super().__init__()
        self.config = SIZES["t"]
        self.levels = iter(levels)
        self.seen: list[tuple[int, int]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append((images.shape[2], images.shape[3]))
        return images + next(self.levels)


def restorer(folder: Path, lines: Any, *levels: float, **options: Any) -> ImageRestorer:
    parameters = {} if lines is None else {"coarse_lines": lines}
    made = ImageRestorer(
        "dehaze",
        RestoreOptions(
            model=write_weights(folder, keeping(), "dehaze", **parameters), device="cpu", **options
        ),
    )
    if levels:
        made.network = Levels(*levels)  # type: ignore[assignment]
    return made


def picture(height: int, width: int) -> Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(5))


def test_a_gain_and_an_offset_that_hold_everywhere_are_found_and_reach_the_finest_pixels() -> None:
    frame = picture(64, 96)[None]
    small = downscale(frame, (16, 24))
    gain, offset = torch.tensor([1.5, 0.8, 1.2])[:, None, None], torch.tensor([-0.2, 0.1, 0.0])[:, None, None]
    changed = changed_as(small, gain * small + offset, frame)
    torch.testing.assert_close(changed, gain * frame + offset, atol=5e-3, rtol=0)


def test_what_is_flat_gets_the_offset_and_keeps_the_pattern_within_its_pixels() -> None:
    pattern = (torch.arange(32)[:, None] + torch.arange(48)).remainder(2) * 0.2 - 0.1
    frame, small = (0.6 + pattern).expand(1, 3, -1, -1), torch.full((1, 3, 8, 12), 0.6)
    changed = changed_as(small, torch.full_like(small, 0.3), frame)
    torch.testing.assert_close(changed, (0.3 + pattern).expand(1, 3, -1, -1))


def test_gain_and_offset_are_those_of_least_squares_in_every_window() -> None:
    """By the formula of the guided filter, window by window, for a frame as large as the picture."""
    small, restored = picture(9, 11).double(), picture(11, 9).double().transpose(1, 2)
    windows = {}
    for row in range(9):
        for column in range(11):
            rows, columns = (slice(max(0, at - 2), at + 3) for at in (row, column))
            x, y = (part[:, rows, columns].reshape(3, -1) for part in (small, restored))
            covariance = ((x * y).mean(1) - x.mean(1) * y.mean(1) + 1e-5) / (x.var(1, correction=0) + 1e-5)
            windows[row, column] = covariance, y.mean(1) - covariance * x.mean(1)
    expected = torch.empty_like(small)
    for row, column in windows:
        near = [
            part for (at, across), part in windows.items() if abs(at - row) <= 2 and abs(across - column) <= 2
        ]
        gain, offset = (torch.stack(parts).mean(0) for parts in zip(*near, strict=True))
        expected[:, row, column] = gain * small[:, row, column] + offset
    found = changed_as(small[None], restored[None], small[None])[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "size, lines, small",
    [
        ((480, 854), 160, (160, 288)),
        ((1080, 1920), 160, (160, 288)),
        ((1920, 1080), 160, (288, 160)),
        ((2000, 100), 24, (480, 24)),
        ((100, 2000), 10, (8, 200)),  # no side is nought
        ((239, 400), 160, None),  # nearly as small as the small one
        ((240, 400), 160, (160, 264)),
        ((480, 854), None, None),
    ],
)
def test_the_small_picture_has_the_shape_of_the_large_one_in_multiples_of_8(
    size: tuple[int, int], lines: int | None, small: tuple[int, int] | None
) -> None:
    assert coarse_size(*size, lines, 8) == small


def test_a_network_that_gives_its_input_back_still_does(tmp_path: Path) -> None:
    given = picture(61, 83)
    torch.testing.assert_close(restorer(tmp_path, 16).picture(given[None]), given)


def test_a_small_picture_is_restored_if_weights_ask_and_the_frame_is_larger(tmp_path: Path) -> None:
    for lines, seen in ((None, (64, 80)), (48, (64, 80)), (16, (16, 16))):
        made, given = restorer(tmp_path, lines, 0.1), picture(64, 80)
        torch.testing.assert_close(made.picture(given[None]), given + 0.1)
        assert made.network.seen == [seen]  # type: ignore[comparison-overlap]


def test_tiles_and_memory_are_those_of_the_small_picture(tmp_path: Path) -> None:
    small, whole = (restorer(tmp_path, lines) for lines in (32, None))
    assert small.tile_size(480, 854) == (32, 56)
    assert whole.tile_size(480, 854) == (480, 856)
    saved = pixel_memory(small.network.config) * (480 * 856 - 32 * 56)
    assert whole.memory(480, 854) - small.memory(480, 854) == saved


@pytest.mark.parametrize("lines", [0, -8, 2.5, "160", True, 10**4000])
def test_weights_that_ask_for_no_number_of_lines_are_refused(tmp_path: Path, lines: Any) -> None:
    with pytest.raises(CheckpointError, match="coarse_lines must be a whole number from 1 to 32768, found"):
        restorer(tmp_path, lines)
