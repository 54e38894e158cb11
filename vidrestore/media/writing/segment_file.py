"""A segment: consecutive restored frames, encoded by themselves, in a file format of our own.

It begins with a key frame and refers to nothing outside. Packets have the position of their picture in the
segment but no times. The file is a sequence of records, each with a head (kind, position, size), the CRC-32
of the whole record, both big-endian, and the data:

    0  a packet             1  the packet of a key frame
    2  the last record: a JSON object with `frames`, `delay`, `head` (of the encoder) and the writer's `label`

A file gets its name only when it is complete and on disk. A truncated file has no last record, an altered one
fails its checksums.

Joined to one video, packets get the plan's times, which no container has rounded and no encoder has moved.
Packet n is decoded when picture n - d is shown, where d is the largest reordering delay of the segments.
Every segment is closed, so no packet is decoded after it is shown, and times increase strictly, also between
segments. The first d packets are decoded before the first picture is shown, as FFmpeg's encoders do.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import av
from av.packet import Packet

from vidrestore.errors import MediaError
from vidrestore.files.atomic import Partial, sync_folder
from vidrestore.files.regular import Count, open_regular, parse_json
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.encoding import (
    Encoder,
    check_frame,
    full_duration,
    write_errors,
)
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.writing.muxer import MILLISECOND, Muxer, nearest_tick, same_tick
from vidrestore.media.writing.picture_writer import PictureFiles
from vidrestore.pixels.frames import Frame
from vidrestore.settings.checking import Checked, checked

_RECORD_HEAD, _RECORD_CHECK = struct.Struct(">BII"), struct.Struct(">I")
_PACKET, _KEY, _LAST = 0, 1, 2


@dataclass(frozen=True)
class SegmentFacts(Checked):
    """The last record of a segment, which describes it."""

    frames: Count  # their number
    delay: Count  # pictures by which decoding must run ahead of display
    head: str  # digest of the encoder's extradata, the same in all segments of a video
    label: Mapping[str, Any]  # the writer's identification of the segment


class SegmentWriter:
    """Encodes the frames of one segment into `path`, which may be changed until it is finished: `write` each,
    then `finish`, or `abort` to remove the file. Raises MediaError if the file can't be written, if a frame
    doesn't fit, or if its time is on the same tick of the container as the frame before.
    """

    def __init__(
        self, path: Path, source: SourceInfo, choice: EncoderChoice, *, first: int = 0
    ) -> None:
        self.path, self.source, self.choice = path, source, choice
        # number of the first frame in the video, and their count
        self.first, self.frames = first, 0
        self._before: int | None = None  # pts of the last frame
        self._origin = 0  # pts of the first
        # pts -> place, of the pictures inside the encoder
        self._places: dict[int, int] = {}
        self._packets = self._early = self._delay = 0
        with write_errors(str(path)):
            self._partial = Partial(path, private=True)
            try:
                self._encoder = Encoder.opened(choice, source.video)
            except BaseException:
                self.abort()
                raise
        self._head = self._encoder.head  # some encoders change it at the end

    def write(self, frame: Frame) -> None:
        """Encode the next frame; its time and duration are in ticks of the source."""
        # times begin at 0 in each segment
        video = self.source.video
        where = f"{self.source.path}, frame {self.first + self.frames}"
        check_frame(frame, video, where)
        self._check_tick(frame.pts)
        if self.frames == 0:
            self._origin = frame.pts
        pts, duration = frame.pts - self._origin, full_duration(frame.duration, video)
        self._places[pts] = self.frames
        self.frames += 1
        self._before = frame.pts
        self._store_all(self._encoder.encode(frame, pts, duration))

    def _check_tick(self, pts: int) -> None:
        if self._before is None:
            return
        # two frames on one tick could not be told apart; MP4 and MOV take the source's ticks
        container, base = self.choice.container, self.source.video.time_base
        tick = MILLISECOND if container in ("matroska", "webm") else base
        ticks, last = (nearest_tick(time * base / tick) for time in (pts, self._before))
        if ticks <= last:
            frame = self.first + self.frames
            raise same_tick(self.source.path, frame, pts, base, container, tick)

    def _store_all(self, packets: Iterator[Packet[Any]]) -> None:
        with write_errors(str(self.path)):
            for packet in packets:
                # how far decoding runs ahead of display shows in the places of the packets
                assert packet.pts is not None
                place = self._places.pop(packet.pts)
                self._delay = max(self._delay, self._packets - place)
                self._early += packet.dts is not None and packet.dts < 0
                self._packets += 1
                self._record(
                    _KEY if packet.is_keyframe else _PACKET, place, bytes(packet)
                )

    def _record(self, kind: int, place: int, data: bytes) -> None:
        head = _RECORD_HEAD.pack(kind, place, len(data))
        self._partial.file.write(
            head + _RECORD_CHECK.pack(zlib.crc32(data, zlib.crc32(head)))
        )
        self._partial.file.write(data)

    def finish(self, label: Mapping[str, Any]) -> SegmentFacts:
        """Flush the encoder, and give the file its name once all of it is on disk."""
        # all pictures must have come out
        self._store_all(self._encoder.flush())
        if self._packets != self.frames or self._places:
            raise MediaError(
                f"{self.path}: {self.choice.encoder} made {self._packets} pictures of {self.frames}; choose "
                "another `encoder`"
            )
        # The encoder's decoding times show its largest delay; x265's are wrong for one or two frames.
        delay = max(self._delay, self._early) if self.frames > 2 else self._delay
        facts = SegmentFacts(self.frames, delay, self._head, dict(label))
        with write_errors(str(self.path)):
            self._record(_LAST, self.frames, json.dumps(asdict(facts)).encode())
            self._partial.sync()
            self._partial.target = self.path
            self._partial.put_in_place()
            sync_folder(self.path.parent)
        return facts

    def abort(self) -> None:
        """Remove the unfinished file."""
        self._partial.discard()


def check_segment(path: Path) -> SegmentFacts:
    """Check a whole segment and return its facts. Raises MediaError if it is damaged or incomplete."""
    # a key frame first, and each place once
    places, first_is_key, last = set[int](), False, b""
    for kind, place, data in _records(path):
        if kind == _LAST:
            last = data
        else:
            first_is_key = first_is_key or (not places and kind == _KEY)
            places.add(place)
    try:
        facts = checked(SegmentFacts, parse_json(last), str(path), MediaError)
    except (ValueError, MediaError):
        raise _damaged(path, "its last record can't be read") from None
    if not first_is_key or len(places) != facts.frames or max(places) >= facts.frames:
        raise _damaged(path, f"{len(places)} of {facts.frames} pictures are there")
    return facts


def _records(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the kind, place and data of each record. Raises MediaError if the file is damaged."""
    kind = -1
    try:
        with open_regular(path) as file:
            left = os.fstat(file.fileno()).st_size
            while kind != _LAST:
                head, check = (
                    file.read(_RECORD_HEAD.size),
                    file.read(_RECORD_CHECK.size),
                )
                if len(check) < _RECORD_CHECK.size:
                    raise _damaged(path, "it is cut short")
                kind, place, size = _RECORD_HEAD.unpack(head)
                left -= len(head) + len(check) + size
                data = file.read(size) if kind <= _LAST and left >= 0 else b""
                checksum = zlib.crc32(data, zlib.crc32(head))
                if len(data) != size or (checksum,) != _RECORD_CHECK.unpack(check):
                    raise _damaged(path, "a check sum is wrong")
                yield kind, place, data
    except OSError as error:
        raise MediaError(f"{path}: can't be read ({error.strerror})") from error


