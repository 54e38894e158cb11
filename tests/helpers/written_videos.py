"""Sources that exist only as a description, frames for them, and what a written file says when FFmpeg reads
it.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from odd_videos import Content, Sound, write_content

from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.pixel_formats import layout_of, planes_of
from vidrestore.media.formats.source import Target
from vidrestore.media.reading.probe import SourceInfo, probe
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.encoders import choose_encoder
from vidrestore.media.writing.writer import VideoWriter
from vidrestore.pixels.frames import Frame, VideoInfo
from vidrestore.settings.options import EncoderOptions

FAST = {"libx264": "veryfast", "libx264rgb": "ultrafast", "libx265": "ultrafast"}
FAST |= {"libsvtav1": "12", "libvpx-vp9": "8"}
CONSTANT = tuple((number * 1001, 1001) for number in range(6))
VARYING = (
    (0, 1001),
    (1001, 2002),
    (3003, 500),
    (3503, 4000),
    (7503, 1001),
    (8504, 7777),
    (16281, 3333),
)


def described(
    pix_fmt: str = "yuv420p", width: int = 64, height: int = 48, **facts: Any
) -> SourceInfo:
    """A source of 24000/1001 frames per second without a file, as a pipe is: no stream can be copied."""
    usual = {
        "index": 0,
        "codec": "h264",
        "time_base": Fraction(1, 24000),
        "rate": Fraction(24000, 1001),
    }
    video = VideoInfo(
        width=width, height=height, format=layout_of(pix_fmt).format, **(usual | facts)
    )
    return SourceInfo(path="-", container="test", video=video, streams=())


def made_frames(
    source: SourceInfo, times: Sequence[tuple[int, int]] = CONSTANT
) -> list[Frame]:
    """Frames of noise over the whole range, one for each (pts, duration)."""
    pixels, (height, width) = (
        source.video.format,
        (source.video.height, source.video.width),
    )
    kind = np.uint8 if pixels.depth == 8 else np.uint16
    sizes = [
        pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)
    ]
    frames = []
    for number, (pts, duration) in enumerate(times):
        noise = np.random.default_rng(number)
        planes = tuple(
            noise.integers(0, 2**pixels.depth, size).astype(kind) for size in sizes
        )
        frames.append(Frame(planes, pts, duration))
    return frames


def fast_choice(
    source: SourceInfo, output: Path, options: EncoderOptions | None = None
) -> EncoderChoice:
    """The choice for these options, with the encoder's fast preset in place of its own."""
    options = options or EncoderOptions()
    choice = choose_encoder(source, Target(str(output)), options)
    preset = FAST.get(choice.encoder)
    if preset is None:
        return choice
    name = "cpu-used" if choice.encoder == "libvpx-vp9" else "preset"
    return EncoderChoice(
        **(vars(choice) | {"options": {**choice.options, name: preset}})
    )


def write(
    source: SourceInfo,
    output: Path,
    pictures: Sequence[Frame],
    options: EncoderOptions | None = None,
    choice: EncoderChoice | None = None,
    **more: Any,
) -> list[str]:
    """Write frames through a VideoWriter, which gets `more`, and return its warnings. Without a `choice`, a
    fast one is made from the options.
    """
    choice = choice or fast_choice(source, output, options)
    with VideoWriter(
        str(output), source=source, encoder=choice, **({"copy": ()} | more)
    ) as writer:
        for frame in pictures:
            writer.write(frame)
    return writer.warnings


@dataclass
class Found:
    """A file as PyAV and our probe see it; `end` in seconds by the container."""

    info: SourceInfo
    frames: list[Frame]
    end: float


def read(path: Path) -> Found:
    info = probe(str(path))
    with av.open(str(path)) as container:
        stream = container.streams.video[info.video.index]
        frames = [
            Frame(planes_of(each), each.pts, each.duration)
            for each in container.decode(stream)
        ]
        late = (
            0
            if stream.duration is None
            else max(0, stream.start_time or 0) * stream.time_base
        )
        end = float(container.duration / 1_000_000) + float(late)
    return Found(info, frames, end)


def packets(path: Path) -> dict[int, list[tuple[bytes, Fraction | None]]]:
    """Each stream's packets: their bytes and their time in seconds; without the empty ones of no length that
    FFmpeg adds to mov_text.
    """
    result: dict[int, list[tuple[bytes, Fraction | None]]] = {}
    with av.open(str(path)) as container:
        for packet in container.demux():
            if packet.size and not (packet.duration == 0 and bytes(packet) == b"\0\0"):
                time = None if packet.pts is None else packet.pts * packet.time_base
                result.setdefault(packet.stream.index, []).append((bytes(packet), time))
    return result


def frames_of(
    path: Path,
    start: int | None = None,
    stop: int | None = None,
    scan: str | None = None,
) -> list[Frame]:
    """The frames of a video, or those that begin in a part of it."""
    with VideoReader(str(path), scan=scan) as reader:
        return list(reader.frames(start, stop))


def pictures(path: Path) -> list[tuple[int, int, list[bytes]]]:
    """Each frame's time, duration and samples."""
    return [
        (frame.pts, frame.duration, [plane.tobytes() for plane in frame.planes])
        for frame in frames_of(path)
    ]


def extras(
    audio: Sequence[str] = ("aac",), subtitles: Sequence[str] = (), **more: Any
) -> Content:
    """Half a second of video with sound, two chapters and what else is asked for."""
    sounds = tuple(Sound(codec, layout="stereo") for codec in audio)
    titles = {"title": "A video", "artist": "Somebody"}
    return Content(
        sounds, tuple(subtitles), **({"chapters": True, "metadata": titles} | more)
    )


def rich_video(path: Path, content: Content) -> SourceInfo:
    return probe(str(write_content(path, content)))


def mpeg_crc(data: bytes) -> bytes:
    """CRC-32/MPEG-2: that of zlib with the bits of each byte, and of the result, in the other order."""
    mirrored = bytes(int(f"{byte:08b}"[::-1], 2) for byte in data)
    return struct.pack(">I", int(f"{zlib.crc32(mirrored) ^ 0xFFFFFFFF:032b}"[::-1], 2))
