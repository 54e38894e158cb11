"""What the command says about its decisions, in its lines, its log file and Python's log."""

import logging
import os
import re

import pytest
from command_line import on_terminal
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from sample_videos import write_video
from written_videos import extras, rich_video

import vidrestore
from vidrestore.cli import main
from vidrestore.cli.progress import progress_bar
from vidrestore.cli.terminal import bar_console
from vidrestore.event_log import Logged
from vidrestore.events import Planned, Progressed, Summary


@pytest.mark.parametrize(
    "source, options, line",
    [
        (
            "in.avi mpeg4 yuv420p",
            "",
            r"libx264 crf \d+ \(mpeg4 isn't encoded here\), \.mkv \(\.avi isn't written\)",
        ),
        (
            "in.mov prores_ks yuv422p10le",
            "--lossless",
            r"libx264 lossless \(\.mov can't hold ffv1\), \.mov \(the source's\)",
        ),
        (
            "in.mp4 libx264 yuv420p",
            "--encoder libx265 -o OUT.mkv",
            r"libx265 crf \d+ \(as asked\), \.mkv \(as named\)",
        ),
        (
            "in.mp4 libx264 yuv420p",
            "",
            r"libx264 crf \d+ \(the source's codec\), \.mp4 \(the source's\)",
        ),
        (
            "in.mkv ffv1 yuv420p",
            "-o OUT.mp4",
            r"libx264 crf \d+ \(ffv1 isn't usual in \.mp4\)",
        ),
    ],
    ids=["container", "lossless", "asked", "kept", "codec"],
)
def test_a_line_names_encoder_and_container_and_why(
    tmp_path, capsys, monkeypatch, source, options, line
):
    monkeypatch.chdir(tmp_path)
    name, codec, pix_fmt = source.split()
    write_video(tmp_path / name, 3, codec, pix_fmt, (64, 64))
    assert run(name, *options.split()) == 0
    assert re.search(f"3 frames; {line}", capsys.readouterr().err)
    assert run(name, *options.split(), "--dry-run", "-y") == 0
    assert re.search(line, capsys.readouterr().out)


def test_verbose_shows_the_plan_and_what_each_stage_took(tmp_path, capsys):
    write_video(tmp_path / "in.mkv", 3)
    assert run(tmp_path / "in.mkv", "-v") == 0
    printed = capsys.readouterr().err
    assert "in.mkv: encoder threads: " in printed
    assert re.search(r"in\.mkv: restoring took [\d.]+ s, 3 frames", printed)
    assert run(tmp_path / "in.mkv", "-y") == 0
    assert "took" not in capsys.readouterr().err


def test_python_logs_events_at_their_levels(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "vidrestore")
    rich_video(tmp_path / "in.mov", extras())
    vidrestore.restore(tmp_path / "in.mov", tmp_path / "%04d.png", task="<identity>")
    levels = {
        record.levelname: record.getMessage()
        for record in caplog.records
        if record.name == "vidrestore"
    }
    assert levels.keys() == {"DEBUG", "INFO", "WARNING"}
    assert "left out: audio, chapters" in levels["WARNING"]


def test_the_time_of_a_stage_is_logged_once(caplog):
    caplog.set_level(logging.DEBUG, "vidrestore")
    log = Logged(lambda event: None)
    for done in range(3):
        log(Progressed("a", done, 2, stage="restore"))
    log(Planned("a", 2))  # does not end a stage
    log(Progressed("a", 0, 2, stage="join"))
    log(Summary("a", "b", 2, 1.0))
    took = [
        record.getMessage()
        for record in caplog.records
        if "took" in record.getMessage()
    ]
    assert [line.split(" took")[0] for line in took] == ["a: restoring", "a: joining"]


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo terminal")
def test_a_bar_shows_life_before_the_first_frame_and_is_cleared_by_a_stop():
    code = """
import os, signal, time
from vidrestore.files.stopping import stops_cleanly
from vidrestore.cli.progress import listening
from vidrestore.events import Progressed
with stops_cleanly(), listening() as tell:
    tell(Progressed("a.mp4", 0, 44, memory=3 * 10**8))
    time.sleep(1.3)
    os.kill(os.getpid(), signal.SIGINT)
"""
    _, shown = on_terminal(code)
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert (
        "0/44 frames, waiting for the first clip, memory 0.30 GB 0:00:00" in plain
        and "0:00:01" in plain
    )
    assert "\r\x1b[Kvidrestore: stopping" in shown  # in place of the bar


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo terminal")
@pytest.mark.parametrize("columns, has_bar", [(80, False), (120, True)])
def test_the_clock_runs_on_after_a_finished_stage_and_text_wins_over_a_short_bar(
    columns, has_bar
):
    code = f"""
import time
from rich.console import Console
from vidrestore.cli import terminal
terminal.bar_console = lambda: Console(stderr=True, width={columns})
from vidrestore.cli.progress import listening
from vidrestore.events import Progressed
with listening() as tell:
    tell(Progressed("a.mp4", 44, 44, stage="plan"))
    tell(Progressed("a.mp4", 1, 44, stage="restore", seconds=1.0))
    time.sleep(1.3)
"""
    _, shown = on_terminal(code)
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    assert "restoring a.mp4" in plain and "0:00:01" in plain
    assert ("\u2501" in plain) == has_bar


def test_the_bar_of_a_photograph_grows_by_parts_of_it():
    with progress_bar() as bar:
        bar(Progressed("a.jpg", 0, 1, seconds=2.0, worked=0.25))
        (task,) = bar.progress.tasks
        assert task.completed == 0.25 and task.fields["text"].startswith("0/1 frame")


PARTS = "bar.back bar.complete bar.finished bar.pulse progress.elapsed progress.remaining progress.download"


@pytest.mark.parametrize("part", PARTS.split())
def test_a_bar_is_legible_on_light_and_on_dark_terminals(part):
    style = bar_console().get_style(part)
    assert style.bgcolor is None
    if style.color is not None:
        linear = [
            each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4
            for each in style.color.get_truecolor().normalized
        ]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
        # the contrast that WCAG asks of graphics
        assert min(1.05 / light, light / 0.05) >= 3


@pytest.mark.parametrize("words", ["--help", "denoise --help", "weights list --help"])
def test_help_is_legible_on_light_and_on_dark_terminals(words, capsys, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.FORCE_TERMINAL", True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with pytest.raises(SystemExit):
        main(words.split())
    used = set(
        ";".join(re.findall(r"\x1b\[([\d;]+)m", capsys.readouterr().out)).split(";")
    )
    assert {"1"} <= used <= {"0", "1", "2", "35"}  # bold, dim, magenta
