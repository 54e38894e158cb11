"""`vidrestore train`; progress is a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vidrestore.cli.command_options import Device, Threads
from vidrestore.cli.progress import Bar, PlainLines, display
from vidrestore.cli.terminal import as_options, print_line, show
from vidrestore.event_log import length_of_time
from vidrestore.lab.training_events import (
    Began,
    Event,
    Interrupted,
    Listener,
    Noticed,
    Reached,
    Stepped,
    Validated,
)

if TYPE_CHECKING:
    from vidrestore.lab.run_config import RunConfig
    from vidrestore.lab.training.data.sources import Reading


MOST_WORKERS = 8  # unless a number is given


def _finite(gigabytes: float | None) -> float | None:
    if gigabytes is not None and not math.isfinite(gigabytes):
        raise typer.BadParameter(f"must be a number of GB, got {gigabytes}")
    return gigabytes


def train(
    config: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="TOML file that describes the run; see examples/train."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder for weights and checkpoints."
        ),
    ] = Path("runs"),
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue from the checkpoint in the output folder, if there is one.",
        ),
    ] = False,
    init: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Start from these weights; repeatable, for other parts.",
        ),
    ] = None,
    stop_after: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="End by then with a checkpoint, to --resume."
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = 0,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of your videos and photos, or of FILE's dataset.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a value of FILE: --set training.steps=1000.",
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config", help="Print the whole configuration, defaults included."
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            metavar="N",
            show_default="a GPU's share of the cores; on a CPU none",
            help="Processes that prepare batches.",
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for decoded clips and photos; by default in the user's cache.",
        ),
    ] = None,
    cache_gb: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="GB",
            show_default="20",
            help="Maximum size of that folder; 0: decode in memory.",
            callback=_finite,
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Skip damaged clips and photos instead of failing."
        ),
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard",
            help="Write logs for TensorBoard, too, an optional package.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Run one step of everything in a temporary folder."
        ),
    ] = False,
) -> None:
    """Train a network as a file describes, and write its weights.

    Ctrl-C saves a checkpoint, from which --resume continues.

    Examples:
      vidrestore train --config run.toml -o runs/first --data my/videos
      vidrestore train --config run.toml -o runs/first --resume
      vidrestore train --config run.toml --dry-run --set training.batch=8
    """
    # something is on the screen before torch is loaded
    with display() as progress:
        on_event = lines() if isinstance(progress, PlainLines) else steps_of(progress)
        if is_first() and dry_run:
            print_line(TRAINING_STAGES["load"], sys.stderr)
        elif is_first() and not print_config:
            on_event(Reached("load"))  # torch, which takes seconds
        import torch

        from vidrestore.lab.run_config import config_toml, read_config
        from vidrestore.lab.training.loop import train as run
        from vidrestore.lab.training.networks import with_full_model

        if threads:
            torch.set_num_threads(threads)
        # print the recipe, rehearse it, or run it
        recipe = read_config(config, settings or (), data)
        if print_config:
            show(*config_toml(with_full_model(recipe)).splitlines())
            return
        count = usual_workers(device) if workers is None else workers
        reading = _reading(cache, cache_gb, skip_bad, count)
        if dry_run:
            _rehearse(recipe, init, device, reading)
            return
        path = run(
            recipe,
            output,
            resume=resume,
            init=init or (),
            device=device,
            tensorboard=tensorboard,
            reading=reading,
            stop_after=math.inf if stop_after is None else stop_after,
            on_event=on_event,
        )
    if is_first():
        show(str(path))


def _reading(
    cache: Path | None, gigabytes: float | None, skip_bad: bool, workers: int
) -> Reading:
    from vidrestore.files.user_folders import user_folder
    from vidrestore.lab.training.data.decoded import DISK_CACHE_BYTES
    from vidrestore.lab.training.data.sources import Reading

    limit = DISK_CACHE_BYTES if gigabytes is None else int(1e9 * gigabytes)
    return Reading(
        (cache or user_folder("cache")) if limit else None, limit, skip_bad, workers
    )


def usual_workers(device: str) -> int:
    """Return the processes that prepare batches unless a number is given: beside a GPU this process's share
    of the cores but one, at most MOST_WORKERS; none on a CPU, which they would take from the training.
    """
    from vidrestore.restorers.devices import torch_device
    from vidrestore.working import available_cores

    if torch_device(device).type != "cuda":
        return 0
    # processes of one machine share its cores
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(MOST_WORKERS, available_cores() // processes - 1))


def _rehearse(
    recipe: RunConfig, init: list[str] | None, device: str, reading: Reading
) -> None:
    from vidrestore.lab.training.dry_run import memory_used, rehearse

    reading = replace(
        reading, notice=lambda text: print_line(f"vidrestore: {text}", sys.stderr)
    )
    for description, seconds in rehearse(
        recipe, init=init or (), device=device, reading=reading
    ):
        show(f"{seconds:7.2f} s  {description}")
    left = f" but decoded videos in {reading.cache}" if reading.cache else ""
    show(f"at most {memory_used()}; nothing was kept{left}")


TRAINING_STAGES = {
    "load": "loading",
    "read": "reading data",
    "batches": "making the first batches",
    "train": "training",
    "validate": "validating",
    "save": "saving",
}


def is_first() -> bool:
    """Return True if this is the process that prints, of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def lines() -> Listener:
    """Return a listener that prints a line for each event that has one, and for each stage the first time."""
    stages: set[str] = set()

    def emit(event: Event) -> None:
        if isinstance(event, Reached):
            if event.stage not in stages:
                print_line(TRAINING_STAGES[event.stage], sys.stderr)
            stages.add(event.stage)
        elif line := describe(event):
            print_line(line, sys.stderr)

    return emit


def steps_of(bar: Bar) -> Listener:
    """Return a listener that draws a bar over the steps, with stage, loss, rate and remaining time;
    validations are lines above it.
    """
    # what the bar shows, changed by each kind of event
    stage, text, done, total = "", "", 0, None

    def emit(event: Event) -> None:
        nonlocal stage, text, done, total
        match event:
            case Began():
                done, total, text = (
                    event.step,
                    event.steps,
                    f"{event.step}/{event.steps}",
                )
            case Reached():
                stage = TRAINING_STAGES[event.stage]
            case Stepped():
                done = event.step
                left = event.seconds / event.step * (event.steps - event.step)
                text = (
                    f"{done}/{total}, loss {event.loss:.4f}, rate {event.learning_rate:.2g}, "
                    f"{length_of_time(left)} left"
                )
        if line := describe(event):
            bar.show(line)
        bar.draw(stage, text, done, total)

    return emit


def describe(event: Event) -> str | None:
    """Return one line about an event; None for a step."""
    match event:
        case Began():
            origin = event.checkpoint or "the beginning: no checkpoint yet"
            return (
                f"step {event.step} of {event.steps}, on {event.device}, from {origin}"
            )
        case Validated():
            where = "held out" if event.held_out else "training data"
            line = f"step {event.step}  {event.seconds:.0f} s  loss {event.loss:.4f}  {where}"
            for name, psnr in event.psnr.items():
                label = name if isinstance(name, str) else f"sigma {name:g}"
                before = (
                    f" (given {event.before[name]:.2f})" if name in event.before else ""
                )
                line += f"  {label}: {psnr:.2f} dB{before}"
            return line + ("  best so far" if event.best else "")
        case Interrupted():
            return (
                f"stopped: step {event.step} is in {event.checkpoint}; the same command with "
                "--resume continues"
            )
        case Noticed():
            return as_options(event.message)
        case Stepped() | Reached():
            return None
