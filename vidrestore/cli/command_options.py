"""Make the options of commands from the fields of options classes (`vidrestore.settings.options`).

@with_options(of_task("denoise"))
def denoise(options: RestoreOptions, run: RunOptions) -> None: ...
"""

from __future__ import annotations

import inspect
import re
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
from vidrestore.settings import option_values
from vidrestore.settings.options import (
    MOST_THREADS,
    QUALITY,
    Declared,
    declared,
    output_option,
)
from vidrestore.working import threads_for

Command = Callable[..., None]
Takes = Callable[[str, Declared], bool]

# options that several commands share
Json = Annotated[
    bool, output_option("--json", help="Print events as JSON, one per line, on stdout.")
]
Quiet = Annotated[bool, output_option("--quiet", "-q", help="Print errors only.")]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="auto (a GPU if there is one), cpu or cuda.",
        parser=option_values.device,
    ),
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
SHORT_HELP = (
    *(
        "sources",
        "output",
        "preview",
        "dry_run",
        "sigma",
        "quality",
        "scale",
        "strength",
        "steps",
    ),
    *(
        "settings",
        "start",
        "duration",
        "crf",
        "device",
        "overwrite",
        "help_all",
        "help",
    ),
)

# how the values of an option that may be repeated become that of its field
JOINED: dict[Any, Callable[[list[Any]], Any]] = {
    Mapping: dict,
    frozenset: lambda sets: frozenset().union(*sets),
}


def of_task(task: str) -> Takes:
    """Return the choice of the options that are for a task."""
    return lambda name, option: (
        not (option.about and option.about.tasks) or task in option.about.tasks
    )


def with_options(
    takes: Takes = lambda name, option: True,
) -> Callable[[Command], Command]:
    """Give a command the options of its parameters' options classes: the fields for which `takes` is true."""

    def decorate(command: Command) -> Command:
        # options of the classes, one by one, in place of the objects
        signature = inspect.signature(command, eval_str=True).parameters.values()
        groups = {
            param.name: param.annotation
            for param in signature
            if is_dataclass(param.annotation)
        }
        params = [
            param.replace(kind=param.KEYWORD_ONLY)
            for param in signature
            if param.name not in groups
        ]
        options = [
            _parameter(name, option, default, command.__name__)
            for group in groups.values()
            for name, option, default in _options(group)
            if takes(name, option)
        ]

        def run(**values: Any) -> None:
            # the objects again, from the values
            try:
                settings = {option.name: values[option.name] for option in options}
                objects = {
                    name: _build(group, settings) for name, group in groups.items()
                }
            except OptionError as error:
                if values.get("json"):
                    print_json(
                        Failed(
                            "", as_options(str(error)), kind="OptionError", exit_code=2
                        )
                    )
                raise
            command(**{param.name: values[param.name] for param in params}, **objects)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature([*params, *options])  # type: ignore[attr-defined]
        run.__annotations__ = {
            param.name: param.annotation for param in (*params, *options)
        }
        return run

    return decorate


def _options(group: Any) -> Iterator[tuple[str, Declared, Any]]:
    """Yield the name, declaration and default of each option; those of nested classes in their place."""
    declarations = declared(group)
    for field in fields(group):
        declaration = declarations[field.name]
        if is_dataclass(declaration.type):
            yield from _options(declaration.type)
        elif declaration.option:
            yield field.name, declaration, field.default


def _parameter(
    name: str, declaration: Declared, default: Any, command: str
) -> inspect.Parameter:
    """Return a parameter for Typer, with a variable as another source of its value."""
    # a variable of the environment sets what the command line doesn't
    option = copy(declaration.option)
    # it differs from command to command
    prefix = f"{command}_" if option.rich_help_panel == QUALITY else ""
    option.envvar, option.show_envvar = f"VIDRESTORE_{prefix}{name}".upper(), False
    option.autocompletion = COMPLETIONS.get(name)
    # no flags are declared
    if declaration.type in (bool, bool | None) and option.default is ...:
        option.default = f"--{name.replace('_', '-')}"
    kind = declaration.type if option.parser is None else Any
    if get_origin(declaration.type) in JOINED:
        kind, default = list[Any], []
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def _build(group: Any, values: Mapping[str, Any]) -> Any:
    """Return an object of an options class from the values of a command. Raises OptionError."""
    arguments = {}
    # nested classes are built from the same values
    for name, declaration in declared(group).items():
        if is_dataclass(declaration.type):
            arguments[name] = _build(declaration.type, values)
        elif declaration.option and name in values:
            join = JOINED.get(get_origin(declaration.type))
            arguments[name] = join(values[name]) if join else values[name]
    return group(**arguments)


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
    from vidrestore.media.formats.encoder_table import ENCODERS

    return list(ENCODERS)


COMPLETIONS: dict[str, Callable[..., list[str] | list[tuple[str, str]]]] = {
    "model": _models,
    "encoder": _encoders,
    "device": lambda: ["auto", "cpu", "cuda", "mps"],
}


class _StyledCommand:
    """A command whose help has the styles of `HELP_STYLES`; --fast and --best are short for --quality."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        # two switches stand for values of one option
        if any(param.name == "quality" for param in self.params):  # type: ignore[attr-defined]
            if {"--fast", "--best"} <= {*args}:
                raise typer.BadParameter(
                    "--fast and --best exclude each other; leave one out", ctx=ctx
                )
            args = [
                f"--quality={arg[2:]}" if arg in ("--fast", "--best") else arg
                for arg in args
            ]
        return super().parse_args(ctx, args)  # type: ignore[misc]

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters. Flags take no value, and arguments are explained by their names: the help
        shows no type of them.
        """
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if param.param_type_name == "argument" or param.is_flag:
                param.display_type_rich = lambda ctx: None
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the line of usage: IN... and [IN]... for Typer's {IN...}... and [IN...]..."""
        pieces = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [re.sub(r"[{}]|\.{3}(?=[\]}])", "", piece) for piece in pieces]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from typer import rich_utils  # with rich, which only the help needs

        vars(rich_utils).update(HELP_STYLES)
        super().format_help(ctx, formatter)  # type: ignore[misc]


class LegibleCommand(_StyledCommand, TyperCommand):
    pass


class LegibleGroup(_StyledCommand, TyperGroup):
    pass


class TaskCommand(LegibleCommand):
    """A command whose help shows the options of `SHORT_HELP` in one panel; `--help-all` shows all."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        parameters = self.params
        if not ctx.params.get("help_all"):
            by_name = {param.name: param for param in parameters}
            self.params = [
                _without_panel(by_name[name]) for name in SHORT_HELP if name in by_name
            ]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params = parameters


def _without_panel(parameter: Any) -> Any:
    """Return a parameter without a panel of its own, and without a default that is only a value."""
    brief = copy(parameter)
    brief.rich_help_panel = None
    brief.show_default = (
        isinstance(parameter.show_default, str) and parameter.show_default
    )
    return brief


def _show_all(context: typer.Context, value: bool) -> None:
    if value:
        context.params["help_all"] = True
        context.get_help()  # prints it
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        is_eager=True,
        callback=_show_all,
        help="Show all options and exit.",
    ),
]
