"""Objectives: the loss, the optimiser and the validation metrics of each kind of training.

Groups of patches are measured or made noisy, pictures and clips are degraded, and networks recover them.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.degrade import imresize
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.models.spynet import Spynet, warp
from vidrestore.models.vsr_transformer import SCALE, VsrTransformer
from vidrestore.training.config import (
    ClipTrainingConfig,
    FlowTrainingConfig,
    PairTrainingConfig,
    RunConfig,
    TrainingConfig,
)
from vidrestore.training.data.batches import WHOLE, Share
from vidrestore.training.data.pairs import HeldOutPairs
from vidrestore.training.data.super_resolution import HeldOutClips, HeldOutFrames
from vidrestore.training.losses import (
    batch_loss,
    charbonnier,
    group_psnr,
    in_precision,
    mean_psnr,
    picture_loss,
    picture_psnr,
    psnr_loss,
    restored_pictures,
    validation_sigmas,
)
from vidrestore.training.muon import Muon
from vidrestore.training.training_events import Metrics

DIFFERENCE_GAIN = 5.0  # initial gain of the first filters of a flow network


class Objective(Protocol):
    """The training of one kind of network with a run's settings."""

    fixed_settings: tuple[str, ...]  # names in [training] that may not change when a run is resumed
    parameters: dict[str, Any]  # of the task, for the card of the weights, unless configured

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        """Return the last point of the validation curve as metrics for the card of the weights."""
        ...

    def initialise(self, network: nn.Module) -> None:
        """Initialise a new network so that learning starts well."""
        ...

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return a new optimiser for all parameters."""
        ...

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        """Return the loss of one batch of the run's data, on the network's device."""
        ...

    def metrics(self, network: nn.Module, held_out: Any) -> Metrics:
        """Return PSNR (dB) on held-out data, by sigma or degradation."""
        ...

    def metrics_before(self, held_out: Any) -> Metrics:
        """Return the same metrics of the network's input; empty if that is not a picture."""
        ...


class GroupObjective:
    """Groups of patches with noise: the weighted squared error of `batch_loss`."""

    fixed_settings: tuple[str, ...] = ("sigma", "clip_noise", "batch", "seed")

    def __init__(self, settings: TrainingConfig, share: Share = WHOLE) -> None:
        self.settings, self.share = settings, share
        self.parameters: dict[str, Any] = {"sigma": list(settings.sigma)}

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {f"held-out groups, sigma {sigma}": {"psnr": psnr} for sigma, psnr in last["psnr"].items()}

    def initialise(self, network: nn.Module) -> None:
        """Keep the network's own initialisation."""

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(network.parameters(), lr=self.settings.learning_rate, betas=(0.9, 0.99))

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        (clean, sigma), settings = batch, self.settings
        seed = (settings.seed << 32) + step
        return batch_loss(
            network, clean, sigma, seed, settings.precision, self.share, clip_noise=settings.clip_noise
        )

    def metrics(self, network: nn.Module, held_out: Tensor) -> Metrics:
        settings = self.settings
        sigmas = validation_sigmas(settings.sigma)
        return {
            sigma: group_psnr(network, held_out, sigma, settings.precision, clip_noise=settings.clip_noise)
            for sigma in sigmas
        }

    def metrics_before(self, held_out: Tensor) -> Metrics:
        return {}


class PairObjective:
    """Degraded and clean pictures: `picture_loss` or `psnr_loss`, by AdamW as in MB-TaylorFormer V2."""

    fixed_settings: tuple[str, ...] = ("batch", "seed")

    def __init__(self, settings: PairTrainingConfig) -> None:
        self.settings = settings
        self.parameters: dict[str, Any] = {}

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out crops, {name}": {"psnr": psnr, "psnr_before": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

    def initialise(self, network: nn.Module) -> None:
        """Make the network an identity: the last convolution, whose output is added to the input, is zero."""
        nn.init.zeros_(cast("MBTaylorFormer", network).head)

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            network.parameters(), lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        degraded, clean, *tasks = batch
        restored = restored_pictures(network, degraded, self.settings.precision, *tasks)
        if self.settings.loss == "psnr":
            return psnr_loss(restored, clean, self.settings.least_error)
        return picture_loss(restored, clean)

    def metrics(self, network: nn.Module, held_out: HeldOutPairs) -> Metrics:
        degraded, tasks = held_out.degraded, held_out.tasks
        return {
            name: picture_psnr(network, degraded[name], clean, tasks.get(name))
            for name, clean in held_out.clean.items()
        }

    def metrics_before(self, held_out: HeldOutPairs) -> Metrics:
        before = {name: middle_frames(held_out.degraded[name]) for name in held_out.clean}
        return {name: mean_psnr(before[name] / 255, clean / 255) for name, clean in held_out.clean.items()}


