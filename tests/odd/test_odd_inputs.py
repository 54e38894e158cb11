"""Odd and damaged inputs, each with its stated outcome: no traceback, no hang, no wrong success."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import odd_inputs
import pytest
from odd_case import Case, Outcome, kept, maybe_damaged, of_bytes
from odd_files import KINDS, box, clip, cut, flipped, places
from odd_inputs import CASES, empty, run, shown, verdict

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="needs fork, and names that Windows has not"
)

# containers that say nowhere how long they are
ENDLESS = {"ts", "mpeg2 ts", "mpg", "mpeg2"}
SWEPT = ("mp4", "mkv", "ts", "avi", "webm", "fragments")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The empty folder that commands work in."""
    work = tmp_path / "work"
    work.mkdir()
    with contextlib.chdir(work):
        yield work


def name(case: Case) -> str:
    return f"{case.group}: {case.what}".encode("ascii", "backslashreplace").decode()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.faults] * case.slow, id=name(case))
        for case in CASES
    ],
)
def test_every_odd_input_has_its_stated_result(case, folder, commands):
    got = run(case, folder, commands)
    assert verdict(case, got, folder) is None, got.said


@pytest.mark.parametrize(
    "outcome, wrong",
    [
        (kept(11), "12 frames, expected 11"),
        (kept(12, says="something"), "does not say"),
        (replace(kept(12), codes=(1,)), "exit code 0"),
        (Outcome((0,), None), "it leaves"),
    ],
)
def test_a_result_other_than_stated_is_seen(outcome, wrong, folder, commands):
    case = of_bytes("none", "a whole video", "video.mkv", lambda: clip("mkv"), outcome)
    assert wrong in str(verdict(case, run(case, folder, commands), folder))


def test_a_verdict_sees_other_pixels(folder, commands):
    case = of_bytes(
        "none",
        "lossy",
        "video.mkv",
        lambda: clip("mkv"),
        kept(12),
        arguments=("--crf", "40"),
    )
    got = run(case, folder, commands)
    assert (
        verdict(replace(case, arguments=("--lossless",)), got, folder)
        == "other samples"
    )


def damaged_clips() -> Iterator[tuple[str, bytes, bool]]:
    """(what, damaged bytes, whether exit code 0 still means all frames) at many places of containers."""
    for kind in SWEPT:
        data = clip(kind)
        for step in range(1, 30):
            yield f"{kind} cut at {step}/30", cut(data, step / 30), kind not in ENDLESS
        pictures = [at for place in places(data) for at in place]
        inside = range(pictures[0], pictures[-1])
        for seed in range(20):
            what = f"{kind} with a bit of its pictures flipped, {seed}"
            yield what, flipped(data, 1, inside, seed), True
    mp4, mkv = clip("mp4"), clip("mkv")
    for seed in range(40):
        index, head = box(mp4, "moov"), range(places(mkv)[0].start)
        yield (
            f"MP4 with 3 bits of its index flipped, {seed}",
            flipped(mp4, 3, index, seed),
            False,
        )
        yield (
            f"MKV with 3 bits of its head flipped, {seed}",
            flipped(mkv, 3, head, seed),
            False,
        )


@pytest.mark.faults
def test_damage_anywhere_is_found_or_changes_pictures_only(folder, commands):
    """Exit code 0 only if FFmpeg decodes the same frames; 4 with a file and a word; 1 without a file."""
    wrong = []
    for what, data, counted in damaged_clips():
        name = f"video{KINDS[what.split(' ')[0].lower()][0]}"
        case = of_bytes(
            "sweep", what, name, lambda data=data: data, maybe_damaged(12), apart=True
        )
        got = run(case, folder, commands)
        if problem := complaint(got, folder / case.name, counted):
            wrong.append(f"{what}: {problem}\n{got.said}")
        empty(folder)
    assert not wrong, "\n".join(wrong)


def complaint(got: odd_inputs.Got, source: Path, counted: bool) -> str | None:
    if "Traceback" in got.said or got.code not in (0, 1, 4):
        return f"ends with {got.code}"
    if (word := {0: "", 1: source.name, 4: "damaged"}[got.code]) not in got.said:
        return f"does not say {word}"
    if got.code == 1:
        return "leaves a file" if got.output else None
    if got.output is None:
        return "leaves no video"
    if got.code == 4:
        return None
    found, wanted = len(shown(got.output)), len(shown(source))
    return (
        f"{found} of {wanted} frames"
        if found != wanted or (counted and found != 12)
        else None
    )
