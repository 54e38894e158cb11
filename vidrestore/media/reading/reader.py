"""Read the frames of a video in display order: native planes, exact integer times, and the damage found."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from copy import copy
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Literal, Self

from av.video.frame import VideoFrame

from vidrestore.errors import MediaError, OptionError, PlanError
from vidrestore.files.regular import readable
from vidrestore.media.containers.structure import broken_structure
from vidrestore.media.formats.damage import Damage
from vidrestore.media.formats.photo_notes import second_picture
from vidrestore.media.formats.pixel_formats import planes_of
from vidrestore.media.formats.source import Source, misnamed, standard_input
from vidrestore.media.reading.coding_loss import (
    NO_LOSS,
    WITH_QUANTISERS,
    block_steps,
    loss_by_bits,
    loss_by_tables,
    loss_of,
)
from vidrestore.media.reading.decoding import Decoding
from vidrestore.media.reading.deinterlace import AROUND, Deinterlacer, Whole
from vidrestore.media.reading.pictures import USUAL_RATE, PictureDecoding, pictures_info
from vidrestore.media.reading.probe import SourceInfo, probe
from vidrestore.media.reading.scan import Scan, chosen_scan
from vidrestore.media.reading.y4m import Y4mInput
from vidrestore.pixels.frames import WHOLE, Frame, Span, VideoInfo, uncropped
from vidrestore.settings.options import ChromaShift, RestoreOptions, Shift

AnyDecoding = Decoding | PictureDecoding | Y4mInput


class VideoReader:
    """Reads the frames of a path, any number of times, or of "-", a y4m pipe on stdin, once. A context
    manager. Raises MediaError as `probe` does, and if fields can't become frames as asked.
    """

    def __init__(
        self,
        source: str | Source,
        *,
        threads: int = 0,  # of the decoder; 0 for one per core
        scan: str | None = None,  # the option of that name: fields become whole frames
        double_rate: bool = False,  # one frame per field
        dropouts: str = "fill",  # the option of that name
        chroma_shift: ChromaShift = None,  # the option of that name
        # pictures per second of a folder, pattern or glob of pictures
        fps: Fraction | None = None,
        # frames carry the loss of coding; decoding then has one thread
        losses: bool = False,
    ) -> None:
        # the source and what is known before its first frame
        self.source = Source.of(source)
        self.threads, self.losses = threads, losses
        self.damage = Damage()
        self.warnings: tuple[str, ...] = ()  # sentences for the user
        # whether the clock is set back somewhere; then all is read from the start
        self.restarted = False
        self._pipe: Y4mInput | None = None
        if self.source.is_pipe:
            self._pipe = Y4mInput(standard_input())
        if fps is not None and self._pipe:
            raise OptionError(
                f"`fps={fps}` is for pictures; y4m states its rate, remove the option"
            )
        with readable(self.source.name):
            self.info = self._describe(fps)
        # as in the file; `info` describes the frames that are yielded
        self.stored = self.info.video
        self._running: Generator[Frame] | None = None
        self._decoding: AnyDecoding | None = None
        # the scan is measured on the frames, so it comes last
        self.scan: Scan | None = None  # as measured, or as the option has it
        self._deinterlacer: Deinterlacer | None = None
        # how far chroma is moved back; None if that isn't asked for
        self.shift: Shift | None = None
        # why fields are left that are to become frames
        self._problem: MediaError | None = None
        if scan is not None:
            self._deinterlace(scan, fields=double_rate, fill=dropouts == "fill")
        if chroma_shift is not None:
            self.shift = self._chosen_shift(chroma_shift)

    @classmethod
    def of(
        cls, source: str | Source, options: RestoreOptions, *, losses: bool = False
    ) -> Self:
        """Return the reader with the settings of the options."""
        return cls(
            source,
            threads=options.threads,
            scan=options.scan,
            double_rate=options.double_rate,
            dropouts=options.dropouts,
            chroma_shift=options.chroma_shift,
            fps=options.fps,
            losses=losses,
        )

    def refuse_interlaced(self, way_out: str) -> None:
        """Raise MediaError for fields that can't become frames, else PlanError for interlaced video."""
        if self._problem:
            raise self._problem
        if self.info.video.interlaced:
            raise PlanError(
                f"{self.source}: the video is interlaced, and its fields would be blurred into each other; "
                f"{way_out}"
            )

    def _describe(self, fps: Fraction | None) -> SourceInfo:
        if self._pipe:
            return self._pipe.info
        if not (pictures := self.source.pictures):
            return probe(self.source.name, fps)
        info = pictures_info(pictures, fps or USUAL_RATE)
        # what a picture file holds beside the picture
        found = second_picture(pictures.files[0]), misnamed(pictures.files[0])
        self.warnings = (*pictures.warnings, *filter(None, found))
        return info

    def _deinterlace(self, request: str, *, fields: bool, fill: bool) -> None:
        """Find the scan and its filters; `info` describes their output. Raises MediaError if what is asked
        for can't be done.
        """
        # a stored video is read for its scan as it is, without its crop
        video, pictures = self.stored, self.source.pictures
        is_still = self._pipe or (pictures and len(pictures.files) == 1)
        # a crop may take what shows how it was scanned
        self._set_stored(uncropped(video))
        scan = chosen_scan(
            request, self.stored, None if is_still else self.frames, fields=fields
        )
        self._set_stored(video)
        if pictures and not scan.why:
            scan = Scan("whole")  # a picture's marks aren't those of fields
        self.scan = scan
        self.info = replace(
            self.info, video=replace(video, interlaced=False, unmarked_order=None)
        )
        if scan.kind == "whole":
            return
        # fields become frames from here on
        try:
            self._deinterlacer = Deinterlacer(
                self.source.name, video, scan, fields=fields, fill=fill
            )
        except MediaError as error:
            if fields or request != "auto":
                raise
            self._problem = error if scan.why else None
        else:
            self.info = replace(self.info, video=self._deinterlacer.info)

    def _chosen_shift(self, request: Shift | Literal["auto"]) -> Shift:
        """Return the shift by the option `chroma_shift`. Raises MediaError for video without chroma, and
        OptionError if a pipe is to be measured.
        """
        video = self.info.video
        if video.format.family != "yuv":
            raise MediaError(
                f"{self.source}: {video.format.name} has no chroma to move; leave out `chroma_shift`"
            )
        if request != "auto":
            return request
        if self._pipe:
            raise OptionError(
                "-: a pipe can't be read twice, so its chroma can't be measured; give `chroma_shift` as "
                "columns and lines"
            )
        # loads torch
        from vidrestore.media.reading.chroma_shift import measured_shift

        return measured_shift(video, self.frames)

    def _set_stored(self, video: VideoInfo) -> None:
        self.stored = video
        self.info = replace(self.info, video=video)

    def again(self) -> Self:
        """Return another reader of the same file, which reads beside this one."""
        other = copy(self)
        # its own state of reading, the same description
        other.damage, other._running, other._decoding = Damage(), None, None
        other._deinterlacer = copy(self._deinterlacer)
        return other

    @property
    def late_captions(self) -> bool:
        """True once closed captions were read of which the first frames, in `info`, have none."""
        captioned = isinstance(self._decoding, Decoding) and self._decoding.captioned
        return captioned and "A53_CC" not in self.stored.side_data

    @property
    def restarts(self) -> list[tuple[int, int]]:
        """Where the video's clock was set back so far, and by how many ticks what follows was moved."""
        return (
            self._decoding.clock.restarts
            if isinstance(self._decoding, Decoding)
            else []
        )

    @property
    def mended(self) -> list[int]:
        """The times made up so far for frames whose own did not rise, in ticks of the source."""
        return (
            self._decoding.clock.mended if isinstance(self._decoding, Decoding) else []
        )

    @property
    def change_of_form(self) -> str | None:
        """A sentence on pictures so far of another size or format than the first; None without."""
        return (
            self._decoding.change_of_form
            if isinstance(self._decoding, Decoding)
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the current iteration, if any, and close its file."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def frames(
        self, start_pts: int | None = None, stop_pts: int | None = None
    ) -> Generator[Frame]:
        """Yield frames in display order, equal to those of a full read, with start <= pts < stop if given.

        Only one iteration at a time: a new one ends the last. `damage` is reset, and complete when the
        iterator is exhausted. Pictures of another size or pixel format than the first are made like it.
        Raises MediaError if times are missing or don't increase, or if pictures of a folder differ.
        """
        self.close()
        self.damage = Damage()
        if self._pipe and start_pts is not None:
            raise MediaError(
                "-: a pipe can't be read from the middle; save it to a file first"
            )
        self._running = self._read(start_pts, stop_pts)
        return self._running

    def _read(self, start_pts: int | None, stop_pts: int | None) -> Generator[Frame]:
        """Yield the frames, each up to the next: packets have durations in decoding order."""
        # a frame waits for the next one, which ends its duration
        with readable(self.source.name):
            self._decoding = decoding = self._new_decoding(start_pts)
        last_frame: Frame | None = None
        longest = 0
        loss = loss_by_bits(self.info) if self.losses else NO_LOSS
        pictures = self._pictures(decoding, start_pts, stop_pts)
        with readable(self.source.name), closing(pictures):
            for picture, rows in pictures:
                if start_pts is not None and (picture.pts or 0) < start_pts:
                    continue  # only needed by the deinterlacer
                # planes, and what was measured about them
                try:
                    frame = _frame(picture)
                except MediaError as error:
                    raise MediaError(f"{self.source}: {error}") from None
                frame.real_rows = rows
                if self._deinterlacer:
                    frame.dropouts = self._deinterlacer.dropouts(frame.pts)
                    if second := self._deinterlacer.second:
                        frame.second = _frame(second).planes
                if self.losses:
                    jpeg = decoding.jpeg
                    loss = (
                        loss_by_tables(jpeg)
                        if jpeg
                        else loss_of(picture, self.stored) or loss
                    )
                    frame.loss = loss
                    if jpeg and not (
                        self._deinterlacer
                        or self.shift
                        or frame.interlaced
                        or decoding.is_altered
                    ):
                        frame.steps = block_steps(jpeg, self.info.video.format)
                del picture  # return its buffers to the decoder
                # the frame before is whole now
                if last_frame is not None:
                    last_frame.duration = frame.pts - last_frame.pts
                    longest = max(longest, last_frame.duration)
                    yield last_frame
                if stop_pts is not None and frame.pts >= stop_pts:
                    return
                if frame.corrupt:
                    self.damage.corrupt_pts.append(frame.pts)
                last_frame = frame
            self.damage.walk()
        # the last frame ends with the stream
        if last_frame is not None:
            self._end(last_frame, longest, decoding)
            yield last_frame

    def _new_decoding(self, start_pts: int | None) -> AnyDecoding:
        if self._pipe:
            self._pipe.damage = self.damage
            return self._pipe
        if self.source.pictures:
            return PictureDecoding(
                self.source.pictures, self.info, self.damage, losses=self.losses
            )
        if start_pts is None:
            self.damage.structure = broken_structure(self.source.name)
        # other threads may still write the quantisers
        threads = (
            1 if self.losses and self.stored.codec in WITH_QUANTISERS else self.threads
        )
        self.restarted = self.restarted or bool(self.restarts or self.mended)
        name = self.source.name
        settings = {"losses": self.losses, "restarted": self.restarted}
        return Decoding(name, self.stored, threads, self.damage, **settings)

    def _pictures(
        self, decoding: AnyDecoding, start_pts: int | None, stop_pts: int | None
    ) -> Generator[Whole]:
        if self._deinterlacer:
            start, stop = self._deinterlacer.stored_span(start_pts, stop_pts)
            pictures = self._unshifted(decoding.pictures(start, stop, around=AROUND))
            yield from self._deinterlacer.pictures(pictures)
            return
        pictures = self._unshifted(decoding.pictures(start_pts, stop_pts))
        with closing(pictures):
            for picture in pictures:
                yield picture, None
                del picture  # return its buffers to the decoder

    def _unshifted(self, pictures: Generator[VideoFrame]) -> Generator[VideoFrame]:
        """Return the pictures, with their chroma moved back if it lies beside luma."""
        if not self.shift or not any(self.shift):
            return pictures
        # loads torch
        from vidrestore.media.reading.chroma_shift import without_shift

        return without_shift(
            pictures,
            self.shift,
            self.stored.format,
            self._deinterlacer.is_interlaced if self._deinterlacer else None,
        )

    def _end(self, last: Frame, longest: int, decoding: AnyDecoding) -> None:
        """Set the last frame's duration, and note damage if the video ends before its stated end.

        Packets have durations in decoding order: the last one decoded may not be the last one shown.
        """
        # the stated end, unless a gap before it is damage
        end = self.info.video.end
        if end is None:
            return
        # in one of the source
        ticks = self._deinterlacer.ticks if self._deinterlacer else 1
        filled = end <= decoding.reach * ticks and not self.damage.missing_frames
        if end > last.pts and (
            last.duration == 0 or end - last.pts <= longest or filled
        ):
            last.duration = end - last.pts
        missing = end - (last.pts + last.duration)
        # a time that was out of step may be what the promised end was taken from
        if (
            missing > max(longest, last.duration, decoding.longest * ticks)
            and not self.mended
        ):
            self.damage.early_end = missing * Fraction(self.info.video.time_base)


