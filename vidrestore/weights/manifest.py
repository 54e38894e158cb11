"""The list of bundled weights, `weights/manifest.json`, and their files beside it.

{"version": 1, "weights": [{
  "name": "dust-denoise", "family": "dust", "config": {...}, "task": "denoise", "parameters": {"sigma":
  [1, 75]}, "file": "dust-denoise.safetensors", "bytes": 3147776, "sha256": "...", "licence":
  "Apache-2.0", "training": {"data": "...", "command": "vidrestore train --config ..."}, "measured":
  {"clip or set": {"psnr": 31.8}}}]}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vidrestore.errors import CheckpointError
from vidrestore.files.atomic import replacing
from vidrestore.files.regular import MEGABYTE, open_regular, parse_json, read_limited
from vidrestore.settings.checking import Checked, checked, known_names

MANIFEST_VERSION = 1
ALL_TASKS = "all"  # weights for several tasks, which the network's configuration names
OPEN_LICENCES = ("Apache-2.0", "BSD-3-Clause", "MIT")
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Card(Checked):
    """The card of one file of weights: its network, its purpose, its origin.

    `parameters` are those of the task ({"sigma": [1, 75]}, {"rate": 0.2}, {"scale": 4}); `training` names
    data and command; `measured` holds held-out metrics. `sha256` and `bytes` are those of the file and
    identify the weights in a plan.
    """

    name: str
    family: str
    config: Mapping[str, Any]
    task: str
    sha256: str
    bytes: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None

    def suits(self, task: str | None) -> bool:
        """Return True for weights of a task, or of all tasks with this one among their network's."""
        return self.task == task or (
            self.task == ALL_TASKS and task in self.config.get("tasks", ())
        )

    def openness(self) -> dict[str, str]:
        """Return licence and origin as stated, with the classes of the Open Source AI Definition 1.0 and the
        Model Openness Framework that they amount to if the stated data can be had, by our own reading;
        examples/train/README.md has the sources of the data of bundled weights.
        """
        origin = {
            key: str(self.training.get(key) or "unknown") for key in ("data", "command")
        }
        is_open = self.licence in OPEN_LICENCES and "unknown" not in origin.values()
        return {
            "licence": self.licence or "unknown",
            "training_data": origin["data"],
            "training_command": origin["command"],
            "osaid": "Open Source AI" if is_open else "unknown",
            "mof": "Class III (Open Model)" if is_open else "unknown",
        }

    def to_entry(self) -> dict[str, Any]:
        """Return the card as an entry of the manifest, without fields that are not set."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def weights_folder() -> Path:
    """Return the folder of the bundled weights: inside the installed package, or at the top of a checkout."""
    installed = PACKAGE / "_weights"
    return installed if installed.is_dir() else PACKAGE.parent / "weights"


def read_manifest() -> dict[str, Card]:
    """Return the entries of the bundled manifest by name. Raises CheckpointError."""
    # the file, then whether it is one of this version
    path = weights_folder() / "manifest.json"
    try:
        document = parse_json(read_limited(path, 8 * MEGABYTE))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path}: the manifest is missing; install vidrestore again"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: can't be read as JSON ({error})") from error
    valid = isinstance(document, dict) and document.get("version") == MANIFEST_VERSION
    if not valid or not isinstance(document.get("weights"), list):
        raise CheckpointError(
            f'{path}: expected {{"version": {MANIFEST_VERSION}, "weights": [...]}}; another version of '
            "vidrestore wrote it"
        )
    entries = enumerate(document["weights"])
    cards = [
        checked(Card, entry, f"{path}, entry {number}", CheckpointError)
        for number, entry in entries
    ]
    return {card.name: card for card in cards}


def write_manifest(cards: Iterable[Card], folder: Path) -> None:
    """Write `cards` as the manifest of `folder` atomically. Raises CheckpointError."""
    document = {
        "version": MANIFEST_VERSION,
        "weights": [card.to_entry() for card in cards],
    }
    try:
        with replacing(folder / "manifest.json") as stream:
            stream.write(
                json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"
            )
    except OSError as error:
        raise CheckpointError(
            f"{folder / 'manifest.json'}: can't be written ({error.strerror})"
        ) from error


def find_card(name: str, task: str | None = None) -> Card:
    """Return the entry `name`. Raises CheckpointError with the known names, those for `task`."""
    cards = read_manifest()
    if name not in cards:
        names = (
            known_names(name, sorted(card.name for card in cards_for(task, cards)))
            or "nothing"
        )
        of_task = f" for {task}" if task else ""
        raise CheckpointError(
            f"no weights named {name!r}; the manifest has{of_task}: {names} (a file of your own must end in "
            ".safetensors)"
        )
    return cards[name]


def cards_for(task: str | None, cards: Mapping[str, Card]) -> list[Card]:
    """Return the cards whose weights are for a task; all if there are none, or for no task."""
    return [card for card in cards.values() if card.suits(task)] or list(cards.values())


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file's content."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def checked_file(card: Card) -> Path:
    """Return the bundled file of a card. Raises CheckpointError if it is missing or has another checksum."""
    path = weights_folder() / str(card.file)
    if not path.is_file():
        raise CheckpointError(
            f"{path}: the file of {card.name!r} is missing; install vidrestore again"
        )
    if (digest := sha256_of(path)) != card.sha256:
        raise CheckpointError(
            f"{path}: sha256 {digest[:12]}… but the manifest says {card.sha256[:12]}…; fetch the file again"
        )
    return path
