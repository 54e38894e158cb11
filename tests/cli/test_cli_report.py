"""`--report`, and `eval --reference`: pages and figures through the command line."""

import hashlib
import json
import math
import re
from itertools import pairwise
from pathlib import Path

import pytest
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from eval_command import run as run_eval
from sample_videos import write_video

from vidrestore.events import Summary
from vidrestore.lab.evaluation import evaluate
from vidrestore.pages.report import sample_starts
from vidrestore.pipeline.plan import Scene


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "video.mkv", 12, size=(96, 80))
    return tmp_path / "video.mkv"


def result_of(page: Path) -> dict:
    text = page.read_text(encoding="utf-8")
    assert "http:" not in text.replace("http://www.w3.org", "") and "https:" not in text
    return json.loads(re.search(r'id="result">(.*?)</script>', text, re.S)[1])


def test_a_report_holds_pictures_noise_flicker_bitrate_and_settings(video):
    page = video.with_name("page.html")
    assert run(video, "--lossless", "--sigma", "5", "--report", page) == 0
    found = result_of(page)
    (row,) = found["rows"]
    assert {"noise", "flicker", "bitrate"} <= {*row["measured"]} == {*row["reference"]}
    # the model changes nothing
    assert row["measured"]["noise"] == row["reference"]["noise"]
    assert any(
        "sigma 5" in line and "lossless=True" in line for line in found["protocol"]
    )
    text = page.read_text(encoding="utf-8")
    assert text.count('<section class="comparison">') >= 3 and 'name="viewport"' in text


def test_a_report_begins_with_its_pictures_and_ends_with_settings(video):
    page = video.with_name("page.html")
    assert run(video, "--lossless", "--sigma", "5", "--report", page) == 0
    text = page.read_text(encoding="utf-8")
    marks = (
        "<h1>",
        'class="slider"',
        "yellow: 32 grey levels",
        "grey levels before",
        "grey levels after",
    )
    places = [
        text.index(mark, text.index("<h1>"))
        for mark in (*marks, "Frame by frame", "sigma 5")
    ]
    assert places == sorted(places)
    cells = re.findall(r'data-metric="noise" data-side="(\w+)"', text)
    assert cells == ["reference", "measured"]


def test_a_report_has_the_command_and_the_checksums_of_the_sidecar(video):
    page = video.with_name("page.html")
    assert run(video, "--lossless", "--sidecar", "--report", page) == 0
    recorded = json.loads(
        video.with_name("video.denoised.mkv.vidrestore.json").read_text()
    )
    lines = result_of(page)["protocol"]
    assert f"command: {recorded['command']}" in lines
    for part, name in (("source", "video.mkv"), ("result", "video.denoised.mkv")):
        checksum = hashlib.sha256(video.with_name(name).read_bytes()).hexdigest()
        assert recorded[part]["sha256"] == checksum
        assert any(
            line.startswith(f"{part} {name}: ") and line.endswith(checksum)
            for line in lines
        )


def test_a_report_of_a_part_shows_the_frames_of_that_part(video):
    page = video.with_name("page.html")
    assert run(video, "--lossless", "--start", "0.2", "--report", page) == 0
    pictures = re.search(
        r'id="pictures">(.*?)</script>', page.read_text(encoding="utf-8"), re.S
    )
    first = re.findall(r'data-picture="(\w+)"', page.read_text(encoding="utf-8"))[:2]
    # before and after are one picture: nothing was changed
    assert pictures and first[0] == first[1]


def test_a_finished_video_gets_its_report_later_and_several_need_a_folder(
    video, capsys
):
    assert run(video, "--lossless") == 0
    assert run(video, "--lossless", "--report", video.with_name("later.html")) == 0
    assert (
        f"video.denoised.mkv: shown in {video.with_name('later.html')}"
        in capsys.readouterr().out
    )
    assert video.with_name("later.html").exists()
    write_video(video.with_name("other.mkv"), 3)
    assert (
        run(video, video.with_name("other.mkv"), "--report", video.with_name("x.html"))
        == 2
    )
    assert "several inputs need a folder" in capsys.readouterr().err
    pages = video.with_name("pages")
    pages.mkdir()
    assert (
        run(video, video.with_name("other.mkv"), "--lossless", "--report", pages) == 0
    )
    made = sorted(path.name for path in pages.iterdir())
    assert made == ["other.denoised.mkv.html", "video.denoised.mkv.html"]


