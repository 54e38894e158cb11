"""Data-parallel training: several processes, started by torchrun, one per GPU, each on its share of every
batch.

Gradients are averaged over the processes after each backward pass, so all make the same update, which is that
of the whole batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from vidrestore.errors import VidRestoreError
from vidrestore.lab.training.data.batches import WHOLE_BATCH, Share
from vidrestore.restorers.devices import torch_device

T = TypeVar("T")
# the others wait while the first process decodes all clips, or validates
TIMEOUT = timedelta(hours=6)


class LostError(VidRestoreError):
    """Another process of the run has ended, so this one can't continue."""


class ProcessGroup:
    """The processes of a run, for one of them; a single one never waits. Raises LostError if another has
    ended.
    """

    def __init__(self, share: Share = WHOLE_BATCH) -> None:
        self.share = share

    @property
    def first(self) -> bool:
        """True if this process validates, writes and reports."""
        return self.share.rank == 0

    @property
    def is_single(self) -> bool:
        return self.share.count == 1

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors (one dtype, the same in all processes) by their means over the processes."""
        # one transfer for all tensors
        parts = list(tensors)
        if self.is_single or not parts:
            return
        flat = torch.cat([part.flatten() for part in parts])
        with _lost_process_errors():
            distributed.all_reduce(flat)
        flat /= self.share.count
        for part, mean in zip(
            parts, flat.split([part.numel() for part in parts]), strict=True
        ):
            part.copy_(mean.view_as(part))

    def broadcast(self, value: T) -> T:
        """Return the value of the first process."""
        if self.is_single:
            return value
        values: list[Any] = [value]
        with _lost_process_errors():
            distributed.broadcast_object_list(values)
        result: T = values[0]
        return result

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Let the first process run the block before the others do, so that they find its results."""
        if not self.first:
            self.barrier()
        yield
        if self.first:
            self.barrier()

    def barrier(self) -> None:
        """Wait for all processes."""
        if not self.is_single:
            with _lost_process_errors():
                distributed.barrier()


@contextmanager
def _lost_process_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LostError(
            f"another process of this training has ended ({error}); see its error message, and go on with "
            "`resume`"
        ) from error


@contextmanager
def processes(device: str) -> Iterator[tuple[ProcessGroup, torch.device]]:
    """Yield the process group and this process's device, that of its rank for GPUs. Raises OptionError."""
    # started by torchrun, or alone
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ProcessGroup(), torch_device(device)
        return
    compute_device = torch_device(device)
    if compute_device.type == "cuda":
        compute_device = torch_device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(compute_device)
    distributed.init_process_group(
        "nccl" if compute_device.type == "cuda" else "gloo", timeout=TIMEOUT
    )
    group = ProcessGroup(Share(distributed.get_rank(), count))
    try:
        yield group, compute_device
        # gloo may abort a process that leaves while another still talks to it
        group.barrier()
    finally:
        distributed.destroy_process_group()
