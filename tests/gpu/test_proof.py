"""The proof kit: every check of `bench --report` on a real GPU, and on itself."""

import pytest
import torch
from command_line import run

from vidrestore.errors import OptionError
from vidrestore.jobs import proof
from vidrestore.jobs.proof import Check, Line

SIZE, FRAMES = (64, 48), 3


def named(device: str, *wanted: str) -> list[Check]:
    return [check for check in proof.checks(device, SIZE, FRAMES) if check.name.startswith(wanted)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("number", range(len(proof.checks("cpu", SIZE, FRAMES))))
def test_a_gpu_passes_each_check(number):
    line = proof.checks("cuda", (320, 180), 24)[number].run()
    assert line.verdict != "FAIL", str(line)


def test_a_cpu_passes_on_itself(tmp_path, monkeypatch):
    some = named("cpu", "device", "dust-cs20", "patches", "dust-denoise, 64x48", "libx264")
    monkeypatch.setattr(proof, "checks", lambda *asked: some)
    assert run("bench", "--device", "cpu", "--report", tmp_path / "report.txt") == 0
    lines = (tmp_path / "report.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["NOTE", "PASS", "PASS", "PASS", "PASS", "PASS", "PASS"]
    assert lines[-1] == "PASS  all: all 5 checks passed"


def test_a_check_that_breaks_is_a_line_and_the_others_are_still_tried(tmp_path, monkeypatch, capsys):
    def broken() -> tuple[bool, str]:
        raise torch.OutOfMemoryError("CUDA out of memory\nand so on")

    tried = [Check("one", broken), Check("two", lambda: (False, "no")), Check("three", lambda: (True, "yes"))]
    monkeypatch.setattr(proof, "checks", lambda *asked: tried)
    assert run("bench", "--device", "cpu", "--report", tmp_path / "report.txt") == 1
    assert (tmp_path / "report.txt").read_text() == (
        "FAIL  one: OutOfMemoryError: CUDA out of memory\nFAIL  two: no\nPASS  three: yes\n"
        "FAIL  all: 2 of 3 checks failed\n"
    )
    assert "2 of 3" in capsys.readouterr().out


def test_a_device_that_is_not_there_has_no_report(tmp_path):
    with pytest.raises(OptionError, match="cuda:7"):
        list(proof.prove(str(tmp_path / "report.txt"), "cuda:7", SIZE, FRAMES))
    assert not list(tmp_path.iterdir())


def test_a_wrong_result_fails(monkeypatch):
    (check,) = named("cpu", "dust-cs20, fp32")
    assert check.run().verdict == "PASS"
    whole = proof._recovered
    monkeypatch.setattr(
        proof, "_recovered", lambda *asked: whole(*asked) + len(calls.append(1) or calls) / 1e3
    )
    calls: list[int] = []
    assert check.run() == Line("FAIL", check.name, "largest difference 1.0e-03, 1e-04 allowed")
