"""`vidrestore weights ...`: list, verify, fetch, import and export weights."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vidrestore.cli.command_options import Json, LegibleCommand, LegibleGroup, Quiet
from vidrestore.cli.terminal import show, show_columns, show_json
from vidrestore.errors import CheckpointError
from vidrestore.settings.families import ENTRY_POINTS, FAMILIES, find_family
from vidrestore.settings.options import Overwrite
from vidrestore.settings.tasks import TASKS

if TYPE_CHECKING:
    from vidrestore.weights import Card

app = typer.Typer(
    cls=LegibleGroup,
    help="List, verify, fetch, import and export model weights.",
    no_args_is_help=True,
)

DEFAULTS = {name for task in TASKS.values() for name in task.weights}
# parameters that options of the same names choose
ASKED_FOR = ("sigma", "scale", "rate")
ORDER = [*TASKS, "recover"]
_ENTRY = re.compile(r"[ \t]+(\w+):[ \t]+(\S.*)")  # of a section of YAML
_YAML_WORDS = {"~": None, "True": True, "False": False}
IMPORTED = ", ".join(name for name, family in FAMILIES.items() if family.adopt)


@app.command("list", cls=LegibleCommand)
def list_weights(as_json: Json = False) -> None:
    """List the bundled weights.

    The star marks what a task takes without --model. Fast: frames a second
    on a CPU; slow: seconds a frame there, so better on a GPU.

    Examples:
      vidrestore weights list
      vidrestore weights list --json
      vidrestore denoise in.mp4 --model dust-mh-denoise
    """
    from vidrestore.weights import read_manifest

    # as tasks are listed, those without one last
    cards = list(read_manifest().values())
    if as_json:
        for card in cards:
            show_json(card.to_entry() | {"openness": card.openness()})
        return
    cards.sort(key=lambda card: ((*ORDER, card.task).index(card.task), card.name))
    show_columns([("task", "name", "parameters", "size", "speed"), *map(_row, cards)])
    show("", "* is taken unless --model names another; sr takes one of two, by --input")


def _row(card: Card) -> tuple[str, ...]:
    name = card.name + (" *" if card.name in DEFAULTS else "")
    size = f"{card.bytes / 1e6:.1f} MB"
    return (
        card.task,
        name,
        _short(card.parameters),
        size,
        find_family(card.family).speed,
    )


@app.command(cls=LegibleCommand)
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="Names from the manifest; default: all."
        ),
    ] = None,
) -> None:
    """Check the checksum of weights and load them strictly. Also takes paths of .safetensors files."""
    from vidrestore.weights import verify

    damaged = 0
    for name, problem in verify(names):
        show(f"{name}: {f'damaged ({problem})' if problem else 'ok'}")
        damaged += bool(problem)
    if damaged:
        raise CheckpointError(
            f"{damaged} damaged; install vidrestore again, or pull them again"
        )


@app.command(cls=LegibleCommand)
def pull(
    names: Annotated[
        list[str],
        typer.Argument(metavar="ADDRESS...", help="Repositories or files of the hub."),
    ],
    quiet: Quiet = False,
) -> None:
    """Fetch weights from the Hugging Face Hub, check them, and print where they are.

    owner/repo, owner/repo@revision or owner/repo/FILE is resolved to the
    commit that it is now, which is printed; --model takes that address.
    """
    from vidrestore import weights

    for name in names:
        address, path = weights.pull(name, quiet=quiet)
        show(f"{address}: {path}")


@app.command("import", cls=LegibleCommand)
def import_weights(
    source: Annotated[
        Path, typer.Argument(help="Checkpoint (.pth, .pt, .safetensors) of other code.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write (.safetensors)."
        ),
    ],
    family: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"{IMPORTED}, or of an installed package."),
    ],
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="Task of the weights, if the family doesn't determine it.",
        ),
    ] = None,
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE|JSON",
            help="Arguments of the authors' constructor: their .yml (its network_g) or a .json.",
        ),
    ] = "{}",
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help='Parameters of the task, such as {"rate": 0.2}.'
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Convert a checkpoint of other code to .safetensors: tensors only, renamed and checked."""
    settings = _authors_arguments(config)
    values = None if parameters is None else _json_object("--parameters", parameters)
    _check_importable(family, settings)
    from vidrestore.weights import import_checkpoint

    card = import_checkpoint(
        source,
        output,
        family=family,
        config=settings,
        task=task,
        parameters=values,
        overwrite=overwrite,
    )
    show(
        f"{source} -> {output}: {card.family}, {card.bytes / 1e6:.1f} MB, sha256 {card.sha256}"
    )


