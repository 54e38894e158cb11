"""A video's restoration in segments: ranges of clips whose frames are restored and encoded by themselves, to
be joined.

The bounds of segments follow from the plan alone, and are known as soon as the clips are. A segment ends with
the clip that gives it the wanted length, or at a cut if it has half of that: at a cut encoders start over
anyway, and no clip is restored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from vidrestore.pipeline.plan import Timeline

# Frames of a segment unless a number is given. x264 starts over every 250 frames by itself; segments of
# 48 made videos of static scenes 6 to 20 % larger, of moving ones 0.6 % [measured, crf 16].
LONGEST, SHORTEST = 240, 96
# Pixels that a segment encodes at most: large frames take long, so fewer are lost when a run is killed.
PIXELS = 500_000_000


@dataclass(frozen=True)
class Segment:
    """Frames [first, stop) of the video: those that the clips [first_clip, stop_clip) own
    (`clips.owned_span`).
    """

    number: int
    first_clip: int
    stop_clip: int
    first: int
    stop: int

    @property
    def frames(self) -> int:
        return self.stop - self.first


def frame_count(segments: Iterable[Segment]) -> int:
    return sum(segment.frames for segment in segments)


def usual_length(height: int, width: int) -> int:
    """Return the frames of a segment for an output of this size."""
    return max(SHORTEST, min(LONGEST, PIXELS // (height * width)))


def ends_segment(timeline: Timeline, first: int, clip: int, length: int) -> bool:
    """Return True if the segment that begins with frame `first` ends with the frames that a clip owns. Uses
    only what is known then.
    """
    stop = timeline.clips[clip].stop
    frames = stop - first
    return frames >= length or (2 * frames >= length and timeline.is_cut(stop))


def segments_of(timeline: Timeline, length: int) -> Iterator[Segment]:
    """Yield the segments of a finished plan, of about `length` frames each."""
    number = first = first_clip = 0
    last = len(timeline.clips) - 1
    for index, clip in enumerate(timeline.clips):
        if index == last or ends_segment(timeline, first, index, length):
            yield Segment(number, first_clip, index + 1, first, clip.stop)
            number, first_clip, first = number + 1, index + 1, clip.stop


def consecutive(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Yield runs of segments that follow each other: restored in one go, they need no clip twice."""
    for _, run in groupby(enumerate(segments), lambda item: item[1].number - item[0]):
        yield [segment for _, segment in run]
