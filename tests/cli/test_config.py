"""Defaults of options from the user's file and variables, and `vidrestore config`."""

from pathlib import Path

import pytest
from command_line import run

from vidrestore.cli import restoring
from vidrestore.cli.app import app
from vidrestore.settings.options import RestoreOptions


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, in a folder of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "vidrestore").mkdir()
    return tmp_path / "vidrestore" / "config.toml"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, RestoreOptions]]:
    """The task and the options that the library is asked for."""
    asked: list[tuple[str, RestoreOptions]] = []
    monkeypatch.setattr(
        restoring, "run_steps", lambda run, steps: asked.extend(steps())
    )
    return asked


def test_the_command_line_wins_over_variables_and_these_over_the_file(
    file, asked, monkeypatch
):
    line = ("denoise", "in.mp4")
    file.write_text("crf = 18\n[denoise]\nstrength = 0.6\n")
    assert run(*line) == 0
    monkeypatch.setenv("VIDRESTORE_CRF", "20")
    monkeypatch.setenv("VIDRESTORE_DENOISE_STRENGTH", "0.7")
    assert run(*line) == 0
    assert run(*line, "--crf", "22", "--strength", "0.8") == 0
    found = [(options.encoder.crf, options.strength) for _, options in asked]
    assert found == [(18, 0.6), (20, 0.7), (22, 0.8)]


def test_options_of_a_table_are_for_its_command_and_those_at_the_top_for_all(
    file, asked
):
    common = 'drop = "cover"\nencoder-option = ["a=b", "c=d"]\n'
    file.write_text(f'{common}[denoise]\nquality = "best"\nno-tags = true\n')
    assert run("denoise", "in.mp4") == run("dehaze", "in.mp4") == 0
    (_, denoise), (_, dehaze) = asked
    assert (denoise.quality, denoise.tags, denoise.drop) == ("best", False, {"cover"})
    assert (dehaze.quality, dehaze.tags, dehaze.drop) == ("default", True, {"cover"})
    assert denoise.encoder.options == dehaze.encoder.options == {"a": "b", "c": "d"}


def test_the_file_holds_for_commands_that_do_not_restore(file, capsys):
    file.write_text('[train]\nconfig = "absent.toml"\n')
    assert run("train", "--print-config") == 1
    assert "absent.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sigma = 20", "config.toml: no option --sigma for all commands"),
        ("[denoise]\nsgima = 20", "config.toml: denoise has no option --sgima"),
        ("[denois]\nsigma = 20", "config.toml: no command named 'denois'"),
        ("device =", "config.toml: can't be read as TOML"),
        ("[denoise]\nsigma = 'much'", "got 'much' (see `vidrestore config`)"),
    ],
)
def test_a_wrong_file_is_an_error_with_its_place(file, text, message, capsys):
    file.write_text(text)
    assert run("denoise", "in.mp4") in (1, 2)
    assert message in capsys.readouterr().err


def test_a_variable_turns_off_what_is_on(asked, monkeypatch):
    monkeypatch.setenv("VIDRESTORE_TAGS", "0")
    assert run("denoise", "in.mp4") == 0
    assert not asked[0][1].tags


def test_a_wrong_variable_is_named(file, capsys, monkeypatch):
    monkeypatch.setenv("VIDRESTORE_DENOISE_SIGMA", "much")
    assert run("denoise", "in.mp4") == 2
    assert "got 'much' (from VIDRESTORE_DENOISE_SIGMA)" in capsys.readouterr().err


def test_config_shows_every_value_with_its_origin(file, capsys, monkeypatch):
    file.write_text("threads = 2\n[denoise]\nstrength = 0.6\n")
    monkeypatch.setenv("VIDRESTORE_DEVICE", "cpu")
    assert run("config") == 0
    path, *lines = capsys.readouterr().out.splitlines()
    assert path == str(file) and lines[0] == f"  strength = 0.6  ({file}; denoise)"
    (threads,) = (
        line for line in lines if line.startswith(f"  threads = 2  ({file}; ")
    )
    (device,) = (
        line
        for line in lines
        if line.startswith("  device = cpu  (VIDRESTORE_DEVICE; ")
    )
    assert "train" in threads and "recover" in device


def test_config_shows_a_wrong_file_and_other_commands_name_a_missing_one(file, capsys):
    assert run("config") == 0
    assert f"{file}: not there; it would have device" in capsys.readouterr().out
    file.write_text("sigma = 20")
    assert run("config") == 2
    assert "no option --sigma for all commands" in capsys.readouterr().err


def test_help_needs_no_readable_file(file, capsys):
    file.write_text("sigma = ")
    assert run("--help") == 0
    assert app.info.help and "denoise in.mp4" in capsys.readouterr().out


def test_a_misspelt_variable_is_warned_of_once(file, asked, monkeypatch, capsys):
    monkeypatch.setenv("VIDRESTORE_DEVICES", "cpu")
    monkeypatch.setenv("VIDRESTORE_CRF", "20")
    assert run("denoise", "in.mp4") == 0
    warning = (
        "the variable VIDRESTORE_DEVICES sets no option; did you mean VIDRESTORE_DEVICE"
    )
    assert capsys.readouterr().err == f"vidrestore: warning: {warning}\n"
