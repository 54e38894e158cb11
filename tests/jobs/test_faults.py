"""The fault suite, `pytest -m faults`: the real command killed, stopped, starved and misled makes in the end
what it always makes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command, Commands, segments, wait_for, work_of
from sample_videos import write_video
from scanned_videos import moments, telecined, write_frames
from written_videos import packets, pictures

from vidrestore.files.atomic import Partial
from vidrestore.files.stopping import STOPS
from vidrestore.media.reading.reader import VideoReader

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.name == "nt", reason="needs signals"),
]

MOMENTS = 50  # at which a run is killed, for each encoder
OPTIONS = ("--threads", "1")
ENCODERS = {
    "lossless": ("--lossless",),
    "lossy": ("--encoder", "libx264", "--preset", "veryfast"),
}
SLOW = {"slow_clip": 0.05, "slow_join": 0.001, "slow_name": 0.08}
BOTH = pytest.mark.parametrize("encoder", ENCODERS)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 frames of noise: half a megabyte in segments, and as much again when joined."""
    path, times = (
        tmp_path_factory.mktemp("noise") / "film.mkv",
        [40 * number for number in range(60)],
    )
    write_video(path, 60, size=(96, 64), time_base=Fraction(1, 1000), times=times)
    return path


@dataclass
class Content:
    """Decoded frames with their times, and the packets of all streams."""

    frames: list[Any]
    packets: dict[int, Any]

    @classmethod
    def of(cls, path: Path) -> Content:
        return cls(pictures(path), packets(path))


@dataclass
class Undisturbed:
    """A run that nothing happened to: what it made, the seconds that its work took, and when in them it began
    to join.
    """

    path: Path
    content: Content
    seconds: float
    join: float

    def check(self, output: Path) -> None:
        """Hold the film that is there after a fault against this one."""
        assert Content.of(output) == self.content

    def check_stopped(self, output: Path, encoder: str) -> None:
        """As `check`, for a run that was stopped by a signal: a segment begins there, so that packets differ,
        and with them a lossy video's samples.
        """
        made, parts = Content.of(output), 3 if encoder == "lossless" else 2
        shown, expected = (
            [frame[:parts] for frame in each.frames] for each in (made, self.content)
        )
        made.packets[0] = self.content.packets[0]
        assert shown == expected and made.packets == self.content.packets


@pytest.fixture(scope="module")
def undisturbed(film: Path, commands: Commands) -> dict[str, Undisturbed]:
    return {name: undisturbed_run(commands, film, name) for name in ENCODERS}


def undisturbed_run(commands: Commands, source: Path, encoder: str) -> Undisturbed:
    output = source.with_name(f"{encoder}.mkv")
    command = commands.start(
        "denoise", source, "-o", output, *OPTIONS, *ENCODERS[encoder], **SLOW
    )
    began, joined = reached(command, "run"), reached(command, "join")
    assert command.wait() == 0
    return Undisturbed(
        output, Content.of(output), time.monotonic() - began, joined - began
    )


def reached(command: Command, name: str) -> float:
    """Wait until a command begins with something, and return when that was."""
    wait_for(lambda: f"begins: {name}" in command.said or command.is_done())
    return time.monotonic()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Killed


@BOTH
def test_a_run_killed_at_any_moment_resumes_to_the_video_of_an_undisturbed_one(
    commands, film, undisturbed, tmp_path, encoder
):
    whole, joining = undisturbed[encoder], 0
    for number in range(MOMENTS):
        output = tmp_path / f"{number}.mkv"
        moment = (number + 0.5) / MOMENTS * whole.seconds
        line = (film, "-o", output, *OPTIONS, *ENCODERS[encoder])
        joining += kill_at(commands, whole, moment, *line) == "join"
        assert not output.exists() or Content.of(output) == whole.content, (
            "what has its name is whole"
        )
        if not output.exists() or work_of(output).exists():
            code, said = commands.run("denoise", *line)
            assert code == 0, said
        whole.check(output)
        assert left(tmp_path) == [output.name]
        output.unlink()
    assert joining >= 10


