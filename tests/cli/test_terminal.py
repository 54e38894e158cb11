"""What files say reaches the terminal as plain text, on one line."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import av
import pytest
from command_line import run
from sample_videos import write_video

import vidrestore.cli
from vidrestore.cli.progress import PlainLines, print_json, progress_bar
from vidrestore.cli.terminal import escaped
from vidrestore.event_log import describe, progress_of
from vidrestore.events import Progressed, Warned
from vidrestore.jobs import frame_progress
from vidrestore.jobs.frame_progress import counted
from vidrestore.working import HERE, begin_task, steps

FORGED = "a\x1b]0;title\x07\r\nvidrestore: all lost\x9b31m\u202etxt.exe\u2028\u061c"


@pytest.mark.parametrize(
    "line, shown",
    [
        ("été 漢字 🎬 \\ مرحبا", "été 漢字 🎬 \\ مرحبا"),
        ("\x1b[31mred\x00\x7f", "\\x1b[31mred\\x00\\x7f"),
        ("one\r\ntwo\tthree", "one\\r\\ntwo\\tthree"),
        ("\x85\x9b", "\\x85\\x9b"),
        ("\udcff\udcfe.mp4", "\\udcff\\udcfe.mp4"),
        ("\u202eexe\u2066\u200f\u2029", "\\u202eexe\\u2066\\u200f\\u2029"),
    ],
)
def test_control_and_direction_characters_are_escaped_and_letters_are_not(line, shown):
    assert escaped(line) == shown


def test_a_title_cannot_forge_a_line_or_move_the_cursor(tmp_path, capsys):
    write_video(tmp_path / "plain.mkv", 3)
    with (
        av.open(str(tmp_path / "plain.mkv")) as plain,
        av.open(str(tmp_path / "video.mkv"), "w") as video,
    ):
        stream = video.add_stream_from_template(plain.streams.video[0])
        stream.metadata["title"] = FORGED
        for packet in plain.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                video.mux(packet)
    for options in ([], ["--json"]):
        run("inspect", tmp_path / "video.mkv", "-q", *options)
        printed = capsys.readouterr().out
        assert not set(printed) & set("\x1b\x07\r\x9b\u202e\u2028\u061c")
        assert "vidrestore: all lost" in printed and not any(
            line.startswith("vidrestore:") for line in printed.splitlines()
        )
    assert json.loads(printed)["info"]["streams"][0]["title"] == FORGED


def test_errors_that_name_a_file_are_one_line(tmp_path, capsys):
    run("inspect", tmp_path / "a\x1b[2J\nb.mkv", "-q")
    printed = capsys.readouterr().err
    assert "a\\x1b[2J\\nb.mkv" in printed and printed.count("\n") == 1


def test_events_are_one_plain_line_each(capsys):
    import sys

    print_json(Warned("video.mkv", FORGED))
    PlainLines(sys.stdout)(Warned("video.mkv", FORGED))
    as_json, as_text = capsys.readouterr().out.splitlines()
    assert (
        json.loads(as_json)["message"] == FORGED
        and escaped(as_json) == as_json
        and escaped(as_text) == as_text
    )


def test_a_line_without_a_number_ends_with_its_words():
    assert describe(Progressed("-", 0, stage="look")) == "-: looking for weather"


@pytest.mark.parametrize(
    "name", ["clip.mp4", "a holiday in the mountains with everybody.mp4"]
)
def test_a_bar_of_80_columns_has_name_frames_rate_time_left_and_elapsed_time(
    monkeypatch, capsys, name
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    event = Progressed(f"in/{name}", 20, 90_000, 80.0, memory=10**9, index=12, count=99)
    with progress_bar() as listener:
        listener(event)
        listener.progress.refresh()
    plain = re.sub("\x1b\\[[^a-zA-Z]*[a-zA-Z]", "\n", capsys.readouterr().err)
    line = "".join(plain.split("\r")[0].split("\n"))
    assert "20/90000 frames, 4.0 s a frame, 99:58:40 left" in line
    assert line.startswith("[12/99] ") and name[:3] in line and "mp4" in line
    assert "0:00:00" in line and len(line) <= 80 and "\u2501" not in line, (
        "no bar of a few cells"
    )


def test_progress_counts_parts_of_a_clip_that_is_under_way(monkeypatch):
    monkeypatch.setattr(frame_progress, "PROGRESS_SECONDS", 0)
    clock = [0.0]
    monkeypatch.setattr(frame_progress.time, "monotonic", lambda: clock[0])
    events: list[Progressed] = []

    def restored() -> Iterator[int]:
        begin_task(4.0)
        for _ in steps(range(8)):
            clock[0] += 5.0
            HERE.meter.look()
        HERE.reach(1.0)
        yield from range(4)

    assert list(counted(restored(), "a.mp4", 4, "restore", events.append)) == [
        0,
        1,
        2,
        3,
    ]
    assert [(event.done, event.eta) for event in events[2:4]] == [(0, None), (1, 45.0)]
    assert progress_of(events[3]).startswith("1/4 frames, 15.0 s a frame, 45.0 s left")
    assert events[-1].done == 4


def test_only_one_module_prints():
    folder = Path(vidrestore.cli.__file__).parent
    calls = {
        path.name: ast.unparse(node.func)
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func)
        in ("print", "typer.echo", "sys.stdout.write", "sys.stderr.write")
    }
    assert set(calls) == {"terminal.py"}
