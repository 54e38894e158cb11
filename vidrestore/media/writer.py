"""Writes the restored video: encoded frames with their exact times, every other stream beside them, whole or not at all."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from vidrestore.errors import MediaError
from vidrestore.frames import Frame
from vidrestore.media import streams
from vidrestore.media.atomic import check_output, partial_path, put_in_place, write_problem
from vidrestore.media.encoders import PIPE, SUFFIXES
from vidrestore.media.encoding import add_encoder, frame_ticks, picture
from vidrestore.media.y4m_output import Y4mPipe

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.packet import Packet

    from vidrestore.media.encoders import EncoderChoice
    from vidrestore.media.probe import SourceInfo

_LARGEST_TIMESCALE = 2**31 - 1


class _Sink(Protocol):
    def write(self, frame: Frame) -> None: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...


class VideoWriter:
    """A context manager that writes restored frames: on a clean exit the file is verified and gets its name, on an error nothing is left.

    `output` is a path, or "-" for y4m on standard output. `copy` are the source's streams to copy (see `check_streams`); `frames`, where
    known, is how many frames must arrive. Frames are `scale` times the source's size and count `time_base` (the source's, if not given) in
    their pts. `rate` is for pipes only. `warnings` are sentences for the user. Raises MediaError and OutputExistsError, before work where
    it can be known.
    """

    def __init__(
        self,
        output: str,
        *,
        source: SourceInfo,
        encoder: EncoderChoice,
        copy: tuple[int, ...],
        frames: int | None = None,
        overwrite: bool = False,
        scale: int = 1,
        time_base: Fraction | None = None,
        rate: Fraction | None = None,
    ) -> None:
        self.output, self.source, self.scale, self.expected = output, source, scale, frames
        self.frames = 0
        self.warnings: list[str] = []
        self._sink: _Sink
        if output == PIPE:
            warning = streams.pipe_warning(source)
            self.warnings += [warning] if warning else []
            self._sink = Y4mPipe(sys.stdout.buffer, source, rate=rate, scale=scale, time_base=time_base)
        else:
            check_output(output, source.path, overwrite=overwrite)
            self._sink = _File(self, encoder, copy, overwrite, time_base or source.video.time_base)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._sink.abort()
            return
        try:
            self._check_count()
            self._sink.finish()
        except BaseException:
            self._sink.abort()
            raise

    def write(self, frame: Frame) -> None:
        """Write the next frame; frames come in the order of their pts. Raises MediaError where its size or time doesn't fit."""
        self._check_frame(frame)
        self._sink.write(frame)
        self.frames += 1

    def _check_frame(self, frame: Frame) -> None:
        video = self.source.video
        height, width = video.height * self.scale, video.width * self.scale
        expected = [video.format.plane_size(plane, height, width) for plane in range(video.format.plane_count)]
        found = [plane.shape for plane in frame.planes]
        size = 1 if video.format.depth == 8 else 4 if video.format.depth == 32 else 2
        if found != expected:
            raise MediaError(f"{self.output}, frame {self.frames}: planes of {found} (height, width), but {expected} were expected")
        if any(plane.dtype.itemsize != size for plane in frame.planes):
            kind = frame.planes[0].dtype
            raise MediaError(f"{self.output}, frame {self.frames}: samples of {kind}, but the video has {video.format.depth} bits")

    def _check_count(self) -> None:
        if self.frames == 0:
            raise MediaError(f"{self.output}: no frame was written, so there is no video to keep")
        if self.expected is not None and self.frames != self.expected:
            raise MediaError(f"{self.output}: {self.frames} frames were written, but {self.expected} were expected; the file was discarded")


@dataclass
class _Times:
    """What the file must say about its frames, in ticks of the output stream: compared after it was closed and opened again."""

    count: int = 0
    total: int = 0  # the sum of all pts: any one that differs shows
    first: int = 0
    last: int = 0
    end: int = 0

    def add(self, pts: int, duration: int) -> None:
        self.first = pts if self.count == 0 else self.first
        self.count, self.total, self.last, self.end = self.count + 1, self.total + pts, pts, pts + duration


