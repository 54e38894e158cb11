"""Trained weights: list, load strictly, fetch and import them.

    model = load_model("dust-denoise")  # or a path.safetensors, or hf:owner/repo@commit[/file.safetensors]
    model.network, model.card           # an nn.Module in evaluation mode; its description

A name is looked up in the manifest of the bundled folder (`weights/` of a checkout, `vidrestore/_weights` of
an installed package). A file of the hub is kept in huggingface_hub's cache.

Importing this package does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vidrestore.errors import CheckpointError
from vidrestore.settings.families import FAMILIES, find_family, load
from vidrestore.weights import hub
from vidrestore.weights.checkpoint import (
    Model,
    build_network,
    read_card,
    read_model,
    save_model,
)
from vidrestore.weights.importing import import_checkpoint
from vidrestore.weights.manifest import (
    Card,
    checked_file,
    find_card,
    read_manifest,
    weights_folder,
    write_manifest,
)

__all__ = [
    "FAMILIES",
    "Card",
    "Model",
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


def load_model(
    source: str | Path, device: str = "cpu", family: str | None = None
) -> Model:
    """Load weights by name, path or hub address, strictly, onto `device`.

    The file of a name must have the manifest's checksum; that of a hub address is fetched. Raises
    CheckpointError.

    Args:
        source: a name in the manifest, the path of a .safetensors file, or
            hf:owner/repo@commit[/file.safetensors].
        device: PyTorch's name of the device that the network is moved to (default: "cpu").
        family: reads a file that doesn't describe itself, such as "spandrel" one of another project; None:
            the file names its family.
    """
    # a file, a name of the manifest, or a file of another project
    name = str(source)
    if family is None and is_file(name):
        model = read_model(_file(name))
    elif family is None:
        card = find_card(name)
        model = read_model(checked_file(card), card)
    elif reader := find_family(family).read:
        model = load(reader)(Path(source))
    else:
        raise CheckpointError(
            f"the family {family!r} is named in its own files; leave `family` out"
        )
    model.network.to(device)
    return model


def card_of(source: str | Path, task: str | None = None) -> Card:
    """Return the card of weights, unchecked. Raises CheckpointError with the names for `task`.

    Args:
        source: as that of `load_model`.
        task: the weights that an error names are for it; None: for any.
    """
    name = str(source)
    return read_card(_file(name), sha256="") if is_file(name) else find_card(name, task)


def pull(source: str, *, quiet: bool = False) -> tuple[str, Path]:
    """Fetch weights from the Hugging Face Hub and load them once; return their address and their file.

    Raises CheckpointError.

    Args:
        source: an address or [hf:]owner/repo[@revision][/file.safetensors], whose commit is looked up.
        quiet: show no progress of the download (default: False).
    """
    # a progress bar would mix with JSON
    if quiet:
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
    address = hub.resolve(source)
    path = hub.fetch(address)
    read_model(path)
    return str(address), path


def verify(sources: list[str] | None = None) -> Iterator[tuple[str, str]]:
    """Check each of `sources` (names, paths, addresses; default: the whole manifest) by its checksum and a
    strict load; yield it with what is wrong, "" for nothing. Raises CheckpointError for a name that isn't in
    the manifest.

    Args:
        sources: each as that of `load_model`; None: all names of the manifest.
    """
    names = sources or read_manifest()
    # wrong names before the first is loaded
    for source in names:
        if not is_file(source):
            find_card(source)
    for source in names:
        try:
            load_model(source)
            yield source, ""
        except CheckpointError as error:
            yield source, str(error)


def is_file(source: str) -> bool:
    """Return True if `source` is a path or an address, not a name in the manifest."""
    return (
        source.startswith("hf:")
        or bool(Path(source).suffix)
        or Path(source).parent != Path()
    )


def _file(source: str) -> Path:
    """Return the file at a path, or fetch that of a hub address."""
    return (
        hub.fetch(hub.HubAddress.parse(source))
        if source.startswith("hf:")
        else Path(source)
    )
