"""Count what a network costs beside the papers' values: learned parameters, multiply-adds, seconds.

Multiply-adds are those of products and convolutions of one picture of 256x256, as torch counts them; adds of
sampled taps, norms and activations are not counted. The picture is never computed, only its shapes.

Seconds are of this machine: of an epoch of training (batches of 64 groups of 20 patches, forwards, backwards
and Adam's step, as many as the training videos give), and of the network on all test videos, decoded before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from vidrestore.errors import DatasetError
from vidrestore.evaluation.results import Result, Row, System, Values, rounded
from vidrestore.models.fast.linear import PlainLinear
from vidrestore.models.matching import Grid
from vidrestore.papers import sensed_patches
from vidrestore.papers.datasets import find
from vidrestore.papers.tables import (
    Table,
    TableSet,
    find_systems,
    select_systems,
    title_of,
    weights_notes,
)
from vidrestore.weights import Model, build_network
from vidrestore.weights.manifest import Card

SIDE = 256  # pixels of the picture that multiply-adds are counted of
BATCH = 64  # groups of a training step
TIMED_STEPS, FIRST_STEPS = 5, 2  # steps that are timed, after those that fill caches
TRAINING_SHARE = 0.8  # of the training videos; the rest is for validation
MILLION, BILLION = 1e6, 1e9
OVERHEAD_ROW = "overhead"  # stands for the test set
UNTRAINED = "untrained"  # stands for the weights of networks that are built here
PROTOCOLS = {
    "picture-costs": (
        "parameters: millions that are learned",
        f"multiply_adds: billions, of the products and convolutions of {SIDE}x{SIDE} pixels, without the "
        "sampling of taps, norms and activations",
    ),
    "patch-costs": (
        "parameters: millions that are learned",
        f"epoch_seconds: steps of {BATCH} groups of {sensed_patches.CLIP} patches, forwards, backwards and "
        "Adam's update, as many as 80 % of the training videos give; on this machine",
        "test_seconds: all frames of the test set, decoded before; on this machine",
    ),
}


def parameters_of(network: nn.Module) -> float:
    """Return the millions of parameters that are learned."""
    counts = (parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    return sum(counts) / MILLION


def multiply_adds_of(network: nn.Module) -> float:
    """Return the billions of multiply-adds of a picture network on one picture of 256x256."""
    with FakeTensorMode(allow_non_fake_inputs=True), FlopCounterMode(display=False) as counter:
        network(torch.empty(1, 3, SIDE, SIDE, device=next(network.parameters()).device))
    return float(counter.get_total_flops() / 2 / BILLION)


def picture_costs(network: nn.Module, metrics: Iterable[str]) -> Values:
    """Return those of the parameters (M) and multiply-adds (G) of a picture network that `metrics` names."""
    measures = {"parameters": parameters_of, "multiply_adds": multiply_adds_of}
    return {name: measures[name](network) for name in metrics}


@dataclass(frozen=True)
class Workload:
    """The work that seconds are measured of.

    groups: number of groups of patches in an epoch.
    videos: test videos, (T, H, W) in grey levels each.
    stride: of the patches, in pixels.
    """

    groups: int
    videos: Sequence[Tensor]
    stride: int


def read_workload(table: Table, data: Path) -> Workload:
    """Return the workload of a table's videos in the folder `data`. Raises DatasetError."""
    part, stride = table.sets[0], table.settings["stride"]
    videos = list(_gray_videos(part, data, part.split))
    if not videos:
        raise DatasetError(f"{data}: no test videos of {part.title}")
    training = list(_gray_videos(part, data, "train"))
    groups = 0
    for video in training[: max(1, int(len(training) * TRAINING_SHARE))]:
        frames, height, width = video.shape
        positions = Grid(height, width, sensed_patches.PATCH, stride).corners(None)
        groups += frames // sensed_patches.CLIP * len(positions)
    if not groups:
        raise DatasetError(
            f"{data}: the training videos of {part.title} have fewer than {sensed_patches.CLIP} frames"
        )
    return Workload(groups, videos, stride)


def _gray_videos(part: TableSet, data: Path, split: str) -> Iterator[Tensor]:
    sequences: Any = find(part.dataset, data, split)
    for sequence in sequences:
        yield sensed_patches.gray_video(sequence, part.lines).float()


