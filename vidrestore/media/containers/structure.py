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
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vidrestore.media.containers.file_bytes import (
    LARGEST_INDEX,
    FileBytes,
    cut_short,
    foreign,
    unfinished,
)
from vidrestore.media.containers.matroska import EBML, walk_matroska

_MP4_BOXES = frozenset(
    b"ftyp styp moov moof mdat sidx ssix emsg prft mfra free skip wide uuid udta meta pdin".split()
)
# extensions: text, the time of a frame, comment, application
_GIF_LABELS = (0x01, 0xF9, 0xFE, 0xFF)
# bytes of a packet of MPEG-TS -> place of its first byte, 0x47
_TS_PACKETS = {188: 0, 192: 4, 204: 0}
_TS_CHUNK = 65536  # packets that are looked at together
_PIDS = 1 << 13
_PART_HEAD_BYTES = 64  # these of a part state its length
_DEEPEST_BOX = 10  # levels of boxes within each other that FFmpeg reads
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_ASF_DATA = bytes.fromhex("3626b2758e66cf11a6d900aa0062ce6c")
_MXF_PARTITION = bytes.fromhex("060e2b34020501010d0102010102")
_DV_HEADER = b"\x1f\x07\0"
_DV_FRAMES = {  # (lines: 525 or 625, type of signal) -> bytes of a frame
    (0, 0): 120_000, (1, 0): 144_000, (1, 1): 144_000, (0, 4): 240_000, (1, 4): 288_000,
    (0, 0x14): 480_000, (1, 0x14): 576_000, (0, 0x18): 240_000, (1, 0x18): 288_000,
}  # fmt: skip
_ROQ_CHUNKS = frozenset(
    {0x1001, 0x1002, 0x1011, 0x1012, 0x1013, 0x1020, 0x1021, 0x1030}
)
_REAL_DATA_HEAD = 18  # bytes of the head of the chunk of packets
_REAL_SLACK = 18  # bytes of a chunk's header that FFmpeg's own muxer counts twice


class _BrokenError(Exception):
    """A finding behind which a file can't be checked."""


def broken_structure(path: str) -> Iterator[str]:
    """Yield messages on missing parts of a file, and on bytes between its packets.

    Reads all of MPEG-TS, ASF, OGG and APNG, of others the head of each part.
    """
    if not os.path.isfile(path):
        return
    with open(path, "rb") as opened:
        file = FileBytes(opened)
        # by its first bytes; a transport stream by the distance of its marks
        head = file.bytes(0, 3 * max(_TS_PACKETS))
        try:
            for place, magic, walk in _WALKS:
                if head.startswith(magic, place):
                    yield from walk(file)
                    return
            for size, first in _TS_PACKETS.items():
                if head[first::size][:2] == b"\x47\x47":
                    yield from _transport_stream(file, size, first)
                    return
        except _BrokenError as error:
            yield str(error)


class _Parts:
    """The parts of a file that follow each other up to its end, or up to zeros.

    The head of each states its length, by which `skip` goes on.
    """

    def __init__(
        self, file: FileBytes, name: str, *, start: int = 0, slack: int = 0
    ) -> None:
        self.file, self.name, self.offset = file, name, start
        self.slack = slack  # bytes of the last part that may be missing

    def head(self) -> bytes:
        """Return the first bytes of a part, with zeros if it has fewer; none behind the last part."""
        # zeros up to the end are room that a recorder left
        head = self.file.bytes(self.offset, _PART_HEAD_BYTES)
        ends = not head.strip(b"\0") and self.file.padded(self.offset)
        return b"" if ends else head.ljust(_PART_HEAD_BYTES, b"\0")

    def skip(self, length: int) -> None:
        """Go on to the next part. Raises _BrokenError for 0 (no part begins here), and a part cut short."""
        if not length:
            raise _BrokenError(foreign(self.offset))
        if self.offset + length > self.file.size + self.slack:
            raise _BrokenError(unfinished(self.name))
        self.offset += length


