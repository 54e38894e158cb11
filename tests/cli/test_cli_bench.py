"""`vidrestore bench`: figures that fit together, not figures of a certain height."""

import json
import os
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
from command_line import run as command

from vidrestore.cli.bench_commands import default_sigma
from vidrestore.errors import OptionError
from vidrestore.jobs import bench as benchmarks
from vidrestore.jobs.bench import Benchmark, Rate, Timing, network_rate
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.restorers.base import Sample
from vidrestore.restorers.denoise import DenoiseRestorer


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "PEAK_SIZE", 64)


run = partial(command, "bench", "--task", "<identity>", "--size", "64x48", "--frames", "25")


def test_every_stage_and_every_number_format_is_measured(capsys):
    assert run("--json", "--threads", "1000") == 0
    found = json.loads(capsys.readouterr().out)
    assert [stage["name"] for stage in found["stages"]] == ["decode", "plan", "model", "encode"]
    assert all(stage["cpu"] > 0 and stage["seconds"] > 0 for stage in found["stages"])
    assert {"fp32", "bf16"} == set(found["peaks"])
    assert found["cores"] <= os.cpu_count()
    assert found["bound"] == pytest.approx(found["cores"] / sum(stage["cpu"] for stage in found["stages"]))


def test_the_noise_is_that_of_the_video_unless_the_weights_take_none(tmp_path):
    for model in (None, "dust-denoise"):
        assert default_sigma(model) == benchmarks.NOISE
    for model in ("mb-taylorformer-h-denoise", "mb-taylorformer-h-derain"):
        assert default_sigma(model) == "auto"


def test_a_person_reads_a_table(capsys):
    assert run("--threads", "1") == 0
    text = capsys.readouterr().out
    assert " on a synthetic video, 1 core; matrix products" in text
    assert "CPU ms/frame" in text and "of cores / sum of the stages" in text and "peak memory" in text


def test_more_frames_than_could_be_held_in_memory_are_refused(capsys):
    assert run("--frames", "9" * 400) == 2
    assert "less than or equal to 100000" in capsys.readouterr().err


def test_times_are_of_the_frames_that_a_video_has_where_it_is_shorter_than_asked_for(tmp_path, monkeypatch):
    benchmarks.write_video(str(tmp_path / "video.mkv"), 64, 48, 5)
    # a second from each look to the next
    clock = SimpleNamespace(process_time=count().__next__, perf_counter=count().__next__)
    monkeypatch.setattr(benchmarks, "time", clock)
    options = RestoreOptions(encoder=EncoderOptions(lossless=True))
    source = str(tmp_path / "video.mkv")
    found = benchmarks.bench(source, task="<identity>", options=options, size=(64, 48), frames=50)
    assert [(stage.cpu, stage.seconds) for stage in found.stages] == [(1 / 5, 1 / 5)] * 4


def test_the_share_is_of_what_all_cores_could_do_with_the_stages_work():
    stages = (Timing("decode", 0.010, 0.010), Timing("model", 0.030, 0.020))
    peaks, whole = {"fp32": 1e9, "bf16": 2e9}, Timing("whole", 0.045, 0.025)
    found = Benchmark("video", "dust", 2, peaks, stages, whole, Rate(1.5e9, "bf16"), None, 0.5)
    assert found.bound == pytest.approx(50)
    assert found.share == pytest.approx(0.8)
    assert found.network_share == pytest.approx(0.75)


def test_the_rate_of_the_network_alone_counts_every_call_once(monkeypatch):
    calls: list[int] = []
    clock = SimpleNamespace(perf_counter=count().__next__)  # a second from each look to the next
    monkeypatch.setattr(benchmarks, "time", clock)
    found = network_rate(Sample(lambda: calls.append(1), 6e6, "bf16"), 2)
    assert len(calls) == 2 * benchmarks.NETWORK_CALLS * benchmarks.PEAK_TRIES
    assert found == Rate(2 * benchmarks.NETWORK_CALLS * 6e6, "bf16")


def test_the_network_of_denoising_is_measured_alone():
    sample = DenoiseRestorer(RestoreOptions(device="cpu")).sample()
    sample.work()
    # V, D, P, D of every token; similarities and two mixes with 20 tokens
    macs = 4 * 256 * 1024 + 20 * (256 + 256 + 1024)
    assert sample.operations == 2 * macs * 32 * 20


def test_a_pipe_can_t_be_measured():
    with pytest.raises(OptionError, match="reads its video more than once: name a file instead of a pipe"):
        benchmarks.bench("-", task="denoise", options=RestoreOptions(), size=(64, 48), frames=2)
