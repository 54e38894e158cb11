"""`vidrestore TASK`, for each of `settings.tasks`: restore videos by one task.

The options come from `RestoreOptions`; `RunOptions` are those of the commands alone.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vidrestore.cli.batch_list import BatchList
from vidrestore.cli.command_options import (
    HelpAll,
    Json,
    Quiet,
    of_task,
    one_use_of_stdout,
    with_options,
)
from vidrestore.cli.inputs import run_each, with_numbers
from vidrestore.cli.progress import listening
from vidrestore.cli.terminal import print_line, show
from vidrestore.errors import OptionError, VidRestoreError
from vidrestore.event_log import counted_words, length_of_time
from vidrestore.events import Failed, Progressed, Summary, Warned
from vidrestore.settings import option_values
from vidrestore.settings.options import (
    RestoreOptions,
    input_option,
    output_option,
    resume_option,
)
from vidrestore.settings.tasks import TASKS

if TYPE_CHECKING:
    from vidrestore.events import Listener
    from vidrestore.jobs.batch import Batch, Runner
    from vidrestore.jobs.estimate import Estimate
    from vidrestore.jobs.request import Request

# tasks in order; raises OptionError
Steps = Callable[[], list[tuple[str, RestoreOptions]]]


@dataclass(frozen=True)
class RunOptions:
    """Inputs, output and mode of a command: options that are not `RestoreOptions`."""

    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IN...",
            help="Videos, photos, folders, patterns ('*.mp4', %04d.png), or - for stdin.",
        ),
    ] = None
    recursive: Annotated[
        bool, input_option(help="Include subfolders; -o DIR gets the same ones.")
    ] = False
    photos: Annotated[
        bool, input_option(help="Pictures of a folder are photos, not frames.")
    ] = False
    output: Annotated[
        str | None,
        output_option(
            "--output",
            "-o",
            help="File, folder, %04d.png for pictures, or - for a y4m pipe.",
            metavar="OUT",
            show_default="beside IN, named after the task",
        ),
    ] = None
    preview: Annotated[
        Fraction | None,
        output_option(
            help="Restore an excerpt, before | after, from --start or a third in.",
            metavar="TIME",
            parser=option_values.seconds,
        ),
    ] = None
    report: Annotated[
        str | None,
        output_option(
            help="Write an HTML page: before and after, noise, flicker.",
            metavar="FILE.html|DIR",
        ),
    ] = None
    sidecar: Annotated[
        bool,
        output_option(
            help="Write OUT.vidrestore.json, for `vidrestore verify`; a list of a batch, too."
        ),
    ] = False
    dry_run: Annotated[
        bool, output_option(help="Show the plan and its cost; restore nothing.")
    ] = False
    json: Json = False
    quiet: Quiet = False
    verbose: Annotated[
        bool,
        output_option(
            "--verbose",
            "-v",
            help="Show details of the plan and the time of each stage, too.",
        ),
    ] = False
    shard: Annotated[
        tuple[int, int] | None,
        resume_option(
            help="Restore part I of N; the one that finds all joins.",
            metavar="I/N",
            parser=option_values.shard,
        ),
    ] = None
    engine: Annotated[
        Literal["local", "ray"],
        resume_option(
            help="ray: run on a Ray cluster with shared storage.", metavar="local|ray"
        ),
    ] = "local"


def run_steps(run: RunOptions, steps: Steps) -> None:
    """Restore all inputs by some steps, or preview or plan them, and exit with the code."""
    # what the command line alone can get wrong
    if run.preview is not None and run.dry_run:
        raise typer.BadParameter(
            "--preview writes a file and --dry-run none; leave one out"
        )
    if not run.sources:
        raise typer.BadParameter(
            "no input was given; expected videos, folders or patterns"
        )
    one_use_of_stdout(run.json, run.output)
    listener = listening(run.json, run.quiet, verbose=run.verbose)
    with listener as on_event:
        code = _run_all(run, steps, on_event)
    raise typer.Exit(code)


def _run_all(run: RunOptions, steps: Steps, on_event: Listener) -> int:
    """Restore all inputs and return the exit code.

    An error about all of them is reported for the only input, or for "" if there are several.
    """
    # an error about all inputs has no input's name
    inputs = run.sources or []
    only = inputs[0] if len(inputs) == 1 else ""
    on_event(Progressed(only, 0, stage="load"))
    try:
        work = Work(run, _batch(inputs, run, steps()), on_event)
    except VidRestoreError as error:
        on_event(
            Failed(
                only, str(error), kind=type(error).__name__, exit_code=error.exit_code
            )
        )
        return error.exit_code
    with closing(work.batch):
        return work.process_all()


class Work:
    """The inputs of a command, which are restored, previewed or planned; their events come one after the
    other. Raises OptionError if the list of the batch or the report pages can't be written.
    """

    def __init__(self, run: RunOptions, batch: Batch, on_event: Listener) -> None:
        self.run, self.batch = run, batch
        # what must be possible before the first input
        if (
            run.report is not None
            and len(batch.sources) > 1
            and not Path(run.report).is_dir()
        ):
            raise OptionError(
                f"--report {run.report}: several inputs need a folder for their pages"
            )
        # for several inputs with sidecars, unless it is a shard
        self.batch_list: BatchList | None = None
        if run.sidecar and run.shard is None and len(batch.sources) > 1:
            self.batch_list = BatchList(
                batch.sources, batch.outputs, batch.left_out, on_event
            )
        self.on_event = with_numbers(self.batch_list or on_event, batch.sources)
        self.counts = Counter[str]()  # inputs that did not fail, by `_count`
        # of work and bytes, of all that a dry run has planned
        self.seconds, self.size = 0.0, 0

    def process_all(self) -> int:
        """Process all inputs and return the exit code."""
        # what is left out, and why
        for path, origin in self.batch.left_out.items():
            reason = (
                f"left out: named like the output of {origin}, which is restored, too"
            )
            self.on_event(Warned(path, f"{reason}; to restore it, name it alone"))
        for path, note in self.batch.notes:
            self.on_event(Warned(path, note))
        # the list is written whatever happens, as it says how far the run came
        began, total = time.monotonic(), len(self.batch.sources)
        try:
            code = run_each(self.batch.sources, self.process, self.on_event)
        finally:
            if self.batch_list:
                self.batch_list.write()
        if total > 1 and not (self.run.json or self.run.quiet):
            print_line(self._count_line(time.monotonic() - began))
        return code

    def _count_line(self, seconds: float) -> str:
        here = " finished here" if self.run.shard else ""
        line = f"{self.counts['']} of {len(self.batch.sources)} inputs{here} in {length_of_time(seconds)}"
        line += "".join(
            f", {count} {outcome}"
            for outcome, count in sorted(self.counts.items())
            if outcome
        )
        if self.run.dry_run:
            line += f"; in all about {length_of_time(self.seconds)} of work and {self.size / 1e6:.1f} MB"
        return line

    def process(self, source: str) -> int:
        """Process one input and return its exit code."""
        # a video without records needs no memory of its events
        request = self.batch.request(source)
        is_recorded = self.run.sidecar or self.run.report is not None
        outcome = (
            self._recorded(request)
            if is_recorded
            else self._outcome(request, self.on_event)
        )
        self._count(source, outcome)
        if outcome is None and self.batch_list:
            self.batch_list.note(source, "skipped", "its output exists")
        return outcome.exit_code if outcome else 0

    def _count(self, source: str, outcome: Summary | Estimate | None) -> None:
        """Count an input under the words for what became of it; under "" if it was processed now."""
        words = ""
        if outcome is None:
            words = (
                "left alone"
                if source in self.batch.left_alone
                else "left to other parts"
            )
        elif isinstance(outcome, Summary) and outcome.before:
            words = "finished elsewhere" if self.run.shard else "finished before"
        self.counts[words] += 1

    def _recorded(self, request: Request) -> Summary | Estimate | None:
        """Process one input; write its sidecar and the page about it."""
        from vidrestore.jobs import sidecar as sidecars

        # refuse files that can't be written before the work
        run = self.run
        sidecar = sidecars.sidecar_path(request.output.name)
        page = (
            None
            if run.report is None
            else self._page_of(request.output.name, run.report)
        )
        self._check_record(sidecar if run.sidecar else None, request, "output")
        self._check_record(page, request, "report")
        record = sidecars.Record(self.on_event)
        outcome = self._outcome(request, record)
        if not isinstance(outcome, Summary):
            return outcome

        # a record that an earlier run wrote stays
        is_recorded = sidecar.exists() and sidecars.record_is_of(
            sidecar, request.output.name
        )
        writes_sidecar = run.sidecar and not (outcome.before and is_recorded)
        writes_sidecar = writes_sidecar and self._is_to_write(sidecar, outcome)
        writes_page = page is not None and self._is_to_write(page, outcome)
        if not (writes_sidecar or writes_page):
            return outcome

        # both files say the same
        command = shlex.join(["vidrestore", *sys.argv[1:]])
        content = sidecars.sidecar_content(sidecar, request, record, command)
        lines = []
        if writes_sidecar:
            sidecars.write_sidecar(sidecar, content)
            lines.append(f"{request.output}: recorded in {sidecar}")
        if page is not None and writes_page:
            from vidrestore.pages.report import write_report

            proof = sidecars.sidecar_lines(content)
            write_report(page, outcome, request.tasks, request.options, proof)
            lines.append(f"{request.output}: shown in {page}")
        for line in lines if not (run.json or run.quiet) else ():
            print_line(line)
        return outcome

    def _check_record(self, path: Path | None, request: Request, option: str) -> None:
        """Check a sidecar or page before the work. Raises MediaError if it can't be written,
        OutputExistsError if it exists without its video.
        """
        from vidrestore.files.atomic import check_output

        if path is not None:
            overwrite = self.batch.options.overwrite or bool(request.output.existing())
            check_output(path, self.batch.files, overwrite=overwrite, option=option)

    def _is_to_write(self, path: Path, outcome: Summary) -> bool:
        """Return False, with a warning, for a sidecar or page that exists, of a video that was finished
        before.
        """
        if outcome.before and os.path.exists(path):
            text = f"left alone: {path} exists; remove it for one of this run"
            self.on_event(Warned(outcome.source, text))
            return False
        return True

    def _page_of(self, output: str, place: str) -> Path:
        """Return the file of the page about an output, in a folder with a name of its own."""
        if not Path(place).is_dir():
            return Path(place)
        name = Path(output).name
        names = [target.path.name for target in self.batch.outputs.values()]
        digest = sha256(os.fsencode(os.path.realpath(output))).hexdigest()[:8]
        return Path(
            place, f"{name}.{digest}.html" if names.count(name) > 1 else f"{name}.html"
        )

    def _outcome(
        self, request: Request, on_event: Listener
    ) -> Summary | Estimate | None:
        """Restore, preview or plan one input; None if its output was left alone."""
        load = self.batch.loader(request, on_event)
        if self.run.preview is not None:
            from vidrestore.jobs.preview import preview

            return preview(request, self.run.preview, load, on_event)
        if not self.run.dry_run:
            return self.batch.restore(request, on_event)
        from vidrestore.jobs.estimate import estimate

        outcome = estimate(request, load, on_event)
        if not isinstance(outcome, Summary):
            self.seconds, self.size = (
                self.seconds + outcome.seconds,
                self.size + outcome.size,
            )
            show(*(() if self.run.json else estimate_lines(outcome)))
        return outcome


def _check_records(run: RunOptions) -> None:
    """Raise OptionError if sidecars or the report can't be written, before hours of work."""
    # only files that are restored can have records
    restores_files = (
        run.preview is None
        and not run.dry_run
        and "-" not in (run.output, *(run.sources or ()))
    )
    if (run.sidecar or run.report is not None) and not restores_files:
        raise OptionError(
            "--sidecar and --report are of restored files: not with --preview, --dry-run or pipes"
        )
    if run.report is None:
        return
    # a page has the name of a file, a folder must be there
    place = Path(run.report)
    if (
        place.suffix
        and place.suffix.lower() not in (".html", ".htm")
        and not place.is_dir()
    ):
        raise OptionError(
            f"--report {run.report}: a page is a file such as page.html, or a folder that exists"
        )
    try:
        (place.parent if place.suffix else place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"--report {run.report}: the folder can't be made ({error.strerror}); choose another"
        ) from error


