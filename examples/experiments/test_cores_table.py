"""The smallest form of the table of cores."""

import sys

import cores_table
import pytest


def test_a_row_compares_one_worker_with_all_and_a_busy_machine(monkeypatch, capsys):
    monkeypatch.setattr(
        sys,
        "argv",
        ["cores_table.py", "dehaze", "--small", "--repeat", "1", "--busy", "1"],
    )
    monkeypatch.setattr(
        cores_table, "cost_of", lambda work, source, threads: cost(work.frames, threads)
    )
    cores_table.main()
    _, _, row = capsys.readouterr().out.splitlines()
    assert row.split(" | ")[1:7] == ["7.00", "4.00", "1.75", "7.00", "8.00", "1.14"]


def cost(frames: int, threads: int) -> cores_table.Cost:
    """8 frames take 7 seconds with one worker and 4 with several, besides a start of 2."""
    if frames == 1:
        return cores_table.Cost(2.0, 2.0)
    return cores_table.Cost(9.0, 9.0) if threads == 1 else cores_table.Cost(6.0, 10.0)


def test_a_command_restores_a_drawn_source(tmp_path):
    work = cores_table.WORKS["photograph 2 MP"]._replace(width=64, height=48)
    cost = cores_table.cost_of(work, cores_table.write_source(work, tmp_path), 1)
    assert (tmp_path / "out.jpg").stat().st_size > 0
    assert cost.cpu > 0


def test_a_command_restores_several_drawn_sources(tmp_path):
    work = cores_table.WORKS["photographs"]._replace(width=64, height=48, files=2)
    cores_table.cost_of(work, cores_table.write_source(work, tmp_path), 1)
    assert len(list((tmp_path / "results").iterdir())) == 2


def test_an_unknown_work_is_an_error_that_names_those_there_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cores_table.py", "photo"])
    with pytest.raises(SystemExit):
        cores_table.main()
    assert "there are: photograph 2 MP" in capsys.readouterr().err


def test_what_eight_cores_could_work_on_is_counted_and_less_has_a_reason(
    monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["cores_table.py", "--parts", "8"])
    cores_table.main()
    _, _, *rows = capsys.readouterr().out.splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows]
    at_work = {task: (int(count), *reason) for task, _, _, _, count, *reason in cells}
    assert at_work["denoise"] == (8,) and at_work["dehaze"] == (8,)
    assert 1 < at_work["deblur"][0] < 8 and at_work["deblur"][1].startswith(
        "a frame takes "
    )
