"""Import checkpoints of other code (`.pth`, `.pt`, `.safetensors`) without running anything in them.

    import_checkpoint("released.pth", "mine.safetensors", family="mb-taylorformer")

A `Family` may name an adopter for checkpoints of its authors, a function (tensors, arguments) -> Adopted.
`tensors` are those of the file by their names there, without the prefixes of DataParallel and similar;
`arguments` are those of the authors' constructor, by its own names: what no tensor shows is taken from them,
the rest compared. The adopter works out the config, renames and regroups the tensors, and raises ValueError
if they don't fit. The caller checks that the result has exactly the network's tensors.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidrestore.errors import CheckpointError
from vidrestore.files.atomic import check_output
from vidrestore.files.regular import check_pickled
from vidrestore.settings.families import find_family, load
from vidrestore.weights.checkpoint import (
    all_tensors,
    build_network,
    check_tensors,
    opened,
    save_model,
)
from vidrestore.weights.manifest import Card

if TYPE_CHECKING:
    from torch import Tensor

# keys under which trainers store the state dict
_WRAPPERS = (
    "state_dict",
    "model_state_dict",
    "model",
    "network",
    "params_ema",
    "params",
)
# prefixes of DataParallel, torch.compile and Lightning
_PREFIXES = re.compile(r"^(module\.|_orig_mod\.|model\.)+")


def import_checkpoint(
    source: str | Path,
    output: str | Path,
    *,
    family: str,
    config: Mapping[str, Any] | None = None,
    task: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Card:
    """Convert the checkpoint `source` to `output` (.safetensors) and return its card.

    After renaming, the tensors must be exactly those of the network. Raises CheckpointError; MediaError if
    the output is the source, or exists without `overwrite`.

    Args:
        source: the file of other code, .pth, .pt or .safetensors.
        output: the file to write, .safetensors.
        family: the network's, one of `FAMILIES` or of an installed package.
        config: arguments of the authors' constructor for families with an adopter, else the fields of the
            family's own config; None: none.
        task: what the weights are for; None: the adopter's word.
        parameters: of the task, such as {"rate": 0.2}; None: the adopter's.
        overwrite: replace a file of that name (default: False).
    """
    source, output = Path(source), Path(output)
    if output.suffix != ".safetensors":
        raise CheckpointError(
            f"{output}: weights are written as .safetensors; choose such a name"
        )
    check_output(output, [source], overwrite=overwrite)
    # by the family's adopter, then exactly the network's names
    adopted = _adopt(source, family, config or {})
    network = build_network(family, adopted.config)
    tensors = check_tensors(source, adopted.tensors, network.state_dict())
    network.load_state_dict(tensors, strict=True)
    return save_model(
        output,
        network,
        family=family,
        config=adopted.config,
        task=task or adopted.task,
        parameters=adopted.parameters if parameters is None else parameters,
        extra={"training": {"source": source.name}},
    )


def _adopt(source: Path, family: str, config: Mapping[str, Any]) -> Adopted:
    # prefixes that training wrappers put before all names
    adopter = find_family(family).adopt
    tensors = {
        _PREFIXES.sub("", name): tensor for name, tensor in read_tensors(source).items()
    }
    if not adopter:
        return Adopted(config, tensors)
    adopt: Callable[[dict[str, Tensor], dict[str, Any]], Adopted] = load(adopter)
    try:
        return adopt(tensors, dict(config))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{source}: {error}") from error


def read_tensors(source: Path) -> dict[str, Tensor]:
    """Return the tensors of a state dict at any depth; only tensors and containers are unpickled."""
    # a state dict at any depth
    if source.suffix == ".safetensors":
        with opened(source) as stream:
            content: Any = all_tensors(stream)
    else:
        content = _unpickle(source)
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if (
        not isinstance(content, dict)
        or not content
        or not all(map(_is_entry, content.items()))
    ):
        raise CheckpointError(
            f"{source}: has no state dict (name -> tensor), neither at the top nor under "
            f"{', '.join(_WRAPPERS)}"
        )
    return content


def _is_entry(entry: tuple[Any, Any]) -> bool:
    """Return True for a named tensor whose values are all in the file; a view could claim any size."""
    import torch

    name, value = entry
    if (
        not isinstance(name, str)
        or not isinstance(value, torch.Tensor)
        or value.layout is not torch.strided
    ):
        return False
    return value.untyped_storage().nbytes() >= value.numel() * value.element_size()


def _unpickle(source: Path) -> Any:
    import torch

    try:
        check_pickled(source)
        # on forms of files, before our own error
        with warnings.catch_warnings(action="ignore"):
            return torch.load(source, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(
            f"{source}: can't be read ({error.strerror or error})"
        ) from error
    except Exception as error:  # a damaged pickle may raise any exception
        # Torch's own message isn't passed on: it advises to load the file unsafely.
        raise CheckpointError(
            f"{source}: not a checkpoint that can be read safely: damaged, compressed, no checkpoint, or "
            "one that holds more than tensors; ask its authors for a .safetensors file, or save its state "
            "dict alone with torch.save"
        ) from error


@dataclass(frozen=True)
class Adopted:
    """The family's config, and the tensors as those of our network; `task` and `parameters` of the card."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    task: str = "restore"
    parameters: Mapping[str, Any] = field(default_factory=dict)