def _batch(
    sources: list[str], run: RunOptions, chain: list[tuple[str, RestoreOptions]]
) -> Batch:
    """Return the inputs with outputs and steps. Raises OptionError for options that exclude each other."""
    from vidrestore.jobs.batch import Batch
    from vidrestore.jobs.naming import PREVIEW
    from vidrestore.jobs.request import Step, check_steps

    # options that exclude each other
    steps = [Step(task, options) for task, options in chain]
    check_steps(steps)
    options = steps[0].options
    if run.preview is not None and options.duration is not None:
        raise OptionError("--preview is a duration of its own; leave --duration out")
    is_multi_device = "," in options.device
    if sum((run.shard is not None, run.engine == "ray", is_multi_device)) > 1:
        raise OptionError(
            "--shard, --engine ray and several devices are three ways to share the work; choose one"
        )
    _check_records(run)

    # the ways of sharing the work
    is_restored = run.preview is None and not run.dry_run
    runner = _runner(run, options.device) if is_restored else None
    if is_multi_device:
        from vidrestore.scale.workers import devices_of

        device = devices_of(options.device)[0]
        steps = [step.with_options(device=device) for step in steps]
    return Batch(
        sources,
        run.output,
        steps,
        suffix=PREVIEW if run.preview else None,
        recursive=run.recursive,
        photos=run.photos,
        runner=runner,
    )


