"""What all commands that restore films share: their options, declared once, and the run itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import MISSING, dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from vidrestore.cli import parsing
from vidrestore.cli.interrupts import stops_cleanly
from vidrestore.cli.progress import listening
from vidrestore.cli.several_inputs import run_each
from vidrestore.cli.shared_options import (
    Cfr,
    Crf,
    EncoderName,
    Json,
    Lossless,
    Model,
    Overwrite,
    Preset,
    Quiet,
    Settings,
    Threads,
    encoder_options,
    one_use_of_stdout,
)
from vidrestore.errors import VidRestoreError
from vidrestore.events import DAMAGED_SOURCE, Failed, Warned
from vidrestore.options import DROPPABLE, Precision, RestoreOptions

if TYPE_CHECKING:
    from vidrestore.events import Listener
    from vidrestore.jobs.batch import Batch
    from vidrestore.jobs.estimate import Estimate

SCALE = "Several machines or devices"  # the panel of these options in the help

Tile = Annotated[
    Any,
    typer.Option(
        parser=parsing.tile,
        metavar="auto|N",
        help="Largest side of a tile, from 64, a multiple of 8; auto: whole frames as long as memory allows.",
    ),
]
TileOverlap = Annotated[int | None, typer.Option("--tile-overlap", metavar="N", show_default="32", help="Pixels that tiles share.")]
Steady = Annotated[bool, typer.Option("--steady", help="Less flicker: mix each frame with its neighbours where they agree.")]


@dataclass(frozen=True)
class Shared:
    """The options of every command that restores films."""

    sources: Annotated[
        list[str] | None, typer.Argument(metavar="IN...", show_default=False, help="Films, folders, patterns, or - for a y4m pipe.")
    ] = None
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="OUT", show_default="IN.TASK.mp4", help="File, folder, or - for a y4m pipe."),
    ] = None
    recursive: Annotated[bool, typer.Option("--recursive", help="Folders with all that is below them; -o DIR gets the same folders.")] = (
        False
    )
    from_list: Annotated[
        str | None, typer.Option("--from-list", metavar="FILE", help="Take inputs from a file, one in each line; - is stdin.")
    ] = None
    model: Model = RestoreOptions.model
    strength: Annotated[float, typer.Option(help="Mix: 1 is the restored film, 0 the source.")] = RestoreOptions.strength
    scene_detect: Annotated[bool, typer.Option("--scene-detect/--no-scene-detect", help="Look for cuts.")] = RestoreOptions.scene_detect
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1; several, each with a process: cuda:0,1.")] = RestoreOptions.device
    precision: Annotated[Precision, typer.Option(help="Number format of the model.")] = RestoreOptions.precision
    threads: Threads = RestoreOptions.threads
    start: Annotated[
        Fraction | None,
        typer.Option(
            parser=parsing.moment,
            metavar="TIME",
            help="Only from here: seconds or H:MM:SS.mmm after the first frame. Clips begin anew there, so that the first frames differ a "
            "little from the whole film's.",
        ),
    ] = RestoreOptions.start
    duration: Annotated[
        Fraction | None, typer.Option(parser=parsing.seconds, metavar="TIME", help="Only so much of it; sound and the rest are cut alike.")
    ] = RestoreOptions.duration
    deinterlace: Annotated[bool, typer.Option("--deinterlace", help="Make interlaced frames progressive, one for one.")] = (
        RestoreOptions.deinterlace
    )
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse films that carry what encoding leaves out: captions, HDR10+, Dolby Vision, ...")
    ] = RestoreOptions.strict
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="KINDS", help=f"Don't copy these: {', '.join(DROPPABLE)}; e.g. audio,subtitles."),
    ] = None
    encoder: EncoderName = None
    crf: Crf = None
    preset: Preset = None
    encoder_option: Settings = None
    lossless: Lossless = False
    cfr: Cfr = RestoreOptions.cfr
    overwrite: Overwrite = RestoreOptions.overwrite
    skip_existing: Annotated[bool, typer.Option("--skip-existing", help="Leave out inputs whose output exists.")] = (
        RestoreOptions.skip_existing
    )
    restart: Annotated[bool, typer.Option("--restart", help="Discard what an interrupted run left, and begin anew.")] = (
        RestoreOptions.restart
    )
    work_dir: Annotated[
        str | None, typer.Option("--work-dir", metavar="DIR", show_default="beside OUT", help="Folder for unfinished work.")
    ] = RestoreOptions.work_dir
    segment_frames: Annotated[
        int | None,
        typer.Option(
            "--segment-frames", metavar="N", show_default="96 to 240", help="Frames after which work is safe; fewer make larger files."
        ),
    ] = RestoreOptions.segment_frames
    shard: Annotated[
        Any,
        typer.Option(
            "--shard",
            parser=parsing.shard,
            metavar="I/N",
            show_default=False,
            help="One of N processes that share the folder of OUT and do the same work together; start all of them.",
            rich_help_panel=SCALE,
        ),
    ] = None
    engine: Annotated[
        Literal["local", "ray"], typer.Option("--engine", help="ray: on a Ray cluster with shared storage.", rich_help_panel=SCALE)
    ] = "local"
    ray_address: Annotated[
        str | None,
        typer.Option(
            "--ray-address", metavar="ADDRESS", show_default="RAY_ADDRESS, else this machine", help="The cluster.", rich_help_panel=SCALE
        ),
    ] = None
    ray_cpus: Annotated[
        int | None,
        typer.Option(
            "--ray-cpus", metavar="N", show_default="4", help="CPUs of each worker, in a cluster without GPUs.", rich_help_panel=SCALE
        ),
    ] = None
    preview: Annotated[
        Fraction | None,
        typer.Option(
            parser=parsing.seconds, metavar="TIME", help="Only so much, e.g. 5s, before | after, from --start or from a third on."
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it would cost.")] = False
    json: Json = False
    quiet: Quiet = False

    def restore_options(self, **own: Any) -> RestoreOptions:
        """What the library is asked for; `own` are the options that only the command has."""
        return RestoreOptions(
            model=self.model,
            strength=self.strength,
            device=self.device,
            precision=self.precision,
            threads=self.threads,
            scene_detect=self.scene_detect,
            drop=frozenset(kind for kinds in self.drop or () for kind in kinds.split(",")),
            cfr=self.cfr,
            start=self.start,
            duration=self.duration,
            deinterlace=self.deinterlace,
            strict=self.strict,
            encoder=encoder_options(self.encoder, self.crf, self.preset, self.encoder_option, self.lossless),
            overwrite=self.overwrite,
            skip_existing=self.skip_existing,
            restart=self.restart,
            work_dir=self.work_dir,
            segment_frames=self.segment_frames,
            **own,
        )


def with_shared(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `Shared` besides its own; it takes them as its first argument, in one object.

    Inputs and output come first in the help, then the command's own options.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    hints = get_type_hints(Shared, include_extras=True)
    names = [field.name for field in fields(Shared)]
    shared = [_parameter(field.name, hints[field.name], field.default) for field in fields(Shared)]
    parameters = [*shared[:2], *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *shared[2:]]

    def run(**values: Any) -> None:
        command(Shared(**{name: values.pop(name) for name in names}), **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    missing = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=missing, annotation=annotation)


def run_task(task: str, shared: Shared, **own: Any) -> None:
    """Restore all inputs, or preview or plan them, and leave with the exit code; `own` as in `Shared.restore_options`."""
    if shared.preview is not None and shared.dry_run:
        raise typer.BadParameter("--preview writes a file and --dry-run none; leave one out")
    if shared.preview is not None and shared.duration is not None:
        raise typer.BadParameter("--preview is a duration of its own; leave --duration out")
    if sum((shared.shard is not None, shared.engine == "ray", "," in shared.device)) > 1:
        raise typer.BadParameter("--shard, --engine ray and several devices are three ways to share the work; choose one")
    if shared.engine != "ray" and (shared.ray_address is not None or shared.ray_cpus is not None):
        raise typer.BadParameter("--ray-address and --ray-cpus are for --engine ray; add that, or leave them out")
    if not shared.sources and not shared.from_list:
        raise typer.BadParameter("no input was given; expected films, folders or patterns, or --from-list FILE")
    one_use_of_stdout(shared.json, shared.output)
    with stops_cleanly(), listening(shared.json, shared.quiet) as on_event:
        code = _run_all(task, shared, own, on_event)
    raise typer.Exit(code)


def _run_all(task: str, shared: Shared, own: dict[str, Any], on_event: Listener) -> int:
    """Restore all inputs; the exit code. An error about them as a whole is told of the only one, or of "" where there are several."""
    from vidrestore.jobs.naming import listed_sources

    given = shared.sources or []
    try:
        sources = [*given, *(listed_sources(shared.from_list) if shared.from_list else ())]
        batch = _batch(sources, task, shared, shared.restore_options(**own))
    except VidRestoreError as error:
        only = given[0] if len(given) == 1 and not shared.from_list else ""
        on_event(Failed(only, str(error), kind=type(error).__name__, exit_code=error.exit_code))
        return error.exit_code
    for path, origin in batch.left_out.items():
        on_event(Warned(path, f"left out: named like what is made of {origin}, which is restored, too; to restore it, name it alone"))
    with closing(batch):
        return run_each(batch.sources, lambda source: _work(batch, source, shared, on_event), on_event)


def _batch(sources: list[str], task: str, shared: Shared, options: RestoreOptions) -> Batch:
    """Who restores."""
    from vidrestore.jobs.batch import Batch
    from vidrestore.jobs.naming import PREVIEW

    trial = shared.preview is not None or shared.dry_run
    found = {"recursive": shared.recursive}
    if shared.shard and not trial:
        from vidrestore.scale.shards import Shard
        from vidrestore.scale.shared_batch import ShardedBatch

        return ShardedBatch(sources, shared.output, task, options, Shard(*shared.shard), **found)
    if shared.engine == "ray" and not trial:
        from vidrestore.scale.ray_actors import RayActors
        from vidrestore.scale.shared_batch import WorkersBatch

        actors = RayActors(shared.ray_address, cpus=shared.ray_cpus)
        return WorkersBatch(sources, shared.output, task, options, actors, **found)
    if "," in shared.device:
        from vidrestore.scale.processes import Processes, devices_of

        devices = devices_of(shared.device)
        options = replace(options, device=devices[0])
        if not trial:
            from vidrestore.scale.shared_batch import WorkersBatch

            return WorkersBatch(sources, shared.output, task, options, Processes(devices), **found)
    suffix = PREVIEW if shared.preview else None
    return Batch(sources, shared.output, task, options, suffix=suffix, dry_run=shared.dry_run, **found)


def _work(batch: Batch, source: str, shared: Shared, on_event: Listener) -> int:
    """One input; its exit code."""
    if shared.dry_run:
        from vidrestore.jobs.job import Summary

        found = batch.estimate(source, on_event)
        if isinstance(found, Summary):
            return found.exit_code
        if not shared.json:
            print("\n".join(estimate_lines(found)))
        return DAMAGED_SOURCE if found.damage else 0
    summary = batch.restore(source, on_event) if shared.preview is None else batch.preview(source, shared.preview, on_event)
    return summary.exit_code


def estimate_lines(found: Estimate) -> Iterator[str]:
    """What a dry run says to a person."""
    plan, timeline = found.plan, found.plan.timeline
    settings = " ".join(f"{key}={value}" for key, value in plan.encoder.options.items())
    yield f"{plan.source.path} -> {plan.output}"
    yield f"  {found.frames} frames, {len(timeline.scenes)} scenes, {len(timeline.clips)} clips, {len(plan.copy)} other streams copied"
    yield f"  encoder {plan.encoder.encoder} {plan.encoder.pix_fmt} {settings}"
    for scene in timeline.scenes:
        yield f"  frames {scene.first:>6} to {scene.stop - 1:>6}  noise: {scene.noise}"
    yield f"  about {found.seconds:.0f} s of work and {found.size / 1e6:.1f} MB of video"
    if found.damage:
        yield f"  {found.damage}"
