"""Decode the pictures of one file in display order, from any time on, and record all damage."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from fractions import Fraction
from itertools import accumulate, chain
from typing import NamedTuple

import av
from av import logging as ffmpeg
from av.codec.codec import Capabilities
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vidrestore.errors import MediaError
from vidrestore.media.containers.file_bytes import LARGEST_INDEX
from vidrestore.media.formats.damage import MESSAGES_KEPT, Damage, Holes, PictureCount
from vidrestore.media.formats.log import collect_errors, log_level
from vidrestore.media.formats.side_data import CAPTIONED, filtered, has_captions
from vidrestore.media.formats.source import Y4M
from vidrestore.media.reading.coding_loss import PARAMETERS, JpegPlane, jpeg_planes
from vidrestore.media.reading.field_pictures import Weaver
from vidrestore.media.reading.probe import (
    DECODER_OPTIONS,
    open_input,
    packets_of,
    video_stream,
)
from vidrestore.media.reading.y4m import bytes_lacking
from vidrestore.pixels.frames import VideoInfo

# seconds before the wanted time, tried in turn; then the start of the file
_SEEK_BACK = (0, 2, 10, 40)

_NEVER = -(1 << 63)
# errors that FFmpeg logs although every picture is whole
_HARMLESS = re.compile(
    # MS-MPEG-4: only a bit rate, which version 1 never has
    r"ext header missing, -?\d+ left"
    # H.264 and H.265: a message beside the pictures
    r"|SEI type \d+ size \d+ truncated"
)
# names under which FFmpeg reads raw AV1, beside that of the format
_OBU_READERS = frozenset({"AV1 Annex B/low overhead OBU demuxer", "av1_frame_merge"})
# decoders that may give the picture of a packet later
_LATER = Capabilities.delay | Capabilities.frame_threads
# bytes of a packet that may hold no picture; larger ones without a picture are damaged
_EMPTY = 16
_JPEG_RANGE = 2  # FFmpeg's number of the full range of samples
# change of the aspect from which a picture is taken for turned
_TURNED_ASPECT = Fraction(3, 2)
_MOST_LATE = 16  # most pictures that an H.264 or H.265 decoder reorders


class _UndrainedError(Exception):
    """A decoder with threads had an error at the end and holds pictures that PyAV can't get."""


class _Reached(NamedTuple):
    """The latest times of packets up to one, in ticks."""

    dts: int = _NEVER  # of decoding, as stored since the clock was set back
    pts: int = _NEVER  # of showing, as moved
    stop: int = _NEVER  # when the last one shown ends, as moved


class PacketClock:
    """Follows the clock of a file's packets: where it is set back, a key frame moves behind all before it,
    with all that follows.

    | last packet | decoding time of this one                   | state                                      |
    |-------------|---------------------------------------------|--------------------------------------------|
    | in step     | behind the latest                           | in step                                    |
    | in step     | before the latest, but behind all before    | in step; the last packet alone was ahead,  |
    |             | the last packet                             | and its times don't count                  |
    | either      | of a key frame, before the latest, as is    | set back                                   |
    |             | the time at which it is shown               |                                            |
    | either      | of another packet, before the latest        | in step                                    |
    | set back    | behind all before the last packet           | in step; that packet alone was early, the  |
    |             |                                             | clock is as it was before                  |
    | set back    | behind that of the last packet only         | in step, by the new clock                  |
    """

    def __init__(self) -> None:
        # where the clock was set back, and ticks moved since then
        self.restarts: list[tuple[int, int]] = []
        self.mended: list[int] = []  # times made up for pictures whose own did not rise
        self._reached = self._before = _Reached()  # the latter without the last packet
        self._is_set_back = False  # whether it was at the last packet
        self._recent: deque[int] = deque(maxlen=2)  # pts of the packets before

    def follow(self, packet: Packet[VideoStream]) -> tuple[int, ...]:
        """Move a packet; return the pts of those before it if the clock is set back there."""
        if packet.dts is None or packet.pts is None:
            return ()

        # leave out the last packet if it alone was out of step
        if self._is_set_back and packet.dts > self._before.dts:
            self.restarts.pop()
            self.mended.append(self._reached.pts)
            self._reached = self._before
        elif self._before.dts < packet.dts < self._reached.dts:
            self._reached = self._before
        reached = self._before = self._reached

        # a key frame that comes before all others in both clocks sets them back
        moved = self.restarts[-1][1] if self.restarts else 0
        is_earlier = packet.dts < reached.dts and packet.pts + moved <= reached.pts
        self._is_set_back = packet.is_keyframe and is_earlier
        latest = max(reached.dts, packet.dts)
        restart = tuple[int, ...]()
        if self._is_set_back:
            moved = reached.stop - packet.pts
            self.restarts.append((reached.pts, moved))
            latest, restart = packet.dts, tuple(self._recent)

        # from here on times are those of one clock that rises
        packet.pts, packet.dts = packet.pts + moved, packet.dts + moved
        self._recent.append(packet.pts)
        stop = packet.pts + max(1, packet.duration or 0)
        self._reached = _Reached(
            latest, max(reached.pts, packet.pts), max(reached.stop, stop)
        )
        return restart


