"""Report a wrong command line in one plain line, as all other errors."""

from __future__ import annotations

import os
import re
from typing import Any

import typer

# The base of what Typer raises for a wrong command line; it has no public name.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

_UNKNOWN = re.compile(r"No such command '([^']*)'")
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)")
_EXPECTED = {"int_parsing": "expected a whole number", "float_parsing": "expected a number"}
_BOUNDS = {
    "greater_than_equal": ("ge", "{:g} or more"),
    "less_than_equal": ("le", "{:g} or less"),
    "greater_than": ("gt", "more than {:g}"),
    "less_than": ("lt", "less than {:g}"),
}


def usage_line(error: Any) -> str:
    """Return the line for a `UsageError`; empty for a group without a command, whose help was printed."""
    name = type(error).__name__
    if name == "NoArgsIsHelpError":
        return ""
    if name == "NoSuchOption":
        known = " or ".join(error.possibilities or ())
        if error.option_name in ("-i", "--in"):
            return f"there is no option {error.option_name}; name the input without one"
        return f"there is no option {error.option_name}; " + (
            f"did you mean {known}?" if known else _see(error)
        )
    if name == "MissingParameter":
        return f"{_option(error) or 'an argument'} is missing; {_see(error)}"
    if name == "BadOptionUsage":  # which doesn't say of which command
        return f"{error.option_name} {'takes no' if 'not take' in error.message else 'needs a'} value"
    if isinstance(error, typer.BadParameter):
        option = _option(error)
        return f"{option}: {_problem(error)}" if option else error.message
    text = error.format_message().rstrip(".")
    if unknown := _UNKNOWN.match(text):
        return _unknown_command(error, unknown[1], re.findall("'([^']*)'", text[unknown.end() :]))
    if extra := _EXTRA.match(text):
        return f"one word too many: {extra[1]}; {_see(error)}"
    return f"{text[:1].lower()}{text[1:]}; {_see(error)}"


def _unknown_command(error: Any, word: str, near: list[str]) -> str:
    """Return the line for an unknown command: similar ones, or advice if it is a file."""
    if os.path.exists(word):
        return f"{word} is no command; name the command first, such as vidrestore denoise {word}"
    if word in ("help", "version"):
        near = [f"--{word}"]
    text = f"no such command {word!r}; "
    return text + (f"did you mean {' or '.join(near)}?" if near else _see(error))


def _option(error: Any) -> str | None:
    """Return the longest name of the option that an error is about."""
    param = getattr(error, "param", None)
    if param is None:
        return None
    flags = [name for name in param.opts if name.startswith("-")]
    return str(max(flags, key=len) if flags else param.metavar or param.name.upper())


def _problem(error: Any) -> str:
    """Describe what is wrong with a value, in our parser's words or for Typer's checks."""
    details = getattr(error.__cause__, "errors", None)
    first = details()[0] if details else {}
    kind, got = first.get("type"), f", got {first.get('input')!r}"
    if kind in _EXPECTED:
        return _EXPECTED[kind] + got
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"expected {words.format(first['ctx'][key])}{got}"
    text = str(first.get("ctx", {}).get("error") or error.message).rstrip(".")
    return f"{text[:1].lower()}{text[1:]}"


def _see(error: Any) -> str:
    context = getattr(error, "ctx", None)
    words: list[str] = []
    while context is not None and context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    return f"see {' '.join(['vidrestore', *words])} --help"
