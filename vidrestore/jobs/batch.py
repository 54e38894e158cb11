"""Batches: several sources with their outputs, restored by models that are loaded once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

from vidrestore.errors import MediaError, OptionError, OutputExistsError
from vidrestore.events import Listener, Progressed, Summary, Warned, ignore_event
from vidrestore.files.atomic import refuse_sources
from vidrestore.files.regular import is_too_long, write_problem
from vidrestore.jobs.naming import (
    are_many,
    clashing,
    expand_sources,
    named_outputs,
    notes_on,
    output_for,
    suffix_of,
)
from vidrestore.jobs.request import LoadedSteps, Request, Step, StepLoader
from vidrestore.jobs.run import restore_request
from vidrestore.media.formats.source import Source, Target
from vidrestore.settings.options import RestoreOptions


class Runner:
    """Restores the videos of a batch in this process; subclasses share the work with other processes."""

    def check(self, batch: Batch) -> None:
        """Raise OptionError if the work on this batch can't be shared."""

    def restore(
        self, batch: Batch, request: Request, on_event: Listener
    ) -> Summary | None:
        """Restore one video of the batch; None if parts are left to others. Raises VidRestoreError as
        `vidrestore.restore` does.
        """
        return restore_request(request, batch.loader(request, on_event), on_event)

    def close(self) -> bool:
        """End the work; return True if folders that are still empty can be removed."""
        return True


class Batch:
    """The videos and photos that `sources` (files, folders, patterns) name, each with its output; `output` is
    a folder if there are several; a name without a suffix is one, too, unless one file is the source.

    `suffix` is what a default name gets: in.mp4 -> in.SUFFIX.mp4, by default the steps'. `recursive` goes
    into folders below the given ones; the folder `output` then gets the same folders. `photos`: pictures in
    folders and patterns are restored one by one, not as frames. `runner` restores them, by default in this
    process. `left_out` are named videos that were made from others of the batch, `left_alone` those whose
    output exists, `notes` sentences about other files that were found. Folders for the outputs are made;
    `close` removes those that are still empty.

    Models are loaded when the first video needs them and stay loaded for the others. Raises OptionError or
    MediaError if inputs and output don't fit together.
    """

    def __init__(
        self,
        sources: Sequence[str],
        output: str | None,
        steps: Sequence[Step],
        *,
        suffix: str | None = None,
        recursive: bool = False,
        photos: bool = False,
        runner: Runner | None = None,
    ) -> None:
        self.steps = tuple(steps)
        self.left_alone = set[str]()
        self._load, self._runner = LoadedSteps(), runner or Runner()
        inputs = [Source(name) for name in sources]
        # what is restored: names become files, and outputs of earlier runs are left out
        # a rate, or an output for all of them, says that pictures are frames
        frames = self.options.fps is not None or bool(Path(output or "").suffix)
        files = expand_sources(
            inputs,
            recursive=recursive,
            photos=photos,
            frames=frames,
            has_output=output is not None,
        )
        self._sources = {source.name: source for source in files}
        self.sources = list(self._sources)
        self.left_out = named_outputs(inputs) if are_many(inputs) else {}
        self.notes = list(
            notes_on(inputs, recursive=recursive, photos=photos, frames=frames)
        )
        # where it goes: into a folder unless a single file was named
        many = any(files.values()) or (
            are_many(inputs) and not Path(output or "").suffix
        )
        if output and many and not Target(output).is_pipe:
            output = os.path.join(output, "")  # a folder, there or not
        is_batch = len(files) > 1
        suffix = suffix or ".".join(
            suffix_of(step.task, step.options) for step in self.steps
        )
        naming = {}
        for source, folder in files.items():
            place = (
                os.path.join(output, folder, "")
                if output is not None and folder
                else output
            )
            naming[source.name] = partial(
                output_for, source, place, suffix, is_batch=is_batch
            )
        # names that sources share keep the suffixes of those
        self.outputs = {name: output() for name, output in naming.items()}
        self.outputs |= {
            name: naming[name](full=True) for name in clashing(self.outputs)
        }
        self._clashing = clashing(self.outputs)
        # folders are made once all names are known, and only where the user chose one
        written = self.outputs.values()
        makes_folders = output is not None or any(
            target.is_pattern for target in written
        )
        folders = {target.path.parent for target in written} if makes_folders else ()
        self._new_folders = [
            path for folder in sorted(folders) for path in _make_folder(folder)
        ]
        self._runner.check(self)

    def request(self, source: str) -> Request:
        """Return the request for one of `sources`. Raises OptionError if another has the same output."""
        if clashes := self._clashing.get(source):
            raise OptionError(
                f"{source}: {' and '.join(clashes)} would become {self.outputs[source]}, too; restore them "
                "one at a time, each with its own `output`"
            )
        if self.options.overwrite:  # else an existing file is refused, or left alone
            refuse_sources(self.outputs[source].existing().values(), self.files)
        return Request(self._sources[source], self.outputs[source], self.steps)

    @property
    def options(self) -> RestoreOptions:
        """The options of the first step, with those that concern files."""
        return self.steps[0].options

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The files that all `sources` are read from."""
        paths = list[str]()
        for source in self._sources.values():
            # one that can't be read fails when its turn comes
            with suppress(MediaError):
                paths += source.files
        return tuple(paths)

    def loader(self, request: Request, on_event: Listener) -> StepLoader:
        """Return a function that returns the restorer of a step, with an event if it must be loaded first."""
        return lambda step: self._load(
            step, lambda: on_event(Progressed(request.source.name, 0, stage="load"))
        )

    def restore(
        self, request: Request, on_event: Listener = ignore_event
    ) -> Summary | None:
        """Restore the video of a `request`; None if parts are left to others. Of several, one whose output
        exists is left alone with a warning. Raises VidRestoreError as `vidrestore.restore` does.
        """
        try:
            return self._runner.restore(self, request, on_event)
        except OutputExistsError as error:
            if len(self.sources) == 1:
                raise
            self.left_alone.add(request.source.name)
            on_event(Warned(request.source.name, f"left alone: {error}"))
            return None

    def close(self) -> None:
        """Remove the folders that were made for outputs and are still empty."""
        if self._runner.close():
            for folder in reversed(self._new_folders):
                with suppress(OSError):  # something is in it
                    folder.rmdir()


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder and those above it that are missing; return all that were made, from the top."""
    # from the top, so that a failure removes what it has made
    missing = [
        path for path in (*reversed(folder.parents), folder) if not path.exists()
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        for path in reversed(missing):
            with suppress(OSError):
                path.rmdir()
        if is_too_long(folder):
            raise write_problem(str(folder), error) from error
        raise MediaError(
            f"{folder}: this folder for the outputs can't be made ({error.strerror}); choose another `output`"
        ) from error
    return missing
