"""`vidrestore denoise|dehaze|derain|desnow|deblur|sr` and `vidrestore run`: restore videos.

The options come from `RestoreOptions`; `RunOptions` are those of the commands alone.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vidrestore import option_values
from vidrestore.checking import converted, known_names, parse_toml, toml, with_settings
from vidrestore.cli.batch_list import BatchList
from vidrestore.cli.command_options import HelpAll, Json, Quiet, of_task, one_use_of_stdout, with_options
from vidrestore.cli.inputs import numbered, run_each, stops_cleanly
from vidrestore.cli.progress import listening
from vidrestore.cli.terminal import ask, say, show
from vidrestore.errors import OptionError, VidRestoreError
from vidrestore.event_log import counted_words, length_of_time
from vidrestore.events import Failed, Progressed, Warned
from vidrestore.files.regular import LARGEST_TOML, read_limited
from vidrestore.options import (
    RestoreOptions,
    declared,
    input_option,
    output_option,
    quality_option,
    resume_option,
)

if TYPE_CHECKING:
    from vidrestore.events import Listener
    from vidrestore.jobs.batch import Batch, Way
    from vidrestore.jobs.estimate import Estimate
    from vidrestore.jobs.request import Step
    from vidrestore.jobs.summary import Summary


@dataclass(frozen=True)
class RunOptions:
    """Inputs, output and mode of a command: options that are not `RestoreOptions`."""

    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IN...", help="Videos, photos, folders, patterns ('*.mp4', %04d.png), or - for stdin."
        ),
    ] = None
    recursive: Annotated[bool, input_option(help="Include subfolders; -o DIR gets the same ones.")] = False
    photos: Annotated[bool, input_option(help="Pictures of a folder are photos, not frames.")] = False
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
        output_option(help="Write an HTML page: before and after, noise, flicker.", metavar="FILE.html|DIR"),
    ] = None
    sidecar: Annotated[
        bool,
        output_option(help="Write OUT.vidrestore.json, for `vidrestore verify`; a list of a batch, too."),
    ] = False
    dry_run: Annotated[bool, output_option(help="Show the plan and its cost; restore nothing.")] = False
    json: Json = False
    quiet: Quiet = False
    verbose: Annotated[
        bool,
        output_option("--verbose", "-v", help="Show details of the plan and the time of each stage, too."),
    ] = False
    shard: Annotated[
        tuple[int, int] | None,
        resume_option(
            help="Run as process I of N that share OUT's folder.", metavar="I/N", parser=option_values.shard
        ),
    ] = None
    engine: Annotated[
        Literal["local", "ray"],
        resume_option(help="ray: run on a Ray cluster with shared storage.", metavar="local|ray"),
    ] = "local"


def run_task(task: str, run: RunOptions, options: RestoreOptions) -> None:
    """Restore all inputs by one task, or preview or plan them, and exit with the code."""

    def steps() -> list[Step]:
        from vidrestore.jobs.request import Step

        return [Step(task, options)]

    run_steps(run, steps)


def run_steps(run: RunOptions, steps: Callable[[], list[Step]]) -> None:
    """Restore all inputs by some steps, or preview or plan them, and exit with the code."""
    if run.preview is not None and run.dry_run:
        raise typer.BadParameter("--preview writes a file and --dry-run none; leave one out")
    if not run.sources:
        raise typer.BadParameter("no input was given; expected videos, folders or patterns")
    one_use_of_stdout(run.json, run.output)
    shown = listening(run.json, run.quiet, verbose=run.verbose)
    with stops_cleanly(), shown as on_event:
        code = _run_all(run, steps, on_event)
    raise typer.Exit(code)


def _run_all(run: RunOptions, steps: Callable[[], list[Step]], on_event: Listener) -> int:
    """Restore all inputs and return the exit code.

    An error about all of them is reported for the only input, or for "" if there are several.
    """
    given = run.sources or []
    only = given[0] if len(given) == 1 else ""
    on_event(Progressed(only, 0, stage="load"))
    try:
        batch = _batch(given, run, steps())
        if run.report is not None and len(batch.sources) > 1 and not Path(run.report).is_dir():
            raise OptionError(f"--report {run.report}: several inputs need a folder for their pages")
        listed = _list_of(batch, run, on_event)
    except VidRestoreError as error:
        on_event(Failed(only, str(error), kind=type(error).__name__, exit_code=error.exit_code))
        return error.exit_code
    on_event = numbered(listed or on_event, batch.sources)
    for path, origin in batch.left_out.items():
        on_event(
            Warned(
                path,
                f"left out: named like the output of {origin}, which is restored, too; to restore it, "
                "name it alone",
            )
        )
    for path, note in batch.notes:
        on_event(Warned(path, note))
    began, done = time.monotonic(), 0
    with closing(batch), ExitStack() as at_last:
        if listed:
            at_last.callback(listed.write)

        def work(source: str) -> int:
            nonlocal done
            found = (_recorded if run.sidecar or run.report is not None else _work)(
                batch, source, run, on_event
            )
            done += 1
            if listed and getattr(found, "skipped", False):
                listed.note(source, "skipped", "its output exists")
            return found.exit_code

        code = run_each(batch.sources, work, on_event)
    if len(batch.sources) > 1 and not (run.json or run.quiet):
        say(f"{done} of {len(batch.sources)} inputs in {length_of_time(time.monotonic() - began)}")
    return code


def _list_of(batch: Batch, run: RunOptions, on_event: Listener) -> BatchList | None:
    """Return the list of several inputs that are restored by this process, if sidecars are asked for."""
    alone = run.preview is None and not run.dry_run and run.shard is None
    if not (run.sidecar and alone and len(batch.sources) > 1):
        return None
    return BatchList(batch.sources, batch.outputs, batch.left_out, on_event)


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
    if run.preview is not None or "-" in (run.output, *(run.sources or ())):
        raise OptionError("--report looks at a file: not with --preview or pipes")
    place = Path(run.report)
    try:
        (place.parent if place.suffix.lower() == ".html" else place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"--report {run.report}: the folder can't be made ({error.strerror}); choose another"
        ) from error


def _recorded(batch: Batch, source: str, run: RunOptions, on_event: Listener) -> Summary | Estimate:
    """Process one input; write its sidecar and the page about it."""
    from vidrestore.files.atomic import check_output
    from vidrestore.jobs.sidecar import MADE, Record, is_of_same, sidecar_content, sidecar_path, write_sidecar
    from vidrestore.jobs.summary import Summary

    request, record = batch.request(source), Record(on_event)
    if run.sidecar and (run.preview is not None or request.is_piped):
        raise OptionError("--sidecar is for files: not with --preview or pipes")
    place = sidecar_path(request.output.name)
    if run.sidecar:
        made = MADE["plan" if run.dry_run else "run"]
        check_output(place, batch.files, overwrite=batch.options.overwrite, made=made)
    page = None if run.report is None else _page_of(batch, request.output.name, run.report)
    found = _work(batch, source, run, record)
    if isinstance(found, Summary) and found.skipped:
        return found
    command = shlex.join(["vidrestore", *sys.argv[1:]])
    content = sidecar_content(place, request, record, command)
    said = []
    if run.sidecar:
        if not (isinstance(found, Summary) and found.before and is_of_same(place, content)):
            write_sidecar(place, content)
        said.append(f"{request.output}: recorded in {place}")
    if page is not None:
        _report(batch, found, page, content)
        if isinstance(found, Summary):
            said.append(f"{request.output}: shown in {page}")
    for line in said if not (run.json or run.quiet) else ():
        say(line)
    return found


def _page_of(batch: Batch, output: str, place: str) -> str:
    """Return the file of the page about an output, in a folder with a name of its own. Raises MediaError if
    it can't be written.
    """
    from vidrestore.evaluation.page import generator
    from vidrestore.evaluation.report import made_of
    from vidrestore.files.atomic import check_output

    made = made_of(output)
    if Path(place).is_dir():
        name, names = Path(output).name, [each.path.name for each in batch.outputs.values()]
        apart = f".{made.split()[-1][:8]}" if names.count(name) > 1 else ""
        place = str(Path(place, f"{name}{apart}.html"))
    overwrite = batch.options.overwrite
    check_output(place, batch.files, overwrite=overwrite, option="report", made=generator(made))
    return place


def _report(batch: Batch, found: Summary | Estimate, page: str, content: Mapping[str, Any]) -> None:
    """Write the page about one finished or planned video, with what a sidecar holds."""
    from vidrestore.evaluation.report import write_plan_report, write_report
    from vidrestore.jobs.sidecar import sidecar_lines
    from vidrestore.jobs.summary import Summary

    proof = sidecar_lines(content)
    if isinstance(found, Summary):
        write_report(page, found, batch.tasks, batch.options, proof)
    else:
        lines = [*estimate_lines(found), *proof]
        write_plan_report(page, batch.tasks, found.plan.source.path, found.plan.output, lines)


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
        from vidrestore.scale.multi_device import devices_of

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
        from vidrestore.scale.shards import AsShard, Shard

        return AsShard(Shard(*run.shard))
    if run.engine == "ray":
        from vidrestore.scale.multi_device import WithHelpers
        from vidrestore.scale.ray_actors import RayActors

        return WithHelpers(RayActors())
    if "," in options.device:
        from vidrestore.scale.multi_device import DeviceProcesses, WithHelpers, devices_of

        return WithHelpers(DeviceProcesses(devices_of(options.device)))
    return None


def _work(batch: Batch, source: str, run: RunOptions, on_event: Listener) -> Summary | Estimate:
    """Restore, preview or plan one input."""
    if run.preview is not None:
        return batch.preview(source, run.preview, on_event)
    if not run.dry_run:
        return _restore(batch, source, run, on_event)
    from vidrestore.jobs.summary import Summary

    found = batch.estimate(source, on_event)
    if not (run.json or isinstance(found, Summary)):
        show(*estimate_lines(found))
    return found


def _restore(batch: Batch, source: str, run: RunOptions, on_event: Listener) -> Summary:
    """Restore one input; ask whether to discard an unfinished job that differs."""
    from vidrestore.jobs.resume import DifferentJobError

    try:
        return batch.restore(source, on_event)
    except DifferentJobError as error:
        if run.json or run.quiet or run.shard:
            raise
        if not ask(f"{source}: {error.found}", "Discard it and start over?"):
            raise
        on_event(Warned(source, f"{error.found}; it was discarded"))
    before, batch.options = batch.options, replace(batch.options, restart=True)
    try:
        return batch.restore(source, on_event)
    finally:
        batch.options = before


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
    if found.decisions:
        yield f"  {', '.join(found.decisions.values())}"
    for scene in timeline.scenes if any(any(scene.sigma) for scene in timeline.scenes) else ():
        yield f"  frames {scene.first:>6} to {scene.stop - 1:>6}  noise: {scene.noise}"
    yield f"  about {length_of_time(found.seconds)} of work and {found.size / 1e6:.1f} MB of video"
    if found.encoding < found.restoring:
        rates = f"{found.encoding:.3g} and {found.restoring:.3g} frames a second"
        yield f"  the encoder is slower than the restorer here: {rates}; a faster --preset takes more bits"
    if found.damage:
        yield f"  {found.damage}"


HELP = {
    "denoise": """Remove noise; everything else stays as it is.

    Examples:
      vidrestore denoise in.mp4                        measure the noise
      vidrestore denoise in.mkv -o out.mkv --sigma 20 --quality best
      vidrestore denoise camera/ -o clean/ --recursive
    """,
    "dehaze": """Remove haze; everything else stays as it is.

    Examples:
      vidrestore dehaze in.mp4
      vidrestore dehaze in.mp4 --preview 3s            see before | after first
      vidrestore dehaze in.mp4 --strength 0.7 --steady
    """,
    "derain": """Remove rain; everything else stays as it is.

    Examples:
      vidrestore derain in.mp4
      vidrestore derain in.mp4 --preview 3s            see before | after first
      vidrestore derain *.mp4 -o dry/ --skip-existing
    """,
    "desnow": """Remove snow; everything else stays as it is.

    Examples:
      vidrestore desnow in.mp4
      vidrestore desnow in.mp4 --preview 3s            see before | after first
      vidrestore desnow *.mp4 -o clear/ --skip-existing
    """,
    "deblur": """Sharpen slight blur of motion or focus; the blur of a shaken camera stays.

    Examples:
      vidrestore deblur in.mp4
      vidrestore deblur in.mp4 --start 1:30 --duration 10s
      vidrestore deblur in.mp4 --dry-run               encoder, time and size
    """,
    "sr": """Make videos four times larger, with detail from neighbouring frames.

    Examples:
      vidrestore sr in.mp4
      vidrestore sr in.mp4 --preview 2s                see before | after first
      vidrestore sr in.mp4 --encoder libx265 --crf 20 -o large.mkv
    """,
}


def _restore_command(task: str, help: str) -> Callable[..., None]:
    """Return the command of a task, with the options for it."""

    def command(options: RestoreOptions, run: RunOptions, help_all: HelpAll = False) -> None:
        run_task(task, run, options)

    command.__name__, command.__doc__ = task, help
    return with_options(of_task(task))(command)


RESTORE_COMMANDS = [_restore_command(task, help) for task, help in HELP.items()]


@with_options(of_task("the whole run"))
def run(
    options: RestoreOptions,
    run: RunOptions,
    steps: Annotated[str, quality_option("--steps", metavar="A,B", help="Tasks, in order.")] = "",
    settings: Annotated[
        list[str] | None,
        quality_option(
            "--set",
            metavar="STEP.NAME=VALUE",
            help="Option of one step, such as denoise.sigma=20; repeatable.",
        ),
    ] = None,
    config: Annotated[
        str | None, quality_option("--config", metavar="FILE", help="Steps and their options as TOML.")
    ] = None,
    print_config: Annotated[bool, quality_option(metavar="", help="Print that TOML and exit.")] = False,
    help_all: HelpAll = False,
) -> None:
    """Restore by several tasks in one go: one decoding, one encoding.

    Examples:
      vidrestore run in.mp4 --steps denoise,deblur,sr -o out.mp4
      vidrestore run in.mp4 --steps denoise,sr --set sr.height=1080
      vidrestore run videos/ -o out/ --config steps.toml
    """
    _check_settings(settings or (), steps)
    tables = with_settings(_read_toml(config), settings or (), HELP)
    in_file = tables.pop("steps", [])
    names = steps.split(",") if steps else in_file
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or not all(isinstance(part, dict) for part in tables.values()):
        place = f"--config {config}: " if config else ""
        raise OptionError(
            f'{place}expected steps = ["denoise", "sr"] and a table for each step; with --set STEP.NAME=VALUE'
        )
    if "" in names:
        raise OptionError(f"--steps {steps}: a name is missing beside a comma; expected A,B without spaces")
    if print_config:
        show(*toml({"steps": names} | tables).splitlines())
        return
    run_steps(run, lambda: _chain(names, tables, options))


def _check_settings(settings: Sequence[str], steps: str) -> None:
    """Raise OptionError for a setting that doesn't name its step."""
    for setting in settings:
        name = setting.partition("=")[0].strip().replace("-", "_")
        found = declared(RestoreOptions).get(name)
        if found and found.about:
            tasks = [task for task in steps.split(",") if task in (found.about.tasks or HELP)]
            step = (tasks or sorted(found.about.tasks) or ["denoise"])[0]
            raise OptionError(f"--set {setting}: name the step that it is for, as in --set {step}.{setting}")