class PictureTimes:
    """The times of pictures: their packets' own, in a raw stream their numbers, and with `video.by_order` the
    times of packets in order.
    """

    def __init__(self, video: VideoInfo) -> None:
        self.video = video
        self._sent = self._shown = 0  # packets and pictures of a raw stream
        self._queue: deque[int] = deque()  # times of packets whose picture is still due
        self._last: int | None = None  # the latest of them

    def due(self, packet: Packet[VideoStream]) -> int | None:
        """Return the time of the picture in a packet, or of the picture that will be shown in its place."""
        # a raw stream numbers its pictures, from the first that can be decoded
        if self.video.numbered:
            self._sent += bool(self._sent or packet.is_keyframe)
            return self._sent - 1
        if not self.video.by_order:
            return packet.dts if packet.pts is None else packet.pts
        # times that rise go to pictures in the order in which they are shown
        rises = packet.pts is not None and (
            self._last is None or packet.pts > self._last
        )
        time = packet.pts if rises else packet.dts
        if time is not None:
            self._queue.append(time)
            self._last = time
        return self._last

    def assign(self, picture: VideoFrame) -> None:
        """Set a picture's pts; it stays None if the file has none."""
        if self.video.numbered:
            picture.pts, picture.duration, picture.time_base = (
                self._shown,
                1,
                self.video.time_base,
            )
            self._shown += 1
        elif self.video.by_order:
            # one picture per packet, so the n-th picture shown has the n-th time
            picture.pts = self._queue.popleft() if self._queue else None
        elif picture.pts is None and not self.video.reordered:
            picture.pts = picture.dts  # without reordering, the two are equal


