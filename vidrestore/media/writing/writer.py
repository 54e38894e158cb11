"""Check before work what an output can hold, and write it atomically: encoded frames with their exact times,
and every other stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import Any, Self

from av.packet import Packet

from vidrestore.errors import MediaError, PlanError
from vidrestore.files.atomic import remove_partials
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.encoding import check_frame, write_errors
from vidrestore.media.formats.side_data import lost_side_data
from vidrestore.media.formats.source import Source, Target, standard_output
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.encoders import choose_encoder
from vidrestore.media.writing.hdr import unwritten
from vidrestore.media.writing.muxer import Muxer
from vidrestore.media.writing.picture_writer import (
    PictureFiles,
    losses,
    side_data_left_out,
)
from vidrestore.media.writing.streams import (
    check_packets,
    check_streams,
    left_out_warning,
    other_kinds,
    pipe_warning,
)
from vidrestore.media.writing.y4m_output import Y4mOutput
from vidrestore.pixels.frames import WHOLE, Frame, Scale, Span
from vidrestore.settings.options import EncoderOptions, RestoreOptions
from vidrestore.working import available_cores


@dataclass(frozen=True)
class Content:
    """The content of an output."""

    encoder: EncoderChoice
    copy: tuple[int, ...]  # indices of the streams to copy
    warnings: tuple[str, ...]  # sentences for the user


def check_content(
    reader: VideoReader,
    output: Target,
    options: RestoreOptions,
    span: Span,
    scale: Scale,
) -> Content:
    """Choose the encoder and the streams to copy, each after a trial, and warn of what the output will lack,
    or show otherwise than the source. Raises MediaError, OptionError, and PlanError for losses if `strict`.
    """
    # the encoder first, then streams, each with its own reasons to refuse
    info, drop, strict = reader.info, options.drop, options.strict
    cores = options.threads or available_cores()
    encoder = choose_encoder(info, output, options.encoder, scale=scale, cores=cores)
    copy = check_streams(info, output, drop, strict=strict)
    warnings = [
        *reader.warnings,
        lost_warning(info, encoder, drop, strict=strict),
        left_out_warning(info, output, copy, drop),
        losses(info, output, encoder, other_kinds(info, drop)),
        *check_packets(info, output, copy, span),
    ]
    return Content(encoder, copy, tuple(filter(None, warnings)))


def lost_warning(
    info: SourceInfo,
    encoder: EncoderChoice,
    drop: Set[str] = frozenset(),
    *,
    strict: bool,
) -> str | None:
    """Return a warning about side data that encoding again leaves out, but for what is to be dropped. If
    `strict`, raise PlanError instead, also for tags that the encoder can't write, of which the writer warns.
    """
    kinds = side_data_left_out(info, encoder, drop)
    tags = unwritten(encoder, info.video)
    return refused_if(strict, info.path, lost_side_data(kinds), tags)


def refused_if(
    strict: bool, path: str, lost: str | None, more: str | None = None
) -> str | None:
    """Return a sentence on what is lost; if `strict`, raise PlanError with it and `more`."""
    if strict and (sentence := "; ".join(part for part in (lost, more) if part)):
        raise PlanError(
            f"{path}: {sentence}; leave `strict` out to restore it all the same"
        )
    return lost


class VideoWriter:
    """A context manager that writes restored frames: a clean exit verifies and names the file, an error
    removes it. Frames have the source's size, and pts in its ticks. Raises MediaError and OutputExistsError,
    before work if possible.
    """

    def __init__(
        self,
        output: str | Target,  # "-" for y4m on standard output
        *,
        source: SourceInfo,
        encoder: EncoderChoice | EncoderOptions,
        # indices of the source's streams to copy (see `check_streams`)
        copy: tuple[int, ...] = (),
        frames: int | None = None,  # the expected number
        overwrite: bool = False,
        rate: Fraction | None = None,  # for pipes only
        # the part of the source that the frames come from, to which streams are cut
        span: Span = WHOLE,
        drop: Set[str] = frozenset({"exif"}),  # notes that pictures don't store
        tag: str | None = None,  # metadata on how the file was restored
    ) -> None:
        output = self.output = Target.of(output)
        self.source, self.expected = source, frames
        self.frames = 0
        self._sink: Muxer | PictureFiles | Y4mOutput
        output.check(Source(source.path), overwrite=overwrite)
        if isinstance(encoder, EncoderOptions):
            encoder = choose_encoder(source, output, encoder, cores=available_cores())
        if output.is_pipe:
            self._sink = Y4mOutput(standard_output(), source, rate=rate)
        elif output.holds_pictures:
            self._sink = PictureFiles(
                output, source, encoder, drop, overwrite=overwrite, tag=tag
            )
        else:
            remove_partials(output.path)
            settings: dict[str, Any] = {"span": span, "tag": tag}
            self._sink = Muxer(
                output.name, source, encoder, copy, overwrite=overwrite, **settings
            )
        self.warnings = self._sink.warnings  # sentences for the user
        if output.is_pipe and (warning := pipe_warning(source)):
            self.warnings.append(warning)

    @property
    def damage(self) -> str | None:
        """The damage of the copied streams, in words, at the end; None without."""
        return self._sink.damage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._sink.abort()
            return
        try:
            if self.frames == 0:
                raise MediaError(
                    f"{self.output}: no frame was written, so there is no output"
                )
            if self.expected not in (None, self.frames):
                raise MediaError(
                    f"{self.output}: {self.frames} frames were written, but {self.expected} were expected; "
                    "the file was discarded"
                )
            if not isinstance(self._sink, Y4mOutput):
                self._put(self._sink.encoder.flush())
            self._sink.finish()
        except BaseException:
            self._sink.abort()
            raise

    def write(self, frame: Frame) -> None:
        """Write the next frame, in the order of pts. Raises MediaError if its size or time doesn't fit."""
        check_frame(frame, self.source.video, f"{self.output}, frame {self.frames}")
        if isinstance(self._sink, Y4mOutput):
            self._sink.write(frame)
        else:
            times = self._sink.register(frame.pts, frame.duration)
            self._put(self._sink.encoder.encode(frame, *times))
        self.frames += 1

    def _put(self, packets: Iterator[Packet[Any]]) -> None:
        assert not isinstance(self._sink, Y4mOutput)
        with write_errors(self.output.name):
            for packet in packets:
                self._sink.put(packet)
