"""What `--help` shows, and the options that are made from the fields of options classes."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import pytest
import typer
from command_line import python
from typer.testing import CliRunner

from vidrestore.cli import restoring
from vidrestore.cli.app import app
from vidrestore.cli.command_options import with_options
from vidrestore.media.formats.encoder_table import ENCODERS
from vidrestore.media.writing.encoders import GREATEST_CRF, LEAST_CRF
from vidrestore.restorers import picture_restorer, vsr_restorer
from vidrestore.settings.options import EncoderOptions, RestoreOptions, declared
from vidrestore.weights import read_manifest


def help_of(*arguments: str, columns: int = 200, flag: str = "--help") -> str:
    result = CliRunner().invoke(
        app, [*arguments, flag], env={"COLUMNS": str(columns), "NO_COLOR": "1"}
    )
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("name", ["dehaze", "sr"])
def test_an_option_stands_only_where_it_does_something(name):
    text = help_of(name, flag="--help-all")
    assert not [flag for flag in ("--sigma", "--quality", "--grain") if flag in text]
    assert ("--scale" in text) == (name == "sr")
    assert ("--haze" in text) == (name == "dehaze")
    assert CliRunner().invoke(app, [name, "in.mp4", "--sigma", "20"]).exit_code == 2


def commands(command: Any, *words: str) -> Iterator[Any]:
    """Yield a command and all below it, each with its words."""
    yield pytest.param(command, words, id=" ".join(words) or "vidrestore")
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)


@pytest.mark.parametrize("command, words", list(commands(typer.main.get_command(app))))
def test_each_command_has_a_help_whose_lines_fit_in_80_columns(command, words):
    assert "--help" in help_of(*words, columns=80)
    # the first is one line however it was written
    _, *paragraphs = command.help.split("\n\n")
    assert (
        max(
            (len(line.strip()) for lines in paragraphs for line in lines.split("\n")),
            default=0,
        )
        < 79
    )


@pytest.mark.parametrize("command, words", list(commands(typer.main.get_command(app))))
def test_flags_and_arguments_are_shown_without_a_type(command, words):
    assert not re.findall("<(?:bool|str|list|Path).*?>", help_of(*words, columns=120))


@pytest.mark.parametrize(
    "words, usage",
    [
        ("denoise", "[OPTIONS] [IN]..."),
        ("inspect", "[OPTIONS] IN"),
        ("bench", "[OPTIONS] [IN]"),
        ("weights pull", "[OPTIONS] ADDRESS..."),
        ("weights", "[OPTIONS] COMMAND [ARGS]..."),
    ],
)
def test_the_line_of_usage_is_as_elsewhere(words, usage):
    assert f"Usage: root {words} {usage}  " in help_of(*words.split(), columns=120)


def test_the_first_page_groups_the_commands():
    text = help_of()
    assert (
        text.index(" Restore ")
        < text.index(" denoise  ")
        < text.index(" Research ")
        < text.index(" sense  ")
    )


def flags(name: str, flag: str) -> list[str]:
    """The options that a help shows, each once."""
    return re.findall(r"^│ +(--[a-z-]+)", help_of(name, flag=flag), re.MULTILINE)


@pytest.mark.parametrize(
    "name, own",
    [("denoise", {"--sigma", "--quality"}), ("derain", set()), ("sr", {"--scale"})],
    ids=["denoise", "derain", "sr"],
)
def test_help_shows_the_ten_options_that_a_task_needs_and_help_all_the_others(
    name, own
):
    shared = "--strength --start --duration --output --preview --dry-run --overwrite --crf --device"
    short, long = flags(name, "--help"), flags(name, "--help-all")
    assert {*short} == {*shared.split(), "--help", "--help-all"} | own
    assert {*short} < {*long} and {"--no-tags", "--encoder-option", "--work-dir"} < {
        *long
    }
    assert len(long) <= 47


@pytest.mark.parametrize(
    "name", ["denoise", "dehaze", "derain", "desnow", "deblur", "sr", "run"]
)
def test_the_help_of_a_task_fits_on_a_screen(name):
    assert len(help_of(name, columns=80).splitlines()) <= 40


def test_the_panels_are_in_their_order():
    text = help_of("denoise", flag="--help-all")
    panels = ("Quality", "Input", "Output", "Encoding", "Resume and batches", "Machine")
    places = [text.index(f"─ {panel} ─") for panel in panels]
    assert places == sorted(places)


def test_the_help_names_the_defaults_that_the_library_has():
    text = help_of("denoise")
    assert f"lower is better. [default: ({LEAST_CRF:g} to {GREATEST_CRF:g})]" in text
    assert picture_restorer.OVERLAP == vsr_restorer.OVERLAP


# Options from declarations


def given(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> RestoreOptions:
    """What the library is asked for by `vidrestore denoise in.mp4 ARGUMENTS`."""
    asked: list[RestoreOptions] = []
    monkeypatch.setattr(
        restoring, "run_steps", lambda run, steps: asked.append(steps()[0][1])
    )
    result = CliRunner().invoke(
        app, ["denoise", "in.mp4", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return asked[0]


def test_without_options_the_library_is_asked_for_its_defaults(monkeypatch):
    assert (
        given(monkeypatch) == given(monkeypatch, "--tile", "auto") == RestoreOptions()
    )


def test_options_become_the_fields_that_declare_them(monkeypatch):
    line = """--sigma 20 --quality best --strength 0.5 --no-scene-detect --start 1m30s
        --duration 0:10 --drop audio,data --drop cover --encoder libx265 --crf 20 --encoder-option a=b
        --encoder-option c=d=e --lossless -y --cfr 30000/1001 --tile 128 --model m.safetensors --threads 3"""
    assert given(monkeypatch, *line.split()) == RestoreOptions(
        sigma=20.0,
        quality="best",
        model="m.safetensors",
        threads=3,
        strength=0.5,
        scene_detect=False,
        start=Fraction(90),
        duration=Fraction(10),
        drop=frozenset({"audio", "data", "cover"}),
        encoder=EncoderOptions("libx265", 20.0, None, {"a": "b", "c": "d=e"}, True),
        overwrite=True,
        cfr=Fraction(30000, 1001),
        tile=128,
    )


def test_every_field_has_a_scope_and_all_but_one_have_an_option():
    restore, encoder = declared(RestoreOptions), declared(EncoderOptions)
    assert [name for name, each in restore.items() if not each.about] == []
    missing = [
        name
        for group in (restore, encoder)
        for name, each in group.items()
        if not each.option
    ]
    # `encoder` has options of its own
    assert missing == ["match", "encoder", "threads"]


@dataclass(frozen=True)
class Small:
    grain: Annotated[float, typer.Option(help="Grain to keep.")] = 0.5


def test_a_new_field_is_a_new_option():
    seen: list[Any] = []
    small = typer.Typer()

    @small.command()
    @with_options()
    def work(options: Small, count: int = 3) -> None:
        seen.append((options, count))

    assert CliRunner().invoke(small, ["--grain", "0.25"]).exit_code == 0
    assert CliRunner().invoke(small, []).exit_code == 0
    assert seen == [(Small(0.25), 3), (Small(0.5), 3)]


# Completion


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    variables = {
        "COMP_WORDS": " ".join(("vidrestore", *words)),
        "COMP_CWORD": str(len(words)),
    }
    variables["_VIDRESTORE_COMPLETE"] = "complete_bash"
    code = (
        "import sys; sys.argv[0] = 'vidrestore'; from vidrestore.cli.app import app; "
        "app(prog_name='vidrestore')"
    )
    return python("-c", code, env=os.environ | variables, check=True).stdout.split()


def weights_for(task: str) -> list[str]:
    return [name for name, card in read_manifest().items() if card.task == task]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (
            ("denoise", "--model", "dust-d"),
            [name for name in read_manifest() if name.startswith("dust-d")],
        ),
        (("dehaze", "--model", ""), weights_for("dehaze")),
        (("sense", "--model", ""), weights_for("recover")),
        (
            ("denoise", "--encoder", "libx26"),
            [name for name in ENCODERS if name.startswith("libx26")],
        ),
        (("bench", "--task", "deb"), ["deblur"]),
    ],
    ids=" ".join,
)
def test_the_shell_completes_values(words, offered):
    assert sorted(completed(*words)) == sorted(offered)
