"""Verify the structure of a file by the rules of its container: sizes, counts, checksums and trailers must
fit.

FFmpeg's demuxers read on behind a hole, and end without an error where a download stopped. A cut between two
packets isn't detectable in MPEG-TS, MPEG-PS, DV, RoQ and raw streams, and hardly in NUT and WTV; raw H.264
and HEVC state no sizes at all.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vidrestore.media.file_bytes import LARGEST_INDEX, FileBytes, cut_short, foreign, unfinished
from vidrestore.media.matroska import EBML, walk_matroska

_MP4_BOXES = frozenset(
    b"ftyp styp moov moof mdat sidx ssix emsg prft mfra free skip wide uuid udta meta pdin".split()
)
_GIF_LABELS = (0x01, 0xF9, 0xFE, 0xFF)  # extensions: text, the time of a frame, comment, application
_TS_PACKETS = {188: 0, 192: 4, 204: 0}  # bytes of a packet of MPEG-TS -> place of its first byte, 0x47
_TS_CHUNK = 65536  # packets that are looked at together
_PIDS = 1 << 13
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_ASF_DATA = bytes.fromhex("3626b2758e66cf11a6d900aa0062ce6c")
_MXF_PARTITION = bytes.fromhex("060e2b34020501010d0102010102")
_DV_HEADER = b"\x1f\x07\0"
_DV_FRAMES = {  # (lines: 525 or 625, type of signal) -> bytes of a frame
    (0, 0): 120_000, (1, 0): 144_000, (1, 1): 144_000, (0, 4): 240_000, (1, 4): 288_000,
    (0, 0x14): 480_000, (1, 0x14): 576_000, (0, 0x18): 240_000, (1, 0x18): 288_000,
}  # fmt: skip
_ROQ_CHUNKS = frozenset({0x1001, 0x1002, 0x1011, 0x1012, 0x1013, 0x1020, 0x1021, 0x1030})
_REAL_SLACK = 18  # bytes of a chunk's header that FFmpeg's own muxer counts twice


def broken_structure(path: str) -> Iterator[str]:
    """Yield messages on missing parts of a file, and on bytes between its packets.

    Reads all of MPEG-TS, ASF, OGG and APNG, of others the head of each part.
    """
    if not os.path.isfile(path):
        return
    with open(path, "rb") as opened:
        file = FileBytes(opened)
        head = file.bytes(0, 3 * max(_TS_PACKETS))
        for place, magic, walk in _WALKS:
            if head.startswith(magic, place):
                yield from walk(file)
                return
        for size, first in _TS_PACKETS.items():
            if head[first::size][:2] == b"\x47\x47":
                yield from _transport_stream(file, size, first)
                return


def _mp4(file: FileBytes) -> Iterator[str]:
    """Check boxes; fragments must be numbered, reach the end of the file, and match an index."""
    numbers, places, index, offset = list[int](), set[int](), set[int](), 0
    while offset + 8 <= file.size:
        length, kind = file.number(offset, 4), file.bytes(offset + 4, 4)
        if length == 1:  # the real length follows, in 64 bits
            length = file.number(offset + 8, 8)
        if length == 0 and kind in _MP4_BOXES and not (places or kind == b"moof"):  # up to the end
            length = file.size - offset
        if length < 8 or not (kind in _MP4_BOXES if places else kind.isalnum()):
            break
        if kind == b"moof":
            places.add(offset)
            if file.bytes(offset + 12, 4) == b"mfhd":
                numbers.append(file.number(offset + 20, 4))
        elif kind == b"moov" and offset + length <= file.size:
            yield from _inner_boxes(file, offset + 8, offset + length)
        elif kind == b"mfra":
            index |= _index_places(file.bytes(offset, min(length, LARGEST_INDEX)))
        offset += length
    if offset > file.size:
        yield cut_short(offset - file.size)
    elif places and not file.padded(offset):
        yield foreign(offset)
    lost = sum(after - before - 1 for before, after in pairwise(numbers))
    if lost and all(before < after for before, after in pairwise(numbers)):
        yield f"{lost} of its fragments are missing by their numbers"
    elif len(index) > len(places):
        yield f"{len(index) - len(places)} of its fragments are missing by its index"


def lacks_index(path: str) -> bool:
    """Return True for an MP4 or MOV that is cut short before its index. Raises OSError."""
    with open(path, "rb") as opened:
        file, offset, kinds = FileBytes(opened), 0, set[bytes]()
        while (kind := file.bytes(offset + 4, 4)) in _MP4_BOXES:
            kinds.add(kind)
            length = file.number(offset, 4) or file.size
            offset += max(8, file.number(offset + 8, 8) if length == 1 else length)
    return b"mdat" in kinds and not kinds & {b"moov", b"moof"}


def _inner_boxes(file: FileBytes, offset: int, stop: int) -> Iterator[str]:
    """Yield a message where a box holds something else than boxes; wrong sizes do no harm in the last one."""
    while offset + 8 <= stop:
        length, kind = file.number(offset, 4), file.bytes(offset + 4, 4)
        if length == 1:
            length = file.number(offset + 8, 8)
        if min(kind) < 0x20:
            yield foreign(offset)
            return
        length = length if 8 <= length <= stop - offset else stop - offset
        if kind in (b"trak", b"mdia", b"minf", b"stbl"):
            yield from _inner_boxes(file, offset + 8, offset + length)
        offset += length


def _index_places(box: bytes) -> set[int]:
    """Return the places of fragments that an index (mfra) has."""
    places, offset = set[int](), 8
    while offset + 24 <= len(box):
        length, wide = int.from_bytes(box[offset : offset + 4], "big"), box[offset + 8]
        if box[offset + 4 : offset + 8] == b"tfra":
            sizes = int.from_bytes(box[offset + 16 : offset + 20], "big")
            number = 8 if wide else 4
            entry = 2 * number + sum((sizes >> shift & 3) + 1 for shift in (4, 2, 0))
            count = int.from_bytes(box[offset + 20 : offset + 24], "big")
            starts = range(offset + 24 + number, min(offset + length, len(box)), entry)[:count]
            places |= {int.from_bytes(box[start : start + number], "big") for start in starts}
        if length < 8:
            break
        offset += length
    return places


def _avi(file: FileBytes) -> Iterator[str]:
    """Check chunks, which must be those of declared streams."""
    streams, offset, stop, after = 100, 0, 0, b""
    if (lacking := 8 + file.little(4, 4) - file.size) > 0:
        yield cut_short(lacking)
    while offset + 8 <= file.size:
        head = file.bytes(offset, 40)
        kind, length = head[:4], int.from_bytes(head[4:8], "little")
        if offset >= stop and kind != b"RIFF":
            return  # behind the end, as the file states it
        if kind == b"RIFF":
            stop = offset + 8 + length if length else file.size
        if kind == b"avih":
            streams = int.from_bytes(head[32:36], "little")
        is_generic = kind.isalpha() or kind[:2] == b"ix" or kind == b"idx1"  # JUNK, LIST and others
        is_ours = kind[:2].isdigit() and int(kind[:2]) < streams and kind.replace(b"_", b"").isalnum()
        if after == b"movi" and (not (is_generic or is_ours) or offset + 8 + length > file.size):
            yield foreign(offset)
            return
        if kind in (b"RIFF", b"LIST"):
            after = b"movi" if head[8:12] in (b"movi", b"rec ") else head[8:12]
            offset += 12
        else:
            after = b"" if kind == b"idx1" else after
            offset += 8 + length + length % 2


def _transport_stream(file: FileBytes, size: int, first: int) -> Iterator[str]:
    """Check that packets are in step, and that their counters rise in each stream."""
    counters = _Counters()
    for chunk in range(0, file.size, _TS_CHUNK * size):
        data = file.bytes(chunk, _TS_CHUNK * size)
        rows = np.frombuffer(data, np.uint8, len(data) // size * size).reshape(-1, size)
        if (rows[:, first] != 0x47).any():
            yield "packets of the file are out of step: bytes are missing, or others between them"
            return
        counters.add(rows[:, first : first + 188])
        rest = data[len(rows) * size :]
        if rest[first : first + 1] == b"\x47":
            yield f"the file is cut short: {size - len(rest)} bytes of its last packet are missing"
    if counters.headless:
        yield f"{counters.headless} packets of its streams lack the code that they begin with"
    if counters.jumps:
        yield f"packets of its streams are missing in {counters.jumps} places, by the packets' own counters"


class _Counters:
    """Counts the places where the counters of a stream's packets don't rise by one (ISO/IEC 13818-1).

    Repeated packets and marked discontinuities are allowed, and files joined where one begins with its table.
    """

    def __init__(self) -> None:
        self.jumps = self.headless = 0  # the latter: whole packets (PES), which FFmpeg leaves out
        self._streams = np.zeros(_PIDS, bool)  # a table of programs or the like may begin again at any time
        self._last = np.zeros((0, 188), np.uint8)  # packet of each stream, as they followed each other

    def add(self, packets: NDArray[np.uint8]) -> None:
        rows = np.concatenate([self._last, packets])
        wrong = rows[:, 1] & 0x80 > 0  # as reported by the receiver
        pid = (rows[:, 1] & 0x1F).astype(np.int64) << 8 | rows[:, 2]
        adapted, filled = rows[:, 3] & 0x20 > 0, rows[:, 3] & 0x10 > 0
        marked = wrong | (adapted & (rows[:, 4] > 0) & (rows[:, 5] & 0x80 > 0))
        begins = filled & ~wrong & (rows[:, 1] & 0x40 > 0)
        place = np.minimum(np.where(adapted, 5 + rows[:, 4].astype(np.int64), 4), 185)
        number = np.arange(len(rows))
        prefix = np.stack([rows[number, place + step] for step in range(3)], 1)
        starts = (prefix == (0, 0, 1)).all(1)
        self._streams[pid[begins & starts]] = True
        odd = (
            begins & ~starts & self._streams[pid] & (place < 185) & (rows[:, 3] & 0xC0 == 0)
        )  # not encrypted
        self.headless += int(odd[len(self._last) :].sum())
        table = np.maximum.accumulate(np.where(pid == 0, number, -1))  # the last table before each packet

        used = np.flatnonzero((self._streams[pid] & (filled | marked)) | (pid == 0))
        order = used[np.argsort(pid[used], kind="stable")]
        before, after = order[:-1], order[1:]
        same = (pid[before] == pid[after]) & (pid[after] > 0)
        rise = (rows[after, 3].astype(np.int64) - rows[before, 3]) & 0xF
        joined = begins[after] & (table[after] > before)
        self.jumps += int((same & (rise > 1) & ~(marked[before] | marked[after] | joined)).sum())
        self._last = rows[np.sort(np.append(before[pid[before] != pid[after]], order[-1:]))]


def _flv(file: FileBytes) -> Iterator[str]:
    """Check tags and their sizes; the first may state the size of the file."""
    offset = file.number(5, 4) + 4
    while offset + 11 <= file.size:
        kind, length = file.number(offset) & 0x1F, 11 + file.number(offset + 1, 3)
        if kind not in (8, 9, 15, 18):
            if not file.padded(offset):
                yield foreign(offset)
            return
        if kind == 18:
            note = file.bytes(offset, length)
            key = note.find(b"filesize\0")
            promised = struct.unpack_from(">d", note, key + 9)[0] if 0 < key < len(note) - 17 else 0
            if file.size < promised < 1 << 62:
                yield cut_short(int(promised) - file.size)
                return
        offset += length + 4  # the size again
    if offset - 4 > file.size:
        yield unfinished("tag")


def _asf(file: FileBytes) -> Iterator[str]:
    """Check the header's number of packets, all of one size."""
    stop = file.little(16, 8)
    header = file.bytes(0, min(stop, LARGEST_INDEX))
    place = header.find(_ASF_PROPERTIES)
    if not 0 <= place <= len(header) - 104 or file.bytes(stop, 16) != _ASF_DATA:
        return
    count, flags, size, largest = struct.unpack_from("<Q24xIII", header, place + 56)
    if flags & 1 or not size or size != largest:  # a broadcast of unknown length
        return
    first, room = stop + 50, (file.size - stop - 50) // size
    if room < count:
        yield cut_short((count - room) * size)
    kind = file.number(first)
    for offset in range(first, first + min(room, count) * size, size):
        packet = file.bytes(offset, size)
        if packet[0] != kind or not _fits(packet):
            yield foreign(offset)
            return