def patch_costs(network: nn.Module, workload: Workload | None, device: str) -> Values:
    """Return the parameters (M) of a network of patches, and the seconds of a workload."""
    values = {"parameters": parameters_of(network)}
    if workload is None:
        return values
    network = network.to(device)
    steps = math.ceil(workload.groups / BATCH)
    values["epoch_seconds"] = steps * step_seconds(network, device)
    values["test_seconds"] = recovery_seconds(network, workload, device)
    return values


def step_seconds(network: nn.Module, device: str) -> float:
    """Return the seconds of a training step on a batch of drawn groups."""
    recovering: Any = network.train()
    pixels = recovering.config.patch**2
    clean = 255 * torch.rand(BATCH, sensed_patches.CLIP, pixels, device=device)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.0)
    start = 0.0
    for step in range(FIRST_STEPS + TIMED_STEPS):
        if step == FIRST_STEPS:
            start = _now(device)
        restored = recovering.at(0.0, torch.float32, PlainLinear)(recovering.measure(clean))
        optimiser.zero_grad()
        (restored - clean).square().mean().backward()
        optimiser.step()
    return (_now(device) - start) / TIMED_STEPS


def recovery_seconds(network: nn.Module, workload: Workload, device: str) -> float:
    """Return the seconds that a network takes for all videos."""
    work = sensed_patches.restorer(network.eval(), 0.0, None)
    patch, clip = sensed_patches.PATCH, sensed_patches.CLIP
    start = _now(device)
    for video in workload.videos:
        sensed_patches.restored_video(work, video, patch, workload.stride, clip, device)
    return _now(device) - start


def _now(device: str) -> float:
    """Return the time in seconds, after the work of the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def overhead_protocol(table: Table) -> tuple[str, ...]:
    """Return how the overhead of a table's systems is counted; empty if the table has none."""
    metrics = {metric for values in table.overhead.values() for metric in values}
    return tuple(line for line in PROTOCOLS["picture-costs"] if line.partition(":")[0] in metrics)


def overhead_rows(table: Table, systems: Sequence[System], system_names: Sequence[str]) -> Iterator[Row]:
    """Yield the cost of each measured system beside the published one, then those only published."""
    metrics = tuple(dict.fromkeys(metric for values in table.overhead.values() for metric in values))
    measured = set()
    for system in systems:
        if metrics and system.model:
            measured.add(system.name)
            values = rounded(picture_costs(system.network, metrics))
            published = table.overhead.get(system.name, {})
            yield Row(title_of(table, system.name), OVERHEAD_ROW, values, published, system.weights)
    for name, published in table.overhead.items():
        if published and name not in measured and (not system_names or name in system_names):
            yield Row(table.systems[name], OVERHEAD_ROW, {}, published)


def evaluate_costs(
    table: Table,
    data: Path | None,
    weights: Sequence[str],
    system_names: Sequence[str],
    device: str,
    on_progress: Callable[[str], None],
) -> Result:
    """Measure what the printed networks cost, built without weights, or those of `weights`."""
    families = {str(network["family"]) for network in table.settings["networks"].values()}
    systems = find_systems(table, (), families, (), weights, device) if weights else _printed(table, device)
    systems = select_systems(systems, table, system_names)
    on_patches = table.protocol == "patch-costs"
    workload = read_workload(table, data) if on_patches and data else None
    published = table.sets[0].published if on_patches else {}
    rows = []
    for system in systems if on_patches else ():
        on_progress(f"{table.title}: {title_of(table, system.name)}")
        values = rounded(patch_costs(system.network, workload, device))
        (cell,) = published.get(system.name, ({},))
        rows.append(Row(title_of(table, system.name), table.sets[0].title, values, cell, system.weights))
    notes = (
        [] if workload or not on_patches else [f"seconds need the videos of {table.sets[0].title}: `data`"]
    )
    return Result(
        table.name,
        table.title,
        "published",
        (*rows, *overhead_rows(table, systems, system_names)),
        PROTOCOLS[table.protocol],
        (*notes, *(weights_notes(systems, table) if weights else ()), *table.remarks),
        table.source,
    )


def _printed(table: Table, device: str) -> list[System]:
    """Return the networks that a table of costs describes."""
    systems = []
    for name, settings in table.settings["networks"].items():
        config = dict(settings)
        family = config.pop("family")
        card = Card(name, family, config, "", "", 0)
        systems.append(
            System(name, Model(build_network(family, config), card), label=UNTRAINED, device=device)
        )
    return systems
