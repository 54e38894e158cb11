"""Small clips as bytes, and edits of such bytes: cuts, flipped bits, MP4's boxes, packets of a TS."""

import io
import os
import random
import struct
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
from sample_videos import encoded, sample_planes, video_frame, write_video

os.environ.setdefault("SVT_LOG", "1")  # errors only
TS_PACKET = 188
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov"}
# x264's bits differ from processor to processor unless its assembly is
# held to one kind.
X264 = {
    "g": "6",
    "bf": "2",
    "preset": "veryfast",
    "x264-params": "asm=AVX2:log-level=-1",
}
X265 = {"x265-params": "log-level=none:keyint=6", "preset": "ultrafast"}
# Settings of clips by a short name.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mp4": (".mp4", "libx264", {"options": X264, "container": {"movflags": "faststart"}}),
    "mp4, index last": (".mp4", "libx264", {"options": X264}),
    "fragments": (".mp4", "libx264", {"options": X264, "container": FRAGMENTS}),
    "mkv": (".mkv", "libx264", {"options": X264}),
    "ffv1": (".mkv", "ffv1", {"options": {"level": "3", "slices": "4", "slicecrc": "1"}}),
    "ts": (".ts", "libx264", {"options": X264}),
    "mpeg2 ts": (".ts", "mpeg2video", {"options": {"g": "6", "bf": "2"}}),
    "mpg": (".mpg", "mpeg2video", {"options": {"g": "6", "bf": "0"}}),
    "avi": (".avi", "mpeg4", {"options": {"g": "6"}}),
    "flv": (".flv", "flv1", {}),
    "mov": (".mov", "prores_ks", {"pix_fmt": "yuv422p10le"}),
    "webm": (".webm", "libvpx-vp9", {"options": {"cpu-used": "8", "lag-in-frames": "0"}}),
    "vp8": (".webm", "libvpx", {"options": {"cpu-used": "8"}}),
    "hevc": (".mp4", "libx265", {"options": X265}),
    "av1": (".mp4", "libsvtav1", {"options": {"preset": "12"}}),
    "mjpeg": (".mkv", "mjpeg", {"pix_fmt": "yuvj420p"}),
    "h264": (".h264", "libx264", {"options": X264}),
    "mpeg2": (".m2v", "mpeg2video", {"options": {"g": "6"}}),
    "y4m": (".y4m", "wrapped_avframe", {}),
    "gif": (".gif", "gif", {"pix_fmt": "rgb8", "rate": 10}),
    "apng": (".apng", "apng", {"pix_fmt": "rgb24"}),
    "nut": (".nut", "ffv1", {}),
    "asf": (".wmv", "wmv2", {}),
    "mxf": (".mxf", "mpeg2video", {}),
    "ivf": (".ivf", "libvpx", {}),
    "ogv": (".ogv", "libvpx", {}),
    "m4v": (".m4v", "mpeg4", {}),
    "3gp": (".3gp", "h263", {"size": (128, 96)}),
}  # fmt: skip


@cache
def clip(kind: str, frames: int = 12, size: tuple[int, int] | None = None) -> bytes:
    """A clip of a kind of `KINDS`, 25 frames per second unless the kind says otherwise."""
    suffix, codec, settings = KINDS[kind]
    return made(suffix, frames, codec, **(settings | ({"size": size} if size else {})))