class Decoding:
    """One pass over the video stream of `source`, which adds problems to `damage`."""

    def __init__(
        self,
        source: str,
        video: VideoInfo,
        threads: int,
        damage: Damage,
        *,
        losses: bool,
        restarted: bool,
    ) -> None:
        self.source, self.video, self.threads, self.damage = (
            source,
            video,
            threads,
            damage,
        )
        self.losses = losses  # whether pictures have their quantisers
        # whether the clock is set back: only a read from the start has the times
        self.restarted = restarted
        self.clock, self._times = PacketClock(), PictureTimes(video)
        self._count = PictureCount(video.codec)
        self._holes: Holes | None = None
        self.longest = 0  # longest duration of a packet so far, in ticks
        # the end of the packets of an MP4 or MOV, or of an AVI that ends with empty ones
        self.reach = 0
        self._number = 0  # number of the next picture
        self._last: int | None = None  # pts of the last picture
        self.captioned = False  # whether a packet held closed captions
        self.is_altered = any(video.crop)  # whether pictures are not as they are stored
        # pictures of another size or format than the first, which were made like it
        self.changed_forms = 0
        # pts and form of the first of them
        self.changed_form: tuple[int, str] | None = None
        # of the packet of the latest picture, if that is a JPEG
        self.jpeg: tuple[JpegPlane, ...] = ()
        self._recording = True
        # pts of the packets that the demuxer marked corrupt
        self._marked: list[int | None] = []

    def pictures(
        self,
        start_pts: int | None = None,
        stop_pts: int | None = None,
        *,
        around: int = 0,
    ) -> Generator[VideoFrame]:
        """Yield pictures, each with a pts; with `start_pts` exactly those of a full decode from there on.

        With `stop_pts` the last is the first that is not below it; `around` adds so many before and after.
        Pictures of one field each are woven into frames.
        """
        if not self.video.field_pictures:
            yield from self._pictures(start_pts, stop_pts, around)
            return
        with closing(self._pictures(start_pts, stop_pts, 2 * around + 1)) as fields:
            yield from Weaver(self.video, self.damage).frames(fields, start_pts)

    def _pictures(
        self, start_pts: int | None, stop_pts: int | None, around: int
    ) -> Generator[VideoFrame]:
        # the picture after the span is decoded too: it ends the last one's duration
        after = 0
        with closing(self._every_picture(start_pts, around)) as pictures:
            for picture in pictures:
                after += stop_pts is not None and _pts(picture) >= stop_pts
                if after > around:
                    self._conclude(finished=False)
                    yield picture
                    return
                yield picture
                del picture  # return its buffers to the decoder
        self._conclude(finished=True)

    def _conclude(self, *, finished: bool) -> None:
        """Add damage that is certain only at the end."""
        # pictures, gaps in time, and packets that the demuxer doubts
        self.damage.missing_frames += self._count.missing(finished)
        for message in self._holes.messages() if self._holes else ():
            self.damage.add(message)
        for pts in self._marked:
            self.damage.add(f"the packet with pts {pts} is marked corrupt")

    def _every_picture(
        self, start_pts: int | None, around: int
    ) -> Generator[VideoFrame]:
        try:
            yield from self._ordered(
                self._pictures_from(start_pts, around, self.threads)
            )
        except _UndrainedError:
            self.damage.missing_frames += self._count.missing(finished=False)
            # one thread gives what the others held back
            resume_pts = start_pts if self._last is None else self._last + 1
            yield from self._ordered(
                self._pictures_from(resume_pts, around if self._last is None else 0, 1)
            )

    def _pictures_from(
        self, start_pts: int | None, around: int, threads: int
    ) -> Generator[VideoFrame]:
        """Yield pictures from one time on, after `around` of those before it, as a full read gives them."""
        if start_pts is None:
            self._recording = True
            yield from self._decode(None, None, threads)
            return
        # jump back further and further, until a decode reaches the wanted picture as a full read would
        for target in self._targets(start_pts):
            # ignore errors of pictures before the wanted one, whose references were not decoded
            self._recording = False
            with closing(self._decode(target, start_pts, threads)) as pictures:
                before, count = deque[VideoFrame](maxlen=around), 0
                first = next(pictures, None)
                while first is not None and _pts(first) < start_pts:
                    before.append(first)
                    count += 1
                    first = next(pictures, None)
                is_exact = first is not None and _pts(first) == start_pts
                if target is not None and count < max(around, not is_exact):
                    # landed late (.ts does), or the decoder needed longer to recover: start further back
                    continue
                self._recording = True
                yield from before
                yield from chain([first] if first else [], pictures)
                return

    def _targets(self, start_pts: int) -> Iterator[int | None]:
        for back in () if self.restarted or self.video.by_order else _SEEK_BACK:
            target = start_pts - int(back / self.video.time_base)
            if (
                self.video.start is not None
                and target > self.video.start
                and not self.video.numbered
            ):
                yield target
        yield None

    def _decode(
        self, target: int | None, floor: int | None, threads: int
    ) -> Generator[VideoFrame]:
        """Yield the decoded pictures of the stream from the key frame before `target` on, None: from the
        start.
        """
        self.clock, self._times = PacketClock(), PictureTimes(self.video)
        self._count = PictureCount(self.video.codec, floor)
        self._holes = None

        # errors of the demuxer while it opens the file are damage, too
        with log_level(ffmpeg.ERROR), ffmpeg.Capture() as messages:
            opened = open_input(self.source)
        with opened as container:
            for level, name, message in messages:
                if level <= ffmpeg.ERROR and name == container.format.name:
                    self._complain(f"{name}: {message}")

            # what its packets must be watched for, by the container
            stream = video_stream(container)
            lead = (
                _lead(stream, self.video)
                if container.format.name.startswith("mov")
                else None
            )
            # MP4 and MOV have times by their index
            follows = target is None and lead is None and not self.video.by_order
            if target is None and floor is None:
                self._holes = Holes(container.format.name, self.video.time_base)
            if container.format.name == "avi":
                self.reach = _packets_up_to_empty(self.source, stream.index)

            # the decoder; threads only where the errors of each can be told apart
            context = stream.codec_context
            names = _OBU_READERS | {
                context.name,
                context.codec.canonical_name,
                container.format.name,
            }
            with collect_errors(names, self._complain) as self._errors:
                threads = threads if self._errors.mark else 1
                context.options = DECODER_OPTIONS | {
                    "log_level_offset": str(-self._errors.mark)
                }
                if self.losses:
                    context.options |= PARAMETERS
                # Never SLICE: with slice threads, damaged frames are not marked as such.
                context.thread_type = "NONE" if threads == 1 else "FRAME"
                context.thread_count = threads
                try:
                    # packets, pictures, and times that rise
                    packets = self._read(
                        _packets(container, stream, target, self._complain),
                        lead,
                        follows,
                    )
                    pictures = self._decode_packets(packets, stream, target is not None)
                    yield from self._mended(pictures) if target is None else pictures
                    # fields with packets of their own aren't pictures to wait for
                    if (
                        threads != 1
                        and self._count.pending
                        and self._count.missing(finished=True)
                    ):
                        raise _UndrainedError
                finally:
                    # Wait for the decoder's threads: closing holds the GIL, which they may need to log.
                    context.flush_buffers()

    def _read(
        self,
        packets: Iterator[Packet[VideoStream] | None],
        lead: int | None,
        follows: bool,
    ) -> Iterator[Packet[VideoStream] | None]:
        """Yield the packets of the stream, the last None, and note what each tells of times, losses and
        damage.
        """
        while True:
            with self._errors.calling():
                packet = next(packets)
            if packet is None:
                yield None
                return
            if follows and (restart := self.clock.follow(packet)):
                # packets of a TS are counted from 0 again, so that one of the last seems cut short
                self._marked = [pts for pts in self._marked if pts not in restart]
            # what each packet tells: its duration, losses, captions, and the end
            duration = packet.duration or 0
            self.longest = max(self.longest, duration)
            if self._holes:
                self._holes.add(packet)
            if self.losses and self.video.codec == "mjpeg":
                self.jpeg = jpeg_planes(bytes(packet))
            if not self.captioned and self.video.codec in CAPTIONED:
                self.captioned = has_captions(bytes(packet))
            if lead is not None and packet.dts is not None:
                self.reach = max(self.reach, packet.dts + duration + lead)
            yield packet

    def _decode_packets(
        self,
        packets: Iterator[Packet[VideoStream] | None],
        stream: VideoStream,
        sought: bool,
    ) -> Iterator[VideoFrame]:
        first_key = None
        # behind a jump, pictures count from the first key frame on
        for packet in packets:
            if sought and first_key is None:
                if packet is None or packet.pts is None:
                    return  # only a decode from the start knows which picture is which
                if not packet.is_keyframe:
                    continue
                first_key = packet.pts
            for picture in self._decode_packet(packet, stream):
                # earlier pictures of an open group can't be decoded from here
                if first_key is None or _pts(picture) >= first_key:
                    yield picture

    def _decode_packet(
        self, packet: Packet[VideoStream] | None, stream: VideoStream
    ) -> list[VideoFrame]:
        """Return the pictures that a packet completes; None is the end. Raises MediaError for one without a
        time.
        """
        due: int | None = None
        # record the packet, and the time at which its picture is due
        if packet is not None:
            if (
                packet.is_corrupt
                and self._recording
                and len(self._marked) < MESSAGES_KEPT
            ):
                self._marked.append(packet.pts)
            if not _is_hidden(self.video.codec, packet):
                due = self._times.due(packet)
                self._count.add_packet(packet, due)

        try:
            with self._errors.calling():
                pictures = stream.codec_context.decode(packet)
        except av.error.FFmpegError as error:
            where = (
                "at the end"
                if packet is None
                else f"in the packet with pts {packet.pts}"
            )
            self._complain(f"{stream.codec_context.name}: {error.strerror} {where}")
            return []

        has_delay = stream.codec_context.codec.capabilities & _LATER
        if (
            packet
            and packet.size <= _EMPTY
            and not (pictures or has_delay or self.damage.found)
        ):
            # the picture before stays, as in recordings of screens (TSCC)
            self._count.lacks_picture(due)
            self.reach = max(self.reach, (due or 0) + (packet.duration or 0))

        # give each picture its time
        for picture in pictures:
            self._times.assign(picture)
            if picture.pts is None:
                raise MediaError(
                    f"{self.source}, frame {self._number}: it has no time stamp, and making one up could put "
                    "it in the wrong place; give the frames times first, for example: ffmpeg -i IN -c:v ffv1 "
                    "OUT.mkv"
                )
            self._count.add_frame(picture.pts, picture.interlaced_frame)
        return [self._fitted(picture, stream) for picture in pictures]

    def _fitted(self, picture: VideoFrame, stream: VideoStream) -> VideoFrame:
        """Return a picture without what its container hides, of the size and format of the stream's first."""
        video = self.video
        left, right, top, bottom = self.video.crop
        size = picture.width - left - right, picture.height - top - bottom
        first = video.width, video.height // (1 + video.field_pictures)
        # as it is, cropped, or made like the first
        if size == first and picture.format.name == video.pix_fmt:
            if not any(video.crop):
                return picture
            filters = [("crop", f"{video.width}:{video.height}:{left}:{top}:exact=1")]
        else:
            self.is_altered = True
            self.changed_forms += 1
            self.changed_form = self.changed_form or (_pts(picture), _form(picture))
            filters = _scaling(picture, first, video)
        fitted = filtered(stream, picture, *filters)
        fitted.pts, fitted.duration = picture.pts, picture.duration
        return fitted

    def _mended(self, pictures: Iterator[VideoFrame]) -> Iterator[VideoFrame]:
        """Yield pictures; one that repeats the time before it, or whose time is out of step with both its
        neighbours, gets the middle of the gap between these.
        """
        # a picture is judged between its neighbours, so one is held back
        last, picture = None, next(pictures, None)
        while picture is not None:
            next_picture = next(pictures, None)
            pts = _pts(picture)
            next_pts = None if next_picture is None else _pts(next_picture)
            overtakes = (
                last is not None and next_pts is not None and last < next_pts < pts
            )
            wrong = overtakes or (last is not None and pts <= last)
            if wrong and not self.damage.found:
                assert last is not None
                next_pts = last + max(2, self.longest) if next_pts is None else next_pts
                if next_pts > last + 1:
                    picture.pts = (last + next_pts) // 2
                    self.clock.mended.append(picture.pts)
            last = _pts(picture)
            yield picture
            picture = next_picture

    def _ordered(self, pictures: Generator[VideoFrame]) -> Iterator[VideoFrame]:
        """Yield pictures in increasing order of time; in a damaged stream, late pictures count as missing.

        If there are more late ones than a decoder reorders, the times have restarted, which is an error.
        """
        # a damaged stream may give a picture late, an undamaged one never
        late = 0
        with closing(pictures):
            for picture in pictures:
                pts = _pts(picture)
                if self._last is None or pts > self._last:
                    self._number += 1
                    self._last, late = pts, 0
                    yield picture
                elif self.damage.found and late < _MOST_LATE:
                    late += 1
                    self.damage.add(
                        f"the picture with pts {pts} came after the one with pts {self._last}: left out"
                    )
                    self.damage.missing_frames += 1
                else:
                    raise MediaError(
                        f"{self.source}, frame {self._number}: its time (pts {pts}) is not after the one "
                        f"before it ({self._last}); the file was joined from several or its times are "
                        "wrong: ffmpeg -i IN -map 0 -c copy OUT.mkv may mend them, else split it there"
                    )

    @property
    def change_of_form(self) -> str | None:
        """A sentence on pictures so far of another size or format than the first; None without."""
        if self.changed_form is None:
            return None
        pts, form = self.changed_form
        count = (
            f"{self.changed_forms} frames are"
            if self.changed_forms > 1
            else "1 frame is"
        )
        place = f"{form}, at {float(pts * self.video.time_base):.3f} s"
        return f"{count} of another size or format (first {place}); made like the first, {_form(self.video)}"

    def _complain(self, message: str) -> None:
        if self._recording and not _HARMLESS.search(message):
            self.damage.add(message.strip())


