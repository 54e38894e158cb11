"""Report that memory ran out while training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vidrestore.errors import ConfigError
from vidrestore.training.config import RunConfig


@contextmanager
def memory_errors(config: RunConfig) -> Iterator[None]:
    """Raise ConfigError in place of the error raised if memory runs out, on a GPU or the CPU."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(
            error, (MemoryError, torch.OutOfMemoryError)
        ) and "can't allocate memory" not in str(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else "no more is available"
        raise ConfigError(
            f"{config.path}: memory ran out ({reason}); try a smaller training.batch than "
            f"{config.training.batch}"
        ) from error
