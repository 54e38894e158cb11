"""What to do where memory runs out while training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vidrestore.errors import ConfigError
from vidrestore.training.config import RunConfig


@contextmanager
def memory_watched(config: RunConfig) -> Iterator[None]:
    """ConfigError in place of what is raised where memory runs out, on a GPU or here."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(
            error, (MemoryError, torch.OutOfMemoryError)
        ) and "can't allocate memory" not in str(error):
            raise
        told = str(error).splitlines()[0] if str(error) else "no more to be had"
        raise ConfigError(
            f"{config.path}: memory ran out ({told}); try a smaller training.batch, now "
            f"{config.training.batch}"
        ) from error
