"""`vidrestore train`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vidrestore.training.config import RunConfig
    from vidrestore.training.loop import Began, Interrupted, Progress


def train(
    config: Annotated[Path, typer.Option("--config", help="TOML file that describes the run; see examples/train.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for weights and checkpoints.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the output folder, if there is one.")] = False,
    init: Annotated[str | None, typer.Option("--init", help="Start from these weights: a name, or a .safetensors file.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto (a GPU if there is one), cpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option("--threads", min=0, help="CPU threads; 0: all.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="In place of what CONFIG says: --set training.steps=1000.")
    ] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the whole configuration, defaults included.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="One step of everything, in a folder that is gone afterwards.")] = False,
) -> None:
    """Train a network as CONFIG describes, on a CPU or GPU, and write its weights. Ctrl-C saves a checkpoint for --resume."""
    import torch

    from vidrestore.training.config import read_config, written_config
    from vidrestore.training.loop import train as run
    from vidrestore.training.networks import complete

    if threads:
        torch.set_num_threads(threads)
    recipe = read_config(config, settings or ())
    if print_config:
        typer.echo(written_config(complete(recipe)), nl=False)
    elif dry_run:
        _rehearse(recipe, init, device)
    else:
        typer.echo(str(run(recipe, output, resume=resume, init=init, device=device, listen=_tell)))


def _rehearse(recipe: RunConfig, init: str | None, device: str) -> None:
    from vidrestore.training.rehearsal import memory_used, rehearse

    for done in rehearse(recipe, init=init, device=device):
        typer.echo(f"{done.seconds:7.2f} s  {done.what}")
    typer.echo(f"at most {memory_used()}; nothing was kept")


def _tell(event: Began | Progress | Interrupted) -> None:
    print(_describe(event), file=sys.stderr, flush=True)


def _describe(event: Began | Progress | Interrupted) -> str:
    from vidrestore.training.loop import Began, Interrupted

    if isinstance(event, Began):
        origin = f"from {event.checkpoint}" if event.checkpoint else "anew: no checkpoint yet"
        return f"step {event.step} of {event.steps}, on {event.device}, {origin}"
    if isinstance(event, Interrupted):
        return f"interrupted: step {event.step} is in {event.checkpoint}; the same command with --resume goes on"
    figures = "  ".join(_figure(name, psnr, event.before.get(name)) for name, psnr in event.psnr.items())
    return f"step {event.step}  {event.seconds:.0f} s  loss {event.loss:.4f}  held out  {figures}"


def _figure(name: float | str, psnr: float, before: float | None) -> str:
    what = name if isinstance(name, str) else f"sigma {name:g}"
    return f"{what}: {psnr:.2f} dB" + ("" if before is None else f" (given {before:.2f})")
