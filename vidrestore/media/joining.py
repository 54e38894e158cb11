"""Segments become one film: their packets get the plan's times, the other streams come beside them, nothing is encoded.

Decoding times follow from the times of showing alone: packet n is decoded when picture n - d is shown, where d is how far decoding has to
run ahead in any of the segments. Every segment is closed, so no packet is then decoded after it is shown, and times rise strictly, also
where a segment ends. The first d packets lie before the first picture, as FFmpeg's encoders put them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vidrestore.errors import MediaError
from vidrestore.media.encoding import explained, full_duration
from vidrestore.media.file_output import FileOutput
from vidrestore.media.segment_file import SegmentFacts, StoredPacket, head_digest
from vidrestore.media.span import WHOLE, Span

if TYPE_CHECKING:
    from vidrestore.media.encoding import EncoderChoice
    from vidrestore.media.probe import SourceInfo


class JoinedFile(FileOutput):
    """The film that segments are joined to: `begin` with the times of all its frames, `put` each packet, then `finish`, or `abort`.

    It is set up as for encoding, so that it says of itself what a film encoded in one go would; the encoder in it gets no frame.
    `before_naming` is called with the path of the checked file before that gets its name; until then it is `partial`. Raises MediaError and
    OutputExistsError.
    """

    def __init__(
        self,
        output: str,
        source: SourceInfo,
        choice: EncoderChoice,
        copy: tuple[int, ...],
        *,
        overwrite: bool = False,
        scale: int = 1,
        span: Span = WHOLE,
        before_naming: Callable[[Path], None] = lambda path: None,
        partial: Path | None = None,
        first: int | None = None,
    ) -> None:
        super().__init__(output, source, choice, copy, overwrite=overwrite, scale=scale, span=span, partial=partial, first=first)
        self.before_naming = before_naming
        self._pts: Sequence[int] = ()
        self._durations: Sequence[int] = ()
        self._delay = self._written = 0

    def begin(self, pts: Sequence[int], durations: Sequence[int], delay: int) -> None:
        """The times of all frames in the order of showing, in ticks of the source; `delay` as in `SegmentFacts`, the largest of all."""
        for each in zip(pts, durations, strict=True):
            self._register(*each)
        self._pts, self._durations = pts, durations
        self._delay = min(delay, len(pts) - 1)

    def check_head(self, segment: Path, facts: SegmentFacts) -> None:
        """Raise MediaError where a segment was encoded in another way than this film says."""
        if facts.head != head_digest(self.stream.codec_context.extradata):
            raise MediaError(
                f"{segment}: encoded by another version of {self.choice.encoder} than the one here; add --restart to begin anew, or go "
                "on with the version that began"
            )

    def put(self, packet: StoredPacket, first: int) -> None:
        """The next packet, of a segment that begins with frame `first`."""
        import av

        made = av.Packet(packet.data)
        made.stream, made.time_base, made.is_keyframe = self.stream, self.time_base, packet.key
        made.pts = self._pts[first + packet.place] + self.shift
        made.dts = self._decoded_at(self._written) + self.shift
        made.duration = self._duration(first + packet.place)
        self._written += 1
        try:
            self._hold(made)
        except Exception as error:
            raise explained(self.output, error) from error

    def _decoded_at(self, packet: int) -> int:
        if packet >= self._delay:
            return self._pts[packet - self._delay]
        return self._pts[packet] - (self._pts[self._delay] - self._pts[0])

    def _duration(self, frame: int) -> int:
        return full_duration(self._durations[frame], self.video, self.time_base)

    def _flush(self) -> None:
        if self._written != len(self._pts):
            raise MediaError(f"{self.output}: {self._written} pictures were joined, but the plan has {len(self._pts)}; it was discarded")

    def _name(self) -> None:
        self.before_naming(self.partial)
        super()._name()
