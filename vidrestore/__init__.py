"""Restore noisy, hazy, rainy, snowy, blurred or low-resolution video with published transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vidrestore import errors, events, weights
    from vidrestore.errors import Cancelled, VidRestoreError
    from vidrestore.events import Event, Listener
    from vidrestore.jobs.in_memory import Restorer, restore_frames
    from vidrestore.jobs.run import restore
    from vidrestore.jobs.summary import Summary
    from vidrestore.options import EncoderOptions, RecoverOptions, RestoreOptions, SenseOptions
    from vidrestore.sensing.recover import recover
    from vidrestore.sensing.sense import sense

__version__ = "0.1.0"
__all__ = [
    "Cancelled",
    "EncoderOptions",
    "Event",
    "Listener",
    "RecoverOptions",
    "RestoreOptions",
    "Restorer",
    "SenseOptions",
    "Summary",
    "VidRestoreError",
    "__version__",
    "errors",
    "events",
    "recover",
    "restore",
    "restore_frames",
    "sense",
    "weights",
]

_HOMES = {
    "restore": "vidrestore.jobs.run",
    "restore_frames": "vidrestore.jobs.in_memory",
    "Restorer": "vidrestore.jobs.in_memory",
    "Cancelled": "vidrestore.errors",
    "VidRestoreError": "vidrestore.errors",
    "Event": "vidrestore.events",
    "Listener": "vidrestore.events",
    "Summary": "vidrestore.jobs.summary",
    "sense": "vidrestore.sensing.sense",
    "recover": "vidrestore.sensing.recover",
    "EncoderOptions": "vidrestore.options",
    "RestoreOptions": "vidrestore.options",
    "SenseOptions": "vidrestore.options",
    "RecoverOptions": "vidrestore.options",
}
_MODULES = {"errors", "events", "weights"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import vidrestore` stays fast."""
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"vidrestore.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