def test_film_in_fields_whose_run_is_killed_has_its_24_frames_of_30(commands, tmp_path):
    source, pictures = tmp_path / "source" / "film.mkv", moments(120)
    source.parent.mkdir()
    write_frames(source, telecined(pictures), sound=True)
    whole = undisturbed_run(commands, source, "lossless")
    with VideoReader(str(whole.path)) as reader:
        shown = [frame.planes[0] for frame in reader.frames()]
    assert all(np.array_equal(*pair) for pair in zip(shown, pictures, strict=True))
    for number in range(8):
        output, moment = tmp_path / f"{number}.mkv", (number + 0.5) / 8 * whole.seconds
        kill_at(
            commands,
            whole,
            moment,
            source,
            "-o",
            output,
            *OPTIONS,
            *ENCODERS["lossless"],
        )
        if not output.exists() or work_of(output).exists():
            assert (
                commands.run(
                    "denoise", source, "-o", output, *OPTIONS, *ENCODERS["lossless"]
                )[0]
                == 0
            )
        whole.check(output)


def kill_at(
    commands: Commands, whole: Undisturbed, moment: float, *arguments: object
) -> str:
    """Kill a run so many seconds into its work, by its own pace, and return what it did then."""
    for _ in range(5):
        command = commands.start("denoise", *arguments, **SLOW)
        began = reached(command, "run")
        if moment >= whole.join:
            began = reached(command, "join") - whole.join
        time.sleep(max(0.0, began + moment - time.monotonic()))
        if not command.is_done():
            command.kill()
            return "join" if "begins: join" in command.said else "run"
        Path(str(arguments[2])).unlink()  # it was quicker than the one before
        moment -= 0.05
    raise AssertionError("it was always done too early")


@BOTH
def test_a_run_killed_again_and_again_gets_there(
    commands, film, undisturbed, tmp_path, encoder
):
    output, kills = tmp_path / "out.mkv", 0
    while kills < 30:
        command = commands.start(
            "denoise", film, "-o", output, *OPTIONS, *ENCODERS[encoder], **SLOW
        )
        reached(command, "run")
        time.sleep(0.15)
        if command.is_done():
            break
        command.kill()
        kills += 1
    if not output.exists() or work_of(output).exists():
        assert (
            commands.run("denoise", film, "-o", output, *OPTIONS, *ENCODERS[encoder])[0]
            == 0
        )
    undisturbed[encoder].check(output)
    assert left(tmp_path) == ["out.mkv"]


@BOTH
@pytest.mark.parametrize("number", STOPS)
def test_a_run_that_was_stopped_resumes(
    commands, film, undisturbed, tmp_path, encoder, number
):
    output = tmp_path / "out.mkv"
    for count in (1, 3):
        command = commands.start(
            "denoise", film, "-o", output, *OPTIONS, *ENCODERS[encoder], slow_clip=0.15
        )
        command.until(lambda count=count: len(segments(output)) >= count).send(number)
        assert (
            command.wait() == 130
            and "the same command resumes from there" in command.said
        )
    assert (
        commands.run("denoise", film, "-o", output, *OPTIONS, *ENCODERS[encoder])[0]
        == 0
    )
    undisturbed[encoder].check_stopped(output, encoder)


@BOTH
def test_a_run_killed_again_and_again_while_it_plans_gets_there(
    commands, film, undisturbed, tmp_path, encoder
):
    output, line = (
        tmp_path / "out.mkv",
        (film, "-o", tmp_path / "out.mkv", *OPTIONS, *ENCODERS[encoder]),
    )
    for count in (1, 2, 3):
        command = commands.start("denoise", *line, slow_plan=0.25)
        command.until(lambda count=count: len(segments(output)) >= count).kill()
        assert not (work_of(output) / "plan.json").exists()
    code, said = commands.run("denoise", *line)
    assert code == 0, said
    undisturbed[encoder].check(output)
    assert left(tmp_path) == ["out.mkv"]


