import pytest
import torch

from vidrestore.lab.degrade import add_gaussian_noise


@pytest.mark.parametrize(
    "dtype, depth, value",
    [(torch.uint8, 8, 128), (torch.uint16, 10, 512), (torch.float32, 8, 128.0)],
)
def test_noise_has_the_sigma_that_was_asked_for_at_every_depth(dtype, depth, value):
    noisy = add_gaussian_noise(
        torch.full((2, 200, 200), value).to(dtype), 20, 1, depth=depth
    )
    assert noisy.dtype == dtype
    grey = noisy.double() / 2 ** (depth - 8)
    assert float(grey.mean()) == pytest.approx(128, abs=0.3)
    assert float(grey.std()) == pytest.approx(20, rel=0.01)


def test_noise_is_white_from_pixel_to_pixel_and_frame_to_frame():
    noise = add_gaussian_noise(torch.zeros(2, 200, 200), 1, 1, clip_and_round=False)
    for one, other in [
        (noise[:, 1:], noise[:, :-1]),
        (noise[..., 1:], noise[..., :-1]),
        (noise[0], noise[1]),
    ]:
        assert abs(float((one * other).mean())) < 0.02


def test_a_seed_gives_the_same_noise_each_time():
    clean = torch.full((3, 8, 8), 100, dtype=torch.uint8)
    noisy = add_gaussian_noise(clean, 10, 7)
    assert torch.equal(noisy, add_gaussian_noise(clean, 10, 7))
    assert not torch.equal(noisy, add_gaussian_noise(clean, 10, 8))
    assert torch.equal(clean, torch.full_like(clean, 100))


def test_a_generator_continues_from_frame_to_frame():
    rng = torch.Generator().manual_seed(7)
    frame = torch.zeros(8, 8)
    one, two = (
        add_gaussian_noise(frame, 10, rng, clip_and_round=False) for _ in range(2)
    )
    assert torch.equal(one, add_gaussian_noise(frame, 10, 7, clip_and_round=False))
    assert not torch.equal(one, two)


def test_stored_noise_has_integer_samples_within_range():
    noisy = add_gaussian_noise(torch.tensor([0.0, 255.0]).repeat(1000), 30, 1)
    assert torch.equal(noisy, noisy.round())
    assert (float(noisy.min()), float(noisy.max())) == (0, 255)
    assert (
        float(add_gaussian_noise(torch.zeros(1000), 30, 1, clip_and_round=False).min())
        < 0
    )


def test_whole_samples_cannot_hold_noise_as_drawn():
    with pytest.raises(ValueError, match="convert to float"):
        add_gaussian_noise(
            torch.zeros(4, dtype=torch.uint8), 10, 1, clip_and_round=False
        )


def test_no_noise_changes_nothing():
    samples = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(add_gaussian_noise(samples, 0, 1), samples)
