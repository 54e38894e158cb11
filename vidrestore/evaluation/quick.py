"""The suite `quick`: any video, without anything to compare it with. How noisy it is before and after
restoration, and how it flickers.

Flicker: what the mean of a patch of 16x16 that follows the motion changes from frame to frame. Motion is
found in the source, for both videos. Per frame it is the median over the patches, so that those that got lost
don't count, over 0.6745, which makes it the standard deviation where the changes are Gaussian; on the 0-255
scale, of luma (or of the first plane). Fine noise averages out in a patch; what is left is what one sees
pulsing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import vidrestore
from vidrestore.colour import planes_to_grey, yuv_to_rgb
from vidrestore.errors import OptionError
from vidrestore.evaluation.contestants import GIVEN, NAMES, Contestant, told_apart
from vidrestore.evaluation.figures import rows_last
from vidrestore.evaluation.results import ClipFigures, Result, Row, Shown, rounded
from vidrestore.evaluation.sequence_frames import eight_bits
from vidrestore.frames import Frame
from vidrestore.media.probe import VideoInfo
from vidrestore.media.reader import VideoReader
from vidrestore.models.grouping import GROUP
from vidrestore.models.matching import Grid, gather, matched_places
from vidrestore.noise import NoiseEstimator
from vidrestore.options import DROPPABLE, EncoderOptions, RestoreOptions
from vidrestore.weights import load_model

Tell = Callable[[str], None]
SECONDS = 10.0  # of a video, from its beginning
MODEL = "dust-denoise"
PATCH = 16  # pixels
MEDIAN_OF_NORMAL = 0.6745  # of the magnitudes of a normal distribution of standard deviation 1


@dataclass
class Side:
    """The measurements of one video: its noise, its flicker frame by frame, and the frame in its middle."""

    estimator: NoiseEstimator
    flicker: list[float] = field(default_factory=list)
    picture: NDArray[np.uint8] | None = None

    @property
    def values(self) -> dict[str, float]:
        return {"noise": self.estimator.sigma(), "flicker": fmean(self.flicker) if self.flicker else 0.0}


def evaluate_films(
    videos: Sequence[Path], weights: Sequence[str], seconds: float, device: str, tell: Tell, threads: int = 0
) -> Result:
    """Restore the first `seconds` of each video with each of the weights, `dust-denoise` unless some are
    named, and measure both.

    Raises OptionError without a video, and for weights that change its size; MediaError, CheckpointError.
    """
    if not videos:
        raise OptionError("quick: name at least one video: `vidrestore eval --suite quick video.mp4`")
    if not 0 < seconds < math.inf:
        raise OptionError(f"`seconds` must be a number above 0, got {seconds}")
    rows: list[Row] = []
    clips: list[ClipFigures] = []
    damaged: dict[str, str] = {}
    taking = told_apart([_contestant(name, device) for name in dict.fromkeys(weights or (MODEL,))])
    for video, title in zip(videos, titles(videos), strict=True):
        for contestant in taking:
            tell(f"{title}: {contestant.source}")
            row, pair, damage = _video(video, title, contestant, seconds, threads)
            rows.append(row)
            clips += pair
            if damage:
                damaged[title] = damage
    protocol = (
        f"the first {seconds:g} s of each video, restored without loss; luma, on the 0-255 scale",
        "noise: estimated without reference; flicker: change from frame to frame of the means of patches "
        "that follow the motion",
    )
    notes = tuple(f"{title}: {damage}" for title, damage in damaged.items())
    names = {clip.system: NAMES.get(clip.system, clip.system) for clip in clips}
    return Result(
        "quick",
        "Videos without reference",
        "before",
        tuple(rows),
        protocol,
        notes,
        clips=tuple(clips),
        names=names,
    )


def titles(videos: Sequence[Path]) -> list[str]:
    """Return titles of videos: their names, or their paths if names repeat."""
    names = [video.name for video in videos]
    return [name if names.count(name) == 1 else str(video) for video, name in zip(videos, names, strict=True)]


def _contestant(name: str, device: str) -> Contestant:
    model = load_model(name)
    if model.card.task in ("sr", "recover"):
        raise OptionError(
            f"{name}: weights for {model.card.task!r}; quick compares videos of one size, before and after"
        )
    return Contestant(model.card.task, model, name, device)


def _video(
    video: Path, title: str, contestant: Contestant, seconds: float, threads: int
) -> tuple[Row, list[ClipFigures], str | None]:
    """Figures of one video, before and after, and what is wrong with it."""
    task = contestant.system
    with TemporaryDirectory(prefix="vidrestore-") as folder:
        restored = Path(folder) / "restored.mkv"
        options = RestoreOptions(
            model=contestant.source,
            device=contestant.device,
            threads=threads,
            duration=Fraction(seconds).limit_denominator(10**6),
            encoder=EncoderOptions(lossless=True),
            drop=frozenset(DROPPABLE),
        )
        summary = vidrestore.restore(video, restored, task=task, options=options)
        before, after = sides(video, restored, summary.frames, {scene.first for scene in summary.scenes})
    pair = [
        ClipFigures(system, "videos", "", title, {"flicker": tuple(side.flicker)}, weights)
        for system, side, weights in ((GIVEN, before, ""), (task, after, contestant.weights))
    ]
    row = Row(
        task, title, rounded(after.values), rounded(before.values), contestant.weights, "", summary.frames
    )
    assert before.picture is not None and after.picture is not None
    return (
        row,
        [pair[0], replace(pair[1], shown=Shown(summary.frames // 2, before.picture, after.picture))],
        summary.damage,
    )


def sides(source: Path, restored: Path, count: int, cuts: Collection[int]) -> tuple[Side, Side]:
    """Both videos measured, the first `count` frames of them; frames that begin a scene (`cuts`) don't
    flicker.
    """
    with (
        VideoReader(str(source)) as first,
        VideoReader(str(restored)) as second,
        closing(first.frames()) as one,
        closing(second.frames()) as other,
    ):
        videos = first.info.video, second.info.video
        both = Side(NoiseEstimator(videos[0].format.unit)), Side(NoiseEstimator(videos[1].format.unit))
        held: tuple[list[Tensor], list[Tensor]] = ([], [])
        for index, frames in enumerate(zip(islice(one, count), other, strict=False)):
            if index in cuts:
                note_flicker(both, held)
                held = ([], [])
            for side, video, frame, planes in zip(both, videos, frames, held, strict=True):
                side.estimator.add(frame.planes[0])
                planes += planes_to_grey(frame.planes[:1], video.format)
                if index == count // 2:
                    side.picture = displayed(frame, video)
            if len(held[0]) == GROUP or index == count - 1:
                note_flicker(both, held)
    return both


def note_flicker(both: Sequence[Side], held: Sequence[list[Tensor]]) -> None:
    """Add the flicker of the frames that are held, but for the first; of these only the last one is kept."""
    if len(held[0]) > 1 and min(held[0][0].shape) >= PATCH:
        source = torch.stack(held[0])
        places = matched_places(source, Grid(source.shape[1], source.shape[2], PATCH, PATCH))
        for side, planes in zip(both, held, strict=True):
            side.flicker += flicker(torch.stack(planes), places)
    for planes in held:
        del planes[:-1]


def flicker(plane: Tensor, places: Tensor) -> list[float]:
    """Of each frame of a plane (T, H, W) but the first, along the places (T, S, 2) of its patches."""
    changes = gather(plane, places, PATCH).mean(2).diff(dim=1).abs()  # (S, T - 1)
    return [float(value) / MEDIAN_OF_NORMAL for value in changes.median(dim=0).values]


def displayed(frame: Frame, video: VideoInfo) -> NDArray[np.uint8]:
    """(H, W, 3) R, G, B of a decoded frame."""
    planes = planes_to_grey(frame.planes[: video.format.plane_count - video.format.alpha], video.format)
    return rows_last(eight_bits(yuv_to_rgb(planes, video.format, video.colour, video.height)))
