"""Remove haze: networks find it in a small picture, and their change is applied to the full frame, smoothed
over neighbouring frames.

There are two by default: one estimates the depth of the haze and removes only that, the other was trained on
thick fog. In a scene with almost no haze nothing changes; in more haze the first decides, and in thick haze
the mean of both, for luma alone: colours are then those of the source, since both networks invent some.

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
from torch import Tensor, nn

from vidrestore.errors import CheckpointError
from vidrestore.models.grouping import frames_at_once
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.models.scattering import without_haze
from vidrestore.working import Stopped, check_stop

T = TypeVar("T")

# Parameters of weights
COARSE_LINES = "coarse_lines"  # lines of the small picture
MOST_LINES = 1 << 15
LEAST_RATIO = 1.5  # a frame whose shorter side is below this times the lines is restored itself
GUIDE_RADIUS = 2  # radius of the windows of a change, in pixels of the small picture
FLAT = 1e-5  # added to the variance in a window, so that the gain of flat windows is near 1

# Mean optical depths of a scene between which the share of its haze that is removed grows, and between which
# the share of the second network grows. Clear frames and photographs have up to 0.05, hazy photographs 0.04
# to 0.65.
HAZE, THICK = (0.04, 0.2), (0.2, 0.4)
LUMA = (0.299, 0.587, 0.114)
BRIGHTEST = 8.0  # gain of luma

RADIUS = 5  # frames on either side that depth and change of brightness are averaged over
BLACK = 1e-3  # channel means are taken to be brighter

AREA = 16  # side in pixels of areas, whose mean change isn't detail

FACTOR = -7046029254386353131  # factor of keys: odd, of 64 bits


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


class HazeNetworks(nn.Module):
    """The two default networks: map pictures (B, 3, H, W) to (B, 7, H, W), the output of the first, its
    optical depth, and the output of the second.
    """

    def __init__(self, first: MBTaylorFormer, thick: nn.Module) -> None:
        super().__init__()
        self.first, self.thick = first, thick

    def forward(self, pictures: Tensor) -> Tensor:
        haze = self.first.scattering(pictures)
        return torch.cat((without_haze(pictures, haze), haze.depth, self.thick(pictures).float()), 1)


class Estimate(NamedTuple):
    """A small picture (1, 3, h, w) as given, and as the network restored it; of two networks also its mean
    optical depth (1, 1, 1, 1), and with the luma of both and the colours of the source.
    """

    given: Tensor
    restored: Tensor
    depth: Tensor | None = None
    both: Tensor | None = None

    def clear(self, depth: Tensor | None) -> Tensor:
        """Return the picture without haze, in a scene of a mean optical depth (1, 1, 1, 1)."""
        if depth is None or self.both is None:
            return self.restored
        found = self.restored.lerp(self.both, _share(depth, *THICK))
        return self.given.lerp(found, _share(depth, *HAZE))


def _share(depth: Tensor, least: float, most: float) -> Tensor:
    return ((depth - least) / (most - least)).clamp(0, 1)


def estimates_of(small: Tensor, found: Tensor) -> list[Estimate]:
    """Return the estimates of small pictures (B, 3, h, w) from the output of a network or HazeNetworks."""
    restored = found[:, :3].clamp(0, 1)
    parts = [small, restored]
    if found.shape[1] > 3:
        colours = small.new_tensor(LUMA).view(1, 3, 1, 1)
        before, first, second = (
            (each * colours).sum(1, keepdim=True).clamp(min=BLACK)
            for each in (small, restored, found[:, 4:].clamp(0, 1))
        )
        gain = ((first + second) / (2 * before)).clamp(max=BRIGHTEST)
        parts += [found[:, 3:4].mean((2, 3), keepdim=True), (gain * small).clamp(0, 1)]
    return [Estimate(*each) for each in zip(*(part.split(1) for part in parts), strict=True)]


def dehaze_smoothly(windows: Sequence[Sequence[Estimate]], frames: Tensor) -> Tensor:
    """Return frames (B, 3, H, W) without haze, each as the middle one of an odd number of estimates has it.

    The optical depth, and the gain of each channel's mean, are the means over all estimates of a window.
    """
    given, restored, steady = [], [], []
    for window in windows:
        middle, depths = window[len(window) // 2], [each.depth for each in window if each.depth is not None]
        depth = torch.cat(depths).mean(0, keepdim=True) if depths else None
        cleared = [each.clear(depth) for each in window]
        gains = [_level(clear) / _level(each.given) for clear, each in zip(cleared, window, strict=True)]
        given.append(middle.given)
        restored.append(cleared[len(window) // 2])
        steady.append(torch.cat(gains).mean(0, keepdim=True) / gains[len(window) // 2])
    return apply_guided_change(torch.cat(given), torch.cat(restored), frames) * torch.cat(steady)


def _level(pictures: Tensor) -> Tensor:
    """Return the means of channels (B, 3, 1, 1), none of them black."""
    return pictures.mean((-2, -1), keepdim=True).clamp(min=BLACK)


def changed_detail(given: Tensor, restored: Tensor) -> Tensor:
    """Return the difference of detail between pictures (B, C, H, W): the mean absolute difference after
    subtracting its means over areas, in grey levels (B, 1, 1, 1).
    """
    change = restored - given
    rows, columns = (max(1, side // AREA) for side in change.shape[-2:])
    change -= enlarged(downscale(change, (rows, columns)), change)
    return 255 * change.abs_().mean((1, 2, 3), keepdim=True)


class ResultCache(Generic[T]):
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
        try:
            return [result.result() for result in results]
        except Stopped:  # not in a block that others wait for
            check_stop()
        return self.get(keys, compute)


def keys_of(pictures: Tensor) -> list[int]:
    """Return a key for each of (N, ...) float32 pictures: equal ones have the same key, others hardly ever.

    A key is the sum of all samples' bits modulo 2^64, each times an odd number of its own that looks random,
    as the generator SplitMix64 makes them. Keys are computed on the pictures' device and read all together.
    """
    weights = torch.arange(1, pictures[0].numel() + 1, device=pictures.device)
    for shift in (30, 27):
        weights = (weights ^ (weights >> shift)) * FACTOR
    weights = (weights ^ (weights >> 31)) | 1
    parts = pictures.split(frames_at_once(pictures))
    keys: list[int] = torch.cat(
        [(several.flatten(1).view(torch.int32) * weights).sum(1) for several in parts]
    ).tolist()
    return keys
