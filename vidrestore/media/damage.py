"""Collect signs of a damaged source while frames are read; FFmpeg decodes past most damage without an
error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

ROOM = 1 << 24  # bytes that can be allocated unless memory is short
MESSAGES_KEPT = 100
_TINY_PACKET = 8  # bytes; an MPEG-4 packet of this size is a not-coded VOP, without a picture
_MP4_BOXES = (
    b"ftyp",
    b"moov",
    b"mdat",
    b"moof",
    b"free",
    b"skip",
    b"wide",
    b"styp",
    b"sidx",
    b"uuid",
    b"mfra",
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
            end = _end_of_boxes(path, size)
        elif head[:4] == _EBML:
            end = _end_of_segment(head)
        elif head[:4] == b"RIFF":
            end = 8 + int.from_bytes(head[4:8], "little")
        else:
            end = 0
    return max(0, end - size)


def _end_of_boxes(path: str, size: int) -> int:
    position = 0
    with open(path, "rb") as file:
        while position + 8 <= size:
            file.seek(position)
            head = file.read(16)
            length = int.from_bytes(head[:4], "big")
            if length == 1:  # the real length follows, in 64 bits
                length = int.from_bytes(head[8:16], "big")
            # 0 means up to the end of the file; anything else is no box, which FFmpeg will report
            if length < 8 or not head[4:8].isalnum():
                return position
            position += length
    return position


def _end_of_segment(head: bytes) -> int:
    length, start = _ebml_size(head, 4)
    segment = start + length
    if head[segment : segment + 4] != _SEGMENT:
        return 0
    length, start = _ebml_size(head, segment + 4)
    return start + length


def _ebml_size(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, position after it) of an EBML variable-length size; an unknown size counts as 0."""
    if at >= len(data) or data[at] == 0:
        return 0, at
    width = 9 - data[at].bit_length()
    value = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    return (0 if value == (1 << 7 * width) - 1 else value), at + width
