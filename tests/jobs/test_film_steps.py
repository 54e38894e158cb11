"""Steps for films: they need frames to compare, and a `denoise` after them takes the noise of the source."""

from pathlib import Path

import av
import numpy as np
import pytest
from sample_pictures import write_picture
from written_videos import pictures

import vidrestore
from vidrestore.errors import OptionError
from vidrestore.jobs.request import Request, Step, load_step
from vidrestore.jobs.run import restore_request
from vidrestore.media.formats.source import Source, Target
from vidrestore.pipeline.plan import Clip, Timeline
from vidrestore.settings.options import EncoderOptions

LOSSLESS = EncoderOptions(lossless=True)


def test_a_clip_of_a_later_step_takes_the_noise_that_was_known_at_its_end():
    clips = [Clip(0, 8, (1.0,), (1.0,)), Clip(6, 14, (2.0,), (3.0,)), Clip(12, 20, (4.0,), (5.0,))]
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
    "options, words", [({"model": "x.safetensors"}, "no networks"), ({"tile": 64}, "tile")]
)
def test_options_of_networks_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        load_step(Step("deflicker", vidrestore.RestoreOptions(**options)))


def test_denoise_after_deflicker_of_steady_video_gives_the_frames_of_denoise_alone(tmp_path):
    source, alone, after = (tmp_path / name for name in ("noisy.mkv", "alone.mkv", "after.mkv"))
    write_noisy(source)
    vidrestore.restore(source, alone, encoder=LOSSLESS, quality="fast")
    options = vidrestore.RestoreOptions(encoder=LOSSLESS, quality="fast")
    steps = (Step("deflicker", options), Step("denoise", options))
    restore_request(Request(Source(str(source)), Target(str(after)), steps))
    assert pictures(after) == pictures(alone)
    assert pictures(after) != pictures(source)


def write_noisy(path: Path) -> None:
    """Twelve frames of a grey picture in white noise of sigma 12."""
    rng = np.random.default_rng(1)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "gray"
        for _ in range(12):
            samples = (128 + 12 * rng.normal(size=(120, 160))).round().clip(0, 255).astype(np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(samples, format="gray")))
        output.mux(stream.encode())
