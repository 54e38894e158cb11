"""One page about a finished restoration: pictures before and after, noise, flicker, bitrate, settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.colour import planes_to_grey
from vidrestore.evaluation.contestants import GIVEN
from vidrestore.evaluation.page import LARGEST, page
from vidrestore.evaluation.quick import Side, displayed, note_flicker
from vidrestore.evaluation.results import ClipFigures, Result, Row, Shown, rounded
from vidrestore.evaluation.sequence_frames import area_matrix
from vidrestore.files.atomic import replacing, write_problem
from vidrestore.frames import Frame
from vidrestore.jobs.job import Summary
from vidrestore.jobs.request import IMMATERIAL, reader_of
from vidrestore.media.probe import VideoInfo
from vidrestore.media.reader import VideoReader
from vidrestore.noise import NoiseEstimator
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.pipeline.excerpt import find_span
from vidrestore.pipeline.rgb_clips import enlarged_frame

SCENES = 4  # of the video that are shown
LOOK = 10  # consecutive frames in each whose flicker is measured


@dataclass
class Look:
    """One place of a video before and after; `whole` are small pictures of the whole frame, if it is cut."""

    frame: int
    sides: tuple[Side, Side]
    whole: Shown | None = None


def write_report(path: str, summary: Summary, task: str, options: RestoreOptions) -> None:
    """Write the page about the finished output of `summary`. Raises MediaError."""
    found = describe(summary, task, options)
    try:
        with replacing(Path(path)) as file:
            file.write(page(found).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise write_problem(path, error) from error


def describe(summary: Summary, task: str, options: RestoreOptions) -> Result:
    """The content of the page. Both videos are decoded up to the last place that is shown."""
    places = chosen_places(summary)
    looks = list(_looks(summary, places, options))
    title = os.path.basename(summary.source)
    values = [_values([look.sides[side] for look in looks]) for side in (0, 1)]
    rates = [_bitrate(summary.source), _bitrate(summary.output)]
    for measured, rate in zip(values, rates, strict=True):
        if rate is not None:
            measured["bitrate"] = rate
    row = Row(task, title, rounded(values[1]), rounded(values[0]), options.model or "")
    return Result(
        "report",
        f"{title}: {task}",
        "before",
        (row,),
        tuple(_settings(summary, options)),
        tuple(_notes(summary)),
        os.path.basename(summary.output),
        tuple(clip for look in looks for clip in _clips(look, task)),
        {GIVEN: "before", task: task},
    )


def _clips(look: Look, task: str) -> Iterator[ClipFigures]:
    """Yield what the page shows of one place: the whole frame, pixels of it, flicker before and after."""
    (given, before), (restored, after) = ((side.picture, side.flicker) for side in look.sides)
    assert given is not None and restored is not None
    at, shown = f"from frame {look.frame} on", Shown(look.frame, given, restored)
    if look.whole:
        yield ClipFigures(task, "", "", "the whole frame, smaller", {}, "", look.whole)
    yield ClipFigures(GIVEN, "", "", at, {"flicker": tuple(before)} if before else {})
    yield ClipFigures(task, "", "", at, {"flicker": tuple(after)} if after else {})
    yield ClipFigures(task, "", "", "", {}, "", shown)


def chosen_places(summary: Summary) -> list[int]:
    """Return the frames in the middle of the longest scenes; evenly spread ones if scenes are unknown."""
    longest = sorted(summary.scenes, key=lambda scene: scene.first - scene.stop)[:SCENES]
    places = {(scene.first + scene.stop) // 2 for scene in longest}
    if len(places) < SCENES:
        places |= {summary.frames * (2 * at + 1) // (2 * SCENES) for at in range(SCENES)}
    return sorted(places)[:: max(1, len(places) // SCENES)][:SCENES]


def _looks(summary: Summary, places: Sequence[int], options: RestoreOptions) -> Iterator[Look]:
    """Yield each place with its pictures and flicker; both videos are read in step."""
    with ExitStack() as open_:
        first = open_.enter_context(reader_of(summary.source, options))
        second = open_.enter_context(VideoReader(summary.output))
        span = find_span(first, options.start, options.duration)
        one = open_.enter_context(closing(first.frames(span.start, span.stop)))
        other = open_.enter_context(closing(second.frames()))
        videos, at = (first.info.video, second.info.video), 0
        pairs = zip(one, other, strict=False)
        for place, following in zip(places, [*places[1:], summary.frames], strict=True):
            for _ in islice(pairs, place - at):
                pass
            taken = list(islice(pairs, max(1, min(LOOK, following - place))))
            at = place + len(taken)
            if taken:
                yield _look(place, taken, videos)


def _look(place: int, pairs: list[tuple[Frame, Frame]], videos: tuple[VideoInfo, VideoInfo]) -> Look:
    sides = Side(NoiseEstimator(videos[0].format.unit)), Side(NoiseEstimator(videos[1].format.unit))
    held: tuple[list[Tensor], list[Tensor]] = ([], [])
    for pair in pairs:
        for side, video, frame, planes in zip(sides, videos, pair, held, strict=True):
            side.estimator.add(frame.planes[0])
            planes += planes_to_grey(frame.planes[:1], video.format)
    if held[0][0].shape == held[1][0].shape:
        note_flicker(sides, held)
    scale = Fraction(videos[1].height, videos[0].height)
    before, after = pairs[0]
    pictures = displayed(enlarged_frame(before, videos[0], scale), videos[0]), displayed(after, videos[1])
    height, width = (min(sizes) for sizes in zip(*(picture.shape[:2] for picture in pictures), strict=True))
    sides[0].picture, sides[1].picture = (picture[:height, :width] for picture in pictures)
    small = [_small(picture[:height, :width]) for picture in pictures]
    cut = height > LARGEST[0] or width > LARGEST[1]
    return Look(place, sides, Shown(place, small[0], small[1]) if cut else None)


def _small(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The whole picture within `LARGEST`."""
    height, width = picture.shape[:2]
    share = min(1.0, LARGEST[0] / height, LARGEST[1] / width)
    down, right = area_matrix(height, int(height * share)), area_matrix(width, int(width * share))
    mixed = torch.einsum("ih,hwc,jw->ijc", down.float(), torch.from_numpy(picture).float(), right.float())
    smaller: NDArray[np.uint8] = mixed.round().to(torch.uint8).numpy()
    return smaller


