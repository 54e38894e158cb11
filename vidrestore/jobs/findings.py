"""What is found at a few places of a video.

Noise is measured as for `--sigma auto`. Rain, snow and haze are judged by how much their networks change,
blur by the gradients of the sharpest edges. The limits lie between what clean video and degraded video give,
measured by examples/experiments/suggested.py; between two limits the verdict is "maybe". Strong noise hides
rain, snow and blur: then the verdict is "unknown".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.events import Listener, Progressed
from vidrestore.jobs.torn_lines import torn_lines
from vidrestore.media.reading.coding_loss import bits_per_pixel
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.reading.scan import Scan
from vidrestore.noise.meter import noise_in_words
from vidrestore.pipeline.chain import at_once
from vidrestore.pipeline.plan import NOISE_STEP, Timeline, colour_planes, planned_clips
from vidrestore.pixels.colour import planes_to_grey, yuv_to_rgb
from vidrestore.pixels.frames import Frame, VideoInfo
from vidrestore.restorers.dehaze import DehazeRestorer, dehazer
from vidrestore.restorers.flicker import alternation_of, light_change, small_luma
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.restorers.specks import SpeckRestorer
from vidrestore.settings.options import RestoreOptions
from vidrestore.working import threads_for

Verdict: TypeAlias = Literal["yes", "maybe", "no", "unknown"]

# consecutive frames at each place, so that noise is measured on the first ones of each
SEEN = NOISE_STEP
# pixels of the square in the middle in which rain, snow and blur are looked for
MIDDLE_SIDE = 384
DUST_FRAMES = 5  # of a place, in which specks are looked for
AREA = 16  # side in pixels of areas, whose mean change isn't detail


@dataclass(frozen=True)
class VerdictLimits:
    """Measurements at which verdicts change; a pair is that of "maybe" and that of "yes"."""

    # sigma of luma below which removing it takes more than it gives
    weak_noise: float = 1.5
    strong_noise: float = 8.0  # sigma of luma from which it hides rain, snow and blur
    # grey levels of detail that the network for rain changes: drawn snow has at least the first. 18 clean
    # clips have at most 1.5, 20 of 22 photos 1.3, the others 1.8 and 2.1; drawn rain 2.1 and more
    nothing_falls: float = 0.9
    rain: tuple[float, float] = (1.5, 2.3)
    # grey levels that dehaze changes: below 7.5 in 9 of 10 training clips and photos; drawn haze has 3 to 29
    haze: tuple[float, float] = (7.5, 13.0)
    # gradients of edges over those at half size; clean clips: 0.71 and more, blurred ones 0.53 to 0.7
    sharp_edges: float = 0.69
    enough_bits: float = 0.06  # per pixel, of H.264's efficiency
    large: int = 720  # pixels of the shorter side


VERDICT_LIMITS = VerdictLimits()


@dataclass(frozen=True)
class Finding:
    """A judgement about one defect of a video."""

    name: str
    verdict: Verdict
    reason: str
    task: str = ""  # that removes it; empty if none does
    value: float | None = None  # the measurement


@dataclass(frozen=True)
class Place:
    """Consecutive frames of a video."""

    frames: tuple[Frame, ...]

    @property
    def middle(self) -> int:
        return len(self.frames) // 2


def rgb_of(frame: Frame, video: VideoInfo) -> Tensor:
    """Return a frame as R'G'B' (3, H, W) in [0, 1]."""
    planes = planes_to_grey(frame.planes[: colour_planes(video.format)], video.format)
    return yuv_to_rgb(planes, video.format, video.colour, video.height).clamp(0, 1)


def flicker_finding(places: Sequence[Place], video: VideoInfo) -> Finding:
    """Judge whether the light of all places alternates."""
    alternations = []
    for place in places:
        # of a few hundred pixels, as deflicker compares them
        clip = torch.stack([small_luma(rgb_of(frame, video)) for frame in place.frames])
        changes = [
            light_change(before[None], after[None]) for before, after in pairwise(clip)
        ]
        statistics = [change.statistics.tolist() for change in changes]
        alternations.append(alternation_of(statistics) if len(changes) > 1 else 0.0)
    least = min(alternations)
    if not least:
        return Finding(
            "flicker",
            "no",
            "the light is steady, or changes as lamps do",
            "deflicker",
            0.0,
        )
    return Finding(
        "flicker",
        "yes",
        f"the light alternates by {least:.1f} levels",
        "deflicker",
        least,
    )


def dust_finding(
    places: Sequence[Place], video: VideoInfo, options: RestoreOptions
) -> Finding:
    """Judge whether all places have specks that last one frame, in the middle of the picture."""
    restorer = SpeckRestorer(RestoreOptions(device=options.device))
    counts = []
    # few frames and their middles: the search takes long
    for place in places:
        clip = torch.stack(
            [middle_of(rgb_of(frame, video)) for frame in place.frames[:DUST_FRAMES]]
        )
        counts.append(restorer.specks_of(clip))
    least = min(counts)
    if not least:
        return Finding(
            "dust", "no", "few or no specks that last one frame", "dedust", 0.0
        )
    words = f"{least:.3g} specks in a frame's middle of {MIDDLE_SIDE} pixels"
    return Finding("dust", "yes", words, "dedust", least)


