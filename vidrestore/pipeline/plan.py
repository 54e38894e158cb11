"""The plan of a restoration: clips of frames that never cross a cut, and the noise of each.

One generator plans as frames come. For a file it runs in a pass of its own (`plan_source`), or in a thread
ahead of the work (`jobs.plan_ahead`); for pipes and frames in memory it runs between decoder and model. All
come to the same plan, because a clip is decided by nothing but the frames up to its end and the scene
detector's small look-ahead. Any range of frames of a plan can be restored by itself.
"""

from __future__ import annotations

import math
import zlib
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, pairwise
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, Strict

from vidrestore.errors import PlanError
from vidrestore.files.regular import Count, stored
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.source import SourceIdentity
from vidrestore.media.reading.coding_loss import STRONGER
from vidrestore.noise.features import FRAMES_SEEN
from vidrestore.noise.meter import NoiseMeter, PlaneNoise, noise_in_words
from vidrestore.pixels.clips import Bounds, live_clips
from vidrestore.pixels.colour import OPPONENT_NORMS, rgb_to_opponent
from vidrestore.pixels.frames import WHOLE, Frame, PixelFormat, Span
from vidrestore.pixels.scenes import SceneDetector
from vidrestore.settings.checking import converted

PLAN_VERSION = 6
MOST_FRAMES = 1 << 24  # in a plan that is read: 77 hours at 60 frames per second
_CLIP = tuple[Count, Count, list[float], list[float], list[float], list[float]]
_COMPACT = stored(
    version=int,
    length=Annotated[int, Field(ge=1, lt=1 << 31)],
    overlap=Annotated[int, Field(ge=0, lt=1 << 31)],
    pts=str,
    durations=str,
    cuts=list[Count],
    clips=list[Annotated[_CLIP, Strict(False)]],  # a list is the tuple of JSON
    dropouts=Count,
    spoiled=Count,
)
# Every so many frames of a scene are measured: a look takes longer than decoding. One more comes early, since
# a single look takes moving water or compressed texture for noise too often.
NOISE_STEP, EARLY = 8, 4
# Levels of a coder's loss in a clip, and the ratio of greatest to least from which frames differ: half the
# best sigma or twice that costs 0.1 dB.
LOSS_LEVELS, LOSS_SPREAD = 3, 2.0


@dataclass(frozen=True)
class Clip:
    """Frames [first, stop) of one scene, restored together, with the noise of each colour plane (0-255) as
    measured when the clip ends.

    R, G, B are denoised as luma and colour differences (`rgb_to_opponent`), and each value is that of R, G, B
    whose white noise leaves as much there.
    """

    first: int
    stop: int
    # standard deviation of white noise; unless the user sets it, max(measured, loss)
    sigma: tuple[float, ...]
    rms: tuple[float, ...] = ()  # strength of the measured noise, which may be coarse
    loss: tuple[float, ...] = ()  # error of the coder
    # loss of each frame over that of the clip, at most LOSS_LEVELS values; empty if frames differ little
    levels: tuple[float, ...] = ()

    @property
    def coding(self) -> tuple[tuple[float, ...], ...]:
        """For each plane whose sigma is a coder's loss, the factor of sigma in each frame; else nothing."""
        frames = self.stop - self.first
        levels = self.levels or (1.0,) * frames
        planes = zip(self.sigma, self.loss or (0.0,) * len(self.sigma), strict=True)
        return tuple(
            levels if sigma == loss > 0 and frames > 1 else () for sigma, loss in planes
        )


@dataclass(frozen=True)
class Scene(Clip):
    """Frames [first, stop) between two cuts, and the noise of each colour plane measured over all of them."""

    @property
    def measured(self) -> tuple[float, ...]:
        """`sigma` where the noise decides it, else the strength of the noise."""
        loss, rms = (
            values or (0.0,) * len(self.sigma) for values in (self.loss, self.rms)
        )
        planes = zip(self.sigma, loss, rms, strict=True)
        return tuple(
            level if level > lost else strength for level, lost, strength in planes
        )

    @property
    def noise(self) -> str:
        """In words: "luma 9.6, coarse; chroma 14.1", or "none; coding 4.1"."""
        lost = f"; coding {max(self.loss):.1f}" if any(self.loss) else ""
        return noise_in_words(self.measured, self.rms) + lost


