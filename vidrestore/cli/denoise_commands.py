"""`vidrestore denoise`: the same film with less noise."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vidrestore.cli import parsing
from vidrestore.cli.batch import run_each
from vidrestore.cli.options import (
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
from vidrestore.cli.progress import listening
from vidrestore.engine.options import Precision, RestoreOptions, quality
from vidrestore.events import DAMAGED_SOURCE

if TYPE_CHECKING:
    from vidrestore.engine.estimate import Estimate

TASK = "denoise"


def denoise(
    sources: Annotated[list[str], typer.Argument(metavar="IN...", help="Films, folders, patterns, or - for a y4m pipe.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", show_default="IN.denoised.mp4", help="File, folder, or - for a y4m pipe.")
    ] = None,
    sigma: Annotated[
        Any, typer.Option(parser=parsing.noise, metavar="SIGMA|auto", help="Noise (standard deviation, 0-255 scale), or measure it.")
    ] = RestoreOptions.sigma,
    fast: Annotated[bool, typer.Option("--fast", help="Faster, a little less clean.")] = False,
    best: Annotated[bool, typer.Option("--best", help="Cleaner, slower.")] = False,
    match: Annotated[
        bool, typer.Option("--match/--no-match", help="Follow motion, or compare the same place in every frame.")
    ] = RestoreOptions.match,
    model: Model = RestoreOptions.model,
    strength: Annotated[float, typer.Option(help="Mix: 1 is the restored film, 0 the source.")] = RestoreOptions.strength,
    scene_detect: Annotated[bool, typer.Option("--scene-detect/--no-scene-detect", help="Look for cuts.")] = RestoreOptions.scene_detect,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = RestoreOptions.device,
    precision: Annotated[Precision, typer.Option(help="Number format of the model.")] = RestoreOptions.precision,
    threads: Threads = RestoreOptions.threads,
    start: Annotated[
        Fraction | None,
        typer.Option(
            parser=parsing.moment,
            metavar="TIME",
            help="Only from here: seconds or H:MM:SS.mmm after the first frame. Clips begin anew there, so that the first frames differ a "
            "little from the whole film's.",
        ),
    ] = RestoreOptions.start,
    duration: Annotated[
        Fraction | None, typer.Option(parser=parsing.seconds, metavar="TIME", help="Only so much of it; sound and the rest are cut alike.")
    ] = RestoreOptions.duration,
    deinterlace: Annotated[
        bool, typer.Option("--deinterlace", help="Make interlaced frames progressive, one for one.")
    ] = RestoreOptions.deinterlace,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse films that carry what encoding leaves out: captions, HDR10+, Dolby Vision, ...")
    ] = RestoreOptions.strict,
    drop: Annotated[list[str] | None, typer.Option(metavar="KINDS", help="Don't copy these, e.g. audio,subtitles.")] = None,
    encoder: EncoderName = None,
    crf: Crf = None,
    preset: Preset = None,
    encoder_option: Settings = None,
    lossless: Lossless = False,
    cfr: Cfr = RestoreOptions.cfr,
    overwrite: Overwrite = RestoreOptions.overwrite,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Leave out inputs whose output exists.")
    ] = RestoreOptions.skip_existing,
    preview: Annotated[
        Fraction | None,
        typer.Option(
            parser=parsing.seconds, metavar="TIME", help="Only so much, e.g. 5s, before | after, from --start or from a third on."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it would cost.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove noise from films; everything else stays as it is."""
    from vidrestore.engine.batch import Batch
    from vidrestore.engine.naming import PREVIEW

    if preview is not None and dry_run:
        raise typer.BadParameter("--preview writes a file and --dry-run none; leave one out")
    if preview is not None and duration is not None:
        raise typer.BadParameter("--preview is a duration of its own; leave --duration out")
    one_use_of_stdout(json, output)
    options = RestoreOptions(
        sigma=sigma,
        model=model,
        quality=quality(fast, best),
        match=match,
        strength=strength,
        device=device,
        precision=precision,
        threads=threads,
        scene_detect=scene_detect,
        drop=frozenset(kind for kinds in drop or () for kind in kinds.split(",")),
        cfr=cfr,
        start=start,
        duration=duration,
        deinterlace=deinterlace,
        strict=strict,
        encoder=encoder_options(encoder, crf, preset, encoder_option, lossless),
        overwrite=overwrite,
        skip_existing=skip_existing,
    )
    batch = Batch(sources, output, TASK, options, suffix=PREVIEW if preview else None)

    def work(source: str) -> int:
        if dry_run:
            found = batch.estimate(source, on_event)
            if not json:
                print("\n".join(estimate_lines(found)))
            return DAMAGED_SOURCE if found.damage else 0
        summary = batch.restore(source, on_event) if preview is None else batch.preview(source, preview, on_event)
        return summary.exit_code

    with listening(json, quiet) as on_event:
        code = run_each(batch.sources, work, on_event)
    raise typer.Exit(code)


def estimate_lines(found: Estimate) -> Iterator[str]:
    """What a dry run says to a person."""
    plan, timeline = found.plan, found.plan.timeline
    settings = " ".join(f"{key}={value}" for key, value in plan.encoder.options.items())
    yield f"{plan.source.path} -> {plan.output}"
    yield f"  {found.frames} frames, {len(timeline.scenes)} scenes, {len(timeline.clips)} clips, {len(plan.copy)} other streams copied"
    yield f"  encoder {plan.encoder.encoder} {plan.encoder.pix_fmt} {settings}"
    for scene in timeline.scenes:
        yield f"  frames {scene.first:>6} to {scene.stop - 1:>6}  sigma " + " ".join(f"{sigma:.2f}" for sigma in scene.sigma)
    yield f"  about {found.seconds:.0f} s of work and {found.size / 1e6:.1f} MB of video"
    if found.damage:
        yield f"  {found.damage}"
