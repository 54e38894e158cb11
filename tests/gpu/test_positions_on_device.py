"""Patches are found and gathered on a device as on the CPU, and so is the spectrum of their noise."""

from __future__ import annotations

import pytest
import torch
from stand_in import DEVICE, OnDevice, Rehearsal
from torch import Tensor

from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.matching import Grid, fixed_positions, gather
from vidrestore.models.noise_model import is_white, lower_level, may_be_white, relative_spectrum
from vidrestore.models.nonlocal_bayes import Noise, bayes_gains, inverse_covariance, nonlocal_bayes
from vidrestore.models.patch_positions import ClipPositions, Following
from vidrestore.models.second_estimate import Transform, wiener_gains


def moving(frames: int = 6, height: int = 40, width: int = 56) -> Tensor:
    """A noisy texture that moves by two pixels down and three to the left in each frame."""
    rng = torch.Generator().manual_seed(9)
    large = torch.randn(1, 1, 24, 32, generator=rng)
    large = 128 + 50 * torch.nn.functional.interpolate(large, scale_factor=4.0, mode="bicubic")[0, 0]
    views = [large[20 + 2 * at :, 30 - 3 * at :][:height, :width] for at in range(frames)]
    return torch.stack(views) + 5 * torch.randn(frames, height, width, generator=rng)


@pytest.mark.parametrize("positions", ["fixed", "camera", "near", "matched"])
@pytest.mark.parametrize("shape", [(40, 56), (20, 28)])
def test_places_are_those_of_the_cpu(positions: Following, shape: tuple[int, int]) -> None:
    luma = moving()
    expected = ClipPositions(luma, 8, follow=True).origins(torch.Size((6, *shape)), 12, positions, 2)
    with Rehearsal():
        found = ClipPositions(luma.to(DEVICE), 8, follow=True).origins(
            torch.Size((6, *shape)), 12, positions, 2
        )
        assert isinstance(found, OnDevice)
        assert torch.equal(found.cpu(), expected)


def test_places_around_those_found_before_are_those_of_the_cpu() -> None:
    def around(luma: Tensor) -> Tensor:
        before = ClipPositions(luma, 8, follow=True)
        before.origins(luma.shape, 16, "matched")
        return ClipPositions(luma, 8, follow=True, before=before).origins(luma.shape, 10, "matched", 2)

    luma = moving()
    expected = around(luma)
    with Rehearsal():
        found = around(luma.to(DEVICE))
        assert isinstance(found, OnDevice)
        assert torch.equal(found.cpu(), expected)


def test_the_gains_of_the_second_estimate_lie_where_the_planes_are() -> None:
    with Rehearsal():
        found = wiener_gains("default", 0, 20.0, 20, 16, DEVICE)
        assert found is not None and all(isinstance(each, OnDevice) for each in found)


@pytest.mark.parametrize("coloured", [False, True])
def test_estimates_by_non_local_bayes_are_those_of_the_cpu(coloured: bool) -> None:
    luma = moving()
    estimate = luma.mean(0, keepdim=True).expand_as(luma).contiguous()

    def again(noisy: Tensor, first: Tensor) -> Tensor:
        tracks = ClipPositions(noisy, 16, follow=True).origins(noisy.shape, 8, "matched")
        spectrum = torch.linspace(0.5, 2, 256, device=noisy.device)
        noise = Noise(5.0, first, inverse_covariance(spectrum) if coloured else None)
        factors = bayes_gains("default", 0, 5.0, noisy.device)
        return nonlocal_bayes(noisy, first, tracks, 16, noise, factors, samples=3)

    expected = again(luma, estimate)
    with Rehearsal():
        found = again(luma.to(DEVICE), estimate.to(DEVICE))
        assert isinstance(found, OnDevice)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=2e-2)


def test_patches_are_gathered_where_the_plane_is() -> None:
    luma, grid = moving(), Grid(40, 56, 8, 8)
    expected = gather(luma, fixed_positions(6, grid), 8)
    with Rehearsal():
        found = gather(luma.to(DEVICE), fixed_positions(6, grid, DEVICE), 8)
        assert isinstance(found, OnDevice) and torch.equal(found.cpu(), expected)


def test_the_spectrum_of_noise_is_that_of_the_cpu() -> None:
    luma = moving()
    estimate = luma.mean(0, keepdim=True).expand_as(luma).contiguous()

    def spectrum(noisy: Tensor, first: Tensor) -> Tensor:
        groups = ClipPositions(noisy, 16, follow=True).origins(noisy.shape, 8, "matched")
        transform = Transform(16, torch.float32, PackedLinear, noisy.device)
        return relative_spectrum(noisy, first, 5.0, groups, transform)

    expected = spectrum(luma, estimate)
    with Rehearsal():
        found = spectrum(luma.to(DEVICE), estimate.to(DEVICE))
        assert isinstance(found, OnDevice)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)


def test_white_noise_measured_too_high_is_told_as_on_the_cpu() -> None:
    spectrum = torch.full((16, 16), 0.5)
    spectrum[:4, :4] = 2.0
    with Rehearsal():
        found = spectrum.flatten().to(DEVICE)
        assert lower_level(found) == pytest.approx(0.5)
        assert not is_white(found) and not may_be_white(found)
