"""Names of sources and outputs: a file, a pipe or pictures."""

import pickle
from pathlib import Path

import pytest

from vidrestore.errors import MediaError
from vidrestore.media.formats.source import Source, Target


@pytest.mark.parametrize(
    "name, is_pipe, is_pattern, holds_pictures, container",
    [
        ("a.mp4", False, False, False, "mp4"),
        ("a.MKV", False, False, False, "matroska"),
        ("-", True, False, False, "yuv4mpegpipe"),
        ("out/%04d.png", False, True, True, "image2"),
        ("out/%d.mp4", False, False, False, "mp4"),
        ("photo.JPG", False, False, True, "image2"),
    ],
)
def test_the_kind_of_an_output_follows_from_its_name(
    name, is_pipe, is_pattern, holds_pictures, container
):
    target = Target(name)
    facts = target.is_pipe, target.is_pattern, target.holds_pictures, target.container
    assert facts == (is_pipe, is_pattern, holds_pictures, container)
    assert str(target) == name


@pytest.mark.parametrize(
    "name, match", [("a.avi", "the suffix '.avi' is not one"), ("a", "has no suffix")]
)
def test_an_output_without_a_known_container_is_refused(name, match):
    with pytest.raises(MediaError, match=match):
        _ = Target(name).container


def test_pictures_are_found_once_and_identified_as_they_are_now(tmp_path):
    for number in (1, 2):
        (tmp_path / f"{number}.png").write_bytes(b"picture")
    source = Source(str(tmp_path))
    assert source.is_many and source.is_stored and source.pictures
    before = source.identity()
    (tmp_path / "3.png").write_bytes(b"picture")
    assert [Path(path).name for path in source.pictures.files] == ["1.png", "2.png"]
    assert source.identity() != before
    assert pickle.loads(pickle.dumps(source)) == source == Source.of(tmp_path)


def test_existing_pictures_of_a_sequence_are_listed_by_number(tmp_path):
    target = Target(f"{tmp_path}/%02d.png")
    for number in (12, 7):
        target.numbered(number).touch()
    assert list(target.existing()) == [7, 12]
