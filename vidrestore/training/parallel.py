"""Several processes that train one network, each on its share of every batch: started by torchrun, one per
GPU.

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
from vidrestore.restorers.devices import torch_device
from vidrestore.training.data.batches import WHOLE, Share

T = TypeVar("T")
PATIENCE = timedelta(hours=6)  # of those that wait while the first one decodes all clips, or judges


class LostError(VidRestoreError):
    """Another process of the run has ended, so that this one can't go on."""


class Together:
    """The processes of a run, as one of them sees them; a process that is alone waits for nobody.

    Where another one has ended, they raise LostError.
    """

    def __init__(self, share: Share = WHOLE) -> None:
        self.share = share

    @property
    def first(self) -> bool:
        """True if this process validates, writes and reports."""
        return self.share.rank == 0

    @property
    def alone(self) -> bool:
        return self.share.count == 1

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Make each of the tensors (of one dtype, the same ones everywhere) the mean over the processes, in
        place.
        """
        parts = list(tensors)
        if self.alone or not parts:
            return
        flat = torch.cat([part.flatten() for part in parts])
        with _among_others():
            distributed.all_reduce(flat)
        flat /= self.share.count
        for part, mean in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
            part.copy_(mean.view_as(part))

    def told(self, found: T) -> T:
        """Return the value of the first process."""
        if self.alone:
            return found
        told: list[Any] = [found]
        with _among_others():
            distributed.broadcast_object_list(told)
        result: T = told[0]
        return result

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """The first process does the block before the others begin it: what it leaves, they find."""
        if not self.first:
            self.meet()
        yield
        if self.first:
            self.meet()

    def meet(self) -> None:
        """Wait until all processes are here."""
        if not self.alone:
            with _among_others():
                distributed.barrier()


@contextmanager
def _among_others() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LostError(
            f"another process of this training has ended ({error}); look for what it said, and go on with "
            "`resume`"
        ) from error


@contextmanager
def processes(device: str) -> Iterator[tuple[Together, torch.device]]:
    """This process among those that torchrun started, and its device: the GPU of its number, unless `device`
    is the CPU.

    Raises OptionError for a device that isn't there.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Together(), torch_device(device)
        return
    place = torch_device(device)
    if place.type == "cuda":
        place = torch_device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(place)
    distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=PATIENCE)
    together = Together(Share(distributed.get_rank(), count))
    try:
        yield together, place
        together.meet()  # gloo may abort a process that leaves while another still talks to it
    finally:
        distributed.destroy_process_group()


def is_first() -> bool:
    """Return True if this process is the one that prints."""
    return os.environ.get("RANK", "0") == "0"
