"""Encode sound again that the output's container can't hold."""

from __future__ import annotations

import io
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import av
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.packet import Packet

from vidrestore.media.formats.cut import Cut
from vidrestore.media.reading.probe import StreamInfo, decoder_of, is_lossless

SOUND_NAMES = {"flac": "FLAC", "alac": "ALAC", "aac": "AAC", "libopus": "Opus"}
# by the number of channels
_LAYOUTS = ("mono", "stereo", "2.1", "4.0", "5.0", "5.1", "6.1", "7.1")
# what FFmpeg lists for a container, too, but refuses to write
_UNWRITTEN = {
    "mov": {"flac", "opus", "libopus", "truehd"},
    "matroska": {"atrac3", "cook", "real_288", "sipr"},
}
_USUAL_SAMPLE_RATE = 48000
_BIT_RATE = 96_000  # per channel, of what is encoded with a loss
# seconds between the samples' own clock and the stated times
_OUT_OF_STEP = Fraction(1, 10)


def encoder_of(stream: StreamInfo, container: str) -> str | None:
    """Return the encoder for sound that a container can't hold. None if it can, if this FFmpeg has no decoder
    for the sound, and for other streams.
    """
    # what this FFmpeg can decode and the container can't hold
    codec, decoder = stream.codec, decoder_of(stream.codec)
    if stream.kind != "audio" or decoder is None:
        return None
    needs_places = container == "mp4" and codec.startswith("pcm")
    if decoder.name in _codecs(container) and not (needs_places and stream.unplaced):
        return None
    if container in ("matroska", "webm"):
        return "libopus" if container == "webm" else "flac"
    return "alac" if is_lossless(codec) else "aac"


def rate_code(codec: str, head: bytes) -> int | None:
    """Return the bits of a packet's first bytes that state the sample rate; None for codecs without (ISO/IEC
    13818-7, 6.2.1 (ADTS); ISO/IEC 11172-3, 2.4.1.3; ATSC A/52, 5.4.1).
    """
    # each codec marks the beginning of a frame in its own way
    if len(head) < 5:
        return None
    is_synced = head[0] == 0xFF
    if codec == "aac" and is_synced and head[1] & 0xF6 == 0xF0:
        return head[2] >> 2 & 0xF
    if codec in ("mp2", "mp3", "mp3float") and is_synced and head[1] & 0xE0 == 0xE0:
        return head[1] & 0x18 | head[2] >> 2 & 3
    return (
        head[4] >> 6 if codec in ("ac3", "eac3") and head[:2] == b"\x0b\x77" else None
    )


@cache
def _codecs(container: str) -> frozenset[str]:
    """Return the codecs that a container can hold, by the names of their coders."""
    with av.open(io.BytesIO(), "w", format=container) as trial:
        return frozenset(trial.supported_codecs) - _UNWRITTEN.get(container, set())


class EncodedSound:
    """Sound of a source, decoded and encoded for `stream` of the output.

    The clock counts samples from the first time on: times of packets are often rounded to milliseconds.
    Where the source has none for a while, there is silence.
    """

    def __init__(
        self,
        output: OutputContainer,
        template: AudioStream,
        encoder: str,
        cut: Cut | None = None,
    ) -> None:
        # the encoder's settings follow from the source's
        self.decoder = source = template.codec_context
        rates = av.codec.Codec(encoder, "w").audio_rates
        count = source.layout.nb_channels
        if not 1 <= count <= len(_LAYOUTS):
            raise ValueError(
                f"{count} channels can't be encoded as {SOUND_NAMES[encoder]}"
            )
        rate, codec = source.sample_rate, source.codec.canonical_name
        deep = is_lossless(codec) and not source.format.name.startswith(("s16", "u8"))
        self.cut = cut  # the decoded frames that begin in it are used
        output_rate = rate if not rates or rate in rates else _USUAL_SAMPLE_RATE
        stream: Any = output.add_stream(encoder, rate=output_rate)
        self.stream: AudioStream = stream
        layout = source.layout.name
        self.stream.codec_context.layout = (
            _LAYOUTS[count - 1] if "channels" in layout else layout
        )
        if encoder in ("flac", "alac"):
            planar = "p" if encoder == "alac" else ""
            self.stream.codec_context.format = f"{'s32' if deep else 's16'}{planar}"
        else:
            self.stream.codec_context.bit_rate = _BIT_RATE * count
        self.stream.time_base = Fraction(1, self.stream.codec_context.sample_rate)
        self.undecoded = 0  # packets that couldn't be decoded
        self.only_decodes = False  # for a trial: encoding takes most of the time
        # the time of the next sample, in samples of the source
        self.clock: int | None = None

    def packets(self, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        """Yield encoded packets, after a packet of the source."""
        try:
            frames = self.decoder.decode(packet)
        except av.error.InvalidDataError:
            self.undecoded += 1
            return
        for frame in frames:
            yield from self._packets_of(frame)

    def rest(self) -> Iterator[Packet[Any]]:
        """Yield the last encoded packets."""
        if self.clock is not None and not self.only_decodes:
            # the last one of FLAC has no sound
            yield from (packet for packet in self.stream.encode(None) if packet.size)

    def _packets_of(self, frame: AudioFrame) -> Iterator[Packet[Any]]:
        # packets of the cut, in the source's own time
        time = None if frame.pts is None else frame.pts * Fraction(frame.time_base or 1)
        if time is not None and self.cut and not self.cut.holds(time):
            return
        if self.clock is None:
            self.clock = round((time or 0) * frame.sample_rate)
        elif time is not None:
            # a hole is filled with silence, so that the rest stays in step
            late = round(time * frame.sample_rate) - self.clock
            if -late > _OUT_OF_STEP * frame.sample_rate:
                raise ValueError("its times go back there")
            while late > _OUT_OF_STEP * frame.sample_rate:
                silent = _silence(frame, min(late, frame.sample_rate))
                late -= silent.samples
                yield from self._encode(silent)
        yield from self._encode(frame)

    def _encode(self, frame: AudioFrame) -> Iterator[Packet[Any]]:
        assert self.clock is not None
        frame.pts, frame.time_base = self.clock, Fraction(1, frame.sample_rate)
        self.clock += frame.samples
        if not self.only_decodes:
            yield from self.stream.encode(frame)


def _silence(like: AudioFrame, samples: int) -> AudioFrame:
    frame = av.AudioFrame(like.format.name, like.layout.name, samples)
    frame.sample_rate = like.sample_rate
    level = b"\x80" if like.format.name.startswith("u8") else b"\0"
    for plane in frame.planes:
        plane.update(level * plane.buffer_size)
    return frame
