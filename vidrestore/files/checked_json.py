"""Parse JSON that this program wrote, with limits on size and depth, and check its types.

A schema is a type, several of them in a tuple, a range of integers, `[schema]` for a list, a `Row` for a list
of fixed length, or `{key: schema}` for an object with these keys and any others. `float` means a finite
number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vidrestore.files.regular import MEGABYTE, read_limited

DEEPEST = 32  # most levels of objects and lists; ours have 6
COUNT = range(1 << 62)
Types = Mapping[str, Any]


class Row:
    """The schema of a list with a fixed number of items."""

    def __init__(self, *items: Any) -> None:
        self.items = items


def parse_json(content: bytes | str) -> Any:
    """Parse JSON of at most `DEEPEST` levels. Raises ValueError with the reason."""
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [found]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _inside(each) if isinstance(inner, dict | list)]
        if not level:
            return found
    raise ValueError("nested too deeply")


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def parse_object(content: bytes | str, types: Types | None = None) -> dict[str, Any]:
    """Parse a JSON object whose fields have these `types`; others are kept. Raises ValueError with the
    reason.
    """
    found = parse_json(content)
    if not isinstance(found, dict):
        raise ValueError(f"an object was expected, found {type(found).__name__}")
    check_types(found, types or {})
    return found


def read_object(path: Path, types: Types | None = None, limit: int = MEGABYTE) -> dict[str, Any]:
    """Parse the object in a file. Raises OSError if it can't be read, ValueError for other content."""
    return parse_object(read_limited(path, limit), types)


def check_types(value: Any, schema: Any, where: str = "") -> None:
    """Raise ValueError, with the place and the reason, unless a value fits its schema."""
    if isinstance(schema, Mapping):
        _need(isinstance(value, dict), value, where)
        for key, inner in schema.items():
            if key not in value:
                raise ValueError(f"{where}{key} is missing")
            check_types(value[key], inner, f"{where}{key}.")
    elif isinstance(schema, list | Row):
        kinds = [schema[0]] * len(value) if isinstance(schema, list) and isinstance(value, list) else None
        kinds = list(schema.items) if isinstance(schema, Row) else kinds
        _need(isinstance(value, list) and kinds is not None and len(kinds) == len(value), value, where)
        for number, (each, inner) in enumerate(zip(value, kinds or (), strict=True)):
            check_types(each, inner, f"{where}{number}.")
    elif isinstance(schema, range):
        _need(isinstance(value, int) and not isinstance(value, bool), value, where)
        if value not in schema:
            raise ValueError(
                f"{where[:-1]} is {_short(value)}, expected at least {schema.start}" + _most(schema)
            )
    else:
        _check_plain(value, schema if isinstance(schema, tuple) else (schema,), where)


def _check_plain(value: Any, kinds: tuple[type, ...], where: str) -> None:
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < COUNT.stop else math.inf
    _need(isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds), value, where)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where[:-1]} is not a finite number")


def _need(fits: bool, value: Any, where: str) -> None:
    if not fits:
        raise ValueError(f"{where[:-1] or 'it'} has the wrong type {type(value).__name__}")


def _most(allowed: range) -> str:
    return "" if allowed.stop == COUNT.stop else f" and less than {allowed.stop}"


def _short(value: int) -> str:
    return str(value) if abs(value) < COUNT.stop else "far too large"
