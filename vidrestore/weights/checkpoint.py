"""A `.safetensors` file with the configuration of its network, written atomically and loaded strictly.

Its metadata holds `family` and `config` (JSON), from which the network is built, then `task` and the rest of
the card (JSON). The same tensors and metadata give the same bytes. Weights may be stored in half precision,
large ones in 8 bits: blocks of 32 integers, each block with a scale in half precision, under the tensor's
name with `SCALES` appended. The network computes in its own precision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidrestore.errors import CheckpointError
from vidrestore.files.atomic import replacing
from vidrestore.files.regular import (
    MEGABYTE,
    check_regular,
    parse_json,
    parse_object,
    write_problem,
)
from vidrestore.files.stopping import delayed_signals
from vidrestore.settings.checking import checked
from vidrestore.settings.families import find_family, load
from vidrestore.weights.manifest import Card, sha256_of

if TYPE_CHECKING:
    from torch import Tensor, nn

_HALVES = ("float16", "bfloat16")
SCALES = ".scales"  # appended to the name of a tensor in 8 bits: the name of its scales
EIGHT_BIT_BLOCK = 32  # integers from -127 to 127 that share one scale
_LARGEST_INTEGER = 127
_CARD_KEYS = ("parameters", "licence", "training", "measured")


@dataclass(frozen=True)
class Model:
    """A network in evaluation mode, and its card."""

    network: nn.Module
    card: Card


def build_network(family: str, config: Mapping[str, Any]) -> nn.Module:
    """Build a network with random parameters; keep the global random state. Raises CheckpointError.

    Args:
        family: its name, one of `FAMILIES` or of an installed package.
        config: the fields of the family's config; those left out have its defaults.
    """
    import torch

    build: Callable[[dict[str, Any]], nn.Module] = load(find_family(family).build)
    try:
        with torch.random.fork_rng(devices=[]):
            return build(dict(config))
    except (
        TypeError,
        ValueError,
        LookupError,
        ArithmeticError,
        AttributeError,
        RuntimeError,
    ) as error:
        # torch may add a C++ stack trace
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"the family {family!r} can't be built from the config {dict(config)!s:.300}: {reason:.300}"
        ) from error


def save_model(
    path: str | Path,
    network: nn.Module,
    *,
    family: str,
    config: Any,
    task: str,
    parameters: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    half: bool = False,
    eight_bit_from: int | None = None,
) -> Card:
    """Write the parameters and buffers of `network` to `path` atomically; return the card of the file.

    Raises CheckpointError if a stored value would not be finite, or the file can't be written.

    Args:
        path: the file, .safetensors.
        network: its state dict is stored.
        family: the name by which the network is built again.
        config: the family's config, a dataclass or a mapping.
        task: what the weights are for, such as "denoise".
        parameters: of the task, such as {"sigma": [1, 75]}; None: none.
        extra: more JSON-able values of the card (`licence`, `training`, `measured`); None: none.
        half: store float32 as float16 (default: False).
        eight_bit_from: store arrays of at least so many values in 8 bits; None: none of them.
    """
    path = Path(path)
    # all values of the card, as JSON texts
    is_instance = is_dataclass(config) and not isinstance(config, type)
    values = {"config": asdict(config) if is_instance else dict(config)}
    values |= {"parameters": dict(parameters or {})} | dict(extra or {})
    metadata = {key: json.dumps(value, sort_keys=True) for key, value in values.items()}
    metadata = {"family": family, "task": task} | metadata
    content = _serialise(_stored_tensors(network, path, half, eight_bit_from), metadata)
    try:
        with replacing(path) as stream:
            stream.write(content)
    except OSError as error:
        raise CheckpointError(str(write_problem(str(path), error))) from error
    return read_card(path)


def read_card(path: str | Path, sha256: str | None = None) -> Card:
    """Return the card in a file's metadata. `sha256` saves computing it. Raises CheckpointError if there is
    none.

    Args:
        path: the file, .safetensors.
        sha256: that of the file, in hexadecimal; None: it is computed.
    """
    path = Path(path)
    with opened(path) as stream:
        return _card_of(path, stream, sha256)


def _card_of(path: Path, stream: Any, sha256: str | None) -> Card:
    """Return the card of an opened file, its values checked. Raises CheckpointError."""
    metadata = stream.metadata() or {}
    # what every file has, and a limit on what a stranger's may have
    if missing := [key for key in ("family", "config", "task") if key not in metadata]:
        raise CheckpointError(
            f"{path}: its metadata lacks {', '.join(missing)}; import it with `vidrestore weights import`"
        )
    if (size := sum(map(len, metadata.values()))) > MEGABYTE:
        raise CheckpointError(
            f"{path}: its metadata has {size} characters; at most {MEGABYTE} are allowed"
        )
    try:
        values: dict[str, Any] = {"config": parse_object(metadata["config"])}
        values |= {
            key: parse_json(metadata[key]) for key in _CARD_KEYS if key in metadata
        }
    except ValueError as error:
        raise CheckpointError(
            f"{path}: its metadata is not JSON ({error}); write the file again"
        ) from error
    values |= {key: metadata[key] for key in ("family", "task")} | {
        "name": path.stem,
        "file": path.name,
    }
    values |= {
        "sha256": sha256_of(path) if sha256 is None else sha256,
        "bytes": path.stat().st_size,
    }
    return checked(Card, values, f"{path}, metadata", CheckpointError)


def read_model(path: Path, listed: Card | None = None) -> Model:
    """Return the network and the card in a file. Raises CheckpointError.

    Every name, shape and dtype must be the network's own (half precision and 8 bits are widened), every value
    finite. `listed` is the manifest's entry, whose checksum the file has. Without it, tensors are compared
    before memory is allocated for the network, since a config may ask for any size; that takes 1.5 s.
    """
    # the card and the tensors, while the file can't be exchanged
    with opened(path) as stream:
        card = _card_of(path, stream, listed.sha256 if listed else None)
        stored = all_tensors(stream)
    # compare first with a network that takes no memory
    if not listed:
        check_tensors(path, stored, _outline(card, len(stored)))
    network = build_network(card.family, card.config)
    tensors = check_tensors(path, stored, network.state_dict())
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise CheckpointError(
                f"{path}, {name}: has NaN or infinity; fetch the file again, or train again"
            )
    # of a file that an earlier version wrote
    if current := getattr(network, "current", None):
        tensors = current(tensors, card.config)
    network.load_state_dict(tensors, strict=True)
    return Model(network.eval(), listed or card)


def _outline(card: Card, most: int) -> dict[str, Tensor]:
    """Return a network's tensors on the meta device. Raises CheckpointError for far more than `most`."""
    import torch
    from torch.nn.modules.module import register_module_parameter_registration_hook

    # a config may ask for millions of layers
    numbers = count(1)

    def check_count(module: nn.Module, name: str, parameter: Any) -> None:
        # some are replaced while the network is built
        if next(numbers) > 4 * most + 100:
            raise ValueError(f"it asks for more than the {most} tensors of the file")

    hook = register_module_parameter_registration_hook(check_count)
    try:
        with torch.device("meta"):
            return build_network(card.family, card.config).state_dict()
    finally:
        hook.remove()


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file for reading. Raises CheckpointError."""
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors":
        raise CheckpointError(
            f"{path}: weights are read from .safetensors files only; convert others with `vidrestore "
            "weights import`"
        )

    # errors of the library, also those within the block, say what the file is
    try:
        check_regular(path)
        import_module("torch")  # as `safe_open` would, for seconds
        with delayed_signals():  # it would make another error of KeyboardInterrupt
            file = safe_open(path, framework="pt")
        with file as stream:
            yield stream
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except (OSError, RuntimeError) as error:
        # PyTorch's word for an OSError
        if isinstance(error, RuntimeError) and "closing file" not in str(error):
            raise
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path}: can't be read as weights ({reason})") from error
    except SafetensorError as error:
        raise CheckpointError(
            f"{path}: damaged or not a safetensors file ({error}); fetch it again"
        ) from error


def all_tensors(stream: Any) -> dict[str, Tensor]:
    """Return the tensors of an open file by name."""
    tensors = {}
    for name in stream.keys():  # noqa: SIM118 (no mapping)
        with delayed_signals():  # as it is opened
            tensors[name] = stream.get_tensor(name)
    return tensors


def check_tensors(
    path: Path, stored: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the tensors of a file, those in 8 bits in float32. Raises CheckpointError unless they are
    exactly the network's by name, shape and dtype; halves may stand for float32.
    """
    # tensors in 8 bits come with their scales
    scales = {
        name
        for name in expected
        if name + SCALES in stored and name + SCALES not in expected
    }
    _check_names(path, set(stored), {*expected, *(name + SCALES for name in scales)})
    tensors = {}
    # shapes and types are the network's
    for name, target in expected.items():
        tensor, place = stored[name], f"{path}, {name}"
        if name in scales:
            tensor = _widened(place, tensor, stored[name + SCALES], target)
        if tensor.shape != target.shape:
            raise CheckpointError(
                f"{place}: shape {list(tensor.shape)}, but the config asks for {list(target.shape)}"
            )
        dtype, target_dtype = _dtype(tensor), _dtype(target)
        if dtype != target_dtype and not (
            target_dtype == "float32" and dtype in _HALVES
        ):
            raise CheckpointError(
                f"{place}: stored as {dtype}, but the network holds {target_dtype}"
            )
        tensors[name] = tensor
    return tensors


