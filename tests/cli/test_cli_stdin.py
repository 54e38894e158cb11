"""Containers on standard input, and addresses, through the command line."""

import io
import json
import subprocess
import sys
import time

import pytest
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from written_videos import extras, packets, rich_video

from vidrestore.media.reading.reader import VideoReader


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))
    )


def test_a_container_on_stdin_is_restored_with_its_sound_and_leaves_no_file(
    tmp_path, monkeypatch, capsys
):
    rich_video(tmp_path / "in.mkv", extras())
    (tmp_path / "made").mkdir()
    give(monkeypatch, (tmp_path / "in.mkv").read_bytes())
    output = tmp_path / "made" / "out.mkv"
    assert run("-", "-o", output, "--lossless", "--json") == 0
    captured = capsys.readouterr()
    events = [json.loads(line) for line in captured.out.splitlines()]
    assert {event["source"] for event in events} == {
        "-"
    } and ".partial" not in captured.out
    assert any("stored in" in event.get("message", "") for event in events)
    with (
        VideoReader(str(tmp_path / "in.mkv")) as one,
        VideoReader(str(output)) as other,
    ):
        pairs = list(zip(one.frames(), other.frames(), strict=True))
    assert len(pairs) == 12
    assert all(
        first.planes[0].tobytes() == second.planes[0].tobytes()
        for first, second in pairs
    )
    assert packets(output)[1] == packets(tmp_path / "in.mkv")[1]
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["out.mkv"]


def test_what_a_killed_run_stored_is_removed_by_the_next(tmp_path, monkeypatch):
    command = [
        sys.executable,
        "-m",
        "vidrestore",
        "denoise",
        "-",
        "-o",
        str(tmp_path / "out.mkv"),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        process.stdin.write(bytes(3 << 20))
        process.stdin.flush()
        while not any(path.stat().st_size for path in tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    assert list(tmp_path.iterdir())
    give(monkeypatch, b"plain text, and more of it")
    assert run("-", "-o", tmp_path / "other.mkv") == 1
    assert not list(tmp_path.iterdir())


def test_stdin_that_is_not_a_video_is_refused_as_a_dash(tmp_path, monkeypatch, capsys):
    give(monkeypatch, b"plain text, and more of it")
    assert run("-", "-o", tmp_path / "out.mkv") == 1
    assert "vidrestore: -: not a video file that can be read" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_address_gets_a_plain_sentence(capsys):
    assert run("https://example.org/a.mp4") == 1
    assert (
        "an address, and only files are read; download it first"
        in capsys.readouterr().err
    )
