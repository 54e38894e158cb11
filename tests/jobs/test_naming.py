"""Which files are inputs, and what outputs are called."""

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from sample_pictures import write_picture
from sample_videos import write_video

import vidrestore
from vidrestore.errors import MediaError, OptionError
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.naming import (
    expand_sources,
    is_our_output,
    named_outputs,
    notes_on,
    output_for,
)
from vidrestore.jobs.request import Step
from vidrestore.media.formats.source import Source, Target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = (
        "b.mp4 a.mkv a.denoised.mkv a.preview.mkv .b.mp4.partial notes.txt odd[1].mp4"
    )
    for name in files.split():
        (tmp_path / name).touch()
    (tmp_path / "below.mp4").mkdir()
    return tmp_path


def expanded(given: Sequence[str], **options: bool) -> dict[str, str]:
    found = expand_sources([*map(Source, given)], **options)
    return {source.name: below for source, below in found.items()}


def made_of(given: Sequence[str]) -> dict[str, str]:
    return named_outputs([*map(Source, given)])


def names(paths: Iterable[str]) -> list[str]:
    return [Path(path).name for path in paths]


@pytest.mark.parametrize(
    "given, found",
    [
        ([""], ["a.mkv", "b.mp4", "odd[1].mp4"]),
        (["*.mkv"], ["a.mkv"]),
        (["odd[1].mp4"], ["odd[1].mp4"]),
        (["b.mp4", ""], ["b.mp4", "a.mkv", "odd[1].mp4"]),
        (["no.mp4", "none.mkv"], ["no.mp4", "none.mkv"]),
    ],
    ids=[
        "a folder",
        "a pattern",
        "a file like a pattern",
        "a file given twice",
        "missing files",
    ],
)
def test_inputs_are_files_and_what_folders_and_patterns_hold_but_none_of_ours(
    folder, given, found
):
    assert names(expanded([str(folder / name) for name in given])) == found


@pytest.mark.parametrize(
    "name", ["tape.m2t", "stream.m2v", "phone.3g2", "raw.h265", "old.rmvb", "FILM.MP4"]
)
def test_a_folder_means_videos_of_all_kinds_that_are_read(tmp_path, name):
    (tmp_path / name).touch()
    assert names(expanded([str(tmp_path)])) == [name]


def test_a_named_output_of_vidrestore_is_an_input_unless_its_source_is_one_too(folder):
    ours, other, origin = (
        f"{folder}/a.denoised.mkv",
        f"{folder}/b.mp4",
        f"{folder}/a.mkv",
    )
    assert list(expanded([ours])) == [ours]
    assert list(expanded([ours, other])) == [ours, other]
    # as a shell gives *
    assert list(expanded([origin, ours, other])) == [origin, other]
    assert made_of([origin, ours, other]) == {ours: origin}
    assert made_of([ours, other, str(folder)]) == {}


def test_a_folder_or_pattern_without_videos_is_an_error(tmp_path):
    with pytest.raises(MediaError, match="the folder holds no video file"):
        expanded([str(tmp_path)])
    with pytest.raises(MediaError, match="the pattern holds no video file"):
        expanded([f"{tmp_path}/*.mp4"])


@pytest.mark.parametrize(
    "name, ours",
    [
        ("a.denoised.mp4", True),
        (".a.mp4.partial", True),
        ("a.mkv.vidrestore", True),
        ("denoised.mp4", False),
        ("a.b.mp4", False),
        ("the.bourne.identity.mp4", False),
    ],
)
def test_our_outputs_are_known_by_their_names(name, ours):
    assert is_our_output(f"/some/{name}") is ours


