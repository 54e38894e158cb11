"""`vidrestore run`: steps one after the other, decoded once and encoded once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rgb_networks import doubling, write_weights
from sample_videos import write_video
from taylor_networks import small

from vidrestore.cli import main
from vidrestore.media.reader import VideoReader
from vidrestore.restorers.base import TASKS


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "denoise", TASKS["<identity>"])


@pytest.fixture
def film(tmp_path: Path) -> Path:
    write_video(tmp_path / "film.mkv", 5, sound=None)
    return tmp_path / "film.mkv"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    return int(end.value.code or 0)


def pictures(path: Path) -> list[tuple[int, list[bytes]]]:
    with VideoReader(str(path)) as reader:
        return [(frame.pts, [plane.tobytes() for plane in frame.planes]) for frame in reader.frames()]


def test_steps_give_the_frames_of_the_commands_one_after_the_other(film: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (
        write_weights(tmp_path / "a", small(), "derain"),
        write_weights(tmp_path / "b", doubling(), "sr"),
    )
    common = ("--lossless", "--threads", "2", "-q")
    assert run("derain", film, "-o", tmp_path / "one.mkv", "--model", first, *common) == 0
    assert run("sr", tmp_path / "one.mkv", "-o", tmp_path / "two.mkv", "-x2", "--model", second, *common) == 0
    given = ("--set", f"derain.model={first}", "--set", f"sr.model={second}", "--set", "sr.scale=2")
    assert run("run", film, "--steps", "denoise,derain,sr", *given, *common) == 0
    made = film.with_name("film.denoised.derained.x2.mkv")
    assert pictures(made) == pictures(tmp_path / "two.mkv")
    assert pictures(tmp_path / "one.mkv") != pictures(film)


def test_the_configuration_that_is_printed_is_read_again(
    film: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            "run",
            "--steps",
            "denoise",
            "--set",
            "denoise.sigma=20",
            "--set",
            "denoise.grain=2",
            "--print-config",
        )
        == 0
    )
    text = capsys.readouterr().out
    (tmp_path / "steps.toml").write_text(text)
    assert run("run", "--config", tmp_path / "steps.toml", "--print-config") == 0
    assert capsys.readouterr().out == text
    assert run("run", film, "--config", tmp_path / "steps.toml", "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[0]["event"] == "start" and events[0]["device"] == "cpu" and events[-1]["frames"] == 5


@pytest.mark.parametrize(
    "given, message",
    [
        (("--steps", "denoise,polish"), "no step named 'polish'; there are: denoise, dehaze"),
        ((), "no step was given"),
        (("--steps", "sr,sr"), "sr can be one of the steps once"),
        (("--steps", "denoise", "--set", "sr.scale=2"), "it is none of the steps"),
        (
            ("--steps", "denoise", "--set", "denoise.sigma=much"),
            "denoise.sigma: expected a number such as 20",
        ),
        (
            ("--steps", "denoise", "--set", "denoise.tail=1"),
            "denoise has no option 'tail'; it has: chroma_strength",
        ),
        (("--steps", "denoise", "--set", "sigma=1"), "expected STEP.NAME=VALUE"),
    ],
)
def test_steps_that_make_no_sense_are_refused(
    film: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], message: str
) -> None:
    assert run("run", film, *given) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "text, reason",
    [
        (".".join("a" * 20_000) + " = 1", "has more than 16 parts"),  # 400 MB, and 10 GB for 100,000
        ("x = " + "[" * 100_000, "nested too deeply"),
        (f"[denoise]\nsigma = 0x{'f' * 5000}", "a whole number of more than 64 bits"),
    ],
    ids=["keys", "depth", "numbers"],
)
def test_a_configuration_that_would_take_any_memory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    (tmp_path / "steps.toml").write_text(text)
    assert run("run", "--config", tmp_path / "steps.toml", "--print-config") == 2
    assert reason in capsys.readouterr().err
