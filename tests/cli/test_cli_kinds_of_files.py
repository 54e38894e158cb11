"""Kinds of files that people have, through the command with a model that changes nothing."""

import shutil
from pathlib import Path

import pytest
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from sample_videos import write_video
from with_identity import frames_of


@pytest.fixture
def given(shared: Path, tmp_path: Path):
    """Copies one of the shared inputs into the folder of the test."""

    def copied(name: str) -> Path:
        if not (shared / "inputs" / name).is_file():
            pytest.skip(f"needs {name} among the shared inputs")
        return Path(shutil.copy(shared / "inputs" / name, tmp_path))

    return copied


def test_an_encrypted_video_is_called_so_and_nothing_is_written(given, capsys):
    source = given("f_cenc.mp4")
    assert run(source) == 1
    assert "encrypted; decrypt it first" in capsys.readouterr().err
    assert [*source.parent.iterdir()] == [source]


def test_a_change_of_size_is_refused_before_work_with_the_way_out(given, capsys):
    source = given("c12_resize.webm")
    assert run(source) == 1
    said = capsys.readouterr().err
    assert "frame 10: 64x96, but the stream began at 96x64" in said and "-vf scale=96:64" in said
    assert [*source.parent.iterdir()] == [source]


def test_graphics_are_never_deinterlaced(given, capsys):
    source = given("c18_delays.gif")
    assert run(source) == 0
    assert "interlaced" not in capsys.readouterr().err
    assert frames_of(source.with_name("c18_delays.denoised.mkv")) == 10


def test_thumbnails_of_a_network_drive_are_no_videos(tmp_path, capsys):
    write_video(tmp_path / "a.mkv", 2)
    (tmp_path / "@eaDir").mkdir()
    write_video(tmp_path / "@eaDir" / "thumb.mkv", 2)
    assert run(tmp_path, "--recursive", "-q") == 0
    assert run(tmp_path / "**" / "*.mkv", "--recursive", "-q") == 0
    assert [path.name for path in (tmp_path / "@eaDir").iterdir()] == ["thumb.mkv"]
