"""Steps for films: they need frames to compare, and a `denoise` after them takes the noise of the source."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from sample_pictures import write_picture
from sample_videos import video_frame
from scanned_videos import Pictures, interlaced, moments
from written_videos import pictures

import vidrestore
from vidrestore.errors import OptionError
from vidrestore.jobs.request import Request, Step, load_step
from vidrestore.jobs.run import restore_request
from vidrestore.media.formats.source import Source, Target
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pipeline.plan import Clip, Timeline
from vidrestore.settings.options import EncoderOptions

LOSSLESS = EncoderOptions(lossless=True)


def test_a_clip_of_a_later_step_takes_the_noise_that_was_known_at_its_end():
    clips = [
        Clip(0, 8, (1.0,), (1.0,)),
        Clip(6, 14, (2.0,), (3.0,)),
        Clip(12, 20, (4.0,), (5.0,)),
    ]
    timeline = Timeline(8, 2, clips=clips)
    assert timeline.with_noise(Clip(5, 14, (0.0,))) == Clip(5, 14, (2.0,), (3.0,))
    assert timeline.with_noise(Clip(10, 15, (0.0,))) == Clip(10, 15, (4.0,), (5.0,))


@pytest.mark.parametrize("task", ["deflicker", "dedust"])
def test_a_single_picture_is_refused_before_work_begins(task, tmp_path):
    photo, output = tmp_path / "photo.png", tmp_path / "out.png"
    write_picture(photo, (90, 120, 60))
    with pytest.raises(OptionError, match="compares the frames of a video"):
        vidrestore.restore(photo, output, task=task)
    assert not output.exists()


@pytest.mark.parametrize(
    "options, words",
    [({"model": "x.safetensors"}, "no networks"), ({"tile": 64}, "tile")],
)
def test_options_of_networks_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        load_step(Step("deflicker", vidrestore.RestoreOptions(**options)))


def test_denoise_after_deflicker_of_steady_video_gives_the_frames_of_denoise_alone(
    tmp_path,
):
    source, alone, after = (
        tmp_path / name for name in ("noisy.mkv", "alone.mkv", "after.mkv")
    )
    write_noisy(source)
    vidrestore.restore(source, alone, encoder=LOSSLESS, quality="fast")
    options = vidrestore.RestoreOptions(encoder=LOSSLESS, quality="fast")
    steps = (Step("deflicker", options), Step("denoise", options))
    restore_request(Request(Source(str(source)), Target(str(after)), steps))
    assert pictures(after) == pictures(alone)
    assert pictures(after) != pictures(source)


@pytest.mark.parametrize("kind", ["ten bits", "interlaced", "variable rate"])
@pytest.mark.parametrize("task", ["deflicker", "dedust"])
def test_films_of_every_kind_of_video_are_restored_in_their_format_and_at_their_times(
    task, kind, tmp_path
):
    clean = interlaced(moments(32, 0.5)) if kind == "interlaced" else moments(16, 1)
    given = with_light(clean) if task == "deflicker" else with_specks(clean)
    source, output = tmp_path / "film.mkv", tmp_path / "out.mkv"
    times = write_film(source, given, kind)
    options = vidrestore.RestoreOptions(encoder=LOSSLESS, dust="always")
    vidrestore.restore(source, output, task=task, options=options)

    with VideoReader(str(output)) as reader:
        video, frames = reader.info.video, list(reader.frames())
    assert [frame.pts * video.time_base for frame in frames] == times
    assert (video.format.depth, video.interlaced) == (
        10 if kind == "ten bits" else 8,
        False,
    )
    lumas = [frame.planes[0] / video.format.unit for frame in frames]
    errors = [distance(pictures, clean) for pictures in (given, lumas)]
    assert errors[1] < 0.6 * errors[0]


def with_light(frames: Pictures) -> Pictures:
    """The frames with light that alternates by a tenth."""
    factors = 1 + 0.1 * np.random.default_rng(3).normal(size=len(frames)).clip(-1, 1)
    return [
        (frame * factor).clip(0, 255)
        for frame, factor in zip(frames, factors, strict=True)
    ]


def with_specks(frames: Pictures) -> Pictures:
    """The frames with five dark specks each."""
    rng, results = np.random.default_rng(4), [frame.astype(float) for frame in frames]
    for result in results:
        for row, column in zip(
            rng.integers(8, 84, 5), rng.integers(8, 148, 5), strict=True
        ):
            result[row : row + 4, column : column + 4] = 5
    return results


def distance(pictures: Pictures, clean: Pictures) -> float:
    """The mean of the errors of frames, of every other row, but for the first and last."""
    pairs = list(zip(pictures, clean, strict=True))[1:-1]
    return (
        float(
            np.mean([np.square(one[::2] - other[::2]).mean() for one, other in pairs])
        )
        ** 0.5
    )


def write_film(path: Path, frames: Pictures, kind: str) -> list[Fraction]:
    """Write the frames without loss; return their times in seconds."""
    shift = 2 if kind == "ten bits" else 0
    variable = kind == "variable rate"
    times = [
        number + (number > 5) if variable else number for number in range(len(frames))
    ]
    with av.open(str(path), "w") as output:
        stream = output.add_stream("ffv1", rate=25)
        (stream.height, stream.width), stream.pix_fmt = (
            frames[0].shape,
            "gray10le" if shift else "gray",
        )
        if kind == "interlaced":
            stream.codec_context.options = {"field_order": "tt"}
        for luma, time in zip(frames, times, strict=True):
            samples = (luma.round().astype(np.uint16) << shift).astype(
                np.uint16 if shift else np.uint8
            )
            picture = video_frame(stream.pix_fmt, (samples,), time)
            picture.time_base = Fraction(1, 25)
            output.mux(stream.encode(picture))
        output.mux(stream.encode())
    return [Fraction(time, 25) for time in times]


def write_noisy(path: Path) -> None:
    """Twelve frames of a grey picture in white noise of sigma 12."""
    rng = np.random.default_rng(1)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "gray"
        for _ in range(12):
            samples = (
                (128 + 12 * rng.normal(size=(120, 160)))
                .round()
                .clip(0, 255)
                .astype(np.uint8)
            )
            output.mux(
                stream.encode(av.VideoFrame.from_ndarray(samples, format="gray"))
            )
        output.mux(stream.encode())