@dataclass
class Timeline:
    """The result of planning, filled while frames are read."""

    length: int  # frames of a clip
    overlap: int  # frames that two clips share
    # of every frame, in ticks
    pts: array[int] = field(default_factory=lambda: array("q"))
    # of every frame, in ticks
    durations: array[int] = field(default_factory=lambda: array("q"))
    # the first frame of each scene but the first
    cuts: list[int] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    dropouts: int = 0  # of a tape, that were filled
    spoiled: int = 0  # frames that had some

    def to_compact(self) -> dict[str, Any]:
        """Return JSON values, with all times in one text each: lists would take too much memory."""
        times = {"pts": _packed(self.pts), "durations": _packed(self.durations)}
        clips = [
            [clip.first, clip.stop, clip.sigma, clip.rms, clip.loss, clip.levels]
            for clip in self.clips
        ]
        return times | {
            "version": PLAN_VERSION,
            "length": self.length,
            "overlap": self.overlap,
            "cuts": list(self.cuts),
            "clips": clips,
            "dropouts": self.dropouts,
            "spoiled": self.spoiled,
        }

    @classmethod
    def from_compact(cls, values: Mapping[str, Any]) -> Timeline:
        """Return the timeline of values from `to_compact`. Raises ValueError for anything else."""
        converted(values, _COMPACT)
        if values["version"] != PLAN_VERSION:
            raise ValueError(f"version {values['version']}")
        clips = [
            Clip(first, stop, *map(tuple, levels))
            for first, stop, *levels in values["clips"]
        ]
        times = _unpacked(values["pts"]), _unpacked(values["durations"])
        counts = values["dropouts"], values["spoiled"]
        timeline = cls(
            values["length"],
            values["overlap"],
            *times,
            list(values["cuts"]),
            clips,
            *counts,
        )
        timeline._check()
        return timeline

    def _check(self) -> None:
        """Raise ValueError unless the clips cover all frames in order, and cuts lie between frames."""
        ends = [0, *(clip.stop for clip in self.clips)]
        planes = {len(clip.sigma) for clip in self.clips}
        if (
            len(self.durations) != len(self.pts)
            or ends[-1] != len(self.pts)
            or any(first >= stop for first, stop in pairwise(ends))
            or any(
                clip.first > end for clip, end in zip(self.clips, ends, strict=False)
            )
            or any(
                first >= stop
                for first, stop in pairwise([0, *self.cuts, len(self.pts)])
            )
            or any(level < 0 for clip in self.clips for level in clip.sigma)
            or any(level < 0 for clip in self.clips for level in clip.levels)
            or any(
                clip.levels and len(clip.levels) != clip.stop - clip.first
                for clip in self.clips
            )
            or len(planes) > 1
        ):
            raise ValueError("clips, cuts and frames do not belong together")

    def is_cut(self, frame: int) -> bool:
        """Return True if a scene begins with this frame."""
        index = bisect_left(self.cuts, frame)
        return index < len(self.cuts) and self.cuts[index] == frame

    def ends_clip(self, frame: int) -> bool:
        """Return True if a clip ends before this frame."""
        index = bisect_left(self.clips, frame, key=lambda clip: clip.stop)
        return index < len(self.clips) and self.clips[index].stop == frame

    def with_noise(self, clip: Clip) -> Clip:
        """Return a clip of a later step with the noise that was known at its last frame; the loss of a coder
        is taken for even.
        """
        index = bisect_left(self.clips, clip.stop, key=lambda planned: planned.stop)
        measured = self.clips[index]
        return replace(measured, first=clip.first, stop=clip.stop, levels=())

    @property
    def bounds(self) -> list[Bounds]:
        return [(clip.first, clip.stop) for clip in self.clips]

    @property
    def scenes(self) -> list[Scene]:
        """The scenes, each with the noise known at the end of its last clip."""
        last = {clip.stop: (clip.sigma, clip.rms, clip.loss) for clip in self.clips}
        spans = pairwise([0, *self.cuts, len(self.pts)])
        return [
            Scene(first, stop, *last[stop]) for first, stop in spans if stop in last
        ]


def _packed(values: array[int]) -> str:
    return b64encode(zlib.compress(np.array(values, "<i8").tobytes(), 1)).decode()


