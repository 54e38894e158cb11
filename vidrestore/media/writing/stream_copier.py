"""Copy the other streams of a source packet by packet, or encode sound again that the output can't hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Any, cast

import av
from av import logging as ffmpeg
from av.container import OutputContainer
from av.format import Flags
from av.packet import Packet
from av.rational import AVRational
from av.stream import Discard, Stream

from vidrestore.errors import MediaError
from vidrestore.media.formats.cut import INTERLEAVING_SECONDS, Cut, seconds
from vidrestore.media.formats.encoder_table import ISO
from vidrestore.media.formats.log import ErrorCollector, log_level
from vidrestore.media.reading.probe import (
    StreamInfo,
    describe_stream,
    is_attached,
    open_input,
    packets_of,
    to_drop,
    video_stream,
)
from vidrestore.media.writing.sound import EncodedSound, encoder_of, rate_code

# packets of sound, one after the other, whose times are repaired: a quarter of a second
_LONGEST_ROW = 12
# of a packet of another kind, whose neighbours don't tell its time
_MOST_MOVED_SECONDS = 1
# packets one after the other that state another sample rate; one may be damaged
_SURE = 3
# codec -> suffix, MIME type
_COVERS = {"mjpeg": ("jpg", "image/jpeg"), "png": ("png", "image/png")}


def add_stream(
    output: OutputContainer, template: Stream, cut: Cut | None = None
) -> tuple[Stream, EncodedSound | None]:
    """Add a stream with the template's metadata and disposition, for its packets.

    Packets of sound that the output can't hold must pass through the EncodedSound, which is None otherwise.
    """
    # sound that the container can't hold, text without a decoder, or a copy
    info, context = describe_stream(template), cast(Any, template.codec_context)
    encoder = encoder_of(info, output.format.name)
    sound = EncodedSound(output, template, encoder, cut) if encoder else None  # type: ignore[arg-type]
    if sound:
        stream: Stream = sound.stream
    elif context is None and info.codec == "webvtt":
        stream = output.add_mux_stream("webvtt")
        stream.time_base = template.time_base
    else:
        stream = output.add_stream_from_template(template, opaque=True)
    is_whole = sound is None and cut is None
    stream.metadata.update(
        stream_metadata(template, output.format.name, has_all_packets=is_whole)
    )
    stream.disposition = template.disposition
    return stream, sound


def label(info: StreamInfo, attachment: str | None = None) -> str:
    """Return a stream in words, "stream 2 (subtitle: ass fra)", with the name of an attached file."""
    # only what is known
    codec = attachment if info.kind == "attachment" else info.codec
    language = info.language if info.language != "und" else None
    title = f'"{info.title}"' if info.title else None
    details = " ".join(filter(None, (codec, language, title)))
    return f"stream {info.index} ({info.role}: {details})"


class Clock:
    """Keeps the decoding times of one stream of an output in order, by the rule of FFmpeg's own tool."""

    def __init__(self, stream: Stream, output: OutputContainer) -> None:
        self.stream = stream
        nonstrict: Any = Flags.ts_nonstrict.value
        may_be_equal = (
            stream.type in ("subtitle", "data") or output.format.flags & nonstrict
        )
        self.step = 0 if may_be_equal else 1
        self.last: int | None = None  # in ticks of the output
        self.row = 0  # packets repaired one after the other
        self.moved = Fraction(0)  # seconds that the last packet was moved
        # seconds of the source at which a packet was moved
        self.repaired: list[Fraction] = []

    def repair(self, packet: Packet[Any], time: Fraction | None = None) -> None:
        """Count a packet's times in ticks of the output, behind those before; `time` is that in the source.

        The file's header must have been written.
        """
        # by the rule of FFmpeg's tool: times rise, and none is shown before it is decoded
        tick = Fraction(self.stream.time_base or packet.time_base)
        packet.rescale_ts(AVRational(tick))
        pts, dts = packet.pts, packet.dts
        if dts is None:
            return
        before = pts, dts
        least = dts if self.last is None else self.last + self.step
        if pts is not None and pts < dts:
            pts = dts = sorted((pts, dts, least))[1]
        if dts < least:
            pts, dts = None if pts is None else max(pts, least), least
        self.last = dts
        self.moved = (dts - before[1]) * tick
        self.row = self.row + 1 if (pts, dts) != before else 0
        if self.row:
            self.repaired.append(time or Fraction(0))
        packet.pts, packet.dts = pts, dts

    @property
    def is_lost(self) -> bool:
        """True if the times of the last packet can't be repaired."""
        far = self.stream.type != "audio" and abs(self.moved) > _MOST_MOVED_SECONDS
        return self.row > _LONGEST_ROW or (self.row > 0 and far)


