"""Collect signs of a damaged source while frames are read; FFmpeg decodes past most damage silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from av.packet import Packet
from av.video.stream import VideoStream

ROOM = 1 << 24  # bytes that can be allocated unless memory is short
MESSAGES_KEPT = 100
# bytes; an MPEG-4 packet of this size is a not-coded VOP, without a picture
_TINY_PACKET = 8
# seconds; containers without durations may leave out frames, but not for so long
_HOLE = 1
_UNUSUAL = 10  # a hole is this many times longer than the mean time between frames


@dataclass
class Damage:
    """Signs of a damaged source; complete when all frames have been read."""

    # FFmpeg's errors and our own findings, without repetitions, at most a hundred
    messages: list[str] = field(default_factory=list)
    # times of the frames that are marked corrupt
    corrupt_pts: list[int] = field(default_factory=list)
    missing_frames: int = 0  # pictures that are in the file but did not decode
    # seconds between the end of the last frame and the stream's own end
    early_end: Fraction = Fraction(0)
    # findings of a walk through the file, which `walk` begins
    structure: Iterable[str] = ()

    @property
    def found(self) -> bool:
        return self.sentence is not None

    def walk(self) -> None:
        """Add the findings about the file's structure."""
        self.messages = [*dict.fromkeys((*self.structure, *self.messages))]
        self.structure = ()
        del self.messages[MESSAGES_KEPT:]

    def add(self, message: str) -> None:
        if message not in self.messages and len(self.messages) < MESSAGES_KEPT:
            self.messages.append(message)

    @property
    def sentence(self) -> str | None:
        """All signs in one line for the user, "the source is damaged: ..."; None without one."""
        self.walk()
        # the most certain signs first
        parts = []
        if self.missing_frames:
            parts.append(
                f"{self.missing_frames} frame{'s' * (self.missing_frames > 1)} could not be decoded"
            )
        if self.corrupt_pts:
            times = ", ".join(map(str, self.corrupt_pts[:5])) + ", ..." * (
                len(self.corrupt_pts) > 5
            )
            parts.append(f"{len(self.corrupt_pts)} marked corrupt (pts {times})")
        if self.early_end:
            parts.append(
                f"the video ends {float(self.early_end):.3f} s before its own promised end"
            )
        if count := len(self.messages):
            parts.append(
                f"{count} error message{'s' * (count > 1)}, first: {self.messages[0]}"
            )
        return f"the source is damaged: {'; '.join(parts)}" if parts else None


def check_memory() -> None:
    """Raise MemoryError if memory is short; FFmpeg reports a lack of memory also for damaged sizes."""
    bytearray(ROOM)


class Holes:
    """Finds gaps between packets, from their decoding times.

    In MP4 and MOV each packet lasts until the next, so that every hole is a loss; in MXF packets are numbered
    by one. In MPEG-TS and the like a hole must be long, also in comparison with the others. Other containers
    may leave out frames.
    """

    def __init__(self, container: str, time_base: Fraction) -> None:
        self.numbered = container == "mxf"
        self.exact = self.numbered or container.startswith("mov")
        self.least = 0 if self.exact else round(_HOLE / time_base)
        self.counts = self.exact or container in ("mpegts", "mpeg")
        self.time_base = time_base
        self._first: int | None = None
        self._last = self._end = self._number = 0
        # end of a packet, and ticks until the next
        self._gaps: list[tuple[int, int]] = []

    def add(self, packet: Packet[VideoStream]) -> None:
        if not self.counts or packet.dts is None:
            return
        # a gap is longer than a packet lasts, and than its container may leave out
        duration = packet.duration or 0
        if self._first is None:
            self._first = packet.dts
        else:
            gap = packet.dts - self._end
            allowed = 0 if self.numbered else max(self.least, duration)
            if gap > allowed and len(self._gaps) < MESSAGES_KEPT:
                self._gaps.append((self._end, gap))
        self._last, self._end = packet.dts, packet.dts + duration
        self._number += 1

    def messages(self) -> Iterator[str]:
        """Yield a message for each hole; complete when all packets were added."""
        # only against the mean is it known which gaps are unusual
        mean = (self._last - (self._first or 0)) / max(1, self._number)
        for place, ticks in self._gaps:
            if self.exact or ticks > _UNUSUAL * mean:
                seconds, begin = (
                    float(ticks * self.time_base),
                    float(place * self.time_base),
                )
                yield f"the video lacks {seconds:.3f} s from {begin:.3f} s on"


class PictureCount:
    """Compares the pictures in packets with the decoded frames, by pts."""

    def __init__(self, codec: str, floor: int | None = None) -> None:
        self.codec = codec
        self.frames = self._interlaced = self._lost = self._unmatched = 0
        self._floor = floor  # packets with a pts below it don't count
        self._started = False
        self._due: set[int] = set()  # pts of the pictures that may still come

    def add_packet(self, packet: Packet[VideoStream], time: int | None) -> None:
        """Count a packet sent to the decoder; `time` is when its picture is due, None if unknown."""
        # what comes before the first key frame isn't counted
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
            self._due.add(time)

    def lacks_picture(self, time: int | None) -> None:
        """Take back the picture that a packet was counted for."""
        self._due.discard(time)

    def add_frame(self, pts: int, interlaced: bool) -> None:
        """Count a decoded frame; frames come in the order of their pts, so pictures due earlier are lost."""
        if self._floor is not None and pts < self._floor:
            return
        # pictures due before this one did not come
        self.frames += 1
        self._interlaced += interlaced
        if pts in self._due:
            self._due.remove(pts)
        else:
            self._unmatched += 1
        earlier = {time for time in self._due if time < pts}
        self._lost += len(earlier)
        self._due -= earlier

    @property
    def pending(self) -> int:
        """The number of pictures that may still come."""
        return len(self._due)

    def missing(self, finished: bool) -> int:
        """Return the number of lost pictures; until `finished`, those in the decoder don't count."""
        pending = self.pending if finished else 0
        lost = max(0, self._lost + pending - self._unmatched)
        # each field had its own packet
        fields_alone = self._interlaced and lost <= self.frames <= lost + 1
        return 0 if fields_alone else lost


def _holds_picture(codec: str, packet: Packet[VideoStream]) -> bool:
    # an alternate reference frame is decoded but never shown: bit 4 of the first byte
    if codec == "vp8":
        return packet.size > 0 and bool(memoryview(packet)[0] & 0x10)
    return packet.size > (_TINY_PACKET if codec.startswith(("mpeg4", "msmpeg4")) else 0)
