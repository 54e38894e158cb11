"""Errors of the library name keywords; the command line turns them into its options."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.main import get_command

from vidrestore.cli.app import app
from vidrestore.cli.progress import print_summary
from vidrestore.cli.terminal import FLAGS, as_options
from vidrestore.events import Summary
from vidrestore.pipeline.conversions import Changes

LIBRARY = Path(__file__).parents[2] / "vidrestore"
COMMAND_LINE = {"cli", "commands"}
COMMAND = re.compile(r"`vidrestore [^`]*`|`vidrestore [^`]*$")
# Places that write options on purpose: declarations of the command line, and commands for the user to run.
WRITES_OPTIONS = {
    "settings/options.py",
    "settings/tasks.py",
    "lab/run_config.py",
    "jobs/suggestion.py",
}
WRITES_OPTIONS |= {"pages/variant_sheet.py", "weights/hub.py", "restorers/devices.py"}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every string of a module but docstrings, with its line; implicit joins are one string."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    known |= {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [
                part.value if isinstance(part, ast.Constant) else "{}"
                for part in node.values
            ]
            yield node.lineno, "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in known
        ):
            yield node.lineno, node.value


def modules() -> list[Path]:
    return [
        path
        for path in sorted(LIBRARY.rglob("*.py"))
        if not COMMAND_LINE & {*path.relative_to(LIBRARY).parts}
    ]


def test_outside_cli_no_message_names_an_option():
    found = [
        f"{path.relative_to(LIBRARY)}:{line}: {text}"
        for path in modules()
        if path.relative_to(LIBRARY).as_posix() not in WRITES_OPTIONS
        for line, text in texts(path)
        if re.search(r"(?<![\w-])--[a-z]|(?<![\w-])-o ", COMMAND.sub("", text))
    ]
    assert not found


def test_every_keyword_of_a_message_is_an_option_of_some_command():
    command, known = get_command(app), set(FLAGS.values())
    groups = [command]
    while groups:
        group = groups.pop()
        known |= {
            flag
            for parameter in group.params
            for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        groups += getattr(group, "commands", {}).values()
    keywords = {
        (path.name, found[0])
        for path in modules()
        for _, text in texts(path)
        for found in re.finditer(r"`[a-z][a-z_]*(?==|`)", text)
    }
    assert len(keywords) > 30
    assert {
        each
        for each in keywords
        if as_options(f"{each[1]}`").split(" ")[0] not in known
    } == set()


@pytest.mark.parametrize(
    "message, wanted",
    [
        (
            "a.mp4: already exists; add `overwrite` to replace it",
            "add --overwrite to replace it",
        ),
        ("give `tile=64`, or use `device=cpu`", "give --tile 64, or use --device cpu"),
        ("remove `options=foo=...`", "remove --encoder-option foo=..."),
        ("choose another `work_dir` or `output`", "choose another --work-dir or -o"),
        ("see `vidrestore weights list`", "see `vidrestore weights list`"),
    ],
)
def test_keywords_become_options(message, wanted):
    assert as_options(message).endswith(wanted)


def test_a_summary_names_options_as_they_are_typed(capsys):
    changes = Changes(frames=1, total=0.1)
    print_summary(Summary("in.jpg", "out.jpg", 1, 1.0, changes=(("dehaze", changes),)))
    assert "if you see some, use --haze always" in capsys.readouterr().out
    done = replace(changes, always=True)
    print_summary(Summary("in.jpg", "out.jpg", 1, 1.0, changes=(("dehaze", done),)))
    assert capsys.readouterr().out.rstrip().endswith("little haze found")
