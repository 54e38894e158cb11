"""`vidrestore train`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vidrestore.training.loop import Progress


def train(
    config: Annotated[Path, typer.Option("--config", help="TOML file that describes the run; see examples/train.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for weights and checkpoints.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the output folder, if there is one.")] = False,
    init: Annotated[Path | None, typer.Option("--init", help="Start from the weights of this .safetensors file.")] = None,
    threads: Annotated[int, typer.Option("--threads", min=0, help="CPU threads; 0: all.")] = 0,
) -> None:
    """Train a network as CONFIG describes, on a CPU or GPU, and write its weights."""
    import torch

    from vidrestore.training.config import read_config
    from vidrestore.training.loop import train as run

    if threads:
        torch.set_num_threads(threads)
    path = run(read_config(config), output, resume=resume, init=init, listen=_tell)
    typer.echo(str(path))


def _tell(progress: Progress) -> None:
    figures = "  ".join(f"sigma {sigma:g}: {psnr:.2f} dB" for sigma, psnr in progress.psnr.items())
    print(f"step {progress.step}  {progress.seconds:.0f} s  loss {progress.loss:.4f}  held out  {figures}", file=sys.stderr, flush=True)
