"""Damaged inputs: cut short, with wrong bytes among their pictures, with false headers."""

import struct
from collections.abc import Callable, Iterator
from functools import partial

import odd_files as files
from odd_case import (
    NO_INDEX,
    Case,
    Outcome,
    damaged,
    kept,
    maybe_damaged,
    of_bytes,
    of_clip,
    refused,
)
from odd_files import (
    box,
    cut,
    cut_in,
    flipped,
    flipped_in,
    in_box,
    made,
    numbers,
    overwritten,
    places,
)
from odd_h264 import h264_of_size

Edit = Callable[[bytes], bytes]
KEPT, DAMAGED, MAYBE = kept(12), damaged(12, "damaged"), maybe_damaged(12)
NO_FRAMES, REFUSED_MP4 = refused("0 frames"), refused("video.mp4")


def short(frames: int, says: str = "cut short") -> Outcome:
    return damaged(frames, says)


def broken(frames: int) -> Outcome:
    return damaged(frames, "damaged")


def within(packet: int) -> Edit:
    return partial(cut_in, packet=packet)


def bits_of(packet: int, count: int = 1) -> Edit:
    return partial(flipped_in, packet=packet, count=count)


def up_to(place: Callable[[bytes], int]) -> Edit:
    """Cut a file at a place of it."""
    return lambda data: data[: place(data)]


def at(place: int | Callable[[bytes], int], by: bytes) -> Edit:
    """Overwrite bytes at a place."""
    return lambda data: overwritten(data, place(data) if callable(place) else place, by)


def without(start: int, count: int) -> Edit:
    return lambda data: files.without(data, range(start, start + count))


def boxed(name: str, offset: int, value: int) -> Edit:
    """Overwrite a number in a box of MP4."""
    return lambda data: in_box(data, name, offset, numbers(value))


def swap(old: bytes, new: bytes) -> Edit:
    return lambda data: files.swapped(data, old, new)


def behind(name: bytes, offset: int) -> Callable[[bytes], int]:
    return lambda data: data.index(name) + offset


