"""Trained weights: list, load strictly, fetch and import them.

    model = load_model("dust-denoise")  # or a path.safetensors, or hf:owner/repo@commit[/file.safetensors]
    model.network, model.card           # an nn.Module in evaluation mode; its description

A name is looked up in the manifest of the bundled folder (`weights/` of a checkout, `vidrestore/_weights` of
an installed package). A file of the hub is kept in huggingface_hub's cache.

Importing this package does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vidrestore.errors import CheckpointError
from vidrestore.families import FAMILIES, find_family, load
from vidrestore.weights import hub
from vidrestore.weights.checkpoint import Model, build_network, read_card, read_model, save_model
from vidrestore.weights.importing import import_checkpoint
from vidrestore.weights.manifest import (
    Card,
    check_file,
    find_card,
    read_manifest,
    weights_folder,
    write_manifest,
)

__all__ = [
    "FAMILIES",
    "Card",
    "Model",
    "Verdict",
    "build_network",
    "card_of",
    "import_checkpoint",
    "is_file",
    "load_model",
    "pull",
    "read_card",
    "read_manifest",
    "save_model",
    "verify",
    "weights_folder",
    "write_manifest",
]


@dataclass(frozen=True)
class Verdict:
    """The result of `verify` for one entry."""

    name: str
    state: Literal["ok", "damaged"]
    message: str = ""


def load_model(
    source: str | Path, device: str = "cpu", folder: Path | None = None, family: str | None = None
) -> Model:
    """Load weights by name, path or hub address, strictly, onto `device`.

    A name is looked up in the manifest of `folder` (default: the bundled one), and its file must have the
    manifest's checksum. The file of a hub address is fetched. `family` reads files that don't describe
    themselves. Raises CheckpointError.
    """
    if family is None:
        model = read_model(*_checked_file(str(source), folder))
    elif reader := find_family(family).read:
        model = load(reader)(Path(source))
    else:
        raise CheckpointError(f"the family {family!r} is named in its own files; leave `family` out")
    model.network.to(device)
    return model


def card_of(source: str | Path, folder: Path | None = None, task: str | None = None) -> Card:
    """Return the card of weights, unchecked. Raises CheckpointError with the names for `task`."""
    name = str(source)
    return read_card(_file(name), sha256="") if is_file(name) else find_card(name, folder, task)


def pull(source: str, *, quiet: bool = False) -> tuple[str, Path]:
    """Fetch weights from the Hugging Face Hub and load them once; return their address and their file.

    `source` is an address or [hf:]owner/repo[@revision][/file.safetensors], whose commit is looked up. Raises
    CheckpointError.
    """
    if quiet:
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
    address = hub.resolve(source)
    path = hub.fetch(address)
    read_model(path)
    return str(address), path


def verify(sources: list[str] | None = None, folder: Path | None = None) -> Iterator[Verdict]:
    """Check each of `sources` (names, paths, addresses; default: the whole manifest) by its checksum and a
    strict load. Raises CheckpointError for a name that isn't in the manifest.
    """
    names = sources or read_manifest(folder)
    for source in names:
        if not is_file(source):
            find_card(source, folder)
    for source in names:
        try:
            load_model(source, folder=folder)
            yield Verdict(source, "ok")
        except CheckpointError as error:
            yield Verdict(source, "damaged", str(error))


def is_file(source: str) -> bool:
    """Return True if `source` is a path or an address, not a name in the manifest."""
    return source.startswith("hf:") or bool(Path(source).suffix) or Path(source).parent != Path()


def _file(source: str) -> Path:
    """Return the file at a path, or fetch that of a hub address."""
    return hub.fetch(hub.HubAddress.parse(source)) if source.startswith("hf:") else Path(source)


def _checked_file(source: str, folder: Path | None) -> tuple[Path, Card | None]:
    """Return the file of `source`, and its manifest entry if it is a name."""
    if is_file(source):
        return _file(source), None
    card = find_card(source, folder)
    path = (folder or weights_folder()) / str(card.file)
    check_file(path, card)
    return path, card
