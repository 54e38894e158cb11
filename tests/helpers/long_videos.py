"""A tiny video of 27 s: frames of varying length, sound of noise, and more streams if asked for."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from sample_videos import noise, sample_planes, sound_packets, video_frame

LONG = [0, 700, 1400, 2000, 2600, 3500, 4000, 9000]  # ms
LONG += [12100, 12300, 12900, 13300, 14000, 15000, 16000, 23000, 26000]


def long_video(
    path: Path,
    *,
    times: list[int] = LONG,
    sound: str = "pcm_s16le",
    text: str | None = None,
    angle: bool = False,
    cover: bool = False,
) -> Path:
    """A video of varying rate with sound, chapters that meet at 5 and 12.5 s, and statistics of streams."""
    with av.open(str(path), "w") as output:
        video = output.add_stream(
            "libx264",
            rate=25,
            options={"qp": "0", "preset": "ultrafast", "g": "4", "bf": "2"},
        )
        video.width, video.height, video.pix_fmt = 32, 16, "yuv420p"
        video.time_base = video.codec_context.time_base = Fraction(1, 1000)
        audio = output.add_stream(sound, rate=16000, layout="mono")
        if path.suffix == ".mkv":
            audio.metadata.update({"language": "ita", "BPS": "256000"})
        texts = output.add_mux_stream(text) if text else None
        second = (
            output.add_stream("mpeg4", rate=1, options={"g": "9", "bf": "2"})
            if angle
            else None
        )
        if second:
            second.width, second.height, second.pix_fmt = 32, 16, "yuv420p"
        if texts:
            texts.time_base = Fraction(1, 1000)
        marks = [(0, 5000), (5000, 12500), (12500, 27000)]
        output.set_chapters(
            [
                {
                    "id": n,
                    "start": a,
                    "end": b,
                    "time_base": Fraction(1, 1000),
                    "metadata": {"title": str(n)},
                }
                for n, (a, b) in enumerate(marks)
            ]
        )
        packets: list[Any] = []
        for number, time in enumerate(times):
            frame = video_frame(
                "yuv420p", sample_planes("yuv420p", number, 32, 16), time
            )
            frame.time_base = Fraction(1, 1000)
            packets += video.encode(frame)
        packets += video.encode(None)
        packets += sound_packets(audio, 27 * 16000, step=4000, fill=noise())
        for number in range(27 if second else 0):
            packets += second.encode(
                video_frame("yuv420p", sample_planes("yuv420p", number, 32, 16), number)
            )
        packets += second.encode(None) if second else []
        for start, duration in (
            ((500, 12000), (13000, 500), (15500, 3000)) if texts else ()
        ):
            packet = av.Packet(b"\0\5hello" if text == "mov_text" else b"hello")
            packet.stream, packet.time_base = texts, Fraction(1, 1000)
            packet.pts, packet.dts, packet.duration = start, start, duration
            packets.append(packet)
        if cover:
            packets += cover_packets(output)
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            output.mux(packet)
    return path


def film_of(path: Path, frames: int) -> Path:
    """A video of so many frames at varying times with sound and subtitles."""
    times = np.cumsum(np.random.default_rng(0).integers(30, 60, frames)) - 30
    return long_video(path, times=[int(time) for time in times], text="subrip")


def cover_packets(output: Any) -> list[Any]:
    stream = output.add_stream("mjpeg", rate=1, width=16, height=16)
    stream.pix_fmt, stream.disposition = "yuvj420p", Disposition.attached_pic
    frame = video_frame("yuvj420p", sample_planes("yuvj420p", 0, 16, 16), 0)
    return [*stream.encode(frame), *stream.encode(None)]
