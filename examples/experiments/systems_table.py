"""The systems of the DUST paper beside each other on clips that none has seen, as Tables IV, V and VIII have
them.

    examples/train_systems.sh RUNS table
    python examples/experiments/systems_table.py RUNS

RUNS holds what the recipes of examples/train/systems were trained to; what is not there is left out. Prints a
table in Markdown: learned parameters; CPU seconds of an epoch, taken as 350 steps (the groups of the largest
training set, side by side, in batches of 64), making the batches included; PSNR and SSIM by the paper's
protocol (`vidrestore.papers.sensed_patches`) at 160 lines; frames of 160 lines per second; the
steps of the training, the CPU minutes that they take at the pace of the epoch, and what the held-out PSNR
gained in the last sixth of them, a fifth more steps than before. All on one thread, in one process.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from vidrestore.evaluation.results import ClipMetrics, System
from vidrestore.papers import sensed_patches
from vidrestore.papers.set_files import FrameSequence
from vidrestore.papers.tables import Table, TableSet, system_of
from vidrestore.training.config import read_config
from vidrestore.training.data.sources import make_data
from vidrestore.training.loop import Run
from vidrestore.weights import Model, load_model

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "train" / "systems"
DATA = ROOT.parent / "shared" / "data"
SYSTEMS = {
    "sista": "SISTA (iterative)",
    "algorithm1": "Algorithm 1 (iterative)",
    "sista-rnn": "SISTA-RNN",
    "l1-l1-rnn": "l1-l1-RNN",
    "reweighted-rnn": "reweighted-RNN",
    "vit": "ViT",
    "unfolded-transformer": "Unfolded Transformer",
    "printed-dust": "DUST",
    "printed-mh-dust": "MH-DUST",
}
ITERATIVE = ("sista", "algorithm1")  # families that learn nothing
LINES = 160
PART = TableSet("held-out", "held-out clips", "", "", ("",), {}, LINES)
TASKS = {
    "cs20": ("CS 0.2", Table("cs20", "", "", "patches", "CS rate", {}, (), {"stride": 8}), "0.2"),
    "denoise20": ("sigma 20", Table("denoise20", "", "", "patches", "sigma", {}, (), {"stride": 16}), "20"),
}
EPOCH = 350  # steps
TIMED = 40  # updates; the mean counts, as not every one needs new groups


class Entry(NamedTuple):
    """A row: one system on one task."""

    system: str
    task: str
    parameters: int
    epoch: float | None  # CPU seconds; None where nothing is learned
    psnr: float
    ssim: float
    fps: float
    steps: int
    minutes: float
    gained: float | None  # dB over the last sixth of the training

    def cells(self) -> list[str]:
        learned = f"{self.parameters / 1e6:.2f} M" if self.epoch is not None else "none"
        epoch = f"{self.epoch:.0f} s" if self.epoch is not None else "-"
        gained = f"{self.gained:.2f} dB" if self.gained is not None else "-"
        steps, minutes = (f"{self.steps:,}", f"{self.minutes:.0f}") if self.epoch is not None else ("-", "-")
        return [
            self.system,
            self.task,
            learned,
            epoch,
            f"{self.psnr:.2f} dB",
            f"{self.ssim:.4f}",
            f"{self.fps:.1f}",
            steps,
            minutes,
            gained,
        ]


HEADINGS = (
    "system",
    "task",
    "parameters",
    "epoch",
    "PSNR",
    "SSIM",
    "frames/s",
    "steps",
    "minutes",
    "last sixth",
)


def held_out_sequences(data: Path) -> list[FrameSequence]:
    """The clips that nothing was trained on."""
    folders = sorted((data / "eval" / "davis480p_heldout").iterdir())
    return [
        FrameSequence(folder.name, folder, tuple(sorted(path.name for path in folder.iterdir())))
        for folder in folders
    ]


def entry(system: str, task: str, weights: Path, recipe: Path, sequences: list[FrameSequence]) -> Entry:
    """Measure one system."""
    title, table, column = TASKS[task]
    model = load_model(weights)
    learns = model.card.family not in ITERATIVE
    system = System(system_of(model), model, str(weights))
    part = TableSet(PART.name, PART.title, "", "", (column,), {}, LINES)
    clips = list(sensed_patches.measure(table, part, sequences, [system], 0))
    psnr, ssim = (mean_of_frames(clips, metric) for metric in ("psnr", "ssim"))
    parameters = sum(part.numel() for part in model.network.parameters())
    epoch = EPOCH * update_seconds(recipe) if learns else None
    steps, gained = curve(model.card.training) if learns else (0, None)
    fps = frames_per_second(model, table, column, sequences[0])
    minutes = steps * (epoch or 0.0) / EPOCH / 60
    return Entry(SYSTEMS[system], title, parameters, epoch, psnr, ssim, fps, steps, minutes, gained)


def mean_of_frames(clips: list[ClipMetrics], metric: str) -> float:
    return fmean(value for clip in clips for value in clip.frames[metric])


def frames_per_second(model: Model, table: Table, column: str, sequence: FrameSequence) -> float:
    """Of one clip of 20 frames, the better of two goes."""
    video = sensed_patches.gray_video(sequence, LINES)[: sensed_patches.CLIP].float()
    setting = sensed_patches.setting_of(table, column)
    work = sensed_patches.restorer(model.network, setting.sigma, None)
    patch = model.network.config.patch  # type: ignore[union-attr]
    return len(video) / min(
        seconds(
            lambda: sensed_patches.restored_video(
                work, video, patch, table.settings["stride"], setting.clip, "cpu"
            )
        )
        for _ in range(2)
    )


def seconds(work: Callable[[], object]) -> float:
    """CPU time of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def update_seconds(recipe: Path) -> float:
    """CPU seconds of one training step, batch included."""
    config = read_config(recipe)
    with TemporaryDirectory() as folder:
        run = Run(config, Path(folder), torch.device("cpu"))
        source, _ = make_data(config, run.network)
        batches: Iterator[tuple[torch.Tensor, ...]] = source.batches(
            range(TIMED + 1), config.training.batch, 0
        )
        run.update(*next(batches))  # which waits for the first windows
        return fmean(seconds(lambda: run.update(*next(batches))) for _ in range(TIMED))


