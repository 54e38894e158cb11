"""`vidrestore eval`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vidrestore.cli.command_options import Device, Threads
from vidrestore.cli.progress import display
from vidrestore.cli.terminal import show, show_columns
from vidrestore.errors import MediaError, VidRestoreError
from vidrestore.settings.options import Overwrite

if TYPE_CHECKING:
    from vidrestore.pages.results import Result


def evaluate(
    videos: Annotated[
        list[Path] | None,
        typer.Argument(metavar="VIDEO...", help="Videos for --reference."),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="bundled: all that ships, on held-out clips; or a paper's table as in --list.",
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Clean video to compare with: PSNR, SSIM, and VMAF if FFmpeg has it.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Training configuration that names the held-out clips."
        ),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SET=]NAME|FILE",
            help="Weights, for one test set or all; repeatable.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the test data.")
    ] = None,
    systems: Annotated[
        str, typer.Option(metavar="A,B", help="Rows of the table; default: all.")
    ] = "",
    sets: Annotated[
        str, typer.Option(metavar="A,B", help="Test sets of the table; default: all.")
    ] = "",
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write everything as JSON.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table as CSV.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write one page with table, pictures and curves."
        ),
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    threads: Threads = 0,
    list_suites: Annotated[
        bool, typer.Option("--list", help="List the suites, and exit.", metavar="")
    ] = False,
) -> None:
    """Measure weights by a fixed protocol, beside what was published.

    Examples:
      vidrestore eval --suite bundled
      vidrestore eval in.denoised.mp4 --reference clean.mp4 --html page.html
      vidrestore eval --suite vsr-table3 --data DIR --csv table.csv
    """
    import torch

    from vidrestore.lab.evaluation import evaluate, suites

    if list_suites:
        show_columns(list(suites().items()))
        return
    if threads:
        torch.set_num_threads(threads)
    files = {
        kind: path
        for kind, path in (("json", json), ("csv", csv), ("html", html))
        if path is not None
    }
    # an output may not be a file that is read
    read: list[str | Path] = [*(videos or ()), *filter(None, (reference, config))]
    read += [weight.rpartition("=")[2] for weight in weights or ()]
    for kind, path in files.items():
        _check_place(path, kind, read, overwrite)
    with display() as progress:
        result = evaluate(
            suite,
            config=config,
            data=data,
            weights=weights or (),
            systems=tuple(filter(None, systems.split(","))),
            sets=tuple(filter(None, sets.split(","))),
            videos=videos or (),
            reference=reference,
            device=device,
            on_progress=lambda line: progress.draw(*line.partition(": ")[::2]),
        )
    _print(result)
    _write(result, files)
    # whoever compares runs sees by the exit code that something differs
    if result.differing:
        raise VidRestoreError(
            f"{len(result.differing)} of {len(result.rows)} metrics differ from the {result.against}'s"
        )


def _check_place(
    path: Path, kind: str, read: Iterable[str | Path], overwrite: bool
) -> None:
    """Refuse a bad output file before an hour of measuring, and a video as in `--json a.mp4 b.mp4`."""
    from vidrestore.files.atomic import check_output

    if path.suffix.lower() != f".{kind}":
        raise VidRestoreError(
            f"{path}: --{kind} writes a file, whose name must end with .{kind}; for example --{kind} "
            f"table.{kind}"
        )
    check_output(path, read, overwrite=overwrite, option=kind)


def _write(result: Result, files: Mapping[str, Path]) -> None:
    """Write a result into a file of each kind. Raises VidRestoreError with all files that can't be written.

    Names of videos that are not text are written as the terminal shows them.
    """
    from vidrestore.files.atomic import write_whole
    from vidrestore.pages.page import page

    texts: dict[str, Callable[[], str]] = {"json": result.to_json, "csv": result.to_csv}
    texts["html"] = lambda: page(result)
    # one that can't be written doesn't lose the others
    failed = []
    for kind, path in files.items():
        try:
            write_whole(path, texts[kind]().encode("utf-8", "backslashreplace"))
        except MediaError as error:
            failed.append(str(error))
    if failed:
        raise VidRestoreError("; ".join(failed))


def _print(result: Result) -> None:
    """Print a table, with the protocol and notes below."""
    show(result.title + (f" ({result.source})" if result.source else ""))
    show_columns(_cells(result))
    for line in (*result.protocol, *result.notes):
        show(f"- {line}")


def _cells(result: Result) -> list[list[str]]:
    """Return headings, then a row of texts each, without columns that are empty in all rows."""
    pairs = [part for metric in result.metrics for part in (metric, result.against)]
    rows = [["system", "weights", "on", *pairs, "verdict"]]
    for row in result.rows:
        values = []
        for metric in result.metrics:
            values += [
                _number(metric, part.get(metric))
                for part in (row.measured, row.reference)
            ]
        rows.append([row.system, row.weights, row.on, *values, row.verdict])
    # a column stays if any row has a text in it
    used = [any(column) for column in zip(*rows[1:], strict=True)] or [False] * len(
        rows[0]
    )
    for index, heading in enumerate(rows[0][1:]):
        # a value needs the metric's name
        used[index] |= used[index + 1] and heading == result.against
    return [list(compress(row, used)) for row in rows]


def _number(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if metric.partition("_")[0] == "ssim" else f"{value:.2f}"
