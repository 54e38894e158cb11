"""The suite `quick`: how noisy any video is before and after restoration and how much it flickers, without a
reference.

Flicker is the change from frame to frame of the mean of 16x16 patches that follow the motion. Motion is found
in the source and used for both videos. The value of a frame is the median of the absolute changes over the
patches, so that patches whose motion was not found don't count, divided by 0.6745, which makes it the
standard deviation if the changes are Gaussian; on the 0-255 scale, of luma (or of the first plane). Fine
noise averages out within a patch; the rest is the visible pulsing.
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
from vidrestore.colour import planes_to_grey
from vidrestore.errors import OptionError
from vidrestore.evaluation.results import (
    GIVEN,
    NAMES,
    ClipMetrics,
    Comparison,
    Result,
    Row,
    System,
    rounded,
    with_unique_labels,
)
from vidrestore.evaluation.sequence_frames import channels_last, picture_of
from vidrestore.media.reader import VideoReader
from vidrestore.models.grouping import GROUP
from vidrestore.models.matching import Grid, gather, matched_positions
from vidrestore.noise import NoiseEstimator
from vidrestore.options import DROPPABLE, EncoderOptions, RestoreOptions
from vidrestore.weights import load_model

OnProgress = Callable[[str], None]
SECONDS = 10.0  # measured of each video, from its beginning
MODEL = "dust-denoise"
PATCH = 16  # pixels
MEDIAN_OF_NORMAL = 0.6745  # median magnitude of a standard normal distribution


@dataclass
class Measurement:
    """The measurements of one video: its noise, its flicker by frame, and its middle frame."""

    estimator: NoiseEstimator
    flicker: list[float] = field(default_factory=list)
    picture: NDArray[np.uint8] | None = None

    @property
    def values(self) -> dict[str, float]:
        """Noise and mean flicker, on the 0-255 scale."""
        return {"noise": self.estimator.sigma(), "flicker": fmean(self.flicker) if self.flicker else 0.0}


def evaluate_videos(
    videos: Sequence[Path],
    weights: Sequence[str],
    seconds: float,
    device: str,
    on_progress: OnProgress,
    threads: int = 0,
) -> Result:
    """Restore the first `seconds` of each video with each of the weights, `dust-denoise` by default, and
    measure both.

    Raises OptionError without a video and for weights that change a video's size; MediaError,
    CheckpointError.
    """
    if not videos:
        raise OptionError("quick: name at least one video: `vidrestore eval --suite quick video.mp4`")
    if not 0 < seconds < math.inf:
        raise OptionError(f"`seconds` must be a number above 0, got {seconds}")
    rows: list[Row] = []
    clips: list[ClipMetrics] = []
    damaged: dict[str, str] = {}
    systems = []
    for name in dict.fromkeys(weights or (MODEL,)):
        model = load_model(name)
        if model.card.task in ("sr", "recover"):
            raise OptionError(f"{name}: weights for {model.card.task!r}; quick compares videos of one size")
        systems.append(System(model.card.task, model, name, device))
    systems = with_unique_labels(systems)
    for video, title in zip(videos, titles(videos), strict=True):
        for system in systems:
            on_progress(f"{title}: {system.source}")
            row, pair, damage = _video(video, title, system, seconds, threads)
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
    """Return titles of videos: their names, or their paths if several have the same name."""
    names = [video.name for video in videos]
    return [name if names.count(name) == 1 else str(video) for video, name in zip(videos, names, strict=True)]


def _video(
    video: Path, title: str, system: System, seconds: float, threads: int
) -> tuple[Row, list[ClipMetrics], str | None]:
    """Measure one video before and after restoration; the last value describes its damage, if any."""
    task = system.name
    with TemporaryDirectory(prefix="vidrestore-") as folder:
        restored = Path(folder) / "restored.mkv"
        options = RestoreOptions(
            model=system.source,
            device=system.device,
            threads=threads,
            duration=Fraction(seconds).limit_denominator(10**6),
            encoder=EncoderOptions(lossless=True),
            drop=frozenset(DROPPABLE),
        )
        summary = vidrestore.restore(video, restored, task=task, options=options)
        before, after = measure_both(
            video, restored, summary.frames, {scene.first for scene in summary.scenes}
        )
    pair = [
        ClipMetrics(system, "videos", "", title, {"flicker": tuple(side.flicker)}, weights)
        for system, side, weights in ((GIVEN, before, ""), (task, after, system.weights))
    ]
    row = Row(task, title, rounded(after.values), rounded(before.values), system.weights, "", summary.frames)
    assert before.picture is not None and after.picture is not None
    comparison = Comparison(summary.frames // 2, before.picture, after.picture)
    return row, [pair[0], replace(pair[1], comparison=comparison)], summary.damage


def measure_both(
    source: Path, restored: Path, count: int, cuts: Collection[int]
) -> tuple[Measurement, Measurement]:
    """Measure the first `count` frames of both videos; no flicker is measured across the scene cuts at
    `cuts`.
    """
    with (
        VideoReader(str(source)) as first,
        VideoReader(str(restored)) as second,
        closing(first.frames()) as one,
        closing(second.frames()) as other,
    ):
        videos = first.info.video, second.info.video
        both = (
            Measurement(NoiseEstimator(videos[0].format.unit)),
            Measurement(NoiseEstimator(videos[1].format.unit)),
        )
        buffers: tuple[list[Tensor], list[Tensor]] = ([], [])
        for index, frames in enumerate(zip(islice(one, count), other, strict=False)):
            if index in cuts:
                add_flicker(both, buffers)
                buffers = ([], [])
            for side, video, frame, planes in zip(both, videos, frames, buffers, strict=True):
                side.estimator.add(frame.planes[0])
                planes += planes_to_grey(frame.planes[:1], video.format)
                if index == count // 2:
                    side.picture = channels_last(picture_of(frame, video))
            if len(buffers[0]) == GROUP or index == count - 1:
                add_flicker(both, buffers)
    return both


def add_flicker(both: Sequence[Measurement], buffers: Sequence[list[Tensor]]) -> None:
    """Add the flicker of the buffered frames after the first; keep only the last frame in the buffers."""
    if len(buffers[0]) > 1 and min(buffers[0][0].shape) >= PATCH:
        source = torch.stack(buffers[0])
        positions = matched_positions(source, Grid(source.shape[1], source.shape[2], PATCH, PATCH))
        for side, planes in zip(both, buffers, strict=True):
            side.flicker += flicker(torch.stack(planes), positions)
    for planes in buffers:
        del planes[:-1]


def flicker(plane: Tensor, positions: Tensor) -> list[float]:
    """Return the flicker of each frame after the first of a plane (T, H, W), at the patch positions (T, S,
    2).
    """
    changes = gather(plane, positions, PATCH).mean(2).diff(dim=1).abs()  # (S, T - 1)
    return [float(value) / MEDIAN_OF_NORMAL for value in changes.median(dim=0).values]