def tape_findings(
    places: Sequence[Place], video: VideoInfo, scan: Scan | None
) -> Iterator[Finding]:
    """Judge, of video in fields, how many dropouts were found, which every task fills, and how many lines are
    torn, which no task mends.
    """
    if scan is None or scan.kind != "fields":
        return
    # dropouts, as the reader has counted them
    frames = [frame for place in places for frame in place.frames]
    total, spoiled = (
        sum(frame.dropouts for frame in frames),
        sum(frame.dropouts > 0 for frame in frames),
    )
    words = f"{total} in {spoiled} of {len(frames)} frames, filled when fields become frames"
    yield Finding(
        "dropouts",
        "yes" if total else "no",
        words if total else "none found",
        value=float(total),
    )

    # torn lines, in the recorded rows of luma or green
    guide = 1 if video.format.family == "rgb" else 0
    fields = [
        frame.planes[guide][frame.real_rows :: 2]
        for frame in frames
        if frame.real_rows is not None
    ]
    lines = 2 * torn_lines(
        [np.divide(field, video.format.unit, dtype=np.float32) for field in fields]
    )
    words = f"the lowest {lines} lines are shifted, as where a recorder switches its heads; "
    words += "crop or cover them"
    yield Finding(
        "torn lines",
        "yes" if lines else "no",
        words if lines else "none found",
        value=float(lines),
    )


def noise_finding(places: Sequence[Place], info: SourceInfo) -> Finding:
    """Judge the noise by what `--sigma auto` measures in all places as one scene: in one place alone, fine
    texture is often taken for noise.
    """
    frames = [frame for place in places for frame in place.frames]
    # planning measures the noise of the scene as it goes
    timeline = Timeline(len(frames), 0)
    for _ in planned_clips(frames, timeline, info.video.format, None, detect=False):
        pass
    (scene,) = timeline.scenes
    sigma = scene.measured[0]
    words = f"{noise_in_words(scene.measured, scene.rms)} on the 0-255 scale"
    # colour may be noisy where luma isn't, and is harder to see
    if sigma == 0 and max(scene.measured) == 0:
        return Finding(
            "noise", "no", "none that removing it would help", "denoise", 0.0
        )
    if (
        max((sigma, *(level / 2 for level in scene.measured[1:])))
        < VERDICT_LIMITS.weak_noise
    ):
        return Finding(
            "noise",
            "maybe",
            f"{words}: weak, and fine texture goes with it",
            "denoise",
            sigma,
        )
    return Finding("noise", "yes", words, "denoise", sigma)


def weather_findings(
    places: Sequence[Place],
    info: SourceInfo,
    options: RestoreOptions,
    on_event: Listener,
    *,
    noisy: bool,
) -> list[Finding]:
    """Judge haze, rain and snow by their networks; that for snow only if that for rain changes something."""
    options = RestoreOptions(device=options.device, threads=options.threads)
    levels: dict[str, float] = {}
    for task in ("dehaze", "derain", "desnow"):
        on_event(Progressed(info.path, 0, stage="look"))
        if task != "desnow" or levels["derain"] >= VERDICT_LIMITS.nothing_falls:
            restorer = (
                dehazer(options) if task == "dehaze" else PictureRestorer(task, options)
            )
            workers = (
                threads_for(options.threads) if restorer.device.type == "cpu" else 1
            )
            change = partial(_changed, restorer, video=info.video)
            levels[task] = median(at_once(change, places, workers, workers))
    fall = Finding(
        "rain or snow",
        *_rain_or_snow(levels["derain"], levels.get("desnow"), noisy=noisy),
    )
    return [Finding("haze", *_haze(levels["dehaze"]), "dehaze", levels["dehaze"]), fall]


def _changed(restorer: PictureRestorer, place: Place, video: VideoInfo) -> float:
    """Return the grey levels that a network changes in the middle frame of a place."""
    # haze lies over all of a picture, rain and snow are judged by the middle
    if isinstance(restorer, DehazeRestorer):
        return restorer.haze_level(rgb_of(place.frames[place.middle], video))
    radius = restorer.form.frames // 2
    window = place.frames[max(0, place.middle - radius) : place.middle + radius + 1]
    return detail_level(
        restorer, torch.stack([middle_of(rgb_of(frame, video)) for frame in window])
    )


