"""Defaults of options from the user's file, a preset and VIDRESTORE_* variables; `vidrestore config`.

The command line wins over variables, these over the file, and the file over the preset. The last two are
the `default_map` of Typer's contexts. Both are TOML with options by their names on the command line: those at
the top are for all commands that have them, those of a table for the command of its name. Options of quality
mean something else in each command, so they are in tables only, and their variables have the command's name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from vidrestore.errors import OptionError
from vidrestore.files.user_folders import user_folder
from vidrestore.options import QUALITY

if TYPE_CHECKING:
    from typer._click.core import Command

Table = Mapping[str, Any]
EXAMPLE = 'device = "cuda" for all commands, or [denoise] and below it best = true for one'


class Setting(NamedTuple):
    """A default that isn't the command's own. `origin` says in words where it comes from."""

    command: str
    option: str
    value: Any
    origin: str


def user_file() -> Path:
    return user_folder("config") / "config.toml"


def read_user_file() -> dict[str, Any]:
    """Return the user's settings; none without a file. Raises OptionError."""
    if not user_file().exists():
        return {}
    from vidrestore.checking import parse_toml
    from vidrestore.files.regular import LARGEST_TOML, read_limited

    try:
        return parse_toml(read_limited(user_file(), LARGEST_TOML, follow=True).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"{user_file()}: can't be read as TOML ({reason})") from error


def use_user_file(context: typer.Context) -> None:
    """Make the user's settings the defaults of the subcommands of a context. Raises OptionError."""
    table = read_user_file()
    commands: dict[str, Command] = context.command.commands  # type: ignore[attr-defined]
    if table:
        check_names(table, commands, str(user_file()))
        context.default_map = {
            name: defaults_of(table, name, commands, str(user_file())) for name in commands
        }


def check_names(table: Table, commands: Mapping[str, Command], where: str) -> None:
    """Raise OptionError for tables that name no command, and options that no command has."""
    shared = _shared(commands)
    for key, value in table.items():
        if isinstance(value, dict) and key not in commands:
            raise OptionError(f"{where}: no command named {key!r}; there are: {', '.join(commands)}")
        if not isinstance(value, dict) and key not in shared:
            raise OptionError(f"{where}: no option --{key} for all commands; expected {EXAMPLE}")


def options_of(command: Command) -> dict[str, Any]:
    """Return the parameters of a command by their long options, without the dashes."""
    flags = ((flag, each) for each in command.params for flag in each.opts if flag.startswith("--"))
    return {flag.removeprefix("--"): each for flag, each in flags}


def _shared(commands: Mapping[str, Command]) -> set[str]:
    """Return the options that mean the same in all commands that have them."""
    options = [each for command in commands.values() for each in options_of(command).items()]
    own = {name for name, each in options if getattr(each, "rich_help_panel", None) == QUALITY}
    return {name for name, _ in options} - own


def defaults_of(table: Table, name: str, commands: Mapping[str, Command], where: str) -> dict[str, Any]:
    """Return what a table sets for a command, by parameter. Raises OptionError for unknown options."""
    known, own = options_of(commands[name]), table.get(name, {})
    if unknown := [key for key in own if key not in known]:
        raise OptionError(
            f"{where}: {name} has no option --{unknown[0]}; `vidrestore {name} --help` lists them"
        )
    common = {key: value for key, value in table.items() if key in known and not isinstance(value, dict)}
    return {known[key].name: _as_typed(value, known[key]) for key, value in (common | own).items()}


def _as_typed(value: Any, parameter: Any) -> Any:
    """Return a value as the command line would have it; switches are true or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, list) or getattr(parameter, "multiple", False):
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    return str(value)


def settings_of(commands: Mapping[str, Command]) -> Iterator[Setting]:
    """Yield all defaults that are set, each with the origin that wins."""
    table = read_user_file()
    check_names(table, commands, str(user_file()))
    for name, command in commands.items():
        found = defaults_of(table, name, commands, str(user_file()))
        for option, parameter in options_of(command).items():
            variable = parameter.envvar if isinstance(parameter.envvar, str) else ""
            if os.environ.get(variable):
                yield Setting(name, option, os.environ[variable], variable)
            elif parameter.name in found:
                yield Setting(name, option, found[parameter.name], str(user_file()))


def config(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show the defaults that you have set, each with its origin.

    The command line wins over variables (VIDRESTORE_DEVICE=cuda,
    VIDRESTORE_DENOISE_SIGMA=20), and these over config.toml.
    """
    from vidrestore.cli.terminal import show, show_json

    commands: dict[str, Command] = context.parent.command.commands  # type: ignore[union-attr]
    found = list(settings_of(commands))
    if json:
        for each in found:
            show_json(each._asdict())
        return
    path = user_file()
    show(str(path) if path.exists() else f"{path}: not there; it would have {EXAMPLE}")
    show(*(f"  {line}" for line in setting_lines(found)))


def setting_lines(settings: list[Setting]) -> Iterator[str]:
    """Yield a line for each option, value and origin, with the commands that they are for."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for each in settings:
        value = " ".join(each.value) if isinstance(each.value, list) else str(each.value)
        places.setdefault((each.option, value, each.origin), []).append(each.command)
    for (option, value, origin), names in places.items():
        yield f"{option} = {value}  ({origin}; {', '.join(names)})"
