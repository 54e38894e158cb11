"""Several sources, one loaded model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Listener, Progressed
from vidrestore.jobs.estimate import Estimate, estimate
from vidrestore.jobs.job import Summary, ignore
from vidrestore.jobs.naming import (
    are_many,
    expand_sources,
    made_of_others,
    notes_on_pictures,
    output_for,
    suffix_of,
)
from vidrestore.jobs.opening import RestorerLoader
from vidrestore.jobs.preview import preview
from vidrestore.jobs.request import Request
from vidrestore.jobs.run import restore_request
from vidrestore.media.source import Source, Target
from vidrestore.options import RestoreOptions
from vidrestore.restorers.base import Restorer, load_restorer


class Batch:
    """The videos and photos that `sources` (files, folders, patterns) name, each with its output; `output` is
    a folder if there are several; a name without a suffix is one, too, unless one file is the source.

    `suffix` is what a default name gets: in.mp4 -> in.SUFFIX.mp4, by default the task's. `recursive` goes
    into folders below the given ones; the folder `output` then gets the same folders. `photos`: pictures in
    folders and patterns are restored one by one, not as frames. `left_out` are named videos that were made
    from other ones of the batch, `notes` sentences about what else was found.
    Folders for the outputs are made; those that are still empty are removed by `close`.

    The model is loaded when the first video needs it and kept for the others. Raises OptionError or
    MediaError if the inputs make no sense as a whole.
    """

    def __init__(
        self,
        sources: Sequence[str],
        output: str | None,
        task: str,
        options: RestoreOptions,
        *,
        suffix: str | None = None,
        recursive: bool = False,
        photos: bool = False,
    ) -> None:
        self.task = task
        self.options = options
        given = [Source(name) for name in sources]
        found = expand_sources(given, recursive=recursive, photos=photos)
        self._sources = {source.name: source for source in found}
        self.sources = list(self._sources)
        self.left_out = made_of_others(given) if are_many(given) else {}
        self.notes = {} if photos else notes_on_pictures(given, recursive=recursive)
        many = any(found.values()) or (are_many(given) and not Path(output or "").suffix)
        if output and many and not Target(output).is_pipe:
            output = os.path.join(output, "")  # a folder, there or not
        several = len(found) > 1
        suffix = suffix or suffix_of(task, options)
        self.outputs = {
            source.name: output_for(source, _below(output, folder), suffix, several=several)
            for source, folder in found.items()
        }
        for target in self.outputs.values():
            twice = [source for source, other in self.outputs.items() if other == target]
            if len(twice) > 1:
                raise OptionError(
                    f"{' and '.join(twice)} would both become {target}; restore them one at a time, each "
                    "with its own `output`"
                )
        written = self.outputs.values()
        makes_folders = output is not None or any(target.is_pattern for target in written)
        folders = {target.path.parent for target in written} if makes_folders else ()
        self._made = [made for folder in sorted(folders) for made in _make_folder(folder)]

    @cached_property
    def restorer(self) -> Restorer:
        return load_restorer(self.task, self.options)

    def request(self, source: str) -> Request:
        return Request(self._sources[source], self.outputs[source], self.task, self.options)

    def loader(self, source: str, on_event: Listener) -> RestorerLoader:
        """Return a function that returns the restorer, with an event if it must be loaded first."""

        def load() -> Restorer:
            if "restorer" not in self.__dict__:
                on_event(Progressed(source, 0, stage="load"))
            return self.restorer

        return load

    def restore(self, source: str, on_event: Listener = ignore) -> Summary:
        """Restore one of `sources`. Raises VidRestoreError as `vidrestore.restore` does."""
        return restore_request(self.request(source), self.loader(source, on_event), on_event)

    def close(self) -> None:
        """Remove the folders that were made for outputs and are still empty."""
        for folder in reversed(self._made):
            with suppress(OSError):  # something is in it
                folder.rmdir()

    def preview(self, source: str, seconds: Fraction, on_event: Listener = ignore) -> Summary:
        """Write `seconds` of one of `sources`, before | after."""
        return preview(self.request(source), seconds, self.loader(source, on_event), on_event)

    def estimate(self, source: str, on_event: Listener = ignore) -> Estimate | Summary:
        """Plan one source and estimate its cost; return the summary instead if nothing is left to do."""
        return estimate(self.request(source), self.loader(source, on_event), on_event)


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder and those above it that are missing; return all that were made, from the top."""
    missing = [path for path in (*reversed(folder.parents), folder) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MediaError(
            f"{folder}: this folder for the outputs can't be made ({error.strerror}); choose another `output`"
        ) from error
    return missing


def _below(output: str | None, folder: str) -> str | None:
    """Return the folder below the output's that mirrors the folder of a source."""
    return os.path.join(output, folder, "") if output is not None and folder else output
