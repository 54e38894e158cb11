"""Restore a video file in segments, so that a run that was ended in any way can be resumed.

    with folder.locked():
        work = SegmentedWork(job, folder, on_event)   # begins, or resumes with what is in the folder
        work.plan()                                   # a pass over the video, unless a finished plan is there
        for run in consecutive(work.missing()):
            work.restore(run)                         # any number of processes may do so, each its own runs
        work.join()                                   # once nothing is missing

`run` does that in the best way for one process: a video that nobody has begun is planned while it is
restored, and so decoded once. Both ways give the same segments, bit for bit: the bounds of a clip depend on
the frames up to its end, and a restored frame on the one or two clips that hold it. So a run of segments is
restored from its own clips and the one after it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import Any

from vidrestore.errors import MediaError, PlanError
from vidrestore.events import Listener, Warned
from vidrestore.files.atomic import remove_partials
from vidrestore.files.stopping import interrupts_held
from vidrestore.frames import Frame, Scale, VideoInfo, enlarged_size
from vidrestore.jobs.frame_journal import FrameJournal, SafeFrames
from vidrestore.jobs.frame_progress import FrameProgress, counted
from vidrestore.jobs.job import Job, damage_summary, digest, plan_source
from vidrestore.jobs.resume import DifferentJobError, State, WorkFolder, is_named, mark
from vidrestore.media.encoder_table import EncoderChoice
from vidrestore.media.muxer import Muxer
from vidrestore.media.picture_writer import JoinedPictures
from vidrestore.media.segment_file import JoinedFile, SegmentFacts, SegmentWriter, check_segment, read_packets
from vidrestore.media.source import PICTURES
from vidrestore.pipeline.excerpt import expected_frames
from vidrestore.pipeline.plan import Timeline

LONGEST_CLIP = 1 << 16  # frames


# Frames of a segment unless a number is given. x264 starts over every 250 frames by itself; segments of
# 48 made videos of static scenes 6 to 20 % larger, of moving ones 0.6 % [measured, crf 16].
LONGEST, SHORTEST = 240, 96
# Pixels that a segment encodes at most: large frames take long, so fewer are lost when a run is killed.
PIXELS = 500_000_000
# Bits per pixel of what comes out, the least there could be and what is likely; without loss as shares of the
# samples' own size.
LOSSY = 0.0005, 0.3  # still pictures at crf 40 take four times the least
LOSSLESS = 0.001, 0.5


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


@dataclass
class Outcome:
    """Facts about a video that are known once all of it was decoded; the plan holds the others."""

    damage: str | None
    deinterlaced: int


class SegmentedWork:
    """A checked job and its work folder, which must be locked. Raises DifferentJobError if another job is
    in the folder, unless the output is to be overwritten.

    `reused`: frames that earlier runs restored, or others; `damage`: what was wrong with the source, once the
    video is joined.
    """

    def __init__(self, job: Job, folder: WorkFolder, on_event: Listener, *, beside: bool = False) -> None:
        """`beside`: other processes work on the job, too."""
        self.job, self.folder, self.on_event = job, folder, on_event
        video, asked = job.info.video, job.options.segment_frames
        length = asked or usual_length(*enlarged_size(video.height, video.width, job.scale))
        facts: dict[str, Any] = {"segment_frames": length, "encoder_threads": job.plan.encoder.threads}
        for at, stage in enumerate(job.steps.stages):
            facts |= {_fact("clip", at): stage.length, _fact("overlap", at): stage.overlap}
        identity, restart = job.identity(), job.options.restart and not beside
        begin = partial(folder.begin, identity, facts, job.options.drop)
        try:
            began = begin(restart=restart, beside=beside)
        except DifferentJobError as error:
            if beside or not job.options.overwrite:
                raise
            began = begin(restart=True)
            on_event(Warned(job.info.path, f"{error.found}; it was discarded"))
        for at, stage in enumerate(job.steps.stages):  # memory may be other now
            stage.length, stage.overlap = began[_fact("clip", at)], began[_fact("overlap", at)]
            if not 0 <= stage.overlap < stage.length <= LONGEST_CLIP:
                raise PlanError(
                    f"{folder.path / 'job.json'}: clips of {stage.length} frames that share "
                    f"{stage.overlap}: vidrestore did not write that; add `restart` to begin again"
                )
        job.plan.encoder = replace(job.plan.encoder, threads=began["encoder_threads"])
        job.plan.timeline = job.steps.first.timeline([])
        self.length = began["segment_frames"]
        if asked is not None and asked != self.length:
            text = (
                f"segments of {self.length} frames were begun, and stay so; `segment_frames` changes nothing"
            )
            on_event(Warned(job.info.path, text))
        self.name = digest(identity)
        self.outcome: Outcome | None = None
        if not beside:
            remove_partials(folder.output, alone=True)
        self.reused = 0
        self.retried_elsewhere = 0  # clips, by other processes
        self.damage: str | None = None
        self._checked: dict[int, SegmentFacts] = {}
        self._safe: SafeFrames | None = None  # the segment that was begun
        self._since = time.monotonic()  # when the last segment was finished, or the work began
        self.load_plan()
        job.warn(folder.warnings, on_event)

    @property
    def total(self) -> int | None:
        return (
            len(self.job.plan.timeline.pts)
            if self.outcome
            else expected_frames(self.job.info, self.job.plan.span)
        )

    @property
    def segments(self) -> list[Segment]:
        """All segments of the video, whose plan must be finished."""
        assert self.outcome is not None
        return list(segments_of(self.job.plan.timeline, self.length))

    @property
    def retried(self) -> int:
        """Clips that half precision could not hold."""
        return self.job.steps.retried + self.retried_elsewhere

    @property
    def state(self) -> State:
        """How far the job is, with the work of other processes; the segments are not checked."""
        if is_named(self.job.request, self.folder):
            return State.NAMED
        if self.outcome is None and not self.load_plan():
            return State.ABSENT
        if not self.left():
            return State.WHOLE
        return State.PARTLY if self.folder.finished() or self.folder.begun() else State.PLANNED

    # The plan

    def plan(self) -> None:
        """Finish the plan, unless it is: decode the video once, restore nothing."""
        if self.outcome is None:
            self._forget()
            plan_source(self.job, self.on_event)
            self._keep_plan()

    def _forget(self) -> None:
        self.job.plan.timeline = self.job.steps.first.timeline([])

    def _keep_plan(self) -> None:
        if not self.job.plan.timeline.pts:
            raise MediaError(f"{self.job.plan.output}: no frame was written, so there is no output")
        self.outcome = Outcome(self.job.damage, self.job.reader.deinterlaced)
        self.folder.write(
            "plan",
            {"name": self.name, "timeline": self.job.plan.timeline.to_compact(), **asdict(self.outcome)},
        )

    def load_plan(self) -> bool:
        """Take the plan that some process has finished; False if none has."""
        kept = self.folder.read("plan")
        if kept is not None and kept["name"] == self.name:
            try:
                self.job.plan.timeline = Timeline.from_compact(kept["timeline"])
            except ValueError as error:
                self.folder.note_broken("plan", error)
            else:
                self.outcome = Outcome(kept["damage"], kept["deinterlaced"])
                return True
        return False

    # Segments

    def left(self) -> list[Segment]:
        """Return the segments that nobody has finished; the others are not checked."""
        finished = set(self.folder.finished())
        return [segment for segment in self.segments if segment.number not in finished]

    def missing(self) -> list[Segment]:
        """Return the segments that are still to be restored; those that are there were read and checked, and
        those that failed are removed.
        """
        left = set(self.left())
        return [segment for segment in self.segments if segment in left or not self._is_whole(segment)]

    def _is_whole(self, segment: Segment) -> bool:
        if segment.number in self._checked:
            return True
        path = self.folder.segment(segment.number)
        try:
            facts = check_segment(path)
            if facts.label == self._label(segment):
                self._checked[segment.number] = facts
                return True
            problem = f"{path}: made for another part of the video; it is restored again"
        except MediaError as error:
            problem = str(error)
        self.on_event(Warned(self.job.info.path, problem))
        self.folder.discard(segment.number)
        return False

    def kept_frames(self) -> int:
        """Return how many frames the next run need not restore again."""
        finished = {number: self._finished_frames(number) for number in self.folder.finished()}
        if self.outcome is None:  # planned while it is restored: one segment is begun at most
            times = self.job.plan.timeline.pts[sum(finished.values()) :]
            return sum(finished.values()) + (self._safe.journal.count(times) if self._safe else 0)
        return sum(finished.get(each.number) or self._resumed(each)[0] for each in self.segments)

    def _finished_frames(self, number: int) -> int:
        if number not in self._checked:  # interrupted just when it was finished
            with suppress(MediaError):
                return check_segment(self.folder.segment(number)).frames
        return self._checked[number].frames if number in self._checked else 0

    def _label(self, segment: Segment) -> dict[str, Any]:
        """Return what distinguishes a segment from those of other videos and parts: its frames, their times
        and their noise.
        """
        timeline = self.job.plan.timeline
        times = array(
            "q",
            chain(
                timeline.pts[segment.first : segment.stop], timeline.durations[segment.first : segment.stop]
            ),
        )
        clips = [
            (clip.first, clip.stop, clip.sigma)
            for clip in timeline.clips[segment.first_clip : segment.stop_clip]
        ]
        return {
            "job": self.name,
            "first": segment.first,
            "stop": segment.stop,
            "plan": digest({"times": list(times), "clips": clips}),
        }

    def restore(self, run: list[Segment], watch: Callable[[Iterator[Frame]], Iterator[Frame]] = iter) -> None:
        """Restore segments that follow each other, their frames by way of `watch`. Raises VidRestoreError;
        what was finished until then stays.
        """
        with closing(self._frames(run)) as frames:
            self._write_planned(watch(frames), run)

    def run(self) -> None:
        """Restore what is missing. Raises VidRestoreError; what was finished until then stays."""
        self.check_output()
        if self.state is State.ABSENT and not self.folder.finished() and not self.folder.begun():
            self.announce_plan()
            self._restore_live()
            return
        self.plan()
        missing = self.missing()
        count = frame_count(missing) - sum(self._resumed(segment)[0] for segment in missing)
        self.reused = len(self.job.plan.timeline.pts) - count
        self.announce_plan()
        progress = FrameProgress(self.job.info.path, count, "restore", self.on_event)
        with closing(self._frames(missing, partial(_passed, progress, itertools.count(1)))) as frames:
            self._write_planned(frames, missing)
        progress.finish(count)

    def _frames(
        self, segments: list[Segment], watch: Callable[[Iterator[Frame]], Iterator[Frame]] = iter
    ) -> Generator[Frame]:
        """Yield the frames of segments, those that are restored now by way of `watch`.

        A damaged video is read from its beginning: after a jump other pictures might come.
        """
        damaged = self.outcome is not None and self.outcome.damage is not None
        for run in self._runs(segments):
            kept, clip = self._resumed(run[0])
            yield from self._journal(run[0].number, run[0].first).frames(self._times(run[0], kept))
            if clip < run[-1].stop_clip:
                clips = range(clip, run[-1].stop_clip)
                with closing(self.job.restored_clips(clips, from_start=damaged)) as frames:
                    yield from watch(frames)

    def _runs(self, segments: list[Segment]) -> Iterator[list[Segment]]:
        """Yield runs of segments that follow each other; of none but the first some frames are restored."""
        for run in consecutive(segments):
            begins = [at for at, segment in enumerate(run) if at == 0 or self._resumed(segment)[0]]
            for first, stop in pairwise([*begins, len(run)]):
                yield run[first:stop]

    def _write_planned(self, frames: Iterable[Frame], segments: Iterable[Segment]) -> None:
        frames = iter(frames)
        for segment in segments:
            kept = self._times(segment, self._resumed(segment)[0])
            with self._writer(segment.number, segment.first, kept) as writer:
                for frame in islice(frames, segment.frames):
                    self._write(writer, frame)
                self._finish(writer, segment)

    def _restore_live(self) -> None:
        """Plan and restore in one pass."""
        self._forget()
        with closing(self.job.restored()) as frames:
            self._write_live(self.job.watched(frames, "restore", self.total, self.on_event))
        self._keep_plan()

    def _write_live(self, frames: Iterable[Frame]) -> None:
        """Write segments as `_write_planned` does; a segment ends when its last clip is known."""
        timeline, frames = self.job.plan.timeline, iter(frames)
        number = first_clip = first = 0
        for frame in frames:
            clip = first_clip
            with self._writer(number, first) as writer:
                for each in chain([frame], frames):
                    self._write(writer, each)
                    if first + writer.frames == timeline.clips[clip].stop:
                        if ends_segment(timeline, first, clip, self.length):
                            break
                        clip += 1
                clip = min(clip, len(timeline.clips) - 1)
                segment = Segment(number, first_clip, clip + 1, first, first + writer.frames)
                self._finish(writer, segment)
            number, first_clip, first = number + 1, segment.stop_clip, segment.stop

    # Frames that earlier runs restored of segments that they did not finish

    def _journal(self, number: int, first: int) -> FrameJournal:
        """Return the journal of segment `number`, which begins with frame `first`."""
        video = self.job.info.video
        label = digest({"job": self.name, "first": first})
        size = enlarged_size(video.height, video.width, self.job.scale)
        return FrameJournal(self.folder.frames(number), label, video.format, *size)

    def _times(self, segment: Segment, count: int) -> array[int]:
        """Return the times of the first `count` frames of a segment, as the plan has them."""
        return self.job.plan.timeline.pts[segment.first : segment.first + count]

    def _resumed(self, segment: Segment) -> tuple[int, int]:
        """Return how many frames of a segment need not be restored again, and the clip to resume with."""
        if not self.folder.frames(segment.number).exists():
            return 0, segment.first_clip
        clips, clip, frames = self.job.plan.timeline.clips, segment.first_clip, 0
        times = self._times(segment, segment.frames)
        there = self._journal(segment.number, segment.first).count(times)
        while clip < segment.stop_clip and clips[clip].stop - segment.first <= there:
            frames = clips[clip].stop - segment.first
            clip += 1
        return frames, clip

    @contextmanager
    def _writer(self, number: int, first: int, kept: Sequence[int] = ()) -> Iterator[SegmentWriter]:
        """Yield a segment that leaves nothing behind unless it is finished, but the frames of slow work."""
        job = self.job
        safe = self._safe = SafeFrames(self._journal(number, first), self.length, self._since, kept)
        path, writer = self.folder.segment(number), None
        try:
            with interrupts_held():  # Ctrl-C while the file is begun would leave it behind
                writer = SegmentWriter(path, job.output_info, job.plan.encoder, first=first)
            yield writer
        except BaseException:
            if writer is not None:
                writer.abort()
            safe.close()
            raise
        safe.remove()
        self._since = time.monotonic()

    def _write(self, writer: SegmentWriter, frame: Frame) -> None:
        """Write a frame with the duration in the plan: the decoder's last one depends on where it started."""
        frame.duration = self.job.plan.timeline.durations[writer.first + writer.frames]
        writer.write(frame)
        if self._safe is not None:
            self._safe.add(frame)

    def _finish(self, writer: SegmentWriter, segment: Segment) -> None:
        if writer.frames != segment.frames:
            raise PlanError(
                f"{self.job.info.path}, frame {segment.first} and on: {writer.frames} of {segment.frames} "
                "came; has the source changed?"
            )
        self._checked[segment.number] = writer.finish(self._label(segment))

    # The output

    def check_output(self) -> None:
        """Begin the output on trial, and check that there is room for it. Raises MediaError."""
        self._joined().abort()
        job = self.job
        sizes = video_sizes(job.info.video, job.plan.encoder, self.total or 0, job.scale)
        if warning := check_space(self.folder.path, self.folder.output, *sizes, there=self.folder.size()):
            self.on_event(Warned(job.info.path, warning))

    def join(self) -> tuple[str, ...]:
        """Join all segments, check and name the output, and only then remove them; return warnings for
        the user.

        Sets `damage`. Raises MediaError; then the segments stay.
        """
        job, timeline = self.job, self.job.plan.timeline
        if missing := self.missing():
            raise PlanError(f"{self.folder.path}: {len(missing)} segments are missing; restore them first")
        if job.request.source.identity() != job.plan.source:
            raise PlanError(
                f"{job.info.path}: the source has changed since the work began; run again with `restart`"
            )
        joined = self._joined()
        try:
            delay = max(self._checked[segment.number].delay for segment in self.segments)
            joined.begin(timeline.pts, timeline.durations, delay)
            for _ in counted(self._joining(joined), job.info.path, self.total, "join", self.on_event):
                pass
            joined.finish()
        except BaseException:
            joined.abort()
            raise
        self.folder.remove()
        return tuple(joined.warnings)

    def _joining(self, joined: JoinedFile | JoinedPictures) -> Iterator[None]:
        for segment in self.segments:
            path = self.folder.segment(segment.number)
            joined.check_head(path, self._checked[segment.number])
            for packet in read_packets(path):
                joined.put(packet, segment.first)
                yield

    def _joined(self) -> JoinedFile | JoinedPictures:
        job, plan = self.job, self.job.plan

        def note(path: Path) -> None:
            """Mark the output: from here on the job is finished, even if this process is killed."""
            assert self.outcome is not None
            self.damage = damage_summary(self.outcome.damage, joined.damage)
            mark(self.folder, path, job, self.damage)

        joined: JoinedFile | JoinedPictures
        if plan.encoder.container == PICTURES:
            overwrite = job.options.overwrite or bool(self.folder.finished())
            joined = JoinedPictures(
                job.request.output,
                job.info,
                plan.encoder,
                job.options.drop,
                overwrite=overwrite,
                before_naming=note,
            )
            return joined
        muxer = Muxer(
            plan.output,
            job.output_info,
            plan.encoder,
            plan.copy,
            overwrite=job.options.overwrite,
            span=plan.span,
            before_naming=note,
            first=plan.timeline.pts[0] if plan.timeline.pts else None,
            tag=job.tag,
        )
        joined = JoinedFile(muxer)
        return joined

    def announce_plan(self) -> None:
        """Announce the plan."""
        self.job.announce_plan(self.total, self.on_event, reused=self.reused)


