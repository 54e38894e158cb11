"""Which files are inputs, and what outputs are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from vidrestore.engine.naming import expand_sources, is_our_output, output_for
from vidrestore.errors import MediaError, OptionError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.mp4", "a.mkv", "a.denoised.mkv", "a.preview.mkv", ".b.mp4.partial", "notes.txt", "odd[1].mp4"):
        (tmp_path / name).touch()
    (tmp_path / "below.mp4").mkdir()
    return tmp_path


def names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def test_a_folder_means_its_videos_but_none_of_ours(folder: Path) -> None:
    assert names(expand_sources([str(folder)])) == ["a.mkv", "b.mp4", "odd[1].mp4"]


def test_a_pattern_means_what_it_matches_but_none_of_ours(folder: Path) -> None:
    assert names(expand_sources([f"{folder}/*.mkv"])) == ["a.mkv"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(folder: Path) -> None:
    assert names(expand_sources([f"{folder}/odd[1].mp4"])) == ["odd[1].mp4"]


def test_one_of_ours_is_an_input_only_where_it_is_named_alone(folder: Path) -> None:
    ours, other = f"{folder}/a.denoised.mkv", f"{folder}/b.mp4"
    assert expand_sources([ours]) == [ours]
    assert expand_sources([ours, other]) == [other]


def test_an_input_given_twice_is_restored_once(folder: Path) -> None:
    assert names(expand_sources([f"{folder}/b.mp4", str(folder)])) == ["b.mp4", "a.mkv", "odd[1].mp4"]


def test_files_that_do_not_exist_are_kept_so_that_reading_them_fails() -> None:
    assert expand_sources(["no.mp4", "none.mkv"]) == ["no.mp4", "none.mkv"]


def test_a_folder_or_pattern_without_videos_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="the folder holds no video file"):
        expand_sources([str(tmp_path)])
    with pytest.raises(MediaError, match="the pattern holds no video file"):
        expand_sources([f"{tmp_path}/*.mp4"])


@pytest.mark.parametrize("name, ours", [("a.denoised.mp4", True), (".a.mp4.partial", True), ("denoised.mp4", False), ("a.b.mp4", False)])
def test_our_outputs_are_known_by_their_names(name: str, ours: bool) -> None:
    assert is_our_output(f"/some/{name}") is ours


def test_an_output_lies_beside_its_source_or_in_the_folder_given(tmp_path: Path) -> None:
    assert output_for("films/a.mp4", None, "denoised") == "films/a.denoised.mp4"
    assert output_for("films/a.ts", None, "denoised") == "films/a.denoised.mkv"
    assert output_for("films/a.mp4", str(tmp_path), "denoised") == str(tmp_path / "a.denoised.mp4")
    assert output_for("films/a.mp4", "new/", "denoised") == "new/a.denoised.mp4"
    assert output_for("films/a.mp4", "b.mkv", "denoised") == "b.mkv"


@pytest.mark.parametrize("output", ["one.mkv", "-"])
def test_several_inputs_do_not_go_into_one_file(output: str) -> None:
    with pytest.raises(OptionError, match="several inputs can't"):
        output_for("a.mp4", output, "denoised", several=True)
