"""Requests: a source, an output and the steps between them, known before any file is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from vidrestore.errors import OptionError
from vidrestore.files.regular import digest
from vidrestore.media.formats.source import Source, SourceIdentity, Target
from vidrestore.settings.options import (
    DENOISE,
    ENLARGE,
    RestoreOptions,
    Scope,
    values_of,
)
from vidrestore.settings.tasks import TASKS

if TYPE_CHECKING:
    from vidrestore.restorers.base import Restorer

StepLoader: TypeAlias = "Callable[[Step], Restorer]"


@dataclass(frozen=True)
class Step:
    """One task with its options; those that concern files are the first step's."""

    task: str
    options: RestoreOptions = field(default_factory=RestoreOptions)

    def with_options(self, **values: Any) -> Step:
        return replace(self, options=replace(self.options, **values))

    @property
    def measures_noise(self) -> bool:
        return self.task in DENOISE and self.options.sigma == "auto"

    @property
    def measures_input(self) -> bool:
        """True if the network depends on what the coder took, which isn't given."""
        return (
            self.task in ENLARGE
            and self.options.input == "auto"
            and self.options.model is None
        )

    @property
    def removes_loss(self) -> bool:
        """True if a photograph's loss of coding is removed before the task."""
        amplifies = self.task in TASKS and TASKS[self.task].amplifies_loss
        return amplifies and self.options.model is None


def load_step(step: Step) -> Restorer:
    from vidrestore.restorers.base import load_restorer

    return load_restorer(step.task, step.options)


class LoadedSteps:
    """Loads the restorers of steps, each once; several threads may ask for them."""

    def __init__(self) -> None:
        self._loaded: list[tuple[dict[str, Any], Restorer]] = []
        self._lock = Lock()

    def __call__(
        self, step: Step, begin: Callable[[], None] = lambda: None
    ) -> Restorer:
        """Return the restorer of a step; `begin` is called before it is loaded."""
        key = {"task": step.task} | values_of(step.options, "pixels", "machine")
        # a step that differs only by files has the same network
        with self._lock:
            for loaded, restorer in self._loaded:
                if loaded == key:
                    return restorer
            begin()
            restorer = load_step(step)
            self._loaded.append((key, restorer))
        return restorer


def check_steps(steps: Sequence[Step]) -> None:
    """Raise OptionError for steps that can't follow each other."""
    if not steps:
        raise OptionError("no step was given; expected tasks such as denoise,deblur,sr")
    if sum(step.task in ENLARGE for step in steps) > 1:
        raise OptionError(
            "sr can be one of the steps once: its output is four times larger at most"
        )


@dataclass(frozen=True)
class Request:
    """Restore the video `source` into `output` by one or several steps; either may be a pipe."""

    source: Source
    output: Target
    steps: tuple[Step, ...]

    @property
    def options(self) -> RestoreOptions:
        """The options of the first step, with those that concern files."""
        return self.steps[0].options

    @property
    def tasks(self) -> str:
        """The names of all tasks, for messages."""
        return ", ".join(step.task for step in self.steps)

    def with_options(self, **values: Any) -> Request:
        """Return the same request with other values of some options, in every step."""
        return replace(
            self, steps=tuple(step.with_options(**values) for step in self.steps)
        )

    @property
    def names(self) -> tuple[str, str]:
        """The names of source and output, as events and summaries have them."""
        return self.source.name, self.output.name

    @property
    def is_piped(self) -> bool:
        return self.source.is_pipe or self.output.is_pipe

    @property
    def name(self) -> str:
        """A short name for the tasks and the options that alter the file, the same for any source."""
        scopes: tuple[Scope, ...] = ("pixels", "file", "streams")
        names = [
            digest({"task": step.task} | plain_options(step.options, *scopes))
            for step in self.steps
        ]
        return digest({"steps": names}) if len(names) > 1 else names[0]

    def job(self, source: SourceIdentity) -> str:
        """Return the digest of the request, its source and weights, by which a finished output is known. It
        holds for a copy of the source, too.
        """
        return self._digest(size=source.size, places=source.places)

    def former_job(self, source: SourceIdentity) -> str:
        """Return the digest that earlier versions made. Raises OSError."""
        return self._digest(size=source.size, head=self.source.former_head())

    def _digest(self, **source: Any) -> str:
        from vidrestore.weights import is_file  # not for every run
        from vidrestore.weights.manifest import read_manifest, sha256_of

        cards = read_manifest().values()
        weights = dict[str, str]()
        # of a file its content, which may change under its name; of bundled weights their record
        for task, model in ((step.task, step.options.model) for step in self.steps):
            if model and is_file(model):
                with suppress(OSError):  # an address of a hub names a revision
                    weights[model] = sha256_of(Path(model))
            else:
                weights |= {
                    card.name: card.sha256
                    for card in cards
                    if card.suits(task) or card.name == model
                }
        return digest({"request": self.name, **source, "weights": weights})


def plain_options(options: RestoreOptions, *scopes: Scope) -> dict[str, Any]:
    """Return the options of some scopes, as JSON values."""
    return {name: _plain(value) for name, value in values_of(options, *scopes).items()}


def _plain(value: Any) -> Any:
    # sets in order, numbers alike however they were given
    if isinstance(value, frozenset):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(item) for key, item in asdict(value).items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 20 and 20.0 mean the same
    return (
        value
        if value is None or isinstance(value, (str, int, float, dict))
        else str(value)
    )
