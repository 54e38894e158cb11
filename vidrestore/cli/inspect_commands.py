"""`vidrestore inspect`, `suggest`, `devices` and `verify`: look at videos, devices and sidecars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from vidrestore.cli.command_options import Device, Json, Quiet
from vidrestore.cli.inputs import run_each
from vidrestore.cli.progress import listening
from vidrestore.cli.terminal import print_line, show, show_json
from vidrestore.errors import OptionError
from vidrestore.events import DAMAGED_SOURCE, Progressed, ignore_event
from vidrestore.media.formats.source import Source
from vidrestore.settings.options import Overwrite

if TYPE_CHECKING:
    from vidrestore.jobs.inspection import Inspection
    from vidrestore.jobs.suggestion import Suggestion
    from vidrestore.media.reading.probe import StreamInfo
    from vidrestore.pixels.frames import ColourTags, VideoInfo

# Names of the most common code points of ITU-T H.273; others are shown as numbers.
MATRICES = {
    0: "RGB",
    1: "BT.709",
    2: "untagged",
    5: "BT.601 (625)",
    6: "BT.601 (525)",
    9: "BT.2020",
}
TRANSFERS = {
    1: "BT.709",
    2: "untagged",
    6: "BT.601",
    8: "linear",
    13: "sRGB",
    14: "BT.2020",
    15: "BT.2020",
    16: "PQ",
    18: "HLG",
}
RANGES = {0: "untagged", 1: "limited", 2: "full"}


def inspect(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Video, or - for a y4m pipe.")
    ],
    json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON object.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Show a video's streams, colour, fields, noise per plane, and cuts.

    Examples:
      vidrestore inspect in.mp4
      vidrestore inspect in.mp4 --json
      ffmpeg -i in.mp4 -f yuv4mpegpipe - | vidrestore inspect -
    """
    from vidrestore.jobs.inspection import inspect

    with listening(json, quiet) as on_event:
        inspection = inspect(source, ignore_event if json else on_event)
    if json:
        show_json(inspection.to_dict())
    else:
        show(*lines(inspection))
    raise typer.Exit(DAMAGED_SOURCE if inspection.damage else 0)