@BOTH
def test_a_run_that_was_stopped_while_it_planned_resumes(
    commands, film, undisturbed, tmp_path, encoder
):
    output, line = (
        tmp_path / "out.mkv",
        (film, "-o", tmp_path / "out.mkv", *OPTIONS, *ENCODERS[encoder]),
    )
    command = commands.start("denoise", *line, slow_plan=0.25)
    command.until(lambda: segments(output)).send(STOPS[0])
    assert (
        command.wait() == 130 and "the same command resumes from there" in command.said
    )
    assert commands.run("denoise", *line)[0] == 0
    undisturbed[encoder].check_stopped(output, encoder)


# Disks


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


def plain(commands: Commands, source: Path, output: Path, encoder: str) -> Undisturbed:
    assert (
        commands.run("denoise", source, "-o", output, *OPTIONS, *ENCODERS[encoder])[0]
        == 0
    )
    return Undisturbed(output, Content.of(output), 0, 0)


@BOTH
@pytest.mark.parametrize("share", [0.6, 1.3, 1.8])
def test_a_disk_that_gets_full_leaves_work_to_go_on_with(
    commands, noise, small_disk, tmp_path, encoder, share
):
    whole = plain(commands, noise, tmp_path / "whole.mkv", encoder)
    output, filler, free = (
        small_disk / "out.mkv",
        small_disk / "filler",
        os.statvfs(small_disk),
    )
    filler.write_bytes(
        bytes(int(free.f_bavail * free.f_frsize - share * whole.path.stat().st_size))
    )
    code, said = commands.run(
        "denoise", noise, "-o", output, *OPTIONS, *ENCODERS[encoder]
    )
    assert (
        code == 1
        and "no space left" in said
        and "the same command resumes from there" in said
    ), said
    assert not output.exists() and segments(output) and not list(small_disk.glob(".*"))
    filler.unlink()
    code, said = commands.run(
        "denoise", noise, "-o", output, *OPTIONS, *ENCODERS[encoder]
    )
    assert code == 0 and "of them by other runs" in said, said
    whole.check(output)


@BOTH
def test_a_target_that_cannot_be_written_is_an_error_and_its_segments_stay(
    commands, noise, small_disk, tmp_path, encoder
):
    whole, output = (
        plain(commands, noise, tmp_path / "whole.mkv", encoder),
        small_disk / "out.mkv",
    )
    command = ("denoise", noise, "-o", output, *OPTIONS, *ENCODERS[encoder])
    for begun in (False, True):
        if begun:
            commands.start(*command, slow_clip=0.1).until(
                lambda: segments(output)
            ).kill()
        before = left(small_disk)
        with read_only(small_disk):
            code, said = commands.run(*command)
        assert code == 1 and str(small_disk) in said and "Traceback" not in said, said
        assert left(small_disk) == before
    assert commands.run(*command)[0] == 0
    whole.check(output)


# Memory


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@BOTH
@pytest.mark.parametrize("room", [16, 40, 64, 100])
def test_too_little_memory_is_one_line_and_the_next_run_resumes(
    commands, noise, tmp_path, encoder, room
):
    whole, output = (
        plain(commands, noise, tmp_path / "whole.mkv", encoder),
        tmp_path / "out.mkv",
    )
    command = ("denoise", noise, "-o", output, *OPTIONS, *ENCODERS[encoder])
    code, said = commands.run(*command, memory=room << 20)
    assert code in (0, 1) and "Traceback" not in said, said
    assert code == 0 or not output.exists()
    assert commands.run(*command)[0] == 0
    whole.check(output)


