"""Add a trained file to the bundled weights."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidrestore.errors import CheckpointError
from vidrestore.files.atomic import replacing
from vidrestore.files.regular import open_regular
from vidrestore.weights.checkpoint import load_network, read_card, save_model
from vidrestore.weights.manifest import Card, read_entry, read_manifest, weights_folder, write_manifest

if TYPE_CHECKING:
    from torch import nn

LICENCE = "Apache-2.0"


def add_weights(
    source: Path,
    folder: Path | None = None,
    *,
    name: str | None = None,
    licence: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    measured: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    eight_bit_from: int | None = None,
) -> Card:
    """Copy the file `source` into `folder` (default: the bundled one), write its manifest entry and return
    it.

    With `eight_bit_from`, arrays of at least so many values are stored in 8 bits, the others in half
    precision. The name is the file's own by default; other defaults are taken from the file's metadata, which
    `vidrestore train` writes, or from the manifest if it has this very file. Raises CheckpointError, and
    writes nothing, if the file doesn't load strictly, if its training data or command is unknown, or if the
    manifest has the name already, unless `overwrite`.
    """
    folder = folder or weights_folder()
    own = read_card(source)
    network = load_network(source, own)
    name = name or own.name
    cards = read_manifest(folder)
    listed = cards.get(name)
    known = listed if listed is not None and listed.sha256 == own.sha256 else own
    card = replace(
        own,
        name=name,
        file=f"{name}.safetensors",
        licence=licence or known.licence or LICENCE,
        parameters=dict(known.parameters if parameters is None else parameters),
        training={key: value for key, value in known.training.items() if key != "curve"}
        | dict(training or {}),  # the validation curve remains in the file alone
        measured=dict(known.measured if measured is None else measured),
    )
    if name in cards and not overwrite:
        raise CheckpointError(
            f"{folder / 'manifest.json'}: has {name!r} already; set `overwrite` if the new weights are "
            "measured to be better"
        )
    card = _checked(card, source)
    target = folder / f"{name}.safetensors"
    if eight_bit_from is None:
        _copy(source, target)
    else:
        stored = _store(target, network, own, eight_bit_from)
        card = replace(card, sha256=stored.sha256, bytes=stored.bytes)
    cards[name] = card
    write_manifest(cards.values(), folder)
    return cards[name]


def _checked(card: Card, source: Path) -> Card:
    """Return a card as the manifest will have it. Raises CheckpointError if its training is unknown or a
    value isn't allowed there.
    """
    if missing := [key for key in ("data", "command") if not card.training.get(key)]:
        raise CheckpointError(f"{source}: has no record of its training; give `{'` and `'.join(missing)}`")
    return read_entry(card.to_entry(), str(source))


def _copy(source: Path, target: Path) -> None:
    """Copy a file atomically; copying a file onto itself does nothing."""
    if target.exists() and target.samefile(source):
        return
    try:
        with open_regular(source, follow=True) as content, replacing(target) as stream:
            shutil.copyfileobj(content, stream)
    except OSError as error:
        raise CheckpointError(f"{target}: can't be written ({error})") from error


def _store(target: Path, network: nn.Module, card: Card, eight_bit_from: int) -> Card:
    """Write a network in 8 bits with the card of its file; return the card of the new file."""
    extra = {"licence": card.licence, "training": card.training, "measured": card.measured}
    return save_model(
        target,
        network,
        family=card.family,
        config=card.config,
        task=card.task,
        parameters=card.parameters,
        extra={key: value for key, value in extra.items() if value},
        half=True,
        eight_bit_from=eight_bit_from,
    )
