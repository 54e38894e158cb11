"""Cut the other streams of a source to the part that is restored."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Any

from av.packet import Packet
from av.stream import Disposition

from vidrestore.pixels.frames import Span

# more than streams of a file are apart, and than the error of a seek
INTERLEAVING_SECONDS = 10


class Cut:
    """The packets that begin in a span, in seconds of the source; to be asked in the file's order.

    A subtitle that is on screen when the span begins is shown from there on. A further video stream begins at
    its first key frame.
    """

    def __init__(self, span: Span, time_base: Fraction) -> None:
        self.start = None if span.start is None else span.start * time_base
        self.stop = None if span.stop is None else span.stop * time_base
        # stream index -> start time of each further video stream
        self._keys: dict[int, Fraction] = {}

    def keeps(self, packet: Packet[Any]) -> bool:
        """Return True if the packet belongs to the span; a subtitle that reaches beyond it is shortened."""
        # what has no time belongs everywhere, a cover to the beginning
        start = seconds(packet, packet.pts if packet.pts is not None else packet.dts)
        if start is None:
            return True
        if packet.stream.disposition & Disposition.attached_pic:
            packet.pts = packet.dts = ceil((self.start or 0) / packet.time_base)
            return True
        if packet.stream.type == "subtitle":
            return self._shortened(packet, start)
        if packet.stream.type == "video":
            return self._decodable(packet, start)
        return self.holds(start)

    def holds(self, time: Fraction) -> bool:
        """Return True for a time in the span."""
        return (self.start is None or time >= self.start) and (
            self.stop is None or time < self.stop
        )

    def _shortened(self, packet: Packet[Any], start: Fraction) -> bool:
        # shown from the cut to the cut, in whole ticks
        end = start + (packet.duration or 0) * packet.time_base
        new_start = start if self.start is None else max(start, self.start)
        new_end = end if self.stop is None else min(end, self.stop)
        ended_before = new_start > start and new_start >= end
        begins_after = self.stop is not None and start >= self.stop
        if ended_before or begins_after:
            return False
        if new_start > start:
            packet.pts = packet.dts = ceil(new_start / packet.time_base)
        if (new_start, new_end) != (start, end):
            packet.duration = round((new_end - new_start) / packet.time_base)
        return True

    def _decodable(self, packet: Packet[Any], start: Fraction) -> bool:
        """Return True for a packet after the first key frame, decoded before the end of the span."""
        # before its first key frame further video can't be decoded
        if self.start is not None:
            if (
                packet.stream_index not in self._keys
                and packet.is_keyframe
                and start >= self.start
            ):
                self._keys[packet.stream_index] = start
            if start < self._keys.get(packet.stream_index, start + 1):
                return False
        decoded = start if packet.dts is None else packet.dts * packet.time_base
        return self.stop is None or decoded < self.stop

    def is_passed_by(self, packet: Packet[Any]) -> bool:
        """Return True if all packets of the span are certainly before this one."""
        time = seconds(packet, packet.dts if packet.dts is not None else packet.pts)
        return (
            self.stop is not None
            and time is not None
            and time >= self.stop + INTERLEAVING_SECONDS
        )

    def chapters(self, chapters: list[Any]) -> list[Any]:
        """Return the chapters that overlap the span, clipped to it, with times relative to its beginning."""
        clipped = []
        # clip each chapter, in its own ticks
        origin = self.start or 0
        for chapter in chapters:
            base = Fraction(chapter["time_base"])
            start, end = chapter["start"] * base, chapter["end"] * base
            start = start if self.start is None else max(start, self.start)
            end = end if self.stop is None else min(end, self.stop)
            if start < end:
                ticks = {
                    "start": round((start - origin) / base),
                    "end": round((end - origin) / base),
                }
                clipped.append({**chapter, **ticks})
        return clipped


def later_code(code: str, count: int, rate: Fraction) -> str | None:
    """Return the time code `count` frames after "hh:mm:ss:ff", or "hh:mm:ss;ff", of which each minute but the
    tenth leaves out the first numbers (SMPTE ST 12-1); None for another text.
    """
    match, nominal = (
        re.fullmatch(r"(\d+):(\d\d):(\d\d)([:;.])(\d\d)", code),
        round(rate),
    )
    if not match or int(match[5]) >= nominal:
        return None
    # count on frame by frame: which numbers are left out depends on the minute
    hours, minutes, clock, number = (int(match[group]) for group in (1, 2, 3, 5))
    clock += 3600 * hours + 60 * minutes  # in seconds
    omitted = 0 if match[4] == ":" else nominal // 15  # numbers of a minute
    for _ in range(count):
        number += 1
        if number == nominal:
            clock += 1
            number = omitted if clock % 60 == 0 and clock % 600 else 0
    hours, minutes = clock // 3600 % 24, clock // 60 % 60
    return f"{hours:02}:{minutes:02}:{clock % 60:02}{match[4]}{number:02}"


def seconds(packet: Packet[Any], ticks: int | None) -> Fraction | None:
    """Convert a time of a packet to seconds."""
    return None if ticks is None else ticks * Fraction(packet.time_base)
