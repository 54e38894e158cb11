"""Write the page of `--report` about a restoration: pictures before and after, noise, flicker, bitrate,
settings.

Flicker is the change from frame to frame of the mean of 16x16 patches that follow the motion. Motion is found
in the source and used for both videos. The value of a frame is the median of the absolute changes over the
patches, so that patches whose motion was not found don't count, divided by 0.6745, which makes it the
standard deviation if the changes are Gaussian; on the 0-255 scale, of luma (or of the first plane). Fine
noise averages out within a patch; the rest is the visible pulsing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore import __version__
from vidrestore.events import Summary
from vidrestore.files.atomic import write_whole
from vidrestore.media.reading.reader import VideoReader, find_span
from vidrestore.models.grouping import origins_of, patches_at
from vidrestore.models.matching import Grid, matched_positions
from vidrestore.noise import NoiseEstimator
from vidrestore.pages.page import LARGEST_PICTURE, REPORT, page
from vidrestore.pages.results import (
    GIVEN,
    ClipMetrics,
    Comparison,
    Result,
    Row,
    rounded,
)
from vidrestore.pages.sequence_frames import area_matrix, channels_last, picture_of
from vidrestore.pipeline.conversions import enlarged_frame
from vidrestore.pixels.colour import planes_to_grey
from vidrestore.pixels.frames import Frame, VideoInfo
from vidrestore.settings.options import EncoderOptions, RestoreOptions, changed_values

MOST_MOMENTS = 4  # starts of the video that the page shows
SAMPLE_FRAMES = 10  # consecutive frames at each start that are measured
FLICKER_PATCH = 16  # pixels
MEDIAN_OF_NORMAL = 0.6745  # median magnitude of a standard normal distribution


# One moment of a video: its noise before and after, and the clips that the page shows
Moment = tuple[list[float], list[ClipMetrics]]


def write_report(
    path: Path,
    summary: Summary,
    task: str,
    options: RestoreOptions,
    more: Iterable[str] = (),
) -> None:
    """Write the page about a finished output, with `more` lines about it. Raises MediaError."""
    result = describe(summary, task, options)
    text = page(replace(result, protocol=(*result.protocol, *more)))
    write_whole(path, text.encode("utf-8", "backslashreplace"))


def describe(summary: Summary, task: str, options: RestoreOptions) -> Result:
    """Return the content of the page. Both videos are decoded up to the last sample."""
    # few moments of both videos, measured and shown
    starts = sample_starts(summary)
    samples = list(_samples(summary, starts, task, options))
    title = os.path.basename(summary.source)
    clips = tuple(clip for _, sample_clips in samples for clip in sample_clips)
    # means over the moments, before and after
    values = []
    for side, (path, name) in enumerate(
        ((summary.source, GIVEN), (summary.output, task))
    ):
        levels = [
            level
            for clip in clips
            if clip.system == name
            for level in clip.frames.get("flicker", ())
        ]
        measured = {"noise": fmean(noise[side] for noise, _ in samples)}
        measured |= {"flicker": fmean(levels)} if levels else {}
        rate = _bitrate(path) if summary.frames > 1 else None
        measured |= {} if rate is None else {"bitrate": rate}
        values.append(rounded(measured))
    row = Row(task, title, values[1], values[0], options.model or "")
    notes = [
        *filter(None, [summary.damage]),
        *["restored by an earlier run"] * summary.before,
    ]
    return Result(
        REPORT,
        f"{title}: {task}",
        against="before",
        rows=(row,),
        protocol=tuple(_settings(summary, options)),
        notes=tuple(notes),
        source=os.path.basename(summary.output),
        clips=clips,
        names={GIVEN: "before", task: task},
    )


def sample_starts(summary: Summary) -> list[int]:
    """Return the middle frames of the longest scenes; evenly spread frames if scenes are unknown."""
    # the longest scenes, else evenly over the video
    longest = sorted(summary.scenes, key=lambda scene: scene.first - scene.stop)[
        :MOST_MOMENTS
    ]
    starts = {(scene.first + scene.stop) // 2 for scene in longest}
    if len(starts) < MOST_MOMENTS:
        starts |= {
            summary.frames * (2 * number + 1) // (2 * MOST_MOMENTS)
            for number in range(MOST_MOMENTS)
        }
    return sorted(starts)[:: max(1, len(starts) // MOST_MOMENTS)][:MOST_MOMENTS]


def _samples(
    summary: Summary, starts: Sequence[int], task: str, options: RestoreOptions
) -> Iterator[Moment]:
    """Yield the moment of each sample that begins at one of `starts`; both videos are read in step."""
    # both are read once, from start to end
    with ExitStack() as open_:
        first = open_.enter_context(VideoReader.of(summary.source, options))
        second = open_.enter_context(VideoReader(summary.output))
        span = find_span(first, options.start, options.duration)
        sources = open_.enter_context(closing(first.frames(span.start, span.stop)))
        results = open_.enter_context(closing(second.frames()))
        videos = first.info.video, second.info.video
        position = 0  # frames read
        pairs = zip(sources, results, strict=False)
        for start, next_start in zip(
            starts, [*starts[1:], summary.frames], strict=True
        ):
            # skip the frames between two samples
            for _ in islice(pairs, start - position):
                pass
            sample = list(islice(pairs, max(1, min(SAMPLE_FRAMES, next_start - start))))
            position = start + len(sample)
            if sample:
                yield _sample(start, sample, videos, task)


def _sample(
    start: int,
    pairs: list[tuple[Frame, Frame]],
    videos: tuple[VideoInfo, VideoInfo],
    task: str,
) -> Moment:
    """Return the noise, flicker and a picture before and after of the frames from `start` on."""
    # noise and flicker of luma, of both
    noise = []
    planes = []
    for frames, video in zip(zip(*pairs, strict=True), videos, strict=True):
        estimator = NoiseEstimator(video.format.unit)
        for frame in frames:
            estimator.add(frame.planes[0])
        noise.append(estimator.sigma())
        grey = [planes_to_grey(frame.planes[:1], video.format)[0] for frame in frames]
        planes.append(torch.stack(grey))
    changes = (
        flicker_of(planes[0], planes[1])
        if planes[0].shape == planes[1].shape
        else ((), ())
    )
    # the first frames, side by side, and their common part
    ratio = Fraction(videos[1].height, videos[0].height)
    stills = enlarged_frame(pairs[0][0], videos[0], ratio), pairs[0][1]
    pictures = [
        channels_last(picture_of(*pair)) for pair in zip(stills, videos, strict=True)
    ]
    height = min(picture.shape[0] for picture in pictures)
    width = min(picture.shape[1] for picture in pictures)
    source, restored = (picture[:height, :width] for picture in pictures)
    # the whole frame first, if the page must cut it
    clips = []
    if height > LARGEST_PICTURE[0] or width > LARGEST_PICTURE[1]:  # the page crops it
        overview = Comparison(start, _small(source), _small(restored))
        clips.append(
            ClipMetrics(task, "", "", "the whole frame, smaller", {}, "", overview)
        )
    for system, values in zip((GIVEN, task), changes, strict=True):
        metrics = {"flicker": values} if values else {}
        clips.append(ClipMetrics(system, "", "", f"from frame {start} on", metrics))
    clips.append(
        ClipMetrics(task, "", "", "", {}, "", Comparison(start, source, restored))
    )
    return noise, clips


def flicker_of(
    source: Tensor, restored: Tensor
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the flicker of two planes (T, H, W) after the first frame, by the source's motion. Empty for one
    frame, and for planes smaller than a patch.
    """
    # the same positions in both, so that motion is not flicker
    count, height, width = source.shape
    if count < 2 or min(height, width) < FLICKER_PATCH:
        return (), ()
    positions = matched_positions(
        source, Grid(height, width, FLICKER_PATCH, FLICKER_PATCH)
    )
    return tuple(flicker(source, positions)), tuple(flicker(restored, positions))


