"""Collect signs of a damaged source while frames are read; FFmpeg decodes past most damage without an
error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

ROOM = 1 << 24  # bytes that can be allocated unless memory is short
MESSAGES_KEPT = 100
_TINY_PACKET = 8  # bytes; an MPEG-4 packet of this size is a not-coded VOP, without a picture
_MP4_BOXES = {
    b"ftyp", b"moov", b"mdat", b"moof", b"free", b"skip", b"wide", b"styp", b"sidx", b"uuid", b"mfra"
}  # fmt: skip
_TS_PACKETS = {188: 0, 192: 4, 204: 0}  # bytes of a packet of MPEG-TS -> place of its first byte, 0x47
_TS_CHUNK = 65536  # packets that are looked at together
_LARGEST_INDEX = 1 << 24
_HOLE = 1  # seconds; containers without durations may leave out frames, but not for so long
_UNUSUAL = 10  # a hole is this many times longer than the mean time between frames
# what a Matroska segment holds, with the parts of its clusters, which are read as if they were not nested
_CLUSTER, _TRACKS, _GROUP, _BLOCK = 0x1F43B675, 0x1654AE6B, 0xA0, 0xA3
_NUMBERS = (0xE7, 0xA7, 0xAB)  # a cluster's time and places
_MATROSKA = frozenset(
    {_CLUSTER, _TRACKS, _GROUP, _BLOCK, 0x5854, *_NUMBERS}
    | {0x114D9B74, 0x1549A966, 0x1C53BB6B, 0x1941A469, 0x1043A770, 0x1254C367}
    | {0xEC, 0xBF}  # empty space and checksums
)
_EBML, _SEGMENT = bytes.fromhex("1a45dfa3"), bytes.fromhex("18538067")


@dataclass
class Damage:
    """Signs of a damaged source; complete when all frames have been read.

    `messages` are FFmpeg's errors and our own findings, without repetitions, at most a hundred; `corrupt_pts`
    are the times of frames marked corrupt; `missing_frames` counts pictures that are in the file but did not
    decode; `early_end` is the seconds between the end of the last frame and the stream's own end.
    """

    messages: list[str] = field(default_factory=list)
    corrupt_pts: list[int] = field(default_factory=list)
    missing_frames: int = 0
    early_end: Fraction = Fraction(0)

    @property
    def found(self) -> bool:
        return bool(self.messages or self.corrupt_pts or self.missing_frames or self.early_end)

    def add(self, message: str) -> None:
        if message not in self.messages and len(self.messages) < MESSAGES_KEPT:
            self.messages.append(message)

    def summary(self) -> str:
        """Return one line for the user: "the source is damaged: ...", or "no damage found"."""
        parts = []
        if self.missing_frames:
            parts.append(f"{self.missing_frames} frame{'s' * (self.missing_frames > 1)} could not be decoded")
        if self.corrupt_pts:
            times = ", ".join(map(str, self.corrupt_pts[:5])) + ", ..." * (len(self.corrupt_pts) > 5)
            parts.append(f"{len(self.corrupt_pts)} marked corrupt (pts {times})")
        if self.early_end:
            parts.append(f"the video ends {float(self.early_end):.3f} s before its own promised end")
        if self.messages:
            parts.append(
                f"{len(self.messages)} error message{'s' * (len(self.messages) > 1)}, first: "
                f"{self.messages[0]}"
            )
        return "the source is damaged: " + "; ".join(parts) if parts else "no damage found"


def check_memory() -> None:
    """Raise MemoryError if memory is short; FFmpeg reports a lack of memory also for damaged sizes."""
    bytearray(ROOM)


class Holes:
    """Finds times that no packet fills, from the decoding times of packets.

    In MP4 and MOV each packet lasts until the next, so that every hole is a loss. In MPEG-TS and the like a
    hole must be long, also in comparison with the others. Other containers may leave out frames.
    """

    def __init__(self, container: str, time_base: Fraction) -> None:
        self.exact = container.startswith("mov")
        self.least = 0 if self.exact else round(_HOLE / time_base)
        self.counts = self.exact or container in ("mpegts", "mpeg")
        self.time_base = time_base
        self._first: int | None = None
        self._last = self._end = self._number = 0
        self._found: list[tuple[int, int]] = []  # end of a packet, and ticks until the next

    def add(self, packet: Packet[VideoStream]) -> None:
        if not self.counts or packet.dts is None:
            return
        duration = packet.duration or 0
        if self._first is None:
            self._first = packet.dts
        elif packet.dts - self._end > max(self.least, duration) and len(self._found) < MESSAGES_KEPT:
            self._found.append((self._end, packet.dts - self._end))
        self._last, self._end = packet.dts, packet.dts + duration
        self._number += 1

    def messages(self) -> Iterator[str]:
        """Yield a message for each hole; complete when all packets were added."""
        mean = (self._last - (self._first or 0)) / max(1, self._number)
        for place, ticks in self._found:
            if self.exact or ticks > _UNUSUAL * mean:
                seconds, begin = float(ticks * self.time_base), float(place * self.time_base)
                yield f"the video lacks {seconds:.3f} s from {begin:.3f} s on"


class PictureCount:
    """Compares the pictures in packets with the frames decoded, by pts; remembers only those still in the
    decoder.
    """

    def __init__(self, codec: str, floor: int | None = None) -> None:
        self.codec = codec
        self.frames = self._interlaced = self._lost = self._unmatched = 0
        self._floor = floor  # packets with a pts below it don't count
        self._started = False
        self._waiting: set[int] = set()

    def sent(self, packet: Packet[VideoStream], time: int | None) -> None:
        """Count a packet sent to the decoder; `time` is when its picture is due, None if unknown."""
        if not self._started:
            if not packet.is_keyframe:
                # packets before a recording's first key frame can't be decoded, which isn't damage
                return
            self._started = True
            if time is not None and (self._floor is None or self._floor < time):
                self._floor = time
        if packet.is_discard or not _holds_picture(self.codec, packet):
            return
        if time is not None and (self._floor is None or time >= self._floor):
            self._waiting.add(time)

    def received(self, pts: int, interlaced: bool) -> None:
        """Count a decoded frame; frames come in the order of their pts, so pictures due earlier are lost."""
        if self._floor is not None and pts < self._floor:
            return
        self.frames += 1
        self._interlaced += interlaced
        if pts in self._waiting:
            self._waiting.remove(pts)
        else:
            self._unmatched += 1
        earlier = {waiting for waiting in self._waiting if waiting < pts}
        self._lost += len(earlier)
        self._waiting -= earlier

    @property
    def pending(self) -> int:
        """The number of pictures that may still come."""
        return len(self._waiting)

    def missing(self, finished: bool) -> int:
        """Return the number of lost pictures; until `finished`, those in the decoder don't count."""
        waiting = self.pending if finished else 0
        lost = max(0, self._lost + waiting - self._unmatched)
        # each field had its own packet
        fields_alone = self._interlaced and lost <= self.frames <= lost + 1
        return 0 if fields_alone else lost


