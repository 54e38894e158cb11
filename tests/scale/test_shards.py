"""Shards: real commands that share a folder and make the file that one would make, each frame once."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command, Commands, segments, work_of
from sample_pictures import write_rgb
from sample_videos import write_video
from written_videos import pictures

from vidrestore.errors import MediaError, OptionError, OutputExistsError
from vidrestore.events import Summary
from vidrestore.files.stopping import STOPS
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Step
from vidrestore.jobs.segmented import SegmentedWork
from vidrestore.media.reading.reader import VideoReader
from vidrestore.scale.shards import Shard, divided
from vidrestore.scale.workers import DeviceWorkers, WorkerRunner
from vidrestore.settings.options import RestoreOptions

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")

OPTIONS = ("--threads", "1", "--quiet", "--json", "--lossless")
FRAMES = 300
JOINS = "slowly: put"  # what one says that joins segments


@pytest.fixture(scope="module")
def whole(film: Path, commands: Commands) -> bytes:
    output = film.with_name("whole.mkv")
    assert commands.run("denoise", film, "-o", output, *OPTIONS)[0] == 0
    return output.read_bytes()


def start(
    commands: Commands, film: Path, output: Path | str, shard: str, **more: Any
) -> Command:
    return commands.start(
        "denoise", film, "-o", output, *OPTIONS, "--shard", shard, **more
    )


def as_shard(
    film: Path, output: Path, number: int = 1, count: int = 2, **options: Any
) -> Batch:
    steps = [Step("<identity>", RestoreOptions(**options))]
    return Batch([str(film)], str(output), steps, runner=Shard(number, count))


def restored(batch: Batch, film: Path) -> Summary | None:
    return batch.restore(batch.request(str(film)))


def is_alone(output: Path, whole: bytes) -> bool:
    """The output is that of one process, and nothing is beside it."""
    return output.read_bytes() == whole and list(output.parent.iterdir()) == [output]


def ended(*started: Command) -> bool:
    """All are done, without an error."""
    for command in started:
        assert command.wait() == 0, command.said
    return True


def restored_frames(command: Command) -> int:
    """The frames that a command restored itself, by its progress."""
    events = [json.loads(line) for line in command.read("output").splitlines()]
    progress = [
        event
        for event in events
        if event["event"] == "progress" and event["stage"] == "restore"
    ]
    return sum({event["source"]: event["done"] for event in progress}.values())


def test_shards_make_the_file_of_one_process_and_no_frame_twice(
    commands, film, whole, tmp_path
):
    output = tmp_path / "out.mkv"
    started = [
        start(commands, film, output, f"{number}/3", slow_clip=0.05)
        for number in (1, 2, 3)
    ]
    assert ended(*started) and is_alone(output, whole)
    frames = [restored_frames(command) for command in started]
    assert sum(frames) == FRAMES and min(frames) > 60


def test_shards_that_run_one_after_the_other_name_the_parts_that_are_missing(
    commands, film, whole, tmp_path
):
    output = tmp_path / "out.mkv"
    for number, missing in ((2, "1/3, 3/3"), (2, "1/3, 3/3"), (3, "1/3"), (1, "")):
        command = start(commands, film, output, f"{number}/3")
        assert ended(command) and output.exists() == (not missing)
        assert (
            not missing
            or f"part {number}/3 is finished; missing: {missing};" in command.said
        )
    assert is_alone(output, whole)
    late = start(commands, film, output, "2/3")
    assert ended(late) and restored_frames(late) == 0 and is_alone(output, whole)


def test_the_part_of_a_killed_shard_is_missing_and_the_same_command_makes_it(
    commands, film, whole, tmp_path
):
    output = tmp_path / "out.mkv"
    killed, other = (
        start(commands, film, output, f"{number}/2", slow_clip=0.05)
        for number in (1, 2)
    )
    killed.until(lambda: any(name < "00000140" for name in segments(output))).kill()
    assert (
        ended(other)
        and "part 2/2 is finished; missing: 1/2;" in other.said
        and not output.exists()
    )
    again = start(commands, film, output, "1/2")
    assert (
        ended(again)
        and 0 < restored_frames(again) < FRAMES / 2
        and is_alone(output, whole)
    )


def test_a_shard_killed_as_it_plans_or_joins_leaves_that_to_the_next_one(
    commands, film, whole, tmp_path
):
    output = tmp_path / "out.mkv"
    start(commands, film, output, "1/2").until(lambda: work_of(output).exists()).kill()
    assert ended(start(commands, film, output, "1/2"))
    joining = start(commands, film, output, "2/2", slow_join=0.01)
    joining.until(lambda: JOINS in joining.said).kill()
    assert not output.exists()
    assert ended(start(commands, film, output, "1/2")) and is_alone(output, whole)


@pytest.mark.parametrize("number", STOPS)
def test_a_shard_that_is_stopped_keeps_its_frames(commands, film, tmp_path, number):
    output = tmp_path / "out.mkv"
    stopped, other = (
        start(commands, film, output, f"{each}/2", slow_clip=0.05) for each in (1, 2)
    )
    stopped.until(lambda: any(name < "00000140" for name in segments(output))).send(
        number
    )
    assert (
        stopped.wait() == 130 and "the same command resumes from there" in stopped.said
    )
    assert ended(other) and ended(start(commands, film, output, "1/2"))
    assert pictures(output) == pictures(film.with_name("whole.mkv"))


def test_a_single_process_resumes_where_all_shards_died(
    commands, film, whole, tmp_path
):
    output = tmp_path / "out.mkv"
    started = [
        start(commands, film, output, f"{number}/2", slow_clip=0.05)
        for number in (1, 2)
    ]
    started[0].until(lambda: len(segments(output)) >= 4)
    for command in started:
        command.kill()
    code, said = commands.run("denoise", film, "-o", output, *OPTIONS)
    assert code == 0, said
    assert is_alone(output, whole)


def test_a_single_process_refuses_to_work_beside_a_shard_and_so_does_the_same_shard(
    commands, film, whole, tmp_path
):
    output = tmp_path / "out.mkv"
    working = start(commands, film, output, "1/2", slow_clip=0.3)
    working.until(lambda: segments(output))
    for shard in ((), ("--shard", "1/2")):
        code, said = commands.run("denoise", film, "-o", output, *OPTIONS, *shard)
        assert code == 1 and "another process works on this already" in said
    working.kill()


def test_a_shard_waits_for_a_process_that_makes_the_whole_video(
    commands, film, whole, tmp_path
):
    output = tmp_path / "out.mkv"
    alone = commands.start("denoise", film, "-o", output, *OPTIONS, slow_clip=0.02)
    alone.until(lambda: segments(output))
    shard = start(commands, film, output, "1/2")
    assert (
        ended(alone, shard) and restored_frames(shard) == 0 and is_alone(output, whole)
    )


def test_shards_share_a_folder_of_videos(commands, tmp_path):
    films = tmp_path / "films"
    films.mkdir()
    for number in range(3):
        write_video(films / f"{number}.mkv", 80 + number)
    (films / "bad.mkv").write_bytes(b"no film")
    started = [
        start(commands, films, f"{tmp_path}/out/", f"{number}/2", slow_clip=0.1)
        for number in (1, 2)
    ]
    assert [command.wait() for command in started] == [3, 3]
    frames = [restored_frames(command) for command in started]
    assert sum(frames) == 80 + 81 + 82 and min(frames) > 0
    assert sorted(os.listdir(tmp_path / "out")) == [
        f"{number}.denoised.mkv" for number in range(3)
    ]


def test_shards_share_photographs_evenly_and_count_what_each_has_finished(
    commands, tmp_path
):
    photos, output = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    for number in range(10):
        write_rgb(photos / f"{number}.png", np.full((3, 32, 48), 20 * number, np.uint8))
    arguments = ("denoise", photos, "--photos", "-o", output, "--threads", "1")
    for number, count, finished, others in (
        (1, 3, 3, "7 left to other parts"),
        (2, 6, 3, "3 left alone, 4 left to other parts"),
        (2, 6, 0, "6 left alone, 4 left to other parts"),
        (3, 10, 4, "6 left alone"),
    ):
        command = commands.start(*arguments, "--shard", f"{number}/3")
        assert ended(command) and len(list(output.glob("*.png"))) == count
        line = command.read("output").splitlines()[-1]
        assert line.startswith(
            f"{finished} of 10 inputs finished here in "
        ) and line.endswith(f" s, {others}")
    assert len(list(output.iterdir())) == 10


def test_the_longer_parts_of_videos_are_those_of_all_shards_in_turn():
    """Each of 12 videos has one segment more than parts."""
    shard = Shard(1, 3)
    counts = [[len(part) for part in shard.parts(4, place)] for place in range(12)]
    assert [sum(count) for count in zip(*counts, strict=True)] == [16, 16, 16]


def test_a_video_without_frames_is_an_error(tmp_path, film, monkeypatch):
    monkeypatch.setattr(
        VideoReader, "frames", lambda self, *span: (frame for frame in ())
    )
    batch = as_shard(film, tmp_path / "out.mkv")
    with pytest.raises(MediaError, match="no frame was written"):
        restored(batch, film)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_is_not_a_video_leaves_no_file(commands, tmp_path):
    (tmp_path / "film.mkv").write_bytes(b"no film")
    assert commands.run("denoise", tmp_path / "film.mkv", "--shard", "1/2")[0] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["film.mkv"]


def test_a_shard_replaces_no_file_of_others(tmp_path, film):
    (tmp_path / "out.mkv").write_bytes(b"precious")
    with pytest.raises(OutputExistsError, match="already exists; add `overwrite`"):
        restored(as_shard(film, tmp_path / "out.mkv"), film)
    assert (tmp_path / "out.mkv").read_bytes() == b"precious"


def test_a_shard_whose_video_another_one_joins_meanwhile_finds_it_finished(
    film, tmp_path, monkeypatch
):
    output, restore = tmp_path / "out.mkv", SegmentedWork.restore
    assert restored(as_shard(film, output, 1), film) is None

    def joined_meanwhile(work: SegmentedWork, *given: Any) -> None:
        restore(work, *given)
        monkeypatch.setattr(SegmentedWork, "restore", restore)
        other = threading.Thread(
            target=lambda: restored(as_shard(film, output, 3, 3), film)
        )
        other.start()
        other.join()

    monkeypatch.setattr(SegmentedWork, "restore", joined_meanwhile)
    assert restored(as_shard(film, output, 2), film).before
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]


def test_a_shard_whose_video_shards_of_another_number_join_meanwhile_is_no_error(
    film, tmp_path, monkeypatch
):
    output, restore = tmp_path / "out.mkv", SegmentedWork.restore

    def joined_meanwhile(work: SegmentedWork, *given: Any) -> None:
        monkeypatch.setattr(SegmentedWork, "restore", restore)
        other = threading.Thread(
            target=lambda: restored(as_shard(film, output, 1, 1), film)
        )
        other.start()
        other.join()
        restore(work, *given)

    monkeypatch.setattr(SegmentedWork, "restore", joined_meanwhile)
    assert restored(as_shard(film, output, 2), film).before
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]


@pytest.mark.parametrize(
    "runner",
    [Shard(1, 2), WorkerRunner(DeviceWorkers(["cpu", "cpu"]))],
    ids=["shard", "devices"],
)
def test_of_a_folder_with_a_name_clash_only_that_pair_fails(tmp_path, runner):
    sources = [tmp_path / name for name in ("one/a.mkv", "two/a.mkv", "b.mkv")]
    for source in sources:
        source.parent.mkdir(exist_ok=True)
        write_video(source, 3)
    batch = Batch(
        list(map(str, sources)), f"{tmp_path}/out/", [Step("<identity>")], runner=runner
    )
    for source in sources[:2]:
        with pytest.raises(
            OptionError,
            match=r"a\.mkv would become .*, too; restore them one at a time",
        ):
            restored(batch, source)
    if isinstance(runner, Shard):  # processes of their own don't know this task
        assert restored(batch, sources[2]) is None


@pytest.mark.parametrize("name", ["overwrite", "restart"])
def test_what_shards_cannot_do_is_refused(commands, film, tmp_path, name):
    code, said = commands.run(
        "denoise", film, "-o", tmp_path / "out.mkv", "--shard", "1/2", f"--{name}"
    )
    words = " ".join(said.replace("│", " ").split())
    assert (
        code == 2 and f"--{name} would discard what other shards have finished" in words
    )


@pytest.mark.parametrize(
    "length, count, parts", [(7, 3, [[0, 1], [2, 3], [4, 5, 6]]), (1, 2, [[], [0]])]
)
def test_parts_are_equal_runs(length, count, parts):
    assert [list(part) for part in divided(range(length), count)] == parts
