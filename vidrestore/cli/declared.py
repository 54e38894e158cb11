"""Make commands whose options are the fields of options classes, each declared once, beside its default.

    @with_options(task="denoise")
    def denoise(run: RunOptions, options: Callable[[], RestoreOptions]) -> None: ...

The command gets an option for each field (`options.Declared`) of both classes that applies to the task. A
class that checks its values is passed as a callable that makes it: the command calls it, and so decides how
an error is shown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import partial
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from vidrestore.cli.terminal import HELP_STYLES
from vidrestore.errors import OptionError
from vidrestore.jobs.naming import SUFFIXES
from vidrestore.options import OUTPUT, OVERWRITE, PANELS, QUALITY, Declared

Command = Callable[..., None]
Values = Mapping[str, Any]

# options that several commands share
JSON = Declared("Print events as JSON, one per line, on stdout.", OUTPUT, "call")
QUIET = Declared("Print errors only.", OUTPUT, "call", ("--quiet", "-q"))

Json = Annotated[bool, typer.Option("--json", metavar="", help=JSON.help)]
Quiet = Annotated[bool, typer.Option(*QUIET.flags, metavar="", help=QUIET.help)]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto (a GPU if there is one), cpu or cuda.")
]
Threads = Annotated[int, typer.Option("--threads", min=0, metavar="N", help="CPU threads; 0: all.")]
Overwrite = Annotated[bool, typer.Option(*OVERWRITE.flags, metavar="", help=OVERWRITE.help)]


def with_options(
    task: str | None = None, only: Callable[[Field[Any]], bool] = lambda field: True
) -> Callable[[Command], Command]:
    """Give a command the options that its parameters' classes declare: those for `task`, and of these only
    the fields for which `only` is true.
    """

    def decorate(command: Command) -> Command:
        makers: dict[str, Callable[[Values], Any]] = {}
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            group, lazy = _options_class(parameter.annotation)
            if group is None:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            else:
                declared = list(_declared(group, task, only))
                parameters += (each for found in declared for each in _parameters(*found, command.__name__))
                makers[parameter.name] = partial(_builder if lazy else _build, group)

        parameters.sort(key=_panel_order)

        def run(**values: Any) -> None:
            own = {name: value for name, value in values.items() if name in plain}
            command(**own, **{name: make(values) for name, make in makers.items()})

        plain = set(inspect.signature(command).parameters) - set(makers)
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def _panel_order(parameter: inspect.Parameter) -> int:
    """Return the place of a parameter's panel in the help; those of the command itself come first."""
    panels = [getattr(each, "rich_help_panel", None) for each in get_args(parameter.annotation)]
    return max(PANELS.index(panel) if panel in PANELS else -1 for panel in [None, *panels])


def _options_class(annotation: Any) -> tuple[type | None, bool]:
    """Return the options class of a parameter, and True if it is passed as a callable."""
    if is_dataclass(annotation):
        return annotation, False  # type: ignore[return-value]
    returned = get_args(annotation)[-1:]
    return (returned[0], True) if returned and is_dataclass(returned[0]) else (None, False)  # type: ignore[return-value]


def _declared(
    group: type, task: str | None, only: Callable[[Field[Any]], bool]
) -> Iterator[tuple[Field[Any], Any, Declared]]:
    """Yield the declared fields of an options class with their types; nested classes are flattened."""
    hints = get_type_hints(group)
    for field in fields(group):
        if is_dataclass(hints[field.name]):
            yield from _declared(hints[field.name], task, only)
            continue
        found = field.metadata.get("declared")
        if found and only(field) and (task is None or not found.tasks or task in found.tasks):
            yield field, hints[field.name], found


def _parameters(field: Field[Any], kind: Any, found: Declared, command: str) -> Iterator[inspect.Parameter]:
    """Yield the parameters for Typer. Their default is None, "not given"; the field's default is in its class
    alone.
    """
    own = f"{command}-" if found.panel == QUALITY else ""  # such options differ from task to task
    if found.switches:
        for flag, help in found.switches.items():
            shown: dict[str, Any] = {"help": help, "metavar": "", "rich_help_panel": found.panel}
            info = typer.Option(flag, **(shown | _variable(own, flag)))
            yield _parameter(flag.removeprefix("--"), bool | None, info)
        return
    metavar = "" if kind is bool else found.metavar  # or the help would show <bool>
    shared: dict[str, Any] = {"help": found.help, "metavar": metavar, "parser": found.parse}
    shared |= {"rich_help_panel": found.panel, "show_default": _default_words(field, found, command)}
    if found.argument:
        del shared["rich_help_panel"]
        yield _parameter(field.name, kind, typer.Argument(**shared))
        return
    flags = found.flags or (f"--{field.name.replace('_', '-')}",)
    if "/" in flags[0] and field.default:  # on by default: an option of its own that turns it off
        flags = (flags[0].partition("/")[2],)
        shared["callback"] = _off
    if field.name in COMPLETIONS:
        shared["autocompletion"] = COMPLETIONS[field.name]
    taken = list[Any] if found.gather else Any if found.parse else kind
    yield _parameter(field.name, taken | None, typer.Option(*flags, **(shared | _variable(own, flags[0]))))


