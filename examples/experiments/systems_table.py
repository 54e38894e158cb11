"""The systems of the DUST paper on clips that none was trained on, as in Tables IV, V and VIII.

    examples/train_systems.sh RUNS table
    python examples/experiments/systems_table.py RUNS

RUNS holds the weights that the recipes of examples/train/systems give; systems without weights are left out.
Prints a table in Markdown: learned parameters, PSNR and SSIM by the paper's protocol
(`vidrestore.lab.papers.sensed_patches`) at 160 lines, and frames of 160 lines per CPU second, on one thread.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from statistics import fmean

import torch

from vidrestore.lab.papers import sensed_patches
from vidrestore.lab.papers.dataset_files import FrameSequence
from vidrestore.lab.papers.printed_forms import printed_form
from vidrestore.lab.papers.tables import Table, TableSet
from vidrestore.pages.results import ClipMetrics, System
from vidrestore.weights import Model, load_model

DATA = Path(__file__).parents[3] / "shared" / "data"
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
TASKS = {
    "cs20": (
        "CS 0.2",
        Table("cs20", "", "", "patches", "CS rate", {}, (), {"stride": 8}),
        "0.2",
    ),
    "denoise20": (
        "sigma 20",
        Table("denoise20", "", "", "patches", "sigma", {}, (), {"stride": 16}),
        "20",
    ),
}
COLUMNS = ("system", "task", "parameters", "frames/s", "PSNR", "SSIM")


def held_out_sequences(data: Path) -> list[FrameSequence]:
    """Return the clips that nothing was trained on."""
    folders = sorted((data / "eval" / "davis480p_heldout").iterdir())
    return [
        FrameSequence(
            folder.name, folder, tuple(sorted(path.name for path in folder.iterdir()))
        )
        for folder in folders
    ]


def cells(
    name: str, task: str, weights: Path, sequences: list[FrameSequence]
) -> list[str]:
    """Measure one system and return its row."""
    title, table, column = TASKS[task]
    model = load_model(weights)
    system = System(printed_form(model).system, model, str(weights))
    part = TableSet("held-out", "held-out clips", "", "", (column,), {}, LINES)
    clips = list(sensed_patches.measure(table, part, sequences, [system], 0))
    psnr, ssim = (mean_of_frames(clips, metric) for metric in ("psnr", "ssim"))
    learned = sum(tensor.numel() for tensor in model.network.parameters()) / 1e6
    size = "none" if model.card.family in ITERATIVE else f"{learned:.2f} M"
    fps = frames_per_second(model, table, column, sequences[0])
    return [SYSTEMS[name], title, size, f"{fps:.1f}", f"{psnr:.2f} dB", f"{ssim:.3f}"]


def mean_of_frames(clips: list[ClipMetrics], metric: str) -> float:
    return fmean(value for clip in clips for value in clip.frames[metric])


def frames_per_second(
    model: Model, table: Table, column: str, sequence: FrameSequence
) -> float:
    """Return the rate of a clip of 20 frames by CPU time, the better of two runs."""
    video = sensed_patches.gray_video(sequence, LINES)[
        : sensed_patches.CLIP_LENGTH
    ].float()
    sigma = float(column) if table.column == "sigma" else 0.0
    work = sensed_patches.restorer(model.network, sigma, None)
    patch = model.network.config.patch  # type: ignore[union-attr]
    seconds = []
    for _ in range(2):
        start = time.process_time()
        sensed_patches.restored_video(
            work,
            video,
            patch,
            table.settings["stride"],
            sensed_patches.CLIP_LENGTH,
            "cpu",
        )
        seconds.append(time.process_time() - start)
    return len(video) / min(seconds)


def main() -> None:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, help="folder of the trained systems")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of the shared clips"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    sequences = held_out_sequences(options.data)
    for task in TASKS:
        for name in SYSTEMS:
            weights = options.runs / f"{name}-{task}.safetensors"
            if weights.is_file():
                print(
                    f"| {' | '.join(cells(name, task, weights, sequences))} |",
                    flush=True,
                )
            else:
                print(f"{weights}: no such file, left out", file=sys.stderr)


if __name__ == "__main__":
    main()
