"""Write a container file of encoded packets and copied streams: in a partial file, verified, then named."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av import logging as ffmpeg
from av.container import Flags, OutputContainer
from av.packet import Packet

from vidrestore.errors import MediaError
from vidrestore.files.atomic import Partial
from vidrestore.media.containers.matroska import write_aspect
from vidrestore.media.formats.cut import Cut, later_code
from vidrestore.media.formats.encoder_table import ISO, EncoderChoice
from vidrestore.media.formats.encoding import (
    Encoder,
    add_encoder,
    frame_ticks,
    full_duration,
    write_errors,
)
from vidrestore.media.formats.log import log_level
from vidrestore.media.formats.source import SUFFIXES
from vidrestore.media.reading.probe import ALPHA_KEY, SourceInfo, is_attached
from vidrestore.media.writing.finished import Tag, store_checksum, tag_metadata
from vidrestore.media.writing.hdr import unwritten
from vidrestore.media.writing.stream_copier import StreamCopier, stream_metadata
from vidrestore.pixels.frames import WHOLE, Span, VideoInfo

_LARGEST_TIMESCALE = 2**31 - 1
# metadata that a muxer writes itself
_OWN_KEYS = frozenset(
    {
        "major_brand",
        "minor_version",
        "compatible_brands",
        "encoder",
        "encoding_tool",
        "vidrestore",
        "xmp",
    }
)
# Keys with a fixed place in MP4; others need the newer list of keys, which excludes cover art.
_MP4_KEYS = frozenset({
    "title", "artist", "album_artist", "composer", "album", "date", "comment", "genre", "copyright",
    "grouping", "lyrics", "track", "synopsis", "show", "episode_id", "network", "keywords", "description",
    "disc", "compilation", "hd_video", "gapless_playback", "media_type", "season_number", "episode_sort",
    "creation_time", "timecode", "location",
})  # fmt: skip
MILLISECOND = Fraction(1, 1000)  # the tick of Matroska and WebM
# kinds of streams -> words of `drop`
_DROP = {"audio": "audio", "video": "video", "subtitle": "subtitles"}


@dataclass
class Times:
    """Frame times of a stream, or those of its packets in any order, in ticks of its own time base."""

    count: int = 0
    total: int = 0  # the sum of all pts, which detects any difference
    first: int = 0
    last: int = 0
    end: int = 0
    size: int = 0  # bytes of the packets

    def add(self, pts: int, duration: int) -> None:
        # packets come in decoding order, so neither end is known before the last
        self.first = min(pts, self.first) if self.count else pts
        self.last = max(pts, self.last) if self.count else pts
        self.count, self.total, self.end = (
            self.count + 1,
            self.total + pts,
            pts + duration,
        )

    def add_packet(self, packet: Packet[Any]) -> None:
        time = packet.pts if packet.pts is not None else packet.dts
        if packet.size and time is not None:
            self.size += packet.size
            self.add(time, packet.duration or 0)

    def holds(self, written: Times, tick: Fraction) -> bool:
        """Return True if these are the packets that were written, or the same bytes in other packets.
        Containers round times by up to two ticks, or a millisecond.
        """
        late = abs(self.total - written.total) * tick
        as_written = self.count == written.count and late <= written.count * max(
            2 * tick, MILLISECOND
        )
        return as_written or self.size == written.size


class WrittenStreams:
    """The packets written to each stream of a file, to verify it once it is closed."""

    def __init__(
        self, output: str, video: VideoInfo, container: OutputContainer, index: int
    ) -> None:
        # the index is that of the video's stream
        self.output, self.video, self.index = output, video, index
        self.kinds = [
            "cover" if is_attached(stream) else stream.type
            for stream in container.streams
        ]
        self.ticks = [Fraction(stream.time_base or 1) for stream in container.streams]
        self.tick = self.ticks[index]
        self.frames = Times()  # those of the video
        self.copied: dict[int, Times] = {}  # times of the other streams, by their index

    def verify(self, path: Path, container: str) -> None:
        """Read the closed file again without decoding, and compare its times with those written."""
        try:
            streams_read = read_times(path, container)
        except MediaError as error:
            raise MediaError(
                f"{self.output}: {error}; it was discarded; leave out streams by `drop`"
            ) from error
        # no stream may be lost, none may appear
        for index, times in self.copied.items():
            self._verify_copy(index, times, streams_read)
        for kind, word in _DROP.items():
            count, written = len(streams_read.get(kind, ())), self.kinds.count(kind)
            if count > written:
                raise MediaError(
                    f"{self.output}: the file reads as {count} streams of {kind}, but {written} were "
                    f"written; it was discarded; use `drop={word}`"
                )

        # the frames must be those that were written, at their times
        times = self.frames
        file_times = streams_read["video"][self.kinds[: self.index].count("video")]
        if replace(file_times, end=0, size=0) != replace(times, end=0, size=0):
            raise MediaError(
                f"{self.output}: written {times.count} frames from {times.first} to {times.last} ticks, "
                f"but the file reads as {file_times.count} frames from {file_times.first} to "
                f"{file_times.last}; it was discarded"
            )

        # a part of a frame: MP4 stores durations in decoding order, by which the last one may lack some ticks
        part = int(frame_ticks(self.video) * self.video.time_base / self.tick / 4)
        if file_times.end < times.end - max(1, part):
            raise MediaError(
                f"{self.output}: written up to tick {times.end}, but the file ends at {file_times.end}; it "
                "was discarded"
            )

    def _verify_copy(
        self, index: int, times: Times, streams_read: dict[str, list[Times]]
    ) -> None:
        """Compare copied sound or further video with what was written."""
        kind = self.kinds[index]
        if kind not in ("audio", "video"):  # muxers add packets to subtitles
            return
        place = self.kinds[:index].count(kind)
        file_times = next(iter(streams_read.get(kind, [])[place:]), Times())
        if not file_times.holds(times, self.ticks[index]):
            raise MediaError(
                f"{self.output}: {times.count} packets of {kind} were copied to stream {index}, but the "
                f"file reads as {file_times.count}, or at other times; it was discarded; use `drop={kind}`"
            )


class Muxer:
    """A file of packets: `register` each frame in display order, `put` each packet in decoding order, then
    `finish` or `abort`. Raises MediaError.
    """

    def __init__(
        self,
        output: str,
        source: SourceInfo,
        choice: EncoderChoice,
        copy: tuple[int, ...],  # indices of the source's streams
        *,
        overwrite: bool = False,
        span: Span = WHOLE,  # the part of the source that is written
        # pts of the first frame: chapters move with a video that begins before 0
        first: int | None = None,
        tag: str | None = None,  # metadata on how the file was restored
    ) -> None:
        self.output, self.overwrite, self.tag = output, overwrite, tag
        self.source, self.choice, self.copy = source, choice, copy
        self.video, self.time_base = source.video, source.video.time_base
        warning = unwritten(choice, source.video)
        self.warnings = [f"{output}: {warning}"] if warning else []
        self.cut = Cut(span, self.time_base) if span != WHOLE else None
        self.copier = None if source.is_alone else StreamCopier(source.path, self.cut)
        self.container: OutputContainer | None = None
        self.last_packet: Packet[Any] | None = None  # written when the next one comes
        self.first_dts = 0

        # ticks added to all times if only a part is written, or if a source begins before 0
        self.shift = (
            -round(self.cut.start / self.time_base)
            if self.cut and self.cut.start
            else 0
        )
        if first is not None and first + self.shift < 0:
            self._shift_to_zero(first)

        # begin the file, which has a name of its own until it is verified
        with write_errors(output):
            self.partial = Partial(Path(output))
            try:
                self._open(self.partial.url)
            except BaseException:
                self.abort()
                raise

    @property
    def damage(self) -> str | None:
        """The damage of the copied streams, in words; None without."""
        return self.copier.damage if self.copier else None

    def _open(self, url: str) -> None:
        """Open the output with its streams, metadata and tag, and write its header."""
        # metadata of the source, without what muxers write themselves
        tags = self.copier.opened.metadata if self.copier else {}
        metadata = {
            key: value for key, value in tags.items() if key.lower() not in _OWN_KEYS
        }
        metadata = self._valid_metadata(metadata)
        options = self._muxer_options(metadata)
        self.container = av.open(
            url, "w", format=self.choice.container, container_options=options
        )
        # without dates and random identifiers, so that the same job gives the same file
        bitexact: Any = Flags.bitexact.value
        self.container.flags |= bitexact
        self.container.metadata.update(metadata)
        # streams in the source's order, the encoded one in its place
        self._add_streams(self.container)
        if self.tag:
            by_keys = "use_metadata_tags" in options.get("movflags", "")
            self.container.metadata.update(
                tag_metadata(self.tag, self.choice.container, by_keys=by_keys)
            )
        self.container.start_encoding()
        # PyAV writes the header from an encoder, which the caller may use
        self.encoder = Encoder(self.stream.codec_context, self.choice, self.video)
        self.written = WrittenStreams(
            self.output, self.video, self.container, self.stream.index
        )

    def _muxer_options(self, metadata: dict[str, str]) -> dict[str, str]:
        """Return the container's options for FFmpeg, by which its metadata and exact times fit."""
        if self.choice.container not in ISO:
            return {"avoid_negative_ts": "disabled"}  # keep sound that begins before 0
        # MP4's own keys, or the newer list that takes any
        foreign = {key for key in metadata if key.lower() not in _MP4_KEYS}
        flags = "+faststart"
        has_cover = any(
            info.attached_picture and info.index in self.copy
            for info in self.source.streams
        )
        if foreign and not has_cover:
            flags += "+use_metadata_tags"
        elif foreign:
            self.warnings.append(
                f"{self.output}: {SUFFIXES[self.choice.container]} can't hold cover art and the metadata "
                f"{', '.join(sorted(foreign))}; `output=NAME.mkv` keeps both"
            )
        timescale = self.time_base.denominator
        copied = (
            [self.copier.opened.streams[index] for index in self.copy]
            if self.copier
            else []
        )
        # the start of a stream is stored in ticks that are exact for all streams, else for the video
        others = (Fraction(stream.time_base or 1).denominator for stream in copied)
        denominator = math.lcm(timescale, *others)
        return {
            "movflags": flags,
            "video_track_timescale": str(timescale),
            "movie_timescale": str(
                denominator if denominator <= _LARGEST_TIMESCALE else timescale
            ),
        }

    def _add_streams(self, container: OutputContainer) -> None:
        """Add the encoded stream and the copied ones, in the source's order, and the chapters."""
        # streams keep their order
        for index in sorted({*self.copy, self.video.index}):
            if index != self.video.index:
                assert self.copier is not None
                self.copier.add(container, index)
                continue
            self.stream = add_encoder(container, self.choice, self.video)
            # as it was described and marked in the source
            if self.copier:
                original = self.copier.opened.streams[index]
                metadata = stream_metadata(
                    original, self.choice.container, has_all_packets=False
                )
                # transparency beside the frames is not encoded
                self.stream.metadata.update(
                    (key, text)
                    for key, text in self._valid_metadata(metadata).items()
                    if key.lower() != ALPHA_KEY
                )
                self.stream.disposition = original.disposition
        if self.copier:
            chapters = self.copier.opened.chapters()
            late = (
                Fraction(0)
                if self.cut and self.cut.start
                else self.shift * self.time_base
            )
            chapters = self.cut.chapters(chapters) if self.cut else chapters
            container.set_chapters(_moved(chapters, late))
            self.copier.start()

    def _valid_metadata(self, metadata: dict[str, str]) -> dict[str, str]:
        """Return the metadata without texts that look like our tag, and with the time code of the first frame
        that is written.
        """
        # a title of a user may look like our own tag
        if titles := [key for key, text in metadata.items() if Tag.parse(text)]:
            self._warn_once(
                f"{', '.join(titles)}: left out, as the text looks like vidrestore's own tag"
            )
            metadata = {
                key: text for key, text in metadata.items() if key not in titles
            }
        # the time code is that of the first frame which is written
        codes = [key for key in metadata if key.lower() == "timecode"]
        if not (codes and self.cut and self.cut.start is not None):
            return metadata
        rate = self.video.rate or self.video.base_rate or Fraction(0)
        late = self.cut.start - (self.video.start or 0) * self.time_base
        later_codes = {
            key: later_code(metadata[key], round(late * rate), rate) for key in codes
        }
        later = {key: code for key, code in later_codes.items() if code}
        if len(later) < len(codes):
            self._warn_once(
                f"the time code {metadata[codes[0]]} can't be counted on, so it is left out"
            )
        return {
            key: value for key, value in metadata.items() if key not in codes
        } | later

    def _warn_once(self, text: str) -> None:
        warning = f"{self.output}: {text}"
        self.warnings += [warning] if warning not in self.warnings else []

    def _shift_to_zero(self, pts: int) -> None:
        """Move the video to 0 with all other streams: players skip pictures before 0."""
        self.shift = -pts
        late = f"{float(-pts * self.time_base):.3f} s"
        self.warnings.append(
            f"{self.output}: the video begins {late} before 0, so all times were moved by {late}"
        )

    def register(self, pts: int, duration: int) -> tuple[int, int]:
        """Record the next frame in display order; return its time and duration in ticks of `time_base`."""
        # in ticks of the container, which must differ from frame to frame
        frames, tick = self.written.frames, self.written.tick
        if frames.count == 0 and pts + self.shift < 0:
            self._shift_to_zero(pts)
        pts, duration = pts + self.shift, full_duration(duration, self.video)
        ticks, end = (
            nearest_tick(time * self.time_base / tick) for time in (pts, pts + duration)
        )
        if frames.count and ticks <= frames.last:
            raise same_tick(
                self.output,
                frames.count,
                pts,
                self.time_base,
                self.choice.container,
                tick,
            )
        frames.add(ticks, end - ticks)
        return pts, duration

    def put(self, packet: Packet[Any]) -> None:
        """Write a packet with times in ticks of the source, when the next one comes or at the end."""
        # one behind, so that the last one's duration can still change
        packet.stream = self.stream
        if self.last_packet is None:
            assert packet.pts is not None
            self.first_dts = packet.pts if packet.dts is None else packet.dts
        else:
            with write_errors(self.output):
                self._mux(self.last_packet)
        self.last_packet = packet

    def _mux(self, packet: Packet[Any]) -> None:
        assert self.container is not None
        # what is copied is written up to the time of this packet
        ticks = packet.dts if packet.dts is not None else packet.pts
        self._copy_up_to(((ticks or 0) - self.shift) * self.time_base)
        self.container.mux_one(packet)

    def _copy_up_to(self, time: Fraction | None) -> None:
        assert self.container is not None
        for packet in (
            self.copier.up_to(time, self.shift * self.time_base) if self.copier else ()
        ):
            self.written.copied.setdefault(packet.stream.index, Times()).add_packet(
                packet
            )
            self.container.mux_one(packet)

    def finish(self) -> None:
        """Close and verify the file, and only then give it its name."""
        with write_errors(self.output):
            self._mux_last()
            self._copy_up_to(None)
            self._close()
            if self.tag:
                store_checksum(self.partial.path, self.choice.container, self.tag)
            self.written.verify(self.partial.path, self.choice.container)
            self.partial.sync()
            self.partial.put_in_place(overwrite=self.overwrite)

    def _mux_last(self) -> None:
        """Set the last duration so that their sum is the video's: MP4 stores them in decoding order."""
        if self.last_packet is None:
            return
        # the sum of the durations is the length of the track
        if self.choice.container in ISO and self.last_packet.dts is not None:
            frames = self.written.frames
            total = (frames.end - frames.first) * self.written.tick / self.time_base
            self.last_packet.duration = max(
                1, round(total) - (self.last_packet.dts - self.first_dts)
            )
        self._mux(self.last_packet)

    def _close(self) -> None:
        assert self.container is not None
        self.container.close()
        self.container = None
        if self.copier:
            self.copier.close()
        # what can only be changed in the closed file
        ratio = self.video.sample_aspect_ratio
        if ratio not in (None, 0, 1) and self.choice.container not in ISO:
            kinds = self.written.kinds[: self.stream.index]
            # attachments are not tracks there
            track = sum(kind not in ("attachment", "cover") for kind in kinds)
            size = self.video.width, self.video.height
            write_aspect(self.partial.path, track, *size, Fraction(ratio or 1))

    def abort(self) -> None:
        """Close everything and remove the unfinished file."""
        if self.copier:
            self.copier.close()
        if self.container is not None:
            with suppress(Exception):
                self.container.close()
            self.container = None
        self.partial.discard()


