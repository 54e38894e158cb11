"""Damaged inputs: cut short, with wrong bytes among their pictures, with false headers."""

import struct
from collections.abc import Iterator
from functools import partial

import odd_files as files
from odd_case import NO_HEADER, Case, damaged, kept, maybe_damaged, of_bytes, of_clip, refused
from odd_files import box, cut, cut_in, flipped, flipped_in, in_box, made, numbers, overwritten, places
from odd_h264 import h264_of_size


def cuts() -> Iterator[Case]:
    """Files that end too early."""
    part = partial(of_clip, "cut short")
    yield part(
        "MP4 in the middle of its index",
        "mp4",
        lambda data: data[: box(data, "moov").stop // 2],
        refused("ends before its first frame"),
    )
    yield part(
        "MP4 behind its index",
        "mp4",
        lambda data: data[: box(data, "moov").stop],
        refused("0 frames that can be decoded"),
    )
    for packet, frames in ((1, 1), (6, 6), (11, 11)):
        yield part(
            f"MP4 in packet {packet} of 12",
            "mp4",
            partial(cut_in, packet=packet),
            damaged(frames, "cut short: [0-9]+ bytes"),
        )
    yield part("MP4 by its last byte", "mp4", lambda data: data[:-1], damaged(11, "cut short: 1 bytes"))
    yield part("MP4, index last", "mp4, index last", partial(cut, part=0.7), refused(NO_HEADER))
    yield part(
        "MP4, index last, by its last bytes",
        "mp4, index last",
        lambda data: data[:-9],
        damaged(12, "cut short: 9 bytes"),
    )
    for packet, frames in ((3, 3), (9, 9)):
        yield part(
            f"fragmented MP4 in packet {packet}",
            "fragments",
            partial(cut_in, packet=packet),
            damaged(frames, "cut short"),
        )
    yield part("MKV in its header", "mkv", lambda data: data[:40], refused("ends before its first frame"))
    for packet, frames in ((0, 0), (2, 2), (8, 8)):
        outcome = damaged(frames, "cut short") if frames else refused("0 frames that can be decoded")
        yield part(f"MKV in packet {packet}", "mkv", partial(cut_in, packet=packet), outcome)
    yield part("MKV of FFV1 in packet 5", "ffv1", partial(cut_in, packet=5), damaged(5, "cut short"))
    yield part("WebM in packet 5", "webm", partial(cut_in, packet=5), damaged(5, "cut short"))
    yield part("TS in packet 7", "ts", partial(cut_in, packet=7), damaged(8, "damaged"))
    yield part("MPEG-2 TS in packet 7", "mpeg2 ts", partial(cut_in, packet=7), damaged(8, "damaged"))
    yield part("AVI in packet 4", "avi", partial(cut_in, packet=4), damaged(5, "cut short"))
    yield part("AVI in its header", "avi", lambda data: data[:200], refused("video.avi"))
    yield part("ProRes MOV, index last", "mov", partial(cut, part=0.5), refused(NO_HEADER))
    yield part("FLV", "flv", partial(cut, part=0.5), damaged(3, "damaged"))
    yield part("MPEG-2 program stream", "mpg", partial(cut, part=0.5), damaged(5, "damaged"))
    yield part("raw H.264", "h264", partial(cut, part=0.5), damaged(7, "damaged"))
    yield part("raw MPEG-2", "mpeg2", partial(cut, part=0.5), damaged(4, "damaged"))
    yield part("y4m in a frame", "y4m", partial(cut_in, packet=6), damaged(6, "damaged"))
    yield part("GIF", "gif", partial(cut, part=0.5), damaged(6, "damaged"))
    yield part("NUT of FFV1", "nut", partial(cut_in, packet=6), damaged(6, "damaged"))


def bits() -> Iterator[Case]:
    """Files with wrong bytes among their pictures."""
    part = partial(of_clip, "wrong bytes", apart=True)
    for packet in (0, 3, 11):
        yield part(
            f"FFV1, one bit in packet {packet}",
            "ffv1",
            partial(flipped_in, packet=packet),
            damaged(12, "damaged"),
        )
    for kind in (
        "mp4",
        "mkv",
        "ts",
        "fragments",
        "hevc",
        "avi",
        "mpeg2 ts",
        "webm",
        "vp8",
        "mov",
        "mjpeg",
        "flv",
    ):
        yield part(
            f"{kind}: 12 bits in packet 6", kind, partial(flipped_in, packet=6, count=12), maybe_damaged(12)
        )
    yield part(
        "AV1: 12 bits in packet 6",
        "av1",
        partial(flipped_in, packet=6, count=12),
        damaged(11, "1 frame could not be decoded"),
    )
    yield part(
        "H.264: 12 bits in the first picture",
        "mp4",
        partial(flipped_in, packet=0, count=12),
        maybe_damaged(12),
    )
    for kind, frames in (("mp4", 12), ("ts", 11), ("avi", 12), ("mpeg2 ts", 12), ("mov", 12), ("mjpeg", 12)):
        yield part(
            f"{kind}: half of packet 6 is noise",
            kind,
            partial(flipped_in, packet=6, count=9999),
            damaged(frames, "damaged"),
        )
    for kind in ("mkv", "hevc", "webm"):
        yield part(
            f"{kind}: half of packet 6 is noise",
            kind,
            partial(flipped_in, packet=6, count=9999),
            maybe_damaged(12),
        )
    yield part("APNG: one bit", "apng", partial(flipped_in, packet=6), damaged(11, "damaged"))
    yield part(
        "H.264: a picture of zeros",
        "mp4",
        partial(zeroed, packet=6),
        damaged(11, "1 frame could not be decoded"),
    )
    yield part("H.264: the key picture of zeros", "mp4", partial(zeroed, packet=0), damaged(7, "damaged"))
    yield part(
        "MKV: 2000 bytes of zeros",
        "mkv",
        lambda data: overwritten(data, 6000, bytes(2000)),
        damaged(6, "damaged"),
    )
    yield part(
        "MKV: 500 bytes are missing", "mkv", lambda data: data[:6000] + data[6500:], damaged(11, "damaged")
    )
    yield part(
        "MKV: 500 bytes too many",
        "mkv",
        lambda data: data[:6000] + data[100:600] + data[6000:],
        damaged(11, "damaged"),
    )
    yield part(
        "TS: a packet is missing",
        "ts",
        lambda data: files.without(data, range(188 * 20, 188 * 21)),
        damaged(12, "damaged"),
    )
    yield part(
        "TS: one byte is missing",
        "ts",
        lambda data: files.without(data, range(5000, 5001)),
        damaged(12, "damaged"),
    )
    yield part("TS: packets change places", "ts", exchanged, damaged(12, "damaged"))
    yield part(
        "AVI: 100 bytes of its index",
        "avi",
        lambda data: overwritten(data, len(data) - 150, bytes(100)),
        kept(12),
    )


def zeroed(data: bytes, packet: int) -> bytes:
    place = places(data)[packet]
    return overwritten(data, place.start + 4, bytes(len(place) - 4))


def exchanged(data: bytes) -> bytes:
    starts = files.ts_packets(data, 256)
    first = next(start for start in starts[30:] if start + 188 in starts)
    second = first + 188
    return data[:first] + data[second : second + 188] + data[first:second] + data[second + 188 :]


def headers() -> Iterator[Case]:
    """Files whose header says something else than is true."""
    part = partial(of_clip, "wrong header", apart=True)
    yield part(
        "MP4 says 65535x65535",
        "mp4",
        lambda data: overwritten(data, box_entry(data) + 24, numbers(-1)),
        kept(12),
    )
    yield part(
        "MP4 says 0x0", "mp4", lambda data: overwritten(data, box_entry(data) + 24, bytes(4)), kept(12)
    )
    yield part(
        "MP4 says another codec",
        "mp4",
        lambda data: files.swapped(data, b"avc1", b"mp4v"),
        refused("video.mp4"),
    )
    yield part(
        "MP4 says an unknown codec",
        "mp4",
        lambda data: files.swapped(data, b"avc1", b"zzzz"),
        refused("no decoder"),
    )
    yield part(
        "MP4: time scale 0", "mp4", lambda data: in_box(data, "mdhd", 12, numbers(0)), refused("0 frames")
    )
    yield part(
        "MP4: time scale 1", "mp4", lambda data: in_box(data, "mdhd", 12, numbers(1)), refused("0 frames")
    )
    yield part(
        "MP4: lasts 10 times as long", "mp4", lambda data: in_box(data, "mdhd", 16, numbers(61440)), kept(12)
    )
    yield part(
        "MP4: 4294967295 samples",
        "mp4",
        lambda data: in_box(data, "stsz", 8, numbers(-1)),
        refused("video.mp4"),
    )
    yield part(
        "MP4: samples of 4 GB", "mp4", lambda data: in_box(data, "stsz", 12, numbers(-1)), refused("0 frames")
    )
    beyond = damaged(5, "damaged")
    yield part(
        "MP4: a later sample of 2 GB",
        "mp4",
        lambda data: in_box(data, "stsz", 32, numbers((1 << 31) - 99)),
        beyond,
    )
    yield part(
        "MP4: samples lie behind its end",
        "mp4",
        lambda data: in_box(data, "stco", 8, numbers(1 << 30)),
        refused("0 frames"),
    )
    yield part(
        "MP4: no samples", "mp4", lambda data: in_box(data, "stts", 4, numbers(0)), refused("0 frames")
    )
    yield part(
        "MP4: frames last 0",
        "mp4",
        lambda data: in_box(data, "stts", 12, numbers(0)),
        refused("is not after the one before"),
    )
    yield part(
        "MP4: a box of 4 GB",
        "mp4",
        lambda data: overwritten(data, box(data, "moov/trak").start, numbers(-1)),
        kept(12),
    )
    yield part(
        "MP4: a box of 0 bytes",
        "mp4",
        lambda data: overwritten(data, box(data, "minf").start, numbers(0)),
        kept(12),
    )
    yield part(
        "MP4: no head of the codec",
        "mp4",
        lambda data: files.swapped(data, b"avcC", b"free"),
        refused("video.mp4"),
    )
    yield part(
        "MP4: 20 bits of the index",
        "mp4",
        lambda data: flipped(data, 20, box(data, "stbl"), 5),
        refused("video.mp4"),
    )
    yield part("MKV: ticks of 0 ns", "mkv", lambda data: files.after(data, "2ad7b1", bytes(3)), kept(12))
    yield part("MKV: no doctype", "mkv", lambda data: files.swapped(data, b"matroska", b"xatroska"), kept(12))
    yield part(
        "MKV: another doctype",
        "mkv",
        lambda data: files.swapped(data, b"matroska", b"webm\0\0\0\0"),
        kept(12),
    )
    yield part(
        "AVI: 0 frames per second",
        "avi",
        lambda data: overwritten(data, data.index(b"strh") + 32, bytes(4)),
        kept(12),
    )
    yield part(
        "AVI: 1000 frames in the header",
        "avi",
        lambda data: overwritten(data, data.index(b"avih") + 24, b"\xe8\3\0\0"),
        kept(12),
    )
    yield part(
        "y4m says 30000x30000",
        "y4m",
        lambda data: data.replace(b"W64 H48", b"W30000 H30000"),
        refused("video.y4m"),
    )
    yield part(
        "APNG says 60000x60000",
        "apng",
        lambda data: overwritten(data, data.index(b"IHDR") + 4, numbers(60000, 60000)),
        refused("video.apng"),
    )
    huge = partial(of_bytes, "wrong header", name="video.avi", apart=True)
    yield huge(
        "AVI of raw video says 30000x30000",
        data=lambda: sized_avi("rawvideo", 30000),
        outcome=refused("0 frames"),
    )
    yield huge(
        "AVI of FFV1 says 16000x16000",
        data=lambda: sized_avi("ffv1", 16000),
        outcome=refused("pictures of 16000x16000, more than"),
    )
    slow = partial(of_bytes, "wrong header", name="video.ts", apart=True, slow=True)
    yield slow(
        "H.264 says 2048x2048", data=lambda: h264_of_size(2048), outcome=damaged(3, "3 marked corrupt")
    )
    yield slow(
        "H.264 says 16000x16000",
        data=lambda: h264_of_size(16000),
        outcome=refused("pictures of 16000x16000, more than"),
    )
    yield part("TS: no table of programs", "ts", without_tables, kept(12))


def sized_avi(codec: str, size: int) -> bytes:
    data = made(".avi", 3, codec)
    return overwritten(data, data.index(b"strf") + 12, struct.pack("<II", size, size))


def box_entry(data: bytes) -> int:
    """Where the content of the first sample entry of an MP4 begins."""
    return box(data, "stsd").start + 8 + 8 + 8


def without_tables(data: bytes) -> bytes:
    tables = {*files.ts_packets(data, 0), *files.ts_packets(data, 4096)}
    return b"".join(data[start : start + 188] for start in files.ts_packets(data) if start not in tables)
