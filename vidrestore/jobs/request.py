"""The request for a restoration, and the checks that need nothing but it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from fractions import Fraction
from typing import Any

from vidrestore.errors import OptionError
from vidrestore.jobs.steps import Step
from vidrestore.jobs.work_folder import WorkFolder, digest
from vidrestore.media.source import Y4M, Source, Target
from vidrestore.options import RestoreOptions, Scope, values_of


@dataclass(frozen=True)
class Request:
    """Restore the video `source` into `output`; either may be a pipe. `later` are the steps after the first
    one, which is `task` with its `options`.
    """

    source: Source
    output: Target
    task: str
    options: RestoreOptions = field(default_factory=RestoreOptions)
    later: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        return (Step(self.task, self.options), *self.later)

    @property
    def tasks(self) -> str:
        """The names of all tasks, for messages."""
        return ", ".join(step.task for step in self.steps)

    def with_options(self, change: Callable[[RestoreOptions], RestoreOptions]) -> Request:
        """Return the same request with the options of every step changed."""
        first, *later = (replace(step, options=change(step.options)) for step in self.steps)
        return replace(self, options=first.options, later=tuple(later))

    @property
    def names(self) -> tuple[str, str]:
        """The names of source and output, as events and summaries have them."""
        return self.source.name, self.output.name

    @property
    def is_piped(self) -> bool:
        return self.source.is_pipe or self.output.is_pipe

    @property
    def has_segments(self) -> bool:
        """Return True if parts of it can be restored by themselves: not with pipes, nor if the noise of a
        later step is to be measured on frames that aren't there before.
        """
        return not self.is_piped and not any(step.measures_noise for step in self.later)

    def work_folder(self) -> WorkFolder:
        return WorkFolder(self.output.name, self.options.work_dir, trust_group=self.options.trust_group)

    @property
    def name(self) -> str:
        """A short name for the tasks and the options that alter the file, the same for any source."""
        scopes: tuple[Scope, ...] = ("pixels", "file", "streams")
        names = [digest({"task": step.task} | plain_options(step.options, *scopes)) for step in self.steps]
        return digest({"steps": names}) if self.later else names[0]


def plain_options(options: RestoreOptions, *scopes: Scope) -> dict[str, Any]:
    """Return the options that alter what `scopes` say, as JSON values."""
    return {name: _plain(value) for name, value in values_of(options, *scopes).items()}


def check_request(request: Request) -> None:
    """Raise an error for what is wrong even before the source is opened."""
    overwrite = request.options.overwrite or is_half_named(request)
    check_files(request.source, request.output, overwrite=overwrite, cfr=request.options.cfr)


def is_half_named(request: Request) -> bool:
    """Return True if a run was killed while it named its pictures. The first gets its own last."""
    return request.output.is_pattern and request.has_segments and bool(request.work_folder().finished())


def check_files(source: Source, output: Target, *, overwrite: bool, cfr: Fraction | None) -> None:
    """Refuse an output that can't be written, or a rate that it doesn't take."""
    if output.container == Y4M:
        return
    output.check(source, overwrite=overwrite)
    if cfr is not None:
        raise OptionError(
            f"`cfr={cfr}` is for a pipe (`output=-`); a file keeps the time of every frame, remove the option"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(each) for key, each in asdict(value).items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 20 and 20.0 mean the same
    return value if value is None or isinstance(value, (str, int, float, dict)) else str(value)
