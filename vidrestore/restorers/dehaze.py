"""Remove haze: a small picture is restored by a network and by a prior, and the mean of their changes over
near frames is applied to the frame's own pixels. Leave frames with nothing to remove as they are.

The amount of haze is seen in a whole scene, not in a corner of it, and haze changes little from pixel to
pixel. So a small picture suffices, and takes a fraction of the time. Its change, a gain and an offset for
every place and colour, is that of the fast guided filter: K. He, J. Sun, "Fast Guided Filter", arXiv
1505.00996, 2015; K. He, J. Sun, X. Tang, "Guided Image Filtering", IEEE TPAMI 35, 2013.

The prior: in scenes without haze, most patches have a dark pixel. K. He, J. Sun, X. Tang, "Single Image Haze
Removal Using Dark Channel Prior", IEEE TPAMI 33, 2011, in linear light. The transmission is found in the
small picture, and refined by the guided filter instead of soft matting: in every window a linear function of
luma, which holds for the frame's pixels too.

A network that was trained on hazy pictures alone darkens pictures without haze. In thick haze its errors are
as large as those of the prior, but in other places, so that the mean of both is better than either. So their
shares depend on how hazy a scene is. The estimate of brightness varies a little from frame to frame, so its
change is averaged over neighbouring frames. Only channel means are averaged, no pixels, so motion leaves no
ghosts.

A network that was trained on little but rain darkens bright skies slightly, as if they were behind the veil
of distant rain. But a veil never comes without streaks: if the network changes no detail in a frame, its
other changes are mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.light import from_light, to_light
from vidrestore.errors import CheckpointError
from vidrestore.models.grouping import frames_at_once
from vidrestore.restorers.task_weights import increasing_numbers

T = TypeVar("T")

# Parameters of weights
COARSE_LINES = "coarse_lines"  # lines of the small picture
HAZE_LEVELS, PRIOR_SHARE = "haze_levels", "dark_channel"
DETAIL_LEVELS = "detail_levels"
MOST_LINES = 1 << 15
LEAST_RATIO = 1.5  # a frame whose shorter side is below this times the lines is restored itself
GUIDE_RADIUS = 2  # of the windows of a change, in pixels of the small picture
FLAT = 1e-5  # added to the variance in a window, so that the gain of flat windows is near 1

# Of the prior, in pixels of small pictures of about 168 lines
PATCH = 5  # side
PRIOR_RADIUS = 14  # of the guided filter's windows
KEPT = 0.95  # omega: the rest of the haze remains, for far things without any look unnatural
LEAST = 0.1  # transmission, t0
BRIGHTEST = 0.002  # share of a strip's pixels that its airlight is the mean of
STRIPS = 5  # side by side, each with an airlight of its own
LEVEL = 0.2  # added to the strips' variance: few strips with haze alone leave the airlight level
DARKNESS = 8  # power of the dark channel that a strip counts by: where it is bright, there is haze alone
EPSILON = 1e-3
LUMA = (0.299, 0.587, 0.114)

RADIUS = 5  # frames on either side that the change of brightness is averaged over
DARKEST = 0.05  # share of pixels that are dark in a scene without haze
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


class Haze(NamedTuple):
    """Airlight (B, 3, 1, w) in linear light; the transmission is slope * luma + offset, (B, 1, h, w) each."""

    airlight: Tensor
    slope: Tensor
    offset: Tensor

    def removed_from(self, picture: Tensor) -> Tensor:
        """Return R'G'B' (B, 3, H, W) of this scene without haze, eq. 22, in [0, 1]; any size will do."""
        light = to_light(picture)
        slope, offset = (enlarged(maps, picture) for maps in (self.slope, self.offset))
        transmission = (slope * _luma(light) + offset).clamp(LEAST, 1)
        airlight = enlarged(self.airlight, picture)
        return from_light((light - airlight) / transmission + airlight)


def prior_haze(small: Tensor, frame: Tensor) -> Haze:
    """Return the haze in R'G'B' (B, 3, H, W), given a small picture (B, 3, h, w) of it.

    Means over areas have no dark pixels left, so each area's darkest pixel of the frame is taken.
    """
    light = to_light(small)
    dark = to_light(-F.adaptive_max_pool2d(-frame, small.shape[-2:]))
    airlight = airlight_of(light, dark_channel(dark))
    return Haze(airlight, *_guided_line(_luma(light), 1 - KEPT * dark_channel(dark / airlight)))  # eq. 12