def flicker(plane: Tensor, positions: Tensor) -> list[float]:
    """Return the flicker of each frame after the first of a plane (T, H, W), at patch positions (T, S, 2)."""
    groups = patches_at(
        plane.contiguous(),
        origins_of(positions, plane.shape[1], plane.shape[2]),
        FLICKER_PATCH,
    )
    changes = groups.mean(2).diff(dim=1).abs()  # (S, T - 1)
    return [float(value) / MEDIAN_OF_NORMAL for value in changes.median(dim=0).values]


def _small(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Downscale a picture by area means to fit into `LARGEST_PICTURE`."""
    # by area means, so that noise is averaged and not sampled
    height, width = picture.shape[:2]
    scale = min(1.0, LARGEST_PICTURE[0] / height, LARGEST_PICTURE[1] / width)
    down = area_matrix(height, int(height * scale))
    right = area_matrix(width, int(width * scale))
    mixed = torch.einsum(
        "ih,hwc,jw->ijc", down.float(), torch.from_numpy(picture).float(), right.float()
    )
    smaller: NDArray[np.uint8] = mixed.round().to(torch.uint8).numpy()
    return smaller


def _bitrate(path: str) -> float | None:
    """Return the kbit/s of the file with all its streams; None if its duration is unknown."""
    with VideoReader(path) as reader:
        length = reader.info.duration
    return (
        8e-3 * os.path.getsize(path) / float(length)
        if length and os.path.isfile(path)
        else None
    )


def _settings(summary: Summary, options: RestoreOptions) -> Iterator[str]:
    """Yield lines about the run: options other than their defaults, the noise of each scene, the speed."""
    # what was asked for
    yield f"vidrestore {__version__}"
    values = changed_values(options, "pixels", "file", "streams")
    words = ", ".join(f"{name} {_in_words(value)}" for name, value in values.items())
    yield f"options: {words or 'the defaults'}"
    # what came out
    with VideoReader(summary.output) as reader:
        video = reader.info.video
    frames = "1 frame" if summary.frames == 1 else f"{summary.frames} frames"
    yield f"{frames} of {video.width}x{video.height}, {video.codec} {video.pix_fmt}"
    for scene in summary.scenes[:20]:
        if scene.rms or any(scene.sigma):
            yield f"frames {scene.first} to {scene.stop - 1}: noise {scene.noise}"
    if summary.fps:
        yield f"{summary.fps:.2f} frames/s"
    yield "noise and flicker: of luma, 0-255 scale, without a reference; bitrate: of the whole file"


def _in_words(value: Any) -> str:
    if isinstance(value, EncoderOptions):
        parts = asdict(value).items()
        return " ".join(
            f"{name}={part}" for name, part in parts if part not in (None, False, 0, {})
        )
    return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)