def cuts() -> Iterator[Case]:
    """Files that end too early."""
    part = partial(of_clip, "cut short")
    early = refused("ends before its first frame")
    half, none = partial(cut, part=0.5), refused("0 frames that can be decoded")
    middle = up_to(lambda data: box(data, "moov").stop // 2)
    yield part("MP4 in the middle of its index", "mp4", middle, early)
    yield part(
        "MP4 behind its index", "mp4", up_to(lambda data: box(data, "moov").stop), none
    )
    for packet in (1, 6, 11):
        missing = short(packet, "cut short: [0-9]+ bytes")
        yield part(f"MP4 in packet {packet} of 12", "mp4", within(packet), missing)
    yield part(
        "MP4 by its last byte",
        "mp4",
        lambda data: data[:-1],
        short(11, "cut short: 1 bytes"),
    )
    yield part(
        "MP4, index last", "mp4, index last", partial(cut, part=0.7), refused(NO_INDEX)
    )
    last = short(12, "cut short: 9 bytes")
    yield part(
        "MP4, index last, by its last bytes",
        "mp4, index last",
        lambda data: data[:-9],
        last,
    )
    for packet in (3, 9):
        yield part(
            f"fragmented MP4 in packet {packet}",
            "fragments",
            within(packet),
            short(packet),
        )
    yield part("MKV in its header", "mkv", lambda data: data[:40], early)
    for packet in (0, 2, 8):
        yield part(
            f"MKV in packet {packet}",
            "mkv",
            within(packet),
            short(packet) if packet else none,
        )
    yield part("MKV of FFV1 in packet 5", "ffv1", within(5), short(5))
    yield part("WebM in packet 5", "webm", within(5), short(5))
    yield part("TS in packet 7", "ts", within(7), broken(8))
    yield part("MPEG-2 TS in packet 7", "mpeg2 ts", within(7), broken(8))
    yield part("AVI in packet 4", "avi", within(4), short(5))
    yield part(
        "AVI in its header", "avi", lambda data: data[:200], refused("video.avi")
    )
    yield part("ProRes MOV, index last", "mov", half, refused(NO_INDEX))
    yield part("FLV", "flv", half, broken(3))
    yield part("MPEG-2 program stream", "mpg", half, broken(5))
    yield part("raw H.264", "h264", half, broken(7))
    yield part("raw MPEG-2", "mpeg2", half, broken(4))
    yield part("y4m in a frame", "y4m", within(6), short(6))
    yield part("GIF", "gif", half, broken(6))
    yield part("NUT of FFV1", "nut", within(6), broken(6))


def bits() -> Iterator[Case]:
    """Files with wrong bytes among their pictures."""
    part = partial(of_clip, "wrong bytes", apart=True)
    undecoded = damaged(11, "1 frame could not be decoded")
    for packet in (0, 3, 11):
        yield part(
            f"FFV1, one bit in packet {packet}", "ffv1", bits_of(packet), DAMAGED
        )
    for kind in (
        *("mp4", "mkv", "ts", "fragments", "hevc", "avi"),
        *("mpeg2 ts", "webm", "vp8", "mov", "mjpeg", "flv"),
    ):
        yield part(f"{kind}: 12 bits in packet 6", kind, bits_of(6, 12), MAYBE)
    yield part("AV1: 12 bits in packet 6", "av1", bits_of(6, 12), undecoded)
    yield part("H.264: 12 bits in the first picture", "mp4", bits_of(0, 12), MAYBE)
    for kind in ("mp4", "ts", "avi", "mpeg2 ts", "mov", "mjpeg"):
        outcome = broken(11 if kind == "ts" else 12)
        yield part(
            f"{kind}: half of packet 6 is noise", kind, bits_of(6, 9999), outcome
        )
    for kind in ("mkv", "hevc", "webm"):
        yield part(f"{kind}: half of packet 6 is noise", kind, bits_of(6, 9999), MAYBE)
    yield part("APNG: one bit", "apng", bits_of(6), broken(11))
    yield part("H.264: a picture of zeros", "mp4", partial(zeroed, packet=6), undecoded)
    yield part(
        "H.264: the key picture of zeros", "mp4", partial(zeroed, packet=0), broken(7)
    )
    yield part("MKV: 2000 bytes of zeros", "mkv", at(6000, bytes(2000)), broken(6))
    yield part("MKV: 500 bytes are missing", "mkv", without(6000, 500), broken(11))
    more = lambda data: data[:6000] + data[100:600] + data[6000:]  # noqa: E731
    yield part("MKV: 500 bytes too many", "mkv", more, broken(11))
    yield part("TS: a packet is missing", "ts", without(188 * 20, 188), DAMAGED)
    yield part("TS: one byte is missing", "ts", without(5000, 1), DAMAGED)
    yield part("TS: packets change places", "ts", exchanged, DAMAGED)
    yield part(
        "AVI: 100 bytes of its index",
        "avi",
        at(lambda data: len(data) - 150, bytes(100)),
        KEPT,
    )


def zeroed(data: bytes, packet: int) -> bytes:
    place = places(data)[packet]
    return overwritten(data, place.start + 4, bytes(len(place) - 4))


def exchanged(data: bytes) -> bytes:
    starts = files.ts_packets(data, 256)
    first = next(start for start in starts[30:] if start + 188 in starts)
    second = first + 188
    return (
        data[:first]
        + data[second : second + 188]
        + data[first:second]
        + data[second + 188 :]
    )


def headers() -> Iterator[Case]:
    """Files whose header says something else than is true."""
    part = partial(of_clip, "wrong header", apart=True)
    yield part("MP4 says 65535x65535", "mp4", at(sample_entry, numbers(-1)), KEPT)
    yield part("MP4 says 0x0", "mp4", at(sample_entry, bytes(4)), KEPT)
    yield part("MP4 says another codec", "mp4", swap(b"avc1", b"mp4v"), REFUSED_MP4)
    yield part(
        "MP4 says an unknown codec",
        "mp4",
        swap(b"avc1", b"zzzz"),
        refused("no decoder"),
    )
    yield part("MP4: time scale 0", "mp4", boxed("mdhd", 12, 0), NO_FRAMES)
    yield part("MP4: time scale 1", "mp4", boxed("mdhd", 12, 1), NO_FRAMES)
    yield part("MP4: lasts 10 times as long", "mp4", boxed("mdhd", 16, 61440), KEPT)
    yield part("MP4: 4294967295 samples", "mp4", boxed("stsz", 8, -1), REFUSED_MP4)
    yield part("MP4: samples of 4 GB", "mp4", boxed("stsz", 12, -1), NO_FRAMES)
    yield part(
        "MP4: a later sample of 2 GB",
        "mp4",
        boxed("stsz", 32, (1 << 31) - 99),
        broken(5),
    )
    yield part(
        "MP4: samples lie behind its end", "mp4", boxed("stco", 8, 1 << 30), NO_FRAMES
    )
    yield part("MP4: no samples", "mp4", boxed("stts", 4, 0), NO_FRAMES)
    yield part(
        "MP4: frames last 0",
        "mp4",
        boxed("stts", 12, 0),
        refused("is not after the one before"),
    )
    yield part(
        "MP4: a box of 4 GB",
        "mp4",
        at(lambda data: box(data, "moov/trak").start, numbers(-1)),
        KEPT,
    )
    yield part(
        "MP4: a box of 0 bytes",
        "mp4",
        at(lambda data: box(data, "minf").start, numbers(0)),
        KEPT,
    )
    yield part("MP4: no head of the codec", "mp4", swap(b"avcC", b"free"), REFUSED_MP4)
    index = lambda data: flipped(data, 20, box(data, "stbl"), 5)  # noqa: E731
    yield part("MP4: 20 bits of the index", "mp4", index, REFUSED_MP4)
    yield part(
        "MKV: ticks of 0 ns",
        "mkv",
        lambda data: files.after(data, "2ad7b1", bytes(3)),
        KEPT,
    )
    yield part("MKV: no doctype", "mkv", swap(b"matroska", b"xatroska"), KEPT)
    yield part("MKV: another doctype", "mkv", swap(b"matroska", b"webm\0\0\0\0"), KEPT)
    yield part(
        "AVI: 0 frames per second", "avi", at(behind(b"strh", 32), bytes(4)), KEPT
    )
    yield part(
        "AVI: 1000 frames in the header",
        "avi",
        at(behind(b"avih", 24), b"\xe8\3\0\0"),
        KEPT,
    )
    larger = lambda data: data.replace(b"W64 H48", b"W30000 H30000")  # noqa: E731
    yield part("y4m says 30000x30000", "y4m", larger, refused("video.y4m"))
    large = at(behind(b"IHDR", 4), numbers(60000, 60000))
    yield part("APNG says 60000x60000", "apng", large, refused("video.apng"))
    huge = partial(of_bytes, "wrong header", apart=True)
    too_large, raw = (
        refused("pictures of 16000x16000, more than"),
        partial(sized_avi, "rawvideo", 30000),
    )
    yield huge("AVI of raw video says 30000x30000", "video.avi", raw, NO_FRAMES)
    yield huge(
        "AVI of FFV1 says 16000x16000",
        "video.avi",
        partial(sized_avi, "ffv1", 16000),
        too_large,
    )
    marked = damaged(3, "3 marked corrupt")
    yield huge(
        "H.264 says 2048x2048",
        "video.ts",
        partial(h264_of_size, 2048),
        marked,
        slow=True,
    )
    yield huge(
        "H.264 says 16000x16000",
        "video.ts",
        partial(h264_of_size, 16000),
        too_large,
        slow=True,
    )
    yield part("TS: no table of programs", "ts", without_tables, KEPT)


def sized_avi(codec: str, size: int) -> bytes:
    data = made(".avi", 3, codec)
    return overwritten(data, data.index(b"strf") + 12, struct.pack("<II", size, size))


def sample_entry(data: bytes) -> int:
    """Return where the size of the picture is in the first sample entry of an MP4."""
    return box(data, "stsd").start + 8 + 8 + 8 + 24


def without_tables(data: bytes) -> bytes:
    tables = {*files.ts_packets(data, 0), *files.ts_packets(data, 4096)}
    return b"".join(
        data[start : start + 188]
        for start in files.ts_packets(data)
        if start not in tables
    )
