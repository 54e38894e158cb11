"""`vidrestore dehaze`, `derain`, `desnow`, `deblur` and `sr` from the command line."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from command_line import run
from rgb_networks import doubling, keeping, write_weights
from sample_videos import write_video

IMAGE_TASKS = {
    "denoise": "denoised",
    "dehaze": "dehazed",
    "derain": "derained",
    "desnow": "desnowed",
    "deblur": "deblurred",
}


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "video.mkv", 2)
    return tmp_path / "video.mkv"


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).replace("│", " ").split())


@pytest.mark.parametrize("task, suffix", IMAGE_TASKS.items())
def test_each_image_task_restores_a_video_with_an_imported_file(video, task, suffix):
    weights = write_weights(video.parent, keeping(), task)
    assert (
        run(task, video, "--model", weights, "--tile", "64", "--threads", "1", "-q")
        == 0
    )
    with av.open(str(video.with_name(f"video.{suffix}.mkv"))) as container:
        assert sum(1 for _ in container.decode(video=0)) == 2


@pytest.mark.parametrize("spelling", ["-x4", "--scale=4"])
def test_sr_makes_a_video_four_times_larger(video, spelling):
    weights = write_weights(video.parent, doubling(), "sr")
    assert run("sr", video, spelling, "--model", weights, "--threads", "1", "-q") == 0
    with av.open(str(video.with_name("video.x4.mkv"))) as container:
        assert [(frame.width, frame.height) for frame in container.decode(video=0)] == [
            (256, 192)
        ] * 2


@pytest.mark.parametrize(
    "asked, suffix, size",
    [
        (("-x2",), "x2", (128, 96)),
        (("-x3",), "x3", (192, 144)),
        (("--height", "110"), "sr", (146, 110)),  # 146.7 wide, to an even number
        (("--height", "192"), "sr", (256, 192)),
    ],
)
def test_sr_makes_a_video_as_large_as_asked_for(video, asked, suffix, size):
    weights = write_weights(video.parent, doubling(), "sr")
    given = ("--model", weights, "--threads", "1", "-q", "--lossless")
    assert (
        run("sr", video, *given)
        == run("sr", video, *asked, *given, "--strength", "0.9")
        == 0
    )
    output = video.with_name(f"video.{suffix}.mkv")
    with (
        av.open(str(output)) as container,
        av.open(str(video.with_name("video.x4.mkv"))) as whole,
    ):
        for found, large in zip(
            container.decode(video=0), whole.decode(video=0), strict=True
        ):
            assert (found.width, found.height) == size
            small = large.reformat(
                *size, format="gray", interpolation="AREA"
            ).to_ndarray()
            assert (
                np.abs(
                    found.reformat(format="gray").to_ndarray().astype(float) - small
                ).mean()
                < 4
            )


@pytest.mark.parametrize("height", [48, 194])
def test_sizes_that_sr_does_not_make_are_refused(video, capsys, height):
    assert run("sr", video, "--height", height) == 2
    expected = f"--height {height}: the video has 48 lines, and sr makes more of them, up to 192"
    assert expected in printed(capsys)


def test_an_enlarged_video_is_shown_enlarged_where_its_pixels_are_not_square(tmp_path):
    write_video(
        tmp_path / "in.mp4", 2, "libx264", settings={"sample_aspect_ratio": Fraction(2)}
    )
    weights = write_weights(tmp_path, doubling(), "sr")
    assert (
        run(
            "sr",
            tmp_path / "in.mp4",
            "-x4",
            "-o",
            tmp_path / "out.mkv",
            "--model",
            weights,
            "-q",
        )
        == 0
    )
    data = (tmp_path / "out.mkv").read_bytes()
    # DisplayWidth, behind which are its length and its number
    place = data.index(b"\x54\xb0") + 2
    assert (
        int.from_bytes(data[place + 1 : place + 1 + (data[place] & 0x7F)]) == 4 * 64 * 2
    )
