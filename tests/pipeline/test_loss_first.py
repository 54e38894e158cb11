"""A photograph's loss of coding is removed before a restorer that would amplify it."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.pipeline.conversions import RgbConversion, Samples
from vidrestore.pipeline.plan import Clip
from vidrestore.pixels.clips import Bounds
from vidrestore.pixels.frames import Frame, PixelFormat, VideoInfo
from vidrestore.restorers.base import Facts
from vidrestore.settings.options import RestoreOptions

GREY = PixelFormat("gray", "gray", 8)
VIDEO = VideoInfo(0, "mjpeg", 48, 32, GREY, Fraction(1, 25))


class Amplifier:
    """Multiplies the contrast about mid grey."""

    input_kind: Literal["rgb"] = "rgb"
    facts = Facts("amplifier", takes_loss=True)

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def frames(self, clip: Tensor, keep: Bounds, **others: Any) -> Iterator[Tensor]:
        yield from (clip[slice(*keep)] - 0.5) * self.gain + 0.5


def blocks() -> NDArray[np.uint8]:
    """(32, 48) of blocks of 8 x 8 pixels, one level brighter or darker than 100."""
    levels = np.random.default_rng(4).choice([99, 101], (4, 6)).astype(np.uint8)
    return levels.repeat(8, 0).repeat(8, 1)


def restored(
    gain: float, frames: int = 1, loss: float = 3.0, strength: float = 1.0
) -> Tensor:
    """Return the first of some frames of blocks, restored."""
    given = [Frame((blocks(),), number, loss=(loss, 0.0)) for number in range(frames)]
    restorer: Any = Amplifier(gain)
    conversion = RgbConversion(
        restorer, VIDEO, RestoreOptions(device="cpu", strength=strength)
    )
    samples = Samples(given, GREY, None)
    with torch.inference_mode():
        ((plane,), *_) = conversion.restored(
            Clip(0, frames, (0.0,)), samples, (0, frames), None
        )
    return plane[0]


def test_blocks_of_a_photograph_are_not_amplified_with_its_contrast():
    assert float(restored(3, loss=0).std()) > 2.9
    assert float(restored(3).std()) < 1.5


def test_a_photograph_that_stays_as_it_is_keeps_its_loss():
    assert torch.equal(restored(1).round(), torch.from_numpy(blocks()).float())


def test_a_weak_change_or_strength_removes_little_of_the_loss():
    source = torch.from_numpy(blocks()).float()
    for weak in (restored(1.01), restored(3, strength=0.01)):
        assert 0 < float((weak - source).abs().mean()) < 1


def test_frames_of_a_video_keep_their_loss():
    torch.testing.assert_close(restored(3, frames=2), restored(3, frames=2, loss=0))