def _frame(picture: VideoFrame) -> Frame:
    assert picture.pts is not None
    planes = planes_of(picture)
    return Frame(
        planes,
        picture.pts,
        picture.duration,
        picture.interlaced_frame,
        picture.is_corrupt,
    )


# The frames that a start and a duration mean


def find_span(
    reader: VideoReader, start: Fraction | None, duration: Fraction | None
) -> Span:
    """Return the span of the frames that begin in [start, start + duration) seconds after the video's first
    one; its `start` is the pts of a frame.

    No start, or one of 0, leaves the beginning as it is, sound from before the first frame included. Raises
    OptionError if no frame begins there.
    """
    if not start and duration is None:
        return WHOLE
    # in ticks of the stream
    tick, origin = reader.info.video.time_base, _first_pts(reader)
    stop = None if duration is None else ceil(origin + ((start or 0) + duration) / tick)
    if not start:
        return Span(None, stop)
    with closing(reader.frames(ceil(origin + start / tick))) as frames:
        first = next(frames, None)
    # say what there is instead
    if first is None:
        length = (
            f" (it lasts {float(reader.info.duration):.3f} s)"
            if reader.info.duration
            else ""
        )
        raise OptionError(
            f"{reader.source}: no frame begins at {float(start):g} s or later{length}; choose an earlier "
            "`start`"
        )
    if stop is not None and first.pts >= stop:
        time = float((first.pts - origin) * tick)
        raise OptionError(
            f"{reader.source}: no frame begins in the chosen part, the next one at {time:.3f} s; choose a "
            "longer `duration`"
        )
    return Span(first.pts, stop)


def _first_pts(reader: VideoReader) -> int:
    """Return the pts of the first frame itself: the start that Matroska states for a stream is always 0."""
    if reader.source.is_pipe:
        return 0
    with closing(reader.frames()) as frames:
        first = next(frames, None)
    return first.pts if first else 0


def expected_frames(info: SourceInfo, span: Span) -> int | None:
    """Return how many frames to expect, for progress: the file's own count, else duration times rate."""
    # a count, where the container has one, else an estimate for progress
    video = info.video
    count = video.frames or (
        round(info.duration * video.rate) if info.duration and video.rate else None
    )
    if span == WHOLE or not video.rate:
        return count
    origin = video.start or 0
    last = (
        origin + round(info.duration / video.time_base) if info.duration else span.stop
    )
    if last is None:
        return None
    stop = last if span.stop is None else min(span.stop, last)
    return ceil(
        (stop - (origin if span.start is None else span.start))
        * video.time_base
        * video.rate
    )
