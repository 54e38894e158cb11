"""The real command, killed, stopped and out of space: the files it leaves, and the next run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command, Commands
from long_videos import long_video
from sample_videos import write_video
from written_videos import pictures

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")

OPTIONS = ("--threads", "1")


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 frames at varying times with sound and subtitles."""
    folder = tmp_path_factory.mktemp("film")
    times = list(np.cumsum(np.random.default_rng(0).integers(30, 60, 150)) - 30)
    return long_video(folder / "film.mkv", times=[int(time) for time in times], text="subrip")


@pytest.fixture(scope="module")
def undisturbed(film: Path, commands: Commands) -> Path:
    output = film.with_name("whole.mkv")
    assert denoise(commands, film, "-o", output, "--lossless")[0] == 0
    return output


def denoise(commands: Commands, *arguments: object, **more: Any) -> tuple[int, str]:
    return commands.run("denoise", *arguments, *OPTIONS, **more)


def begin(commands: Commands, *arguments: object, **more: Any) -> Command:
    return commands.start("denoise", *arguments, *OPTIONS, **more)


def work_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.vidrestore")


def segments(output: Path) -> list[str]:
    return sorted(path.name for path in work_of(output).glob("*.segment"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_says_how_to_go_on(
    commands: Commands, film: Path, undisturbed: Path, tmp_path: Path, number: signal.Signals
) -> None:
    output = tmp_path / "out.mkv"
    command = begin(commands, film, "-o", output, "--lossless", slow_clip=0.1).until(lambda: segments(output))
    command.send(number)
    assert command.wait() == 130 and "Traceback" not in command.said
    for words in ("once more stops at once", "the same command resumes from there", "film.mkv: interrupted"):
        assert words in command.said
    kept = {path.name for path in work_of(output).iterdir()}
    assert kept == {*segments(output), "job.json", "plan.json"}
    assert denoise(commands, film, "-o", output, "--lossless")[0] == 0
    assert pictures(output) == pictures(undisturbed)


def test_a_run_stopped_early_says_that_nothing_is_kept(
    commands: Commands, film: Path, tmp_path: Path
) -> None:
    command = begin(commands, film, "-o", tmp_path / "out.mkv", slow_clip=0.3)
    command.until(lambda: "slowly: restore" in command.said)
    command.send(signal.SIGINT)
    assert command.wait() == 130 and "nothing is kept" in command.said
    assert "Traceback" not in command.said
    assert not list(tmp_path.iterdir())


def test_a_second_signal_stops_at_once(commands: Commands, film: Path, tmp_path: Path) -> None:
    command = begin(commands, film, "-o", tmp_path / "out.mkv", "--lossless", slow_clip=60)
    command.until(lambda: "slowly: restore" in command.said)
    command.send(signal.SIGINT)
    command.until(lambda: "stopping" in command.said)
    command.send(signal.SIGINT)
    assert command.wait(seconds=10) == 130


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode:
        pytest.skip("needs permission to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_too_little_room_is_said_before_the_work(
    commands: Commands, small_disk: Path, tmp_path: Path
) -> None:
    source = tmp_path / "film.mkv"
    write_video(source, 300, "libx264", size=(320, 240), options={"preset": "ultrafast"})
    free = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - 50_000))
    code, said = denoise(commands, source, "-o", small_disk / "out.mkv", "--lossless")
    assert code == 1 and "free, but at least" in said and "joining needs twice the output's size" in said, (
        said
    )
    assert "--work-dir" in said
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_without_any_input_the_command_says_what_it_takes(commands: Commands) -> None:
    code, said = denoise(commands)
    assert code == 2 and "expected videos, folders or patterns" in " ".join(said.replace("│", " ").split())


def test_a_run_stopped_in_a_folder_goes_on_with_the_film_it_was_at(
    commands: Commands, tmp_path: Path, film: Path
) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    for name in ("a.mkv", "b.mkv"):
        (folder / name).write_bytes(film.read_bytes())
    begin(commands, folder, "--lossless", slow_clip=0.1).until(
        lambda: segments(folder / "b.denoised.mkv")
    ).kill()
    code, said = denoise(commands, folder, "--lossless", "--skip-existing")
    assert code == 0 and "b.denoised.mkv: 150 frames (" in said
    assert (folder / "a.denoised.mkv").read_bytes() == (folder / "b.denoised.mkv").read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == [
        "a.denoised.mkv",
        "a.mkv",
        "b.denoised.mkv",
        "b.mkv",
    ]
