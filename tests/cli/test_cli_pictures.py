"""Numbered pictures in and out, through the command line."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from command_line import run as command
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from sample_pictures import write_frame
from sample_videos import video_frame, write_stream, write_video
from written_videos import extras, rich_video

from vidrestore.files.atomic import Partial
from vidrestore.media.writing.picture_writer import PictureFiles

RED = np.array([255, 0, 0])


def write_pictures(
    folder: Path, count: int = 4, pix_fmt: str = "rgb24", kind: str = "png"
) -> Path:
    """Pictures 0001 and on, of noise."""
    folder.mkdir()
    for number in range(1, count + 1):
        frame = av.VideoFrame(64, 48, pix_fmt)
        noise = np.random.default_rng(number)
        for plane in frame.planes:
            plane.update(noise.integers(0, 255, plane.buffer_size, np.uint8).tobytes())
        write_frame(
            folder / f"{number:04}.{kind}", {"png": "png", "tif": "tiff"}[kind], frame
        )
    return folder


def samples(path: Path) -> tuple[str, np.ndarray]:
    """The pixel format and samples of a picture, or of the first frame of a video."""
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
        return frame.format.name, frame.to_ndarray()


def write_red(path: Path, frames: int = 2) -> None:
    """A video of red in 4:2:0, limited range, BT.601: Y 81, U 90, V 240."""
    levels = (((48, 64), 81), ((24, 32), 90), ((24, 32), 240))
    planes = tuple(np.full(size, level, np.uint8) for size, level in levels)
    write_stream(path, [video_frame("yuv420p", planes)] * frames)


@pytest.mark.parametrize(
    "pix_fmt, kind",
    [
        *(
            (name, "png")
            for name in ("rgb24", "rgb48be", "rgba64be", "gray", "gray16be")
        ),
        ("rgb48le", "tif"),
    ],
)
def test_a_folder_of_pictures_becomes_one_of_the_same_names_depth_and_samples(
    tmp_path, pix_fmt, kind
):
    source = write_pictures(tmp_path / "frames", 3, pix_fmt, kind)
    assert run(source, "-q") == 0
    made = sorted((tmp_path / "frames.denoised").glob("[!.]*"))
    assert [path.name for path in made] == [
        f"{number:04}.{kind}" for number in (1, 2, 3)
    ]
    for path in made:
        (name, found), (_, expected) = samples(path), samples(source / path.name)
        assert name == pix_fmt
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("named", ["frames/%04d.png", "frames/*.png", "frames"])
def test_pictures_named_by_folder_pattern_or_glob_become_a_video_at_the_rate_asked_for(
    tmp_path, monkeypatch, named
):
    write_pictures(tmp_path / "frames")
    monkeypatch.chdir(tmp_path)
    assert run(named, "-o", "out.mp4", "--fps", "30000/1001", "-q") == 0
    with av.open("out.mp4") as container:
        assert container.streams.video[0].average_rate == Fraction(30000, 1001)
        frames = list(container.decode(video=0))
    assert len(frames) == 4 and frames[0].format.name == "yuv420p"  # as players take it


@pytest.mark.parametrize("suffix, near", [("png", 2), ("tiff", 2), ("jpg", 4)])
def test_a_video_becomes_pictures_of_its_colours(tmp_path, suffix, near):
    write_red(tmp_path / "red.mkv")
    output = tmp_path / "made" / f"red_%03d.{suffix}"
    assert run(tmp_path / "red.mkv", "-o", output, "-q") == 0
    made = sorted(path.name for path in output.parent.glob("[!.]*"))
    assert made == [f"red_001.{suffix}", f"red_002.{suffix}"]
    with av.open(str(output.with_name(f"red_002.{suffix}"))) as container:
        picture = next(container.decode(video=0)).reformat(format="rgb24").to_ndarray()
    assert np.abs(picture.astype(int) - RED).max() <= near


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def cut(folder: Path) -> None:
    path = folder / "0003.png"
    path.write_bytes(path.read_bytes()[:400])


def wider(folder: Path) -> None:
    write_frame(folder / "0003.png", "png", av.VideoFrame(96, 48, "rgb24"))


def other_kind(folder: Path) -> None:
    write_frame(folder / "0001.tif", "tiff", av.VideoFrame(64, 48, "rgb24"))


@pytest.mark.parametrize(
    "harm, sentence",
    [
        (
            without("0002.png"),
            "frames: 0002.png is missing; add it, or take what there is by the pattern",
        ),
        (cut, "frames/0003.png: can't be read as a picture"),
        (
            wider,
            "frames/0003.png: 96x48 in rgb24, but the first picture is 64x48 in rgb24",
        ),
        (other_kind, "frames: pictures of several kinds, .png and .tif; name one kind"),
    ],
)
def test_what_is_wrong_with_pictures_is_one_line_that_names_them(
    tmp_path, capsys, harm, sentence
):
    harm(write_pictures(tmp_path / "frames"))
    assert run(tmp_path / "frames") == 1
    errors = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("vidrestore:")
    ]
    assert len(errors) == 1 and sentence in errors[0]
    assert not (tmp_path / "frames.denoised").exists()


def test_a_glob_takes_pictures_with_gaps_with_a_warning(tmp_path, capsys):
    write_pictures(tmp_path / "frames")
    (tmp_path / "frames" / "0002.png").unlink()
    assert run(tmp_path / "frames" / "*.png") == 0
    assert "1 number is missing between the pictures" in capsys.readouterr().err
    assert len(list((tmp_path / "frames.denoised").glob("[!.]*"))) == 3


def test_pictures_beside_videos_are_left_out_with_a_warning(tmp_path, capsys):
    folder = write_pictures(tmp_path / "mixed", 2)
    write_video(folder / "a.mkv", 2)
    assert run(folder, "-o", f"{tmp_path}/made/") == 0
    assert (
        "1 video and 2 pictures are there; only videos are restored"
        in capsys.readouterr().err
    )
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["a.denoised.mkv"]


def test_frames_that_were_named_one_by_one_are_restored_so_with_the_way_to_a_video(
    tmp_path, capsys
):
    folder = write_pictures(tmp_path / "frames", 2)
    assert run(*sorted(folder.iterdir())) == 0
    printed = capsys.readouterr()
    assert (
        f"if they are frames of a video, name '{folder}/%04d.png' instead"
        in printed.err
    )
    assert "2 of 2 inputs in" in printed.out
    assert {path.name for path in folder.glob("*.denoised.png")} == {
        "0001.denoised.png",
        "0002.denoised.png",
    }


def test_the_pictures_of_the_source_are_never_replaced(tmp_path, capsys):
    folder = write_pictures(tmp_path / "frames", 2)
    before = (folder / "0001.png").read_bytes()
    assert run(folder, "-o", folder / "%04d.png", "-y") == 1
    assert "the output is the input" in capsys.readouterr().err
    assert (folder / "0001.png").read_bytes() == before


def test_pictures_leave_sound_out_with_a_warning(tmp_path, capsys):
    rich_video(tmp_path / "in.mkv", extras())
    assert run(tmp_path / "in.mkv", "-o", tmp_path / "made/%04d.png") == 0
    assert "pictures hold the frames only; left out: " in (
        printed := capsys.readouterr().err
    )
    assert "audio" in printed


def test_the_same_command_again_skips_pictures_and_another_one_refuses_them(
    tmp_path, capsys
):
    source, output = write_pictures(tmp_path / "frames"), tmp_path / "made/%04d.png"
    assert run(source, "-o", output) == 0
    assert run(source, "-o", output) == 0
    assert "skipped, finished before" in capsys.readouterr().out
    other = write_pictures(tmp_path / "others", 2)
    assert run(other, "-o", output) == 1
    assert "or from another video" in capsys.readouterr().err
    assert run(other, "-o", output, "-y") == 0
    assert (
        "2 older pictures with other numbers are there, too, from 0003.png on"
        in capsys.readouterr().err
    )


def stop_at(patch: pytest.MonkeyPatch, *, killed: bool = False) -> None:
    """Interrupt the joining of pictures: at the third one, or `killed` as 0003 gets its name."""
    kind, name = (Partial, "put_in_place") if killed else (PictureFiles, "put")
    work = getattr(kind, name)

    def stop(given: Any, *rest: Any, **options: Any) -> None:
        if given.target.name == "0003.png" if killed else rest[0].pts == 2:
            raise KeyboardInterrupt
        work(given, *rest, **options)

    patch.setattr(kind, name, stop)
    if killed:
        patch.setattr(PictureFiles, "abort", lambda self: None)


@pytest.mark.parametrize("killed", [False, True])
def test_pictures_that_were_stopped_half_way_resume(
    tmp_path, monkeypatch, capsys, killed
):
    source, output = write_pictures(tmp_path / "frames"), tmp_path / "made/%04d.png"
    with monkeypatch.context() as patch:
        stop_at(patch, killed=killed)
        assert run(source, "-o", output) == 130
    assert (tmp_path / "made" / "0002.png").exists() == killed
    assert not (tmp_path / "made" / "0001.png").exists()
    assert "4 frames are kept" in capsys.readouterr().err
    assert run(source, "-o", output, "--json") == 0
    assert '"reused": 4' in capsys.readouterr().out
    made = sorted(path.name for path in (tmp_path / "made").glob("*.png"))
    assert made == [f"{number:04}.png" for number in (1, 2, 3, 4)]
    np.testing.assert_array_equal(
        samples(tmp_path / "made" / "0003.png")[1], samples(source / "0003.png")[1]
    )


@pytest.mark.parametrize("killed", [False, True])
def test_pictures_that_others_put_there_after_a_stop_are_replaced_only_to_overwrite(
    tmp_path, monkeypatch, capsys, killed
):
    source, output = write_pictures(tmp_path / "frames"), tmp_path / "made/%04d.png"
    with monkeypatch.context() as patch:
        stop_at(patch, killed=killed)
        assert run(source, "-o", output) == 130
    other = tmp_path / "made" / ("0004.png" if killed else "0002.png")
    other.write_bytes(b"precious")
    assert run(source, "-o", output) == 1
    assert (
        "add --overwrite to replace" in capsys.readouterr().err
        and other.read_bytes() == b"precious"
    )
    assert run(source, "-o", output, "-y") == 0 and other.read_bytes() != b"precious"


def test_older_pictures_stay_until_the_new_ones_are_complete(tmp_path, monkeypatch):
    source, output = write_pictures(tmp_path / "frames"), tmp_path / "made"
    assert run(source, "-o", output / "%04d.png") == 0
    before = {path.name: path.read_bytes() for path in output.glob("*.png")}
    other = write_pictures(tmp_path / "other", pix_fmt="gray")
    with monkeypatch.context() as patch:
        stop_at(patch)
        assert run(other, "-o", output / "%04d.png", "-y") == 130
    assert {path.name: path.read_bytes() for path in output.glob("*.png")} == before
    assert run(other, "-o", output / "%04d.png", "-y") == 0
    assert all(before[path.name] != path.read_bytes() for path in output.glob("*.png"))


def test_inspect_describes_pictures(tmp_path, capsys):
    folder = write_pictures(tmp_path / "frames", 2)
    command("inspect", folder)
    printed = capsys.readouterr().out
    assert f"{folder}: pictures\n" in printed and "64x48" in printed
    assert "2 in 0.080 s, at 25 fps unless --fps gives another rate" in printed
