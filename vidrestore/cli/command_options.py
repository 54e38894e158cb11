"""Make the options of commands from the fields of options classes (`vidrestore.options`).

@with_options(of_task("denoise"))
def denoise(options: RestoreOptions, run: RunOptions) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from vidrestore.cli.progress import print_json
from vidrestore.cli.terminal import HELP_STYLES, as_options
from vidrestore.errors import OptionError
from vidrestore.events import Failed
from vidrestore.options import MOST_THREADS, QUALITY, Declared, declared, output_option
from vidrestore.working import threads_for

Command = Callable[..., None]
Takes = Callable[[str, Declared], bool]

# options that several commands share
Json = Annotated[
    bool, output_option("--json", metavar="", help="Print events as JSON, one per line, on stdout.")
]
Quiet = Annotated[bool, output_option("--quiet", "-q", metavar="", help="Print errors only.")]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto (a GPU if there is one), cpu or cuda.")
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        min=0,
        max=MOST_THREADS,
        metavar="N",
        help="CPU threads; 0: all.",
        callback=threads_for,
    ),
]

# what --help shows of a task, in this order; --help-all shows the other options, too
_SHORT = "sources output preview dry_run sigma quality scale strength steps settings start duration"
SHORT = [*_SHORT.split(), "crf", "device", "overwrite", "help_all", "help"]

# how the values of an option that may be repeated become that of its field
JOINED: dict[Any, Callable[[list[Any]], Any]] = {
    Mapping: dict,
    frozenset: lambda sets: frozenset().union(*sets),
}


def of_task(task: str) -> Takes:
    """Return the choice of the options that are for a task."""
    return lambda name, found: not (found.about and found.about.tasks) or task in found.about.tasks


def with_options(takes: Takes = lambda name, found: True) -> Callable[[Command], Command]:
    """Give a command the options of its parameters' options classes: the fields for which `takes` is true."""

    def decorate(command: Command) -> Command:
        parameters = inspect.signature(command, eval_str=True).parameters.values()
        groups = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}
        own = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters if each.name not in groups]
        made = [
            _parameter(name, found, default, command.__name__)
            for group in groups.values()
            for name, found, default in _options(group)
            if takes(name, found)
        ]

        def run(**values: Any) -> None:
            try:
                given = {each.name: values[each.name] for each in made}
                objects = {name: _made(group, given) for name, group in groups.items()}
            except OptionError as error:
                if values.get("json"):
                    print_json(Failed("", as_options(str(error)), kind="OptionError", exit_code=2))
                raise
            command(**{each.name: values[each.name] for each in own}, **objects)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature([*own, *made])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *made)}
        return run

    return decorate


def _options(group: Any) -> Iterator[tuple[str, Declared, Any]]:
    """Yield the name, declaration and default of each option; those of nested classes in their place."""
    declarations = declared(group)
    for field in fields(group):
        found = declarations[field.name]
        if is_dataclass(found.type):
            yield from _options(found.type)
        elif found.option:
            yield field.name, found, field.default


def _parameter(name: str, found: Declared, default: Any, command: str) -> inspect.Parameter:
    """Return a parameter for Typer, with a variable as another source of its value."""
    option = copy(found.option)
    own = f"{command}_" if option.rich_help_panel == QUALITY else ""  # it differs from command to command
    option.envvar, option.show_envvar = f"VIDRESTORE_{own}{name}".upper(), False
    option.autocompletion = COMPLETIONS.get(name)
    if found.type in (bool, bool | None):
        option.metavar = ""  # or the help would show <bool>
        if option.default is ...:  # no flags are declared
            option.default = f"--{name.replace('_', '-')}"
    kind = found.type if option.parser is None else Any
    if get_origin(found.type) in JOINED:
        kind, default = list[Any], []
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _made(group: Any, values: Mapping[str, Any]) -> Any:
    """Return an object of an options class from the values of a command. Raises OptionError."""
    given = {}
    for name, found in declared(group).items():
        if is_dataclass(found.type):
            given[name] = _made(found.type, values)
        elif found.option and name in values:
            join = JOINED.get(get_origin(found.type))
            given[name] = join(values[name]) if join else values[name]
    return group(**given)


def one_use_of_stdout(json: bool, output: str | None) -> None:
    """Raise BadParameter if both events and frames would go to stdout."""
    if json and output == "-":
        raise typer.BadParameter("--json and -o - both need stdout; leave one out")


def _models(context: typer.Context) -> list[tuple[str, str]]:
    """Return names of weights with their tasks: those of the command's task, or all if it has none."""
    from vidrestore.weights.manifest import cards_for, read_manifest

    task = {"sense": "recover"}.get(str(context.info_name), context.info_name)
    return sorted((card.name, card.task) for card in cards_for(task, read_manifest()))


def _encoders() -> list[str]:
    from vidrestore.media.encoder_table import ENCODERS

    return list(ENCODERS)


COMPLETIONS: dict[str, Callable[..., list[str] | list[tuple[str, str]]]] = {
    "model": _models,
    "encoder": _encoders,
    "device": lambda: ["auto", "cpu", "cuda", "mps"],
}


class _StyledCommand:
    """A command whose help has the styles of `HELP_STYLES`; --fast and --best are short for --quality."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if any(each.name == "quality" for each in self.params):  # type: ignore[attr-defined]
            if {"--fast", "--best"} <= {*args}:
                raise typer.BadParameter("--fast and --best exclude each other; leave one out", ctx=ctx)
            args = [f"--quality={each[2:]}" if each in ("--fast", "--best") else each for each in args]
        return super().parse_args(ctx, args)  # type: ignore[misc]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from typer import rich_utils  # with rich, which only the help needs

        vars(rich_utils).update(HELP_STYLES)
        super().format_help(ctx, formatter)  # type: ignore[misc]


class LegibleCommand(_StyledCommand, TyperCommand):
    pass


class LegibleGroup(_StyledCommand, TyperGroup):
    pass


class TaskCommand(LegibleCommand):
    """A command whose help shows the options of `SHORT` in one panel, or all if `--help-all` asks for it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        whole = self.params
        if not ctx.params.get("help_all"):
            found = {each.name: each for each in whole}
            self.params = [_without_panel(found[name]) for name in SHORT if name in found]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params = whole


def _without_panel(parameter: Any) -> Any:
    """Return a parameter without a panel of its own, and without a default that is only a value."""
    brief = copy(parameter)
    brief.rich_help_panel = None
    brief.show_default = isinstance(parameter.show_default, str) and parameter.show_default
    return brief


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.params["help_all"] = True
        context.get_help()  # prints it
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", metavar="", is_eager=True, callback=_show_all, help="Show all options and exit."
    ),
]
