"""`vidrestore run`: steps one after the other, decoded once and encoded once."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from denoise_command import identity  # noqa: F401  (a fixture of all tests here)
from no_change import IdentityRestorer
from rgb_networks import doubling, write_weights
from sample_pictures import write_picture
from sample_videos import write_video
from taylor_networks import small
from written_videos import pictures

from vidrestore.media.writing.segment_file import SegmentWriter


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "video.mkv", 5, sound=None)
    return tmp_path / "video.mkv"


def test_steps_give_the_frames_of_the_commands_one_after_the_other(video, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = write_weights(tmp_path / "a", small(), "derain")
    second = write_weights(tmp_path / "b", doubling(), "sr")
    common = ("--lossless", "--threads", "2", "-q")
    assert (
        run("derain", video, "-o", tmp_path / "one.mkv", "--model", first, *common) == 0
    )
    assert (
        run(
            "sr",
            tmp_path / "one.mkv",
            "-o",
            tmp_path / "two.mkv",
            "-x2",
            "--model",
            second,
            *common,
        )
        == 0
    )
    given = (
        "--set",
        f"derain.model={first}",
        "--set",
        f"sr.model={second}",
        "--set",
        "sr.scale=2",
    )
    assert run("run", video, "--steps", "denoise,derain,sr", *given, *common) == 0
    made = video.with_name("video.denoised.derained.x2.mkv")
    two = pictures(tmp_path / "two.mkv")
    for (pts, _, planes), (other_pts, _, others) in zip(
        pictures(made), two, strict=True
    ):
        assert pts == other_pts
        for plane, other in zip(planes, others, strict=True):
            given, wanted = (
                np.frombuffer(each, np.uint8).astype(int) for each in (plane, other)
            )
            # threads share out sums differently in a chain of steps
            assert np.abs(given - wanted).max() <= 1
    assert pictures(tmp_path / "one.mkv") != pictures(video)


def test_the_same_steps_again_are_skipped_and_others_are_refused(video, capsys):
    made = video.with_name("made.mkv")
    line = (
        "run",
        video,
        "-o",
        made,
        "--steps",
        "denoise,denoise",
        "--set",
        "denoise.strength=0.5",
    )
    assert run(*line) == 0
    assert f"{video}: denoise, denoise with " in capsys.readouterr().err
    before = made.read_bytes()
    assert run(*line) == 0
    assert capsys.readouterr().out == f"{video} -> {made}: skipped, finished before\n"
    assert run(*line[:-1], "denoise.strength=1") == 1
    assert (
        run(
            "run",
            video,
            "-o",
            made,
            "--steps",
            "denoise",
            "--set",
            "denoise.strength=0.5",
        )
        == 1
    )
    assert "made with other options" in capsys.readouterr().err
    assert made.read_bytes() == before
    assert run(*line, "--overwrite") == 0


def test_steps_that_were_stopped_resume_and_give_the_same_file(
    video, monkeypatch, capsys
):
    monkeypatch.setattr("vidrestore.jobs.segmented.LENGTH", 10)
    write_video(video, 40, sound=None)
    weights = write_weights(video.parent, doubling(), "sr")
    given = (
        "--steps",
        "denoise,sr",
        "--set",
        f"sr.model={weights}",
        "--set",
        "sr.scale=2",
    )
    line = ("run", video, *given, "--threads", "1")
    assert run(*line, "-o", video.with_name("whole.mkv")) == 0
    finish, finished = SegmentWriter.finish, list[Path]()

    def stopping(writer: SegmentWriter, label: dict[str, object]) -> object:
        if len(finished) == 1:
            raise KeyboardInterrupt
        finished.append(writer.path)
        return finish(writer, label)

    made = video.with_name("made.mkv")
    with monkeypatch.context() as stopped:
        stopped.setattr(SegmentWriter, "finish", stopping)
        assert run(*line, "-o", made) == 130
    assert "the same command resumes from there" in capsys.readouterr().err
    assert run(*line, "-o", made, "--json") == 0
    done = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < done["details"]["reused"] < 40
    assert made.read_bytes() == video.with_name("whole.mkv").read_bytes()


def test_steps_are_planned_previewed_and_reported(video, capsys):
    line = ("run", video, "--steps", "denoise,derain")
    weights = write_weights(video.parent, small(), "derain")
    line += ("--set", f"derain.model={weights}")
    assert run(*line, "--dry-run") == 0
    assert "5 frames" in capsys.readouterr().out
    assert run(*line, "--preview", "1s") == 0
    assert video.with_name("video.preview.mkv").exists()
    assert run(*line, "--report", video.with_name("page.html")) == 0
    assert "denoise, derain" in video.with_name("page.html").read_text()
    before = video.with_name("video.denoised.derained.mkv").stat().st_mtime_ns
    assert run(*line) == 0
    assert video.with_name("video.denoised.derained.mkv").stat().st_mtime_ns == before


def test_only_the_first_step_measures_noise(video, monkeypatch, capsys):
    monkeypatch.setattr(
        IdentityRestorer, "facts", replace(IdentityRestorer.facts, needs_sigma=True)
    )
    line = ("run", video, "--steps", "denoise,denoise")
    for output in ("-", video.with_name("made.mkv")):
        assert run(*line, "-o", output) == 2
        assert (
            "let it be the first, or give the noise, as in --set denoise.sigma"
            in capsys.readouterr().err
        )
    assert run(*line, "--set", "denoise.sigma=5", "--shard", "1/1") == 0


@pytest.mark.parametrize("options, kept", [((), True), (("--drop", "exif"), False)])
def test_steps_keep_the_notes_of_a_photo(tmp_path, options, kept):
    photo = tmp_path / "photo.jpg"
    write_picture(photo, (10, 200, 30))
    exif = b"Exif\0\0II*\0" + struct.pack("<IHI", 8, 0, 0) + b"the camera"
    data = photo.read_bytes()
    photo.write_bytes(
        data[:2] + struct.pack(">HH", 0xFFE1, len(exif) + 2) + exif + data[2:]
    )
    made = tmp_path / "made.jpg"
    assert run("run", photo, "--steps", "denoise,denoise", "-o", made, *options) == 0
    assert (exif in made.read_bytes()) == kept


def test_the_configuration_that_is_printed_is_read_again(video, tmp_path, capsys):
    line = "run --steps denoise --set denoise.sigma=20 --set denoise.grain=2 --print-config"
    assert run(*line.split()) == 0
    text = capsys.readouterr().out
    (tmp_path / "steps.toml").write_text(text)
    assert run("run", "--config", tmp_path / "steps.toml", "--print-config") == 0
    assert capsys.readouterr().out == text
    assert run("run", video, "--config", tmp_path / "steps.toml", "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (
        events[0]["event"] == "start"
        and events[0]["device"] == "cpu"
        and events[-1]["frames"] == 5
    )


@pytest.mark.parametrize(
    "steps", ["3", '"denoise"', '[["denoise"]]', '["denoise", 5]', "nan", "2020-01-01"]
)
def test_steps_that_are_not_a_list_of_names_are_refused_in_one_line(
    tmp_path, capsys, steps
):
    (tmp_path / "steps.toml").write_text(f"steps = {steps}")
    assert run("run", "a.mp4", "--config", tmp_path / "steps.toml") == 2
    assert 'steps.toml: expected steps = ["denoise", "sr"]' in capsys.readouterr().err


def test_an_option_of_no_step_is_refused_with_the_form_that_it_needs(tmp_path, capsys):
    assert run("run", "a.mp4", "--steps", "denoise", "--set", "sigma=8") == 2
    assert (
        "sigma: name the step that it is for, as in denoise.sigma"
        in capsys.readouterr().err
    )
    (tmp_path / "steps.toml").write_text('steps = ["denoise"]\nsigma = 8')
    assert run("run", "a.mp4", "--config", tmp_path / "steps.toml") == 2
    assert "steps.toml: sigma: name the step" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, reason",
    [
        # 400 MB, and 10 GB for 100,000
        (".".join("a" * 20_000) + " = 1", "has more than 16 parts"),
        ("x = " + "[" * 100_000, "nested too deeply"),
        (f"[denoise]\nsigma = 0x{'f' * 5000}", "a whole number of more than 64 bits"),
    ],
    ids=["keys", "depth", "numbers"],
)
def test_a_configuration_that_would_take_any_memory_is_refused(
    tmp_path, capsys, text, reason
):
    (tmp_path / "steps.toml").write_text(text)
    assert run("run", "--config", tmp_path / "steps.toml", "--print-config") == 2
    assert reason in capsys.readouterr().err
