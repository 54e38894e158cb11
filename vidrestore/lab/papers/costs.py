"""Count what a network costs beside the papers' values: learned parameters, multiply-adds, seconds.

Multiply-adds are those of products and convolutions of one picture of 256x256, as torch counts them; adds of
sampled taps, norms and activations are not counted. The picture is never computed, only its shapes.

Seconds are of this machine: of an epoch of training (batches of 64 groups of 20 patches, forwards, backwards
and Adam's step, as many as the training videos give), and of the network on all test videos, decoded before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from vidrestore.errors import DatasetError
from vidrestore.lab.papers.dataset_files import Sequences
from vidrestore.lab.papers.datasets import find
from vidrestore.lab.papers.sensed_patches import (
    CLIP_LENGTH,
    PATCH_SIDE,
    gray_video,
    restored_video,
    restorer,
)
from vidrestore.lab.papers.tables import (
    Table,
    find_systems,
    select_systems,
    title_of,
    weights_notes,
)
from vidrestore.lab.papers.training_groups import ClipGroups, divided
from vidrestore.models.fast_linear import PlainLinear
from vidrestore.pages.results import Result, Row, System, Values, rounded
from vidrestore.weights import Model, build_network
from vidrestore.weights.manifest import Card

COUNTED_SIDE = 256  # pixels of the picture that multiply-adds are counted of
COUNTED_GROUPS = 64  # groups of a training step
TIMED_STEPS, FIRST_STEPS = 5, 2  # steps that are timed, after those that fill caches
HELD_OUT_SHARE = 0.2  # of the training videos, for validation
OVERHEAD_ROW = "overhead"  # stands for the test set
UNTRAINED = "untrained"  # stands for the weights of networks that are built here
COST_PROTOCOLS = {
    "picture-costs": (
        "parameters: millions that are learned",
        f"multiply_adds: billions, of the products and convolutions of {COUNTED_SIDE}x{COUNTED_SIDE} pixels, "
        "without the sampling of taps, norms and activations",
    ),
    "patch-costs": (
        "parameters: millions that are learned",
        f"epoch_seconds: steps of {COUNTED_GROUPS} groups of {CLIP_LENGTH} patches, forwards, backwards and "
        "Adam's update, as many as 80 % of the training videos give; on this machine",
        "test_seconds: all frames of the test set, decoded before; on this machine",
    ),
}


def parameters_of(network: nn.Module) -> float:
    """Return the millions of parameters that are learned."""
    counts = (
        parameter.numel()
        for parameter in network.parameters()
        if parameter.requires_grad
    )
    return sum(counts) / 1e6


def multiply_adds_of(network: nn.Module) -> float:
    """Return the billions of multiply-adds of a picture network on one picture of 256x256."""
    # counted without computing anything
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        FlopCounterMode(display=False) as counter,
    ):
        network(
            torch.empty(
                1,
                3,
                COUNTED_SIDE,
                COUNTED_SIDE,
                device=next(network.parameters()).device,
            )
        )
    return float(counter.get_total_flops() / 2e9)


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
    # the videos of the paper's training set decide how many steps an epoch has
    part = table.sets[0]
    stride = table.settings["stride"]
    training, tests = (
        find(part.dataset, data, split) for split in ("train", part.split)
    )
    clips = [
        gray_video(clip, part.lines)
        for clip in divided(cast("Sequences", training), HELD_OUT_SHARE)[0]
    ]
    groups = len(ClipGroups(clips, PATCH_SIDE, stride, CLIP_LENGTH))
    if not groups:
        raise DatasetError(
            f"{data}: the training videos of {part.title} have fewer than {CLIP_LENGTH} frames"
        )
    return Workload(
        groups,
        [gray_video(clip, part.lines).float() for clip in cast("Sequences", tests)],
        stride,
    )


def patch_costs(network: nn.Module, workload: Workload | None, device: str) -> Values:
    """Return the parameters (M) of a network of patches, and the seconds of a workload."""
    values = {"parameters": parameters_of(network)}
    if workload is None:
        return values
    network = network.to(device)
    steps = math.ceil(workload.groups / COUNTED_GROUPS)
    values["epoch_seconds"] = steps * step_seconds(network, device)
    values["test_seconds"] = recovery_seconds(network, workload, device)
    return values


def step_seconds(network: nn.Module, device: str) -> float:
    """Return the seconds of a training step on a batch of drawn groups."""
    # a step as in training, with a rate of 0
    recovering: Any = network.train()
    clean = 255 * torch.rand(COUNTED_GROUPS, CLIP_LENGTH, PATCH_SIDE**2, device=device)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.0)
    # the first steps fill caches, so that only later ones are timed
    times = [_now(device)]
    for _ in range(FIRST_STEPS + TIMED_STEPS):
        restored = recovering.at(0.0, torch.float32, PlainLinear)(
            recovering.measure(clean)
        )
        optimiser.zero_grad()
        (restored - clean).square().mean().backward()
        optimiser.step()
        times.append(_now(device))
    return (times[-1] - times[FIRST_STEPS]) / TIMED_STEPS


def recovery_seconds(network: nn.Module, workload: Workload, device: str) -> float:
    """Return the seconds that a network takes for all videos."""
    work = restorer(network.eval(), 0.0, None)
    start = _now(device)
    for video in workload.videos:
        restored_video(work, video, PATCH_SIDE, workload.stride, CLIP_LENGTH, device)
    return _now(device) - start


def _now(device: str) -> float:
    """Return the time in seconds, after the work of the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def overhead_metrics(table: Table) -> tuple[str, ...]:
    """Return the names of what a table's systems cost; empty if it says nothing of it."""
    return tuple(
        dict.fromkeys(metric for values in table.overhead.values() for metric in values)
    )


