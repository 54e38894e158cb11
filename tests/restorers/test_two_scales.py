"""Pictures restored at two scales: what is coarse from a small picture of the whole frame, what is fine from
its own pixels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rgb_networks import keeping, write_weights
from torch import Tensor, nn

from vidrestore.errors import CheckpointError
from vidrestore.models.mb_taylorformer import SIZES
from vidrestore.options import RestoreOptions
from vidrestore.restorers.mb_taylorformer_restorer import ImageRestorer
from vidrestore.restorers.two_scales import coarse_size, with_coarse


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


def test_a_level_comes_from_the_small_picture_and_a_pattern_within_its_pixels_from_the_large_one() -> None:
    pattern = (torch.arange(32)[:, None] + torch.arange(48)).remainder(2) * 0.2 - 0.1
    fine, coarse = (0.6 + pattern).expand(1, 3, -1, -1), torch.full((1, 3, 8, 12), 0.3)
    torch.testing.assert_close(with_coarse(fine, coarse), (0.3 + pattern).expand(1, 3, -1, -1))


def test_a_slope_comes_from_the_small_picture() -> None:
    slope = torch.linspace(0, 1, 64).expand(1, 3, 32, 64)
    small = slope.unflatten(3, (16, 4)).mean(-1)[:, :, ::4]
    torch.testing.assert_close(with_coarse(torch.zeros(1, 3, 32, 64), small)[..., 2:-2], slope[..., 2:-2])


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


def test_a_small_picture_is_restored_only_where_weights_ask_and_the_frame_is_larger(tmp_path: Path) -> None:
    for lines, seen in ((None, [(64, 80)]), (48, [(64, 80)]), (16, [(64, 80), (16, 16)])):
        made, given = restorer(tmp_path, lines, 0.1, 0.3), picture(64, 80)
        level = 0.3 if len(seen) > 1 else 0.1
        torch.testing.assert_close(made.picture(given[None]), given + level)
        assert made.network.seen == seen  # type: ignore[comparison-overlap]


def test_tiles_agree_on_what_is_coarse_because_all_of_it_is_from_one_picture(tmp_path: Path) -> None:
    given = F.interpolate(picture(4, 4)[None], (64, 128), mode="bicubic")[0]
    tiled, whole = (
        restorer(tmp_path, lines, 0.1, -0.2, 0.3, tile=64, tile_overlap=0).picture(given[None])
        for lines in (None, 32)
    )
    assert float((tiled - given)[..., :60].mean() - (tiled - given)[..., 68:].mean()) == pytest.approx(
        0.3, abs=1e-4
    )
    for side in (slice(0, 60), slice(68, 128)):
        torch.testing.assert_close(whole[..., side], given[..., side] + 0.3)


@pytest.mark.parametrize("lines", [0, -8, 2.5, "160", True])
def test_weights_that_ask_for_no_number_of_lines_are_refused(tmp_path: Path, lines: Any) -> None:
    with pytest.raises(CheckpointError, match="coarse_lines must be a whole number above 0, found"):
        restorer(tmp_path, lines)
