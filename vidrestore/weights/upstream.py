"""Import checkpoints of other code (`.pth`, `.pt`, `.safetensors`) without running anything in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidrestore.errors import CheckpointError
from vidrestore.families import find_family, load
from vidrestore.files.archives import check_pickled
from vidrestore.files.atomic import check_output
from vidrestore.weights.adopted import Adopted
from vidrestore.weights.checkpoint import (
    build_network,
    check_names,
    check_tensor,
    dtype_name,
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

    `config` holds the arguments of the authors' constructor for families with an adopter, else the family's
    own config. `task` and `parameters` override the adopter's. After renaming, the tensors must be exactly
    those of the network. Raises CheckpointError; MediaError if the output is the source, or exists without
    `overwrite`.
    """
    source, output = Path(source), Path(output)
    if output.suffix != ".safetensors":
        raise CheckpointError(f"{output}: weights are written as .safetensors; choose such a name")
    check_output(str(output), str(source), overwrite=overwrite)
    adopted = _adopt(source, family, config or {})
    network = build_network(family, adopted.config)
    expected = network.state_dict()
    check_names(source, set(adopted.tensors), set(expected))
    for name, tensor in adopted.tensors.items():
        check_tensor(f"{source}, {name}", list(tensor.shape), dtype_name(tensor), expected[name])
    network.load_state_dict(dict(adopted.tensors), strict=True)
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
    adopter = find_family(family).adopt
    tensors = {_PREFIXES.sub("", name): tensor for name, tensor in _read_tensors(source).items()}
    if not adopter:
        return Adopted(config, tensors)
    adopt: Callable[[dict[str, Tensor], dict[str, Any]], Adopted] = load(adopter)
    try:
        return adopt(tensors, dict(config))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{source}: {error}") from error


def _read_tensors(source: Path) -> dict[str, Tensor]:
    """Return the named tensors of a state dict, wherever its trainer stored it. Only tensors and plain
    containers are unpickled.
    """

    content = _read_safetensors(source) if source.suffix == ".safetensors" else _unpickle(source)
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if (
        not isinstance(content, dict)
        or not content
        or not all(_is_entry(*entry) for entry in content.items())
    ):
        raise CheckpointError(
            f"{source}: has no state dict (name -> tensor), neither at the top nor under "
            f"{', '.join(_WRAPPERS)}"
        )
    return content


def _is_entry(name: Any, value: Any) -> bool:
    """Return True for a named tensor whose values are all in the file; a view could claim any size."""
    import torch

    if not isinstance(name, str) or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return value.untyped_storage().nbytes() >= value.numel() * value.element_size()


def _read_safetensors(source: Path) -> Any:
    with opened(source) as stream:
        return {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 (no mapping)


def _unpickle(source: Path) -> Any:
    import torch

    if source.exists() and not source.is_file():
        raise CheckpointError(f"{source}: is a folder or a device, but a file was expected")
    try:
        check_pickled(source)
        return torch.load(source, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{source}: can't be read ({error.strerror or error})") from error
    except Exception as error:  # a damaged pickle may raise anything
        # Torch's own message isn't passed on: it advises to load the file unsafely.
        raise CheckpointError(
            f"{source}: not a checkpoint that can be read safely: damaged, compressed, no checkpoint, or "
            "one that holds more than tensors; ask its authors for a .safetensors file, or save its state "
            "dict alone with torch.save"
        ) from error
