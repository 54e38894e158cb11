"""Restore noisy, hazy, rainy, snowy, blurred or low-resolution video with published transformers.

The interface is `__all__`. A command passes through these packages in this order:

    cli        parse options, print; stop at Ctrl-C (`files.stopping`)
    settings   every option (`options`): its type, default, help, and what it alters; tasks, families
    jobs       names of outputs (`naming`), checks before work (`run`), segments, resuming (`resume`)
    media      read (`reading.reader`), choose an encoder (`writing.encoders`), check streams
               (`writing.streams`), write (`writing.writer`)
    pipeline   clips and noise (`plan`), frames to tensors and back (`conversions`)
    restorers  how a task applies its networks, which are in `models`

`pixels` has frames, clips and colour, `noise` measures it, `weights` finds and checks networks, `files` locks
and replaces files, `scale` divides work among processes and machines, `pages` is what is shown in a browser.
`lab` trains and measures networks (`lab.training.objective` has the losses), holds the papers' systems and
compressed sensing; outside it is only named, and loaded when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vidrestore import errors, events, weights
    from vidrestore.errors import Cancelled, VidRestoreError
    from vidrestore.events import Event, Listener, Summary
    from vidrestore.jobs.in_memory import Restorer, restore_frames
    from vidrestore.jobs.run import restore
    from vidrestore.lab.sensing.recover import recover
    from vidrestore.lab.sensing.sense import sense
    from vidrestore.lab.sensing.sensing_options import RecoverOptions, SenseOptions
    from vidrestore.settings.options import EncoderOptions, RestoreOptions

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
    "errors": ("Cancelled", "VidRestoreError"),
    "events": ("Event", "Listener", "Summary"),
    "jobs.in_memory": ("Restorer", "restore_frames"),
    "jobs.run": ("restore",),
    "settings.options": ("EncoderOptions", "RestoreOptions"),
    "lab.sensing.sensing_options": ("RecoverOptions", "SenseOptions"),
    "lab.sensing.recover": ("recover",),
    "lab.sensing.sense": ("sense",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import vidrestore` stays fast."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"vidrestore.{home}"), name)
    if name in __all__:
        return import_module(f"vidrestore.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
