"""A stand-in for a GPU: tensors that say they are on one, hold their values on the CPU, and obey its rules.

Inside `Rehearsal()` a call that asks for a cuda device gives such tensors, in every thread that starts there.
Mixing them with CPU tensors of one dimension or more is refused, as are `.numpy()` and CPU indices. Counted
are launches, which are all operations but views, copies over the bus, questions about memory, and what waits
for the device: values that are read, shapes that depend on them, and operations that look at a result.

"cuda:1" counts without computing: its tensors have no values, so that frames of any size take no time. What
is read there is 1 or True, in lists 0, 1, 2 and so on, and of a mask a sixteenth is set.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

DEVICE, EMPTY = torch.device("cuda", 0), torch.device("cuda", 1)
GENERATOR = torch.Generator
aten = torch.ops.aten
SIZED_BY_VALUES = {
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
}
TRANSFERS = {aten.copy_.default, aten._to_copy.default}
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
MASKED = 16  # of so many values one is in a mask
READS = {"tolist", "__contains__"}
# The host looks at their error codes, or for a memory-bound library at its queue.
WAITING = {
    *(aten._linalg_eigh.default, aten.linalg_inv_ex.default),
    *(aten._linalg_solve_ex.default, aten.cholesky_inverse.default),
}
# They neither compute nor copy.
FREE = {
    *(aten._unsafe_view.default, aten.empty.memory_format, aten.empty_like.default),
    *(aten.empty_strided.default, aten.new_empty.default, aten.lift_fresh.default),
}
# They only take the device and the dtype of their first argument, or overwrite it.
OVERWRITING = {
    *(
        aten.new_full.default,
        aten.new_zeros.default,
        aten.new_ones.default,
        aten.zeros_like.default,
    ),
    *(aten.ones_like.default, aten.full_like.default, aten.copy_.default),
    *(aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default),
}
# They read as much of their first argument as they write.
GATHERING = {
    *(
        aten.index.Tensor,
        aten.index_select.default,
        aten.gather.default,
        aten.take.default,
    ),
    aten._embedding_bag_forward_only.default,
}


class OnDevice(Tensor):
    """A tensor on the stand-in; `held` are its values."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> OnDevice:
        # a wrapper doesn't carry the mark of a conjugate that isn't computed yet
        held = held.resolve_conj()
        made = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            held.stride(),
            held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
        )
        made.held = held
        return made

    device = property(lambda self: EMPTY if self.held.is_meta else DEVICE)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied: Tensor = OnDevice(self.held.clone())
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied

    def record_stream(self, stream: Any) -> None:
        """All is done in order here."""

    def __repr__(self) -> str:
        return f"OnDevice({self.held!r})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # the engine makes gradients of zeros itself, on the device that it believes to be on
        engine = torch._C._current_graph_task_id() != -1
        for each in (
            () if func in TRANSFERS or engine else _leaves([args, *kwargs.values()])
        ):
            if type(each) is Tensor and each.dim():
                raise RuntimeError(
                    f"{func}: all tensors are expected on one device, found cuda and cpu {tuple(each.shape)}"
                )
        if _is_composite(func):
            return func._op_dk(COMPOSITE, *args, **kwargs)
        if func in SIZED_BY_VALUES or (
            func in (aten.index.Tensor, aten.index_put_.default) and _masked(args)
        ):
            Rehearsal.count("sized by values")
        if func is aten.copy_.default and isinstance(args[0], OnDevice) != isinstance(
            args[1], OnDevice
        ):
            Rehearsal.count_copy(
                args[1], "to device" if isinstance(args[0], OnDevice) else "to host"
            )
            if not (args[2:] and args[2]) and not kwargs.get("non_blocking"):
                Rehearsal.count("blocking copies")
        if func in WAITING:
            Rehearsal.count("waits inside")
        if engine and func is aten._to_copy.default:
            kwargs = {name: each for name, each in kwargs.items() if name != "device"}
        held, more = (
            [*map(_held, args)],
            {name: _held(each) for name, each in kwargs.items()},
        )
        empty = any(map(_is_empty, _leaves(held)))
        if empty:  # zeros of the engine have no values either
            held = tree_map_only(Tensor, lambda each: each.to("meta"), held)
        result = _without_values(func, held) if empty else NotImplemented
        if result is NotImplemented:
            result = func(*held, **more)
        if not func.is_view and func not in FREE:
            Rehearsal.count_launch(func, (held, more), result)
        if isinstance(result, bool | int | float):
            Rehearsal.count("values read")
        if written := _written(func):
            given = tuple(
                args[at] if at < len(args) else kwargs.get(name) for at, name in written
            )
            return given[0] if len(given) == 1 else given
        # a view of such a tensor is one, whatever the mode
        normal = func.is_view and not args[0].is_inference()
        with torch.inference_mode(torch.is_inference_mode_enabled() and not normal):
            return tree_map_only(Tensor, OnDevice, result)


def _leaves(given: Any) -> Iterator[Any]:
    """Yield what lists in lists contain."""
    if isinstance(given, list | tuple):
        for each in given:
            yield from _leaves(each)
    else:
        yield given


