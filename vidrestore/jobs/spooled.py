"""A container on standard input: stored in a file while it is restored, as it is read more than once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

from vidrestore.errors import VidRestoreError
from vidrestore.events import Event, Failed, Listener, Warned
from vidrestore.files.atomic import Partial, remove_partials, write_problem
from vidrestore.jobs.request import Request
from vidrestore.media.source import PIPE, Source, standard_input

Y4M = b"YUV4MPEG2"


def is_container(request: Request) -> bool:
    """Return True if the request reads something other than y4m from standard input."""
    if not request.source.is_pipe:
        return False
    stream = standard_input()
    peek = getattr(stream, "peek", None)
    head = peek(len(Y4M))[: len(Y4M)] if peek else b""
    return bool(head) and not Y4M.startswith(head)


@contextmanager
def spooled(request: Request, on_event: Listener) -> Iterator[tuple[Request, Listener]]:
    """Store standard input in a file beside the output, or in `work_dir`, until the block ends.

    Yield the request for that file, and a listener whose events name "-" instead of it.

    Raises MediaError if there is no room; errors in the block name "-", too.
    """
    beside = gettempdir() if request.output.is_pipe else str(request.output.absolute().path.parent)
    folder = request.options.work_dir or beside
    on_event(Warned(PIPE, f"not y4m: stored in {folder} first, as containers are read more than once"))
    try:
        with _stored(Path(folder) / "stdin") as path:

            def told(event: Event) -> None:
                event = replace(event, source=PIPE) if event.source == path else event
                if isinstance(event, Warned | Failed):
                    event = replace(event, message=event.message.replace(path, PIPE))
                on_event(event)

            try:
                yield replace(request, source=Source(path)), told
            except VidRestoreError as error:
                error.args = (str(error).replace(path, PIPE),)
                raise
    except OSError as error:
        raise write_problem(folder, error) from error


@contextmanager
def _stored(target: Path) -> Iterator[str]:
    """Store standard input in a partial file, which never gets the name `target`, and yield its path."""
    remove_partials(target)  # a killed run left one, as large as its input
    file = Partial(target, private=True)
    try:
        shutil.copyfileobj(standard_input(), file.file, 1 << 20)
        file.file.flush()
        yield str(file.path)
    finally:
        file.discard()
