"""Report a wrong command line in one plain line, as all other errors."""

from __future__ import annotations

import os
import re
from typing import Any

import typer

# The base of what Typer raises for a wrong command line; it has no public name.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def usage_line(error: Any) -> str:
    """Return Typer's sentence for a `UsageError` and where help is; empty if the help was printed already."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    text = error.format_message().removeprefix("Invalid value: ").replace("Value error, ", "").rstrip(".?")
    unknown = re.match("No such command '([^']*)'", text)
    if unknown and os.path.exists(unknown[1]):
        return f"{unknown[1]} is no command; name the command first, such as vidrestore denoise {unknown[1]}"
    text += _origin(error)
    context, words = error.ctx, list[str]()
    while context is not None and context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    return f"{text}; see {' '.join(['vidrestore', *words])} --help"


def _origin(error: Any) -> str:
    """Return in words where a wrong value comes from, if not from the command line."""
    parameter = getattr(error, "param", None)
    if error.ctx is None or parameter is None:
        return ""
    source = error.ctx.get_parameter_source(parameter.name)
    if source is not None and source.name == "ENVIRONMENT":
        return f" (from {parameter.envvar})"
    from_table = source is not None and source.name == "DEFAULT_MAP"
    return " (see `vidrestore config`, or the preset)" if from_table else ""