def middle_frames(pictures: Tensor) -> Tensor:
    """Return pictures (N, 3, H, W) as they are, and the middle frames of clips (N, frames, 3, H, W)."""
    return pictures if pictures.dim() == 4 else pictures[:, pictures.shape[1] // 2]


class ClipObjective:
    """Clips at low and at high resolution: Charbonnier's loss over all frames, as VSR-Transformer is
    trained, or `psnr_loss` of each frame.
    """

    fixed_settings: tuple[str, ...] = ("batch", "seed", "optimiser")

    def __init__(self, settings: ClipTrainingConfig) -> None:
        self.settings = settings
        self.parameters: dict[str, Any] = {"scale": SCALE}

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out clips, {name}": {"psnr": psnr, "psnr_bicubic": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

    def initialise(self, network: nn.Module) -> None:
        """Make the network a bilinear interpolation: the last convolution, whose output is added to that, is
        zero.

        Weights are in channels-last order, like the feature maps.
        """
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = [part for part in cast("VsrTransformer", network).tail if isinstance(part, nn.Conv2d)][-1]
        for parameter in last.parameters():
            nn.init.zeros_(parameter)

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        rate = self.settings.learning_rate
        if self.settings.optimiser == "muon":
            model = cast("VsrTransformer", network)
            others = (model.flow, model.extractor[0], model.tail)  # flow, and first and last layers
            return Muon(
                network, rate, apart=[parameter for part in others if part for parameter in part.parameters()]
            )
        return torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, 0.99), fused=True)

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        small, large = batch
        restored = restored_pictures(network, small, self.settings.precision)
        if self.settings.loss == "psnr":
            return psnr_loss(restored.flatten(0, 1), large.flatten(0, 1))
        return charbonnier(restored - large)

    @torch.no_grad()
    def metrics(self, network: nn.Module, held_out: HeldOutClips) -> Metrics:
        device = next(network.parameters()).device
        restored = [network(clip[None].to(device) / 255)[0].clamp(0, 1).cpu() for clip in held_out.small]
        return {f"x{SCALE}": mean_psnr(torch.cat(restored), held_out.large.flatten(0, 1) / 255)}

    def metrics_before(self, held_out: HeldOutClips) -> Metrics:
        enlarged = imresize(held_out.small.flatten(0, 1) / 255, SCALE).clamp(0, 1)
        return {f"x{SCALE}": mean_psnr(enlarged, held_out.large.flatten(0, 1) / 255)}


class FlowObjective:
    """Frames and the flow between them: the mean distance of the vectors, in pixels, over the levels of the
    pyramid.

    Validation measures how well real neighbouring frames are warped onto each other.
    """

    fixed_settings: tuple[str, ...] = ("batch", "seed")

    def __init__(self, settings: FlowTrainingConfig) -> None:
        self.settings = settings
        self.parameters: dict[str, Any] = {}

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out frames, {name}": {"psnr": psnr, "psnr_before": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

    def initialise(self, network: nn.Module) -> None:
        """Let every level respond to differences from the first step; without that, nothing was learnt in
        1,500 steps.
        """
        for level in cast("Spynet", network).levels:
            initialise_flow_level(cast("nn.Sequential", level))

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(network.parameters(), lr=self.settings.learning_rate)

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        reference, supporting, flow = batch
        with in_precision(reference.device, self.settings.precision):
            levels = cast("Spynet", network).flows(reference, supporting)
        distances = [flow_distance(level.float(), flow) for level in levels]
        return torch.stack(distances).mean()

    @torch.no_grad()
    def metrics(self, network: nn.Module, held_out: HeldOutFrames) -> Metrics:
        device = next(network.parameters()).device
        reference, supporting = (
            frames.to(device) / 255 for frames in (held_out.reference, held_out.supporting)
        )
        return {
            "warped": mean_psnr(
                warp(supporting, network(reference, supporting), border="border").cpu(), reference.cpu()
            )
        }

    def metrics_before(self, held_out: HeldOutFrames) -> Metrics:
        return {"warped": mean_psnr(held_out.supporting / 255, held_out.reference / 255)}


def initialise_flow_level(level: nn.Sequential) -> None:
    """Use He's normal weights, zero-mean first filters, and differences of the two frames in every second
    one.

    Neighbouring frames differ by far less than either varies, so random filters hardly respond to motion. The
    last layer starts small, so that the flow of the coarser level is hardly changed at first.
    """
    layers = [layer for layer in level if isinstance(layer, nn.Conv2d)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(cast("Tensor", layer.bias))
    with torch.no_grad():
        layers[-1].weight.mul_(0.1)
        first = layers[0].weight
        first[:, :3] = DIFFERENCE_GAIN * (first[:, :3] - first[:, :3].mean((2, 3), keepdim=True))
        first[:, 3:6] = first[:, :3]
        first[::2, 3:6] *= -1


def flow_distance(estimate: Tensor, flow: Tensor) -> Tensor:
    """Return the mean length of the difference of flows (B, 2, h, w) and (B, 2, H, W), in pixels of the
    second.

    The second is averaged down to the size of the first.
    """
    ratio = flow.shape[-1] / estimate.shape[-1]
    expected = F.interpolate(flow, estimate.shape[-2:], mode="area") / ratio
    distance: Tensor = (estimate - expected).square().sum(1).add(1e-4).sqrt()
    return ratio * distance.mean()


def objective_of(config: RunConfig, share: Share = WHOLE) -> Objective:
    """Return the objective of a configuration, for one process's share of the batches."""
    settings = config.training
    if isinstance(settings, ClipTrainingConfig):
        return ClipObjective(settings)
    if isinstance(settings, FlowTrainingConfig):
        return FlowObjective(settings)
    if isinstance(settings, PairTrainingConfig):
        return PairObjective(settings)
    assert isinstance(settings, TrainingConfig)
    return GroupObjective(settings, share)