@pytest.mark.parametrize("other", [("--preview", "1s"), ("-o", "-")])
def test_a_report_needs_a_file(video, other, capsys):
    assert run(video, "--report", video.with_name("page.html"), *other) == 2
    assert "--report are of restored files" in capsys.readouterr().err


def test_the_longest_scenes_are_shown():
    ends = (0, 2, 40, 45, 90, 130, 160)
    scenes = tuple(Scene(first, stop, (1.0,)) for first, stop in pairwise(ends))
    assert sample_starts(Summary("a", "b", 160, 1.0, scenes=scenes)) == [
        21,
        67,
        110,
        145,
    ]
    assert sample_starts(Summary("a", "b", 1, 1.0)) == [0]


def test_videos_are_compared_with_a_reference_frame_by_frame(video, tmp_path):
    assert (
        run(video, "-o", tmp_path / "lossy.mkv", "--encoder", "libx264", "--crf", "40")
        == 0
    )
    page, values = tmp_path / "page.html", tmp_path / "values.json"
    assert (
        run_eval(
            tmp_path / "lossy.mkv",
            "--reference",
            video,
            "--html",
            page,
            "--json",
            values,
        )
        == 0
    )
    (row,) = json.loads(values.read_text())["rows"]
    assert (
        row["count"] == 12
        and 10 < row["measured"]["psnr"] < 45
        and 0.2 < row["measured"]["ssim"] < 1
    )
    assert len(result_of(page)["clips"][0]["frames"]["psnr"]) == 12


def pipe_file(path: Path, levels: list[int], rate: int = 25) -> Path:
    """A y4m file of gray frames, 16x16."""
    frames = b"".join(b"FRAME\n" + bytes([level]) * 256 for level in levels)
    path.write_bytes(b"YUV4MPEG2 W16 H16 F%d:1 Ip A1:1 Cmono\n" % rate + frames)
    return path


def test_equal_frames_make_no_mean_infinite(tmp_path):
    clean = pipe_file(tmp_path / "clean.y4m", [50, 60, 70, 80])
    video = pipe_file(tmp_path / "a.y4m", [50, 60, 75, 90])
    found = evaluate(videos=[video], reference=clean)
    each = found.clips[0].frames["psnr"]
    assert each[:2] == (math.inf, math.inf) and max(each[2:]) < 40
    errors = [255**2 / 10 ** (value / 10) for value in each[2:]]
    assert found.rows[0].measured["psnr"] == pytest.approx(sum(each[2:]) / 2, abs=1e-3)
    over_all = 10 * math.log10(255**2 / (sum(errors) / 4))
    assert found.rows[0].measured["psnr_mse"] == pytest.approx(over_all, abs=1e-3)
    assert found.notes == ("a.y4m: 2 frames are equal to those of clean.y4m",)
    same = evaluate(videos=[clean], reference=clean)
    assert (
        same.rows[0].measured["psnr"] == same.rows[0].measured["psnr_mse"] == math.inf
    )
    assert not same.notes


def test_frames_of_other_times_are_noted(tmp_path):
    clean = pipe_file(tmp_path / "clean.y4m", [50, 60, 70, 80])
    slow = pipe_file(tmp_path / "slow.y4m", [51, 61, 71, 81], rate=20)
    (note,) = evaluate(videos=[slow], reference=clean).notes
    assert note.startswith(
        "slow.y4m: its frames have other times than those of clean.y4m, by up to 0.030 s"
    )


def test_videos_of_other_sizes_or_lengths_are_not_compared(video, tmp_path, capsys):
    write_video(tmp_path / "short.mkv", 5, size=(96, 80))
    write_video(tmp_path / "small.mkv", 12)
    assert run_eval(tmp_path / "short.mkv", "--reference", video) == 1
    assert (
        "short.mkv: ends after 5 frames, but the other video is longer"
        in capsys.readouterr().err
    )
    assert run_eval(tmp_path / "small.mkv", "--reference", video) == 1
    assert "small.mkv: 64x48, but video.mkv is 96x80" in capsys.readouterr().err