def detail_level(restorer: PictureRestorer, window: Tensor) -> float:
    """Return the grey levels of detail that a network changes in the middle of a scene (T, 3, H, W)."""
    restored = restorer.network_output(window).clamp(0, 1)
    # the mean change of an area is that of its brightness, not of drops or flakes
    return changed_detail(window[len(window) // 2][None].to(restored.device), restored)


def changed_detail(picture: Tensor, restored: Tensor) -> float:
    """Return the difference of detail between pictures (1, C, H, W), in grey levels: the mean absolute
    difference after subtracting its means over areas.
    """
    change = restored - picture
    size = (change.shape[-2], change.shape[-1])
    areas = F.interpolate(change, [max(1, side // AREA) for side in size], mode="area")
    change -= F.interpolate(areas, size, mode="bilinear", align_corners=False)
    return 255 * float(change.abs().mean())


def middle_of(picture: Tensor, side: int = MIDDLE_SIDE) -> Tensor:
    """Return the middle (C, side, side) of a picture, or less where it is smaller."""
    top, left = (max(0, size - side) // 2 for size in picture.shape[-2:])
    return picture[..., top : top + side, left : left + side]


def _rain_or_snow(
    rain: float, snow: float | None, *, noisy: bool
) -> tuple[Verdict, str, str, float]:
    """Return the verdict on rain and snow, its words, the task for it, and the level of detail changed."""
    # the network that changes more names the defect
    task, name = (
        ("derain", "rain") if snow is None or rain >= snow else ("desnow", "snow")
    )
    level = max(rain, snow or 0)
    low, high = VERDICT_LIMITS.rain
    words = f"derain would change {rain:.1f} levels of detail"
    words += "" if snow is None else f", desnow {snow:.1f}"
    if level < low:
        return "no", f"{words}; light rain or snow gives no more", task, level
    if noisy:
        return (
            "unknown",
            f"{words}, but noise hides rain and snow; look again after denoise",
            task,
            level,
        )
    if level < high:
        return "maybe", f"{words}, as in light {name} or lively texture", task, level
    return "yes", f"{words}, as in {name}", task, level


def _haze(level: float) -> tuple[Verdict, str]:
    low, high = VERDICT_LIMITS.haze
    words = f"dehaze would change {level:.0f} levels"
    if level < low:
        return "no", f"{words}; light haze may be as little"
    return (
        ("maybe", f"{words}, as in light haze or a pale scene")
        if level < high
        else ("yes", words)
    )


def blur_finding(
    places: Sequence[Place], video: VideoInfo, *, noisy: bool, is_film: bool
) -> Finding:
    """Judge blur by the sharpest of the places; a scene may be soft by intention, or by its encoder. An old
    film is soft by its lens and its print.
    """
    middles = [middle_of(rgb_of(place.frames[place.middle], video)) for place in places]
    ratio = max(edge_ratio(middle) for middle in middles)
    words = f"edges have {ratio:.2f} of their gradients at half size"
    if is_film:
        return Finding("blur", "no", f"{words}, as old films have", "deblur", ratio)
    if noisy:
        return Finding(
            "blur",
            "unknown",
            "noise hides it; look again after denoise",
            "deblur",
            ratio,
        )
    if ratio >= VERDICT_LIMITS.sharp_edges:
        return Finding("blur", "no", f"{words}, as sharp ones have", "deblur", ratio)
    reason = f"{words}: blurred, enlarged before, or coded strongly; deblur undoes even shake"
    return Finding("blur", "maybe", reason, "deblur", ratio)


def edge_ratio(picture: Tensor) -> float:
    """Return the steepest percent of gradients of a picture (3, H, W) over those of it at half its size.

    It is about 0.9 for sharp edges and 0.5 for ramps of several pixels.
    """
    luma, steep = picture.mean(0), list[float]()
    # a blurred edge is a ramp, which is steeper at half the size, a sharp one is as steep
    for image in (luma, F.avg_pool2d(luma[None], 2)[0]):
        gradients = torch.hypot(image.diff(dim=0)[:, :-1], image.diff(dim=1)[:-1])
        steep.append(
            float(gradients.flatten().quantile(0.99)) if gradients.numel() else 0.0
        )
    return steep[0] / max(steep[1], 1e-6)


def compression_finding(info: SourceInfo) -> Finding:
    bits = bits_per_pixel(info)
    if bits is None:
        return Finding("compression", "unknown", "the bitrate is not known")
    words = f"{bits:.2g} bits per pixel, counted as H.264"
    if bits >= VERDICT_LIMITS.enough_bits:
        return Finding("compression", "no", words, value=bits)
    return Finding(
        "compression",
        "yes",
        f"{words}: detail is lost, no task brings it back",
        value=bits,
    )


def size_finding(video: VideoInfo) -> Finding:
    is_small = min(video.height, video.width) < VERDICT_LIMITS.large
    verdict: Verdict = "maybe" if is_small else "no"
    return Finding(
        "size", verdict, f"{video.width}x{video.height}", "sr", float(video.height)
    )
