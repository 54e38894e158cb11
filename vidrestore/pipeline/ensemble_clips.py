"""Clips through an ensemble: planes as in `plane_clips`, and pictures as in `rgb_clips` mixed in.

Of the frames that two clips share, a clip gives pictures only of those whose neighbours it holds, so that
every frame has one. It is mixed in after the planes of both clips are cross-faded.
"""

from __future__ import annotations

from collections.abc import Iterator

from vidrestore.clips import Planes
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame
from vidrestore.media.probe import VideoInfo
from vidrestore.pipeline.clip_restorer import EdgedClip, Second
from vidrestore.pipeline.plan import Clip
from vidrestore.pipeline.plane_clips import PLAIN, Finish, PlaneClipRestorer
from vidrestore.pipeline.rgb_clips import RgbClipRestorer
from vidrestore.restorers.base import EnsembleRestorer


class EnsembleClipRestorer(PlaneClipRestorer):
    """A PlaneClipRestorer whose restored frames are mixed with pictures; `finish` holds for both."""

    def __init__(
        self, restorer: EnsembleRestorer, video: VideoInfo, finish: Finish = PLAIN, threads: int = 1
    ) -> None:
        super().__init__(restorer, video.format, finish, threads)
        self.share = restorer.share
        self.pictures = RgbClipRestorer(restorer.pictures, video, threads=threads)

    def clips_at_once(self, frame: Frame) -> int:
        """See `ClipRestorer.clips_at_once`: as many as there is memory for in both."""
        return min(super().clips_at_once(frame), self.pictures.clips_at_once(frame))

    def second_estimates(self, edged: EdgedClip, source: Planes, planes: Planes) -> dict[int, Second]:
        """See `PlaneClipRestorer.second_estimates`."""
        shares, seconds = tuple(map(self.share, edged.clip.sigma)), dict[int, Second]()
        if self.pixels.family == "rgb":  # luma decides for R, G and B
            shares = (shares[0],) * len(shares)
        if not any(shares):
            return {}
        again = False
        for place, picture, repeated in self._pictures(edged):
            again |= repeated
            number, own = edged.clip.first + place, slice(place, place + 1)
            given, restored = [plane[own] for plane in source], [plane[None] for plane in picture]
            second = self.finished_estimate(tuple(given), tuple(restored), number)
            if edged.before <= number < edged.after:
                for plane, other, share in zip(planes, second, shares, strict=True):
                    if share:  # else the plane may be that of the source
                        plane[own].lerp_(other, share)
            else:
                seconds[place] = Second(tuple(plane[0] for plane in second), shares)
        if again:
            self.count_retry()
        return seconds

    def too_large(self, clip: Clip) -> VidRestoreError:
        """See `ClipRestorer.too_large`: pictures take the most, and tiles make them smaller."""
        return self.pictures.too_large(clip)

    def _pictures(self, edged: EdgedClip) -> Iterator[tuple[int, Planes, bool]]:
        """Yield the place of every frame whose neighbours are in the clip, its planes (H, W) restored, and
        whether half precision could not hold them; few at once, for the sake of memory.
        """
        clip, frames, stacks = edged.clip, edged.frames, edged.sent.arrived() if edged.sent else None
        radius = self.pictures.facts.radius
        places = self.pictures.kept(edged)
        step = max(1, self.pictures.facts.clip - 2 * radius)
        for at in range(*places, step):
            stop = min(at + step, places[1])
            part = slice(max(0, at - radius), min(len(frames), stop + radius))
            there = None if stacks is None else tuple(stack[part] for stack in stacks)
            keep = at - part.start, stop - part.start
            restored, again = self.pictures.planes(clip, frames[part], there, keep)
            yield from ((at + number, planes, again) for number, planes in enumerate(restored))