def nearest_tick(exact: Fraction) -> int:
    """Round a time in ticks to an integer, halves away from 0, as FFmpeg does."""
    nearest = (2 * abs(exact.numerator) + exact.denominator) // (2 * exact.denominator)
    return nearest if exact >= 0 else -nearest


def _moved(chapters: list[Any], shift: Fraction) -> list[Any]:
    """Return chapters `shift` seconds later; a chapter that would begin before 0 begins at 0."""
    late = []
    for chapter in chapters:
        ticks = round(shift / Fraction(chapter["time_base"]))
        late.append(
            {
                **chapter,
                "start": max(0, chapter["start"] + ticks),
                "end": chapter["end"] + ticks,
            }
        )
    return late


def same_tick(
    output: str,
    frame: int,
    pts: int,
    time_base: Fraction,
    container: str,
    tick: Fraction,
) -> MediaError:
    """Return the error for two frames on the same tick of the container."""
    if tick == time_base:
        return MediaError(
            f"{output}, frame {frame}: its time {pts} x {time_base} s is not after the one of the frame "
            "before it"
        )
    return MediaError(
        f"{output}, frame {frame}: its time {pts} x {time_base} s is the tick of the frame before it; "
        f"{SUFFIXES[container]} counts {tick} s, use `output=NAME.mp4`, which keeps the source's own ticks"
    )


