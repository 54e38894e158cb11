"""Convert tables of TOML to dataclasses, checked value by value, and back to TOML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from vidrestore.errors import ConfigError, OptionError
from vidrestore.files.checked_toml import checked_toml

T = TypeVar("T")
_KINDS = {str: "a string", bool: "true or false", int: "a whole number", float: "a number", dict: "a table"}


class SettingText(str):
    """The text after `--set KEY=`, which is converted to the type of the field that it sets."""

    key: str

    def __new__(cls, text: str, key: str) -> SettingText:
        typed = super().__new__(cls, text)
        typed.key = key
        return typed


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse a TOML text. Raises ConfigError if it isn't valid, or has keys of too many parts."""
    try:
        return checked_toml(text)
    except ValueError as error:
        raise ConfigError(f"{where}: not valid TOML ({error})") from error


def with_settings(
    content: dict[str, Any], settings: Iterable[str], sections: Iterable[str]
) -> dict[str, Any]:
    """Return the tables of a file with `settings` "KEY=VALUE" applied; KEY is a top-level name or
    "section.name".

    Raises OptionError if there is no "=", and for an unknown section.
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
        if isinstance(table, dict):  # else the file is wrong, which is reported when it is checked
            table[name] = SettingText(text.strip(), key.strip())
    return content


def known_names(name: str, known: Iterable[str]) -> str:
    """Join the known names for a message, the closest to `name` first."""
    names = list(known)
    close = get_close_matches(name, names, cutoff=0.7)
    return ", ".join([*close, *(other for other in names if other not in close)])


def section(kind: type[T], values: Any, where: str, **given: Any) -> T:
    """Convert a table of TOML to a dataclass; `given` are fields that the table does not hold.

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
    """Return `value` as the declared type of a field: lists become tuples, whole numbers become floats.

    Raises ConfigError for a value of another type.
    """
    if NoneType in get_args(kind):  # TOML has no null, so a value that is given is not None
        (kind,) = set(get_args(kind)) - {NoneType}
    if isinstance(kind, UnionType) and str in get_args(kind):  # a string, or a list of strings
        kind = next(each for each in get_args(kind) if (each is str) != _is_list(value))
    if isinstance(value, SettingText):
        value, where = _parse_text(value, kind), f"`settings={value.key}`"
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
        return {
            name: _parse_text(part, Any) if isinstance(part, SettingText) else part
            for name, part in value.items()
        }
    return value


def _is_list(value: Any) -> bool:
    return value.startswith("[") if isinstance(value, SettingText) else isinstance(value, list)


def require(holds: bool, name: str, expected: str, found: Any) -> None:
    """Raise ConfigError, saying that `name` must be `expected`, unless `holds` is true."""
    if not holds:
        raise ConfigError(
            f"{name} must be {expected}, found {list(found) if isinstance(found, tuple) else repr(found)}"
        )


def _parse_text(typed: SettingText, kind: Any) -> Any:
    """Parse text as TOML; strings need no quotes, and lists no brackets."""
    if get_origin(kind) is tuple and not typed.startswith("["):
        return [
            _parse_text(SettingText(part.strip(), typed.key), get_args(kind)[0])
            for part in typed.split(",")
            if part.strip()
        ]
    try:
        found: Any = checked_toml(f"value = {typed}")["value"]
    except ValueError:
        return str(typed)
    # a string field keeps text that looks like a number
    return found if kind is not str or isinstance(found, str) else str(typed)


def toml(tables: Mapping[str, Any]) -> str:
    """Write values, and tables of values or dataclasses, as TOML that reads back equal; None is omitted."""
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