def _read_toml(path: str | None) -> dict[str, Any]:
    """Return the tables of a file, none without one."""
    if path is None:
        return {}
    try:
        return parse_toml(read_limited(Path(path), LARGEST_TOML, follow=True).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"--config {path}: can't be read as TOML ({reason})") from error


def _chain(names: list[str], tables: Mapping[str, dict[str, Any]], options: RestoreOptions) -> list[Step]:
    """Return the steps with their options. Raises OptionError."""
    from vidrestore.jobs.request import Step, check_steps

    for name in {*names, *tables}:
        if name not in HELP:
            raise OptionError(f"no step named {name!r}; there are: {', '.join(HELP)}")
        if names and name not in names:
            raise OptionError(
                f"options of {name} were given, but it is none of the steps ({','.join(map(str, names))})"
            )
    chain = [Step(name, replace(options, **parsed(name, tables.get(name, {})))) for name in names]
    check_steps(chain)
    return chain


def parsed(step: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a step, values of TOML or texts, by the names of their fields. Raises
    OptionError.
    """
    declarations = declared(RestoreOptions).items()
    known = {name: each for name, each in declarations if each.about and step in each.about.tasks}
    values = {}
    for name, value in given.items():
        key = name.replace("-", "_")
        if key not in known:
            raise OptionError(f"{step} has no option {name!r}; it has: {known_names(key, sorted(known))}")
        parse = known[key].option.parser if known[key].option else None
        try:
            values[key] = parse(str(value)) if parse else converted(value, known[key].type)
        except ValueError as error:
            raise OptionError(f"{step}.{name}: {error}") from None
    return values
