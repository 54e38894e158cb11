"""`vidrestore denoise` from the command line, with a model that changes nothing."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from command_line import python
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from no_change import WITH_IDENTITY
from sample_pictures import write_rgb
from sample_videos import cut_short, write_video
from written_videos import extras, frames_of, rich_video

from vidrestore.cli import restoring
from vidrestore.errors import OptionError
from vidrestore.events import SCHEMA_VERSION, Event, Failed, Progressed
from vidrestore.jobs.preview import side_by_side
from vidrestore.media.reading.probe import probe
from vidrestore.pixels.frames import Frame, PixelFormat


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "video.mkv", 5)
    return tmp_path / "video.mkv"


def test_the_first_stage_is_shown_before_anything_heavy_is_imported(video, monkeypatch):
    events: list[Event] = []

    def fails(*given: object) -> None:
        raise OptionError("the inputs were looked at")

    monkeypatch.setattr(
        restoring, "listening", lambda *given, **more: nullcontext(events.append)
    )
    monkeypatch.setattr(restoring, "_batch", fails)
    assert run(video) == 2
    assert [type(event) for event in events] == [Progressed, Failed]
    assert events[0] == Progressed(str(video), 0, stage="load")


def test_the_output_is_named_after_the_input_and_in_the_summary(video, capsys):
    assert run(video) == 0
    assert len(frames_of(video.with_name("video.denoised.mkv"))) == 5
    assert "video.denoised.mkv: 5 frames in" in capsys.readouterr().out


def test_an_existing_output_ends_with_1_unless_it_may_be_replaced(video, capsys):
    output = video.with_name("out.mkv")
    output.write_text("precious")
    assert run(video, "-o", output) == 1
    assert "already exists; add --overwrite" in capsys.readouterr().err
    assert output.read_text() == "precious"
    assert run(video, "-o", output, "--overwrite", "--quiet") == 0
    assert len(frames_of(output)) == 5


def test_of_several_inputs_one_that_fails_ends_with_3_and_the_others_are_done(video):
    broken = video.with_name("broken.mp4")
    broken.write_bytes(b"")
    assert run(broken, video, "-q") == 3
    assert len(frames_of(video.with_name("video.denoised.mkv"))) == 5
    assert run(broken, "-q") == 1


def test_a_damaged_source_ends_with_4_and_its_output_stays(video, capsys):
    write_video(video, 40)
    cut_short(video)
    assert run(video) == 4
    assert "damaged" in capsys.readouterr().err
    assert 0 < len(frames_of(video.with_name("video.denoised.mkv"))) < 40


def test_a_folder_again_takes_no_output_of_ours_and_what_is_done_counts_as_done(
    video, capsys
):
    folder = video.parent
    assert run(folder, "-q") == 0
    assert capsys.readouterr() == ("", "")
    assert run(folder) == 0
    printed = capsys.readouterr()
    assert (
        printed.out.endswith("video.denoised.mkv: skipped, finished before\n")
        and not printed.err
    )
    assert sorted(path.name for path in folder.iterdir()) == [
        "video.denoised.mkv",
        "video.mkv",
    ]


def test_json_is_one_event_per_line_and_nothing_else(video, capsys):
    assert run(video, "--json", "--quiet") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events if event["event"] != "progress"] == [
        "start",
        "plan",
        "done",
    ]
    assert {event["version"] for event in events} == {SCHEMA_VERSION}
    assert events[-1]["frames"] == 5 and events[-1]["exit_code"] == 0


def test_json_numbers_several_inputs_and_their_progress_ends_at_the_total(
    video, capsys
):
    write_video(video.with_name("other.mkv"), 3)
    assert run(video, video.with_name("other.mkv"), "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for number, name, frames in ((1, "video.mkv", 5), (2, "other.mkv", 3)):
        own = [event for event in events if event["source"].endswith(name)]
        assert {(event["index"], event["count"]) for event in own} == {(number, 2)}
        last = [event for event in own if event["event"] == "progress"][-1]
        assert (last["stage"], last["done"], last["total"]) == ("join", frames, frames)


@pytest.mark.parametrize(
    ("inputs", "source", "kind", "code"),
    [
        (["missing.mkv"], "missing.mkv", "MediaError", 1),
        (["empty"], "empty", "MediaError", 1),
        (["video.mkv", "video.mkv", "empty"], "", "MediaError", 1),
        (["video.mkv", "--strength", "2"], "", "OptionError", 2),
    ],
)
def test_an_error_before_work_begins_is_one_event_and_is_printed_once(
    video, monkeypatch, capsys, inputs, source, kind, code
):
    monkeypatch.chdir(video.parent)
    (video.parent / "empty").mkdir()
    assert run(*inputs, "--json") == code
    printed = capsys.readouterr()
    (event,) = map(json.loads, printed.out.splitlines())
    expected = {"event": "error", "source": source, "kind": kind, "exit_code": code}
    assert (
        event | expected == event and printed.err == f"vidrestore: {event['message']}\n"
    )


def test_of_several_inputs_one_whose_output_exists_is_left_alone_with_a_line(
    video, capsys
):
    write_video(other := video.with_name("other.mkv"), 3)
    video.with_name("video.denoised.mkv").write_bytes(b"precious")
    assert run(video, other, "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (event,) = (
        event
        for event in events
        if event["source"] == str(video) and event["event"] != "progress"
    )
    assert event["event"] == "warning" and "left alone: " in event["message"]
    assert video.with_name("video.denoised.mkv").read_bytes() == b"precious"
    assert video.with_name("other.denoised.mkv").exists()


@pytest.mark.skipif(
    sys.platform != "linux", reason="other file systems refuse such names"
)
@pytest.mark.parametrize(
    "name", ["漢字.mkv", "\udcff.mkv"], ids=["letters", "no letters"]
)
def test_a_name_that_the_terminal_cannot_encode_is_escaped(video, name, monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(
        sys, "stdout", io.TextIOWrapper(output, encoding="ascii", errors="strict")
    )
    assert run(video.rename(video.with_name(name))) == 0
    sys.stdout.flush()
    assert b"5 frames in" in (shown := output.getvalue())
    assert name.encode("ascii", "backslashreplace") in shown


def test_a_preview_shows_source_and_result_side_by_side(tmp_path):
    video = tmp_path / "video.mkv"
    write_video(video, 60, size=(65, 48))
    assert run(video, "--preview", "1s", "--lossless", "-q") == 0
    with (
        av.open(str(video)) as before,
        av.open(str(tmp_path / "video.preview.mkv")) as after,
    ):
        # from a third of the video on
        wanted = [
            frame.to_ndarray(format="gray")[:, :64] for frame in before.decode(video=0)
        ][20:45]
        shown = [frame.to_ndarray(format="gray") for frame in after.decode(video=0)]
    assert len(shown) == 25
    for picture, original in zip(shown, wanted, strict=True):
        np.testing.assert_array_equal(picture, np.hstack([original, original]))


def test_a_part_whose_sound_begins_before_the_picture_is_kept(repository, tmp_path):
    """A packet of AAC begins 21 ms early, and FFmpeg takes its start for that of the picture."""
    part = tmp_path / "part.mkv"
    assert (
        run(
            repository / "examples" / "noisy.mp4", "--duration", "0.1", "-o", part, "-q"
        )
        == 0
    )
    with av.open(str(part)) as container:
        ends = [
            packet.pts + packet.duration
            for packet in container.demux(video=0)
            if packet.size
        ]
    assert max(ends) == 120


def test_a_named_video_that_was_made_of_another_one_is_left_out_with_a_warning(
    video, capsys
):
    assert run(video) == 0
    made = video.with_name("video.denoised.mkv")
    assert run(video, made) == 0
    assert (
        f"{made}: warning: left out: named like the output of {video}, which is restored, too"
        in capsys.readouterr().err
    )
    assert run(made, "-o", video.with_name("again.mkv")) == 0


# As FFmpeg's display matrices have it: what turns the stored picture clockwise, and mirrors it.
TURNS = {
    "half": (-1, 0, 0, -1),
    "mirrored": (-1, 0, 0, 1),
    "clockwise": (0, 1, -1, 0),
    "back": (0, -1, 1, 0),
    "upside down": (1, 0, 0, -1),
}


@pytest.mark.parametrize("turn", TURNS)
def test_a_preview_reads_from_left_to_right_however_the_video_is_turned(turn):
    a, b, c, d = TURNS[turn]
    video = SimpleNamespace(
        format=PixelFormat("gray", "gray", 8),
        display_matrix=(a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30),
    )
    one, two = (Frame((np.full((4, 6), value, np.uint8),), 0, 1) for value in (1, 2))
    stored = side_by_side(one, two, video).planes[0]
    rows, columns = np.mgrid[: stored.shape[0], : stored.shape[1]]
    # the place of each pixel from left to right as it is shown
    across = a * columns + c * rows
    assert across[stored == 1].max() < across[stored == 2].min()


def test_a_preview_needs_no_container_for_the_other_streams(tmp_path, capsys):
    rich_video(
        tmp_path / "in.mkv", extras(audio=("pcm_s16le",), subtitles=("ass",), font=True)
    )
    arguments = (tmp_path / "in.mkv", "-o", tmp_path / "out.mp4", "-q")
    assert run(*arguments) == 1 and "can't hold stream" in capsys.readouterr().err
    assert run(*arguments[:-1], "--preview", "1s") == 0
    assert [stream.codec for stream in probe(str(tmp_path / "out.mp4")).streams] == [
        "h264"
    ]


def test_a_preview_of_a_short_video_is_the_video(video):
    assert run(video, "--preview", "1:00", "-q") == 0
    assert len(frames_of(video.with_name("video.preview.mkv"))) == 5


def test_a_preview_is_replaced_by_the_next_but_a_users_file_of_its_name_is_not(
    video, capsys
):
    preview = video.with_name("video.preview.mkv")
    assert run(video, "--preview", "1:00", "-q") == 0
    assert run(video, "--preview", "0.08", "--strength", "0.5", "-q") == 0
    assert len(frames_of(preview)) == 2
    # no preview is replaced by a whole video
    assert run(video, "-o", preview, "-q") == 1
    for other in (["--preview", "1:00", "--no-tags", "-y"], ["-o", preview, "-y"]):
        assert run(video, *other, "-q") == 0
        before = preview.read_bytes()
        capsys.readouterr()
        assert run(video, "--preview", "0.04", "-q") == 1
        assert "video.preview.mkv: already exists" in capsys.readouterr().err
        assert preview.read_bytes() == before


def test_a_preview_begins_within_the_picture_if_the_sound_lasts_longer(tmp_path):
    write_video(tmp_path / "in.mp4", 25, "libx264", sound=Fraction(8))
    assert run(tmp_path / "in.mp4", "--preview", "0.4", "-q") == 0
    assert len(frames_of(tmp_path / "in.preview.mp4")) == 10


def test_a_dry_run_prints_the_plan_and_writes_nothing(video, capsys):
    assert run(video, "--dry-run", "-q") == 0
    text = capsys.readouterr().out
    assert "5 frames, 1 scene, 1 clip, 0 other streams copied" in text
    assert "  ffv1 (" in text and "  encoder yuv420p " in text and "MB of video" in text
    assert text.count("ffv1") == 1 and re.search(
        r"about .* of work on \d+ cores? and ", text
    )
    assert [path.name for path in video.parent.iterdir()] == ["video.mkv"]


def test_a_dry_run_of_several_photos_is_brief_and_has_a_total(tmp_path, capsys):
    for number in range(2):
        write_rgb(
            tmp_path / f"{number}.png", np.full((3, 16, 24), 40 * number, np.uint8)
        )
    assert run(tmp_path, "--photos", "--dry-run") == 0
    *lines, total = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * 2 and re.search(
        r"2 of 2 inputs .*; in all about .* of work and 0\.0 MB$", total
    )


def test_a_dry_run_works_where_the_output_exists(video, capsys):
    there = video.with_name("video.denoised.mkv")
    there.write_bytes(b"something else")
    assert run(video, "--dry-run") == 0
    printed = capsys.readouterr()
    assert "5 frames" in printed.out and "already exists" in printed.err
    assert there.read_bytes() == b"something else"


def test_the_folder_of_an_output_is_made(video, tmp_path):
    assert run(video, "-o", tmp_path / "new" / "folder" / "out.mkv", "-q") == 0
    assert len(frames_of(tmp_path / "new" / "folder" / "out.mkv")) == 5
    assert (
        run(tmp_path / "missing.mkv", "-o", tmp_path / "empty" / "out.mkv", "-q") == 1
    )
    assert not (tmp_path / "empty").exists()


def test_a_dry_run_leaves_no_folder_behind_for_its_outputs(video, tmp_path):
    (tmp_path / "there").mkdir()
    assert run(video, "-o", f"{tmp_path}/there/not/yet/", "--dry-run", "-q") == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["there", "video.mkv"]
    assert run(video, "-o", f"{tmp_path}/there/not/yet/", "-q") == 0
    assert (tmp_path / "there/not/yet/video.denoised.mkv").is_file()


def test_a_dry_run_reports_a_finished_video(video, capsys):
    write_video(video.with_name("other.mkv"), 2)
    videos = video, video.with_name("other.mkv"), "-o", f"{video.parent}/out/"
    assert run(*videos) == 0
    capsys.readouterr()
    assert run(*videos, "--dry-run") == 0
    assert capsys.readouterr().out.count("skipped, finished before") == 2
    assert (
        run(
            video,
            "-o",
            video.with_name("new.mkv"),
            "--dry-run",
            "--work-dir",
            video.parent / "no",
        )
        == 1
    )
    assert "the folder for the work does not exist" in capsys.readouterr().err


CLOSED = {
    "stdin": ("- -o a.mkv <&-", "standard input is closed"),
    "stdout": ("video.mkv -o - >&-", "standard output is closed"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize("which", CLOSED)
def test_a_pipe_that_is_closed_is_an_error(video, which):
    words, message = CLOSED[which]
    done = shell(f"{{denoise}} {words}", video.parent)
    assert (
        done.returncode == 1
        and message in done.stderr
        and "Traceback" not in done.stderr
    )


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs a file that is always full"
)
def test_videos_are_not_given_up_because_nobody_reads_about_them(
    video, monkeypatch, capsys
):
    write_video(video.with_name("other.mkv"), 2)
    with monkeypatch.context() as patched, open("/dev/full", "wb", buffering=0) as full:
        patched.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        assert (
            run(video, video.with_name("other.mkv"), "-o", f"{video.parent}/out/") == 0
        )
    printed = capsys.readouterr().err
    assert printed.count("stdout can't be written (No space left") == 1
    assert len(list(video.with_name("out").glob("*.denoised.mkv"))) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_a_video_is_restored_without_anywhere_to_report_to(video):
    assert (
        shell("{denoise} video.mkv -o silent.mkv >&- 2>&-", video.parent).returncode
        == 0
    )
    assert len(frames_of(video.with_name("silent.mkv"))) == 5


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(WITH_IDENTITY + 'main()')} denoise"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        command.format(denoise=program),
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_json_is_json_on_a_terminal_without_its_letters(video, monkeypatch):
    odd = video.rename(video.with_name("schön.mkv"))
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii"))
    assert run(odd, "--json", "-q") == 0
    sys.stdout.flush()
    assert {json.loads(line)["source"] for line in output.getvalue().splitlines()} == {
        str(odd)
    }


def test_a_dry_run_as_json_holds_the_plan(video, capsys):
    assert run(video, "--dry-run", "--json") == 0
    (event,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (event["event"], event["frames"], event["clips"]) == ("plan", 5, 1)
    assert len(event["details"]["plan"]["timeline"]["pts"]) == 5


def pipe(data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    code = WITH_IDENTITY + f"main({['denoise', *arguments]!r})"
    return python("-c", code, input=data, text=False)


def test_a_y4m_pipe_comes_out_as_it_went_in():
    stream = io.BytesIO()
    write_video(
        Path("in.y4m"), 30, "wrapped_avframe", file=stream, format="yuv4mpegpipe"
    )
    result = pipe(stream.getvalue(), "-", "-o", "-", "--quiet")
    assert result.returncode == 0, result.stderr.decode()
    with (
        av.open(io.BytesIO(result.stdout)) as after,
        av.open(io.BytesIO(stream.getvalue())) as before,
    ):
        for found, expected in zip(
            after.decode(video=0), before.decode(video=0), strict=True
        ):
            assert (found.to_ndarray() == expected.to_ndarray()).all()


def test_the_frames_of_a_part_are_known_before_they_come(tmp_path, capsys):
    write_video(tmp_path / "in.mkv", 12)
    # 0, 0.04 and 0.08 s
    assert run(tmp_path / "in.mkv", "--duration", "0.1", "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [
        event["frames"] for event in events if event["event"] in ("plan", "done")
    ] == [3, 3]


def test_a_folder_of_clashing_names_is_restored_and_a_clash_that_stays_fails_alone(
    tmp_path, capsys
):
    for name in ("one/tape.mpg", "one/tape.avi", "two/tape.avi"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_video(
            tmp_path / name, 3, "mpeg2video" if name.endswith("mpg") else "mpeg4"
        )
    assert run(tmp_path / "one", "-o", f"{tmp_path}/out/") == 0
    made = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert made == ["tape.avi.denoised.mkv", "tape.mpg.denoised.mkv"]
    assert run(tmp_path / "one", tmp_path / "two", "-o", f"{tmp_path}/all/") == 3
    assert [path.name for path in (tmp_path / "all").iterdir()] == [
        "tape.mpg.denoised.mkv"
    ]
    assert (
        "one/tape.avi: " in (printed := capsys.readouterr().err)
        and "would become" in printed
    )


def test_missing_inputs_are_named_before_the_work_on_the_others(tmp_path, capsys):
    for name in "ab":
        write_video(tmp_path / f"{name}.mkv", 2)
    assert (
        run(tmp_path / "a.mkv", tmp_path / "b.mkv", tmp_path / "gone.mkv", "--lossless")
        == 3
    )
    stderr = capsys.readouterr().err
    first = stderr.index(
        "gone.mkv: warning: no such file; the other inputs are restored"
    )
    assert first < stderr.index("a.mkv: denoise with")


def test_a_sigma_of_0_is_said_to_denoise_nothing(tmp_path, capsys):
    write_video(tmp_path / "a.mkv", 2)
    assert run(tmp_path / "a.mkv", "--sigma", "0", "--lossless") == 0
    assert (
        "--sigma 0 says that there is no noise: nothing is denoised"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "options, words",
    [
        (("--encoder", "libx264", "--crf", "99"), "--crf 99"),
        (("--encoder", "foo"), "no encoder"),
    ],
)
def test_a_wrong_option_is_said_before_an_output_that_exists(
    tmp_path, capsys, options, words
):
    write_video(tmp_path / "a.mkv", 2)
    assert run(tmp_path / "a.mkv", "--lossless", "-q") == 0
    assert run(tmp_path / "a.mkv", *options) in (1, 2)
    said = capsys.readouterr().err
    assert words in said and "already exists" not in said
    assert (
        run(tmp_path / "a.mkv", "--encoder", "libx264") == 1
        and "already exists" in capsys.readouterr().err
    )


def test_a_folder_whose_videos_are_below_names_the_option(tmp_path, capsys):
    (tmp_path / "films" / "below").mkdir(parents=True)
    write_video(tmp_path / "films" / "below" / "a.mkv", 2)
    assert run(tmp_path / "films") == 1
    assert "videos are in folders below: add --recursive" in capsys.readouterr().err