def _scaling(
    picture: VideoFrame, size: tuple[int, int], video: VideoInfo
) -> list[tuple[str, str]]:
    """Return the filters that give a picture another size and the pixel format of `video`. Pixels have
    another shape then, as in adaptive streaming; but a picture that was turned by a quarter gets bars.
    """
    # ranges are named, or the filter would take those of the first picture
    words = {True: "full", False: "limited"}
    is_full = picture.color_range == _JPEG_RANGE or picture.format.name.startswith(
        "yuvj"
    )
    before, after = words[is_full], words[video.colour.range == _JPEG_RANGE]
    options = "{}:{}:interl=-1:in_range={}:out_range={}".format(*size, before, after)
    turned = Fraction(picture.width * size[1], picture.height * size[0])
    pixels = ("format", f"pix_fmts={video.pix_fmt}")
    if 1 / _TURNED_ASPECT < turned < _TURNED_ASPECT:
        return [("scale", options), pixels]
    within = f"{options}:force_original_aspect_ratio=decrease:force_divisible_by=4"
    return [("scale", within), pixels, ("pad", "{}:{}:-1:-1".format(*size))]


def _form(pictures: VideoFrame | VideoInfo) -> str:
    format = (
        pictures.pix_fmt if isinstance(pictures, VideoInfo) else pictures.format.name
    )
    return f"{pictures.width}x{pictures.height} in {format}"