def made(suffix: str, *arguments: Any, **settings: Any) -> bytes:
    """The bytes that `write_video` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"made{suffix}")
        write_video(path, *arguments, **settings)
        return path.read_bytes()


def cut(data: bytes, part: Fraction | float) -> bytes:
    """The first `part` of it."""
    return data[: int(len(data) * part)]


def places(data: bytes) -> list[range]:
    """Where each packet of the video lies, in the order of decoding; of containers that say so."""
    with av.open(io.BytesIO(data)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        return [
            range(packet.pos, packet.pos + packet.size)
            for packet in packets
            if packet.pos is not None
        ]


def cut_in(data: bytes, packet: int) -> bytes:
    """All before the middle of a packet."""
    place = places(data)[packet]
    return data[: (place.start + place.stop) // 2]


def overwritten(data: bytes, at: int, by: bytes) -> bytes:
    assert at >= 0 and at + len(by) <= len(data)
    return data[:at] + by + data[at + len(by) :]


def flipped(
    data: bytes, count: int, within: range | None = None, seed: int = 0
) -> bytes:
    """`count` single bits flipped in a part of it, always the same ones."""
    chance, changed = random.Random(seed), bytearray(data)
    for _ in range(count):
        changed[chance.choice(within or range(len(data)))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def flipped_in(data: bytes, packet: int, count: int = 1, seed: int = 0) -> bytes:
    """Bits flipped in the second half of a packet, behind its heads."""
    place = places(data)[packet]
    return flipped(
        data, count, range((place.start + place.stop) // 2, place.stop), seed
    )


def without(data: bytes, part: range) -> bytes:
    return data[: part.start] + data[part.stop :]


# MP4


def boxes(
    data: bytes, start: int = 0, stop: int | None = None, inside: str = ""
) -> Iterator[tuple[str, int, int]]:
    """(path such as "moov/trak/tkhd", start, size) of each box."""
    stop = len(data) if stop is None else stop
    while start + 8 <= stop:
        size, name = struct.unpack_from(">I4s", data, start)
        path = f"{inside}{name.decode('latin-1')}"
        yield path, start, size
        if name in (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts"):
            yield from boxes(data, start + 8, start + size, f"{path}/")
        if size < 8:
            return
        start += size


def box(data: bytes, name: str) -> range:
    """The first box whose path ends so."""
    return next(
        range(start, start + size)
        for path, start, size in boxes(data)
        if path.endswith(name)
    )


def in_box(data: bytes, name: str, offset: int, by: bytes) -> bytes:
    """Overwrite bytes of a box's content; in boxes with a version, the content begins with its 4 bytes."""
    return overwritten(data, box(data, name).start + 8 + offset, by)


def numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *(value & 0xFFFFFFFF for value in values))


def with_edits(data: bytes, *edits: tuple[int, int]) -> bytes:
    """An MP4, index last, with an edit list of (duration, start) in ticks of movie and track; -1: empty."""
    trak, moov = box(data, "moov/trak"), box(data, "moov")
    entries = b"".join(numbers(duration, start, 1 << 16) for duration, start in edits)
    elst = b"elst" + numbers(0, len(edits)) + entries
    edts = b"edts" + numbers(len(elst) + 4) + elst
    edts = numbers(len(edts) + 4) + edts
    old = [
        range(start, start + size)
        for path, start, size in boxes(data)
        if path == "moov/trak/edts"
    ]
    grown = len(edts) - sum(map(len, old))
    data = overwritten(data, trak.start, numbers(len(trak) + grown))
    data = overwritten(data, moov.start, numbers(len(moov) + grown))
    data = without(data, old[0]) if old else data
    at = old[0].start if old else box(data, "moov/trak/tkhd").stop
    return data[:at] + edts + data[at:]


# Matroska, by the bytes of an element's name; AVI, by those of a chunk's


def after(data: bytes, name: str, by: bytes, skip: int = 1, which: int = 0) -> bytes:
    """Overwrite what comes `skip` bytes behind the `which`-th place where some bytes (in hex) are."""
    key = bytes.fromhex(name)
    at = -1
    for _ in range(which + 1):
        at = data.index(key, at + 1)
    return overwritten(data, at + len(key) + skip, by)


def swapped(data: bytes, old: bytes, new: bytes) -> bytes:
    """All places of `old`, of which there must be one, overwritten by as many bytes."""
    assert len(old) == len(new) and old in data
    return data.replace(old, new)


# Transport streams


def ts_packets(data: bytes, pid: int | None = None) -> list[int]:
    """Where packets begin, of all programs or one."""
    starts = range(0, len(data) - TS_PACKET + 1, TS_PACKET)
    return [
        at for at in starts if pid in (None, (data[at + 1] & 0x1F) << 8 | data[at + 2])
    ]


def joined(
    options: Sequence[dict[str, str]] = ({}, {}, {}),
    sizes: Sequence[tuple[int, int]] = (),
    pix_fmts: Sequence[str] = (),
) -> bytes:
    """A transport stream of H.264 that is encoded in another way from its 12th, 24th ... picture on."""
    memory, count = io.BytesIO(), len(sizes or pix_fmts or options)
    with av.open(memory, "w", format="mpegts") as output:
        stream = output.add_mux_stream("h264", rate=25)
        stream.time_base = Fraction(1, 25)
        for part in range(count):
            size = sizes[part] if sizes else (64, 48)
            pix_fmt = pix_fmts[part] if pix_fmts else "yuv420p"
            planes = [sample_planes(pix_fmt, number, *size) for number in range(12)]
            frames = [
                video_frame(pix_fmt, each, number)
                for number, each in enumerate(planes, 12 * part)
            ]
            for packet in encoded(
                "libx264", frames, {"bf": "0", "preset": "ultrafast", **options[part]}
            ):
                packet.stream, packet.time_base = stream, Fraction(1, 25)
                output.mux_one(packet)
    return memory.getvalue()