def _check_names(path: Path, stored: set[str], expected: set[str]) -> None:
    parts = []
    for label, names in (
        ("lacks", expected - stored),
        ("has unexpected", stored - expected),
    ):
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        parts += [f"{label} {', '.join(sorted(names)[:4])}{more}"] if names else []
    if parts:
        raise CheckpointError(
            f"{path}: {'; '.join(parts)}; file and config are of different networks"
        )


def _widened(place: str, integers: Tensor, scales: Tensor, target: Tensor) -> Tensor:
    """Return the float32 tensor of integers and scales. Raises CheckpointError unless they fit together."""
    dtypes = (_dtype(integers), _dtype(scales))
    blocks = [integers.numel() // EIGHT_BIT_BLOCK]
    if (
        dtypes != ("int8", "float16")
        or list(scales.shape) != blocks
        or not fits_eight_bits(target, 0)
    ):
        shape = list(scales.shape)
        stored = f"{dtypes[0]} {list(integers.shape)} with scales {dtypes[1]} {shape}"
        raise CheckpointError(
            f"{place}: stored in 8 bits as {stored}, but expected int8 {list(target.shape)} and a float16 "
            f"per {EIGHT_BIT_BLOCK} values"
        )
    values = integers.reshape(-1, EIGHT_BIT_BLOCK).float() * scales.float()[:, None]
    return values.view(integers.shape)


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _stored_tensors(
    network: nn.Module, path: Path, half: bool, eight_bit_from: int | None
) -> dict[str, Tensor]:
    """Return a network's tensors as they are stored, narrow or in 8 bits. Raises CheckpointError."""
    import torch

    # narrow, or in 8 bits, where that is asked for
    tensors = {}
    for name, tensor in network.state_dict().items():
        narrow = half and tensor.dtype == torch.float32
        if eight_bit_from is not None and fits_eight_bits(tensor, eight_bit_from):
            tensors[name], tensors[name + SCALES] = to_eight_bits(tensor.detach().cpu())
        else:
            stored = tensor.detach().to(
                "cpu", torch.float16 if narrow else tensor.dtype
            )
            tensors[name] = stored.contiguous().clone()
    precision = " in half precision" if half else ""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"{path}, {name}: has values that are not finite{precision}; nothing was written"
            )
    return tensors


