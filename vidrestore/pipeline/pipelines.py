"""The pipeline that fits a restorer and the options of a restoration."""

from __future__ import annotations

from fractions import Fraction

from vidrestore.errors import OptionError
from vidrestore.frames import Scale, VideoInfo
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.plane_clips import Finish, PlaneClipRestorer
from vidrestore.pipeline.rgb_clips import RgbClipRestorer
from vidrestore.restorers.base import Restorer


def clip_restorer(
    restorer: Restorer, video: VideoInfo, options: RestoreOptions, threads: int
) -> ClipRestorer:
    """Return what restores planned clips of a video by `restorer`."""
    if restorer.sees == "rgb":
        scale = output_scale(restorer.facts.scale, options, video.height)
        return RgbClipRestorer(restorer, video, scale, strength=options.strength, threads=threads)
    finish = Finish(options.strength, options.chroma_strength, options.grain)
    return PlaneClipRestorer(restorer, video.format, finish, threads)


def output_scale(native: int, options: RestoreOptions, height: int) -> Scale:
    """Return how many times larger the output of a video of `height` lines is, at most `native` times.

    Raises OptionError for a height that is not larger, or too much so.
    """
    if native == 1:
        return 1
    if options.height is None:
        return min(options.scale, native)
    scale = Fraction(options.height, height)
    if not 1 < scale <= native:
        raise OptionError(
            f"`height={options.height}`: the video has {height} lines, and sr makes more of them, up to "
            f"{native * height}"
        )
    return int(scale) if scale.denominator == 1 else scale


def known_sigma(restorer: Restorer, options: RestoreOptions) -> float | None:
    """Return the noise to restore with: 0 if the restorer takes none, None if it is to be measured."""
    if not restorer.facts.needs_sigma:
        return 0.0
    return None if options.sigma == "auto" else options.sigma
