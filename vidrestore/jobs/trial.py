"""The first frames of a job, restored and encoded on trial: how fast both are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from vidrestore.errors import MediaError
from vidrestore.media.encoder_table import EncoderChoice
from vidrestore.media.encoding import Encoder
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
