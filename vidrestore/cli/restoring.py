"""The common part of all commands that restore videos: their inputs and outputs, and the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from vidrestore import parsing
from vidrestore.cli.declared import JSON, QUIET, one_use_of_stdout
from vidrestore.cli.interrupts import stops_cleanly
from vidrestore.cli.progress import counted_words, length_of_time, listening
from vidrestore.cli.several_inputs import numbered, run_each
from vidrestore.cli.terminal import ask, say, show
from vidrestore.errors import OptionError, OutputExistsError, VidRestoreError
from vidrestore.events import DAMAGED_SOURCE, Failed, Progressed, Warned
from vidrestore.options import INPUT, OUTPUT, RESUME, RestoreOptions, option

if TYPE_CHECKING:
    from vidrestore.events import Listener
    from vidrestore.jobs.batch import Batch, Way
    from vidrestore.jobs.estimate import Estimate
    from vidrestore.jobs.job import Summary
    from vidrestore.jobs.steps import Step


@dataclass(frozen=True)
class RunOptions:
    """Inputs, output and mode of a command: options that are not `RestoreOptions`."""

    sources: list[str] | None = option(
        None,
        "Videos, photos, folders, patterns ('*.mp4', %04d.png), or - for stdin.",
        INPUT,
        scope="call",
        metavar="IN...",
        argument=True,
    )
    recursive: bool = option(False, "Include subfolders; -o DIR gets the same ones.", INPUT, scope="job")
    photos: bool = option(False, "Pictures of a folder are photos, not frames.", INPUT, scope="job")
    from_list: str | None = option(
        None, "Read input names from a file, one per line; - is stdin.", INPUT, scope="job", metavar="FILE"
    )
    output: str | None = option(
        None,
        "File, folder, %04d.png for pictures, or - for a y4m pipe.",
        OUTPUT,
        scope="call",
        flags=("--output", "-o"),
        metavar="OUT",
        shown="IN.TASK.mp4",
    )
    preview: Fraction | None = option(
        None,
        "Restore an excerpt, before | after, from --start or a third in.",
        OUTPUT,
        scope="job",
        metavar="TIME",
        parse=parsing.seconds,
    )
    report: str | None = option(
        None,
        "Write an HTML page: before and after, noise, flicker.",
        OUTPUT,
        scope="job",
        metavar="FILE.html|DIR",
    )
    dry_run: bool = option(False, "Show the plan and its cost; restore nothing.", OUTPUT, scope="job")
    json: bool = option(False, JSON)
    quiet: bool = option(False, QUIET)
    preset_for: str | None = option(
        None,
        "Defaults for tape, phone-night, film, webcam, old-web; see `vidrestore config`.",
        INPUT,
        scope="call",
        metavar="NAME",
    )
    shard: tuple[int, int] | None = option(
        None,
        "Run as process I of N that share OUT's folder.",
        RESUME,
        scope="job",
        metavar="I/N",
        parse=parsing.shard,
    )
    engine: Literal["local", "ray"] = option(
        "local", "ray: run on a Ray cluster with shared storage.", RESUME, scope="job", metavar="local|ray"
    )
    ray_address: str | None = option(
        None,
        "Address of the Ray cluster.",
        RESUME,
        scope="job",
        metavar="ADDRESS",
        shown="RAY_ADDRESS, else this machine",
    )
    ray_cpus: int | None = option(
        None, "CPUs per Ray worker without a GPU.", RESUME, scope="job", metavar="N", shown="4"
    )


def run_task(task: str, run: RunOptions, options: Callable[[], RestoreOptions]) -> None:
    """Restore all inputs by one task, or preview or plan them, and exit with the code."""

    def steps() -> list[Step]:
        from vidrestore.jobs.steps import Step

        return [Step(task, options())]

    run_steps(run, steps)


def run_steps(run: RunOptions, steps: Callable[[], list[Step]]) -> None:
    """Restore all inputs by some steps, or preview or plan them, and exit with the code."""
    if run.preview is not None and run.dry_run:
        raise typer.BadParameter("--preview writes a file and --dry-run none; leave one out")
    if run.engine != "ray" and (run.ray_address is not None or run.ray_cpus is not None):
        raise typer.BadParameter(
            "--ray-address and --ray-cpus are for --engine ray; add that, or leave them out"
        )
    if not run.sources and not run.from_list:
        raise typer.BadParameter(
            "no input was given; expected videos, folders or patterns, or --from-list FILE"
        )
    one_use_of_stdout(run.json, run.output)
    with stops_cleanly(), listening(run.json, run.quiet) as on_event:
        code = _run_all(run, steps, on_event)
    raise typer.Exit(code)


def _run_all(run: RunOptions, steps: Callable[[], list[Step]], on_event: Listener) -> int:
    """Restore all inputs and return the exit code.

    An error about all of them is reported for the only input, or for "" if there are several.
    """
    given = run.sources or []
    only = given[0] if len(given) == 1 and not run.from_list else ""
    on_event(Progressed(only, 0, stage="load"))
    from vidrestore.jobs.naming import listed_sources  # with torch, which takes seconds

    try:
        sources = [*given, *(listed_sources(run.from_list) if run.from_list else ())]
        batch = _batch(sources, run, steps())
        if run.report is not None and len(batch.sources) > 1 and not Path(run.report).is_dir():
            raise OptionError(f"--report {run.report}: several inputs need a folder for their pages")
    except VidRestoreError as error:
        on_event(Failed(only, str(error), kind=type(error).__name__, exit_code=error.exit_code))
        return error.exit_code
    on_event = numbered(on_event, batch.sources)
    for path, origin in batch.left_out.items():
        on_event(
            Warned(
                path,
                f"left out: named like the output of {origin}, which is restored, too; to restore it, "
                "name it alone",
            )
        )
    for path, note in batch.notes.items():
        on_event(Warned(path, note))
    began, done = time.monotonic(), 0
    with closing(batch):

        def work(source: str) -> int:
            nonlocal done
            code = _work(batch, source, run, on_event)
            done += 1
            return code

        code = run_each(batch.sources, work, on_event)
    if len(batch.sources) > 1 and not (run.json or run.quiet):
        say(f"{done} of {len(batch.sources)} inputs in {length_of_time(time.monotonic() - began)}")
    return code


def _check_together(run: RunOptions, options: RestoreOptions) -> None:
    """Raise OptionError for options that exclude each other."""
    if run.preview is not None and options.duration is not None:
        raise OptionError("--preview is a duration of its own; leave --duration out")
    if sum((run.shard is not None, run.engine == "ray", "," in options.device)) > 1:
        raise OptionError(
            "--shard, --engine ray and several devices are three ways to share the work; choose one"
        )


def _check_report(run: RunOptions) -> None:
    """Raise OptionError for a report that can't be made, before hours of work."""
    if run.report is None:
        return
    if run.preview is not None or run.dry_run or "-" in (run.output, *(run.sources or ())):
        raise OptionError("--report looks at a finished file: not with --preview, --dry-run or pipes")
    place = Path(run.report)
    if place.suffix.lower() != ".html" and not place.is_dir():
        raise OptionError(f"--report {run.report}: name a file that ends with .html, or a folder that exists")
    if not place.absolute().parent.is_dir():
        raise OptionError(f"--report {run.report}: there is no folder {place.parent}; create it first")


