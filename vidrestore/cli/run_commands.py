"""`vidrestore run`: several tasks in one command, each with its own options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from vidrestore.cli.declared import with_options
from vidrestore.cli.restoring import RunOptions, run_steps
from vidrestore.cli.terminal import show
from vidrestore.errors import OptionError
from vidrestore.files.checked_toml import checked_toml
from vidrestore.files.regular import LARGEST_TOML, read_limited
from vidrestore.options import QUALITY, Declared, RestoreOptions

if TYPE_CHECKING:
    from vidrestore.jobs.steps import Step

Settings = dict[str, dict[str, Any]]  # step -> option -> value


def _is_of_whole_run(field: Field[Any]) -> bool:
    """Return True for an option that all steps share."""
    found: Declared = field.metadata["declared"]
    return not found.tasks


@with_options(only=_is_of_whole_run)
def run(
    run: RunOptions,
    options: Callable[[], RestoreOptions],
    steps: Annotated[
        str, typer.Option("--steps", metavar="A,B", help="Tasks, in order.", rich_help_panel=QUALITY)
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="STEP.NAME=VALUE",
            help="Option of one step, such as denoise.sigma=20; repeatable.",
            rich_help_panel=QUALITY,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", metavar="FILE", help="Steps and their options as TOML.", rich_help_panel=QUALITY
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print that TOML and exit.", rich_help_panel=QUALITY),
    ] = False,
) -> None:
    """Restore by several tasks in one go: one decoding, one encoding.

    Examples:
      vidrestore run in.mp4 --steps denoise,deblur,sr -o out.mp4
      vidrestore run in.mp4 --steps denoise,sr --set sr.height=1080
      vidrestore run videos/ -o out/ --config steps.toml
    """
    names, given = _configured(config)
    if steps:
        names = steps.split(",")
    if "" in names:
        raise OptionError(f"--steps {steps}: a name is missing beside a comma; expected A,B without spaces")
    for text in settings or ():
        step, name, value = _setting(text)
        given.setdefault(step, {})[name] = value
    if print_config:
        show(*toml_lines(names, given))
        return
    run_steps(run, lambda: _chain(names, given, options))


def _chain(names: list[str], given: Settings, options: Callable[[], RestoreOptions]) -> list[Step]:
    """Return the steps with their options. Raises OptionError."""
    from vidrestore.jobs.steps import Step, check_steps
    from vidrestore.restorers.base import TASKS

    for name in {*names, *given}:
        if name not in TASKS or name.startswith("<"):
            known = ", ".join(task for task in TASKS if not task.startswith("<"))
            raise OptionError(f"no step named {name!r}; there are: {known}")
        if name not in names:
            raise OptionError(
                f"options of {name} were given, but it is none of the steps ({','.join(names)})"
            )
    chain = [Step(name, replace(options(), **parsed(name, given.get(name, {})))) for name in names]
    check_steps(chain)
    return chain


def _configured(path: str | None) -> tuple[list[str], Settings]:
    """Return the steps and options of a TOML file."""
    if path is None:
        return [], {}
    try:
        found = checked_toml(read_limited(Path(path), LARGEST_TOML, follow=True).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"--config {path}: can't be read as TOML ({reason})") from error
    steps = found.pop("steps", [])
    tables = all(isinstance(table, dict) for table in found.values())
    if not (isinstance(steps, list) and all(isinstance(step, str) for step in steps) and tables):
        raise OptionError(f'--config {path}: expected steps = ["denoise", "sr"] and a table for each step')
    return steps, found


def _setting(text: str) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    step, dot, option = name.partition(".")
    if not (equals and dot and step and option):
        raise OptionError(f"--set {text}: expected STEP.NAME=VALUE, such as denoise.sigma=20")
    return step, option, value


def parsed(step: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a step by the names of their fields. Raises OptionError."""
    known = dict(_of_step(step))
    values = {}
    for name, value in given.items():
        key = name.replace("-", "_")
        if key not in known:
            raise OptionError(f"{step} has no option {name!r}; it has: {', '.join(sorted(known))}")
        values[key] = _value(f"{step}.{name}", value, *known[key])
    return values


def _of_step(step: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the options of a single step: name, parser and type of each."""
    hints = get_type_hints(RestoreOptions)
    for field in fields(RestoreOptions):
        found = field.metadata.get("declared")
        if found and step in found.tasks:
            yield field.name, (found.parse, hints[field.name])


def _value(name: str, value: Any, parse: Callable[[str], Any] | None, hint: Any) -> Any:
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    try:
        if kinds[0] is bool:
            if str(value).lower() not in ("true", "false"):
                raise ValueError(f"expected true or false, got {value!r}")
            return str(value).lower() == "true"
        if parse is not None:
            return parse(str(value))
        return kinds[0](value) if kinds[0] in (int, float) else str(value)
    except (ValueError, TypeError) as error:
        raise OptionError(f"{name}: {error}") from None


def toml_lines(names: list[str], given: Settings) -> Iterator[str]:
    """Yield the lines of a file for `--config`."""
    yield f"steps = [{', '.join(_quoted(name) for name in names)}]"
    for step, options in given.items():
        yield ""
        yield f"[{step}]"
        for name, value in options.items():
            yield f"{name} = {str(value).lower() if isinstance(value, bool) else _quoted(str(value))}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
