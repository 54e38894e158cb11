"""The one place that prints. Titles, file names and headers may hold anything; on the terminal they are one
line of plain text.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Mapping
from typing import Any, TextIO

# C0 and C1 control characters, line and paragraph separators, what turns the direction of text, and bytes of
# file names that are not UTF-8, which Python reads as surrogates.
_NOT_PLAIN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(line: str) -> str:
    """A line without control characters: they stand as Python writes them, \\x1b for example."""
    return _NOT_PLAIN.sub(lambda found: ascii(found[0])[1:-1], line)


def escaped_json(line: str) -> str:
    """JSON without control characters: all of them are inside its strings."""
    return _NOT_PLAIN.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def show(*lines: str) -> None:
    """Print lines on stdout, each escaped; that it can't be written goes up."""
    for line in lines:
        print(escaped(line))


def show_json(values: Mapping[str, Any]) -> None:
    """Print an object on stdout as a line of JSON; that it can't be written goes up."""
    print(_json_line(json.dumps(values, ensure_ascii=False)))


def say(line: str, stream: TextIO | None = None) -> None:
    """Print a line, at once, escaped; a terminal breaks it between words. If nobody reads any more, or a disk
    is full, work goes on: it is said once on stderr.
    """
    stream = stream or sys.stdout
    _print(fitted(escaped(line), _columns(stream)), stream)


def say_json(line: str) -> None:
    """Print a line of JSON on stdout, as `say` does."""
    _print(_json_line(line), sys.stdout)


def _json_line(line: str) -> str:
    try:
        line.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        line = json.dumps(json.loads(line))  # in ASCII
    return escaped_json(line)


def say_over(line: str) -> None:
    """Print a line on the terminal behind stderr, over the one that is there."""
    print(f"\r\x1b[K{escaped(line)}", end="", file=sys.stderr, flush=True)


def fitted(line: str, columns: int) -> str:
    """Return a line broken between words where it is longer than `columns`, if that is known; names that are
    longer stay whole.
    """
    if not 0 < columns < len(line):
        return line
    broken = textwrap.wrap(
        line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(broken)


def _columns(stream: TextIO) -> int:
    """The width of the terminal behind a stream, 0 if there is none or it doesn't know."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def _print(line: str, stream: TextIO) -> None:
    try:
        print(line, file=stream, flush=True)
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # what is still in the buffer goes there, too
        os.close(null)
        if stream is sys.stdout:
            say(
                f"vidrestore: nothing more is said on stdout, which can't be written ({error.strerror}); "
                "the work goes on",
                sys.stderr,
            )
