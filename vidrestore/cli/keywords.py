"""The library's messages in the words of the command line.

The library names an option by its keyword, between backquotes: `overwrite`, or with a value `tile=64`. Here
these become --overwrite and --tile 64.
"""

from __future__ import annotations

import re
from dataclasses import replace

from vidrestore.events import Event, Failed, Listener, Warned

_KEYWORD = re.compile(r"`([a-z][a-z_]*)(?:=([^`]+))?`")
# Keywords that are named otherwise on the command line.
FLAGS = {
    "output": "-o",
    "options": "--encoder-option",
    "settings": "--set",
    "quality": "--fast or --best",
    "match": "--no-match",
    "scene_detect": "--no-scene-detect",
}


def as_options(message: str) -> str:
    """Return a message with options instead of keywords."""
    return _KEYWORD.sub(_option, message)


def _option(found: re.Match[str]) -> str:
    name, value = found.groups()
    flag = FLAGS.get(name) or f"--{name.replace('_', '-')}"
    return f"{flag} {value}" if value else flag


def in_options(on_event: Listener) -> Listener:
    """Return a listener that hands on events whose messages name options."""

    def listen(event: Event) -> None:
        if isinstance(event, Warned | Failed):
            event = replace(event, message=as_options(event.message))
        on_event(event)

    return listen
