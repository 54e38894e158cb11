"""`vidrestore suggest`: findings, the commands for them, and the sheet of variants."""

import base64
import json
import re
import shlex
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
import torch
from command_line import run as command
from denoise_command import identity  # noqa: F401  (a fixture of all tests here)
from sample_pictures import write_frame
from sample_videos import cut_short, write_video
from scanned_videos import interlaced, moments, telecined, write_frames
from typer.main import get_command

from vidrestore.cli.app import app
from vidrestore.jobs import findings, suggestion
from vidrestore.jobs.findings import edge_ratio
from vidrestore.jobs.suggestion import command_line
from vidrestore.media.formats.pixel_formats import layout_of
from vidrestore.media.reading.pictures import png, read_rgb
from vidrestore.pages import variant_sheet
from vidrestore.pixels.frames import Frame, VideoInfo
from vidrestore.settings.tasks import TASKS

DENOISE = TASKS["denoise"]

run = partial(command, "suggest")


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "a clip.mkv", 60, size=(96, 80))
    return tmp_path / "a clip.mkv"


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The grey levels that networks change, by task, instead of those that they would."""
    levels = {"dehaze": 0.0, "derain": 0.0, "desnow": 0.0, "noise": 0.0}

    def named(task: str) -> SimpleNamespace:
        return SimpleNamespace(task=task, device=torch.device("cpu"))

    monkeypatch.setattr(findings, "PictureRestorer", lambda task, options: named(task))
    monkeypatch.setattr(findings, "dehazer", lambda options: named("dehaze"))
    monkeypatch.setattr(
        findings, "_changed", lambda restorer, place, video: levels[restorer.task]
    )
    steady = findings.Finding("flicker", "no", "the light is steady", "deflicker", 0.0)
    monkeypatch.setattr(suggestion, "flicker_finding", lambda places, video: steady)
    noise = suggestion.noise_finding

    def set_noise(places: list, info: object) -> findings.Finding:
        found = noise(places, info)
        verdict = "yes" if levels["noise"] else "no"
        return findings.Finding(
            found.name, verdict, found.reason, "denoise", levels["noise"]
        )

    monkeypatch.setattr(suggestion, "noise_finding", set_noise)
    return levels


def found_in(
    video: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, str], list[str]]:
    """The verdicts by name, and the command lines."""
    capsys.readouterr()
    assert run(video, "--json", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    verdicts = {each["name"]: each["verdict"] for each in found["findings"]}
    return verdicts, [each["line"] for each in found["commands"]]


def test_noise_is_found_where_it_was_put(tmp_path, capsys, monkeypatch):
    def noisy(
        pix_fmt: str, number: int, width: int, height: int
    ) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(number)
        ramp = np.linspace(20, 235, width)
        return (
            np.rint(ramp + rng.normal(0, 15, (height, width)))
            .clip(0, 255)
            .astype(np.uint8),
        )

    monkeypatch.setattr("sample_videos.sample_planes", noisy)
    write_video(tmp_path / "in.mkv", 12, pix_fmt="gray", size=(192, 160))
    verdicts, lines = found_in(tmp_path / "in.mkv", capsys)
    assert verdicts["noise"] == "yes"
    assert verdicts["blur"] == "unknown"
    assert lines[0] == f"vidrestore denoise {tmp_path / 'in.mkv'}"


def test_noise_in_a_third_of_a_short_video_is_not_taken_for_that_of_all(
    tmp_path, levels, monkeypatch
):
    def noisy_at_first(
        pix_fmt: str, number: int, width: int, height: int
    ) -> tuple[np.ndarray, ...]:
        noise = np.random.default_rng(number).normal(
            0, 15 * (number < 8), (height, width)
        )
        return (
            np.rint(np.linspace(20, 235, width) + noise).clip(0, 255).astype(np.uint8),
        )

    monkeypatch.setattr("sample_videos.sample_planes", noisy_at_first)
    write_video(tmp_path / "in.mkv", 24, pix_fmt="gray", size=(192, 160))
    found, (place,) = suggestion.suggest(str(tmp_path / "in.mkv"))
    (noise,) = (finding for finding in found.findings if finding.name == "noise")
    assert noise.reason == "none that removing it would help"
    assert len(place.frames) == 24


def test_an_old_film_gets_one_command_for_its_flicker_dust_and_grain_and_none_for_blur(
    tmp_path, capsys
):
    write_film(tmp_path / "film.mkv")
    assert run("--json", tmp_path / "film.mkv") == 0
    suggested = json.loads(capsys.readouterr().out)
    verdicts = {
        finding["name"]: finding["verdict"] for finding in suggested["findings"]
    }
    assert (verdicts["flicker"], verdicts["dust"], verdicts["blur"]) == (
        "yes",
        "yes",
        "no",
    )
    assert "--steps deflicker,dedust" in suggested["commands"][0]["line"]
    assert not any("deblur" in tried["line"] for tried in suggested["commands"])


def write_film(path: Path) -> None:
    """Twenty frames of a blurred pattern, each of its own brightness, with eight specks of its own."""
    generator = np.random.default_rng(2)
    pattern = torch.from_numpy(
        generator.uniform(0.3, 0.7, (1, 1, 40, 52)).astype(np.float32)
    )
    large = torch.nn.functional.interpolate(pattern, (160, 208), mode="bicubic")[
        0, 0
    ].numpy()
    with av.open(str(path), "w") as output:
        stream = output.add_stream("ffv1", rate=24)
        stream.width, stream.height, stream.pix_fmt = 208, 160, "gray"
        for _ in range(20):
            samples = 255 * large * (1 + 0.05 * generator.normal())
            for row, column in generator.integers(8, 148, (8, 2)):
                samples[row : row + 3, column : column + 3] = (
                    0 if generator.random() < 0.7 else 255
                )
            samples = samples.round().clip(0, 255).astype(np.uint8)
            output.mux(
                stream.encode(av.VideoFrame.from_ndarray(samples, format="gray"))
            )
        output.mux(stream.encode())


@pytest.mark.parametrize(
    ("derain", "desnow", "verdict", "task"),
    [
        (0.8, 9.0, "no", ""),
        (2.0, 1.5, "maybe", "derain"),
        (3.0, 2.9, "yes", "derain"),
        (2.8, 6.0, "yes", "desnow"),
    ],
)
def test_rain_and_snow_are_judged_by_what_their_networks_change(
    derain, desnow, verdict, task, video, levels, capsys
):
    levels |= {"derain": derain, "desnow": desnow}
    verdicts, lines = found_in(video, capsys)
    assert verdicts["rain or snow"] == verdict
    lines = [line for line in lines if "derain" in line or "desnow" in line]
    end = " --preview 5s" if verdict == "maybe" else ""
    assert (lines[:1] == [f"vidrestore {task} '{video}'{end}"]) == bool(task)


def test_strong_noise_hides_rain(video, levels, capsys):
    levels |= {"noise": 9.0, "derain": 5.0}
    verdicts, lines = found_in(video, capsys)
    assert verdicts["rain or snow"] == verdicts["blur"] == "unknown"
    assert not [line for line in lines if "derain" in line]


def test_several_findings_are_one_command_and_all_commands_are_understood(
    video, levels, capsys
):
    levels |= {"noise": 5.0, "dehaze": 30.0}
    _, lines = found_in(video, capsys)
    assert lines[0] == f"vidrestore run '{video}' --steps denoise,dehaze"
    assert lines[-1] == f"vidrestore run '{video}' --steps denoise,dehaze,sr"
    group = get_command(app)
    for line in lines:
        arguments = re.sub("'[^']*'", "IN", line).split()[1:]
        name, command, rest = group.resolve_command(
            group.make_context("vidrestore", list(arguments)), arguments
        )
        command.make_context(
            name, rest, parent=group.make_context("vidrestore", list(arguments))
        )


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_the_first_command_for_a_tape_is_that_of_the_readme(
    tmp_path, levels, capsys, repository, noise
):
    levels["noise"] = noise
    frames = interlaced(moments(24, 1))
    frames[4][51, 40:100] = frames[7][70, 20:90] = 240
    for number, frame in enumerate(frames):
        frame[-8:] = np.roll(frame[-8:], 12 + number % 3, axis=1)
    write_frames(tmp_path / "tape.mkv", frames, Fraction(25), order="tt")
    verdicts, lines = found_in(tmp_path / "tape.mkv", capsys)
    assert (
        verdicts["interlacing"]
        == verdicts["dropouts"]
        == verdicts["torn lines"]
        == "yes"
    )
    assert lines[0] == f"vidrestore denoise {tmp_path / 'tape.mkv'} --double-rate"
    assert [line for line in lines if " denoise " in line] == lines[:1]
    for page in ("README.md", "examples/README.md"):
        assert (
            "vidrestore denoise tape.avi --double-rate"
            in (repository / page).read_text()
        )


@pytest.mark.parametrize("kind, verdict", [("film", "yes"), ("whole", "no")])
def test_film_in_fields_is_named_with_the_reason_and_its_recipe(
    tmp_path, levels, capsys, kind, verdict
):
    if kind == "film":
        write_frames(tmp_path / "in.mkv", telecined(moments(24)))
    else:
        write_frames(tmp_path / "in.mkv", moments(24), Fraction(25), order="tt")
    verdicts, lines = found_in(tmp_path / "in.mkv", capsys)
    assert verdicts["interlacing"] == verdict
    assert lines.count(f"vidrestore denoise {tmp_path / 'in.mkv'}") == 1
    levels["noise"] = 5.0
    _, lines = found_in(tmp_path / "in.mkv", capsys)
    assert lines.count(f"vidrestore denoise {tmp_path / 'in.mkv'}") == 1


def test_the_text_gives_reasons_and_a_line_if_nothing_is_to_be_tried(
    tmp_path, levels, capsys
):
    rng = np.random.default_rng(1)
    picture = np.kron(rng.integers(0, 255, (90, 160, 3)), np.ones((8, 8, 1))).astype(
        np.uint8
    )
    (tmp_path / "sharp.png").write_bytes(png(picture))
    assert run(tmp_path / "sharp.png", "-q") == 0
    text = capsys.readouterr().out
    assert re.search(
        r"  blur          no       edges have 0.8\d of their gradients at half size",
        text,
    )
    assert "  size          no       1280x720" in text
    assert text.endswith("nothing to try\n")


def test_edges_that_are_ramps_are_less_steep_beside_their_half_size():
    step = torch.zeros(3, 64, 64)
    step[..., 32:] = 1
    ramp = ((torch.arange(64.0) - 28) / 8).clamp(0, 1).expand(3, 64, 64)
    assert edge_ratio(step) == pytest.approx(1)
    assert edge_ratio(ramp) == pytest.approx(0.5)


def pictures_of(page: Path) -> list[np.ndarray]:
    found = re.findall(
        r'src="data:image/png;base64,([^"]+)"', page.read_text(encoding="utf-8")
    )
    pictures = []
    for number, text in enumerate(found):
        (page.parent / f"{number}.png").write_bytes(base64.b64decode(text))
        pictures.append(read_rgb(page.parent / f"{number}.png"))
    return pictures


def test_a_sheet_shows_the_source_and_the_tasks_at_three_strengths(
    video, levels, capsys
):
    levels["noise"] = 5.0
    page = video.with_name("sheet.html")
    assert run(video, "--sheet", page, "--device", "cpu") == 0
    names = "as it is, denoise, denoise at strength 0.7, denoise at strength 0.4"
    assert f": {names}" in capsys.readouterr().out.replace("\n  ", " ")
    text = page.read_text(encoding="utf-8")
    assert (
        f"<code>vidrestore denoise &#x27;{video}&#x27; <span>--strength</span> 0.7</code>"
        in text
    )
    pictures = pictures_of(page)
    assert len(pictures) == 3 * 4
    # the model changes nothing
    assert all((pictures[0] == each).all() for each in pictures[1:4])
    assert (pictures[0] != pictures[4]).any()  # another place


def test_a_sheet_of_noisy_fields_of_more_rows_than_it_shows_is_made(
    tmp_path, levels, monkeypatch
):
    """Fields are woven, from both of a frame, only where noise is removed."""
    monkeypatch.setattr(variant_sheet, "LARGEST_PLACE", (112, 160))
    monkeypatch.setattr(variant_sheet, "STRENGTHS", (1.0,))
    monkeypatch.setitem(TASKS, "denoise", DENOISE)
    tape, levels["noise"] = tmp_path / "tape.mkv", 5.0
    write_frames(tape, interlaced(moments(16, sigma=20)), order="tt")
    assert (
        run(tape, "--sheet", tape.with_name("sheet.png"), "--device", "cpu", "-q") == 0
    )
    assert (read_rgb(tape.with_name("sheet.png")) > 0).any()


@pytest.mark.parametrize("rows", [89, 90, 91, 93])
def test_a_crop_begins_with_a_row_of_the_same_field_and_has_both_fields_of_a_frame(
    rows,
):
    pixels = layout_of("yuv420p").format
    planes = tuple(
        np.arange(plane)[:, None] % 2 + np.zeros(16) for plane in (rows * 2, rows, rows)
    )
    video = VideoInfo(0, "", 16, rows * 2, pixels, Fraction(1))
    (crop,), small = variant_sheet.cropped(
        [Frame(planes, 0, second=planes)], video, (rows, 16)
    )
    assert (small.height, len(crop.planes[0]), len(crop.second[0])) == (
        rows,
        rows,
        rows,
    )
    assert all((plane[::2] == 0).all() for plane in (*crop.planes, *crop.second))


def test_a_video_that_is_cut_short_is_looked_at_where_it_begins(given, levels, capsys):
    verdicts, _ = found_in(given("film_cut_short.mp4"), capsys)
    assert verdicts["interlacing"] == "no"


def test_a_sheet_may_be_one_picture(video, levels):
    assert (
        run(video, "--sheet", video.with_name("sheet.png"), "--device", "cpu", "-q")
        == 0
    )
    assert read_rgb(video.with_name("sheet.png")).shape == (
        3,
        3 * (80 + 8),
        4 * (96 + 8),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-",), "which a pipe doesn't have"),
        (("absent.mp4", "--sheet", "x.pdf"), "ends with .html or .png"),
    ],
)
def test_what_can_not_be_looked_at_is_refused(arguments, message, capsys):
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


def test_photographs_of_a_folder_are_looked_at_each_by_itself_as_denoise_takes_them(
    tmp_path, capsys, levels
):
    levels["noise"] = 9.0
    for name, side in {"one.jpg": 64, "two.jpg": 80, "three.jpg": 96}.items():
        picture = np.random.default_rng(2).integers(0, 255, (side, 96, 3), np.uint8)
        frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuvj444p")
        write_frame(tmp_path / name, "mjpeg", frame)
    assert run(tmp_path, "--device", "cpu") == 0
    shown = capsys.readouterr().out
    for name in ("one.jpg", "two.jpg", "three.jpg"):
        assert f"vidrestore denoise {tmp_path / name}" in shown
    assert run(tmp_path, "--sheet", tmp_path / "sheet.png", "--device", "cpu") == 2
    assert "a sheet shows one of its 3 files; name that one" in capsys.readouterr().err


def test_a_broken_photograph_of_several_is_named_at_the_end_and_the_others_looked_at(
    tmp_path, capsys, levels
):
    levels["noise"] = 9.0
    for name in ("one.jpg", "two.png", "three.jpg"):
        picture = np.random.default_rng(2).integers(0, 255, (64, 96, 3), np.uint8)
        frame = av.VideoFrame.from_ndarray(picture, "rgb24")
        codec, pixels = ("png", "rgb24") if "png" in name else ("mjpeg", "yuvj444p")
        write_frame(tmp_path / name, codec, frame.reformat(format=pixels))
    (tmp_path / "one.jpg").write_bytes(b"no picture")
    # of several kinds, as the message asks for
    assert run(tmp_path, "--device", "cpu") == 1
    assert "--photos to restore each by itself" in capsys.readouterr().err
    assert run(tmp_path, "--photos", "--device", "cpu") == 3
    shown = capsys.readouterr()
    for name in ("two.png", "three.jpg"):
        assert f"vidrestore denoise {tmp_path / name}" in shown.out
    assert f"1 of 3 inputs failed: {tmp_path / 'one.jpg'}" in shown.err


def test_a_video_cut_short_before_the_first_place_is_looked_at_as_far_as_it_goes(
    tmp_path, capsys, levels
):
    film = tmp_path / "in.mp4"
    write_video(film, 60, "libx264", size=(96, 80), container={"movflags": "faststart"})
    cut_short(film, 0.05)
    verdicts, _ = found_in(film, capsys)
    assert verdicts["damage"] == "yes" and verdicts["blur"] == "no"
    cut_short(film, 0.3)
    assert run(film, "--device", "cpu") == 1
    assert "0 frames that can be decoded" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", [["sr"], ["denoise", "sr"]])
def test_a_name_that_begins_with_a_dash_is_no_option_of_the_suggested_command(tasks):
    words = shlex.split(command_line("-film.mp4", tasks))
    assert words[2] == "./-film.mp4"


def test_no_preview_is_proposed_of_a_photograph(tmp_path, levels, capsys):
    levels |= {"derain": 2.0, "desnow": 1.5}
    photograph = tmp_path / "rain.png"
    photograph.write_bytes(png(np.full((64, 80, 3), 128, np.uint8)))
    verdicts, lines = found_in(photograph, capsys)
    assert verdicts["rain or snow"] == "maybe"
    assert lines[0] == f"vidrestore derain {photograph}"
    levels |= {"derain": 3.0, "desnow": 2.9}
    found_in(photograph, capsys)
    assert run(photograph) == 0
    assert "--preview" not in capsys.readouterr().out