def _damaged(path: Path, reason: str) -> MediaError:
    return MediaError(
        f"{path}: not a whole segment: {reason}; run again to make it again"
    )


def join_segments(
    output: Muxer | PictureFiles,
    segments: Sequence[tuple[Path, int, SegmentFacts]],
    times: Iterable[tuple[int, int]],
) -> Iterator[None]:
    """Put the packets of all segments, each (file, number of its first frame, facts), into `output`; yield
    after each packet. The caller finishes or aborts the output.

    `times` are pts and duration of all frames in display order, in ticks of the source. Raises MediaError if
    a segment is damaged or has other headers than the output's encoder, or if packets are missing.
    """
    # how far decoding runs ahead of display
    ticks = [output.register(pts, duration) for pts, duration in times]
    delay = min(max(facts.delay for _, _, facts in segments), len(ticks) - 1)
    late = ticks[delay][0] - ticks[0][0]

    # the packets of the files in their order, with the times of the whole output
    written = 0
    for path, first, facts in segments:
        if isinstance(output, Muxer) and facts.head != output.encoder.head:
            raise MediaError(
                f"{path}: encoded by another version of {output.choice.encoder} than the one here; add "
                "`restart` to start over, or continue with the version that began"
            )
        for kind, place, data in _records(path):
            if kind == _LAST:
                break
            packet = av.Packet(data)
            packet.time_base, packet.is_keyframe = output.time_base, kind == _KEY
            packet.pts, packet.duration = ticks[first + place]
            early = written < delay
            packet.dts = (
                ticks[written][0] - late if early else ticks[written - delay][0]
            )
            written += 1
            output.put(packet)
            yield
    if written != (planned := len(ticks)):
        raise MediaError(
            f"{output.output}: {written} pictures were joined, but the plan has {planned}; it was discarded"
        )
