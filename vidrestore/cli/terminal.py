"""Print on the terminal; no other module does. Options are named as the command line spells them.

Titles and file names may contain anything; they are escaped to a line of plain text. The library names an
option by its keyword between backquotes: `overwrite`, or with a value `tile=64`; `as_options` turns these
into --overwrite and --tile 64.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO, cast

from vidrestore.events import Event, Failed, Warned

if TYPE_CHECKING:
    from rich.console import Console

# Legible on light and on dark terminals, unlike rich's and Typer's yellow, cyan, green and near black.
BAR_STYLES = {
    "bar.back": "grey50",
    "bar.finished": "rgb(95,135,0)",
    **dict.fromkeys(
        ("progress.elapsed", "progress.remaining", "progress.download"), "none"
    ),
}
HELP_STYLES = {
    "STYLE_TYPES": "magenta",
    "STYLE_OPTION_ENVVAR": "dim",
    **dict.fromkeys(
        (
            "STYLE_OPTION",
            "STYLE_SWITCH",
            "STYLE_NEGATIVE_OPTION",
            "STYLE_NEGATIVE_SWITCH",
            "STYLE_USAGE",
            "STYLE_COMMANDS_TABLE_FIRST_COLUMN",
        ),
        "bold",
    ),
}

# C0 and C1 control characters, line and paragraph separators, changes of text direction, and surrogates,
# which represent bytes of file names that are not UTF-8.
_NOT_PLAIN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(line: str) -> str:
    """Return a line with control characters escaped as Python writes them, such as \\x1b."""
    return _NOT_PLAIN.sub(lambda match: ascii(match[0])[1:-1], line)


def show(*lines: str) -> None:
    """Print lines on stdout, escaped; a failed write raises OSError."""
    for line in lines:
        print(escaped(line))


def show_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells in aligned columns on stdout."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        show(
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
        )


def show_json(values: Mapping[str, Any]) -> None:
    """Print an object on stdout as a line of JSON; a failed write raises OSError."""
    print(_json_line(json.dumps(values, ensure_ascii=False)))


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print a line at once, escaped.

    If a pipe is broken or a disk is full, the work continues; one line on stderr says so.
    """
    _print(escaped(line), stream or sys.stdout)


def print_json_line(line: str) -> None:
    """Print a line of JSON on stdout, as `print_line` does."""
    _print(_json_line(line), sys.stdout)


def _json_line(line: str) -> str:
    # a terminal without Unicode gets escapes
    try:
        line.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        line = json.dumps(json.loads(line))  # in ASCII
    # control characters only occur in strings
    return _NOT_PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def bar_console() -> Console:
    """Return rich's console for a bar on stderr."""
    from rich.console import Console
    from rich.theme import Theme

    return Console(file=cast(TextIO, _Lasting(sys.stderr)), theme=Theme(BAR_STYLES))


def show_above(console: Console, line: str) -> None:
    """Print a line on a console, above its bar if there is one."""
    console.print(escaped(line), markup=False, highlight=False, soft_wrap=True)


def _print(line: str, stream: TextIO, end: str = "\n") -> None:
    try:
        print(line, file=stream, flush=True, end=end)
    except OSError as error:
        _discard(stream)
        if stream is sys.stdout:
            print_line(
                f"vidrestore: stdout can't be written ({error.strerror}) and gets no more lines; the work "
                "continues",
                sys.stderr,
            )


def is_of_stdout(error: OSError) -> bool:
    """Return True if printing failed: such an error names no file, and what was printed still can't leave."""
    # an error without a name may be that of printing
    if error.filename is not None:
        return False
    try:
        if getattr(sys.stdout, "write_through", False):
            show("")  # nothing waits to be flushed
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _discard(stream: TextIO) -> None:
    """Discard what is printed on a stream from now on, and what is in its buffer."""
    # also what the buffer still holds
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


class _Lasting:
    """A stream for rich, which outlives its terminal: work goes on if that was closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        _print(text, self._stream, end="")
        return len(text)

    def flush(self) -> None:
        """Do nothing: each write is flushed."""


_KEYWORD = re.compile(r"`([a-z][a-z_]*)(?:=([^`]+))?`")


# Options that have another name on the command line than in the library
FLAGS = {"output": "-o", "settings": "--set", "options": "--encoder-option"}


def as_options(message: str) -> str:
    """Return a message with options in place of keywords."""
    return _KEYWORD.sub(_option, message)


def _option(match: re.Match[str]) -> str:
    name, value = match.groups()
    flag = FLAGS.get(name) or f"--{name.replace('_', '-')}"
    return f"{flag} {value}" if value else flag


def in_options(event: Event) -> Event:
    """Return an event with options in its message."""
    return (
        replace(event, message=as_options(event.message))
        if isinstance(event, Warned | Failed)
        else event
    )