def _report(batch: Batch, summary: Summary, place: str) -> str:
    """Write the page about one finished video, and return its path."""
    from vidrestore.evaluation.report import write_report

    if Path(place).is_dir():
        place = str(Path(place, f"{Path(summary.output).name}.html"))
    write_report(place, summary, batch.tasks, batch.options)
    return place


def _batch(sources: list[str], run: RunOptions, steps: list[Step]) -> Batch:
    """Return the inputs, with the way to restore them."""
    from vidrestore.jobs.batch import Batch
    from vidrestore.jobs.naming import PREVIEW

    options = steps[0].options
    _check_together(run, options)
    _check_report(run)
    way = None
    if run.preview is None and not run.dry_run:
        way = _way(run, options)
    if "," in options.device:
        from vidrestore.scale.processes import devices_of

        device = devices_of(options.device)[0]
        steps = [replace(step, options=replace(step.options, device=device)) for step in steps]
    return Batch(
        sources,
        run.output,
        steps[0].task,
        steps[0].options,
        later=steps[1:],
        suffix=PREVIEW if run.preview else None,
        recursive=run.recursive,
        photos=run.photos,
        way=way,
    )


def _way(run: RunOptions, options: RestoreOptions) -> Way | None:
    """Return the way to share the work with other processes, None for this one alone."""
    if run.shard:
        from vidrestore.scale.shards import Shard
        from vidrestore.scale.shared_batch import AsShard

        return AsShard(Shard(*run.shard))
    if run.engine == "ray":
        from vidrestore.scale.ray_actors import RayActors
        from vidrestore.scale.shared_batch import ByWorkers

        return ByWorkers(RayActors(run.ray_address, cpus=run.ray_cpus))
    if "," in options.device:
        from vidrestore.scale.processes import Processes, devices_of
        from vidrestore.scale.shared_batch import ByWorkers

        return ByWorkers(Processes(devices_of(options.device)))
    return None