def curve(training: Mapping[str, Any]) -> tuple[int, float | None]:
    """Steps of a training and what its held-out PSNR gained in the last sixth of them, from the card of the
    weights.
    """
    steps = training["steps"]
    points = [(point["step"], fmean(point["psnr"].values())) for point in training["curve"]]
    before = [psnr for step, psnr in points if step <= steps / 1.2]
    return steps, points[-1][1] - before[-1] if before else None


def entries(options: Namespace) -> Iterator[Entry]:
    sequences = list(islice(held_out_sequences(options.data), options.clips))
    for task in options.task or TASKS:
        for system in options.system or SYSTEMS:
            weights = options.runs / f"{system}-{task}.safetensors"
            if weights.is_file():
                yield entry(system, task, weights, RECIPES / f"{system}-{task}.toml", sequences)
            else:
                print(f"{weights}: not there, left out", file=sys.stderr)


def main(options: Namespace) -> None:
    torch.set_num_threads(1)
    sys.stdout.write(f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|\n")
    found = None
    for found in entries(options):
        sys.stdout.write(f"| {' | '.join(found.cells())} |\n")
        sys.stdout.flush()
    if found is None:
        sys.exit(
            f"{options.runs}: none of the systems is there; train them: examples/train_systems.sh "
            f"{options.runs} table"
        )


def options() -> Namespace:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, help="folder of the trained systems")
    parser.add_argument("--task", action="append", choices=list(TASKS))
    parser.add_argument("--system", action="append", choices=list(SYSTEMS))
    parser.add_argument("--clips", type=int, help="of the held-out clips, the first few (all)")
    parser.add_argument("--data", type=Path, default=DATA, help="where the shared clips lie")
    return parser.parse_args()


if __name__ == "__main__":
    main(options())
