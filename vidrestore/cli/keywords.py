"""Translate keywords in the library's messages to command-line options.

The library names an option by its keyword between backquotes: `overwrite`, or with a value `tile=64`. Here
these become --overwrite and --tile 64.
"""

from __future__ import annotations

import re
from dataclasses import replace

from vidrestore.events import Event, Failed, Listener, Warned

_KEYWORD = re.compile(r"`([a-z][a-z_]*)(?:=([^`]+))?`")
# keywords with other names on the command line
FLAGS = {
    "output": "-o",
    "options": "--encoder-option",
    "settings": "--set",
    "quality": "--fast or --best",
    "match": "--no-match",
    "scene_detect": "--no-scene-detect",
}


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
