"""A wrong command line is one plain line on stderr and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from vidrestore.cli import main


@pytest.mark.parametrize(
    "arguments, line",
    [
        ("denoise a.mp4 --sigma abc", "--sigma: expected a number such as 20, or auto, got 'abc'"),
        ("denoise a.mp4 --threads x", "--threads: expected a whole number, got 'x'"),
        ("denoise a.mp4 --crf high", "--crf: expected a number, got 'high'"),
        ("denoise a.mp4 --shard 9/8", "--shard: expected I/N, from 1/8 to 8/8 for instance, got '9/8'"),
        ("denoise a.mp4 --engine moon", "--engine: 'moon' is not one of 'local', 'ray'"),
        ("denoise a.mp4 --sigm 3", "there is no option --sigm; did you mean --sigma?"),
        ("denoise a.mp4 --zzz", "there is no option --zzz; see vidrestore denoise --help"),
        ("train --config a.toml --threads -1", "--threads: expected 0 or more, got '-1'"),
        ("train", "--config is missing; see vidrestore train --help"),
        ("weights import", "SOURCE is missing; see vidrestore weights import --help"),
        ("denoise a.mp4 --crf", "--crf needs a value"),
        ("denoise a.mp4 --quiet=yes", "--quiet takes no value"),
        ("polish a.mp4", "no such command 'polish'; see vidrestore --help"),
        ("help denoise", "no such command 'help'; did you mean --help?"),
        ("denoise -i a.mp4", "there is no option -i; name the input without one"),
        ("inspect a.mp4 b.mp4", "one word too many: b.mp4; see vidrestore inspect --help"),
        (
            "run a.mp4 --steps denoise, sr",
            "--steps denoise,: a name is missing beside a comma; expected A,B without spaces",
        ),
        ("denoize a.mp4", "no such command 'denoize'; did you mean denoise or desnow or dehaze?"),
        (
            "denoise a.mp4 --preview 1s --dry-run",
            "--preview writes a file and --dry-run none; leave one out",
        ),
    ],
)
def test_a_wrong_command_line_is_one_plain_line(
    capsys: pytest.CaptureFixture[str], arguments: str, line: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    said = capsys.readouterr()
    assert (end.value.code, said.out, said.err) == (2, "", f"vidrestore: {line}\n")


def test_a_file_in_the_place_of_the_command_is_told_where_to_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.mp4").touch()
    with pytest.raises(SystemExit):
        main([f"{tmp_path}/in.mp4", "denoise"])
    way_out = f"name the command first, such as vidrestore denoise {tmp_path}/in.mp4"
    assert capsys.readouterr().err == f"vidrestore: {tmp_path}/in.mp4 is no command; {way_out}\n"


def test_an_output_without_its_option_is_told_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.mp4").touch()
    with pytest.raises(SystemExit) as end:
        main(["denoise", f"{tmp_path}/in.mp4", "out.mp4"])
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "vidrestore: out.mp4: no such file; if it is to be written, use -o out.mp4\n"
    )


@pytest.mark.parametrize("arguments", [[], ["weights"]])
def test_without_a_command_the_help_is_all_there_is(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()
    assert end.value.code == 2 and "Usage: " in said.out and not said.err