def dark_channel(picture: Tensor) -> Tensor:
    """Return the dark channel (B, 1, h, w), eq. 5: the minimum over a patch and all channels."""
    return -F.max_pool2d(-picture.amin(1, keepdim=True), PATCH, stride=1, padding=PATCH // 2)


def airlight_of(light: Tensor, dark: Tensor) -> Tensor:
    """Return the airlight (B, 3, 1, w), linear from left to right since haze is brighter towards the sun.

    It is fitted to the mean colours, in each strip of a picture (B, 3, h, w), of the pixels whose dark
    channel (B, 1, h, w) is brightest, by least squares weighted by a power of that.
    """
    colours, weights, places = [], [], []
    columns = torch.linspace(-1, 1, light.shape[-1], device=light.device, dtype=light.dtype)
    strips = min(STRIPS, light.shape[-1])
    for parts in zip(*(each.tensor_split(strips, -1) for each in (light, dark, columns)), strict=True):
        seen, darkness, column = parts
        count = max(1, int(BRIGHTEST * darkness[0].numel()))
        values, at = darkness.flatten(1).topk(count)
        colours.append(seen.flatten(2).gather(2, at[:, None].expand(-1, 3, -1)).mean(2))
        weights.append(values.mean(1).clamp(min=1e-3) ** DARKNESS)
        places.append(column[at % len(column)].mean(1))
    colour, weight, place = torch.stack(colours, 2), torch.stack(weights, 1), torch.stack(places, 1)
    weight = (weight / weight.sum(1, keepdim=True))[:, None]
    mean, centre = (weight * colour).sum(2, keepdim=True), (weight * place[:, None]).sum(2, keepdim=True)
    aside = place[:, None] - centre
    slope = (weight * aside * (colour - mean)).sum(2, keepdim=True)
    slope = slope / ((weight * aside.square()).sum(2, keepdim=True) + LEVEL)
    return (mean + slope * (columns - centre)).clamp(1e-3, 1)[:, :, None]


def _luma(light: Tensor) -> Tensor:
    return (light * light.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)


def _guided_line(guide: Tensor, plane: Tensor) -> tuple[Tensor, Tensor]:
    """Return slope and offset that make `plane` of `guide`, means over the windows that cover a pixel."""
    mean, aim = _wide_means(guide), _wide_means(plane)
    slope = (_wide_means(guide * plane) - mean * aim) / (_wide_means(guide * guide) - mean * mean + EPSILON)
    return _wide_means(slope), _wide_means(aim - slope * mean)


def _wide_means(plane: Tensor) -> Tensor:
    """Return means over windows, of which borders cut off a part; over columns, then over rows."""
    side = 2 * PRIOR_RADIUS + 1
    for size, padding in (((side, 1), (PRIOR_RADIUS, 0)), ((1, side), (0, PRIOR_RADIUS))):
        plane = F.avg_pool2d(plane, size, stride=1, padding=padding, count_include_pad=False)
    return plane


@dataclass(frozen=True)
class HazeShares:
    """Shares by three levels of haze: pictures up to the first remain as they are, those from the second on
    are changed in full, and from the second to the third the prior's share rises from 0 to `prior`.
    """

    levels: tuple[float, float, float]
    prior: float

    def at(self, level: float) -> tuple[float, float]:
        """Return the shares of the change and, in it, of the prior, for a level of haze."""
        none, some, much = self.levels
        return ramp(level, none, some), self.prior * ramp(level, some, much)


def haze_shares(parameters: Mapping[str, Any], name: str) -> HazeShares | None:
    """Return the shares in the parameters of the weights `name`; None if they have none.

    Raises CheckpointError unless `haze_levels` are three increasing numbers and `dark_channel` is in [0, 1].
    """
    if HAZE_LEVELS not in parameters and PRIOR_SHARE not in parameters:
        return None
    none, some, much = increasing_numbers(parameters, HAZE_LEVELS, 3, name)
    prior = parameters.get(PRIOR_SHARE)
    if isinstance(prior, bool) or not isinstance(prior, (int, float)) or not 0 <= prior <= 1:
        raise CheckpointError(f"{name}: {PRIOR_SHARE} must be a number in [0, 1], found {prior!r:.40}")
    return HazeShares((none, some, much), float(prior))


def ramp(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


class Estimate(NamedTuple):
    """A small picture (1, 3, h, w) as given, and restored by the network; the haze that the prior found;
    channel means (1, 3, 3, 1, 1) of these pictures and of that without this haze; and the amount of haze.
    """

    given: Tensor
    network: Tensor
    haze: Haze
    means: Tensor
    level: float


def estimates_of(small: Tensor, network: Tensor, frames: Tensor) -> list[Estimate]:
    """Estimate the haze of frames (B, 3, H, W) from small pictures (B, 3, h, w) and those that the network
    restored.
    """
    haze = prior_haze(small, frames)
    prior = haze.removed_from(small)
    means = torch.stack((small, network, prior), 1).mean((-2, -1), keepdim=True).clamp(min=BLACK)
    parts = zip(*(each.split(1) for each in (small, network, *haze, means)), strict=True)
    levels = haze_levels(small, network).tolist()
    return [
        Estimate(given, restored, Haze(*found), mean, level)
        for (given, restored, *found, mean), level in zip(parts, levels, strict=True)
    ]


def haze_levels(given: Tensor, network: Tensor) -> Tensor:
    """Return the amount of haze (B,) in pictures, in grey levels: the mean change by the network, weighted by
    the brightness of the darkest pixels.
    """
    darkest = given.amin(1).flatten(1).quantile(DARKEST, 1)
    return 255 * (network - given).abs().mean((1, 2, 3)) * darkest.exp()


def dehaze_smoothly(
    windows: Sequence[Sequence[Estimate]], shares: Sequence[tuple[float, float]], frames: Tensor
) -> Tensor:
    """Return frames (B, 3, H, W) without haze, each as the middle one of an odd number of estimates has it,
    with these shares of the change and of the prior.

    The gain of each channel's mean is the mean over all estimates of a window.
    """
    middle = [window[len(window) // 2] for window in windows]
    given, network = (torch.cat(pictures) for pictures in list(zip(*middle, strict=True))[:2])
    changed = by_prior = apply_guided_change(given, network, frames)
    change, share = (frames.new_tensor(each)[:, None, None, None] for each in zip(*shares, strict=True))
    if any(each for _, each in shares):
        haze = Haze(*(torch.cat(parts) for parts in zip(*(each.haze for each in middle), strict=True)))
        by_prior = haze.removed_from(frames)
    changed = _mix(frames, changed, by_prior, change, share)
    means = torch.stack([torch.cat([each.means for each in window]) for window in windows])
    of_given, of_network, of_prior = means.unbind(2)
    gains = _mix(of_given, of_network, of_prior, change[:, None], share[:, None]) / of_given
    return changed * (gains.mean(1) / gains[:, gains.shape[1] // 2])


def _mix(given: Tensor, network: Tensor, by_prior: Tensor, change: Tensor, prior: Tensor) -> Tensor:
    return given.lerp(network.lerp(by_prior, prior), change)


def detail_levels(parameters: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Return the two amounts of changed detail, in grey levels, in the parameters of the weights `name`; None
    if they have none.

    Frames with less than the first stay as they are; those with more than the second are changed in full.
    Raises CheckpointError unless they are two increasing numbers.
    """
    if DETAIL_LEVELS not in parameters:
        return None
    low, high = increasing_numbers(parameters, DETAIL_LEVELS, 2, name)
    return low, high


def changed_detail(given: Tensor, restored: Tensor) -> Tensor:
    """Return the difference of detail between pictures (B, C, H, W): the mean absolute difference after
    subtracting its means over areas, in grey levels (B, 1, 1, 1).
    """
    change = restored - given
    rows, columns = (max(1, side // AREA) for side in change.shape[-2:])
    change -= enlarged(downscale(change, (rows, columns)), change)
    return 255 * change.abs_().mean((1, 2, 3), keepdim=True)


def if_detail_changed(given: Tensor, restored: Tensor, levels: tuple[float, float]) -> Tensor:
    """Return `restored` (B, C, H, W), or a share of its change; `given` itself, to the bit, below the levels.

    Nothing is read from the device.
    """
    low, high = levels
    share = ((changed_detail(given, restored) - low) / (high - low)).clamp(0, 1)
    return given.lerp(restored, share)


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
