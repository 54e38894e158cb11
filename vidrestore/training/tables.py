"""Dataclasses from tables of TOML, checked value by value, and back to TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from vidrestore.errors import ConfigError, OptionError

T = TypeVar("T")
# parts of a key; tomllib takes memory by the square of their number: 10 GB for one key of 100 KB
DEEPEST = 16
_PART = r"""(?:[\w-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEEPEST}}}")
_KINDS = {str: "a string", bool: "true or false", int: "a whole number", float: "a number", dict: "a table"}


class Typed(str):
    """A value as it was typed after `--set KEY=`: it becomes what its field is declared as."""

    key: str

    def __new__(cls, text: str, key: str) -> Typed:
        typed = super().__new__(cls, text)
        typed.key = key
        return typed


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Tables of a TOML text. ConfigError if it isn't one, and for a key of more than `DEEPEST` parts."""
    if deep := _DEEP_KEY.search(text):
        raise ConfigError(
            f"{where}: {deep[0][:40]}… has more than {DEEPEST} parts, and no configuration has such a key"
        )
    try:
        return _loaded(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid TOML ({error})") from error


def _loaded(text: str) -> dict[str, Any]:
    found = tomllib.loads(text)
    _check_whole(found)
    return found


def _check_whole(value: Any) -> None:
    """ValueError for a whole number that TOML does not have; Python would neither print nor convert it."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_whole(inner)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a whole number of more than 64 bits")


def with_settings(
    content: dict[str, Any], settings: Iterable[str], sections: Iterable[str]
) -> dict[str, Any]:
    """Tables of a file with values of `--set KEY=VALUE` in them, KEY being a name at the top or
    "section.name".

    Raises OptionError if there is no "=", and for a section that isn't known.
    """
    content = {name: dict(part) if isinstance(part, dict) else part for name, part in content.items()}
    for setting in settings:
        key, equals, text = setting.partition("=")
        section, dot, name = key.strip().rpartition(".")
        if not equals or not name:
            raise OptionError(f"`settings={setting}`: expected KEY=VALUE, as in training.steps=1000")
        if dot and section not in sections:
            raise OptionError(
                f"`settings={setting}`: no section {section!r}; there are: {known_names(section, sections)}"
            )
        if not dot and name in sections:
            raise OptionError(
                f"`settings={setting}`: {name} is a section; say which of its values, as in {name}.KEY=VALUE"
            )
        table = content.setdefault(section, {}) if dot else content
        if isinstance(table, dict):  # else the file is wrong, which is said when it is checked
            table[name] = Typed(text.strip(), key.strip())
    return content


def known_names(name: str, known: Iterable[str]) -> str:
    """All names that there are, what `name` may have meant first."""
    names = list(known)
    close = get_close_matches(name, names, cutoff=0.7)
    return ", ".join([*close, *(other for other in names if other not in close)])


def section(kind: type[T], values: Any, where: str, **given: Any) -> T:
    """A dataclass from a table of TOML; `given` are fields that a table does not hold.

    Raises ConfigError for values that are missing, unknown or wrong.
    """
    if type(values) is not dict:
        raise ConfigError(f"{where} must be a table, found {values!r}")
    types = get_type_hints(kind)
    items = fields(kind)  # type: ignore[arg-type]
    hints = {item.name: types[item.name] for item in items if item.name not in given}
    required = {item.name for item in items if item.default is MISSING and item.default_factory is MISSING}
    if unknown := sorted(values.keys() - hints.keys()):
        raise ConfigError(
            f"{where}: unknown: {', '.join(unknown)}; there are: {known_names(unknown[0], hints)}"
        )
    if missing := sorted(required - values.keys() - given.keys()):
        raise ConfigError(f"{where}: missing: {', '.join(missing)}")
    fitting = {name: checked(value, hints[name], f"{where}: {name}") for name, value in values.items()}
    try:
        return kind(**fitting, **given)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def checked(value: Any, kind: Any, where: str) -> Any:
    """`value` as the type that a field is declared with: lists become tuples, whole numbers serve where any
    number does.
    """
    if NoneType in get_args(kind):  # what a value is that isn't given
        (kind,) = set(get_args(kind)) - {NoneType}
    if isinstance(kind, UnionType) and str in get_args(kind):  # one, or a list of several
        kind = next(each for each in get_args(kind) if (each is str) != _listed(value))
    if isinstance(value, Typed):
        value, where = _meant(value, kind), f"`settings={value.key}`"
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where} must be a list, found {value!r}")
        return tuple(
            checked(item, get_args(kind)[0], f"{where}, item {number}") for number, item in enumerate(value)
        )
    kind = get_origin(kind) or kind
    if kind is float and type(value) is int:
        return float(value)
    if kind in _KINDS and type(value) is not kind:
        raise ConfigError(f"{where} must be {_KINDS[kind]}, found {value!r}")
    if kind is dict:
        return {name: _meant(part, Any) if isinstance(part, Typed) else part for name, part in value.items()}
    return value


def _listed(value: Any) -> bool:
    return value.startswith("[") if isinstance(value, Typed) else isinstance(value, list)


def require(holds: bool, name: str, expected: str, found: Any) -> None:
    """ConfigError unless `holds`: `name` must be what is `expected`."""
    if not holds:
        raise ConfigError(
            f"{name} must be {expected}, found {list(found) if isinstance(found, tuple) else repr(found)}"
        )


def _meant(typed: Typed, kind: Any) -> Any:
    """Text as TOML reads it; names need no quotes, and a list no brackets."""
    if get_origin(kind) is tuple and not typed.startswith("["):
        return [
            _meant(Typed(part.strip(), typed.key), get_args(kind)[0])
            for part in typed.split(",")
            if part.strip()
        ]
    try:
        found: Any = _loaded(f"value = {typed}")["value"]
    except (ValueError, RecursionError):
        return str(typed)
    # a string may look like a number
    return found if kind is not str or isinstance(found, str) else str(typed)


def toml(tables: Mapping[str, Any]) -> str:
    """Values, and tables of values or of dataclasses, as a TOML file that reads back equal; what is None is
    left out.
    """
    plain = {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in tables.items()
    }
    lines = [
        f"{name} = {_toml(value)}"
        for name, value in plain.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    for name, table in plain.items():
        if isinstance(table, Mapping) and table:
            lines += [
                "",
                f"[{name}]",
                *(f"{key} = {_toml(value)}" for key, value in table.items() if value is not None),
            ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items() if part is not None)
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