def _unpacked(text: str) -> array[int]:
    """Undo `_packed`. Raises ValueError for anything else, and for more than `MOST_FRAMES`."""
    unpacker = zlib.decompressobj()
    try:
        times = unpacker.decompress(b64decode(text, validate=True), 8 * MOST_FRAMES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError(f"cut short, or more than {MOST_FRAMES} frames")
    return array("q", np.frombuffer(times, "<i8").astype("=i8").tobytes())


@dataclass
class Plan:
    """Everything that decides the output of a job."""

    source: SourceIdentity
    output: str
    task: str
    encoder: EncoderChoice
    copy: tuple[int, ...]  # indices of the streams that are copied
    timeline: Timeline  # of all frames in `span`
    span: Span = WHOLE  # the part of the source that is restored

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        times = {
            "pts": list(self.timeline.pts),
            "durations": list(self.timeline.durations),
        }
        values = asdict(
            replace(
                self,
                timeline=replace(self.timeline, pts=array("q"), durations=array("q")),
            )
        )
        return values | {
            "version": PLAN_VERSION,
            "timeline": values["timeline"] | times,
        }


PlannedClip = tuple[Clip, list[Frame]]


def planned_clips(
    frames: Iterable[Frame],
    timeline: Timeline,
    pixels: PixelFormat,
    sigma: float | None,
    *,
    detect: bool = True,
) -> Iterator[PlannedClip]:
    """Yield every clip with its frames as soon as it is decided, and fill `timeline`.

    `sigma`: the noise on the 0-255 scale, None to measure it. `detect`: whether to look for cuts; otherwise
    those in `timeline` count, which may come shortly before their frames. Keeps one clip and the detector's
    look-ahead.
    """
    marked = (
        _marked_frames(frames, timeline, pixels)
        if detect
        else _known_frames(frames, timeline)
    )
    noise = _SceneNoise(pixels) if sigma is None else None
    sigmas = (sigma or 0.0,) * colour_planes(pixels)
    for (first, stop), clip_frames in live_clips(
        marked, timeline.length, timeline.overlap
    ):
        start = next((cut for cut in reversed(timeline.cuts) if cut <= first), 0)
        clip = Clip(
            first, stop, *(noise.at(start, first, clip_frames) if noise else (sigmas,))
        )
        timeline.clips.append(clip)
        yield clip, clip_frames


def planned_range(
    frames: Iterable[Frame], plan: Plan, clips: Iterable[int]
) -> Iterator[PlannedClip]:
    """Yield consecutive clips of a plan, by their indices, with their frames; `frames` begin with the first
    of these.
    """
    buffer: list[Frame] = []
    frames = iter(frames)
    start = 0  # index of buffer[0]
    for clip in (plan.timeline.clips[index] for index in clips):
        buffer = buffer[clip.first - start :]
        start = clip.first
        while len(buffer) < clip.stop - clip.first:
            index = start + len(buffer)
            frame, expected = next(frames, None), plan.timeline.pts[index]
            if frame is None or frame.pts != expected:
                actual = "the end" if frame is None else f"time {frame.pts}"
                raise PlanError(
                    f"{plan.source.path}, frame {index}: found {actual}, but the plan has time {expected}; "
                    "the source has changed, plan again"
                )
            buffer.append(frame)
        yield clip, list(buffer)


def colour_planes(pixels: PixelFormat) -> int:
    """Return how many planes are restored; an alpha plane comes after them and passes through."""
    return pixels.plane_count - pixels.alpha


def _marked_frames(
    frames: Iterable[Frame], timeline: Timeline, pixels: PixelFormat
) -> Iterator[tuple[bool, Frame]]:
    """Yield every frame with whether it begins a new scene, as soon as the detector is sure."""
    detector, waiting, luma = (
        SceneDetector(),
        list[Frame](),
        1 if pixels.family == "rgb" else 0,
    )
    for frame in frames:
        detector.add(frame.planes[luma], pixels.unit)
        waiting.append(_add_times(frame, timeline))
        if len(waiting) > detector.lag:
            yield _begins(detector, timeline, len(waiting)), waiting.pop(0)
    detector.finish()
    while waiting:
        yield _begins(detector, timeline, len(waiting)), waiting.pop(0)


def _known_frames(
    frames: Iterable[Frame], timeline: Timeline
) -> Iterator[tuple[bool, Frame]]:
    """Yield every frame with whether it begins a new scene of the timeline."""
    for index, frame in enumerate(frames):
        yield timeline.is_cut(index), _add_times(frame, timeline)


def _add_times(frame: Frame, timeline: Timeline) -> Frame:
    timeline.pts.append(frame.pts)
    timeline.durations.append(frame.duration)
    timeline.dropouts += frame.dropouts
    timeline.spoiled += frame.dropouts > 0
    return frame


def _begins(detector: SceneDetector, timeline: Timeline, waiting: int) -> bool:
    """Return True if a scene begins with the first of the frames that wait, and add it to the cuts."""
    index = len(timeline.pts) - waiting
    begins = index in detector.cuts[-8:]
    if begins:
        timeline.cuts.append(index)
    return begins


class _SceneNoise:
    """The noise of a scene, measured on its first frame, `EARLY` later, and every `NOISE_STEP` frames.

    Of deinterlaced frames the real rows count, since interpolated ones have less noise, and coarser. It is
    the strength of luma's noise, whose spectrum is measured later, and for colour differences, whose noise is
    coarser, the mean of that and sigma. It is no more than the whole frame's sigma: a field has twice the
    vertical frequencies of a frame, so that fine texture may pass for noise there.
    """

    _meter: NoiseMeter
    _frame_meter: NoiseMeter | None  # of frames with interpolated rows

    def __init__(self, pixels: PixelFormat) -> None:
        self._pixels = pixels
        self._scene = -1
        self._measured = 0  # the next frame to measure

    def at(
        self, scene: int, first: int, frames: list[Frame]
    ) -> tuple[tuple[float, ...], ...]:
        """Return `sigma`, `rms`, `loss` and `levels` (see `Clip`) at the end of the clip whose first frame
        has index `first`; `scene` is where its scene begins.
        """
        if scene != self._scene:
            self._scene = self._measured = scene
            self._meter, self._frame_meter = self._new_meter(), None
        while self._measured < first + len(frames):
            self._look(
                frames[self._measured - first :], allow_single=self._measured == scene
            )
            self._measured += (
                EARLY if self._measured < scene + NOISE_STEP else NOISE_STEP
            )
        noise = self._noise(frames)
        # where a plane lost more to the coder than it has noise, its loss is what is removed
        luma, chroma = map(fmean, zip(*(frame.loss for frame in frames), strict=True))
        stronger = (
            STRONGER
            if len(frames) > 1 and all(frame.steps for frame in frames)
            else 1.0
        )
        sigma, loss = [], []
        for plane, lost in zip(
            noise, (luma, *[chroma] * (len(noise) - 1)), strict=True
        ):
            is_noisy = plane.sigma > lost
            loss.append(lost if is_noisy else stronger * lost)
            sigma.append(plane.sigma if is_noisy else stronger * lost)
        levels = loss_levels([frame.loss[0] for frame in frames])
        return tuple(sigma), tuple(plane.rms for plane in noise), tuple(loss), levels

    def _noise(self, frames: list[Frame]) -> tuple[PlaneNoise, ...]:
        """Return the noise of the planes as known at the end of a clip; that of fields is never above that of
        the whole frames, which have all lines.
        """
        if not self._frame_meter:
            if len(frames) > 1:
                return self._meter.noise()
            return self._meter.noise_of_photograph(self._grey(frames[0])[0])
        luma, *chroma = self._meter.noise()
        levels = (luma.rms, *(field.tempered for field in chroma))
        limits = [whole.sigma for whole in self._frame_meter.noise()]
        return tuple(
            PlaneNoise(min(level, limit), min(field.rms, limit))
            for level, field, limit in zip(levels, (luma, *chroma), limits, strict=True)
        )

    def _new_meter(self) -> NoiseMeter:
        norms = OPPONENT_NORMS if self._pixels.family == "rgb" else ()
        return NoiseMeter(
            colour_planes(self._pixels),
            colour=self._pixels.family != "gray",
            norms=norms,
        )

    def _look(self, frames: list[Frame], *, allow_single: bool) -> None:
        """Measure the first frame with those after it of the same real rows, at least one of them unless
        `allow_single`.
        """
        rows = frames[0].real_rows
        alike = list(
            islice((frame for frame in frames if frame.real_rows == rows), FRAMES_SEEN)
        )
        if len(alike) == 1 and not allow_single:  # it shows no differences
            return
        looks = [self._grey(frame) for frame in alike]
        if rows is not None:
            self._frame_meter = self._frame_meter or self._new_meter()
            self._frame_meter.add(looks)
            looks = [tuple(plane[rows::2] for plane in planes) for planes in looks]
        self._meter.add(looks)

    def _grey(self, frame: Frame) -> tuple[NDArray[np.float32], ...]:
        """Return the colour planes on the 0-255 scale; luma and colour differences for R, G, B."""
        planes = frame.planes[: colour_planes(self._pixels)]
        grey = tuple(
            np.divide(plane, self._pixels.unit, dtype=np.float32) for plane in planes
        )
        if self._pixels.family != "rgb":
            return grey
        opponents = rgb_to_opponent([torch.from_numpy(plane) for plane in grey])
        return tuple(plane.numpy() for plane in opponents)


def loss_levels(losses: Sequence[float]) -> tuple[float, ...]:
    """Return the loss of each frame over their mean, as the mean of those near it on a scale of logarithms,
    and 0 for frames without; nothing if they differ little.
    """
    some = [loss for loss in losses if loss]
    if not some or (len(some) == len(losses) and max(some) < LOSS_SPREAD * min(some)):
        return ()
    least, sigma = min(some), np.array(losses)
    span = max(math.log(max(some) / least), math.log(LOSS_SPREAD))
    heights = np.log(np.maximum(sigma, least) / least)
    groups = np.rint((LOSS_LEVELS - 1) * heights / span)
    groups[sigma == 0] = -1
    return tuple(
        float(sigma[groups == group].mean() / sigma.mean()) for group in groups
    )