def _fits(packet: bytes) -> bool:
    """Return True if the payloads of a packet of ASF lie within it, each of a stream (section 5.2)."""

    def width(kinds: int, place: int) -> int:
        return (0, 1, 2, 4)[kinds >> place & 3]

    offset = 1 + (packet[0] & 0xF) if packet[0] & 0x80 else 0
    flags, kinds = packet[offset : offset + 2].ljust(2, b"\0")
    offset += 2 + width(flags, 5) + width(flags, 1) + width(flags, 3) + 6
    many = packet[offset] if flags & 1 and offset < len(packet) else 1
    offset += flags & 1
    for _ in range(many & 0x3F):
        if offset >= len(packet) or not packet[offset] & 0x7F:
            return False
        offset += 1 + width(kinds, 4) + width(kinds, 2)
        copied = width(kinds, 0)
        offset += copied + int.from_bytes(packet[offset : offset + copied], "little")
        if flags & 1:
            size = width(many, 6)
            offset += size + int.from_bytes(packet[offset : offset + size], "little")
    return offset <= len(packet)


def _ogg(file: FileBytes) -> Iterator[str]:
    """Check pages: checksums, numbers in each stream, and the mark of the last one."""
    numbers, ended, offset = dict[int, int](), set[int](), 0
    while offset + 27 <= file.size:
        head = file.bytes(offset, 27 + 255)
        if head[:4] != b"OggS":
            break
        flags, serial, number, checksum = struct.unpack_from("<5xB8xIII", head)
        length = 27 + head[26] + sum(head[27 : 27 + head[26]])
        if offset + length > file.size:
            yield unfinished("page")
            return
        page = file.bytes(offset, length)
        crc = zlib.crc32((page[:22] + bytes(4) + page[26:]).translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
        if int(f"{crc:032b}"[::-1], 2) != checksum:
            yield f"the checksum of the page at byte {offset} is wrong"
        if serial in numbers and not flags & 2 and number != (numbers[serial] + 1) % (1 << 32):
            yield f"pages are missing before byte {offset}, by their numbers"
        numbers[serial] = number
        ended = ended - {serial} if flags & 2 else ended | {serial} if flags & 4 else ended
        offset += length
    if numbers.keys() - ended:
        lacking = "the last page of a stream isn't marked as its end"
        yield f"the file is cut short: {lacking}" if file.padded(offset) else foreign(offset)


def _gif(file: FileBytes) -> Iterator[str]:
    """Check blocks up to a trailer."""

    def table(flags: int) -> int:
        return 3 << (flags & 7) + 1 if flags & 0x80 else 0

    offset = 13 + table(file.number(10))
    while offset < file.size and (kind := file.number(offset)) != 0x3B:
        if kind not in (0x21, 0x2C) or (kind == 0x21 and file.number(offset + 1) not in _GIF_LABELS):
            yield foreign(offset)
            return
        offset += 2 if kind == 0x21 else 11 + table(file.number(offset + 9))
        while part := file.number(offset):
            offset += part + 1
        offset += 1
    if offset >= file.size:
        yield "the file is cut short: it lacks its trailer"


def _png(file: FileBytes) -> Iterator[str]:
    """Check chunks with checksums up to IEND, and the number of frames."""
    offset, promised, frames = 8, 0, 0
    while offset + 12 <= file.size:
        length, kind = file.number(offset, 4), file.bytes(offset + 4, 4)
        stop = offset + 12 + length
        if stop > file.size:
            break
        if zlib.crc32(file.bytes(offset + 4, length + 4)) != file.number(stop - 4, 4):
            yield f"the checksum of the chunk at byte {offset} is wrong"
        promised = file.number(offset + 8, 4) if kind == b"acTL" else promised
        frames += kind == b"fcTL"
        if kind == b"IEND":
            if frames < promised:
                yield f"{promised - frames} of {promised} frames are missing"
            return
        offset = stop
    yield "the file is cut short: it lacks its trailer"


def _ivf(file: FileBytes) -> Iterator[str]:
    """Check frames and their sizes; the header may count frames or ticks."""
    offset, frames, first, last = file.little(6, 2), 0, 0, 0
    promised = file.little(24, 4)
    while offset + 12 <= file.size:
        last = file.little(offset + 4, 8)
        first = last if not frames else first
        offset, frames = offset + 12 + file.little(offset, 4), frames + 1
    reach = last + (last - first) // max(1, frames - 1)
    if offset > file.size:
        yield unfinished("frame")
    elif frames < promised and reach < promised:
        yield f"the file is cut short: the header promises {promised} frames or ticks"


def _mxf(file: FileBytes) -> Iterator[str]:
    """Check triplets of key, length and value up to the footer that the partitions' heads point to."""
    offset = footer = 0
    while offset + 17 <= file.size:
        head = file.bytes(offset, 64)
        if head[:4] != _MXF_PARTITION[:4]:
            if not file.padded(offset):
                yield foreign(offset)
                return
            break
        width = head[16] & 0x7F if head[16] & 0x80 else 0
        length = int.from_bytes(head[17 : 17 + width], "big") if width else head[16]
        value = 17 + width
        if head.startswith(_MXF_PARTITION):
            footer = max(footer, int.from_bytes(head[value + 24 : value + 32], "big"))
        offset += value + length
    if offset > file.size:
        yield unfinished("packet")
    elif footer >= file.size:
        yield "the file is cut short: it lacks its footer"


def _real(file: FileBytes) -> Iterator[str]:
    """Check chunks and their sizes; those of the data end with the file or before."""
    offset = 0
    while offset + 8 <= file.size and (kind := file.bytes(offset, 4)).strip(b"\0"):
        length = file.number(offset + 4, 4)
        if kind == b"DATA":
            yield from _real_packets(file, offset, min(offset + length, file.size))
        if length < 8:
            return
        offset += length
    if offset - file.size > _REAL_SLACK:
        yield cut_short(offset - file.size)


def _real_packets(file: FileBytes, offset: int, stop: int) -> Iterator[str]:
    promised, count = file.number(offset + 10, 4), 0
    offset += 18
    while offset + 12 <= stop and (count < promised or not promised):
        length = file.number(offset + 2, 2)
        if file.bytes(offset, 2) not in (b"\0\0", b"\0\1") or length < 12:
            yield foreign(offset)
            return
        offset, count = offset + length, count + 1
    if count < promised:
        yield f"{promised - count} of {promised} packets are missing"


def _gxf(file: FileBytes) -> Iterator[str]:
    """Check packets and their sizes up to the one that marks the end."""
    offset = 0
    while offset + 16 <= file.size:
        head = file.bytes(offset, 16)
        if head[:5] != b"\0\0\0\0\1" or head[14:] != b"\xe1\xe2":
            yield foreign(offset)
            return
        if head[5] == 0xFB:
            return
        offset += int.from_bytes(head[6:10], "big")
    yield "the file is cut short: it lacks the packet that marks its end"


def _program_stream(file: FileBytes) -> Iterator[str]:
    """Check packs and packets (PES) and their sizes, which must be contiguous."""
    offset = 0
    while offset + 16 <= file.size:
        head = file.bytes(offset, 16)
        if head[:3] != b"\0\0\1" or head[3] < 0xB9:
            if head[0] or not file.padded(offset):
                yield foreign(offset)
            return
        if head[3] == 0xBA:  # a pack, of MPEG-2 or MPEG-1
            offset += 14 + (head[13] & 7) if head[4] & 0xC0 == 0x40 else 12
        else:
            offset += 4 if head[3] == 0xB9 else 6 + int.from_bytes(head[4:6], "big")
    if offset > file.size:
        yield unfinished("packet")


def _dv(file: FileBytes) -> Iterator[str]:
    """Check frames, which all have one size by their format (SMPTE 314M and 370M: system and signal type)."""
    size = _DV_FRAMES.get((file.number(3) >> 7, file.number(451) & 0x1F), 0)
    for offset in range(0, file.size, size) if size else ():
        if file.bytes(offset, 3) != _DV_HEADER:
            if not file.padded(offset):
                yield foreign(offset)
            return
        if offset + size > file.size:
            yield unfinished("frame")


def _roq(file: FileBytes) -> Iterator[str]:
    """Check chunks and their sizes."""
    offset = 8
    while offset + 8 <= file.size:
        if file.little(offset, 2) not in _ROQ_CHUNKS:
            if not file.padded(offset):
                yield foreign(offset)
            return
        offset += 8 + file.little(offset + 2, 4)
    if offset != file.size:
        yield unfinished("chunk")


def _obu(file: FileBytes) -> Iterator[str]:
    """Check units and their sizes (AV1 bitstream specification, 5.3 and 4.10.5)."""
    offset = 0
    while offset < file.size:
        head = file.bytes(offset, 10).ljust(10, b"\0")
        if head[0] & 0x83 != 2:  # a forbidden bit, one for the size, and a reserved one
            if not file.padded(offset):
                yield foreign(offset)
            return
        start = 1 + (head[0] >> 2 & 1)
        width = next((count for count in range(1, 9) if head[start + count - 1] < 0x80), 8)
        length = sum((head[start + place] & 0x7F) << 7 * place for place in range(width))
        offset += start + width + length
    if offset > file.size:
        yield unfinished("unit")


_WALKS: tuple[tuple[int, bytes, Callable[[FileBytes], Iterator[str]]], ...] = (
    *((4, kind, _mp4) for kind in sorted(_MP4_BOXES)),
    (0, EBML, walk_matroska),
    (0, b"RIFF", _avi),
    (0, b"FLV", _flv),
    (0, bytes.fromhex("3026b2758e66cf11"), _asf),
    (0, b"OggS", _ogg),
    (0, b"GIF8", _gif),
    (0, b"\x89PNG", _png),
    (0, b"DKIF", _ivf),
    (0, _MXF_PARTITION[:8], _mxf),
    (0, b".RMF", _real),
    (0, b"\0\0\0\0\1\xbc", _gxf),
    (0, b"\0\0\1\xba", _program_stream),
    (0, _DV_HEADER, _dv),
    (0, b"\x84\x10\xff\xff\xff\xff", _roq),
    (0, b"\x12\0", _obu),
)
