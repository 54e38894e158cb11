"""`vidrestore run`: restore videos by several steps, each with options of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from vidrestore.cli.command_options import HelpAll, of_task, with_options
from vidrestore.cli.config_commands import read_toml
from vidrestore.cli.restoring import RunOptions, run_steps
from vidrestore.cli.terminal import show
from vidrestore.errors import OptionError
from vidrestore.settings.checking import converted, known_names, toml, with_settings
from vidrestore.settings.options import RestoreOptions, declared, quality_option
from vidrestore.settings.tasks import TASKS


@with_options(of_task("the whole run"))
def run(
    options: RestoreOptions,
    run: RunOptions,
    steps: Annotated[
        str, quality_option("--steps", metavar="A,B", help="Tasks, in order.")
    ] = "",
    settings: Annotated[
        list[str] | None,
        quality_option(
            "--set",
            metavar="STEP.NAME=VALUE",
            help="Option of one step, such as denoise.sigma=20; repeatable.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        quality_option(
            "--config", metavar="FILE", help="Steps and their options as TOML."
        ),
    ] = None,
    print_config: Annotated[
        bool, quality_option(metavar="", help="Print that TOML and exit.")
    ] = False,
    help_all: HelpAll = False,
) -> None:
    """Restore by several tasks in one go: one decoding, one encoding.

    Examples:
      vidrestore run in.mp4 --steps denoise,deblur,sr -o out.mp4
      vidrestore run in.mp4 --steps denoise,sr --set sr.height=1080
      vidrestore run videos/ -o out/ --config steps.toml
    """
    # the file's tables, over which the command line's settings go
    file_tables = read_toml(Path(config), f"--config {config}") if config else {}
    tables = with_settings(file_tables, settings or (), TASKS)
    listed = tables.pop("steps", [])
    names = [name.strip() for name in steps.split(",")] if steps else listed

    # refuse what can't name steps
    place = f"--config {config}: " if config else ""
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise OptionError(f'{place}expected steps = ["denoise", "sr"]')
    if stray := [name for name, part in tables.items() if not isinstance(part, dict)]:
        raise OptionError(
            f"{place}{stray[0]}: name the step that it is for, as in denoise.{stray[0]}"
        )
    if "" in names:
        raise OptionError(
            f"--steps {steps}: a name is missing beside a comma; expected A,B without spaces"
        )
    if print_config:
        show(*toml({"steps": names} | tables).splitlines())
        return
    run_steps(run, lambda: _chain(names, tables, options))


def _chain(
    names: list[str], tables: Mapping[str, dict[str, Any]], options: RestoreOptions
) -> list[tuple[str, RestoreOptions]]:
    """Return the steps with their options. Raises OptionError."""
    # unknown names first, then options of tasks that are no steps
    for name in {*names, *tables}:
        if name not in TASKS:
            raise OptionError(f"no step named {name!r}; there are: {', '.join(TASKS)}")
        if names and name not in names:
            raise OptionError(
                f"options of {name} were given, but it is none of the steps ({','.join(map(str, names))})"
            )
    return [
        (name, replace(options, **parsed(name, tables.get(name, {})))) for name in names
    ]


def parsed(step: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a step, values of TOML or texts, by the names of their fields. Raises
    OptionError.
    """
    # names with dashes, as on the command line, or with underscores
    declarations = declared(RestoreOptions).items()
    options = {
        name: option
        for name, option in declarations
        if option.about and step in option.about.tasks
    }
    values = {}
    for name, value in settings.items():
        key = name.replace("-", "_")
        if key not in options:
            raise OptionError(
                f"{step} has no option {name!r}; it has: {known_names(key, sorted(options))}"
            )
        parse = options[key].option.parser if options[key].option else None
        try:
            values[key] = (
                parse(str(value)) if parse else converted(value, options[key].type)
            )
        except ValueError as error:
            raise OptionError(f"{step}.{name}: {error}") from None
    return values
