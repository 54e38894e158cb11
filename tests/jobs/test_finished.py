"""The same run again: what is finished is not restored again, and an output that is there for another reason
is never replaced.
"""

import os
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from fake_restorer import request_of
from sample_videos import cut_short, write_video

import vidrestore
from vidrestore.errors import MediaError, OutputExistsError
from vidrestore.events import Event, Warned, ignore_event
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Step
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.run import earlier_summary
from vidrestore.settings.options import EncoderOptions, RestoreOptions
from vidrestore.weights.manifest import read_manifest, weights_folder

IDENTITY, NAME = "<identity>", "mb-taylorformer-h-deblur"


@pytest.fixture
def films(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    folder.mkdir()
    write_video(folder / "a.mkv", 6)
    write_video(folder / "b.mp4", 9, "libx264")
    return folder


def restore_all(folder: Path, **options: Any) -> list[Any]:
    """The summary of each film, each restored alone, or the message of its error."""
    found: list[Any] = []
    for source in sorted(each for each in folder.iterdir() if each.stem in ("a", "b")):
        try:
            found.append(vidrestore.restore(source, task=IDENTITY, **options))
        except OutputExistsError as error:
            found.append(str(error))
    return found


def outputs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.vidrestore.*"))


@pytest.mark.parametrize("copied", [False, True])
def test_a_video_that_is_finished_is_not_restored_again(films, copied):
    assert [summary.before for summary in restore_all(films)] == [False, False]
    if copied:  # as by a backup: without times and attributes
        for path in (*outputs(films), films / "a.mkv", films / "b.mp4"):
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)
    before = {path.name: path.read_bytes() for path in films.iterdir()}
    again = restore_all(films)
    assert [(each.before, each.exit_code, each.frames) for each in again] == [
        (True, 0, 6),
        (True, 0, 9),
    ]
    assert {path.name: path.read_bytes() for path in films.iterdir()} == before


def test_each_sequence_of_a_folder_is_finished_by_itself(films):
    folder = films.parent / "numbered"
    for name in ("a_%04d.png", "b_%04d.png", "a_%04d.png"):
        summary = vidrestore.restore(films / "a.mkv", folder / name, task=IDENTITY)
        assert summary.before == (
            len(list(folder.glob("b_*.png"))) == 6 and name.startswith("a")
        )
    assert len(list(folder.glob("a_*.png"))) == len(list(folder.glob("b_*.png"))) == 6


@pytest.mark.parametrize("output", ["out.mp4", "out.mov", "out.mkv", "out.webm"])
def test_every_container_holds_the_tag(films, output):
    source, place = films / "b.mp4", films.parent / output
    assert not vidrestore.restore(source, place, task=IDENTITY).before
    assert vidrestore.restore(source, place, task=IDENTITY).before
    with pytest.raises(
        OutputExistsError,
        match="already exists, made with other options, weights or version, or from",
    ):
        vidrestore.restore(source, place, task=IDENTITY, strength=0.5)


@pytest.mark.parametrize("tagged", [True, False])
def test_an_output_without_a_tag_is_an_error_alone_and_a_line_of_several(films, tagged):
    assert [each.before for each in restore_all(films, tags=tagged)] == [False, False]
    if tagged:
        for path in outputs(films):
            path.write_bytes(b"precious")
    before = [path.read_bytes() for path in outputs(films)]
    for message in restore_all(films, tags=tagged):
        assert "already exists; add `overwrite` to replace it" in message
    batch, told = (
        Batch([str(films)], None, [Step(IDENTITY, RestoreOptions(tags=tagged))]),
        list[Event](),
    )
    for source in batch.sources:
        assert batch.restore(batch.request(source), told.append) is None
    lines = [event.message for event in told if isinstance(event, Warned)]
    assert len(lines) == 2 and all("left alone: " in line for line in lines)
    assert before == [path.read_bytes() for path in outputs(films)]


def test_a_finished_video_still_reports_the_damage_of_its_source(films, monkeypatch):
    cut_short(films / "a.mkv")
    first, again = restore_all(films)[0], restore_all(films)[0]
    assert (
        first.exit_code == again.exit_code == 4
        and again.before
        and again.damage == first.damage
    )


def test_other_options_are_another_video(films):
    restore_all(films)
    for message in restore_all(films, strength=0.5):
        assert (
            "already exists, made with other options, weights or version, or from another video; add"
            in message
        )
    assert [summary.before for summary in restore_all(films, threads=1)] == [True, True]
    assert [summary.before for summary in restore_all(films, overwrite=True)] == [
        False,
        False,
    ]


def test_a_source_that_changed_is_another_video(films):
    restore_all(films)
    os.utime(films / "a.mkv")
    assert restore_all(films)[0].before  # its time alone has changed
    write_video(films / "a.mkv", 7)
    assert "or from another video" in restore_all(films)[0]


