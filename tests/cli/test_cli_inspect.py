"""`vidrestore inspect`: what is said about a video."""

import json
from fractions import Fraction
from functools import partial

import pytest
from command_line import run as command
from sample_videos import cut_short, write_video
from scanned_videos import interlaced, moments, telecined, write_frames

from vidrestore.jobs.inspection import inspect

run = partial(command, "inspect")


def test_a_person_reads_streams_colour_frames_and_noise(tmp_path, capsys):
    tags = {"colorspace": 9, "color_trc": 16, "color_range": 2}
    write_video(tmp_path / "video.mp4", 25, "libx264", sound=Fraction(1), settings=tags)
    assert run(tmp_path / "video.mp4", "-q") == 0
    text = capsys.readouterr().out
    colours = "matrix BT.2020, transfer PQ, range full"
    for part in ("video h264", "64x48, yuvj420p (8 bits)", "audio aac", colours):
        assert part in text
    assert "25 in 1.000 s, steady 25.000 fps" in text
    assert "frames      0 to     24" in text
    assert max(map(len, text.splitlines()[1:])) <= 80, "but for the path"


def test_json_is_one_object(tmp_path, capsys):
    write_video(tmp_path / "video.mkv", 5)
    assert run(tmp_path / "video.mkv", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["frames"], found["steady"]) == (5, True)
    assert (found["info"]["video"]["width"], found["info"]["video"]["rate"]) == (
        64,
        "25",
    )
    assert [len(scene["sigma"]) for scene in found["scenes"]] == [3]


def test_a_variable_rate_is_called_so(tmp_path):
    write_video(
        tmp_path / "video.mkv",
        5,
        times=[0, 40, 41, 200, 233],
        time_base=Fraction(1, 1000),
    )
    assert not inspect(str(tmp_path / "video.mkv")).steady


def test_damage_ends_with_4(tmp_path, capsys):
    write_video(tmp_path / "video.mkv", 40)
    cut_short(tmp_path / "video.mkv")
    assert run(tmp_path / "video.mkv", "-q") == 4
    assert "damage" in capsys.readouterr().out


@pytest.mark.parametrize(
    "frames, order, words",
    [
        (
            telecined(moments(24)),
            None,
            "film, 4 frames of 5 (fields repeat as in 3:2 pulldown)",
        ),
        (
            moments(24),
            "tt",
            "frames left whole (marked interlaced, but both fields show one moment)",
        ),
        (
            interlaced(moments(28), top=False),
            None,
            "deinterlaced (looks interlaced, bottom field first)",
        ),
        (moments(24), None, None),
    ],
)
def test_a_person_reads_how_it_was_scanned_and_why(
    tmp_path, capsys, frames, order, words
):
    write_frames(tmp_path / "in.mkv", frames, order=order)
    assert run(tmp_path / "in.mkv", "-q") == 0
    text = capsys.readouterr().out
    assert (f"  scan      {words}\n" in text) == (words is not None)
    assert ("scan" in text) == (words is not None)
