"""Write a run for TensorBoard, which needs the optional package `tensorboard`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vidrestore.errors import OptionError
from vidrestore.training.training_events import Began, Event, Listener, Stepped, Validated

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@contextmanager
def tensorboard_listener(folder: Path) -> Iterator[Listener]:
    """Yield a listener that writes loss, learning rate, gradient norm and held-out PSNR to `folder`.

    If a run is resumed, later steps are purged. Raises OptionError if the package is missing.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise OptionError(
            "`tensorboard` needs a package that is not installed: pip install vidrestore[tensorboard]"
        ) from error
    writers: list[SummaryWriter] = []

    def emit(event: Event) -> None:
        if isinstance(event, Began):
            writers.append(SummaryWriter(str(folder), purge_step=event.step + 1))
        elif isinstance(event, Stepped):
            for name in ("loss", "learning_rate", "gradient_norm"):
                writers[-1].add_scalar(f"training/{name}", getattr(event, name), event.step)
        elif isinstance(event, Validated):
            for what, psnr in event.psnr.items():
                writers[-1].add_scalar(f"held out/PSNR {what}", psnr, event.step)

    try:
        yield emit
    finally:
        for writer in writers:
            writer.close()
