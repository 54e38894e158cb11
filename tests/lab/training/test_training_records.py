"""What a run leaves behind: a line per step, a picture, and what is shown while it runs."""

import csv
import json
import math
import re
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from training_runs import tiny_run

from vidrestore.cli.progress import progress_bar
from vidrestore.errors import CheckpointError, OptionError
from vidrestore.lab.commands.train_commands import describe, steps_of
from vidrestore.lab.training.learner import Validations, learning_rate
from vidrestore.lab.training.loop import train
from vidrestore.lab.training.run_records import (
    POINTS,
    CsvLog,
    StepLog,
    metrics_table,
    recording,
    thinned,
    training_plot,
)
from vidrestore.lab.training_events import (
    Began,
    Event,
    Noticed,
    Reached,
    Stepped,
    Validated,
)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def stepped(step: int, loss: float = 1.0) -> Stepped:
    return Stepped(step, 100, loss, 1e-3, 2.0, 0.5 * step)


def begun(path: Path, step: int) -> StepLog:
    log = StepLog(path)
    log(Began(step, 100, "cpu", None))
    return log


# The log


def test_a_run_leaves_a_line_per_step(trained):
    written = lines(trained.folder / "tiny.log.jsonl")
    assert [line["step"] for line in written] == list(range(1, 13))
    assert all(
        set(line) == {"step", "loss", "learning_rate", "gradient_norm", "seconds"}
        for line in written
    )
    assert [line["learning_rate"] for line in written] == [
        learning_rate(step, trained.config.training) for step in range(12)
    ]
    assert all(line["loss"] > 0 and line["gradient_norm"] > 0 for line in written)
    assert [line["seconds"] for line in written] == sorted(
        line["seconds"] for line in written
    )


def test_a_resumed_run_cuts_records_beyond_its_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    log = begun(path, 0)
    for step in range(1, 8):
        log(stepped(step))
    log.close()
    with path.open("a") as stream:
        stream.write('{"step": 8, "lo')  # killed in the middle of a line
    resumed = begun(path, 5)
    assert list(resumed.steps) == [1, 2, 3, 4, 5]
    resumed(stepped(6, math.inf))
    resumed.close()
    assert [(line["step"], line["loss"]) for line in lines(path)] == [
        *((step, 1.0) for step in range(1, 6)),
        (6, None),
    ]
    begun(path, 0).close()
    assert not path.exists()


@pytest.mark.parametrize(
    "rubbish",
    [
        *("\0\0\0\n", "{}\n", "3\n", "{broken\n", "[" * 60_000 + "\n", '"step loss"\n'),
        *('{"step": "x", "loss": 1}\n', '{"step": 1, "loss": {}}\n'),
    ],
)
def test_lines_that_are_none_of_ours_end_the_log(tmp_path, rubbish):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"step": 1, "loss": 2.0}\n' + rubbish + '{"step": 2, "loss": 2.0}\n'
    )
    log = begun(path, 9)
    log.close()
    assert (list(log.steps), list(log.losses), len(path.read_text().splitlines())) == (
        [1],
        [2.0],
        1,
    )


@pytest.mark.parametrize(
    "content", ["mine\n", '{"step": 1, "train_loss": 2}\n', "mine"]
)
@pytest.mark.parametrize(
    "suffix", [".log.jsonl", ".log.csv", ".validations.csv", ".svg"]
)
def test_a_file_of_another_program_is_not_replaced_by_a_record(
    tmp_path, suffix, content
):
    run = tiny_run(tmp_path)
    path = tmp_path / "runs" / f"tiny{suffix}"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(CheckpointError, match=rf"tiny\{suffix}: isn't a record"):
        train(run, path.parent, device="cpu")
    assert path.read_text() == content
    assert [entry.name for entry in path.parent.iterdir() if entry != path] == []


@pytest.mark.parametrize("log", [StepLog, CsvLog])
def test_a_log_that_was_cut_anywhere_is_one_still(tmp_path, log):
    path = tmp_path / "log"
    whole = log.heading + log(path).line(vars(stepped(1)))
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        begun_again = log(path)
        begun_again(Began(0, 100, "cpu", None))
        begun_again.close()
        assert not path.exists()


def test_the_table_of_validations_has_the_metrics_of_the_curve(trained):
    text = (trained.folder / "tiny.validations.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["step"] for row in rows] == ["5", "10", "12"]
    drawn = (trained.folder / "tiny.svg").read_text()
    for name in set(rows[0]) - {"step"}:
        assert f">{name.removeprefix('psnr ')}</tspan>" in drawn
        assert all(5 < float(row[name]) < 60 for row in rows)
    assert metrics_table([{"step": 3, "psnr": {"a,b": 30.5, "c": math.nan}}]) == (
        'step,"psnr a,b",psnr c\n3,30.5,\n'
    )


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs a device that is always full"
)
def test_a_log_that_can_not_be_written_is_named(tmp_path):
    log = begun(tmp_path / "log.jsonl", 0)
    log.close()
    message = "log.jsonl: can't be written .No space left on device.; free some space"
    with Path("/dev/full").open("wb", buffering=0) as full:
        log._stream = full
        with pytest.raises(CheckpointError, match=message):
            log(stepped(1))
    with pytest.raises(CheckpointError, match="can't be written"):
        begun(tmp_path, 0)


