"""The list of a batch, `vidrestore-batch.json`: each input with its output, its state and the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidrestore.cli.terminal import as_options
from vidrestore.errors import OptionError
from vidrestore.events import Event, Failed, Listener, Summary
from vidrestore.files.atomic import write_whole
from vidrestore.files.regular import LARGEST_PLAN, parse_object, read_limited
from vidrestore.files.stopping import INTERRUPTED

if TYPE_CHECKING:
    from vidrestore.media.formats.source import Target

LIST_NAME, LIST_SCHEMA = "vidrestore-batch.json", 1  # `jobs.sidecar` reads it


class BatchList:
    """A listener that records the state of each input, and passes events on; `write` makes the file, in the
    common folder of all outputs. Raises OptionError if another program's file has its name.

    States: "not begun", "done", "damaged" (done, but the source was), "skipped", "failed", "interrupted" and
    "left out".
    """

    def __init__(
        self,
        sources: Sequence[str],
        outputs: Mapping[str, Target],
        left_out: Mapping[str, str],
        on_event: Listener,
    ) -> None:
        self._on_event = on_event
        # beside the outputs, where `verify` looks for it
        folders = {str(output.path.absolute().parent) for output in outputs.values()}
        self.path = Path(os.path.commonpath(folders), LIST_NAME)
        self._states: dict[str, dict[str, Any]] = {}
        for source in sources:
            output = str(outputs[source]) if source in outputs else None
            self._states[source] = {
                "input": source,
                "output": output,
                "state": "not begun",
                "reason": None,
            }
        for source, origin in left_out.items():
            reason = f"named like the output of {origin}"
            self._states[source] = {
                "input": source,
                "output": None,
                "state": "left out",
                "reason": reason,
            }
        # another program's file stays
        if os.path.lexists(self.path) and not _is_ours(self.path):
            raise OptionError(
                f"{self.path}: the list of the batch would replace this file, which vidrestore did not "
                "write; move it, or leave `sidecar` out"
            )

    def __call__(self, event: Event) -> None:
        if isinstance(event, Summary):
            self.note(event.source, "damaged" if event.damage else "done", event.damage)
        elif isinstance(event, Failed):
            state = "interrupted" if event.exit_code == INTERRUPTED else "failed"
            self.note(event.source, state, as_options(event.message))
        self._on_event(event)

    def note(self, source: str, state: str, reason: str | None = None) -> None:
        if source in self._states:
            self._states[source] |= {"state": state, "reason": reason}

    def write(self) -> None:
        """Write the list. Raises MediaError."""
        content = {
            "vidrestore_batch": LIST_SCHEMA,
            "inputs": list(self._states.values()),
        }
        text = json.dumps(content, indent=1, ensure_ascii=False)
        write_whole(self.path, text.encode("utf-8", "backslashreplace"))


def _is_ours(path: Path) -> bool:
    try:
        return isinstance(
            parse_object(read_limited(path, LARGEST_PLAN)).get("vidrestore_batch"), int
        )
    except (OSError, ValueError):
        return False
