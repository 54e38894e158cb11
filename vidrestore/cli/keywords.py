"""Translate keywords in the library's messages to command-line options.

The library names an option by its keyword between backquotes: `overwrite`, or with a value `tile=64`. Here
these become --overwrite and --tile 64.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace

from vidrestore.events import Event, Failed, Listener, Warned
from vidrestore.options import EncoderOptions, RestoreOptions

_KEYWORD = re.compile(r"`([a-z][a-z_]*)(?:=([^`]+))?`")


def _flags(group: type) -> dict[str, str]:
    """Return the flags of options that have other names on the command line; for a switch, those that do
    something.
    """
    found = {each.name: each.metadata["declared"] for each in fields(group) if "declared" in each.metadata}
    switches = {name: " or ".join(each.switches) for name, each in found.items() if each.switches}
    is_on = {each.name: each.default is True for each in fields(group)}
    named = {name: each.flags[0].split("/") for name, each in found.items() if each.flags}
    return switches | {name: flags[-1 if is_on[name] else 0] for name, flags in named.items()}


FLAGS = {"output": "-o", "settings": "--set", **_flags(EncoderOptions), **_flags(RestoreOptions)}


def as_options(message: str) -> str:
    """Return a message with options in place of keywords."""
    return _KEYWORD.sub(_option, message)


def _option(found: re.Match[str]) -> str:
    name, value = found.groups()
    flag = FLAGS.get(name) or f"--{name.replace('_', '-')}"
    return f"{flag} {value}" if value else flag


def in_options(on_event: Listener) -> Listener:
    """Return a listener that passes events on with options in their messages."""

    def listen(event: Event) -> None:
        if isinstance(event, Warned | Failed):
            event = replace(event, message=as_options(event.message))
        on_event(event)

    return listen