def _fact(name: str, step: int) -> str:
    """Return the name of a fact about a step in the record of a job."""
    return f"{name}{step + 1}" if step else name


def _passed(progress: FrameProgress, numbers: Iterator[int], frames: Iterator[Frame]) -> Iterator[Frame]:
    """Yield the same frames and count them."""
    for frame in frames:
        yield frame
        progress.show(next(numbers))


# Room on the disk: the segments and the video joined from them are there at the same time


def video_sizes(video: VideoInfo, encoder: EncoderChoice, frames: int, scale: Scale) -> tuple[int, int]:
    """Return how many bytes the encoded video takes: at least, and likely."""
    height, width = enlarged_size(video.height, video.width, scale)
    if encoder.lossless or encoder.encoder == "ffv1":
        planes = [video.format.plane_size(plane, height, width) for plane in range(video.format.plane_count)]
        raw = sum(rows * columns for rows, columns in planes) * (1 if video.format.depth == 8 else 2)
        return int(frames * raw * LOSSLESS[0]), int(frames * raw * LOSSLESS[1])
    return int(frames * height * width * LOSSY[0] / 8), int(frames * height * width * LOSSY[1] / 8)


def check_space(work: Path, output: Path, least: int, likely: int, there: int = 0) -> str | None:
    """Return a warning if there is less room than segments and video are likely to take. MediaError if there
    certainly is too little.

    `work` is the folder of the segments, which take as much as the video; `there` bytes of them are finished.
    """
    for folder, copies in _places(work, output):
        free = shutil.disk_usage(folder).free
        for size, certain in ((least, True), (likely, False)):
            needed = copies * size - there * (folder == work)
            if free < needed:
                text = (
                    f"{folder}: {_size(free)} free, but {'at least' if certain else 'probably'} "
                    f"{_size(needed)} are needed{_twice(copies)}"
                )
                if certain:
                    raise MediaError(
                        f"{text}; free some, or choose another place with `output` or `work_dir`"
                    )
                return f"{text}; if it fills up, free some and run the same command again, which resumes"
    return None


def _places(work: Path, output: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folders to look at, and how many times the video will be in each."""
    home = output.absolute().parent
    if os.stat(work).st_dev == os.stat(home).st_dev:
        yield work, 2
    else:
        yield work, 1
        yield home, 1


def _twice(copies: int) -> str:
    return ", as joining needs twice the output's size" if copies == 2 else ""


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, 0) / 1e6:.1f} MB"
