"""Run twice over a folder: what was finished counts as done, and what is there for another reason is left alone and named."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sample_videos import write_video

import vidrestore
from vidrestore.errors import MediaError, OutputExistsError
from vidrestore.events import Event, Finished
from vidrestore.jobs import finished
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.finished import done_before
from vidrestore.jobs.job_identity import request_name
from vidrestore.jobs.work_folder import WorkFolder
from vidrestore.options import RestoreOptions

IDENTITY = "<identity>"


@pytest.fixture
def films(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    folder.mkdir()
    write_video(folder / "a.mkv", 6)
    write_video(folder / "b.mp4", 9, "libx264")
    return folder


def restore_all(folder: Path, **options: Any) -> list[Any]:
    """The summary of each film, or the message of its error."""
    batch = Batch([str(folder)], None, IDENTITY, RestoreOptions(**options))
    found: list[Any] = []
    for source in batch.sources:
        try:
            found.append(batch.restore(source))
        except OutputExistsError as error:
            found.append(str(error))
    return found


def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that keeps no attributes."""
    monkeypatch.setattr(finished, "ATTRIBUTE", "nowhere.at.all")


@pytest.mark.parametrize("marked", [True, False], ids=["by what its file says", "by a look at it"])
def test_a_film_of_a_folder_that_is_done_counts_as_done(films: Path, monkeypatch: pytest.MonkeyPatch, marked: bool) -> None:
    if not marked:
        unmarked(monkeypatch)
    assert [summary.before for summary in restore_all(films)] == [False, False]
    before = {path.name: path.read_bytes() for path in films.iterdir()}
    again = restore_all(films)
    assert [(summary.before, summary.exit_code) for summary in again] == [(True, 0), (True, 0)]
    if marked and hasattr(os, "getxattr"):
        assert [summary.frames for summary in again] == [6, 9]
    assert {path.name: path.read_bytes() for path in films.iterdir()} == before