@cache
def _is_composite(func: Any) -> bool:
    """Return True for what consists of other operations, which torch leaves whole without gradients."""
    # it makes or reads tensors, on a device unseen here
    if func._overloadpacket is aten.quantile:
        return False
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE)


def _held(given: Any) -> Any:
    if type(given) is OnDevice:
        return given.held
    return [_held(each) for each in given] if isinstance(given, list | tuple) else given


def _is_empty(held: Any) -> bool:
    return isinstance(held, Tensor) and held.is_meta


def _without_values(func: Any, held: list[Any]) -> Any:
    """Return the result of an operation that depends on values, without them; else NotImplemented."""
    if func is aten._local_scalar_dense.default:
        return True if held[0].dtype == torch.bool else 1.0
    if func is aten.copy_.default and not held[0].is_meta:
        return held[0].fill_(1)
    if func is aten.equal.default:
        return True
    if func in (aten._fused_adam_.tensor_lr, aten._fused_adamw_.tensor_lr):
        return None
    if func is aten.index.Tensor and _masked(held):
        (mask,) = held[1]
        return held[0].new_empty(
            -(-mask.numel() // MASKED), *held[0].shape[mask.dim() :]
        )
    if func is aten.nonzero.default:
        return held[0].new_empty(
            -(-held[0].numel() // MASKED), held[0].dim(), dtype=torch.long
        )
    return NotImplemented


def _bytes_of(func: Any, given: Any, result: Any) -> int:
    """Return the bytes that an operation reads and writes; a view is no larger than what it is a view of."""
    output = sum(map(_size, _leaves(result)))
    more = [each for name, each in given[1].items() if name != "out"]
    read = [*map(_size, _leaves([*given[0], *more]))]
    if func in OVERWRITING:
        read[0] = 0
    if func in GATHERING:
        read[0] = min(read[0], output)
    return output + sum(read)


def _size(each: Any) -> int:
    if not isinstance(each, Tensor):
        return 0
    return min(each.numel() * each.element_size(), each.untyped_storage().nbytes())


@cache
def _written(func: Any) -> tuple[tuple[int, str], ...]:
    """Places and names of the arguments that an operation writes to and gives back."""
    names = [
        (at, spec.name)
        for at, spec in enumerate(func._schema.arguments)
        if spec.alias_info is not None and spec.alias_info.is_write
    ]
    return tuple(names) if len(names) == len(func._schema.returns) else ()


def _masked(args: Any) -> bool:
    return any(
        isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8)
        for each in args[1]
    )


def _is_there(device: Any) -> bool:
    return (
        isinstance(device, str | torch.device) and torch.device(device).type == "cuda"
    )


class _Factories(TorchFunctionMode):
    """Calls that name a device, or move tensors from one to the other."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if kwargs.pop("pin_memory", False):
            return func(*args, **kwargs)
        if name in ("to", "cpu", "cuda", "type_as"):
            return self._moved(name, args, kwargs)
        if name == "pin_memory":
            return args[0]
        if name == "numpy" and isinstance(args[0], OnDevice):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy; use Tensor.cpu() first"
            )
        if name in READS and isinstance(args[0], OnDevice):
            Rehearsal.count("values read")
            held = args[0].held
            if held.is_meta:
                held = torch.arange(held.numel()).view(held.shape).to(held.dtype)
            return func(held, *args[1:], **kwargs)
        if name == "new_tensor" and isinstance(args[0], OnDevice):
            made = func(args[0].held, *args[1:], **kwargs)
            Rehearsal.count("blocking copies")
            return Rehearsal.count_copy(made, "to device", OnDevice(made))
        # makes its offsets itself, unseen here
        if name == "embedding_bag" and isinstance(args[0], OnDevice):
            bags, each = args[0].shape
            kwargs["offsets"] = OnDevice(
                torch.arange(0, bags * each, each, device=args[0].held.device)
            )
            kwargs["per_sample_weights"] = kwargs["per_sample_weights"].reshape(-1)
            return func(args[0].reshape(-1), args[1], **kwargs)
        if _is_there(kwargs.get("device")):
            kwargs["device"] = (
                "meta" if torch.device(kwargs["device"]).index == EMPTY.index else "cpu"
            )
            made = func(*args, **kwargs)
            if name in ("tensor", "as_tensor"):
                Rehearsal.count("blocking copies")
                Rehearsal.count_copy(made, "to device")
            return (
                OnDevice(made).requires_grad_(made.requires_grad)
                if type(made) is Tensor
                else made
            )
        return func(*args, **kwargs)

    @staticmethod
    def _moved(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        own, *rest = args
        dtype = memory_format = None
        empty, blocking = isinstance(own, OnDevice) and own.held.is_meta, True
        there = {"cpu": False, "cuda": True}.get(name, isinstance(own, OnDevice))
        copy = kwargs.pop("copy", False)
        if rest and isinstance(rest[0], Tensor):
            there, dtype = isinstance(rest[0], OnDevice), rest[0].dtype
            empty = there and rest[0].device == EMPTY
        elif name == "to":
            device, dtype, later, memory_format = torch._C._nn._parse_to(
                *rest, **kwargs
            )
            blocking = not later
            there, empty = (
                (there, empty)
                if device is None
                else (device.type == "cuda", device == EMPTY)
            )
        crosses = isinstance(own, OnDevice) != there
        if crosses and blocking:
            Rehearsal.count("blocking copies")
        moved = _Crossing.apply(own, there, empty) if crosses else own
        if dtype is None and memory_format is None:
            return moved.clone() if copy and moved is own else moved
        layout = {"memory_format": memory_format} if memory_format else {}
        return Tensor.to(
            moved, dtype or moved.dtype, copy=copy and moved is own, **layout
        )


class _Crossing(torch.autograd.Function):
    """A copy over the bus, whose gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, there: bool, empty: bool = False) -> Tensor:
        ctx.there = there
        if there:
            own = given.detach().to("meta") if empty else given.detach().clone()
            return Rehearsal.count_copy(given, "to device", OnDevice(own))
        here = (
            torch.ones(given.shape, dtype=given.dtype)
            if given.held.is_meta
            else given.held.clone()
        )
        return Rehearsal.count_copy(given, "to host", here)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Crossing.apply(gradients[0], not ctx.there), None, None


