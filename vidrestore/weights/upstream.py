"""Checkpoints of other code (`.pth`, `.pt`): read without running anything in them, renamed once, written as ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidrestore.errors import CheckpointError
from vidrestore.weights.checkpoint import build_network, check_names, check_tensor, dtype_name, save_model
from vidrestore.weights.manifest import Card

if TYPE_CHECKING:
    from torch import Tensor

_WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "params_ema", "params")  # under which trainers put the tensors
_PREFIXES = re.compile(r"^(module\.|_orig_mod\.|model\.)+")  # what DataParallel, torch.compile and Lightning put before each name

# Family -> (pattern, replacement) pairs applied in order to each name.
RENAMES: dict[str, tuple[tuple[str, str], ...]] = {"dust": ()}


def import_checkpoint(
    source: str | Path,
    output: str | Path,
    *,
    family: str,
    config: Mapping[str, Any],
    task: str,
    parameters: Mapping[str, Any] | None = None,
) -> Card:
    """Bring the checkpoint `source` in as `output` (.safetensors) and return its card.

    The tensors must be exactly those of the network that `config` builds, after renaming; CheckpointError names what differs.
    """
    source, output = Path(source), Path(output)
    if output.suffix != ".safetensors":
        raise CheckpointError(f"{output}: weights are written as .safetensors; choose such a name")
    network = build_network(family, config)
    tensors = {_rename(name, family): tensor for name, tensor in _read_tensors(source).items()}
    expected = network.state_dict()
    check_names(source, set(tensors), set(expected))
    for name, tensor in tensors.items():
        check_tensor(f"{source}, {name}", list(tensor.shape), dtype_name(tensor), expected[name])
    network.load_state_dict(tensors, strict=True)
    return save_model(
        output, network, family=family, config=config, task=task, parameters=parameters, extra={"training": {"source": source.name}}
    )


def _read_tensors(source: Path) -> dict[str, Tensor]:
    """Name -> tensor of a pickled state dict, wherever its trainer put it. Only tensors and plain containers are unpickled."""
    import torch

    try:
        content = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle raises whatever the file makes it raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{source}: can't be read as a checkpoint of tensors only ({type(error).__name__}: {reason})") from error
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise CheckpointError(f"{source}: holds no state dict (name -> tensor), neither at the top nor under {', '.join(_WRAPPERS)}")
    return content


def _rename(name: str, family: str) -> str:
    name = _PREFIXES.sub("", name)
    for pattern, replacement in RENAMES.get(family, ()):
        name = re.sub(pattern, replacement, name)
    return name