def test_a_film_that_was_damaged_is_still_said_to_be(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (films / "a.mkv").read_bytes()
    (films / "a.mkv").write_bytes(data[: len(data) // 2])
    first, again = restore_all(films)[0], restore_all(films)[0]
    assert first.exit_code == again.exit_code == 4 and again.before and again.damage == first.damage


def test_a_single_film_and_a_film_with_a_name_of_its_own_are_not_replaced_and_not_done(films: Path) -> None:
    restore_all(films)
    for output in (None, str(films / "a.vidrestore.mkv")):
        batch = Batch([str(films / "a.mkv")], output, IDENTITY, RestoreOptions())
        with pytest.raises(OutputExistsError, match="already exists; add --overwrite"):
            batch.restore(batch.sources[0])


def test_the_only_film_of_a_list_is_done_when_the_list_is_restored_again(films: Path) -> None:
    for before in (False, True):
        batch = Batch([str(films / "a.mkv")], None, IDENTITY, RestoreOptions(), many=True)
        assert batch.restore(batch.sources[0]).before == before


def test_other_options_are_another_film(films: Path) -> None:
    restore_all(films)
    if not hasattr(os, "getxattr"):
        pytest.skip("needs attributes of files")
    for message in restore_all(films, strength=0.5):
        assert "already exists and was made with other options; add --overwrite" in message
    assert [summary.before for summary in restore_all(films, threads=1)] == [True, True]
    assert [summary.before for summary in restore_all(films, overwrite=True)] == [False, False]


def test_a_source_that_changed_is_another_film(films: Path) -> None:
    restore_all(films)
    os.utime(films / "a.mkv")
    if hasattr(os, "getxattr"):
        assert "was made of another film, or of this one before it changed" in restore_all(films)[0]


CASES: list[tuple[str, Callable[[Path], object]]] = [
    ("is no film that can be read", lambda path: path.write_bytes(b"precious")),
    ("lasts 0.1 s instead of 2.0 s", lambda path: write_video(path, 3)),
    ("has a size of 32x48", lambda path: write_video(path, 50, size=(32, 48))),
    ("is older than its source", lambda path: (write_video(path, 50), os.utime(path, (0, 0)))),
]


@pytest.mark.parametrize("reason, make", CASES, ids=[reason for reason, _ in CASES])
def test_what_only_bears_the_name_is_not_taken_for_the_film(tmp_path: Path, reason: str, make: Callable[[Path], object]) -> None:
    write_video(tmp_path / "a.mkv", 50)
    make(tmp_path / "out.mkv")
    with pytest.raises(OutputExistsError, match=f"already exists and {reason}"):
        done_before(str(tmp_path / "a.mkv"), str(tmp_path / "out.mkv"), IDENTITY, RestoreOptions())


def test_a_part_of_a_film_is_as_long_as_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unmarked(monkeypatch)
    write_video(tmp_path / "a.mkv", 100)
    write_video(tmp_path / "out.mkv", 50)
    for options, done in (({"start": Fraction(2)}, True), ({"duration": Fraction(2)}, True), ({"duration": Fraction(3)}, False)):
        arguments = str(tmp_path / "a.mkv"), str(tmp_path / "out.mkv"), IDENTITY, RestoreOptions(**options)  # type: ignore[arg-type]
        if done:
            assert done_before(*arguments)
        else:
            with pytest.raises(OutputExistsError, match=r"lasts 2\.0 s instead of 3\.0 s"):
                done_before(*arguments)


def test_a_film_that_was_done_before_is_told_as_done(films: Path) -> None:
    restore_all(films)
    told: list[Event] = []
    batch = Batch([str(films)], None, IDENTITY, RestoreOptions())
    batch.restore(batch.sources[0], told.append)
    assert [event.name for event in told] == ["start", "done"] and isinstance(told[1], Finished) and told[1].before


def test_another_film_for_the_same_output_is_not_taken_for_the_one_whose_run_was_killed_at_its_end(
    films: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, options = str(films.parent / "out.mkv"), {"task": IDENTITY, "overwrite": True}
    with monkeypatch.context() as killed:
        killed.setattr(WorkFolder, "remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            vidrestore.restore(films / "a.mkv", output, **options)
    assert vidrestore.restore(films / "b.mp4", output, **options).frames == 9
    assert not WorkFolder(output).path.exists()


def test_a_run_killed_as_it_removed_the_last_of_its_work_folder_is_done(films: Path) -> None:
    output = str(films.parent / "out.mkv")
    vidrestore.restore(films / "a.mkv", output, task=IDENTITY)
    folder = WorkFolder(output).path
    for options, expected in (({"overwrite": True}, (False, 6)), ({}, (True, 6))):
        folder.mkdir()
        if options or hasattr(os, "getxattr"):
            summary = vidrestore.restore(films / "a.mkv", output, task=IDENTITY, **options)
            assert (summary.before, summary.frames) == expected
            assert not folder.exists()
    folder.mkdir(exist_ok=True)
    with pytest.raises(OutputExistsError):
        vidrestore.restore(films / "b.mp4", output, task=IDENTITY)


def interrupted(folder: WorkFolder) -> None:
    raise KeyboardInterrupt


def test_whole_numbers_and_the_same_with_a_point_ask_for_the_same() -> None:
    assert request_name("denoise", RestoreOptions(sigma=20)) == request_name("denoise", RestoreOptions(sigma=20.0))
    assert request_name("denoise", RestoreOptions(sigma=20)) != request_name("denoise", RestoreOptions(sigma=21))


def test_a_work_folder_that_never_comes_to_be_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanishes(path: Path, **options: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", vanishes)
    with (
        pytest.raises(MediaError, match="a.mkv.vidrestore: this folder for the work can't be made there"),
        WorkFolder(f"{tmp_path}/a.mkv").locked(),
    ):
        pass


def test_the_work_folder_elsewhere_is_the_same_however_the_output_is_spelt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert WorkFolder("../out.mkv", str(tmp_path)).path == WorkFolder(str(tmp_path / "out.mkv"), str(tmp_path)).path