def overhead_protocol(table: Table) -> tuple[str, ...]:
    """Return how the overhead of a table's systems is counted; empty if the table has none."""
    metrics = overhead_metrics(table)
    return tuple(
        line
        for line in COST_PROTOCOLS["picture-costs"]
        if line.partition(":")[0] in metrics
    )


def overhead_rows(
    table: Table, systems: Sequence[System], system_names: Sequence[str]
) -> Iterator[Row]:
    """Yield the cost of each measured system beside the published one, then those only published."""
    # measured beside published, then what was only published
    metrics = overhead_metrics(table)
    measured = [system for system in systems if metrics and system.model]
    for system in measured:
        values = rounded(picture_costs(system.network, metrics))
        published = table.overhead.get(system.name, {})
        yield Row(
            title_of(table, system.name),
            OVERHEAD_ROW,
            values,
            published,
            system.weights,
        )
    names = {system.name for system in measured}
    for name, published in table.overhead.items():
        if (
            published
            and name not in names
            and (not system_names or name in system_names)
        ):
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
    # printed networks without weights cost as much as trained ones
    networks = table.settings["networks"]
    families = {str(network["family"]) for network in networks.values()}
    systems = (
        find_systems(table, (), families, (), weights, device)
        if weights
        else _printed(networks, device)
    )
    systems = select_systems(systems, table, system_names)
    rows = list(overhead_rows(table, systems, system_names))
    notes = weights_notes(systems, table) if weights else []
    # seconds depend on the videos and this machine
    if table.protocol == "patch-costs":
        workload = read_workload(table, data) if data else None
        part = table.sets[0]
        for system in systems:
            title = title_of(table, system.name)
            on_progress(f"{table.title}: {title}")
            values = rounded(patch_costs(system.network, workload, device))
            (published,) = part.published.get(system.name, ({},))
            rows.append(Row(title, part.title, values, published, system.weights))
        notes += (
            [] if workload else [f"seconds need the videos of {part.title}: `data`"]
        )
    protocol = COST_PROTOCOLS[table.protocol]
    notes += table.remarks
    return Result(
        table.name,
        table.title,
        "published",
        tuple(rows),
        protocol,
        tuple(notes),
        source=table.source,
    )


def _printed(networks: Mapping[str, Mapping[str, Any]], device: str) -> list[System]:
    """Return the networks that a table of costs describes."""
    systems = []
    for name, settings in networks.items():
        config = {key: value for key, value in settings.items() if key != "family"}
        network = build_network(settings["family"], config)
        model = Model(network, Card(name, settings["family"], config, "", "", 0))
        systems.append(System(name, model, label=UNTRAINED, device=device))
    return systems
