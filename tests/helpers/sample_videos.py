"""Tiny videos, made with PyAV; the planes that go in are returned."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

Planes = tuple[NDArray[Any], ...]


def sample_planes(
    pix_fmt: str, number: int, width: int = 64, height: int = 48
) -> Planes:
    """Planes of a planar little-endian format, in FFmpeg's order: a moving gradient with noise."""
    description = av.VideoFormat(pix_fmt, width, height)
    noise = np.random.default_rng(number)
    planes = []
    for index in range(max(part.plane for part in description.components) + 1):
        part = next(part for part in description.components if part.plane == index)
        rows, columns = np.mgrid[0 : part.height, 0 : part.width]
        if part.bits == 32:
            planes.append(((rows + columns + number) / 128 + index).astype(np.float32))
        else:
            top = 2**part.bits
            values = (rows * 3 + columns * 2 + number * 5 + index * 40) * (top // 256)
            values = values + noise.integers(0, top // 4, rows.shape)
            planes.append(
                (values % top).astype(np.uint8 if part.bits <= 8 else np.uint16)
            )
    return tuple(planes)


def chequered_planes(pix_fmt: str, number: int, width: int, height: int) -> Planes:
    """Planes of 4:2:0, whatever the format: squares with sharp edges, which move."""
    planes = []
    for part, (dark, bright) in ((1, (60, 190)), (2, (110, 140)), (2, (120, 150))):
        rows, columns = part * np.mgrid[: height // part, : width // part]
        odd = ((rows + number) // 10 + (columns + 2 * number) // 10) % 2
        planes.append(np.where(odd, bright, dark).astype(np.uint8))
    return tuple(planes)


def video_frame(pix_fmt: str, planes: Planes, pts: int | None = None) -> av.VideoFrame:
    """An av.VideoFrame holding `planes`, row by row, and zero beyond them."""
    height, width = planes[0].shape
    frame = av.VideoFrame(width, height, pix_fmt)
    for plane, values in zip(frame.planes, planes, strict=True):
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        rows[:] = 0  # a packed format has more bytes in a row than `values`
        samples = np.ascontiguousarray(values).view(np.uint8)
        rows[: samples.shape[0], : samples.shape[1]] = samples
    frame.pts = pts
    return frame


def write_video(
    path: Path,
    frames: int = 12,
    codec: str = "ffv1",
    pix_fmt: str = "yuv420p",
    size: tuple[int, int] = (64, 48),
    *,
    rate: int = 25,
    times: Sequence[int] | None = None,
    last_duration: int | None = None,
    time_base: Fraction | None = None,
    options: Mapping[str, str] | None = None,
    container: Mapping[str, str] | None = None,
    sound: Fraction | None = None,
    settings: Mapping[str, Any] | None = None,
    frame_settings: Mapping[str, Any] | None = None,
    file: Any = None,
    format: str | None = None,
) -> list[Planes]:
    """Write a video, and `sound` seconds of silence; `times` in `time_base`, by default one per frame."""
    pictures = [sample_planes(pix_fmt, number, *size) for number in range(frames)]
    base = time_base or Fraction(1, rate)
    times = times or range(frames)
    with av.open(
        file or str(path), "w", format=format, container_options=dict(container or {})
    ) as output:
        stream = output.add_stream(codec, rate=rate, options=dict(options or {}))
        stream.width, stream.height, stream.pix_fmt = *size, pix_fmt
        stream.codec_context.thread_count = 1
        stream.time_base = stream.codec_context.time_base = base
        stream.codec_context.flags |= av.codec.context.Flags.frame_duration
        for name, value in (settings or {}).items():
            target = stream if name == "display" else stream.codec_context
            setattr(
                target, name, value
            ) if name != "display" else stream.set_display_rotation(**value)
        silence = output.add_stream("aac", rate=48000, layout="mono") if sound else None
        for number, planes in enumerate(pictures):
            frame = video_frame(pix_fmt, planes, times[number])
            frame.time_base = base
            frame.duration = last_duration or round(1 / (rate * base))
            if number + 1 < frames:
                frame.duration = times[number + 1] - times[number]
            for name, value in (frame_settings or {}).items():
                setattr(frame, name, value)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
        if silence is not None and sound:
            output.mux(sound_packets(silence, int(sound * 48000)))
    return pictures


def sound_packets(
    stream: Any,
    count: int,
    start: int = 0,
    step: int = 1024,
    fill: Callable[[int], bytes] = bytes,
) -> list[Any]:
    """Encode at least `count` samples in frames of `step`: of silence, unless `fill` gives other bytes for a
    plane of that size.
    """
    packets, rate = [], stream.rate
    for first in range(start, start + count, step):
        frame = av.AudioFrame(stream.format.name, stream.layout.name, step)
        for plane in frame.planes:
            plane.update(fill(plane.buffer_size))
        frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), first
        packets += stream.encode(frame)
    return packets + stream.encode(None)


def noise() -> Callable[[int], bytes]:
    """Give other bytes each time, which are small numbers in any format of samples."""
    chance = np.random.default_rng(0)
    return lambda size: chance.integers(0, 2, size, np.uint8).tobytes()


def encoded(
    codec: str,
    frames: Iterable[av.VideoFrame],
    options: Mapping[str, str] | None = None,
) -> list[Any]:
    """The packets of frames, of the size and pixel format of the first one, outside any container."""
    first, *others = frames
    context: Any = av.CodecContext.create(codec, "w")
    context.width, context.height, context.pix_fmt = (
        first.width,
        first.height,
        first.format.name,
    )
    context.time_base, context.framerate, context.options = (
        Fraction(1, 25),
        Fraction(25),
        dict(options or {}),
    )
    return [
        packet for frame in [first, *others, None] for packet in context.encode(frame)
    ]


def with_bytes(packet: av.Packet, data: bytes) -> av.Packet:
    """A packet of other data with the times of this one."""
    changed = av.Packet(data)
    changed.pts, changed.dts, changed.time_base = (
        packet.pts,
        packet.dts,
        packet.time_base,
    )
    changed.duration, changed.is_keyframe = packet.duration, packet.is_keyframe
    return changed


def cut_short(path: Path, share: float = 0.5) -> None:
    """Leave the first part of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def write_stream(
    path: Path,
    frames: Iterable[av.VideoFrame],
    codec: str = "ffv1",
    options: Mapping[str, str] | None = None,
    **settings: Any,
) -> Path:
    """Write frames at 25 per second, of the size and pixel format of the first one."""
    first, *others = frames
    with av.open(str(path), "w", **settings) as output:
        stream = output.add_stream(codec, rate=25, options=dict(options or {}))
        stream.width, stream.height, stream.pix_fmt = (
            first.width,
            first.height,
            first.format.name,
        )
        for number, frame in enumerate([first, *others]):
            frame.pts = number
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def copy_packets(
    source: Path,
    output: Path,
    change: Callable[[av.Packet], Iterable[av.Packet]] = lambda packet: [packet],
    **settings: Any,
) -> Path:
    """Copy the packets of a video to another file, each as what `change` makes of it."""
    with (
        av.open(str(source)) as opened,
        av.open(str(output), "w", **settings) as written,
    ):
        stream = written.add_stream_from_template(opened.streams.video[0])
        for packet in opened.demux(video=0):
            for changed in change(packet) if packet.size else ():
                changed.stream = stream
                written.mux_one(changed)
    return output