def test_the_table_has_the_values_of_the_log_and_is_cut_like_it(trained, tmp_path):
    table = list(
        csv.DictReader((trained.folder / "tiny.log.csv").read_text().splitlines())
    )
    log = lines(trained.folder / "tiny.log.jsonl")
    assert [{name: float(cell) for name, cell in row.items()} for row in table] == log
    path = tmp_path / "log.csv"
    for first, last in ((0, 4), (2, 3)):  # the second run resumes after step 2
        part = CsvLog(path)
        part(Began(first, 100, "cpu", None))
        for step in range(first + 1, last + 1):
            part(stepped(step, math.nan if step == 1 else float(step)))
        part.close()
        with path.open("a") as stream:
            stream.write("4,0.2")  # killed in the middle of a line
    rows = list(csv.DictReader(path.read_text().splitlines()[:4]))
    assert [(row["step"], row["loss"]) for row in rows] == [
        ("1", ""),
        ("2", "2.0"),
        ("3", "3.0"),
    ]
    assert path.read_text().endswith("\n4,0.2")


def test_tensorboard_that_is_not_installed_is_an_error_that_names_the_package(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(OptionError, match=r'pip install "vidrestore\[tensorboard\]"'):
        train(tiny_run(tmp_path), tmp_path / "runs", device="cpu", tensorboard=True)


def test_a_missing_package_is_found_before_a_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(OptionError, match="tensorboard"):
        train(tiny_run(tmp_path), tmp_path / "runs", device="cpu", tensorboard=True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs tensorboard")
def test_tensorboard_gets_every_step_and_validation(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tiny_run(tmp_path), tmp_path / "runs", device="cpu", tensorboard=True)
    events = EventAccumulator(str(tmp_path / "runs" / "tiny.tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("training/loss")] == list(
        range(1, 13)
    )
    assert [event.step for event in events.Scalars("held out/PSNR 20.0")] == [5, 10, 12]


# The picture


def test_the_picture_shows_loss_and_figures_of_all_steps(trained):
    root = ElementTree.parse(trained.folder / "tiny.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    loss, held_out = root.iter(f"{space}polyline")
    losses = [line["loss"] for line in lines(trained.folder / "tiny.log.jsonl")]
    assert [
        float(value) for value in loss.attrib["data-values"].split()
    ] == pytest.approx([math.log10(value) for value in losses], abs=1e-3)
    assert (
        held_out.attrib["data-name"],
        len(held_out.attrib["data-values"].split()),
    ) == ("20", 3)
    first, *_, last = held_out.attrib["points"].split()
    assert float(last.split(",")[0]) == max(
        float(point.split(",")[0]) for point in loss.attrib["points"].split()
    )
    assert float(first.split(",")[0]) < float(last.split(",")[0])
    assert not list(trained.folder.glob("*.partial"))


def test_a_long_loss_is_thinned_to_means():
    places, means = thinned(range(1, 10 * POINTS + 1), [1.0, 3.0] * (5 * POINTS))
    assert len(places) == POINTS and set(means) == {round(math.log10(2), 4)}
    assert (places[0], places[-1]) == (5.5, 10 * POINTS - 4.5)
    assert thinned([1, 2], [math.nan, 0.0]) == ([], [])


def test_a_picture_needs_neither_a_loss_nor_finite_figures():
    for psnr in (30.0, math.inf):
        root = ElementTree.fromstring(
            training_plot("a & b", [], [], [{"step": 5, "psnr": {"x<4": psnr}}])
        )
        assert "a & b" in "".join(root.itertext())


def test_a_run_that_fails_before_its_first_step_leaves_no_log(tmp_path):
    begun(tmp_path / "log.jsonl", 0).close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "last, step, gap",
    [(0, 0, None), (5, 5, None), (9, 5, None), (0, 5, "1 to 5"), (3, 5, "4 to 5")],
)
def test_a_resumed_run_names_the_steps_that_its_log_lacks(tmp_path, last, step, gap):
    log = begun(tmp_path / "tiny.log.jsonl", 0)
    for number in range(1, last + 1):
        log(stepped(number))
    log.close()
    events: list[Event] = []
    with recording(tmp_path / "tiny", Mock(spec=Validations), events.append) as emit:
        emit(Began(step, 100, "cpu", None))
    notices = [event.message for event in events if isinstance(event, Noticed)]
    assert len(notices) == (gap is not None)
    assert all(f"tiny.log.jsonl: lacks steps {gap}: it was" in line for line in notices)


# What is shown


def test_a_terminal_shows_a_bar_and_a_line_per_validation(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar() as bar:
        listener = steps_of(bar)
        listener(Reached("load"))
        listener(Began(3, 10, "cpu", Path("runs/tiny.checkpoint")))
        listener(Reached("batches"))
        bar.progress.refresh()
        for step in (4, 5):
            listener(Stepped(step, 10, 0.25, 1e-3, 1.0, 2.0))
        listener(Validated(5, 2.0, 0.25, {20.0: 31.5}, best=True))
        bar.progress.refresh()
    shown = re.sub("\x1b\\[[^a-zA-Z]*[a-zA-Z]", "", capsys.readouterr().err)
    assert (
        "loading" in shown
        and "step 3 of 10, on cpu, from runs/tiny.checkpoint" in shown
    )
    assert "making the first batches" in shown
    assert "5/10, loss 0.2500, rate 0.001, 2.0 s left" in shown
    assert (
        "step 5  2 s  loss 0.2500  held out  sigma 20: 31.50 dB  best so far" in shown
    )


def test_only_data_that_are_held_out_are_called_so(tmp_path):
    events: list[Event] = []
    train(
        tiny_run(tmp_path, {"data": {"validation": []}}),
        tmp_path / "runs",
        device="cpu",
        on_event=events.append,
    )
    (first, *_) = (describe(event) for event in events if isinstance(event, Validated))
    assert (
        first is not None
        and "training data  sigma" in first
        and "held out" not in first
    )