class _Generator(torch.Generator):
    """One that takes any device, and draws on the CPU."""

    where = torch.device("cpu")
    device = property(lambda self: self.where)

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made: _Generator = GENERATOR.__new__(cls)
        made.where = torch.device(device)
        return made


class Rehearsal:
    """The stand-in while it is entered: `launches`, the bytes that they `touched` and the operations of their
    `products`, matrices whose `cholesky` factors they find, `counts` of copies, waits and
    questions, bytes `moved` over the bus.

    Of its memory `free` bytes are free, and `kept` more are kept by torch for what comes; it has so many
    `processors`.
    """

    current: Rehearsal | None = None

    def __init__(
        self, free: int = 8 << 30, bf16: bool = True, kept: int = 0, processors: int = 2
    ) -> None:
        self.free, self.bf16, self.kept, self.processors = free, bf16, kept, processors
        self.counts: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.launches = self.touched = self.products = self.cholesky = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Rehearsal:
        run, autocast = threading.Thread.run, torch.autocast
        properties = SimpleNamespace(
            name="stand-in", multi_processor_count=self.processors
        )
        self._stack = ExitStack()

        def autocast_here(kind: str, *rest: Any, **more: Any) -> Any:
            return autocast("cpu", *rest, **more)

        def in_mode(thread: threading.Thread) -> None:
            with _Factories():
                run(thread)

        for target, name, value in (
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "device_count", lambda: 2),
            (
                torch.cuda,
                "get_device_capability",
                lambda device: (9, 0) if self.bf16 else (7, 5),
            ),
            (torch.cuda, "mem_get_info", self._memory),
            (torch.cuda, "memory_reserved", lambda device=None: self.kept),
            (torch.cuda, "memory_allocated", lambda device=None: 0),
            (torch.cuda, "get_device_properties", lambda device: properties),
            (torch.cuda, "Stream", Mock()),
            (torch.cuda, "stream", lambda stream: nullcontext()),
            (torch.cuda, "current_stream", Mock()),
            (
                torch.accelerator,
                "current_stream",
                Mock(**{"return_value.is_capturing.return_value": False}),
            ),
            (torch.cuda, "empty_cache", lambda: self.count("memory emptied")),
            (torch, "autocast", autocast_here),
            (torch, "Generator", _Generator),
            (threading.Thread, "run", in_mode),
        ):
            self._stack.enter_context(patch.object(target, name, value))
        before = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        self._stack.callback(
            torch.__future__.set_overwrite_module_params_on_conversion, before
        )
        self._stack.enter_context(_Factories())
        Rehearsal.current = self
        return self

    def _memory(self, device: Any = None) -> tuple[int, int]:
        self.count("memory asked for")
        return self.free, 2 * self.free

    def __exit__(self, *error: object) -> None:
        Rehearsal.current = None
        self._stack.close()

    @classmethod
    def count(cls, what: str) -> None:
        if cls.current:
            with cls.current._lock:
                cls.current.counts[what] += 1

    @classmethod
    def count_launch(cls, func: Any, given: tuple[Any, Any], result: Any) -> None:
        if cls.current:
            touched, formula = (
                _bytes_of(func, given, result),
                flop_registry.get(func._overloadpacket),
            )
            products = formula(*given[0], **given[1], out_val=result) if formula else 0
            decomposed = func is aten.linalg_cholesky_ex.default
            with cls.current._lock:
                cls.current.launches += 1
                cls.current.cholesky += (
                    math.prod(given[0][0].shape[:-2]) if decomposed else 0
                )
                cls.current.touched += touched
                cls.current.products += products

    @classmethod
    def count_copy(cls, given: Tensor, way: str, result: Any = None) -> Any:
        cls.count(way)
        if cls.current:
            with cls.current._lock:
                cls.current.moved[way] += given.numel() * given.element_size()
        return result