# Others


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to give files away"
)
@BOTH
@pytest.mark.parametrize("kind", ["link", "dangling link", "file", "work folder"])
def test_what_another_user_has_planted_is_left_alone(
    commands, noise, tmp_path, encoder, kind
):
    output, victim = tmp_path / "out.mkv", tmp_path / "victim"
    victim.write_text("precious")
    partial = Partial(output)
    partial.discard()
    planted = partial.path if kind != "work folder" else work_of(output)
    if kind == "work folder":
        planted.mkdir()
        (planted / "job.lock").symlink_to(victim)
    elif kind == "file":
        planted.write_text("theirs")
    else:
        planted.symlink_to(victim if kind == "link" else tmp_path / "nowhere")
    os.chown(planted, 12345, 12345, follow_symlinks=False)
    before = sorted((path.name, os.lstat(path)[:9]) for path in (planted, victim))
    code, said = commands.run(
        "denoise", noise, "-o", output, *OPTIONS, *ENCODERS[encoder]
    )
    assert code == (kind == "work folder") and "Traceback" not in said, said
    after = sorted((path.name, os.lstat(path)[:9]) for path in (planted, victim))
    assert (
        before == after
        and victim.read_text() == "precious"
        and not (tmp_path / "nowhere").exists()
    )


@BOTH
def test_a_source_that_changed_between_runs_is_refused(
    commands, film, noise, tmp_path, encoder
):
    source, output = tmp_path / "film.mkv", tmp_path / "out.mkv"
    command = ("denoise", source, "-o", output, *OPTIONS, *ENCODERS[encoder])
    source.write_bytes(film.read_bytes())
    commands.start(*command, slow_clip=0.1).until(lambda: segments(output)).kill()
    source.write_bytes(noise.read_bytes())
    code, said = commands.run(*command)
    assert (
        code == 1
        and "source.size was" in said
        and "--restart" in said
        and not output.exists()
    )
    assert commands.run(*command, "--restart")[0] == 0
    plain(commands, noise, tmp_path / "whole.mkv", encoder).check(output)


@BOTH
def test_of_two_processes_at_one_job_the_second_is_refused(
    commands, film, undisturbed, tmp_path, encoder
):
    output = tmp_path / "out.mkv"
    command = ("denoise", film, "-o", output, *OPTIONS, *ENCODERS[encoder])
    first = commands.start(*command, slow_clip=0.4)
    reached(first, "run")
    for _ in range(3):
        code, said = commands.run(*command)
        assert code == 1 and "another process works on this already" in said
    assert first.wait() == 0
    undisturbed[encoder].check(output)


@BOTH
def test_the_part_of_a_shard_on_a_lost_machine_is_made_by_the_same_command(
    commands, film, undisturbed, tmp_path, encoder
):
    output, whole = tmp_path / "out.mkv", undisturbed[encoder]
    command = ("denoise", film, "-o", output, *OPTIONS, *ENCODERS[encoder])
    lost, other = (
        commands.start(*command, "--shard", f"{n}/2", slow_clip=0.2) for n in (1, 2)
    )
    lost.until(
        lambda: any(name.startswith("00000000") for name in segments(output))
    ).kill()
    assert other.wait() == 0 and not output.exists(), other.said
    assert commands.run(*command, "--shard", "1/2")[0] == 0
    whole.check(output)
    assert left(tmp_path) == ["out.mkv"]


@BOTH
def test_two_shards_make_the_video_of_one_process(
    commands, film, undisturbed, tmp_path, encoder
):
    output = tmp_path / "out.mkv"
    command = ("denoise", film, "-o", output, "--json", *OPTIONS, *ENCODERS[encoder])
    started = [commands.start(*command, "--shard", f"{n}/2", **SLOW) for n in (1, 2)]
    assert [each.wait() for each in started] == [0, 0], (
        started[0].said + started[1].said
    )
    assert output.read_bytes() == undisturbed[encoder].path.read_bytes()
