"""Restore noisy, hazy, rainy, snowy, blurred or low-resolution video with published transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vidrestore.engine.job import Summary
    from vidrestore.engine.options import RecoverOptions, RestoreOptions, SenseOptions
    from vidrestore.engine.run import restore
    from vidrestore.engine.sensing import recover, sense
    from vidrestore.media.encoders import EncoderOptions

__version__ = "0.1.0"
__all__ = ["EncoderOptions", "RecoverOptions", "RestoreOptions", "SenseOptions", "Summary", "__version__", "recover", "restore", "sense"]

_HOMES = {
    "restore": "vidrestore.engine.run",
    "Summary": "vidrestore.engine.job",
    "sense": "vidrestore.engine.sensing",
    "recover": "vidrestore.engine.sensing",
    "EncoderOptions": "vidrestore.media.encoders",
    "RestoreOptions": "vidrestore.engine.options",
    "SenseOptions": "vidrestore.engine.options",
    "RecoverOptions": "vidrestore.engine.options",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for, and only then: `import vidrestore` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
