"""Journals of a job's segments: frames that earlier runs restored of segments that they did not finish."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from vidrestore.frames import Frame, enlarged_size
from vidrestore.jobs.frame_journal import FrameJournal
from vidrestore.jobs.job import Job
from vidrestore.jobs.segments import Segment
from vidrestore.jobs.work_folder import WorkFolder, digest


class SegmentJournals:
    """Those in the work folder of a job, whose identity is called `name`."""

    def __init__(self, job: Job, folder: WorkFolder, name: str) -> None:
        self.job, self.folder, self.name = job, folder, name

    def of(self, number: int, first: int) -> FrameJournal:
        """Return the journal of segment `number`, which begins with frame `first`."""
        video = self.job.info.video
        label = digest({"job": self.name, "first": first})
        size = enlarged_size(video.height, video.width, self.job.scale)
        return FrameJournal(self.folder.frames(number), label, video.format, *size)

    def resumed(self, segment: Segment) -> tuple[int, int]:
        """Return how many frames of a segment need not be restored again, and the clip to resume with."""
        if not self.folder.frames(segment.number).exists():
            return 0, segment.first_clip
        clips, clip, frames = self.job.plan.timeline.clips, segment.first_clip, 0
        there = self.of(segment.number, segment.first).count(self.times(segment, segment.frames))
        while clip < segment.stop_clip and clips[clip].stop - segment.first <= there:
            frames = clips[clip].stop - segment.first
            clip += 1
        return frames, clip

    def times(self, segment: Segment, count: int) -> array[int]:
        """Return the times of the first `count` frames of a segment, as the plan has them."""
        return self.job.plan.timeline.pts[segment.first : segment.first + count]

    def frames(self, segment: Segment, count: int) -> Iterator[Frame]:
        """Yield the first `count` frames of a segment. Raises MediaError for records that hold no frames."""
        return self.of(segment.number, segment.first).frames(self.times(segment, count))
