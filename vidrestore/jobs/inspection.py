"""Describe a video: streams, colour, times, scenes, noise, damage."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from vidrestore.events import Listener, ignore_event, plain
from vidrestore.jobs.frame_progress import counted
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.reading.reader import VideoReader, expected_frames
from vidrestore.pipeline.chain import frames_ahead
from vidrestore.pipeline.plan import Scene, Timeline, planned_clips
from vidrestore.pixels.frames import WHOLE

# noise is measured clip by clip; neighbours share some frames
CLIP_FRAMES, SHARED_FRAMES = 20, 4


@dataclass(frozen=True)
class Inspection:
    """The description of a video."""

    info: SourceInfo
    scan: str | None  # how a restoration makes frames of fields, and why
    frames: int  # after that
    seconds: float  # until the end of the last frame
    steady: bool  # all frames last equally long but for the rounding of times to ticks
    scenes: tuple[Scene, ...]  # with their noise per plane
    damage: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON values; fractions as strings such as "24000/1001"."""
        return dict(plain(asdict(self)))


def inspect(source: str, on_event: Listener = ignore_event) -> Inspection:
    """Read a video once and describe it. Raises MediaError if it can't be read."""
    timeline = Timeline(CLIP_FRAMES, SHARED_FRAMES)
    with (
        VideoReader(source, scan="auto", losses=True) as reader,
        frames_ahead(reader.frames()) as decoded,
    ):
        info, scan = reader.info, reader.scan
        frames = counted(
            decoded, info.path, expected_frames(info, WHOLE), "inspect", on_event
        )
        # planning measures as it goes
        for _ in planned_clips(frames, timeline, info.video.format, None):
            pass
    end = timeline.pts[-1] + timeline.durations[-1] - timeline.pts[0]
    # the last frame lasts as long as its container says, which is no step of the rate
    steps = timeline.durations[:-1]
    return Inspection(
        replace(info, video=reader.stored),
        scan.in_words if scan else None,
        frames=len(timeline.pts),
        seconds=float(end * info.video.time_base),
        steady=not steps or max(steps) - min(steps) <= 1,
        scenes=tuple(timeline.scenes),
        damage=reader.damage.sentence,
    )