def _values(sides: Sequence[Side]) -> dict[str, float]:
    changes = [value for side in sides for value in side.flicker]
    noise = fmean(side.estimator.sigma() for side in sides)
    return {"noise": noise} | ({"flicker": fmean(changes)} if changes else {})


def _bitrate(path: str) -> float | None:
    """Return kbit/s of the file with all its streams; None if its length is unknown."""
    with VideoReader(path) as reader:
        length = reader.info.duration
    return 8e-3 * os.path.getsize(path) / float(length) if length and os.path.isfile(path) else None


def _settings(summary: Summary, options: RestoreOptions) -> Iterator[str]:
    """Yield lines for a reader: options other than their defaults, the noise of each scene, the speed."""
    default = RestoreOptions()
    given = {
        each.name: getattr(options, each.name)
        for each in fields(options)
        if each.name not in IMMATERIAL and getattr(options, each.name) != getattr(default, each.name)
    }
    words = ", ".join(f"{name} {_plain(value)}" for name, value in given.items())
    yield f"options: {words or 'the defaults'}"
    with VideoReader(summary.output) as reader:
        video = reader.info.video
    yield f"{summary.frames} frames of {video.width}x{video.height}, {video.codec} {video.pix_fmt}"
    for scene in summary.scenes[:20]:
        if scene.rms or any(scene.sigma):
            yield f"frames {scene.first} to {scene.stop - 1}: noise {scene.noise}"
    if summary.fps:
        yield f"{summary.fps:.2f} frames/s"
    yield "noise and flicker: of luma, 0-255 scale, without a reference; bitrate: of the whole file"


def _plain(value: Any) -> str:
    if isinstance(value, EncoderOptions):
        parts = asdict(value).items()
        return " ".join(f"{name}={each}" for name, each in parts if each not in (None, False, 0, {}))
    return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)


def _notes(summary: Summary) -> Iterator[str]:
    if summary.damage:
        yield summary.damage
    if summary.before:
        yield "restored by an earlier run"
