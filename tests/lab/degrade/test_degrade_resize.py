"""Resizing gives the numbers of MATLAB's imresize, as the code of VSR-Transformer has them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vidrestore.lab.degrade import imresize

PICTURES = load_file(Path(__file__).parents[2] / "golden" / "metrics.safetensors")


def planes(name: str) -> torch.Tensor:
    """A stored picture (H, W, 3) as (3, H, W), float32; 8 bits as [0, 1]."""
    picture = PICTURES[name]
    return (picture.float() / 255 if picture.dtype == torch.uint8 else picture).movedim(
        -1, 0
    )


@pytest.mark.parametrize("name", ["structured_a", "random_a", "odd_a"])
def test_resizing_is_that_of_the_papers(name):
    small = imresize(planes(name), 0.25)
    torch.testing.assert_close(small, planes(f"{name}/down4"), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        imresize(small, 4), planes(f"{name}/down4_up4"), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        imresize(planes(name)[:, :16, :20], 4),
        planes(f"{name}/up4_of_16x20"),
        atol=1e-5,
        rtol=0,
    )
