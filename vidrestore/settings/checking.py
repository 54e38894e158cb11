"""Settings from TOML and from `--set KEY=VALUE`: read with limits, checked by pydantic, written back.

    tables = with_settings(parse_toml("[training]\\nsteps = 10"), ["training.steps=20"], ["training"])
    schedule = checked(Schedule, tables["training"], "run.toml, [training]")
    print(toml({"training": schedule}))

The dataclass declares what is allowed: `steps: Annotated[int, Field(ge=1)]`. Pydantic is imported when
something is checked.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_type_hints

from vidrestore.errors import ConfigError, OptionError, VidRestoreError

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")
# Most parts of a dotted key: tomllib's memory grows with the square of their number, 10 GB for a key of
# 100 KB.
MOST_KEY_PARTS = 16
_KEY_PART = r"""(?:[\w-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(
    rf"(?<![\w-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MOST_KEY_PARTS}}}"
)
# pydantic's names of members of unions
_MEMBERS = ("str", "int", "float", "bool", "none")
_LONGEST_VALUE = 200  # most characters of a value in a message


class Checked:
    """Base of dataclasses that `checked` makes: exact types, no unknown names, finite numbers."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "strict": True,
        "extra": "forbid",
        "allow_inf_nan": False,
    }


class SettingText(str):
    """The text after `--set KEY=`, whose type is that of the field that it sets."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text from anywhere. Raises ValueError with the reason, also for a key of more than
    `MOST_KEY_PARTS` parts, values nested too deeply, and integers beyond 64 bits, which TOML doesn't have.
    """
    # before parsing, whose memory it would take
    if deep := _DEEP_KEY.search(text):
        raise ValueError(
            f"{deep[0][:40]}… has more than {MOST_KEY_PARTS} parts; use a shorter key"
        )
    try:
        tables = tomllib.loads(text)
        _check_integers(tables)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return tables


def _check_integers(value: Any) -> None:
    """Raise ValueError for a long integer, which can be neither printed nor converted."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_integers(inner)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a whole number of more than 64 bits")


def with_settings(
    tables: Mapping[str, Any], settings: Iterable[str], sections: Iterable[str]
) -> Any:
    """Return the tables of a file with `settings` "KEY=VALUE" applied; KEY is a top-level name or
    "section.name".

    Raises OptionError if there is no "=", and for an unknown section.
    """
    # the file's tables, changed by each setting in turn
    tables = {
        name: dict(part) if isinstance(part, dict) else part
        for name, part in tables.items()
    }
    for setting in settings:
        key, equals, text = setting.partition("=")
        section, dot, name = key.strip().rpartition(".")
        if not equals or not name:
            example = (
                f"{setting}=VALUE" if name and not equals else "SECTION.NAME=VALUE"
            )
            raise OptionError(
                f"`settings={setting}`: expected KEY=VALUE, as in {example}"
            )
        if dot and section not in sections:
            choices = known_names(section, sections)
            raise OptionError(
                f"`settings={setting}`: no section {section!r}; there are: {choices}"
            )
        if not dot and name in sections:
            raise OptionError(
                f"`settings={setting}`: {name} is a section; say which of its values, as in {name}.KEY=VALUE"
            )
        table = tables.setdefault(section, {}) if dot else tables
        # else the file is wrong, which is reported when it is checked
        if isinstance(table, dict):
            table[name] = SettingText(text.strip())
    return tables


def known_names(name: str, candidates: Iterable[str]) -> str:
    """Join the known names for a message, the closest to `name` first."""
    names = list(candidates)
    close = get_close_matches(name, names, cutoff=0.7)
    return ", ".join([*close, *(other for other in names if other not in close)])


def checked(
    kind: type[T], values: Any, place: str, error: type[VidRestoreError] = ConfigError
) -> T:
    """Convert plain values to the dataclass `kind`, a subclass of `Checked`.

    Lists become tuples, and whole numbers floats, where the field is one. Raises `error` for values that are
    missing, unknown or wrong, with their `place`.
    """
    from pydantic import ValidationError

    # values become those of the fields' types, and are then checked strictly
    if not isinstance(values, dict):
        raise error(f"{place} must be an object, found {values!r:.{_LONGEST_VALUE}}")
    hints = _hints(kind)  # type: ignore[arg-type]
    values = {
        name: _typed(value, hints.get(name, Any)) for name, value in values.items()
    }
    try:
        # as JSON, where lists are the form of tuples; TOML's dates become strings
        adapter = _adapter(kind)  # type: ignore[arg-type]
        instance: T = adapter.validate_json(json.dumps(values, default=str))
    except ValidationError as problem:
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        raise error(f"{place}: {explained(problem, names)}") from None
    except VidRestoreError as problem:
        raise error(f"{place}: {problem}") from problem
    return instance


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _typed(value: Any, hint: Any) -> Any:
    """Parse the text of a setting as TOML if its field takes that; strings need no quotes, and lists no
    brackets.
    """
    from pydantic import TypeAdapter, ValidationError

    if isinstance(value, dict):
        return {name: _typed(part, Any) for name, part in value.items()}
    if not isinstance(value, SettingText):
        return value
    # as TOML, as text, or as a list without brackets: the first that the field takes
    parsed = _value_of(value)
    parts = [_value_of(part.strip()) for part in value.split(",") if part.strip()]
    for candidate in (
        (parsed,) if isinstance(parsed, list) else (parsed, str(value), parts)
    ):
        try:
            TypeAdapter(hint).validate_json(
                json.dumps(candidate, default=str), strict=True
            )
            return candidate
        except ValidationError:
            continue
    return parsed


def _value_of(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return str(text)


def converted(value: Any, kind: Any) -> Any:
    """Return a value of TOML, or its text, or of JSON, as `kind`. Raises ValueError with the reason."""
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as problem:
        raise ValueError(explained(problem)) from None


def explained(error: ValidationError, names: Iterable[str] = ()) -> str:
    """Return what is wrong: all unknown or missing names, else one value, what was expected and found."""
    # names first, then the one value that is farthest down
    problems = error.errors(include_url=False)

    def of_kind(kind: str) -> list[str]:
        return sorted(
            ".".join(map(str, _named(entry["loc"])))
            for entry in problems
            if entry["type"] == kind
        )

    if unknown := of_kind("unexpected_keyword_argument"):
        return f"unknown: {', '.join(unknown)}; there are: {known_names(unknown[0], names)}"
    if missing := of_kind("missing"):
        return f"missing: {', '.join(missing)}"
    # the member of a union that fits best
    problem = max(problems, key=lambda entry: len(entry["loc"]))
    # members of a union are in the path, too
    path = [str(part) for part in problem["loc"] if part not in _MEMBERS]
    indices = [part for part in problem["loc"] if isinstance(part, int)]
    place = ".".join(filter(str.isidentifier, path)) or ("" if indices else "it")
    place += "".join(f", item {part}" for part in indices)
    value = problem["input"]
    messages = [
        other["msg"]
        for other in problems
        if other is not problem and other["input"] is value
    ]
    alternatives = [
        text.partition(" should be ")[2] for text in messages if " should be " in text
    ]
    expected = " or ".join(
        [re.sub(r"^\w+ should ", "must ", problem["msg"]), *alternatives]
    )
    words = str(value) if isinstance(value, Fraction) else repr(value)
    return f"{place} {expected}, found {words:.{_LONGEST_VALUE}}"


def _named(location: Iterable[int | str]) -> Iterator[int | str]:
    """Yield the parts of a location that the user wrote, without pydantic's name of a tuple in a union."""
    return (part for part in location if not str(part).startswith("tuple["))


def toml(tables: Mapping[str, Any]) -> str:
    """Write values, and tables of values or dataclasses, as TOML that reads back equal; None is omitted."""
    # plain values first, as TOML has them before tables
    plain = dict(tables)
    for name, value in tables.items():
        if is_dataclass(value) and not isinstance(value, type):
            plain[name] = asdict(value)
    lines = _lines(
        {name: value for name, value in plain.items() if not isinstance(value, Mapping)}
    )
    for name, table in plain.items():
        if isinstance(table, Mapping) and table:
            lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} = {_toml(value)}"
        for name, value in values.items()
        if value is not None
    ]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(_lines(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