@pytest.mark.parametrize(
    "source, given, output",
    [
        ("films/a.mp4", None, "films/a.denoised.mp4"),
        ("films/a.ts", None, "films/a.denoised.mkv"),
        ("films/a.mp4", "there", "there/a.denoised.mp4"),
        ("films/a.mp4", "new/", "new/a.denoised.mp4"),
        ("films/a.mp4", "b.mkv", "b.mkv"),
        ("100%d.mp4", None, "100%d.denoised.mp4"),
    ],
)
def test_an_output_is_beside_its_source_or_in_the_given_folder(
    tmp_path, monkeypatch, source, given, output
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert output_for(Source(source), given, "denoised") == Target(output)


@pytest.mark.parametrize("output", ["one.mkv", "-"])
def test_several_inputs_do_not_go_into_one_file(output):
    with pytest.raises(OptionError, match="several inputs can't"):
        output_for(Source("a.mp4"), output, "denoised", is_batch=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = "a.mp4 one/a.mp4 one/two/b.avi one/two/b.denoised.mkv .hidden/c.mp4 a.mp4.vidrestore/d.mp4"
    for name in files.split():
        (tmp_path / "films" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "films" / name).touch()
    return tmp_path / "films"


def test_only_recursive_goes_below_a_folder_and_never_into_work_or_hidden_ones(tree):
    assert expanded([str(tree)]) == {f"{tree}/a.mp4": ""}
    found = expanded([str(tree)], recursive=True)
    assert found == {
        f"{tree}/a.mp4": "",
        f"{tree}/one/a.mp4": "one",
        f"{tree}/one/two/b.avi": "one/two",
    }
    assert names(expanded([f"{tree}/**/*.avi"], recursive=True)) == ["b.avi"]


@pytest.mark.parametrize("given", [None, "out", "out/"])
def test_outputs_are_beside_their_sources_or_in_the_same_folders_of_the_output(
    tree, monkeypatch, given
):
    monkeypatch.chdir(tree.parent)
    batch = Batch(["films"], given, [Step("denoise")], recursive=True)
    top = Path("out" if given else "films")
    names = ("a.denoised.mp4", "one/a.denoised.mp4", "one/two/b.denoised.mkv")
    assert [*map(str, batch.outputs.values())] == [str(top / name) for name in names]
    assert (top / "one" / "two").is_dir()


def test_folders_below_several_inputs_are_made_again_in_one_output(tree, tmp_path):
    (tmp_path / "more" / "three").mkdir(parents=True)
    (tmp_path / "more" / "three" / "d.mov").touch()
    sources, out = [f"{tree}/one", f"{tmp_path}/more"], f"{tmp_path}/out"
    batch = Batch(sources, out, [Step("denoise")], recursive=True)
    expected = ["a.denoised.mp4", "two/b.denoised.mkv", "three/d.denoised.mov"]
    assert [*map(str, batch.outputs.values())] == [f"{out}/{name}" for name in expected]
    (tmp_path / "more" / "a.mp4").touch()
    batch = Batch(sources, out, [Step("denoise")], recursive=True)
    with pytest.raises(
        OptionError, match=r"one/a\.mp4: .*more/a\.mp4 would become .*out/a\.denoised"
    ):
        batch.request(f"{tree}/one/a.mp4")
    assert (
        batch.request(f"{tmp_path}/more/three/d.mov").output.path.name
        == "d.denoised.mov"
    )


@pytest.mark.parametrize("sources", [["."], ["a.mp4", "one/a.mov"], ["*.mp4"]])
def test_a_name_without_a_suffix_is_a_folder_for_folders_patterns_and_several(
    tree, monkeypatch, sources
):
    monkeypatch.chdir(tree)
    (tree / "one" / "a.mov").touch()
    outputs = Batch(sources, "clean", [Step("denoise")]).outputs.values()
    assert {str(Path(output).parent) for output in outputs} == {"clean"}
    with pytest.raises(OptionError, match="several inputs can't"):
        Batch(["a.mp4", "one/a.mov"], "clean.mp4", [Step("denoise")])


def test_an_output_that_keeps_its_sources_suffix_is_left_out_beside_it(tree):
    (tree / "tape.avi").touch()
    (tree / "tape.avi.denoised.mkv").touch()
    named = [f"{tree}/tape.avi", f"{tree}/tape.avi.denoised.mkv"]
    assert Batch(named, None, [Step("denoise")]).sources == named[:1]


def test_an_output_folder_that_is_a_file_is_refused(tree):
    with pytest.raises(MediaError, match="this folder for the outputs can't be made"):
        Batch([str(tree)], f"{tree}/a.mp4", [Step("denoise")], recursive=True)


def test_a_missing_second_file_is_a_forgotten_output_only_if_none_is_named(tmp_path):
    video, missing = str(tmp_path / "a.mp4"), str(tmp_path / "b.mp4")
    Path(video).touch()
    with pytest.raises(OptionError, match="b.mp4: no such file; if it is to be"):
        expanded([video, missing])
    assert [*expanded([video, missing], has_output=True)] == [video, missing]


def test_empty_names_are_refused():
    for sources in ([""], ["a.mp4", ""]):
        with pytest.raises(OptionError, match="an input has an empty name"):
            expanded(sources)
    with pytest.raises(OptionError, match="`output` is empty"):
        output_for(Source("a.mp4"), "", "denoised")


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EROFS])
def test_a_folder_for_outputs_that_can_not_be_made_is_named_before_work(
    tree, monkeypatch, number
):
    monkeypatch.setattr(
        Path, "mkdir", Mock(side_effect=OSError(number, os.strerror(number)))
    )
    with pytest.raises(
        MediaError,
        match=r"none: this folder for the outputs can't be made \(.*\); choose",
    ):
        Batch([f"{tree}/a.mp4"], f"{tree}/none/out.mp4", [Step("denoise")])


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with a user's videos that are named like outputs, and two outputs."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in (
        "a.mkv",
        "holiday.preview.mp4",
        "clip.x2.mp4",
        "b.mkv",
        "b.denoised.mkv",
    ):
        write_video(folder / name, 3, "libx264")
    vidrestore.restore(
        folder / "a.mkv", folder / "moved.denoised.mkv", task="<identity>"
    )
    return folder


