"""Remove haze: a network finds it in a small picture, and the change that it makes there is applied to the
frame's own pixels, as much of it as in the frames beside.

The amount of haze is seen in a whole scene, not in a corner of it, and haze changes little from pixel to
pixel. So a small picture suffices, and takes a fraction of the time. Its change, a gain and an offset for
every place and colour, is that of the fast guided filter: K. He, J. Sun, "Fast Guided Filter", arXiv
1505.00996, 2015; K. He, J. Sun, X. Tang, "Guided Image Filtering", IEEE TPAMI 35, 2013.

The haze that is found varies a little from frame to frame, so the change of brightness is averaged over
neighbouring frames. Only channel means are averaged, no pixels, so motion leaves no ghosts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import CheckpointError
from vidrestore.models.grouping import frames_at_once

T = TypeVar("T")

# Parameters of weights
COARSE_LINES = "coarse_lines"  # lines of the small picture
MOST_LINES = 1 << 15
LEAST_RATIO = 1.5  # a frame whose shorter side is below this times the lines is restored itself
GUIDE_RADIUS = 2  # of the windows of a change, in pixels of the small picture
FLAT = 1e-5  # added to the variance in a window, so that the gain of flat windows is near 1

RADIUS = 5  # frames on either side that the change of brightness is averaged over
BLACK = 1e-3  # channel means are taken to be brighter

AREA = 16  # side in pixels of areas, whose mean change isn't detail

FACTORS = (-7046029254386353131, -4417276706812531889)  # of keys: odd, of 64 bits


def coarse_lines(parameters: Mapping[str, Any], name: str) -> int | None:
    """Return the lines of the small picture from the parameters of the weights `name`; None if the network
    restores whole frames.

    Raises CheckpointError unless they are a whole number from 1 to MOST_LINES.
    """
    lines = parameters.get(COARSE_LINES)
    if lines is not None and (type(lines) is not int or not 1 <= lines <= MOST_LINES):
        raise CheckpointError(
            f"{name}: {COARSE_LINES} must be a whole number from 1 to {MOST_LINES}, found {lines!s:.40}"
        )
    return lines


def coarse_size(height: int, width: int, lines: int | None, multiple: int) -> tuple[int, int] | None:
    """Return the size of the small picture: the shorter side is near `lines`, both are multiples of
    `multiple`. None if the frame itself is to be restored.
    """
    if lines is None or min(height, width) < LEAST_RATIO * lines:
        return None
    scale = lines / min(height, width)
    rows, columns = (max(multiple, round(side * scale / multiple) * multiple) for side in (height, width))
    return rows, columns


def downscale(picture: Tensor, size: tuple[int, int]) -> Tensor:
    """Downscale (..., H, W) to `size` by means over areas."""
    return F.interpolate(picture, size=size, mode="area")


def enlarged(maps: Tensor, frame: Tensor) -> Tensor:
    """Enlarge maps (B, C, h, w) of a small picture to the size of a frame, bilinearly."""
    return F.interpolate(maps, size=frame.shape[-2:], mode="bilinear", align_corners=False)


def apply_guided_change(small: Tensor, restored: Tensor, frame: Tensor) -> Tensor:
    """Apply to `frame` (B, C, H, W) the change from `small` (B, C, h, w), the same scene, to `restored`.

    In every window of `small` and for every colour, gain and offset make gain * small + offset nearest to
    `restored` by least squares (He et al. 2013, eqs. 5 and 6; here the gain of flat windows tends to 1).
    Their means over the windows that cover a pixel are enlarged bilinearly to the frame (He and Sun 2015,
    algorithm 2).
    """
    level = small.mean((-2, -1), keepdim=True)  # subtracted, since rounding would outweigh a small variance
    small, frame = small - level, frame - level
    mean, aim = _means(small), _means(restored)
    variance, covariance = _means(small * small) - mean * mean, _means(small * restored) - mean * aim
    gain = (covariance + FLAT) / (variance + FLAT)
    gain, offset = _means(gain), _means(aim - gain * mean)
    return enlarged(gain, frame) * frame + enlarged(offset, frame)


def _means(maps: Tensor) -> Tensor:
    """Return means over windows; at the borders over the part inside the picture."""
    return F.avg_pool2d(maps, 2 * GUIDE_RADIUS + 1, stride=1, padding=GUIDE_RADIUS, count_include_pad=False)


class Estimate(NamedTuple):
    """A small picture (1, 3, h, w) as given, and as the network restored it, and the gain (1, 3, 1, 1) of the
    channel means between them.
    """

    given: Tensor
    restored: Tensor
    gain: Tensor


def estimates_of(small: Tensor, restored: Tensor) -> list[Estimate]:
    """Return the estimate of each of small pictures (B, 3, h, w) and those that the network restored."""
    before, after = (each.mean((-2, -1), keepdim=True).clamp(min=BLACK) for each in (small, restored))
    parts = zip(*(each.split(1) for each in (small, restored, after / before)), strict=True)
    return [Estimate(*each) for each in parts]


def dehaze_smoothly(windows: Sequence[Sequence[Estimate]], frames: Tensor) -> Tensor:
    """Return frames (B, 3, H, W) without haze, each as the middle one of an odd number of estimates has it.

    The gain of each channel's mean is the mean over all estimates of a window.
    """
    middle = [window[len(window) // 2] for window in windows]
    given, restored = (torch.cat(pictures) for pictures in list(zip(*middle, strict=True))[:2])
    gains = torch.stack([torch.cat([each.gain for each in window]) for window in windows])
    steady = gains.mean(1) / gains[:, gains.shape[1] // 2]
    return apply_guided_change(given, restored, frames) * steady


def changed_detail(given: Tensor, restored: Tensor) -> Tensor:
    """Return the difference of detail between pictures (B, C, H, W): the mean absolute difference after
    subtracting its means over areas, in grey levels (B, 1, 1, 1).
    """
    change = restored - given
    rows, columns = (max(1, side // AREA) for side in change.shape[-2:])
    change -= enlarged(downscale(change, (rows, columns)), change)
    return 255 * change.abs_().mean((1, 2, 3), keepdim=True)


class ComputedOnce(Generic[T]):
    """The last `room` results by the keys of their inputs; any method may run in several threads at once."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.lock = Lock()
        self.results: dict[Hashable, Future[T]] = {}

    def get(self, keys: Sequence[Hashable], compute: Callable[[list[int]], Sequence[T]]) -> list[T]:
        """Return the result of each key. `compute` is called once, with the positions of those keys that no
        thread has computed or is computing; for the others' results this thread waits.
        """
        with self.lock:
            own = []
            for at, key in enumerate(keys):
                if key not in self.results:
                    self.results[key] = Future()
                    own.append(at)
            results = [self.results[key] for key in keys]
            for oldest in list(self.results)[: -self.room]:
                del self.results[oldest]
        if own:
            try:
                for at, result in zip(own, compute(own), strict=True):
                    results[at].set_result(result)
            except BaseException as error:
                with self.lock:
                    for at in own:
                        self.results.pop(keys[at], None)
                for at in own:
                    results[at].set_exception(error)
        return [result.result() for result in results]


def keys_of(pictures: Tensor) -> list[tuple[int, ...]]:
    """Return a key for each of (N, ...) float32 pictures: equal ones have the same key, others hardly ever.

    A key is two sums of all samples' bits, modulo 2^64, each sample times a number of its own. Keys are
    computed on the pictures' device and read all together.
    """
    numbers = torch.arange(1, pictures[0].numel() + 1, device=pictures.device)
    weights = [_scrambled(numbers, factor) for factor in FACTORS]
    sums = []
    for several in pictures.split(frames_at_once(pictures)):
        samples = several.flatten(1).view(torch.int32)
        sums.append(torch.stack([(samples * each).sum(1) for each in weights], 1))
    return [tuple(key) for key in torch.cat(sums).tolist()]


def _scrambled(numbers: Tensor, factor: int) -> Tensor:
    """Return odd numbers of 64 bits that look random, as the generator SplitMix64 makes them."""
    for shift in (30, 27):
        numbers = (numbers ^ (numbers >> shift)) * factor
    return (numbers ^ (numbers >> 31)) | 1