def _runner(run: RunOptions, devices: str) -> Runner | None:
    """Return what shares the work with other processes, or among threads; None for one file after another."""
    # three ways to share the work, each loaded only if asked for
    if run.shard:
        from vidrestore.scale.shards import Shard

        return Shard(*run.shard)
    if run.engine == "ray":
        from vidrestore.scale.ray_tasks import RayTasks
        from vidrestore.scale.workers import WorkerRunner

        return WorkerRunner(RayTasks())
    if "," in devices:
        from vidrestore.scale.workers import DeviceWorkers, WorkerRunner, devices_of

        return WorkerRunner(DeviceWorkers(devices_of(devices)))
    # records are checked before the work on their file, and written after it
    if run.sidecar or run.report is not None or "-" in (run.sources or ()):
        return None
    from vidrestore.jobs.side_by_side import SideBySide

    return SideBySide()


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """Yield the lines of a dry run for a reader; of a photograph, in brief."""
    from vidrestore.media.formats.source import NUMBERED_PICTURES

    plan, timeline = estimate.plan, estimate.plan.timeline
    encoder = plan.encoder
    place = f" on {counted_words(estimate.cores, 'core')}" if estimate.cores else ""
    work = f"about {length_of_time(estimate.seconds)} of work{place}"
    yield f"{plan.source.path} -> {plan.output}"
    if estimate.frames == 1 and encoder.container == NUMBERED_PICTURES:
        yield f"  {', '.join([*estimate.decisions.values(), work])}"
        return

    # what would be done, and how
    settings = " ".join(f"{key}={value}" for key, value in encoder.settings.items())
    numbers = {
        "frame": estimate.frames,
        "scene": len(timeline.scenes),
        "clip": len(timeline.clips),
    }
    numbers["other stream"] = len(plan.copy)
    yield (
        "  "
        + ", ".join(counted_words(number, word) for word, number in numbers.items())
        + " copied"
    )
    if estimate.decisions:
        yield f"  {', '.join(estimate.decisions.values())}"
    yield f"  encoder {encoder.pix_fmt} {settings}, {encoder.threads} threads"
    for scene in (
        timeline.scenes if any(any(scene.sigma) for scene in timeline.scenes) else ()
    ):
        yield f"  frames {scene.first:>6} to {scene.stop - 1:>6}  noise: {scene.noise}"

    # what it would take
    yield f"  {work} and {estimate.size / 1e6:.1f} MB of video"
    if estimate.encoding < estimate.restoring:
        rates = f"{estimate.encoding:.3g} and {estimate.restoring:.3g} frames a second"
        yield f"  the encoder is slower than the restorer here: {rates}; a faster --preset takes more bits"
    if estimate.damage:
        yield f"  {estimate.damage}"


def _restore_command(task: str, help: str) -> Callable[..., None]:
    """Return the command of a task, with the options for it."""

    def command(
        options: RestoreOptions, run: RunOptions, help_all: HelpAll = False
    ) -> None:
        run_steps(run, lambda: [(task, options)])

    command.__name__, command.__doc__ = task, help
    return with_options(of_task(task))(command)


RESTORE_COMMANDS = [_restore_command(task.name, task.help) for task in TASKS.values()]
