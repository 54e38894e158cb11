"""Shards: real commands that share a folder and make the file that one would make, each frame once unless one
of them dies.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Command, Commands, segments, wait_for, work_of
from sample_videos import write_video
from written_videos import pictures

from vidrestore.errors import MediaError, OptionError, OutputExistsError
from vidrestore.files import locks
from vidrestore.files.stopping import STOPS
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Step
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.segmented import Segment, SegmentedWork
from vidrestore.jobs.summary import Summary
from vidrestore.media.reader import VideoReader
from vidrestore.media.source import Target
from vidrestore.options import RestoreOptions
from vidrestore.scale import shards as shards_module
from vidrestore.scale.multi_device import DeviceProcesses, HelperRunner
from vidrestore.scale.shards import Shard, ShardRunner

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")

OPTIONS = ("--threads", "1", "--quiet", "--json", "--lossless")
FRAMES = 300
JOINS = "slowly: put"  # what one says that joins segments


@pytest.fixture(scope="module")
def whole(film: Path, commands: Commands) -> bytes:
    output = film.with_name("whole.mkv")
    assert commands.run("denoise", film, "-o", output, *OPTIONS)[0] == 0
    return output.read_bytes()


def shards(
    commands: Commands, film: Path, output: Path, count: int, *, apart: bool = False, **more: Any
) -> list[Command]:
    """Start all shards, each on a machine of its own if `apart`."""
    return [
        commands.start(
            *("denoise", film, "-o", output, *OPTIONS, "--shard", f"{number}/{count}"),
            machine=f"machine {number}" if apart else None,
            **more,
        )
        for number in range(1, count + 1)
    ]


def as_shard(film: Path, output: Path, **options: Any) -> Batch:
    runner = ShardRunner(Shard(1, 2))
    return Batch([str(film)], str(output), [Step("<identity>", RestoreOptions(**options))], runner=runner)


def restored(batch: Batch, film: Path) -> Summary:
    return batch.restore(batch.request(str(film)))


def is_alone(output: Path, whole: bytes) -> bool:
    """The output is that of one process, and nothing is beside it."""
    return output.read_bytes() == whole and list(output.parent.iterdir()) == [output]


def ended(*started: Command) -> bool:
    """All are done, without an error."""
    for command in started:
        assert command.wait() == 0, command.said
    return True


def test_shards_make_the_file_of_one_process_and_no_frame_twice(commands, film, whole, tmp_path):
    output = tmp_path / "out.mkv"
    started = shards(commands, film, output, 3, slow_clip=0.05)
    assert ended(*started) and is_alone(output, whole)
    own = [command.own_frames for command in started]
    assert sum(own) == FRAMES and min(own) > 0


def test_a_single_shard_restores_everything_and_late_shards_find_it_finished(commands, film, whole, tmp_path):
    (alone,) = shards(commands, film, tmp_path / "out.mkv", 1)
    assert ended(alone) and alone.own_frames == FRAMES and (tmp_path / "out.mkv").read_bytes() == whole
    for command in shards(commands, film, tmp_path / "out.mkv", 2):
        assert ended(command) and command.own_frames == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]


MOMENTS: list[Callable[[Path], object]] = [
    lambda output: work_of(output).exists(),
    lambda output: len(segments(output)) >= 4,
]


@pytest.mark.parametrize("moment", MOMENTS, ids=["at the start", "in the midst"])
def test_the_segments_of_a_killed_shard_are_done_by_another(commands, film, whole, tmp_path, moment):
    output = tmp_path / "out.mkv"
    first, second = shards(commands, film, output, 2, slow_clip=0.05)
    first.until(lambda: moment(output)).kill()
    assert ended(second) and is_alone(output, whole)


def test_another_shard_joins_if_the_one_that_joins_is_killed(commands, film, whole, tmp_path):
    output = tmp_path / "out.mkv"
    started = shards(commands, film, output, 2, slow_join=0.003)
    wait_for(lambda: any(JOINS in command.said for command in started))
    joining = next(command for command in started if JOINS in command.said)
    joining.until(lambda: True).kill()
    assert ended(*(command for command in started if command is not joining)) and is_alone(output, whole)


def test_the_segments_of_a_shard_on_a_dead_machine_are_done_when_its_lease_is_over(
    commands, film, whole, tmp_path
):
    output = tmp_path / "out.mkv"
    first, second = shards(commands, film, output, 2, apart=True, slow_clip=0.05, lease=1)
    first.until(lambda: len(segments(output)) >= 4).send(signal.SIGSTOP)
    assert ended(second) and output.read_bytes() == whole
    first.send(signal.SIGCONT)  # it was only asleep, and finds that the work is done
    assert ended(first) and is_alone(output, whole)


@pytest.mark.parametrize("number", STOPS)
def test_a_shard_that_is_stopped_leaves_its_work_to_the_others_at_once(
    commands, film, whole, tmp_path, number
):
    output = tmp_path / "out.mkv"
    first, second = shards(commands, film, output, 2, apart=True, slow_clip=0.05)
    first.until(lambda: len(segments(output)) >= 2).send(number)
    assert first.wait() == 130 and "the same command resumes from there" in first.said
    assert ended(second) and pictures(output) == pictures(film.with_name("whole.mkv"))


def test_a_video_without_frames_is_an_error(tmp_path, film, monkeypatch):
    monkeypatch.setattr(VideoReader, "frames", lambda self, *span: (frame for frame in ()))
    batch = as_shard(film, tmp_path / "out.mkv")
    with pytest.raises(MediaError, match="no frame was written"):
        restored(batch, film)
    assert list(tmp_path.iterdir()) == []


def test_skip_existing_skips_an_existing_output(tmp_path, film):
    (tmp_path / "out.mkv").write_bytes(b"precious")
    assert restored(as_shard(film, tmp_path / "out.mkv", skip_existing=True), film).skipped
    with pytest.raises(OutputExistsError, match="already exists; add `overwrite`"):
        restored(as_shard(film, tmp_path / "out.mkv"), film)


def test_a_shard_that_slept_while_it_joined_leaves_the_output_as_it_is(commands, film, whole, tmp_path):
    output = tmp_path / "out.mkv"
    options = ("denoise", film, "-o", output, *OPTIONS)
    first = commands.start(*options, "--shard", "1/2", slow_join=0.005, machine="machine 1", lease=0.5)
    first.until(lambda: JOINS in first.said).send(signal.SIGSTOP)
    second = commands.start(*options, "--shard", "2/2", machine="machine 2", lease=0.5)
    assert ended(second) and output.read_bytes() == whole
    first.send(signal.SIGCONT)
    assert ended(first) and is_alone(output, whole)


def test_a_single_process_resumes_where_all_shards_died(commands, film, whole, tmp_path):
    output = tmp_path / "out.mkv"
    started = shards(commands, film, output, 2, slow_clip=0.05)
    started[0].until(lambda: len(segments(output)) >= 4)
    for command in started:
        command.kill()
    code, said = commands.run("denoise", film, "-o", output, *OPTIONS)
    assert code == 0, said
    assert is_alone(output, whole)


def test_a_single_process_and_shards_refuse_to_work_at_once(commands, film, tmp_path):
    output = tmp_path / "out.mkv"
    options, shard = ("denoise", film, "-o", output, *OPTIONS), ("--shard", "1/2")
    for first, late, claim in (((), shard, "alone*.claim"), (shard, (), "0*.claim")):
        working = commands.start(*options, *first, slow_clip=0.5)
        working.until(lambda claim=claim: list(work_of(output).glob(claim)))
        for machine in (None, "elsewhere"):
            code, said = commands.run(*options, *late, machine=machine)
            assert code == 1 and f"process {working.pid} on " in said and "works on this already" in said
        working.kill()


def test_shards_share_a_folder_of_videos(commands, tmp_path):
    films = tmp_path / "films"
    films.mkdir()
    for number in range(6):
        write_video(films / f"{number}.mkv", 30 + number)
    (films / "bad.mkv").write_bytes(b"no film")
    started = shards(commands, films, f"{tmp_path}/out/", 2, slow_clip=0.1)  # type: ignore[arg-type]
    assert [command.wait() for command in started] == [3, 3]
    own = [command.own_frames for command in started]
    assert sum(own) == sum(range(30, 36)) and min(own) > 30
    made = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert made == [f"{number}.denoised.mkv" for number in range(6)]


@pytest.mark.parametrize(
    "runner",
    [ShardRunner(Shard(1, 2)), HelperRunner(DeviceProcesses(["cpu", "cpu"]))],
    ids=["shard", "devices"],
)
def test_of_a_folder_with_a_name_clash_only_that_pair_fails(tmp_path, runner):
    sources = [tmp_path / name for name in ("one/a.mkv", "two/a.mkv", "b.mkv")]
    for source in sources:
        source.parent.mkdir(exist_ok=True)
        write_video(source, 3)
    batch = Batch(list(map(str, sources)), f"{tmp_path}/out/", [Step("<identity>")], runner=runner)
    for source in sources[:2]:
        with pytest.raises(OptionError, match=r"a\.mkv would become .*, too; restore them one at a time"):
            restored(batch, source)
    if isinstance(runner, ShardRunner):  # processes of their own don't know this task
        assert restored(batch, sources[2]).frames == 3


def test_frames_of_an_earlier_look_at_a_video_stay_a_shards_own(film, tmp_path):
    batch = as_shard(film, tmp_path / "out.mkv")
    assert restored(batch, film).reused == 0
    found = restored(batch, film)  # as where another shard joins what this one has restored
    assert (found.reused, found.before) == (0, False)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--shard", "1/2", "--overwrite"), "--overwrite would let a late shard start over"),
        (("--shard", "1/2", "--restart"), "--restart would discard what other shards are at"),
    ],
)
def test_what_shards_cannot_do_is_refused(commands, film, tmp_path, arguments, message):
    code, said = commands.run("denoise", film, "-o", tmp_path / "out.mkv", *arguments)
    assert code == 2 and message in " ".join(said.replace("│", " ").split())


def test_a_source_that_is_not_a_video_leaves_no_file(commands, tmp_path):
    (tmp_path / "film.mkv").write_bytes(b"no film")
    assert commands.run("denoise", tmp_path / "film.mkv", "--shard", "1/2")[0] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["film.mkv"]


def test_a_video_that_gets_its_name_while_a_shard_begins_is_done(film, tmp_path, monkeypatch):
    output = tmp_path / "out.mkv"

    def named_just_now(*files: Any, **options: Any) -> None:
        monkeypatch.setattr(Target, "check", check)
        restored(Batch([str(film)], str(output), [Step("<identity>")]), film)
        check(*files, **options)

    check = Target.check
    monkeypatch.setattr(Target, "check", named_just_now)
    assert restored(as_shard(film, output), film).before


def test_the_folder_of_a_machine_that_died_before_it_cleared_up_goes_when_its_lease_is_over(
    film, tmp_path, monkeypatch
):
    """It has joined, and was about to clear up."""
    owner = {"host": "elsewhere", "machine": "another", "pid": 7, "start": "1"}
    output, dead = tmp_path / "out.mkv", json.dumps(owner)
    work = tmp_path / "out.mkv.vidrestore"
    monkeypatch.setattr(locks, "LEASE", 0.2)
    monkeypatch.setattr(locks, "POLL", 0.02)

    def named_and_died(segments: SegmentedWork, began: float) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(WorkFolder, "remove", lambda folder: None)
            segments.join()
        (work / "join.1.claim").write_text(dead)
        (work / "alone.0.claim").write_text(dead)

    monkeypatch.setattr(shards_module, "join", named_and_died)
    assert restored(as_shard(film, output), film).frames == FRAMES
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]


# Who takes what


def test_runs_are_long_at_first_and_short_at_the_end():
    assert [Shard(1, 2).run_length(missing) for missing in (1000, 100, 40, 8, 1)] == [16, 13, 6, 2, 1]


def test_shards_begin_in_different_places_and_go_round():
    missing = [Segment(number, number, number + 1) for number in (0, 1, 4, 5, 6, 9)]
    assert [segment.number for segment in Shard(2, 2).ordered(missing, 10)] == [5, 6, 9, 0, 1, 4]
    assert [segment.number for segment in Shard(1, 2).ordered(missing, 10)] == [0, 1, 4, 5, 6, 9]
