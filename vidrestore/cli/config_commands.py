"""Defaults of options from the user's config.toml and VIDRESTORE_* variables; `vidrestore config`.

The command line wins over variables, and these over the file, which becomes the `default_map` of Typer's
contexts. It has options by their names on the command line: those at the top are for all commands that have
them, those of a table for the command of its name. Options of quality mean something else in each command, so
they are in tables only, and their variables have the command's name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperGroup

from vidrestore.cli.terminal import print_line, show
from vidrestore.errors import OptionError
from vidrestore.files.regular import LARGEST_TOML, read_limited
from vidrestore.files.user_folders import user_folder
from vidrestore.settings.checking import parse_toml
from vidrestore.settings.options import QUALITY

Table = Mapping[str, Any]
Commands = Mapping[str, Any]
SETTINGS_EXAMPLE = 'device = "cuda" for all commands, or [denoise] and below it quality = "best" for one'


def user_file() -> Path:
    return user_folder("config") / "config.toml"


def commands_of(context: Any) -> Commands:
    """Return the subcommands of a context by name."""
    return cast(TyperGroup, context.command).commands


def use_user_file(context: typer.Context) -> None:
    """Make the user's settings the defaults of the subcommands of a context. Raises OptionError."""
    commands = commands_of(context)
    context.default_map = user_defaults(commands)
    _warn_of_variables(
        {str(param.envvar) for command in commands.values() for param in command.params}
    )


def _warn_of_variables(variables: set[str]) -> None:
    """Warn of VIDRESTORE_* variables that set no option of any command."""
    # a misspelt variable would be ignored silently
    for name in sorted(os.environ):
        if name.startswith("VIDRESTORE_") and name not in variables:
            close = get_close_matches(name, variables, 1)
            hint = (
                f"; did you mean {close[0]}"
                if close
                else "; see `vidrestore config --help`"
            )
            print_line(
                f"vidrestore: warning: the variable {name} sets no option{hint}",
                sys.stderr,
            )


def read_toml(path: Path, place: str) -> dict[str, Any]:
    """Return the tables of a file. Raises OptionError that begins with `place`."""
    try:
        return parse_toml(read_limited(path, LARGEST_TOML).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"{place}: can't be read as TOML ({reason})") from error


def user_defaults(commands: Commands) -> dict[str, dict[str, Any]]:
    """Return what the user's file sets for each command, by parameter. Raises OptionError."""
    table = read_toml(user_file(), str(user_file())) if user_file().exists() else {}
    _check_names(table, commands)
    return {
        name: _defaults_of(table, name, command) for name, command in commands.items()
    }


def _check_names(table: Table, commands: Commands) -> None:
    """Raise OptionError for tables that name no command, and options that no command has."""
    # options of one task's quality are for that command only
    options = [
        option
        for command in commands.values()
        for option in options_of(command).items()
    ]
    quality = {
        name
        for name, option in options
        if getattr(option, "rich_help_panel", None) == QUALITY
    }
    shared = {name for name, _ in options} - quality
    for key, value in table.items():
        if isinstance(value, dict) and key not in commands:
            raise OptionError(
                f"{user_file()}: no command named {key!r}; there are: {', '.join(commands)}"
            )
        if not isinstance(value, dict) and key not in shared:
            raise OptionError(
                f"{user_file()}: no option --{key} for all commands; expected {SETTINGS_EXAMPLE}"
            )


def options_of(command: Any) -> dict[str, Any]:
    """Return the parameters of a command by their long options, without the dashes."""
    flags = (
        (flag, param)
        for param in command.params
        for flag in (*param.opts, *param.secondary_opts)
    )
    return {
        flag.removeprefix("--"): param for flag, param in flags if flag.startswith("--")
    }


def _defaults_of(table: Table, name: str, command: Any) -> dict[str, Any]:
    """Return what a table sets for a command, by parameter. Raises OptionError for unknown options."""
    # a command's own table wins over values for all
    params, section = options_of(command), table.get(name, {})
    if unknown := [key for key in section if key not in params]:
        raise OptionError(
            f"{user_file()}: {name} has no option --{unknown[0]}; see `vidrestore {name} --help`"
        )
    common = {
        key: value
        for key, value in table.items()
        if key in params and not isinstance(value, dict)
    }
    return {
        params[key].name: _as_typed(key, value, params[key])
        for key, value in (common | section).items()
    }


def _as_typed(key: str, value: Any, parameter: Any) -> Any:
    """Return a value as the command line would have it; switches are true or false."""
    if isinstance(value, bool):
        return value != (f"--{key}" in parameter.secondary_opts)
    if isinstance(value, list) or getattr(parameter, "multiple", False):
        return list(map(str, value if isinstance(value, list) else [value]))
    return str(value)


def config(context: typer.Context) -> None:
    """Show the defaults that you have set, each with its origin.

    The command line wins over variables (VIDRESTORE_DEVICE=cuda,
    VIDRESTORE_DENOISE_SIGMA=20), and these over config.toml.
    """
    lines = list(setting_lines(commands_of(context.parent)))
    path = user_file()
    show(
        str(path)
        if path.exists()
        else f"{path}: not there; it would have {SETTINGS_EXAMPLE}",
        *lines,
    )


def setting_lines(commands: Commands) -> Iterator[str]:
    """Yield a line for each option that is set, with the origin that wins and the commands that it is for."""
    # what several commands have in common is one line
    # by option, value and origin
    commands_of_setting: dict[tuple[str, str, str], list[str]] = {}
    for command, defaults in user_defaults(commands).items():
        for option, parameter in options_of(commands[command]).items():
            variable = str(parameter.envvar)
            if value := os.environ.get(variable):
                commands_of_setting.setdefault((option, value, variable), []).append(
                    command
                )
            elif parameter.name in defaults:
                default = defaults[parameter.name]
                value = " ".join(default) if isinstance(default, list) else str(default)
                commands_of_setting.setdefault(
                    (option, value, str(user_file())), []
                ).append(command)
    for (option, value, origin), names in commands_of_setting.items():
        yield f"  {option} = {value}  ({origin}; {', '.join(names)})"