def suggest(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="Video, photo, or folder: each photograph in it."
        ),
    ],
    sheet: Annotated[
        str | None,
        typer.Option(
            metavar="F.html|F.png",
            help="Restore a few frames in variants, side by side.",
        ),
    ] = None,
    photos: Annotated[
        bool, typer.Option("--photos", help="Pictures are photos, not frames.")
    ] = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for noise, interlacing, haze, rain, snow and blur at a few places, and print commands to try.

    "maybe" and "unknown" are for your eyes: look at a --sheet, or a --preview.

    Examples:
      vidrestore suggest in.mp4
      vidrestore suggest in.mp4 --sheet variants.html
    """
    from vidrestore.jobs.naming import expand_sources
    from vidrestore.jobs.suggestion import suggest
    from vidrestore.pages.variant_sheet import check_sheet, write_sheet
    from vidrestore.settings.options import RestoreOptions

    # before minutes of looking
    if sheet is not None:
        check_sheet(sheet, source, overwrite=overwrite)
    options = RestoreOptions(device=device)
    files = expand_sources([Source.of(source)], photos=photos)
    if sheet is not None and len(files) > 1:
        raise OptionError(
            f"{source}: a sheet shows one of its {len(files)} files; name that one"
        )
    names = list[str]()
    with listening(json, quiet) as on_event:
        see = ignore_event if json else on_event

        def look(name: str) -> int:
            suggestion, places = suggest(name, options, see)
            if sheet is not None:
                see(Progressed(name, 0, stage="sheet"))
                names.extend(write_sheet(sheet, suggestion, places, options))
            if json:
                show_json(suggestion.to_dict())
            else:
                show(*suggestion_lines(suggestion))
            return 0

        # each file of a folder by itself, past those that can't be read
        code = run_each([*map(str, files)], look, on_event)
    if code:
        raise typer.Exit(code)
    if sheet is not None and not (json or quiet):
        order = "" if sheet.lower().endswith(".html") else ", from left to right"
        print_line(f"in {sheet}{order}: {', '.join(names)}")


def suggestion_lines(suggestion: Suggestion) -> Iterator[str]:
    """Yield the lines about a suggestion for a reader."""
    yield f"{suggestion.info.path}:"
    for finding in suggestion.findings:
        yield f"  {finding.name:<13} {finding.verdict:<8} {finding.reason}"
    yield "try:" if suggestion.commands else "nothing to try"
    for command in suggestion.commands:
        yield f"  {command.line}"
        yield f"      {command.reason}"


def devices() -> None:
    """List what --device can name here, with its memory; the star marks what auto takes."""
    from vidrestore.restorers.devices import available_devices, gpu_advice, torch_device

    default = torch_device("auto").type
    for name, description in available_devices():
        star = " *" if name in (default, f"{default}:0") else ""
        show(f"{name + star:<10} {description}")
    if advice := gpu_advice():
        show(advice)


def lines(inspection: Inspection) -> Iterator[str]:
    """Yield the lines of the report for a reader."""
    from vidrestore.media.formats.source import NUMBERED_PICTURES

    # the file and its streams
    info, video = inspection.info, inspection.info.video
    size = f", {info.size / 1e6:.1f} MB" if info.size else ""
    is_photo = info.container == NUMBERED_PICTURES and inspection.frames == 1
    pictures = "picture" if is_photo else "pictures"
    kind = (
        pictures
        if info.container == NUMBERED_PICTURES
        else info.container.split(",")[0]
    )
    yield f"{info.path}: {kind}{size}"
    for stream in info.streams:
        yield f"  stream {stream.index}  {_stream(stream)}" + (
            f"  {_picture(video)}" if stream.index == video.index else ""
        )
    if info.chapters:
        yield f"  chapters  {info.chapters}"
    # the video
    yield f"  colour    {_colour(video.colour)}"
    if inspection.scan:
        yield f"  scan      {inspection.scan}"
    if not is_photo:
        yield f"  frames    {inspection.frames} in {inspection.seconds:.3f} s, {_rate(inspection)}"
    yield "  noise     as denoise finds it (0-255)"
    for scene in inspection.scenes:
        part = "" if is_photo else f"frames {scene.first:>6} to {scene.stop - 1:>6}  "
        yield f"    {part}{scene.noise}"
    if inspection.damage:
        yield f"  damage    {inspection.damage}"


def _stream(stream: StreamInfo) -> str:
    kind = "cover" if stream.attached_picture else stream.kind
    language = stream.language if stream.language != "und" else None  # undetermined
    words = (
        kind,
        stream.codec,
        language,
        f'"{stream.title}"' if stream.title else None,
    )
    return " ".join(word for word in words if word)


def _picture(video: VideoInfo) -> str:
    depth = "float" if video.format.depth == 32 else f"{video.format.depth} bits"
    alpha = ", alpha" if video.format.alpha else ""
    parts = [f"{video.width}x{video.height}", f"{video.pix_fmt} ({depth}{alpha})"]
    parts += (
        [f"SAR {video.sample_aspect_ratio}"]
        if video.sample_aspect_ratio not in (None, 1)
        else []
    )
    parts += [f"rotated {video.rotation} degrees"] if video.rotation else []
    parts += ["interlaced"] if video.interlaced else []
    return ", ".join(parts)


def _colour(tags: ColourTags) -> str:
    parts = {"matrix": MATRICES, "transfer": TRANSFERS, "range": RANGES}
    codes = {name: getattr(tags, name) for name in parts}
    return ", ".join(
        f"{name} {parts[name].get(code, f'code {code}')}"
        for name, code in codes.items()
    )


def _rate(inspection: Inspection) -> str:
    from vidrestore.media.formats.source import NUMBERED_PICTURES

    if not inspection.seconds:
        return "rate unknown"
    if inspection.info.container == NUMBERED_PICTURES:
        return f"at {inspection.frames / inspection.seconds:g} fps unless --fps gives another rate"
    kind = "steady" if inspection.steady else "variable frame rate, on average"
    return f"{kind} {inspection.frames / inspection.seconds:.3f} fps"


def verify(
    records: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORD...",
            help="Sidecars, restored videos with one, lists of batches, or folders.",
        ),
    ],
) -> None:
    """Check that sources and results are whole and as their sidecars record; exit code 1 if one isn't.

    Examples:
      vidrestore denoise in.mp4 --sidecar
      vidrestore verify in.denoised.mp4
      vidrestore verify out/
    """
    from vidrestore.jobs.sidecar import verify

    checks = [check for record in records for check in verify(record)]
    for _, line in checks:
        show(line)
    raise typer.Exit(0 if all(same for same, _ in checks) else 1)