@pytest.mark.parametrize("pattern", ["", "/*.m*"])
def test_a_users_video_that_is_named_like_an_output_is_an_input_and_what_is_left_out_is_named(
    mixed, pattern
):
    inputs = [f"{mixed}{pattern}"]
    assert names(expanded(inputs)) == [
        "a.mkv",
        "b.mkv",
        "clip.x2.mp4",
        "holiday.preview.mp4",
    ]
    notes = [
        note for _, note in notes_on([Source(inputs[0])], recursive=False, photos=False)
    ]
    assert notes == [
        "left out, as vidrestore made them, by their tags: moved.denoised.mkv",
        "left out, named like outputs of others there; name one alone to restore it: b.denoised.mkv",
    ]


def test_a_folder_of_outputs_alone_is_an_error_that_names_them(mixed):
    for path in mixed.iterdir():
        if path.name != "moved.denoised.mkv":
            path.unlink()
    with pytest.raises(
        MediaError,
        match="holds no video file to restore; left out, as .*moved.denoised.mkv",
    ):
        expanded([str(mixed)])


@pytest.mark.parametrize(
    "name, output",
    [
        ("100%d.jpg", "100_d.denoised.jpg"),
        ("a%04d.bmp", "a_04d.denoised.png"),
        ("100%.jpg", "100%.denoised.jpg"),
    ],
)
def test_a_photo_whose_name_is_like_a_pattern_gets_an_output_that_is_none(
    tmp_path, name, output
):
    (tmp_path / name).touch()
    target = output_for(Source(str(tmp_path / name)), None, "denoised")
    assert target.path == tmp_path / output and not target.is_pattern


def test_outputs_of_photos_are_left_out_beside_their_photos(tmp_path):
    for name in ("a.png", "a.denoised.png", "b.denoised.png"):
        write_picture(tmp_path / name, (1, 2, 3))
    assert names(expanded([str(tmp_path)], photos=True)) == ["a.png", "b.denoised.png"]