class StreamCopier:
    """Copies the other streams of a source packet by packet, in step with the video.

    Streams are added in the source's order by `add`; `up_to` then yields packets for the output.
    """

    def __init__(self, source: str, cut: Cut | None = None) -> None:
        self.source, self.cut = source, cut  # of a cut only its content is copied
        self.opened = open_input(source)
        # clocks of the output's streams, by their index in the source
        self.clocks: dict[int, Clock] = {}
        # sound to encode again, by its index in the source
        self.encoded: dict[int, EncodedSound] = {}
        # index and time of the last packet
        self.latest: tuple[int, Fraction | None] | None = None
        # codes of sample rates: the first, then others in a row
        self.rates: dict[int, list[int]] = {}
        self.hides = False  # whether the output can hide sound by an edit list
        # the packets of the output that were read or encoded, with their index in the source
        self.packets: Iterator[tuple[int, Packet[Any]]] | None = None
        # a packet that is not due yet
        self.next_entry: tuple[int, Packet[Any]] | None = None
        self.broken: str | None = None  # the first error, in words
        self.corrupt = 0  # packets marked corrupt

    @property
    def damage(self) -> str | None:
        """The damage of the copied streams, in words; None without."""
        signs = [self.broken] if self.broken else []
        if self.corrupt:
            signs.append(
                f"{self.corrupt} packets of the sound and other streams are marked corrupt"
            )
        for index, sound in self.encoded.items():
            if count := sound.undecoded:
                packets, are = (
                    ("1 packet", "is") if count == 1 else (f"{count} packets", "are")
                )
                signs.append(
                    f"{packets} of stream {index} can't be decoded, and {are} silent"
                )
        return "; ".join(signs) or None

    def add(self, output: OutputContainer, index: int) -> None:
        """Add the stream of the source with this index to the output."""
        # cover art becomes an attachment in Matroska
        template = self.opened.streams[index]
        if output.format.name == "matroska" and is_attached(template):
            self._attach_picture(output, template)
            return
        self.hides = output.format.name in ISO
        stream, sound = add_stream(output, template, self.cut)
        if template.type != "attachment":
            self.clocks[index] = Clock(stream, output)
        if sound:
            self.encoded[index] = sound

    def _attach_picture(self, output: OutputContainer, template: Stream) -> None:
        """Attach cover art as a file named cover.*, since Matroska has no streams for it."""
        codec = template.codec_context.name
        suffix, mimetype = _COVERS.get(codec, (codec, f"image/{codec}"))
        facts = {
            "filename": f"cover.{suffix}",
            "mimetype": mimetype,
            **template.metadata,
        }
        cover = output.add_attachment(
            facts["filename"], facts["mimetype"], self._picture(template.index)
        )
        cover.metadata.update(facts)

    def _picture(self, index: int) -> bytes:
        with open_input(self.source) as container, suppress(av.error.FFmpegError):
            for packet in container.demux(container.streams[index]):
                if packet.size:
                    return bytes(packet)
        raise MediaError(
            f"{self.source}: stream {index}, the cover picture, can't be read; use `drop=cover`"
        )

    def start(self) -> None:
        """Start reading, after all streams were added: from here on only their packets are read."""
        # only packets of these streams are read
        indices = {*self.clocks}
        if self.cut:  # the video stream, to detect the end of the cut
            indices.add(video_stream(self.opened).index)
        for stream in self.opened.streams:
            if stream.index not in indices:
                stream.discard = Discard.all
        if self.clocks:
            self.packets = self._read(indices)

    def _read(self, indices: set[int]) -> Iterator[tuple[int, Packet[Any]]]:
        # demux, leave out what the source hides, and stop behind the cut
        try:
            self._seek()
            packets = packets_of(
                self.opened, [self.opened.streams[index] for index in indices]
            )
            for packet in self._without_hidden_audio(self._source_packets(packets)):
                if self.cut and self.cut.is_passed_by(packet):
                    break
                yield from self._output_packets(packet)
        except av.error.FFmpegError as error:
            self.broken = f"the sound and other streams break off ({error})"
        for index, sound in self.encoded.items():
            yield from ((index, packet) for packet in sound.rest())

    def _output_packets(self, packet: Packet[Any]) -> Iterator[tuple[int, Packet[Any]]]:
        """Yield the packets that a packet of the source becomes in the output."""
        # an empty packet ends a stream, and flushes an encoder
        ends = not packet.size and packet.pts is None
        index = packet.stream.index if ends else packet.stream_index
        sound = self.encoded.get(index)
        if sound is None:
            if (
                index in self.clocks
                and not ends
                and (self.cut is None or self.cut.keeps(packet))
            ):
                self.corrupt += packet.is_corrupt
                self.latest = index, seconds(packet, packet.pts)
                self._check_rate(packet)
                yield index, self._without_header(packet)
        elif packet.size or ends:
            self.corrupt += packet.is_corrupt
            self.latest = index, seconds(packet, packet.pts)
            try:
                yield from (
                    (index, encoded_packet) for encoded_packet in sound.packets(packet)
                )
            except ValueError as error:
                raise self.refusal(str(error)) from error

    def _check_rate(self, packet: Packet[Any]) -> None:
        """Raise MediaError if the sample rate changes: the header of a copied stream states one."""
        # a few in a row, as one packet may be damaged
        context = packet.stream.codec_context
        code = rate_code(context.name if context else "", bytes(memoryview(packet)[:6]))
        if code is None:
            return
        codes = self.rates.setdefault(packet.stream_index, [code])
        codes[1:] = [*codes[1:], code] if code != codes[0] else []
        if len(codes) > _SURE:
            encode = "encode it at one rate first: ffmpeg -i IN -map 0 -c copy -c:a flac OUT.mkv"
            raise self.refusal("its sample rate changes there", encode)

    def _without_header(self, packet: Packet[Any]) -> Packet[Any]:
        """Return a packet without the header that it repeats, which muxers would write over the first one.
        Raise MediaError for a header that differs.
        """
        # the same header may come again, another one can't be written
        if not packet.has_sidedata("new_extradata"):
            return packet
        context = packet.stream.codec_context
        if context and bytes(packet.get_sidedata("new_extradata")) != (
            context.extradata or b""
        ):
            encode = "encode it first: ffmpeg -i IN -map 0 -c copy -c:a flac OUT.mkv"
            raise self.refusal("its header changes there", encode)
        plain: Packet[Any] = av.Packet(bytes(packet))
        plain.time_base, plain.pts, plain.dts = packet.time_base, packet.pts, packet.dts
        plain.duration, plain.is_keyframe = packet.duration, packet.is_keyframe
        for data in packet.iter_sidedata():
            if data.data_type != "new_extradata":
                plain.set_sidedata(data)
        return plain

    def _without_hidden_audio(
        self, packets: Iterator[Packet[Any]]
    ) -> Iterator[Packet[Any]]:
        """Yield packets without those of copied audio that the source hides and the output would not.

        MP4 can hide audio before 0, so it stays there; elsewhere only the last such packet does, which
        decoders start from.
        """
        # one packet before the sound begins, from which decoders start
        before: dict[int, Packet[Any]] = {}
        begun: set[int] = set()
        for packet in packets:
            index = packet.stream_index
            is_copied = (
                packet.size and index in self.clocks and index not in self.encoded
            )
            if is_copied and packet.stream.type == "audio":
                if not packet.is_discard and index not in begun:
                    begun.add(index)
                    if last := before.pop(index, None):
                        yield last
                elif packet.is_discard and (index in begun or not self.hides):
                    before[index] = packet
                    continue
            yield packet

    def _source_packets(self, packets: Iterator[Packet[Any]]) -> Iterator[Packet[Any]]:
        """Yield packets; the first error that FFmpeg logs meanwhile is damage."""

        def complain(message: str) -> None:
            self.broken = (
                self.broken or f"an error in the sound or other streams ({message})"
            )

        errors = ErrorCollector(frozenset({self.opened.format.name}), complain, 0)
        while True:
            with log_level(ffmpeg.ERROR), errors.calling():
                packet = next(packets, None)
            if packet is None:
                return
            yield packet

    def _seek(self) -> None:
        """Seek near the cut's beginning; not with subtitles, of which an early one may still be on screen."""
        # far enough before, as streams of a file are apart
        subtitles = any(
            self.opened.streams[index].type == "subtitle" for index in self.clocks
        )
        start = self.cut.start if self.cut else None
        if start is not None and start > INTERLEAVING_SECONDS and not subtitles:
            self.opened.seek(int((start - INTERLEAVING_SECONDS) * 1_000_000))

    def up_to(
        self, time: Fraction | None, shift: Fraction = Fraction(0)
    ) -> Iterator[Packet[Any]]:
        """Yield the packets with a decoding time up to `time` (seconds; None: all), moved by `shift`."""
        # one packet may be read too far, and is kept for the next call
        while self.packets is not None:
            entry = self.next_entry or next(self.packets, None)
            self.next_entry = None
            if entry is None:
                self.packets = None
                return
            index, packet = entry
            stamp = seconds(
                packet, packet.dts if packet.dts is not None else packet.pts
            )
            if time is not None and stamp is not None and stamp > time:
                self.next_entry = entry
                return
            self.latest = index, stamp
            packet.stream = self.clocks[index].stream
            _move(packet, shift)
            self.clocks[index].repair(packet, stamp)
            if self.clocks[index].is_lost:
                raise self.refusal("its times go back there")
            yield packet

    def refusal(
        self,
        reason: str,
        way_out: str = "ffmpeg -i IN -map 0 -c copy OUT.mkv may mend it",
    ) -> MediaError:
        """Return the error for the last packet, with the way out."""
        if self.latest is None:
            return MediaError(
                f"{self.source}: its other streams can't be copied: {reason}"
            )
        index, time = self.latest
        stream = self.opened.streams[index]
        info = describe_stream(stream)
        streams = map(describe_stream, self.opened.streams)
        name = label(info, getattr(stream, "name", None))
        place = "" if time is None else f" at {float(time):.3f} s"
        return MediaError(
            f"{self.source}: {name} can't be copied{place}: {reason}; {way_out}, or use "
            f"`drop={to_drop([info], streams)}`"
        )

    def repairs(self) -> Iterator[str]:
        """Yield a warning for each stream with repaired times."""
        for index, clock in sorted(self.clocks.items()):
            if count := len(clock.repaired):
                info = describe_stream(self.opened.streams[index])
                packets = (
                    "1 packet has a time"
                    if count == 1
                    else f"{count} packets have times"
                )
                yield (
                    f"stream {index} ({info.role}: {info.codec}): {packets} before the one that it follows, "
                    f"first at {float(clock.repaired[0]):.3f} s; put right behind it"
                )

    def close(self) -> None:
        self.packets = self.next_entry = None
        self.opened.close()