@app.command("export", cls=LegibleCommand)
def export_weights(
    name: Annotated[
        str, typer.Argument(help="Name from the manifest, or a .safetensors file.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write (.onnx), a card beside it.",
        ),
    ],
    overwrite: Overwrite = False,
) -> None:
    """Write a network as ONNX, for encoders and players that run such files. Needs the extra "onnx".

    The file takes R, G, B in [0, 1] of some frames as channels, oldest
    first, of any size. It is run and compared with the network before
    it is written. The card (.json) has licence, origin and form.

    Examples:
      vidrestore weights export mb-taylorformer-h-denoise -o denoise.onnx
    """
    from vidrestore.weights.export import export_onnx

    card = export_onnx(name, output, overwrite=overwrite)
    least = min(card["psnr"].values())
    show(
        f"{name} -> {output}: {card['frames']} frames, {card['precision']}; "
        f"onnxruntime's result is at least {least:.0f} dB to the network's"
    )


def _check_importable(family: str, settings: Mapping[str, Any]) -> None:
    """Raise BadParameter for a family without an importer, unless its config is given."""
    from importlib.metadata import entry_points

    installed = sorted(entry_points(group=ENTRY_POINTS).names)
    builtin = FAMILIES.get(family)
    if family not in installed and (builtin is None or not (builtin.adopt or settings)):
        raise typer.BadParameter(
            f"--family {family}: can't be imported; expected {', '.join([IMPORTED, *installed])}"
        )


def _authors_arguments(config: str) -> dict[str, Any]:
    """Return the arguments in JSON, in a file of it, or in the section network_g of BasicSR's options."""
    # JSON, or the one section of a YAML file that is needed
    suffix = Path(config).suffix
    if suffix not in (".yml", ".yaml"):
        return _json_object(
            "--config", _text_of(config) if suffix == ".json" else config
        )
    section = re.search(
        r"^network_g:[ \t]*(?:#.*)?\n((?:[ \t].*\n|#.*\n|\n)*)",
        _text_of(config) + "\n",
        re.M,
    )
    if not section:
        raise typer.BadParameter(
            f"--config: {config} has no section network_g, as BasicSR's option files do"
        )
    # without comments, a value a line
    lines = (
        re.sub(r"(^|\s)#.*", "", line).rstrip() for line in section[1].splitlines()
    )
    entries = [(line, _ENTRY.fullmatch(line)) for line in lines if line]
    if others := [line for line, entry in entries if not entry]:
        raise typer.BadParameter(
            f"--config: {config}, network_g: can't read {others[0].strip()!r}, expected `name: value` in one "
            "line; give the arguments as JSON"
        )
    return {entry[1]: _yaml_value(entry[2]) for _, entry in entries if entry}


def _yaml_value(text: str) -> Any:
    """Return a number, a list, a word of YAML, or the text itself."""
    if text in _YAML_WORDS:
        return _YAML_WORDS[text]
    try:
        return json.loads(text)
    except ValueError:
        return text.strip("'")


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--config: {path} can't be read ({error})") from error


def _json_object(option: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(
            f'{option}: expected an object such as {{"patch": 16}}, got {text}'
        )
    return value


def _short(values: Mapping[str, Any]) -> str:
    """Return {"sigma": [1.0, 75.0]} as "sigma 1-75"; parameters without an option are omitted."""
    # ranges of what options choose by
    phrases = []
    for key in ASKED_FOR:
        if key in values:
            numbers = values[key] if isinstance(values[key], list) else [values[key]]
            phrases.append(f"{key} {'-'.join(map('{:g}'.format, numbers))}")
    return ", ".join(phrases)
