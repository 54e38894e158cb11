"""The real command, killed, stopped and out of space: the files it leaves, and the next run."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from commands import Command, Commands, segments, work_of
from sample_videos import write_video
from written_videos import pictures

from vidrestore.files.stopping import STOPS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")

OPTIONS = ("--threads", "1")


@pytest.fixture(scope="module")
def undisturbed(film: Path, commands: Commands) -> Path:
    output = film.with_name("whole.mkv")
    assert denoise(commands, film, "-o", output, "--lossless")[0] == 0
    return output


def denoise(commands: Commands, *arguments: object, **more: Any) -> tuple[int, str]:
    return commands.run("denoise", *arguments, *OPTIONS, **more)


def begin(commands: Commands, *arguments: object, **more: Any) -> Command:
    return commands.start("denoise", *arguments, *OPTIONS, **more)


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_stops_cleanly_and_the_message_explains_how_to_resume(
    commands, film, undisturbed, tmp_path, number
):
    output = tmp_path / "out.mkv"
    command = begin(commands, film, "-o", output, "--lossless", slow_clip=0.1).until(
        lambda: segments(output)
    )
    command.send(number)
    assert command.wait() == 130 and "Traceback" not in command.said
    for words in (
        "once more stops at once",
        "the same command resumes from there",
        "film.mkv: interrupted",
    ):
        assert words in command.said
    kept = {path.name for path in work_of(output).iterdir()}
    # if all was planned by then
    assert kept | {"plan.json"} == {*segments(output), "job.json", "plan.json"}
    assert denoise(commands, film, "-o", output, "--lossless")[0] == 0
    assert pictures(output) == pictures(undisturbed)


def test_a_closed_terminal_keeps_every_frame_of_finished_clips_that_no_other_clip_shares(
    commands, film, tmp_path
):
    """Clips have 20 frames and share 4."""
    output = tmp_path / "out.mkv"
    command = begin(commands, film, "-o", output, "--lossless", slow_clip=0.5)
    command.until(lambda: command.said.count("slowly: restore") == 4)
    time.sleep(0.2)  # what three clips gave is written while the fourth is under way
    command.send(signal.SIGHUP)
    assert command.wait() == 130
    assert f"{3 * (20 - 4)} frames are kept" in command.said, command.said


def test_a_run_stopped_before_a_segment_warns_that_nothing_is_saved(
    commands, film, tmp_path
):
    command = begin(commands, film, "-o", tmp_path / "out.mkv", slow_clip=0.3)
    command.until(lambda: "slowly: restore" in command.said)
    command.send(signal.SIGINT)
    assert (
        command.wait() == 130
        and "before a clip was finished; nothing is kept" in command.said
    )
    assert "Traceback" not in command.said
    assert not list(tmp_path.iterdir())


def test_a_second_signal_stops_at_once(commands, film, tmp_path):
    command = begin(
        commands, film, "-o", tmp_path / "out.mkv", "--lossless", slow_clip=60
    )
    command.until(lambda: "slowly: restore" in command.said)
    command.send(signal.SIGINT)
    command.until(lambda: "stopping" in command.said)
    command.send(signal.SIGINT)
    assert command.wait(seconds=10) == 130


def test_too_little_room_is_reported_before_the_work(commands, small_disk, tmp_path):
    source = tmp_path / "film.mkv"
    write_video(
        source, 300, "libx264", size=(320, 240), options={"preset": "ultrafast"}
    )
    free = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - 50_000))
    code, said = denoise(commands, source, "-o", small_disk / "out.mkv", "--lossless")
    assert code == 1, said
    for words in (
        "free, but at least",
        "joining needs twice the output's size",
        "--work-dir",
    ):
        assert words in said
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_an_output_that_came_beside_an_unfinished_job_is_refused_before_work(
    commands, tmp_path, film
):
    source, output = tmp_path / "film.mkv", tmp_path / "out.mkv"
    source.write_bytes(film.read_bytes())
    command = commands.start(
        "denoise", source, "-o", output, "--lossless", slow_clip=0.1
    )
    command.until(lambda: segments(output)).kill()
    stored = segments(output)
    output.write_bytes(b"mine")
    code, said = commands.run("denoise", source, "-o", output, "--lossless")
    assert code == 1 and "already exists" in said and "restoring" not in said
    assert output.read_bytes() == b"mine" and segments(output) == stored


def test_a_run_stopped_in_a_folder_resumes_with_the_video_it_was_at(
    commands, tmp_path, film
):
    folder = tmp_path / "films"
    folder.mkdir()
    for name in ("a.mkv", "b.mkv"):
        (folder / name).write_bytes(film.read_bytes())
    command = begin(commands, folder, "--lossless", slow_clip=0.1)
    command.until(lambda: segments(folder / "b.denoised.mkv")).kill()
    code, said = denoise(commands, folder, "--lossless")
    assert code == 0 and "b.denoised.mkv: 150 frames (" in said
    assert pictures(folder / "a.denoised.mkv") == pictures(folder / "b.denoised.mkv")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["a.denoised.mkv", "a.mkv", "b.denoised.mkv", "b.mkv"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_clips_that_were_restored_side_by_side_and_stopped_are_whole_or_begun_again(
    commands, tmp_path, number
):
    names = [f"{letter}.mkv" for letter in "abcd"]
    for name in names:
        write_video(tmp_path / name, 12)
    line = (tmp_path, "--lossless", "--threads", "2")
    command = commands.start("denoise", *line, slow_clip=0.1, slow_join=0.01)
    command.until(lambda: command.said.count("slowly: restore") == 3)
    command.send(number)
    assert command.wait() in (130, -signal.SIGKILL) and "Traceback" not in command.said
    code, said = commands.run("denoise", *line)
    assert code == 0, said
    assert sorted(path.name for path in tmp_path.iterdir() if "mkv" in path.name) == [
        each for name in names for each in (name.replace(".", ".denoised."), name)
    ]
    for name in names:
        output = tmp_path / name.replace(".", ".denoised.")
        assert pictures(output) == pictures(tmp_path / name)