def _move(packet: Packet[Any], shift: Fraction) -> None:
    ticks = round(shift / Fraction(packet.time_base))
    if ticks:
        packet.pts = None if packet.pts is None else packet.pts + ticks
        packet.dts = None if packet.dts is None else packet.dts + ticks


# The metadata of streams, as muxers take them

# what doesn't apply to the new file
_STALE_KEYS = ("encoder", "bps", "number_of_", "_statistics_")
# Codes of QuickTime's own list of languages, for the codes that other containers use.
_QUICKTIME_LANGUAGES = {
    "deu": "ger", "nld": "dut", "fre": "fra", "swe": "sve", "ell": "gre", "isl": "ice", "zho": "chi",
    "sqi": "alb", "mkd": "mac", "hye": "arm", "kat": "geo", "bod": "tib", "msa": "may", "mya": "bur",
    "cym": "wel", "eus": "baq", "rum": "ron", "cze": "ces", "slo": "slk", "fas": "per", "hrv": "hr ",
    "srp": "sr ", "pan": "pa ", "fao": "fo ",
}  # fmt: skip


def stream_metadata(
    stream: Stream, container: str, *, has_all_packets: bool
) -> dict[str, str]:
    """Return a stream's metadata with the keys of a muxer; without statistics of its old encoding and length
    unless all its packets are copied (`has_all_packets`).
    """
    stale = () if has_all_packets else _STALE_KEYS
    keys = {
        key: value
        for key, value in stream.metadata.items()
        if not key.lower().startswith(stale)
    }
    # MP4's demuxer has `name` for its muxer's `title`
    if "name" in keys and "title" not in keys:
        keys["title"] = keys.pop("name")
    if container == "mov" and "language" in keys:
        keys["language"] = _QUICKTIME_LANGUAGES.get(keys["language"], keys["language"])
    return keys