def _variable(own: str, flag: str) -> dict[str, Any]:
    """Return the environment variable of an option, which the help of all commands doesn't repeat."""
    name = f"vidrestore-{own}{flag.removeprefix('--')}".replace("-", "_").upper()
    return {"envvar": name, "show_envvar": False}


def _off(given: bool | None) -> bool | None:
    return False if given else None


def _parameter(name: str, annotation: Any, info: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[annotation, info]
    )


def _default_words(field: Field[Any], found: Declared, command: str) -> str | bool:
    """Return a default as the help shows it, with the suffix that the command gives outputs in place of TASK;
    False if there is nothing to show.
    """
    if found.shown and "TASK" in found.shown:
        return found.shown.replace("TASK", SUFFIXES.get(command, "TASKS"))
    value = field.default
    shown = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    return found.shown or (f"{value:g}" if isinstance(value, float) else str(value) if shown else False)


def _builder(group: type, values: Values) -> Callable[[], Any]:
    return partial(_build, group, values)


def _build(group: type, values: Values) -> Any:
    """Return an object of an options class from the given values."""
    hints, given = get_type_hints(group), {}
    for field in fields(group):
        if is_dataclass(hints[field.name]):
            given[field.name] = _build(hints[field.name], values)
        elif found := field.metadata.get("declared"):
            value = _switch_value(found, values) if found.switches else values.get(field.name)
            if value is not None and value != []:
                given[field.name] = found.gather(value) if found.gather else value
    return group(**given)


def _switch_value(found: Declared, values: Values) -> str | None:
    """Return the value of the one switch that was given, None without one. Raises OptionError for several."""
    given = [flag for flag in found.switches if values.get(flag.removeprefix("--"))]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} exclude each other; leave one out")
    return given[0].removeprefix("--") if given else None


def one_use_of_stdout(json: bool, output: str | None) -> None:
    """Raise BadParameter if both events and frames would go to stdout."""
    if json and output == "-":
        raise typer.BadParameter("--json and -o - both need stdout; leave one out")


def _models(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of weights with their tasks: those of the command's task, or all if it has none."""
    from vidrestore.weights.manifest import cards_for, read_manifest

    task = {"sense": "recover"}.get(str(context.info_name), context.info_name)
    found = sorted((card.name, card.task) for card in cards_for(task, read_manifest()))
    return [each for each in found if each[0].startswith(incomplete)]


def _encoders(incomplete: str) -> list[str]:
    """Return names of encoders."""
    from vidrestore.media.encoder_table import ENCODERS

    return [name for name in ENCODERS if name.startswith(incomplete)]


def complete_tasks(incomplete: str) -> list[str]:
    """Return names of tasks."""
    from vidrestore.restorers.base import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]


def _names(words: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a completion of a fixed list."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


# Values of options after which none follows
BARE = {"--preview": "5s"}


class _Legible:
    """A command whose help has the styles of `HELP_STYLES`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from typer import rich_utils  # with rich, which only the help needs

        vars(rich_utils).update(HELP_STYLES)
        super().format_help(ctx, formatter)  # type: ignore[misc]


class LegibleCommand(_Legible, TyperCommand):
    pass


class LegibleGroup(_Legible, TyperGroup):
    pass


class RestoreCommand(LegibleCommand):
    """A command some of whose options need no value (`BARE`)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at in reversed(range(len(args))):
            if args[at] in BARE and (at + 1 == len(args) or args[at + 1].startswith("-")):
                args.insert(at + 1, BARE[args[at]])
        return super().parse_args(ctx, args)


COMPLETIONS: dict[str, Callable[..., list[str] | list[tuple[str, str]]]] = {
    "model": _models,
    "encoder": _encoders,
    "task": complete_tasks,
    "device": _names(("auto", "cpu", "cuda", "mps")),
}