def read_times(path: Path, container: str) -> dict[str, list[Times]]:
    """Return the packet times of each stream in the file's order, by kind ("video", "audio", ..., "cover").
    `end` is the container's, if it has one. Raises MediaError if the demuxer logs an error: FFmpeg reads on
    after it, other programs stop.
    """
    # its reader must not find an error in it
    with log_level(ffmpeg.ERROR), ffmpeg.Capture() as messages:
        times_by_kind = _read_times(path, container)
    for level, name, message in messages:
        # a demuxer has the names of all its kinds
        if level <= ffmpeg.ERROR and container in name.split(","):
            raise MediaError(f"its own reader finds an error ({message.strip()})")
    return times_by_kind


def _read_times(path: Path, container: str) -> dict[str, list[Times]]:
    times_by_kind: dict[str, list[Times]] = {}
    # count without decoding
    with av.open(f"file:{path}", "r", format=container) as opened:
        times_by_index = {stream.index: Times() for stream in opened.streams}
        for packet in opened.demux():
            times_by_index[packet.stream_index].add_packet(packet)
        for stream in opened.streams:
            times = times_by_index[stream.index]
            if stream.duration is not None:
                # from its first packet: FFmpeg may take its start_time from another stream
                times.end = times.first + stream.duration
            elif opened.duration is not None:
                times.end = int(
                    opened.duration / (1_000_000 * Fraction(stream.time_base or 1))
                )
            times_by_kind.setdefault(
                "cover" if is_attached(stream) else stream.type, []
            ).append(times)
    return times_by_kind
