"""Parse TOML from anywhere: bounded depth of keys and values, and integers of 64 bits, as TOML has them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

# Most parts of a dotted key: tomllib's memory grows with the square of their number, 10 GB for a key of
# 100 KB.
DEEPEST = 16
_PART = r"""(?:[\w-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEEPEST}}}")


def checked_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text. Raises ValueError with the reason, also for a key of more than `DEEPEST` parts."""
    if deep := _DEEP_KEY.search(text):
        raise ValueError(f"{deep[0][:40]}… has more than {DEEPEST} parts; use a shorter key")
    try:
        found = tomllib.loads(text)
        _check_integers(found)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def _check_integers(value: Any) -> None:
    """Raise ValueError for an integer beyond 64 bits: long ones can be neither printed nor converted."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_integers(inner)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a whole number of more than 64 bits")
