"""Restore a video file in segments, so that a run that was ended in any way can be resumed.

    with folder.locked():
        work = SegmentedWork.begin(job, folder, on_event)  # or resume with what is in the folder
        work.run()  # restores each segment once it is planned; or, for several processes:
        work.plan()  # a pass over the video, unless a finished plan is there
        work.restore(work.missing())  # any number of processes may do so, each its own part
        work.join()  # once nothing is missing

Segments begin and end with clips of the plan. One ends earlier when a minute of work is over or the run is
stopped; the frames after it are then another segment. The bounds are in the names of the files. A restored
frame depends on the one or two clips that hold it, so the frames are the same for any bounds.
"""

from __future__ import annotations

import os
import shutil
import time
from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

from vidrestore.errors import Cancelled, MediaError, PlanError
from vidrestore.events import Listener, Warned
from vidrestore.files.regular import digest
from vidrestore.files.stopping import delayed_signals
from vidrestore.jobs.frame_progress import counted
from vidrestore.jobs.job import Job, damage_summary, plan_source
from vidrestore.jobs.plan_ahead import PlanAhead
from vidrestore.jobs.resume import DifferentJobError, WorkFolder
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.source import NUMBERED_PICTURES
from vidrestore.media.reading.reader import expected_frames
from vidrestore.media.writing.muxer import Muxer
from vidrestore.media.writing.picture_writer import PictureFiles
from vidrestore.media.writing.segment_file import (
    SegmentFacts,
    SegmentWriter,
    check_segment,
    join_segments,
)
from vidrestore.pipeline.plan import Timeline
from vidrestore.pixels.clips import Bounds, owners
from vidrestore.pixels.frames import Frame, VideoInfo
from vidrestore.working import Stopped

# Frames of a segment. x264 starts over every 250 frames by itself; segments of 48 made videos of static
# scenes 6 to 20 % larger, of moving ones 0.6 % [measured, crf 16].
LENGTH = 240
# Seconds that the work on a segment takes at most, unless a single clip takes longer. Slow work pays in
# bytes: segments of 32 frames make videos 2 to 3 % larger, of 16 7 %, of 6 up to 24 % [x264 at crf 16].
MINUTE = 60.0
# The least that a video takes: bits per pixel, or without loss a share of the size of its samples. Still
# pictures at crf 40 take four times as much.
LEAST_LOSSY, LEAST_LOSSLESS = 0.0005, 0.001


@dataclass(frozen=True)
class Segment:
    """Frames [first, stop) of the video."""

    number: int  # of the planned segment that they are a part of
    first: int
    stop: int


def frame_count(segments: Iterable[Segment]) -> int:
    return sum(segment.stop - segment.first for segment in segments)


def segments_of(
    timeline: Timeline, length: int, clips: Iterable[int] | None = None
) -> Iterator[Segment]:
    """Yield the segments of a plan: of `length` frames or a little more, or of half as many if a scene ends
    there. Each depends on the plan up to its end, so the plan may grow: then `clips` yields the indices of
    its clips, until it is finished.
    """
    # a segment ends with a clip, so that no clip is restored twice for it
    number = first = stop = 0
    for index in range(len(timeline.clips)) if clips is None else clips:
        stop = timeline.clips[index].stop
        frames = stop - first
        if frames >= length or (2 * frames >= length and timeline.is_cut(stop)):
            yield Segment(number, first, stop)
            number, first = number + 1, stop
    if first < stop:
        yield Segment(number, first, stop)


