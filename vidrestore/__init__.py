"""Restore noisy, hazy, rainy, snowy, blurred or low-resolution video with published transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vidrestore.jobs.job import Summary
    from vidrestore.jobs.run import restore
    from vidrestore.options import EncoderOptions, RecoverOptions, RestoreOptions, SenseOptions
    from vidrestore.sensing.recover import recover
    from vidrestore.sensing.sense import sense

__version__ = "0.1.0"
__all__ = ["EncoderOptions", "RecoverOptions", "RestoreOptions", "SenseOptions", "Summary", "__version__", "recover", "restore", "sense"]

_HOMES = {
    "restore": "vidrestore.jobs.run",
    "Summary": "vidrestore.jobs.job",
    "sense": "vidrestore.sensing.sense",
    "recover": "vidrestore.sensing.recover",
    "EncoderOptions": "vidrestore.options",
    "RestoreOptions": "vidrestore.options",
    "SenseOptions": "vidrestore.options",
    "RecoverOptions": "vidrestore.options",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for, and only then: `import vidrestore` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
