"""`vidrestore bench`: figures that fit together, not figures of a certain height."""

import json
import os
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
from command_line import run as command

from vidrestore.errors import OptionError
from vidrestore.jobs import bench as benchmarks
from vidrestore.jobs.bench import Benchmark, Timing
from vidrestore.settings.options import EncoderOptions, RestoreOptions

run = partial(
    command, "bench", "--task", "<identity>", "--size", "64x48", "--frames", "25"
)


def test_every_stage_is_measured(capsys):
    assert run("--json", "--threads", "1000") == 0
    found = json.loads(capsys.readouterr().out)
    assert [stage["name"] for stage in found["stages"]] == [
        "decode",
        "plan",
        "model",
        "encode",
    ]
    assert all(stage["cpu"] > 0 and stage["seconds"] > 0 for stage in found["stages"])
    assert found["cores"] <= os.cpu_count()
    assert found["bound"] == pytest.approx(
        found["cores"] / sum(stage["cpu"] for stage in found["stages"])
    )


def test_a_person_reads_a_table(capsys):
    assert run("--threads", "1") == 0
    text = capsys.readouterr().out
    assert " on a synthetic video, 1 core\n" in text
    assert (
        "CPU ms/frame" in text
        and "of cores / sum of the stages" in text
        and "peak memory" in text
    )


def test_more_frames_than_could_be_held_in_memory_are_refused(capsys):
    assert run("--frames", "9" * 400) == 2
    assert "less than or equal to 100000" in capsys.readouterr().err


def test_times_are_of_the_frames_that_a_video_has_where_it_is_shorter_than_asked_for(
    tmp_path, monkeypatch
):
    benchmarks.write_video(str(tmp_path / "video.mkv"), 64, 48, 5)
    # a second from each look to the next
    clock = SimpleNamespace(
        process_time=count().__next__, perf_counter=count().__next__
    )
    monkeypatch.setattr(benchmarks, "time", clock)
    options = RestoreOptions(encoder=EncoderOptions(lossless=True))
    source = str(tmp_path / "video.mkv")
    found = benchmarks.bench(
        source, task="<identity>", options=options, size=(64, 48), frames=50
    )
    assert [(stage.cpu, stage.seconds) for stage in found.stages] == [
        (1 / 5, 1 / 5)
    ] * 4


def test_the_share_is_of_what_all_cores_could_do_with_the_stages_work():
    stages = (Timing("decode", 0.010, 0.010), Timing("model", 0.030, 0.020))
    found = Benchmark(
        "video", "dust", 2, stages, Timing("whole", 0.045, 0.025), None, 0.5
    )
    assert found.bound == pytest.approx(50)
    assert found.share == pytest.approx(0.8)


def test_a_pipe_can_t_be_measured():
    with pytest.raises(
        OptionError,
        match="reads its video more than once: name a file instead of a pipe",
    ):
        benchmarks.bench(
            "-", task="denoise", options=RestoreOptions(), size=(64, 48), frames=2
        )
