"""Every file that a command writes: never one that the command reads, and never one of others without
--overwrite.
"""

from pathlib import Path

import pytest
from command_line import run
from denoise_command import identity  # noqa: F401  (a fixture of all tests here)
from sample_videos import write_video


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "in.mkv", 3, size=(96, 80))
    return tmp_path / "in.mkv"


WRITERS = {
    "page.html": [
        ("denoise", "in.mkv", "--report", "page.html"),
        ("eval", "in.mkv", "--reference", "in.mkv", "--html", "page.html"),
        ("suggest", "in.mkv", "--sheet", "page.html"),
    ],
    "data.json": [("eval", "in.mkv", "--reference", "in.mkv", "--json", "data.json")],
    "data.csv": [("eval", "in.mkv", "--reference", "in.mkv", "--csv", "data.csv")],
    "sheet.png": [("suggest", "in.mkv", "--sheet", "sheet.png")],
    "in.denoised.mkv.vidrestore.json": [("denoise", "in.mkv", "--sidecar")],
}


@pytest.mark.parametrize(
    "name, line",
    [(name, line) for name, lines in WRITERS.items() for line in lines],
    ids=str,
)
def test_a_file_of_others_is_refused_before_work(
    video, name, line, monkeypatch, capsys
):
    monkeypatch.chdir(video.parent)
    Path(name).write_text("precious")
    before = sorted(Path().iterdir())
    assert run(*line) == 1
    assert f"{name}: already exists; " in capsys.readouterr().err
    assert Path(name).read_text() == "precious" and sorted(Path().iterdir()) == before


def test_a_sheet_is_not_written_over_its_photo(tmp_path, capsys):
    photo = tmp_path / "photo.png"
    write_video(photo, 1, "png", "rgb24", format="image2")
    before = photo.read_bytes()
    assert run("suggest", photo, "--sheet", photo) == 1
    assert (
        "the output is the input" in capsys.readouterr().err
        and photo.read_bytes() == before
    )


def test_pages_and_tables_are_replaced_only_to_overwrite(video, monkeypatch, capsys):
    monkeypatch.chdir(video.parent)
    for name, lines in WRITERS.items():
        Path(name).write_text("precious")
        assert run(*lines[0], "-y") == 0
        assert "precious" not in Path(name).read_bytes().decode(errors="replace"), name


def test_a_page_and_a_sidecar_that_exist_are_left_alone_as_their_video_is(
    video, monkeypatch, capsys
):
    monkeypatch.chdir(video.parent)
    line = ("denoise", "in.mkv", "--report", "page.html", "--sidecar")
    assert run(*line, "-q") == 0
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    capsys.readouterr()
    assert run(*line) == 0
    written = capsys.readouterr()
    assert "finished before" in written.out
    assert "left alone: page.html exists; remove it for one of this run" in written.err
    assert "vidrestore.json" not in written.err  # it is the record of this very output
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before
    assert (
        run("denoise", "in.mkv", "-o", "other.mkv", "--report", "page.html", "-q") == 1
    )
    assert "page.html: already exists; add --overwrite" in capsys.readouterr().err


def test_two_inputs_of_one_name_have_two_pages(video, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "in.mkv").write_bytes(video.read_bytes())
    pages = tmp_path / "pages"
    for _ in range(2):
        inputs = (tmp_path / "a" / "in.mkv", tmp_path / "b" / "in.mkv")
        assert run("denoise", *inputs, "--report", pages, "--sidecar", "-q") == 0
    assert (
        len(list(pages.iterdir()))
        == 2
        == len(list(tmp_path.glob("*/*.vidrestore.json")))
    )


def test_an_output_must_not_be_another_input_of_the_command(video, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    other = tmp_path / "out" / "in.denoised.mkv"
    other.write_bytes(video.read_bytes())
    before = other.read_bytes()
    (tmp_path / "out" / "in.mkv").symlink_to(other)
    output = tmp_path / "out"
    run("denoise", video, other, "-o", f"{output}/", "-y", "-q")
    assert (
        "the output is the input" in capsys.readouterr().err
        and other.read_bytes() == before
    )
