"""The pipeline that fits a restorer and the options of a restoration."""

from __future__ import annotations

from vidrestore.media.probe import VideoInfo
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.plane_clips import PlaneClipRestorer
from vidrestore.pipeline.rgb_clips import RgbClipRestorer
from vidrestore.restorers.base import Restorer


def clip_restorer(
    restorer: Restorer, video: VideoInfo, options: RestoreOptions, threads: int
) -> ClipRestorer:
    """Return what restores planned clips of a video by `restorer`."""
    if restorer.sees == "rgb":
        return RgbClipRestorer(restorer, video, strength=options.strength, threads=threads)
    return PlaneClipRestorer(
        restorer,
        video.format,
        strength=options.strength,
        chroma_strength=options.chroma_strength,
        grain=options.grain,
        threads=threads,
    )


def known_sigma(restorer: Restorer, options: RestoreOptions) -> float | None:
    """Return the noise to restore with: 0 if the restorer takes none, None if it is to be measured."""
    if not restorer.facts.needs_sigma:
        return 0.0
    return None if options.sigma == "auto" else options.sigma
