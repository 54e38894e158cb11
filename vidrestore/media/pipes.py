"""Standard input and output as byte streams."""

from __future__ import annotations

import sys
from typing import BinaryIO

from vidrestore.errors import MediaError

PIPE = "-"  # the name of standard input as a source, and of standard output as an output


def standard_input() -> BinaryIO:
    """Return standard input. Raises MediaError if it is closed."""
    if sys.__stdin__ is None:
        raise MediaError("-: standard input is closed; pipe something in, or name a file")
    return sys.stdin.buffer


def standard_output() -> BinaryIO:
    """Return standard output. Raises MediaError if it is closed."""
    if sys.__stdout__ is None:
        raise MediaError("-: standard output is closed; pipe it to something, or give `output` a file")
    return sys.stdout.buffer
