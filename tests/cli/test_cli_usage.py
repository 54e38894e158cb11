"""A wrong command line is one plain line on stderr and exit code 2."""

import pytest
from command_line import run


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("denoise a.mp4 --sigma abc", ("--sigma", "a number such as 20, or auto", "denoise --help")),
        ("denoise a.mp4 --threads x", ("--threads", "integer")),
        ("denoise a.mp4 --crf high", ("--crf", "number")),
        ("denoise a.mp4 --shard 9/8", ("--shard", "from 1/8 to 8/8", "got '9/8'")),
        ("denoise a.mp4 --engine moon", ("'moon' is not one of 'local', 'ray'",)),
        ("denoise a.mp4 --sigm 3", ("--sigm", "--sigma")),
        ("denoise a.mp4 --zzz", ("--zzz", "denoise --help")),
        ("train --config a.toml --threads -1", ("--threads", "0")),
        ("train", ("--config", "train --help")),
        ("weights import", ("source", "weights import --help")),
        ("denoise a.mp4 --crf", ("--crf",)),
        ("denoise a.mp4 --quiet=yes", ("--quiet", "not take a value")),
        ("polish a.mp4", ("'polish'", "vidrestore --help")),
        ("denoise -i a.mp4", ("-i",)),
        ("inspect a.mp4 b.mp4", ("b.mp4", "inspect --help")),
        ("run a.mp4 --steps denoise, sr", ("--steps", "a name is missing beside a comma")),
        ("denoize a.mp4", ("'denoize'", "'denoise'")),
        ("upscale a.mp4", ("'upscale'", "Did you mean 'sr'")),
        ("denoise a.mp4 --verbos", ("--verbose",)),
        ("denoise a.mp4 --preview 1s --dry-run", ("--preview", "--dry-run", "leave one out")),
    ],
)
def test_a_wrong_command_line_is_one_plain_line(capsys, arguments, words):
    code = run(*arguments.split())
    printed = capsys.readouterr()
    assert (code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert printed.err.startswith("vidrestore: ") and all(word in printed.err for word in words)


def test_a_file_in_the_place_of_the_command_names_where_it_goes(tmp_path, capsys):
    (tmp_path / "in.mp4").touch()
    run(f"{tmp_path}/in.mp4", "denoise")
    way_out = f"name the command first, such as vidrestore denoise {tmp_path}/in.mp4"
    assert capsys.readouterr().err == f"vidrestore: {tmp_path}/in.mp4 is no command; {way_out}\n"


def test_an_output_without_its_option_is_reported_before_any_work(tmp_path, capsys):
    (tmp_path / "in.mp4").touch()
    assert run("denoise", f"{tmp_path}/in.mp4", "out.mp4") == 2
    assert capsys.readouterr().err == (
        "vidrestore: out.mp4: no such file; if it is to be written, use -o out.mp4\n"
    )


@pytest.mark.parametrize("arguments", [[], ["weights"]])
def test_without_a_command_the_help_is_all_there_is(capsys, arguments):
    assert run(*arguments) == 2
    said = capsys.readouterr()
    assert "Usage: " in said.out and not said.err