def test_weights_that_were_trained_again_make_another_video(films, monkeypatch):
    cards = read_manifest()
    output, options = (
        films.parent / "out.mkv",
        {"task": "denoise", "sigma": 5, "quality": "fast"},
    )
    restored = [
        vidrestore.restore(films / "a.mkv", output, **options).before for _ in range(2)
    ]
    assert restored == [False, True]
    other = cards | {"dust-denoise": replace(cards["dust-denoise"], sha256="0" * 64)}
    monkeypatch.setattr(
        "vidrestore.weights.manifest.read_manifest", lambda *folder: other
    )
    request = request_of(films / "a.mkv", output, sigma=5, quality="fast")
    with pytest.raises(
        OutputExistsError, match="made with other options, weights or version"
    ):
        earlier_summary(request, ignore_event)


def test_a_file_of_weights_that_changed_makes_another_video(films):
    bundled, file = read_manifest()[NAME], films.parent / f"{NAME}.safetensors"
    file.write_bytes((weights_folder() / str(bundled.file)).read_bytes())
    output, options = (
        str(films.parent / "out.mkv"),
        {"task": "deblur", "model": str(file), "tile": 64},
    )
    assert not vidrestore.restore(films / "a.mkv", output, **options).before
    assert vidrestore.restore(films / "a.mkv", output, **options).before
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        OutputExistsError, match="made with other options, weights or version"
    ):
        vidrestore.restore(films / "a.mkv", output, **options)


def test_another_video_for_the_same_output_is_not_taken_for_the_one_whose_run_was_killed_at_its_end(
    films, monkeypatch
):
    output, options = (
        str(films.parent / "out.mkv"),
        {"task": IDENTITY, "overwrite": True},
    )

    def killed(folder: WorkFolder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(WorkFolder, "remove", killed)
        vidrestore.restore(films / "a.mkv", output, **options)
    assert vidrestore.restore(films / "b.mp4", output, **options).frames == 9
    assert not WorkFolder(output).path.exists()


def test_a_run_killed_as_it_removed_the_last_of_its_work_folder_is_done(films):
    output = str(films.parent / "out.mkv")
    vidrestore.restore(films / "a.mkv", output, task=IDENTITY)
    folder = WorkFolder(output).path
    for options, expected in (({"overwrite": True}, (False, 6)), ({}, (True, 6))):
        folder.mkdir()
        summary = vidrestore.restore(films / "a.mkv", output, task=IDENTITY, **options)
        assert (summary.before, summary.frames) == expected
        assert not folder.exists()
    folder.mkdir(exist_ok=True)
    with pytest.raises(OutputExistsError):
        vidrestore.restore(films / "b.mp4", output, task=IDENTITY)


ANOTHER_VIDEO: dict[str, Any] = {
    "sigma": 7,
    "model": "mb-taylorformer-h-dehaze",
    "quality": "best",
    "match": False,
    "scale": 2,
    "height": 720,
    "input": "clean",
    "strength": 0.5,
    "chroma_strength": 0.5,
    "grain": 1.0,
    "haze": "always",
    "dust": "always",
    "scene_detect": False,
    "start": Fraction(1),
    "duration": Fraction(2),
    "fps": Fraction(24),
    "scan": "tff",
    "double_rate": True,
    "dropouts": "keep",
    "chroma_shift": (4.0, 2.0),
    "drop": frozenset({"audio"}),
    "tags": False,
    "encoder": EncoderOptions(crf=30),
    "cfr": Fraction(25),
    "precision": "bf16",
    "tile": 128,
}
SAME_VIDEO: dict[str, Any] = {
    "strict": True,
    "overwrite": True,
    "restart": True,
    "work_dir": ".",
    "device": "cpu",
    "threads": 3,
}


def name(**options: Any) -> str:
    return request_of(Path("in.mkv"), Path("out.mkv"), **options).name


def test_only_what_alters_the_video_asks_for_another_one():
    # that needs a file of weights, which is another model
    known = {*ANOTHER_VIDEO, *SAME_VIDEO, "family"}
    assert known == {field.name for field in fields(RestoreOptions)}
    names = [
        name(),
        *(name(**{option: value}) for option, value in ANOTHER_VIDEO.items()),
    ]
    assert len({*names}) == len(names)
    assert {name(**{option: value}) for option, value in SAME_VIDEO.items()} == {name()}
    assert name(sigma=20) == name(sigma=20.0) != name(sigma=21)


def test_a_work_folder_that_never_comes_to_be_is_an_error(tmp_path, monkeypatch):
    def vanishes(path: Path, **options: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", vanishes)
    with (
        pytest.raises(
            MediaError,
            match="a.mkv.vidrestore: this folder for the work can't be made there",
        ),
        WorkFolder(f"{tmp_path}/a.mkv").locked(),
    ):
        pass