def _mp4(file: FileBytes) -> Iterator[str]:
    """Check boxes; fragments must be numbered, reach the end of the file, and match an index."""
    # places of fragments, and those by the index
    fragments, indexed = set[int](), set[int]()
    numbers: list[int] = []
    stop = 0
    # collect the fragments, up to the first thing that is no box
    for offset, kind, length in _boxes(file, 0, file.size):
        is_known, is_fragment = kind in _MP4_BOXES, kind == b"moof"
        if length == 0 and is_known and not (fragments or is_fragment):  # up to the end
            length = file.size - offset
        is_box = is_known if fragments else kind.isalnum()
        if length < 8 or not is_box:
            break
        stop = offset + length
        if is_fragment:
            fragments.add(offset)
            if file.bytes(offset + 12, 4) == b"mfhd":
                numbers.append(file.number(offset + 20, 4))
        elif kind == b"moov" and stop <= file.size:
            yield from _inner_boxes(file, offset + 8, stop)
        elif kind == b"mfra":
            indexed |= _index_places(file, offset + 8, stop)

    # the last box must end with the file
    if stop > file.size:
        yield cut_short(stop - file.size)
    elif fragments and not file.padded(stop):
        yield foreign(stop)

    # only numbers that always rise count what is missing between them
    steps = [after - before for before, after in pairwise(numbers)]
    lost = sum(steps) - len(steps)
    if lost and all(step > 0 for step in steps):
        yield f"{lost} of its fragments are missing by their numbers"
    elif len(indexed) > len(fragments):
        yield f"{len(indexed) - len(fragments)} of its fragments are missing by its index"


