"""`vidrestore sense` and `vidrestore recover` from the command line."""

import io
import json
import sys
from pathlib import Path

import av
import pytest
from command_line import run
from sample_videos import write_video
from sensing_networks import exact_network, save_network
from written_videos import pictures


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    save_network(tmp_path / "weights" / "exact.safetensors", exact_network())
    return tmp_path / "weights" / "exact.safetensors"


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "video.mkv", 5, size=(22, 18))
    return tmp_path / "video.mkv"


def test_a_video_goes_out_and_comes_back(video, model, capsys):
    between, output = video.with_name("m.safetensors"), video.with_name("out.mkv")
    assert run("sense", video, "--model", model, "-o", between) == 0
    assert "m.safetensors: 5 frames in" in capsys.readouterr().out
    assert (
        run(
            "recover",
            between,
            "--model",
            model,
            "-o",
            output,
            "--lossless",
            "--precision",
            "fp32",
        )
        == 0
    )
    assert "out.mkv: 5 frames in" in capsys.readouterr().out
    assert pictures(output) == pictures(video)


def test_what_was_finished_before_is_not_done_again(video, model, capsys):
    """As after a kill once the output had its name."""
    between, output = video.with_name("m.safetensors"), video.with_name("out.mkv")
    sense, recover = (
        ("sense", video, "--model", model, "-o", between),
        ("recover", between, "--model", model),
    )
    for command in (
        sense,
        (*recover, "-o", output),
        (*recover, "-o", output.with_name("p") / "%04d.png"),
    ):
        assert run(*command) == 0
        before = {
            path: path.stat().st_mtime_ns
            for path in video.parent.rglob("*")
            if path.is_file()
        }
        capsys.readouterr()
        assert run(*command) == 0
        assert "skipped, finished before" in capsys.readouterr().out
        assert before == {path: path.stat().st_mtime_ns for path in before}
    assert (
        run(*sense, "--sigma", "2") == 1 and "already exists" in capsys.readouterr().err
    )
    write_video(video, 6, size=(22, 18))  # another video
    assert run(*sense) == 1 and "already exists" in capsys.readouterr().err
    assert (
        run(*recover, "-o", output, "--lossless") == 1
        and "already exists" in capsys.readouterr().err
    )


def test_refused_options_are_an_event_too(video, capsys):
    assert (
        run("sense", video, "-o", video.with_name("m.safetensors"), "--json", "-q") == 2
    )
    (event,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (
        event["event"] == "error" and "a rate such as 0.2 is needed" in event["message"]
    )


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (
            "sense VIDEO --rate 0.77 -o m.safetensors",
            2,
            "no weights for a rate of 0.77; there are:",
        ),
        ("sense nothing.mkv --model MODEL -o m.safetensors", 1, "no such file"),
        ("sense VIDEO --model MODEL -o m.mkv", 1, "written as .safetensors"),
        ("recover VIDEO -o out.mkv", 1, "not a file of measurements"),
        (
            "recover nothing.safetensors -o out.mkv",
            1,
            "nothing.safetensors: can't be read",
        ),
        ("recover MODEL -o out.mkv", 1, "not a file of measurements"),
        ("recover MODEL -o out.mkv --cfr 25", 2, "is for a pipe"),
    ],
)
def test_what_is_wrong_is_reported_with_its_exit_code(
    arguments, code, message, video, model, capsys, monkeypatch
):
    monkeypatch.chdir(video.parent)
    names = {"VIDEO": video, "MODEL": model}
    assert (
        run(*(names.get(argument, argument) for argument in arguments.split())) == code
    )
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert sorted(path.name for path in video.parent.iterdir()) == [
        "video.mkv",
        "weights",
    ]


def test_pipes_at_both_ends(model, monkeypatch):
    stream, result = io.BytesIO(), io.BytesIO()
    write_video(
        Path("in.y4m"),
        23,
        "wrapped_avframe",
        size=(24, 18),
        file=stream,
        format="yuv4mpegpipe",
    )
    between = model.with_name("m.safetensors")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stream.getvalue())))
    assert run("sense", "-", "--model", model, "-o", between, "-q") == 0
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(result))
    assert (
        run(
            "recover", between, "--model", model, "-o", "-", "-q", "--precision", "fp32"
        )
        == 0
    )
    with (
        av.open(io.BytesIO(result.getvalue())) as after,
        av.open(io.BytesIO(stream.getvalue())) as before,
    ):
        for found, wanted in zip(
            after.decode(video=0), before.decode(video=0), strict=True
        ):
            assert (found.to_ndarray() == wanted.to_ndarray()).all()
