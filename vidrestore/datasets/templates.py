"""Match files and folders against templates of `layouts`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from vidrestore.errors import DatasetError

Fields = dict[str, str]
_NAMES = re.compile(r"\{(\w+)\}")


def base(template: str) -> str:
    """Return the folders of a template before the first part with a placeholder."""
    parts = template.split("/")
    return "/".join(parts[: next(index for index, part in enumerate(parts) if "{" in part)])


def spelled(root: Path, path: str) -> str:
    """Return `path` as it is spelled below `root` if only upper and lower case differ; else unchanged."""
    found = ""
    for part in path.split("/") if path else []:
        folder = root / found
        exact = (folder / part).exists()
        alike = [] if exact else [name for name in listing(folder) if name.lower() == part.lower()]
        found = f"{found}/{alike[0] if alike else part}".removeprefix("/")
    return found


def filled(template: str, fields: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced."""
    return _NAMES.sub(lambda name: fields[name[1]], template)


def matches(root: Path, template: str, suffixes: tuple[str, ...] = ()) -> Iterator[tuple[str, Fields]]:
    """Yield the matches below `root`, in order: relative paths, and the values of the template's
    placeholders.

    Matches are files with one of `suffixes`, which the template omits; without suffixes they are folders.
    """
    yield from _walk(root, "", template.split("/"), suffixes, {})


def _walk(
    root: Path, folder: str, parts: list[str], suffixes: tuple[str, ...], known: Fields
) -> Iterator[tuple[str, Fields]]:
    part, *rest = parts
    ends = () if rest else suffixes
    for name, found in _fitting(root / folder, part, ends, known):
        if rest:
            yield from _walk(root, f"{folder}{name}/", rest, suffixes, known | found)
        elif ends or (root / folder / name).is_dir():
            yield folder + name, known | found


def _fitting(folder: Path, part: str, ends: tuple[str, ...], known: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield names in a folder that fit one part of a template; with suffixes `ends`, files by their stems."""
    if "{" not in part:
        yield spelled(folder, part), {}
        return
    pattern = _pattern(part, tuple((name, known[name]) for name in _NAMES.findall(part) if name in known))
    for name in listing(folder):
        if ends and not name.lower().endswith(ends):
            continue
        if found := pattern.fullmatch(os.path.splitext(name)[0] if ends else name):
            yield name, found.groupdict()


@lru_cache
def _pattern(part: str, known: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """Compile one part of a template: other text is literal; a known or repeated placeholder must have its
    earlier value.
    """
    pieces = []
    seen: set[str] = set()
    for index, piece in enumerate(_NAMES.split(part)):
        if index % 2 == 0:
            pieces.append(re.escape(piece))
        elif piece in dict(known):
            pieces.append(re.escape(dict(known)[piece]))
        else:
            pieces.append(f"(?P={piece})" if piece in seen else f"(?P<{piece}>.+?)")
            seen.add(piece)
    return re.compile("".join(pieces))


def listing(folder: Path) -> list[str]:
    """Return the sorted names in a folder without hidden ones; none if it doesn't exist. Raises DatasetError
    if it can't be read.
    """
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DatasetError(f"{folder}: the folder can't be read ({error.strerror})") from error


def in_order(names: list[str]) -> list[str]:
    """Sort names with numbers by value: im2 before im10."""
    return sorted(
        names,
        key=lambda name: [
            (len(part), part) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)
        ],
    )
