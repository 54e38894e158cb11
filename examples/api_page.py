"""Write the page of the Python API from its docstrings: python examples/api_page.py"""

import inspect
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import vidrestore
from vidrestore.settings.options import Options

PAGE = Path(__file__).with_name("api.md")
LINE = 110  # columns, as for code
ORDER = (
    "restore",
    "restore_frames",
    "Restorer",
    "sense",
    "recover",
    "Summary",
    "RestoreOptions",
)
METHODS = ("__call__", "cancel", "to_json")


def page() -> str:
    """Return the page: public names with signatures and docstrings, options as tables."""
    names = [
        name for name in (*ORDER, *vidrestore.__all__) if not name.startswith("__")
    ]
    sections = [
        _section(name, getattr(vidrestore, name)) for name in dict.fromkeys(names)
    ]
    lines = [line for section in sections for line in section]
    known = {line.removeprefix("## ") for line in lines if line.startswith("## ")}
    contents = ", ".join(f"[{name}](#{name.lower()})" for name in dict.fromkeys(names))
    head = [
        "# Python API",
        "",
        "Made from the docstrings by `python examples/api_page.py`.",
        "",
        contents,
    ]
    return "\n".join([*head, *(_linked(line, known) for line in lines)]) + "\n"


def _section(name: str, found: Any) -> list[str]:
    lines = ["", f"## {name}", ""]
    if inspect.ismodule(found):
        lines += [*_text(found), "", "| name | what it is |", "|---|---|"]
        public = getattr(
            found, "__all__", [each for each in vars(found) if _is_own(found, each)]
        )
        lines += [
            f"| `{each}` | {_cell(getattr(found, each))} |"
            for each in public
            if callable(getattr(found, each))
        ]
    # the type of a function
    elif not inspect.isroutine(found) and not inspect.isclass(found):
        lines += [
            f"`{found}`".replace("vidrestore.events.", "").replace(
                "collections.abc.", ""
            )
        ]
    else:
        lines += ["```python", f"{name}{_signature(found)}", "```", "", *_text(found)]
        for method in METHODS:
            if (
                inspect.isclass(found)
                and method in vars(found)
                and inspect.getdoc(vars(found)[method])
            ):
                lines += ["", f"### {name}.{method}", "", *_text(vars(found)[method])]
    return lines


def _is_own(module: Any, name: str) -> bool:
    found = getattr(module, name)
    return (
        inspect.isclass(found)
        and found.__module__ == module.__name__
        and not name.startswith("_")
    )


def _signature(found: Any) -> str:
    if inspect.isclass(found) and issubclass(found, Exception):
        return "(message)"
    if is_dataclass(found):
        names = [field.name for field in fields(found)]
        line = "(...)" if _has_options(found) else f"({', '.join(names)})"
        if len(found.__name__ + line) <= LINE:
            return line
        return "\n".join(["(", *(f"    {name}," for name in names), ")"])
    signature, empty = inspect.signature(found), inspect.Parameter.empty
    plain = [each.replace(annotation=empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=empty)).replace(
        "'", '"'
    )


def _has_options(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, Options)


def _text(found: Any) -> list[str]:
    """Return the lines of a docstring, with arguments as a list; another indented part is code in Markdown,
    too.
    """
    text, heading, arguments = (inspect.getdoc(found) or "").partition("Args:\n")
    items = re.sub(r"^    (\w+)", r"- `\1`", arguments, flags=re.MULTILINE)
    items = re.sub(r"^ +", "  ", items, flags=re.MULTILINE)
    return (text + heading + items).strip().splitlines()


def _cell(found: Any) -> str:
    """Return the first sentence of a docstring, or the value's own."""
    first = " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", first)[0].replace("|", "\\|")


def _linked(line: str, known: set[str]) -> str:
    """Link the names of a docstring to their sections."""
    if line.startswith(("    ", "#", "|")):
        return line

    def link(found: re.Match[str]) -> str:
        name = found[1].removeprefix("vidrestore.")
        return f"[`{found[1]}`](#{name.lower()})" if name in known else found[0]

    return re.sub(r"`([\w.]+)`", link, line)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