def _work(batch: Batch, source: str, run: RunOptions, on_event: Listener) -> int:
    """Process one input and return its exit code."""
    if not run.dry_run:
        summary = (
            _restore(batch, source, run, on_event)
            if run.preview is None
            else batch.preview(source, run.preview, on_event)
        )
        if run.report is not None and not summary.skipped:
            page = _report(batch, summary, run.report)
            if not (run.json or run.quiet):
                say(f"{summary.output}: shown in {page}")
        return summary.exit_code
    from vidrestore.jobs.job import Summary

    found = _estimate(batch, source, on_event)
    if isinstance(found, Summary):
        return found.exit_code
    if not run.json:
        show(*estimate_lines(found))
    return DAMAGED_SOURCE if found.damage else 0


def _restore(batch: Batch, source: str, run: RunOptions, on_event: Listener) -> Summary:
    """Restore one input; ask whether to discard an unfinished job that differs."""
    from vidrestore.jobs.work_folder import DifferentJobError

    try:
        return batch.restore(source, on_event)
    except DifferentJobError as error:
        if run.json or run.quiet or run.shard:
            raise
        on_event(Warned(source, error.found))
        if not ask("Discard it and start over?"):
            raise
    with _changed(batch, restart=True):
        return batch.restore(source, on_event)


@contextmanager
def _changed(batch: Batch, **options: bool) -> Iterator[None]:
    """Change options of a batch for the block."""
    before, batch.options = batch.options, replace(batch.options, **options)  # type: ignore[arg-type]
    try:
        yield
    finally:
        batch.options = before


def _estimate(batch: Batch, source: str, on_event: Listener) -> Estimate | Summary:
    """Return the estimate of a source, also if its output exists."""
    try:
        return batch.estimate(source, on_event)
    except OutputExistsError as error:
        on_event(Warned(source, str(error)))
    with _changed(batch, overwrite=True):
        return batch.estimate(source, on_event)


def estimate_lines(found: Estimate) -> Iterator[str]:
    """Yield the lines of a dry run for a reader."""
    plan, timeline = found.plan, found.plan.timeline
    encoder = plan.encoder
    settings = " ".join(f"{key}={value}" for key, value in encoder.settings.items())
    parts = [
        (found.frames, "frame"),
        (len(timeline.scenes), "scene"),
        (len(timeline.clips), "clip"),
        (len(plan.copy), "other stream"),
    ]
    yield f"{plan.source.path} -> {plan.output}"
    yield "  " + ", ".join(counted_words(number, word) for number, word in parts) + " copied"
    yield f"  encoder {encoder.encoder} {encoder.pix_fmt} {settings}, {encoder.threads} threads"
    for scene in timeline.scenes if any(any(scene.sigma) for scene in timeline.scenes) else ():
        yield f"  frames {scene.first:>6} to {scene.stop - 1:>6}  noise: {scene.noise}"
    yield f"  about {length_of_time(found.seconds)} of work and {found.size / 1e6:.1f} MB of video"
    if found.damage:
        yield f"  {found.damage}"
