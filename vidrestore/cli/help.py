"""Format `--help`: plain lines under headings, one line per option if it fits, coloured on terminals that
support it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

from vidrestore.options import PANELS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDEST = 100  # columns, for readable lines
OTHER_OPTIONS = "Options"
COMMANDS = "Commands"

Row = tuple[str, str]  # usage, description


class CommandHelp(TyperCommand):
    """A command whose help is printed by `print_page`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        print_page(_usage(self, ctx), self.help or "", _panels(self.get_params(ctx)))


class GroupHelp(TyperGroup):
    """A group of commands whose help is printed by `print_page`, its commands in panels."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[Row]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                panels.setdefault(panel if isinstance(panel, str) else COMMANDS, []).append(
                    (name, _summary(command.help or ""))
                )
        print_page(_usage(self, ctx), self.help or "", panels, _panels(self.get_params(ctx)))


def print_page(usage: str, text: str, *groups: dict[str, list[Row]]) -> None:
    """Print usage, description, and one block per panel; the blocks of a group share their first column."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True, emoji=False)
    console.width = min(console.width, WIDEST)
    console.print(Text.assemble(("Usage: ", "bold"), usage))
    for paragraph in text.strip().split("\n\n"):
        console.print()
        _print_paragraph(console, paragraph)
    for panels in groups:
        widest = max((len(row[0]) for rows in panels.values() for row in rows), default=0)
        column = min(widest, console.width // 3)
        for panel, rows in panels.items():
            console.print(Text(f"\n{panel}:", "bold"))
            for row in rows:
                for line in _lines(row, column, console):
                    console.print(line)


def _print_paragraph(console: Console, paragraph: str) -> None:
    from rich.text import Text

    lines = paragraph.splitlines()
    if any(line.startswith(" ") for line in lines):  # preformatted
        for line in lines:
            console.print(Text(line, "" if line.startswith(" ") else "bold"))
    else:
        for line in _wrapped(" ".join(lines), console.width):
            console.print(Text(line))


def _lines(row: Row, column: int, console: Console) -> Iterable[Text]:
    """Yield a row's lines: the description beside the usage, or below if the usage is too long."""
    from rich.text import Text

    usage, description = row
    margin = column + 4
    wrapped = _wrapped(description, max(20, console.width - margin))
    first = Text.assemble("  ", (usage, "cyan"))
    if len(usage) > column or not wrapped:
        yield first
    else:
        yield Text.assemble(first, " " * (margin - 2 - len(usage)), wrapped.pop(0))
    for line in wrapped:
        yield Text.assemble(" " * margin, line)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _usage(command: Any, ctx: Any) -> str:
    """Return the line of usage, with the command's own name however it was started."""
    path = ctx.command_path.replace("python -m vidrestore", "vidrestore")
    arguments = [
        _parameter_usage(each) for each in command.get_params(ctx) if each.param_type_name == "argument"
    ]
    return " ".join([path, "[OPTIONS]", *arguments, *(["COMMAND"] if isinstance(command, GroupHelp) else [])])


def _panels(parameters: Iterable[Any]) -> dict[str, list[Row]]:
    """Return the rows of all visible parameters, by panel, in the order of `PANELS`."""
    found: dict[str, list[Row]] = {}
    for parameter in parameters:
        if not parameter.hidden and parameter.help:
            panel = parameter.rich_help_panel
            found.setdefault(panel if isinstance(panel, str) else OTHER_OPTIONS, []).append(
                (_parameter_usage(parameter), _parameter_help(parameter))
            )
    order = [*PANELS, *(panel for panel in found if panel not in PANELS)]
    return {panel: found[panel] for panel in order if panel in found}


def _parameter_usage(parameter: Any) -> str:
    """Return "-o, --output OUT"; for a switch that is on by default only the flag that turns it off."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    flags: Sequence[str] = parameter.opts
    if parameter.secondary_opts and parameter.default is not False:
        flags = parameter.secondary_opts
    words = ", ".join(sorted(flags, key=len))
    return words if parameter.is_flag else f"{words} {parameter.metavar or parameter.name.upper()}"


def _parameter_help(parameter: Any) -> str:
    """Return the help of a parameter, with its default if it is to be shown."""
    text, shown = str(parameter.help), parameter.show_default
    if isinstance(shown, str):
        return f"{text} [{shown}]"
    value = parameter.default
    plain = shown and value != "" and isinstance(value, (int, float, str)) and not isinstance(value, bool)
    return f"{text} [{value}]" if plain else text


def _summary(text: str) -> str:
    """Return the first sentence of a command's help."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")
