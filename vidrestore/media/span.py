"""A part of a film: which frames are meant, and what of its other streams and chapters goes with them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from av.packet import Packet

APART = 10  # seconds: further than streams of one moment lie apart in a file, or a seek misses


@dataclass(frozen=True)
class Span:
    """The frames with start <= pts < stop, in ticks of the video stream; None is the film's own beginning or
    end.

    An output that has a `start` begins there at time 0.
    """

    start: int | None = None
    stop: int | None = None


WHOLE = Span()


class Cut:
    """What lies in a span, in seconds of the source's clock: packets that begin in it, each to be asked for
    in the file's order.

    Subtitles that are on screen when the span begins are kept from there on. A further video stream begins at
    its first key frame.
    """

    def __init__(self, span: Span, time_base: Fraction) -> None:
        self.start = None if span.start is None else span.start * time_base
        self.stop = None if span.stop is None else span.stop * time_base
        self._keys: dict[int, Fraction] = {}  # the time at which each further video stream begins

    def keeps(self, packet: Packet[Any]) -> bool:
        """Does the packet belong to the span? A subtitle that reaches beyond it is shortened."""
        from av.stream import Disposition

        begins = seconds(packet, packet.pts if packet.pts is not None else packet.dts)
        if begins is None:
            return True
        if packet.stream.disposition & Disposition.attached_pic:
            packet.pts = packet.dts = ceil((self.start or 0) / packet.time_base)
            return True
        if packet.stream.type == "subtitle":
            return self._shortened(packet, begins)
        if packet.stream.type == "video":
            return self._decodable(packet, begins)
        return (self.start is None or begins >= self.start) and (self.stop is None or begins < self.stop)

    def _shortened(self, packet: Packet[Any], begins: Fraction) -> bool:
        ends = begins + (packet.duration or 0) * packet.time_base
        first = begins if self.start is None else max(begins, self.start)
        last = ends if self.stop is None else min(ends, self.stop)
        if (first > begins and first >= ends) or (self.stop is not None and begins >= self.stop):
            return False
        if first > begins:
            packet.pts = packet.dts = ceil(first / packet.time_base)
        if (first, last) != (begins, ends):
            packet.duration = round((last - first) / packet.time_base)
        return True

    def _decodable(self, packet: Packet[Any], begins: Fraction) -> bool:
        """At the end it is the time of decoding that counts, so that no picture lacks one it is predicted
        from.
        """
        if self.start is not None:
            if packet.stream_index not in self._keys and packet.is_keyframe and begins >= self.start:
                self._keys[packet.stream_index] = begins
            if begins < self._keys.get(packet.stream_index, begins + 1):
                return False
        decoded = begins if packet.dts is None else packet.dts * packet.time_base
        return self.stop is None or decoded < self.stop

    def passed(self, packet: Packet[Any]) -> bool:
        """Is everything that the span holds certainly before this packet?"""
        time = seconds(packet, packet.dts if packet.dts is not None else packet.pts)
        return self.stop is not None and time is not None and time >= self.stop + APART

    def chapters(self, chapters: list[Any]) -> list[Any]:
        """Return the chapters that overlap the span, cut to it, with times relative to its beginning."""
        if self.start is None and self.stop is None:
            return chapters
        kept = []
        for chapter in chapters:
            base = Fraction(chapter["time_base"])
            first, last = chapter["start"] * base, chapter["end"] * base
            first = first if self.start is None else max(first, self.start)
            last = last if self.stop is None else min(last, self.stop)
            if first < last:
                times = (round((time - (self.start or 0)) / base) for time in (first, last))
                kept.append({**chapter, **dict(zip(("start", "end"), times, strict=True))})
        return kept


def moved(chapters: list[Any], shift: Fraction) -> list[Any]:
    """Chapters `shift` seconds later; one that would begin before 0 begins there."""
    late = []
    for chapter in chapters:
        ticks = round(shift / Fraction(chapter["time_base"]))
        late.append({**chapter, "start": max(0, chapter["start"] + ticks), "end": chapter["end"] + ticks})
    return late


def seconds(packet: Packet[Any], ticks: int | None) -> Fraction | None:
    """A time of a packet in seconds."""
    return None if ticks is None else ticks * Fraction(packet.time_base)