def _pts(picture: VideoFrame) -> int:
    assert picture.pts is not None
    return picture.pts


def _is_hidden(codec: str, packet: Packet[VideoStream]) -> bool:
    """Return True for frames of VP9 that are decoded but not shown, by the first byte of each (the VP9
    bitstream, 6.2); several in a packet have an index at its end (annex B).
    """
    if codec != "vp9" or not packet.size:
        return False
    # without an index a packet is one frame
    data, starts = memoryview(packet), [0]
    index = data[-1]
    count, width = (index & 7) + 1, (index >> 3 & 3) + 1
    place = len(data) - 2 - count * width
    if index >> 5 == 0b110 and place >= 0 and data[place] == index:
        fields = (data[place + 1 + number * width :][:width] for number in range(count))
        sizes = (int.from_bytes(field, "little") for field in fields)
        starts = [*accumulate(sizes, initial=0)][:-1]
    firsts = (data[start] for start in starts if start < len(data))
    # it is shown, or shows an earlier one; profile 3 has a bit more before these two
    return not any(
        (first if first >> 4 & 3 == 3 else first >> 1) & 0b101 for first in firsts
    )


def _packets_up_to_empty(path: str, number: int) -> int:
    """Return the number of an AVI stream's packets if the last is empty, to show a picture on; else 0."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - LARGEST_INDEX))
        # entries of 16 bytes: the stream, flags, place and size
        _, name, index = file.read().rpartition(b"idx1")
    length = int.from_bytes(index[:4], "little") if name else 0
    entries = [
        index[offset : offset + 16]
        for offset in range(4, min(4 + length, len(index) - 15), 16)
    ]
    sizes = [entry[12:16] for entry in entries if entry[:3] == b"%02dd" % number]
    return len(sizes) if sizes and not any(sizes[-1]) else 0


def _lead(stream: VideoStream, video: VideoInfo) -> int:
    """Return how many ticks before the first picture is shown an MP4 or MOV begins to be decoded."""
    first = next(
        (entry.timestamp for entry in stream.index_entries if not entry.is_discard),
        None,
    )
    return 0 if first is None or video.start is None else video.start - first


def _packets(
    container: InputContainer,
    stream: VideoStream,
    target: int | None,
    complain: Callable[[str], None],
) -> Iterator[Packet[VideoStream] | None]:
    """Yield the stream's packets from the key frame before `target`, then None, which flushes the decoder."""
    # other streams aren't demuxed
    for other in container.streams:
        if other is not stream:
            other.discard = Discard.all

    def late() -> None:
        complain(
            f"{container.format.name}: a stream begins within the file and is left out"
        )

    try:
        if target is not None:
            container.seek(target, stream=stream)
        last = None
        for packet in packets_of(container, stream, late):
            # an empty packet (AVI's way to repeat a frame) would end the decoding
            if packet.size:
                last = packet
                yield packet
        if (
            last
            and container.format.name == Y4M
            and (lacking := bytes_lacking(last, container.size))
        ):
            complain(f"the file is cut short: {lacking} bytes of it are missing")
    except av.error.FFmpegError as error:
        complain(f"{container.format.name}: {error.strerror}; reading ends there")
    yield None