class _File:
    """A container being written under its partial name."""

    def __init__(self, writer: VideoWriter, choice: EncoderChoice, copy: tuple[int, ...], overwrite: bool, time_base: Fraction) -> None:
        self.writer, self.choice, self.copy, self.overwrite, self.time_base = writer, choice, copy, overwrite, time_base
        self.video = writer.source.video
        self.partial = partial_path(writer.output)
        self.copier = None if writer.source.path == PIPE else streams.StreamCopier(writer.source.path)
        self.times = _Times()
        self.usual = frame_ticks(self.video, time_base)
        self.container: OutputContainer | None = None
        try:
            self._open()
        except BaseException as error:
            self.abort()
            raise self._explained(error) from error

    def _open(self) -> None:
        import av
        from av.container import Flags

        metadata = streams.container_metadata(self.copier.opened) if self.copier else {}
        options = self._muxer_options(metadata)
        self.container = av.open(f"file:{self.partial}", "w", format=self.choice.container, container_options=options)
        bitexact: Any = Flags.bitexact.value  # no date of writing, no random identifiers: the same job gives the same file
        self.container.flags |= bitexact
        self.container.metadata.update(metadata)
        self._add_streams(self.container)
        self.container.start_encoding()
        assert self.stream.time_base is not None
        self.tick = Fraction(self.stream.time_base)

    def _muxer_options(self, metadata: dict[str, str]) -> dict[str, str]:
        if self.choice.container not in streams.ISO:
            # Times below 0 stay as they are, and no stream becomes the default one that was not.
            return {"avoid_negative_ts": "disabled", "default_mode": "passthrough"}
        flags = "+faststart"
        foreign = streams.foreign_keys(metadata)
        if foreign and not self._has_cover():
            flags += "+use_metadata_tags"
        elif foreign:
            lost = ", ".join(sorted(foreign))
            place = f"{SUFFIXES[self.choice.container]} has no place beside cover art for the metadata {lost}"
            self.writer.warnings.append(f"{self.writer.output}: {place}; -o NAME.mkv keeps them")
        timescale = self.time_base.denominator
        return {"movflags": flags, "video_track_timescale": str(timescale), "movie_timescale": str(self._movie_timescale(timescale))}

    def _has_cover(self) -> bool:
        return any(info.attached_picture and info.index in self.copy for info in self.writer.source.streams)

    def _movie_timescale(self, timescale: int) -> int:
        """The clock in which MP4 keeps the start of each stream: fine enough for all of them, or at least for the video."""
        assert self.copier is not None or not self.copy
        bases = [Fraction(self.copier.opened.streams[index].time_base or 1) for index in self.copy] if self.copier else []
        common = math.lcm(timescale, *(base.denominator for base in bases))
        return common if common <= _LARGEST_TIMESCALE else timescale

    def _add_streams(self, container: OutputContainer) -> None:
        for index in sorted({*self.copy, self.video.index}):
            if index != self.video.index:
                assert self.copier is not None
                self.copier.add(container, index)
                continue
            self.stream = add_encoder(container, self.choice, self.video, self.time_base, self.writer.scale)
            if self.copier:
                original = self.copier.opened.streams[index]
                self.stream.metadata.update(streams.video_metadata(original))
                self.stream.disposition = original.disposition
        if self.copier:
            container.set_chapters(self.copier.opened.chapters())
            self.copier.start()

    def write(self, frame: Frame) -> None:
        duration = frame.duration or self.usual
        self._register(frame.pts, duration)
        made = picture(frame, self.choice.pix_fmt, self.time_base, self.video.colour)
        made.duration = duration
        try:
            for packet in self.stream.encode(made):
                self._mux(packet)
        except Exception as error:
            raise self._explained(error) from error

    def _register(self, pts: int, duration: int) -> None:
        ticks, end = self._ticks(pts), self._ticks(pts + duration)
        if self.times.count and ticks <= self.times.last:
            raise MediaError(
                f"{self.writer.output}, frame {self.times.count}: its time {pts} x {self.time_base} s is the tick of the frame before it; "
                f"{SUFFIXES[self.choice.container]} counts {self.tick} s, use -o NAME.mp4, which keeps the source's own ticks"
            )
        self.times.add(ticks, end - ticks)

    def _ticks(self, pts: int) -> int:
        """The nearest tick of the output, halves away from 0, as FFmpeg rounds."""
        exact = pts * self.time_base / self.tick
        nearest = (2 * abs(exact.numerator) + exact.denominator) // (2 * exact.denominator)
        return nearest if exact >= 0 else -nearest

    def _mux(self, packet: Packet[Any]) -> None:
        assert self.container is not None
        ticks = packet.dts if packet.dts is not None else packet.pts
        for copied in self.copier.up_to((ticks or 0) * Fraction(packet.time_base)) if self.copier else ():
            self.container.mux_one(copied)
        self.container.mux_one(packet)

    def finish(self) -> None:
        """Flush, close, verify, and only then give the file its name."""
        assert self.container is not None
        try:
            for packet in self.stream.encode(None):
                self._mux(packet)
            for copied in self.copier.up_to(None) if self.copier else ():
                self.container.mux_one(copied)
            self.container.close()
            self.container = None
            self._close_source()
            self._verify()
            put_in_place(self.partial, Path(self.writer.output), overwrite=self.overwrite)
        except Exception as error:
            raise self._explained(error) from error

    def _verify(self) -> None:
        """Read the closed file again, undecoded, and compare it with what was written."""
        import av

        found = _Times()
        with av.open(f"file:{self.partial}", "r", format=self.choice.container) as container:
            stream = next(each for each in container.streams.video if not each.disposition & 1024)
            stamps = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
        for stamp in stamps:
            found.add(stamp, 0)
        wanted = self.times
        if (found.count, found.first, found.last, found.total) != (wanted.count, wanted.first, wanted.last, wanted.total):
            raise MediaError(
                f"{self.writer.output}: written {wanted.count} frames from {wanted.first} to {wanted.last} ticks, but the file reads as "
                f"{found.count} frames from {found.first} to {found.last}; it was discarded"
            )

    def _close_source(self) -> None:
        if self.copier is None:
            return
        self.copier.close()
        if self.copier.damage:
            self.writer.warnings.append(self.copier.damage)

    def abort(self) -> None:
        """Close everything and leave nothing behind."""
        if self.copier:
            self.copier.close()
        if self.container is not None:
            with suppress(Exception):
                self.container.close()
            self.container = None
        self.partial.unlink(missing_ok=True)

    def _explained(self, error: BaseException) -> BaseException:
        import av

        if isinstance(error, MediaError) or not isinstance(error, (OSError, ValueError)):
            return error
        if isinstance(error, OSError) and not isinstance(error, av.error.FFmpegError):
            return write_problem(self.writer.output, error)
        return write_problem(self.writer.output, error) if isinstance(error, OSError) else MediaError(f"{self.writer.output}: {error}")
