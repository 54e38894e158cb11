"""Eigenvectors by rotations of all pairs at once, held against LAPACK's."""

import pytest
import torch
from stand_in import Rehearsal
from torch import Tensor

from vidrestore.models.fast.eigenvectors import by_rotations, eigenvectors


def products(frames: int, seed: int = 0) -> Tensor:
    """Patches that drift, in noise, times themselves: as along time in a video."""
    generator = torch.Generator().manual_seed(seed)
    drifting = torch.randn(60, frames, 256, generator=generator).cumsum(1)
    noisy = 20 * drifting + 10 * torch.randn(drifting.shape, generator=generator)
    return noisy @ noisy.mT


FAMILIES = {
    "video": products(20),
    "short": products(3),
    "one frame": products(1),
    "a still picture": torch.full((1, 20, 20), 3e6),
    "nothing": torch.zeros(1, 20, 20),
    "equal": 7 * torch.eye(20)[None],
    "few patterns": products(20)[:, :, :3] @ products(20)[:, :3] / 1e6,
}


@pytest.mark.parametrize("name", FAMILIES)
def test_rotations_find_the_eigenvectors_that_lapack_finds(name):
    given = FAMILIES[name]
    found = by_rotations(given)
    size = given.flatten(1).norm(dim=1)[:, None, None].clamp(min=1)
    values, expected = found.mT @ given @ found, torch.linalg.eigvalsh(given)
    torch.testing.assert_close(
        found.mT @ found, torch.eye(given.shape[1]).expand_as(given), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(values / size, torch.diag_embed(expected) / size, atol=1e-5, rtol=0)


def test_a_device_never_waits_for_eigenvectors_and_a_cpu_has_lapacks():
    given = FAMILIES["video"]
    with Rehearsal() as device:
        found = eigenvectors(given.to("cuda"))
        assert not device.counts["waits inside"]
        assert torch.equal(found.cpu(), by_rotations(given))
    assert torch.equal(eigenvectors(given), torch.linalg.eigh(given).eigenvectors)
