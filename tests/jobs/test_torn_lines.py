"""Lines that a recorder tears at the bottom of a tape's picture are counted; others aren't."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vidrestore.jobs.torn_lines import torn_lines

HEIGHT, WIDTH = 60, 240


def fields(count: int = 6, noise: float = 0.0) -> list[NDArray[np.float32]]:
    """Moving texture, alike from line to line, in grey levels."""
    rng = np.random.default_rng(2)
    steps = rng.normal(0, 4, (HEIGHT, WIDTH + 2 * count)).cumsum(0) / 2
    picture = 120 + 60 * np.sin(np.arange(WIDTH + 2 * count) / 7) + steps
    pictures = [picture[:, 2 * number :][:, :WIDTH] for number in range(count)]
    return [
        (one + rng.normal(0, noise, one.shape)).clip(0, 255).astype(np.float32)
        for one in pictures
    ]


def torn(
    pictures: list[NDArray[np.float32]], lines: int, shift: int
) -> list[NDArray[np.float32]]:
    """The lowest lines shifted, less from line to line, by another amount in each field."""
    results = [picture.copy() for picture in pictures]
    for number, result in enumerate(results):
        for line in range(lines):
            offset = round((shift + number % 3) * 0.7**line)
            result[line - lines] = np.roll(result[line - lines], offset)
    return results


@pytest.mark.parametrize("noise", [0, 6])
@pytest.mark.parametrize("lines, shift", [(2, 12), (5, -20), (8, 30)])
def test_lines_that_are_shifted_at_the_bottom_are_counted(lines, shift, noise):
    assert torn_lines(torn(fields(noise=noise), lines, shift)) == lines


@pytest.mark.parametrize("noise", [0, 6])
def test_a_picture_that_continues_to_the_bottom_is_not_torn(noise):
    assert torn_lines(fields(noise=noise)) == 0


@pytest.mark.parametrize("kind", ["bar", "table", "ramp", "noise"])
def test_edges_at_the_bottom_and_noise_are_not_torn(kind):
    pictures = fields()
    rng = np.random.default_rng(4)
    for picture in pictures:
        match kind:
            case "bar":
                picture[-5:] = 16
            case "table":
                picture[-7:] = 90 + 30 * np.cos(np.arange(WIDTH) / 11)
            case "ramp":
                picture[-6:] += 80
            case "noise":
                picture[:] = rng.normal(120, 20, picture.shape)
    assert torn_lines(pictures) == 0


def test_a_picture_that_is_too_small_to_tell_is_not_torn():
    assert torn_lines([field[:40] for field in torn(fields(), 3, 20)]) == 0
    assert torn_lines([]) == 0
