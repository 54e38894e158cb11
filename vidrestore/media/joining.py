"""Segments become one video: their packets get the plan's times, the other streams come beside them, nothing
is encoded.

Decoding times follow from the times of showing alone: packet n is decoded when picture n - d is shown, where
d is how far decoding has to run ahead in any of the segments. Every segment is closed, so no packet is then
decoded after it is shown, and times rise strictly, also where a segment ends. The first d packets lie before
the first picture, as FFmpeg's encoders put them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vidrestore.errors import MediaError
from vidrestore.media.encoding import full_duration
from vidrestore.media.muxer import Muxer
from vidrestore.media.segment_file import SegmentFacts, StoredPacket, head_digest


class JoinedFile:
    """The file that segments are joined to: `begin` with the times of all its frames, `put` each packet, then
    `finish`, or `abort`.
    """

    def __init__(self, muxer: Muxer) -> None:
        self.muxer = muxer
        self._pts: Sequence[int] = ()
        self._durations: Sequence[int] = ()
        self._delay = self._written = 0

    @property
    def warnings(self) -> list[str]:
        return self.muxer.warnings

    @property
    def damage(self) -> str | None:
        return self.muxer.damage

    def begin(self, pts: Sequence[int], durations: Sequence[int], delay: int) -> None:
        """The times of all frames in the order of showing, in ticks of the source; `delay` as in
        `SegmentFacts`, the largest of all.
        """
        for each in zip(pts, durations, strict=True):
            self.muxer.register(*each)
        self._pts, self._durations = pts, durations
        self._delay = min(delay, len(pts) - 1)

    def check_head(self, segment: Path, facts: SegmentFacts) -> None:
        """Raise MediaError where a segment was encoded in another way than this video says."""
        if facts.head != head_digest(self.muxer.stream.codec_context.extradata):
            raise MediaError(
                f"{segment}: encoded by another version of {self.muxer.choice.encoder} than the one here; "
                "add `restart` to "
                "begin anew, or go on with the version that began"
            )

    def put(self, packet: StoredPacket, first: int) -> None:
        """The next packet, of a segment that begins with frame `first`."""
        import av

        made, muxer = av.Packet(packet.data), self.muxer
        made.time_base, made.is_keyframe = muxer.time_base, packet.key
        made.pts = self._pts[first + packet.place] + muxer.shift
        made.dts = self._decoded_at(self._written) + muxer.shift
        made.duration = full_duration(self._durations[first + packet.place], muxer.video, muxer.time_base)
        self._written += 1
        muxer.put(made)

    def _decoded_at(self, packet: int) -> int:
        if packet >= self._delay:
            return self._pts[packet - self._delay]
        return self._pts[packet] - (self._pts[self._delay] - self._pts[0])

    def finish(self) -> None:
        """Finish the file. Raises MediaError if packets are missing."""
        if self._written != len(self._pts):
            output = self.muxer.output
            raise MediaError(
                f"{output}: {self._written} pictures were joined, but the plan has {len(self._pts)}; it was "
                "discarded"
            )
        self.muxer.finish()

    def abort(self) -> None:
        """Leave nothing behind."""
        self.muxer.abort()
