"""Videos with much beside their picture: late sound, several streams of each kind, fonts, time codes."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.stream import Disposition
from long_videos import cover_packets
from sample_videos import noise, sample_planes, sound_packets, video_frame

ASS = """[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,Letters,20

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:00.05,0:00:00.15,Default,,0,0,0,,{\\i1}hello
Dialogue: 0,0:00:00.30,0:00:00.40,Default,,0,0,0,,goodbye
"""


OPTIONS = {
    "libx264": {"preset": "ultrafast", "g": "6", "bf": "2"},
    "ffv1": {"level": "1"},
}


@dataclass(frozen=True)
class Sound:
    """Sound of noise from `start` on, in seconds."""

    codec: str = "aac"
    start: Fraction = Fraction(0)
    seconds: Fraction = Fraction(1, 2)
    layout: str = "mono"
    rate: int = 48000


@dataclass(frozen=True)
class Content:
    """What a video holds. `times` in ticks of `time_base`; `first` puts the sound before the picture; `data`:
    a stream of unknown data.

    `settings` are attributes of the video encoder, `turned` its rotation in degrees and whether it is
    mirrored.
    """

    sounds: tuple[Sound, ...] = ()
    texts: tuple[str, ...] = ()
    times: Sequence[int] = tuple(range(0, 480, 40))
    codec: str = "libx264"
    size: tuple[int, int] = (64, 48)
    pix_fmt: str = "yuv420p"
    time_base: Fraction = Fraction(1, 1000)
    settings: dict[str, Any] = field(default_factory=dict)
    turned: tuple[int, bool] | None = None
    videos: int = 1
    font: bool = False
    cover: bool = False
    chapters: bool = False
    first: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    track: dict[str, str] = field(default_factory=dict)
    container: dict[str, str] = field(default_factory=dict)
    data: bool = False


def write_content(path: Path, content: Content) -> Path:
    """Write it, all packets in the order of their decoding times."""
    with av.open(str(path), "w", container_options=content.container) as output:
        output.metadata.update(content.metadata)
        sounds = _sounds(output, content) if content.first else []
        packets = [
            packet for _ in range(content.videos) for packet in _video(output, content)
        ]
        sounds = sounds or _sounds(output, content)
        texts = [_texts(output, codec) for codec in content.texts]
        extra = _data(output) if content.data else None
        if content.font:
            output.add_attachment("letters.ttf", "font/ttf", b"glyphs" * 20)
        if content.chapters:
            marks = [
                {"id": 1, "start": 0, "end": 200},
                {"id": 2, "start": 200, "end": 480},
            ]
            facts = [
                {"metadata": {"title": f"part {n}"}, "time_base": Fraction(1, 1000)}
                for n in (1, 2)
            ]
            output.set_chapters(
                [mark | fact for mark, fact in zip(marks, facts, strict=True)]
            )
        packets += cover_packets(output) if content.cover else []
        for stream, sound in zip(sounds, content.sounds, strict=True):
            packets += _noise(stream, sound)
        for stream, codec in zip(texts, content.texts, strict=True):
            packets += _text_packets(stream, codec)
        if extra is not None:
            packets += [
                _packet(extra, bytes([number] * 9), 100 * number, 100)
                for number in range(4)
            ]
        output.start_encoding()
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            output.mux(packet)
    return path


def _video(output: Any, content: Content) -> list[Any]:
    stream = output.add_stream(
        content.codec, rate=25, options=OPTIONS.get(content.codec, {})
    )
    stream.width, stream.height, stream.pix_fmt = *content.size, content.pix_fmt
    stream.time_base = stream.codec_context.time_base = content.time_base
    stream.codec_context.thread_count = 1
    stream.metadata.update(content.track)
    stream.disposition = Disposition.original
    for name, value in content.settings.items():
        setattr(stream.codec_context, name, value)
    if content.turned is not None:
        stream.set_display_rotation(degrees=content.turned[0], hflip=content.turned[1])
    packets = []
    for number, time in enumerate(content.times):
        frame = video_frame(
            content.pix_fmt, sample_planes(content.pix_fmt, number, *content.size), time
        )
        frame.time_base = content.time_base
        packets += stream.encode(frame)
    return packets + stream.encode(None)


def _sounds(output: Any, content: Content) -> list[Any]:
    made = []
    for number, sound in enumerate(content.sounds):
        stream = output.add_stream(sound.codec, rate=sound.rate, layout=sound.layout)
        stream.metadata.update(
            {"language": ("ita", "deu", "fra")[number % 3], "title": f"Sound {number}"}
        )
        made.append(stream)
    return made


def _noise(stream: Any, sound: Sound) -> list[Any]:
    """Return packets of noise."""
    count, start = (
        int(seconds * sound.rate) for seconds in (sound.seconds, sound.start)
    )
    return sound_packets(stream, count, start, 960, noise())


def _texts(output: Any, codec: str) -> Any:
    if codec == "ass":
        with av.open(io.BytesIO(ASS.encode()), format="ass") as written:
            stream = output.add_stream_from_template(written.streams[0], opaque=True)
    else:
        stream = output.add_mux_stream(codec)
        stream.time_base = Fraction(1, 1000)
    stream.metadata.update({"language": "fra", "title": codec})
    stream.disposition = Disposition.forced
    return stream


def _text_packets(stream: Any, codec: str) -> list[Any]:
    """Return packets of two subtitles."""
    if codec != "ass":
        payload = b"\0\5hello" if codec == "mov_text" else b"hello"
        return [_packet(stream, payload, start, 100) for start in (50, 300)]
    with av.open(io.BytesIO(ASS.encode()), format="ass") as written:
        packets = [packet for packet in written.demux() if packet.size]
    for packet in packets:
        packet.stream = stream
    return packets


def _data(output: Any) -> Any:
    stream = output.add_data_stream("bin_data")
    stream.time_base = Fraction(1, 1000)
    return stream


def _packet(stream: Any, payload: bytes, start: int, duration: int) -> Any:
    packet = av.Packet(payload)
    packet.stream, packet.time_base = stream, Fraction(1, 1000)
    packet.pts = packet.dts = start
    packet.duration = duration
    return packet
