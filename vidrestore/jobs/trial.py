"""The first frames of a job, restored and encoded on trial: how fast both are, and which preset keeps up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from vidrestore.errors import MediaError
from vidrestore.media.encoder_table import ENCODERS, EncoderChoice
from vidrestore.media.encoding import Encoder
from vidrestore.options import AUTO
from vidrestore.pipeline.plan import Timeline, planned_clips

if TYPE_CHECKING:
    from vidrestore.frames import Frame
    from vidrestore.jobs.job import Job
    from vidrestore.jobs.steps import Stage

# Frames of a clip on trial for restorers of whole pictures, whose time per frame is the same in shorter clips
# [measured: sr 0.46 s in clips of 6, 0.44 of 24]. Those of planes find patches once for a clip: denoise takes
# 0.48 s a frame in clips of 6, 0.28 of 20, so their clips are whole.
FEW = 6
ENOUGH = 1.0  # seconds of restoring that are measured well; faster machines restore more frames
MOST_BYTES = 256 << 20  # of restored frames that are kept


@dataclass(frozen=True)
class Trial:
    """The restored `frames`, and the seconds that each step takes for a frame of its clips."""

    frames: list[Frame]
    costs: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Frames per second."""
        return 1 / sum(self.costs)


@dataclass(frozen=True)
class Encoding:
    """Frames per second of an encoder, and the mean bytes of its key frames and of all others."""

    rate: float
    key: float
    other: float


def try_restoring(job: Job) -> Trial:
    """Restore the first frames step by step: as many clips as are restored at once, or more if that is done
    in no time. Raises MediaError if there is no frame.
    """
    is_slow_at_first = job.steps.on_gpu
    clips = 1
    while True:
        found, is_whole = _restored(job, clips)
        seconds, held = len(found.frames) / found.rate, sum(frame.nbytes for frame in found.frames)
        is_enough = is_whole or seconds >= ENOUGH or 4 * held > MOST_BYTES
        if is_enough and not is_slow_at_first:
            return found
        clips, is_slow_at_first = clips if is_enough else 4 * clips, False


def _restored(job: Job, clips: int) -> tuple[Trial, bool]:
    """Restore `clips` times as many clips as are restored at once; True if that was the whole video."""
    with closing(job.decoded()) as decoded:
        frames = list(islice(decoded, 1))
        if not frames:
            raise MediaError(f"{job.info.path}: no frame could be decoded")
        count = clips * _frames_at_once(job.steps.first, frames[0])
        frames += islice(decoded, count - 1)
    is_whole, costs = len(frames) < count, list[float]()
    for stage in job.steps.stages:
        given = frames[: clips * _frames_at_once(stage, frames[0])]
        began = time.monotonic()
        timeline = Timeline(_clip_length(stage), overlap=0)
        planned = planned_clips(given, timeline, stage.video.format, stage.sigma, detect=False)
        frames = list(copy(stage.clips).frames(planned))  # a copy: its counts are not those of the job
        costs.append((time.monotonic() - began) / len(frames))
    return Trial(frames, tuple(costs)), is_whole


def _frames_at_once(stage: Stage, frame: Frame) -> int:
    return _clip_length(stage) * stage.clips.clips_at_once(frame)


def _clip_length(stage: Stage) -> int:
    is_short = stage.restorer.sees == "rgb" and stage.clips.device.type == "cpu"
    return min(stage.length, FEW) if is_short else stage.length


def try_encoding(job: Job, frames: Sequence[Frame], choice: EncoderChoice) -> Encoding:
    """Encode restored frames, and keep nothing of it."""
    began = time.monotonic()
    encoder, packets = Encoder.opened(choice, job.output_info.video), list[Any]()
    for frame in frames:
        packets += encoder.encode(frame, frame.pts, frame.duration)
    packets += encoder.flush()
    rate = len(packets) / (time.monotonic() - began)
    keys = [packet.size for packet in packets if packet.is_keyframe]
    others = [packet.size for packet in packets if not packet.is_keyframe] or keys
    return Encoding(rate, sum(keys) / len(keys), sum(others) / len(others))


def fit_preset(job: Job, trial: Trial | None = None) -> dict[str, str]:
    """Give the encoder of a job whose preset is "auto" the one that keeps up with the restorer; return that
    and why, by their names as facts of the job. Nothing is measured for other jobs.
    """
    if job.options.encoder.preset != AUTO:
        return {}
    trial, choice, rates = trial or try_restoring(job), job.plan.encoder, dict[str, float]()

    def keeps_up(preset: str) -> bool:
        rates[preset] = try_encoding(job, trial.frames, replace(choice, preset=preset)).rate
        return rates[preset] >= trial.rate

    preset = first_or_last(ENCODERS[choice.encoder].paces, keeps_up)
    job.plan.encoder, job.why_preset = replace(choice, preset=preset), in_words(rates, trial.rate)
    return {"preset": preset, "why_preset": job.why_preset}


def first_or_last(presets: Sequence[str], keeps_up: Callable[[str], bool]) -> str:
    """Return the first of presets, from the usual to the fastest, that keeps up; the last if none does."""
    return next((preset for preset in presets if keeps_up(preset)), presets[-1])


def in_words(rates: Mapping[str, float], wanted: float) -> str:
    """Say why the last one of presets was taken that were tried from the usual one on, with the frames per
    second of each; the restorer gives as many as `wanted`.
    """
    usual, taken = next(iter(rates)), list(rates)[-1]
    which, end = "it" if taken == usual else usual, "" if rates[taken] >= wanted else "; none keeps up"
    found = f"{which} gives {rates[usual]:.3g} frames a second here, the restorer {wanted:.3g}"
    return f"preset {taken} ({found}{end})"