def _boxes(file: FileBytes, offset: int, stop: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield the place, kind and length of boxes, up to one that is shorter than its head."""
    # up to a box that can't be one
    length = 8
    while length >= 8 and offset + 8 <= stop:
        length, kind = file.number(offset, 4), file.bytes(offset + 4, 4)
        if length == 1:  # the real length follows, in 64 bits
            length = file.number(offset + 8, 8)
        yield offset, kind, length
        offset += length


def lacks_index(path: str) -> bool:
    """Return True for an MP4 or MOV that is cut short before its index. Raises OSError."""
    with open(path, "rb") as opened:
        file = FileBytes(opened)
        boxes = takewhile(lambda box: box[1] in _MP4_BOXES, _boxes(file, 0, file.size))
        kinds = {kind for _, kind, _ in boxes}
    return b"mdat" in kinds and not kinds & {b"moov", b"moof"}


def replace_in_index(path: Path, text: bytes, other: bytes) -> None:
    """Replace a text in the index (moov) of a finished MP4 or MOV by one of the same length, in place. Raises
    OSError.
    """
    with path.open("r+b") as opened:
        file = FileBytes(opened)
        for offset, kind, length in _boxes(file, 0, file.size):
            if kind == b"moov":
                content = file.bytes(offset, length).replace(text, other, 1)
                opened.seek(offset)
                opened.write(content)
                return


def _inner_boxes(
    file: FileBytes, offset: int, stop: int, depth: int = 1
) -> Iterator[str]:
    """Yield a message where a box holds something else than boxes, or too many within each other; wrong sizes
    do no harm in the last one.
    """
    # only the boxes that hold the tables of samples are entered
    for place, kind, length in _boxes(file, offset, stop):
        if min(kind) < 0x20 or depth > _DEEPEST_BOX:
            yield foreign(place)
            return
        if kind in (b"trak", b"mdia", b"minf", b"stbl"):
            inner_stop = place + length if 8 <= length <= stop - place else stop
            yield from _inner_boxes(file, place + 8, inner_stop, depth + 1)


def _index_places(file: FileBytes, offset: int, stop: int) -> set[int]:
    """Return the places of fragments that an index (mfra) has."""
    places = set[int]()
    for place, kind, length in _boxes(file, offset, min(stop, file.size)):
        if kind == b"tfra":
            box = file.bytes(place, min(length, LARGEST_INDEX)).ljust(24, b"\0")
            # the table's own widths of numbers give the size of an entry
            number = 8 if box[8] else 4
            sizes, count = struct.unpack_from(">II", box, 16)
            entry = 2 * number + sum((sizes >> shift & 3) + 1 for shift in (4, 2, 0))
            starts = range(24 + number, len(box), entry)[:count]
            places |= {
                int.from_bytes(box[start : start + number], "big") for start in starts
            }
    return places


def _avi(file: FileBytes) -> Iterator[str]:
    """Check chunks, which must be those of declared streams."""
    # what the file says of itself: its length and its number of streams
    streams, stop = 100, 0
    offset, after = 0, b""
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
        # between packets (movi) only chunks of declared streams may lie
        # JUNK, LIST and others
        is_generic = kind.isalpha() or kind[:2] == b"ix" or kind == b"idx1"
        is_ours = (
            kind[:2].isdigit()
            and int(kind[:2]) < streams
            and kind.replace(b"_", b"").isalnum()
        )
        is_whole = offset + 8 + length <= file.size
        if after == b"movi" and not (is_whole and (is_generic or is_ours)):
            raise _BrokenError(foreign(offset))
        if kind in (b"RIFF", b"LIST"):
            after = b"movi" if head[8:12] in (b"movi", b"rec ") else head[8:12]
            offset += 12
        else:
            after = b"" if kind == b"idx1" else after
            offset += 8 + length + length % 2


def _transport_stream(file: FileBytes, size: int, first: int) -> Iterator[str]:
    """Check that packets are in step, and that their counters rise in each stream."""
    # in parts, each with the last packet of every stream of the part before
    counters = _Counters()
    for chunk in range(0, file.size, _TS_CHUNK * size):
        data = file.bytes(chunk, _TS_CHUNK * size)
        whole_bytes = len(data) // size * size
        rows = np.frombuffer(data, np.uint8, whole_bytes).reshape(-1, size)
        if (rows[:, first] != 0x47).any():
            yield "packets of the file are out of step: bytes are missing, or others between them"
            return
        counters.add(rows[:, first : first + 188])
        rest = data[whole_bytes:]
        if rest[first : first + 1] == b"\x47":
            yield f"the file is cut short: {size - len(rest)} bytes of its last packet are missing"
    if counters.headless:
        yield f"{counters.headless} packets of its streams lack the code that they begin with"
    if counters.jumps:
        yield f"packets of its streams are missing in {counters.jumps} places, by the packets' own counters"


class _PacketHeads:
    """Fields of the heads of packets of MPEG-TS, (n, 188): arrays with an entry a packet."""

    def __init__(self, rows: NDArray[np.uint8]) -> None:
        _, flags, low, control, length, indicators = rows[:, :6].T
        wrong = flags & 0x80 > 0  # as reported by the receiver
        adapted = control & 0x20 > 0
        discontinuous = (length > 0) & (indicators & 0x80 > 0)
        self.pid = (flags & 0x1F).astype(np.int64) << 8 | low
        self.counter = control.astype(np.int64) & 0xF
        self.encrypted = control & 0xC0 > 0
        self.filled = control & 0x10 > 0
        self.marked = wrong | (adapted & discontinuous)
        self.begins = self.filled & ~wrong & (flags & 0x40 > 0)
        # its place in the packet
        self.content = np.where(adapted, 5 + length.astype(np.int64), 4)


class _Counters:
    """Counts the places where the counters of a stream's packets don't rise by one (ISO/IEC 13818-1).

    Repeated packets and marked discontinuities are allowed, and files joined where one begins with its table.
    """

    def __init__(self) -> None:
        # the latter: whole packets (PES), which FFmpeg leaves out
        self.jumps = self.headless = 0
        # a table of programs or the like may begin again at any time
        self._streams = np.zeros(_PIDS, bool)
        # packet of each stream, as they followed each other
        self._last = np.zeros((0, 188), np.uint8)

    def add(self, packets: NDArray[np.uint8]) -> None:
        """Count what the packets (N, 188) show to be missing, beside the last of each stream before them."""
        rows = np.concatenate([self._last, packets])
        heads = _PacketHeads(rows)
        numbers = np.arange(len(rows))
        pid, marked = heads.pid, heads.marked

        # where a whole packet (PES) begins, its code must follow the head
        place = np.minimum(heads.content, 185)
        prefix = np.stack([rows[numbers, place + step] for step in range(3)], 1)
        has_code = (prefix == (0, 0, 1)).all(1)
        self._streams[pid[heads.begins & has_code]] = True
        readable = (place < 185) & ~heads.encrypted
        headless = heads.begins & ~has_code & self._streams[pid] & readable
        self.headless += int(headless[len(self._last) :].sum())

        # pairs of packets that follow each other in a stream
        counted = self._streams[pid] & (heads.filled | marked)
        used = np.flatnonzero(counted | (pid == 0))
        order = used[np.argsort(pid[used], kind="stable")]
        before, after = order[:-1], order[1:]
        same_stream = pid[before] == pid[after]
        rise = (heads.counter[after] - heads.counter[before]) & 0xF

        # a file that was joined to another begins with its table of programs
        # the last before each packet
        table = np.maximum.accumulate(np.where(pid == 0, numbers, -1))
        joined = heads.begins[after] & (table[after] > before)
        allowed = marked[before] | marked[after] | joined | (pid[after] == 0)
        self.jumps += int((same_stream & (rise > 1) & ~allowed).sum())

        latest = np.append(before[~same_stream], order[-1:])
        self._last = rows[np.sort(latest)]


def _flv(file: FileBytes) -> Iterator[str]:
    """Check tags; the first may state the size of the file."""
    # a tag with metadata may state the length of the whole file
    parts = _Parts(file, "tag", start=file.number(5, 4) + 4, slack=4)
    while head := parts.head():
        kind = head[0] & 0x1F
        length = 11 + int.from_bytes(head[1:4], "big")
        if kind == 18:
            note = file.bytes(parts.offset, length)
            key = note.find(b"filesize\0")
            promised = (
                struct.unpack_from(">d", note, key + 9)[0]
                if 0 < key < len(note) - 17
                else 0
            )
            if file.size < promised < 1 << 62:
                yield cut_short(int(promised) - file.size)
                return
        # the length follows again
        parts.skip(length + 4 if kind in (8, 9, 15, 18) else 0)


def _asf(file: FileBytes) -> Iterator[str]:
    """Check the header's number of packets, all of one size."""
    # the header's count, all packets of one size
    stop = file.little(16, 8)
    header = file.bytes(0, min(stop, LARGEST_INDEX))
    place = header.find(_ASF_PROPERTIES)
    if not 0 <= place <= len(header) - 104 or file.bytes(stop, 16) != _ASF_DATA:
        return
    count, flags, size, largest = struct.unpack_from("<Q24xIII", header, place + 56)
    if flags & 1 or not size or size != largest:  # a broadcast of unknown length
        return
    first = stop + 50
    room = (file.size - first) // size
    if room < count:
        yield cut_short((count - room) * size)
    # packets begin alike and hold payloads that fit
    kind = file.number(first)
    for offset in range(first, first + min(room, count) * size, size):
        packet = file.bytes(offset, size)
        if packet[0] != kind or not _fits(packet):
            raise _BrokenError(foreign(offset))


def _fits(packet: bytes) -> bool:
    """Return True if the payloads of a packet of ASF lie within it, each of a stream (section 5.2)."""

    def width(kinds: int, place: int) -> int:
        return (0, 1, 2, 4)[kinds >> place & 3]

    # the widths of the fields that follow are in the flags
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
    # by pages, whose own checksum is left out of the sum
    parts = _Parts(file, "page")
    numbers = dict[int, int]()
    ended = set[int]()
    while head := parts.head():
        offset = parts.offset
        count = file.number(offset + 26)
        length = 27 + count + sum(file.bytes(offset + 27, count))
        parts.skip(length if head.startswith(b"OggS") else 0)
        page = file.bytes(offset, length)
        flags, serial, number, checksum = struct.unpack_from("<5xB8xIII", page)
        unsigned = page[:22] + bytes(4) + page[26:]
        crc = zlib.crc32(unsigned.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
        if int(f"{crc:032b}"[::-1], 2) != checksum:
            yield f"the checksum of the page at byte {offset} is wrong"
        # numbers follow each other in a stream until it ends
        follows = serial in numbers and not flags & 2
        if follows and number != (numbers[serial] + 1) % (1 << 32):
            yield f"pages are missing before byte {offset}, by their numbers"
        numbers[serial] = number
        if flags & 2:
            ended.discard(serial)
        elif flags & 4:
            ended.add(serial)
    if numbers.keys() - ended:
        yield "the file is cut short: the last page of a stream isn't marked as its end"


def _gif(file: FileBytes) -> Iterator[str]:
    """Check blocks up to a trailer."""

    def table(flags: int) -> int:
        return 3 << (flags & 7) + 1 if flags & 0x80 else 0

    # a table of colours may follow the head and each picture
    parts = _Parts(file, "block", start=13 + table(file.number(10)))
    while (head := parts.head()) and head[0] != 0x3B:
        is_image, is_extension = (
            head[0] == 0x2C,
            head[0] == 0x21 and head[1] in _GIF_LABELS,
        )
        stop = parts.offset + (11 + table(head[9]) if is_image else 2)
        while size := file.number(stop):
            stop += size + 1
        parts.skip(stop + 1 - parts.offset if is_image or is_extension else 0)
    if not head:
        yield "the file is cut short: it lacks its trailer"


def _png(file: FileBytes) -> Iterator[str]:
    """Check chunks with checksums up to IEND, and the number of frames."""
    parts, promised, frames = _Parts(file, "chunk", start=8), 0, 0
    while head := parts.head():
        # each chunk ends with its checksum
        offset = parts.offset
        length, kind = struct.unpack_from(">I4s", head)
        parts.skip(12 + length)
        if zlib.crc32(file.bytes(offset + 4, length + 4)) != file.number(
            offset + 8 + length, 4
        ):
            yield f"the checksum of the chunk at byte {offset} is wrong"
        promised = file.number(offset + 8, 4) if kind == b"acTL" else promised
        frames += kind == b"fcTL"
        if kind == b"IEND":
            if frames < promised:
                yield f"{promised - frames} of {promised} frames are missing"
            return
    yield "the file is cut short: it lacks its trailer"


def _ivf(file: FileBytes) -> Iterator[str]:
    """Check frames; the header may count frames or ticks."""
    parts, frames, first, last = _Parts(file, "frame", start=file.little(6, 2)), 0, 0, 0
    while head := parts.head():
        length, last = struct.unpack_from("<IQ", head)
        first = last if not frames else first
        frames += 1
        parts.skip(12 + length)
    # an encoder may promise ticks for frames
    promised = file.little(24, 4)
    reach = last + (last - first) // max(1, frames - 1)
    if frames < promised and reach < promised:
        yield f"the file is cut short: the header promises {promised} frames or ticks"


def _mxf(file: FileBytes) -> Iterator[str]:
    """Check triplets of key, length and value up to the footer that the partitions' heads point to."""
    parts, footer = _Parts(file, "packet"), 0
    # a key of 16 bytes, the length in a width of its own
    while head := parts.head():
        width = head[16] & 0x7F if head[16] & 0x80 else 0
        length = int.from_bytes(head[17 : 17 + width], "big") if width else head[16]
        value = 17 + width
        if head.startswith(_MXF_PARTITION):
            footer = max(footer, int.from_bytes(head[value + 24 : value + 32], "big"))
        parts.skip(value + length if head.startswith(_MXF_PARTITION[:4]) else 0)
    if footer >= file.size:
        yield "the file is cut short: it lacks its footer"


def _real(file: FileBytes) -> Iterator[str]:
    """Check chunks; those of the data end with the file or before."""
    parts = _Parts(file, "chunk", slack=_REAL_SLACK)
    while head := parts.head():
        length = int.from_bytes(head[4:8], "big")
        if head.startswith(b"DATA"):
            if length <= _REAL_DATA_HEAD:  # was written to a pipe, without its length
                return
            yield from _real_packets(
                file, parts.offset, min(parts.offset + length, file.size)
            )
        parts.skip(length if length >= 8 else 0)


def _real_packets(file: FileBytes, offset: int, stop: int) -> Iterator[str]:
    # packets state their length, and the head their number
    promised, count = file.number(offset + 10, 4), 0
    offset += _REAL_DATA_HEAD
    while offset + 12 <= stop and (count < promised or not promised):
        length = file.number(offset + 2, 2)
        if file.bytes(offset, 2) not in (b"\0\0", b"\0\1") or length < 12:
            raise _BrokenError(foreign(offset))
        offset, count = offset + length, count + 1
    if count < promised:
        yield f"{promised - count} of {promised} packets are missing"


def _gxf(file: FileBytes) -> Iterator[str]:
    """Check packets up to the one that marks the end."""
    parts = _Parts(file, "packet")
    while head := parts.head():
        is_packet = head.startswith(b"\0\0\0\0\1") and head[14:16] == b"\xe1\xe2"
        if is_packet and head[5] == 0xFB:  # the end of the stream
            return
        # a length of 0 raises: no packet begins here
        parts.skip(int.from_bytes(head[6:10], "big") if is_packet else 0)
    yield "the file is cut short: it lacks the packet that marks its end"


def _program_stream(file: FileBytes) -> Iterable[str]:
    """Check packs and packets (PES), which must be contiguous."""
    parts = _Parts(file, "packet")
    while head := parts.head():
        length = 4 if head[3] == 0xB9 else 6 + int.from_bytes(head[4:6], "big")
        if head[3] == 0xBA:  # a pack, of MPEG-2 or MPEG-1
            length = 14 + (head[13] & 7) if head[4] & 0xC0 == 0x40 else 12
        parts.skip(length if head.startswith(b"\0\0\1") and head[3] >= 0xB9 else 0)
    return ()


def _dv(file: FileBytes) -> Iterable[str]:
    """Check frames, which all have one size by their format (SMPTE 314M and 370M: system and signal type)."""
    # the size follows from the first frame
    size = _DV_FRAMES.get((file.number(3) >> 7, file.number(451) & 0x1F), 0)
    parts = _Parts(file, "frame")
    while size and (head := parts.head()):
        parts.skip(size if head.startswith(_DV_HEADER) else 0)
    return ()


def _roq(file: FileBytes) -> Iterable[str]:
    """Check chunks."""
    parts = _Parts(file, "chunk", start=8)
    while head := parts.head():
        kind, length = struct.unpack_from("<HI", head)
        parts.skip(8 + length if kind in _ROQ_CHUNKS else 0)
    return ()


def _obu(file: FileBytes) -> Iterable[str]:
    """Check units (AV1 bitstream specification, 5.3 and 4.10.5)."""
    parts = _Parts(file, "unit")
    while head := parts.head():
        # seven bits of the length a byte, as long as the eighth is set
        start = 1 + (head[0] >> 2 & 1)
        width = next(
            (count for count in range(1, 9) if head[start + count - 1] < 0x80), 8
        )
        length = sum(
            (head[start + place] & 0x7F) << 7 * place for place in range(width)
        )
        # a forbidden bit, one for the size, and a reserved one
        is_unit = head[0] & 0x83 == 2
        parts.skip(start + width + length if is_unit else 0)
    return ()


_WALKS: tuple[tuple[int, bytes, Callable[[FileBytes], Iterable[str]]], ...] = (
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