def _serialise(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Return a safetensors file with sorted metadata: the library's order varies between runs."""
    from safetensors.torch import save

    # the header again, with sorted metadata
    content = save(tensors, metadata)
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header = {"__metadata__": dict(sorted(header.pop("__metadata__").items()))} | header
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # keep tensors aligned
    return len(text).to_bytes(8, "little") + text + content[end:]


def fits_eight_bits(tensor: Tensor, least: int) -> bool:
    """Return True if 8 bits do: for float32 of 2 or more dimensions, `least` values or more, whole blocks."""
    count = tensor.numel()
    is_float32 = tensor.dtype.itemsize == 4 and tensor.is_floating_point()
    return (
        is_float32
        and tensor.ndim > 1
        and count >= least
        and count % EIGHT_BIT_BLOCK == 0
    )


def to_eight_bits(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the integers (int8, of the tensor's shape) and the scales (float16, one per block)."""
    import torch

    # one scale a block, so that its largest value fits
    blocks = tensor.reshape(-1, EIGHT_BIT_BLOCK)
    scales = (blocks.abs().amax(1) / _LARGEST_INTEGER).half()
    # a block of zeros remains zero
    divisors = scales.float().where(scales > 0, torch.ones(()))[:, None]
    integers = (blocks / divisors).round().clamp(-_LARGEST_INTEGER, _LARGEST_INTEGER)
    return integers.to(torch.int8).view(tensor.shape), scales