def _holds_picture(codec: str, packet: Packet[VideoStream]) -> bool:
    if codec == "vp8":  # an alternate reference frame is decoded but never shown: bit 4 of the first byte
        return packet.size > 0 and bool(memoryview(packet)[0] & 0x10)
    return packet.size > (_TINY_PACKET if codec.startswith(("mpeg4", "msmpeg4")) else 0)


def broken_structure(path: str) -> Iterator[str]:
    """Yield messages on what the file lacks by its own structure; reads all of an MPEG-TS, and the head of
    each element of a Matroska file and of each chunk of an AVI.
    """
    if lacking := missing_bytes(path):
        yield f"the file is cut short: {lacking} bytes of it are missing"
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        head = file.read(3 * max(_TS_PACKETS))
    if head[4:8] in _MP4_BOXES:
        yield from _lost_fragments(path)
    walk = {_EBML: _foreign_elements, b"RIFF": _foreign_chunks}.get(head[:4])
    for place in walk(path) if walk else ():
        yield f"something that is no packet lies between the packets, at byte {place}"
    for size, first in _TS_PACKETS.items():
        if head[first::size][:2] == b"\x47\x47":
            yield from _broken_packets(path, size, first)
            return


def _broken_packets(path: str, size: int, first: int) -> Iterator[str]:
    """Yield a message on packets of MPEG-TS that are out of step, or are not whole at the end."""
    with open(path, "rb") as file:
        while data := file.read(_TS_CHUNK * size):
            rows = np.frombuffer(data, np.uint8, len(data) // size * size).reshape(-1, size)
            if (rows[:, first] != 0x47).any():
                yield "packets of the file are out of step: bytes are missing, or others between them"
                return
            rest = data[len(rows) * size :]
            if rest[first : first + 1] == b"\x47":
                yield f"the file is cut short: {size - len(rest)} bytes of its last packet are missing"


def _foreign_elements(path: str) -> Iterator[int]:
    """Yield the place of the first thing in a Matroska file that is no element, or a block of no track."""
    tracks, stop = set[int](), os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(64)
        at, length = _segment(head)
        stop = (min(stop, at + length) if length else stop) if at else 0
        while at < stop:
            file.seek(at)
            head = file.read(32)
            name, data, length = _element(head, 0)
            block = data
            if name == _GROUP and head[data : data + 1] == b"\xa1":  # a group begins with its block
                block = _ebml_size(head, data + 1)[1]
            of_no_track = name in (_BLOCK, _GROUP) and tracks and _ebml_size(head, block)[0] not in tracks
            if of_no_track or name not in _MATROSKA or (name in _NUMBERS and length > 8):
                yield at
                return
            if name == _TRACKS and length <= _LARGEST_INDEX:
                file.seek(at + data)
                tracks = set(_track_numbers(file.read(length)))
            at += data if name == _CLUSTER else data + length


def _track_numbers(tracks: bytes) -> Iterator[int]:
    at = 0
    while at < len(tracks):
        name, data, length = _element(tracks, at)
        if name == 0xD7:
            yield int.from_bytes(tracks[data : data + length], "big")
        at = data if name == 0xAE else data + length  # look into each entry


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's identifier, the place of its content, and the length of that."""
    width = 9 - data[at].bit_length()
    length, start = _ebml_size(data, at + width)
    return int.from_bytes(data[at : at + width], "big"), max(start, at + 1), length


def _foreign_chunks(path: str) -> Iterator[int]:
    """Yield the place of the first thing among the packets of an AVI that is no chunk of one of its
    streams.
    """
    streams, at, size = 100, 0, os.path.getsize(path)
    stop, after = 0, b""
    with open(path, "rb") as file:
        while at + 8 <= size:
            file.seek(at)
            head = file.read(40)
            kind, length = head[:4], int.from_bytes(head[4:8], "little")
            if at >= stop and kind != b"RIFF":
                return  # behind the end, as the file states it
            if kind == b"RIFF":
                stop = at + 8 + length if length else size
            if kind == b"avih":
                streams = int.from_bytes(head[32:36], "little")
            packets = after == b"movi"
            known = kind.isalpha() or kind[:2] == b"ix" or kind == b"idx1"  # JUNK, LIST and others
            is_ours = kind[:2].isdigit() and int(kind[:2]) < streams
            if packets and (not (known or is_ours) or at + 8 + length > size):
                yield at
                return
            if kind in (b"RIFF", b"LIST"):
                after = b"movi" if head[8:12] in (b"movi", b"rec ") else head[8:12]
                at += 12
            else:
                after = b"" if kind == b"idx1" else after
                at += 8 + length + length % 2


def _lost_fragments(path: str) -> Iterator[str]:
    """Yield messages on fragments of an MP4 that are missing by their numbers, or by its index."""
    numbers, places, indexed = list[int](), set[int](), set[int]()
    with open(path, "rb") as file:
        for kind, place, length in _boxes(path):
            file.seek(place)
            if kind == b"moof":
                head = file.read(24)
                places.add(place)
                if head[12:16] == b"mfhd":
                    numbers.append(int.from_bytes(head[20:24], "big"))
            elif kind == b"mfra":
                indexed |= _indexed(file.read(min(length, _LARGEST_INDEX)))
    lost = sum(after - before - 1 for before, after in pairwise(numbers))
    if lost and all(before < after for before, after in pairwise(numbers)):
        yield f"{lost} of its fragments are missing by their numbers"
    elif len(indexed) > len(places):
        yield f"{len(indexed) - len(places)} of its fragments are missing by its index"


def _indexed(box: bytes) -> set[int]:
    """Return the places of fragments that an index (mfra) has."""
    found, at = set[int](), 8
    while at + 24 <= len(box):
        length, wide = int.from_bytes(box[at : at + 4], "big"), box[at + 8]
        if box[at + 4 : at + 8] == b"tfra":
            sizes = int.from_bytes(box[at + 16 : at + 20], "big")
            number = 8 if wide else 4
            entry = 2 * number + sum((sizes >> shift & 3) + 1 for shift in (4, 2, 0))
            count = int.from_bytes(box[at + 20 : at + 24], "big")
            starts = range(at + 24 + number, min(at + length, len(box)), entry)[:count]
            found |= {int.from_bytes(box[start : start + number], "big") for start in starts}
        if length < 8:
            break
        at += length
    return found


def missing_bytes(path: str) -> int:
    """Return the number of bytes that the file lacks by its own header (MP4, MOV, Matroska, AVI); 0 if
    complete or unknown.
    """
    if not os.path.isfile(path):
        return 0
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(64)
        if head[4:8] in _MP4_BOXES:
            end = max((place + length for _, place, length in _boxes(path)), default=0)
        elif head[:4] == _EBML:
            end = sum(_segment(head))
        elif head[:4] == b"RIFF":
            end = 8 + int.from_bytes(head[4:8], "little")
        else:
            end = 0
    return max(0, end - size)


def _boxes(path: str) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, place, length) of the boxes of an MP4 up to anything that is no box, which FFmpeg reports,
    or one that reaches up to the end of the file.
    """
    position, size = 0, os.path.getsize(path)
    with open(path, "rb") as file:
        while position + 8 <= size:
            file.seek(position)
            head = file.read(16)
            length = int.from_bytes(head[:4], "big")
            if length == 1:  # the real length follows, in 64 bits
                length = int.from_bytes(head[8:16], "big")
            if length < 8 or not head[4:8].isalnum():
                return
            yield head[4:8], position, length
            position += length


def _segment(head: bytes) -> tuple[int, int]:
    """Return the place and the length of what a Matroska file holds; 0 and 0 without a segment."""
    length, start = _ebml_size(head, 4)
    segment = start + length
    if head[segment : segment + 4] != _SEGMENT:
        return 0, 0
    length, start = _ebml_size(head, segment + 4)
    return start, length


def _ebml_size(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, position after it) of an EBML variable-length size; an unknown size counts as 0."""
    if at >= len(data) or data[at] == 0:
        return 0, at
    width = 9 - data[at].bit_length()
    value = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    return (0 if value == (1 << 7 * width) - 1 else value), at + width