def consecutive(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Yield runs of neighbouring segments: restored together, they need no clip twice."""
    # a run ends where a segment before it is finished already
    run: list[Segment] = []
    for segment in segments:
        if run and segment.first != run[-1].stop:
            yield run
            run = []
        run.append(segment)
    if run:
        yield run


class SegmentedWork:
    """A checked job and its work folder, which must be locked."""

    def __init__(
        self,
        job: Job,
        folder: WorkFolder,
        on_event: Listener,
        name: str,
        *,
        overwrite: bool,
    ) -> None:
        """Use `begin` instead; `name` is the digest of the identity of the job."""
        self.job, self.folder, self.on_event, self.name = job, folder, on_event, name
        self.overwrite = overwrite
        self.is_planned = False
        self.source_damage: str | None = None  # of its pictures, once they are planned
        self.reused = 0  # frames of earlier runs or other processes
        self.retried_elsewhere = 0  # clips, by other processes
        self.damage: str | None = None  # of the source, once the video is joined
        self._checked: dict[Path, SegmentFacts] = {}

    @classmethod
    def begin(
        cls, job: Job, folder: WorkFolder, on_event: Listener, *, shared: bool = False
    ) -> Self:
        """Resume what is in the folder, or begin the job there; if it is `shared`, other processes work on
        it, too. Raises DifferentJobError if another job is there, unless the output is to be overwritten.
        """
        identity = job.identity()
        options = job.options
        stages = job.steps.stages
        # what may be another value on another day stays as the job began with it
        facts: dict[str, Any] = {"encoder_threads": job.plan.encoder.threads}
        facts["clips"] = [[stage.length, stage.overlap] for stage in stages]
        begin = partial(
            folder.begin,
            identity,
            facts,
            options.drop,
            shared=shared,
            overwrite=options.overwrite,
        )
        # the folder of another job is discarded only for an output that is to be replaced
        try:
            began = begin(restart=options.restart and not shared)
        except DifferentJobError as error:
            if shared or not options.overwrite:
                raise
            on_event(Warned(job.info.path, f"{error.difference}; it was discarded"))
            began = begin(restart=True)
        # its own settings, then its plan if it has one
        # memory may be other now
        for stage, (length, overlap) in zip(stages, began["clips"], strict=True):
            stage.length, stage.overlap = length, overlap
        job.plan.encoder = replace(job.plan.encoder, threads=began["encoder_threads"])
        job.plan.timeline = job.steps.first.timeline([])
        work = cls(
            job, folder, on_event, digest(identity), overwrite=began["overwrite"]
        )
        work._load_plan()
        job.warn(folder.warnings, on_event)
        return work

    @property
    def total(self) -> int | None:
        """The number of frames; before the plan is finished, an estimate or None."""
        if self.is_planned:
            return len(self.job.plan.timeline.pts)
        return expected_frames(self.job.info, self.job.plan.span)

    @property
    def segments(self) -> list[Segment]:
        """All segments of the plan, which must be finished."""
        assert self.is_planned
        return list(segments_of(self.job.plan.timeline, LENGTH))

    @property
    def retried(self) -> int:
        """Clips that half precision could not hold."""
        return self.job.steps.retried + self.retried_elsewhere

    # The plan

    def plan(self) -> None:
        """Decode the video once to plan it, unless the plan is finished."""
        if self.is_planned:
            return
        job = self.job
        job.plan.timeline = job.steps.first.timeline([])
        plan_source(job, self.on_event)
        self._keep_plan()

    def _keep_plan(self) -> None:
        """Write the plan, which is finished, to the folder. Raises MediaError if it has no frames."""
        job = self.job
        if not job.plan.timeline.pts:
            raise MediaError(
                f"{job.plan.output}: no frame was written, so there is no output"
            )
        # what a later run needs of this pass over the video
        content = {"name": self.name, "timeline": job.plan.timeline.to_compact()}
        facts = {
            "damage": job.damage,
            "restarted": bool(job.reader.restarts or job.reader.mended),
        }
        self.folder.write("plan", content | facts)
        self._set_facts(facts)

    def _load_plan(self) -> None:
        """Load the plan if a process has finished it."""
        record = self.folder.read("plan")
        if record is None or record["name"] != self.name:
            return
        try:
            # a plan that can't be read is made again
            self.job.plan.timeline = Timeline.from_compact(record["timeline"])
            self._set_facts(record)
        except ValueError as error:
            self.folder.note_broken("plan", error)

    def _set_facts(self, facts: Mapping[str, Any]) -> None:
        self.is_planned = True
        self.source_damage = facts["damage"]
        self.job.reader.restarted = facts["restarted"]

    # Segments

    def unfinished(self, segments: Sequence[Segment] | None = None) -> list[Segment]:
        """Return the parts of segments, by default of all, that no process has finished, without a check of
        the others.
        """
        # finished segments leave gaps: a missing part is where a gap meets a segment
        segments = self.segments if segments is None else segments
        edges = [0, *chain.from_iterable(self._finished()), segments[-1].stop]
        missing = []
        for segment in segments:
            for gap_first, gap_stop in zip(edges[::2], edges[1::2], strict=True):
                first, stop = max(gap_first, segment.first), min(gap_stop, segment.stop)
                if first < stop:
                    missing.append(Segment(segment.number, first, stop))
        return missing

    def _finished(self) -> list[Bounds]:
        """Return the bounds of the finished segments in order; of two that overlap, as two shards may write
        them, only the first.
        """
        bounds: list[Bounds] = []
        for first, stop in self.folder.finished():
            if first >= (bounds[-1][1] if bounds else 0):
                bounds.append((first, stop))
        return bounds

    def missing(self) -> list[Segment]:
        """Return the parts of segments that are still to be restored. Segments that exist are read and
        checked, and removed if that fails.
        """
        self._check(len(self.job.plan.timeline.pts))
        return self.unfinished()

    def _check(self, stop: int) -> None:
        """Check the finished segments up to a frame; remove those that are broken."""
        while not all(
            self._is_whole(bounds) for bounds in self._finished() if bounds[1] <= stop
        ):
            pass

    def _is_whole(self, bounds: Bounds) -> bool:
        # each file is read once in a run
        path = self.folder.segment(bounds)
        if path in self._checked:
            return True
        try:
            facts = check_segment(path)
            if facts.label == self._label(bounds):
                self._checked[path] = facts
                return True
            problem = (
                f"{path}: made for another part of the video; it is restored again"
            )
        except MediaError as error:
            problem = str(error)
        self.on_event(Warned(self.job.info.path, problem))
        # restored again, as if it had never been there
        path.unlink(missing_ok=True)
        return False

    def finished_frames(self) -> int:
        """Return how many frames the next run can reuse."""
        return sum(stop - first for first, stop in self._finished())

    def _label(self, bounds: Bounds) -> dict[str, Any]:
        """Return the label of a segment, unique to its video and part: frames, times and noise."""
        # a segment made by another plan has other times or noise
        timeline, (first, stop) = self.job.plan.timeline, bounds
        times = array(
            "q", chain(timeline.pts[first:stop], timeline.durations[first:stop])
        )
        owned = owners(timeline.bounds, first, stop)
        clips = timeline.clips[owned.start : owned.stop]
        sigmas = [(clip.first, clip.stop, clip.sigma, clip.coding) for clip in clips]
        plan = digest({"times": list(times), "clips": sigmas})
        return {"job": self.name, "first": first, "stop": stop, "plan": plan}

    def run(self) -> None:
        """Plan, and restore what is missing. Raises VidRestoreError; segments that are finished stay."""
        self.check_output()
        # whose clips follow from the finished plan
        if self.is_planned or self.job.steps.later:
            self.plan()
            self.restore(self.missing())
        else:
            self._restore_while_planning()

    def _restore_while_planning(self) -> None:
        """Restore what is missing of each segment once that is planned. Planning goes on beside it; if it is
        ended before the plan is, the next run plans from the beginning, with the same result.
        """
        # the plan begins empty, and grows in another thread
        job = self.job
        job.plan.timeline = job.steps.first.timeline([])
        parts, written = deque[Segment](), 0
        with (
            PlanAhead(job, self.on_event, self._keep_plan) as ahead,
            closing(self._parts(ahead)) as unfinished,
        ):
            part = next(unfinished, None)
            job.announce_plan(self.total, self.on_event, reused=self.finished_frames())
            ahead.shows_progress, reused = False, self.finished_frames()
            with closing(self._frames_of(parts, ahead)) as restored:

                def total() -> int | None:
                    return None if self.total is None else max(0, self.total - reused)

                frames = counted(
                    restored, job.info.path, total, "restore", self.on_event
                )
                # a part is restored as soon as its segment is planned
                while part is not None:
                    parts.append(part)
                    self._write(frames, part)
                    written += part.stop - part.first
                    part = next(unfinished, None)
                next(frames, None)  # no frame is left, but the progress ends
            ahead.pass_on()
        self.reused = len(job.plan.timeline.pts) - written

    def _parts(self, ahead: PlanAhead) -> Generator[Segment]:
        """Yield the parts of segments that are still to be restored, each once its segment is planned."""
        for segment in segments_of(self.job.plan.timeline, LENGTH, ahead.clips()):
            self._check(segment.stop)
            yield from self.unfinished([segment])

    def _frames_of(self, parts: deque[Segment], ahead: PlanAhead) -> Generator[Frame]:
        """Yield the restored frames of parts, which are taken out, while there are some."""
        while parts:
            place = parts[0].first
            with closing(self.job.restored_from(place, ahead.clips)) as frames:
                while parts and parts[0].first == place:
                    part = parts.popleft()
                    yield from islice(frames, part.stop - part.first)
                    place = part.stop

    def announce(self, frames: int) -> None:
        """Announce the plan, of which so many frames are restored now."""
        self.reused = len(self.job.plan.timeline.pts) - frames
        self.job.announce_plan(self.total, self.on_event, reused=self.finished_frames())

    def restore(self, segments: list[Segment]) -> None:
        """Restore segments. Raises VidRestoreError; those that are finished stay."""
        count = frame_count(segments)
        self.announce(count)
        with closing(self._frames(segments)) as restored:
            frames = counted(
                restored, self.job.info.path, count, "restore", self.on_event
            )
            for segment in segments:
                self._write(frames, segment)
            next(frames, None)  # no frame is left, but the progress ends

    def _frames(self, segments: list[Segment]) -> Generator[Frame]:
        """Yield the restored frames of segments. A damaged video is read from its beginning: after a jump,
        other pictures might come.
        """
        damaged = self.source_damage is not None
        # neighbours are restored as one, for fewer clips
        for run in consecutive(segments):
            part = self.job.restored_part(
                run[0].first, run[-1].stop, from_start=damaged
            )
            with closing(part) as frames:
                yield from frames

    def _write(self, frames: Iterator[Frame], segment: Segment) -> None:
        """Write the frames of a segment, or of several if they take longer than a minute."""
        first, durations = segment.first, self.job.plan.timeline.durations
        # the file gets its bounds at the end, when it is known how far it came
        while first < segment.stop:
            began = time.monotonic()
            with self._writer((first, segment.stop)) as writer:
                for frame in islice(frames, segment.stop - first):
                    # a decoder's last depends on its start
                    frame.duration = durations[first + writer.frames]
                    with delayed_signals():
                        writer.write(frame)
                    if self._is_full(began, first, writer.frames):
                        break
                else:
                    # fewer frames than planned came from the decoder
                    if writer.frames != (expected := segment.stop - first):
                        problem = (
                            f"frame {first} and on: {writer.frames} of {expected} came"
                        )
                        raise PlanError(
                            f"{self.job.info.path}, {problem}; has the source changed?"
                        )
            first += writer.frames

    def _is_full(self, began: float, first: int, frames: int) -> bool:
        """Return True if a segment ends with its last frame: at its pace, the next clip would take it beyond
        a minute.
        """
        seconds = time.monotonic() - began
        timeline = self.job.plan.timeline
        is_long = seconds * (frames + timeline.length) >= MINUTE * frames
        return is_long and timeline.ends_clip(first + frames)

    @contextmanager
    def _writer(self, bounds: Bounds) -> Iterator[SegmentWriter]:
        """Yield the writer of a segment of at most these frames, which stays if the work is stopped, and is
        removed after an error.
        """
        job = self.job
        path = self.folder.segment(bounds)
        writer = None
        try:
            # Ctrl-C while the file is begun would leave it behind
            with delayed_signals():
                writer = SegmentWriter(
                    path, job.output_info, job.plan.encoder, first=bounds[0]
                )
            try:
                yield writer
            except (KeyboardInterrupt, Cancelled, Stopped):
                with suppress(MediaError):
                    self._finish(writer)
                raise
            self._finish(writer)
        finally:
            if writer is not None:
                writer.abort()

    def _finish(self, writer: SegmentWriter) -> None:
        """Name a segment by the frames that were written to it."""
        bounds = writer.first, writer.first + writer.frames
        writer.path = self.folder.segment(bounds)
        if writer.frames:
            with delayed_signals():
                self._checked[writer.path] = writer.finish(self._label(bounds))

    # The output

    def check_output(self) -> None:
        """Check that the output can be begun, and that there is room for it. Raises MediaError."""
        # an output that came since is refused before work, not after
        # it came since the job began
        if not (self.overwrite or (self.is_planned and not self.unfinished())):
            self.job.request.output.check(self.job.request.source, overwrite=False)
        self._joined().abort()
        least = least_size(
            self.job.output_info.video, self.job.plan.encoder, self.total or 0
        )
        check_space(self.folder, least)

    def join(self) -> tuple[str, ...]:
        """Join all segments, check and name the output, and then remove the segments; return warnings for the
        user.

        Sets `damage`. Raises MediaError; then the segments stay.
        """
        # nothing may be missing, and the source must be that of the plan
        job, timeline = self.job, self.job.plan.timeline
        if missing := self.missing():
            raise PlanError(
                f"{self.folder.path}: {len(missing)} segments are missing; restore them first"
            )
        if job.request.source.identity() != job.plan.source:
            raise PlanError(
                f"{job.info.path}: the source has changed since the work began; run again with `restart`"
            )
        # then all packets into one file, with the streams that are copied
        joined = self._joined()
        try:
            files = [
                (self.folder.segment(bounds), bounds[0]) for bounds in self._finished()
            ]
            segments = [(path, first, self._checked[path]) for path, first in files]
            times = zip(timeline.pts, timeline.durations, strict=True)
            joining = join_segments(joined, segments, times)
            for _ in counted(joining, job.info.path, self.total, "join", self.on_event):
                pass
            joined.finish()
            self.damage = damage_summary(self.source_damage, joined.damage)
        except BaseException:
            joined.abort()
            raise
        self.folder.remove()
        return tuple(joined.warnings)

    def _joined(self) -> Muxer | PictureFiles:
        """Return the writer of the whole output, which takes the segments in order."""
        job = self.job
        plan = job.plan
        tag = job.tag(self.source_damage)
        if plan.encoder.container == NUMBERED_PICTURES:
            drop, output = job.options.drop, job.request.output
            return PictureFiles(
                output,
                job.output_info,
                plan.encoder,
                drop,
                overwrite=self.overwrite,
                tag=tag,
            )
        return Muxer(
            plan.output,
            job.output_info,
            plan.encoder,
            plan.copy,
            overwrite=self.overwrite,
            span=plan.span,
            first=plan.timeline.pts[0] if plan.timeline.pts else None,
            tag=tag,
        )


def least_size(video: VideoInfo, encoder: EncoderChoice, frames: int) -> int:
    """Return how many bytes the encoded frames take at least."""
    # a bound from below: better a run that fails late than one refused without need
    height, width, pixels = video.height, video.width, video.format
    if not (encoder.lossless or encoder.encoder == "ffv1"):
        return int(frames * height * width * LEAST_LOSSY / 8)
    sizes = (
        pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)
    )
    samples = sum(rows * columns for rows, columns in sizes)
    return int(frames * samples * (1 if pixels.depth == 8 else 2) * LEAST_LOSSLESS)


def check_space(folder: WorkFolder, least: int) -> None:
    """Raise MediaError if there is no room for segments and the video joined from them, `least` bytes each,
    which are there at the same time.
    """
    work, home = folder.path, folder.output.absolute().parent
    # on one disk both are there at once
    demands = {work: least - folder.size(), home: least}
    if os.stat(work).st_dev == os.stat(home).st_dev:
        demands = {work: 2 * least - folder.size()}
    for place, demand in demands.items():
        if (free := shutil.disk_usage(place).free) < demand:
            why = (
                ", as joining needs twice the output's size"
                if len(demands) == 1
                else ""
            )
            raise MediaError(
                f"{place}: {free / 1e6:.1f} MB free, but at least {demand / 1e6:.1f} MB are needed{why}; "
                "free some, or choose another place with `output` or `work_dir`"
            )
