"""Join segments to one video: give their packets the plan's times and add the other streams, without
encoding.

Decoding times follow from presentation times alone: packet n is decoded when picture n - d is shown, where d
is the largest reordering delay of the segments. Every segment is closed, so no packet is decoded after it is
shown, and times increase strictly, also between segments. The first d packets are decoded before the first
picture is shown, as FFmpeg's encoders do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vidrestore.errors import MediaError
from vidrestore.media.encoding import full_duration
from vidrestore.media.muxer import Muxer
from vidrestore.media.segment_file import SegmentFacts, StoredPacket, head_digest


class JoinedFile:
    """The file that segments are joined to: `begin` with the times of all frames, `put` each packet, then
    `finish` or `abort`.
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
        """Set the times of all frames in display order, in ticks of the source; `delay` is the largest of the
        `SegmentFacts`.
        """
        for each in zip(pts, durations, strict=True):
            self.muxer.register(*each)
        self._pts, self._durations = pts, durations
        self._delay = min(delay, len(pts) - 1)

    def check_head(self, segment: Path, facts: SegmentFacts) -> None:
        """Raise MediaError if a segment was encoded with other headers than this video has."""
        if facts.head != head_digest(self.muxer.stream.codec_context.extradata):
            raise MediaError(
                f"{segment}: encoded by another version of {self.muxer.choice.encoder} than the one here; "
                "add `restart` to start over, or continue with the version that began"
            )

    def put(self, packet: StoredPacket, first: int) -> None:
        """Write the next packet, of a segment that begins with frame `first`."""
        import av

        output, muxer = av.Packet(packet.data), self.muxer
        output.time_base, output.is_keyframe = muxer.time_base, packet.key
        output.pts = self._pts[first + packet.place] + muxer.shift
        output.dts = self._decoded_at(self._written) + muxer.shift
        output.duration = full_duration(self._durations[first + packet.place], muxer.video, muxer.time_base)
        self._written += 1
        muxer.put(output)

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
        """Close and remove the unfinished file."""
        self.muxer.abort()
