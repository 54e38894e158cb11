"""Objectives: the loss, the optimiser and the validation metrics of each kind of training.

Groups of patches are measured or made noisy, pictures and clips are degraded, and networks recover them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.degrade import imresize
from vidrestore.errors import ConfigError
from vidrestore.families import load
from vidrestore.models.spynet import Spynet, warp
from vidrestore.models.vsr_transformer import SCALE, VsrTransformer
from vidrestore.restorers.base import PictureForm
from vidrestore.training.config import (
    ClipTrainingConfig,
    FlowTrainingConfig,
    PairTrainingConfig,
    RunConfig,
    TrainingConfig,
)
from vidrestore.training.data.batches import WHOLE, Share
from vidrestore.training.data.pairs import HeldOutPairs, task_indices
from vidrestore.training.data.super_resolution import HeldOutClips, HeldOutFrames
from vidrestore.training.data_config import ClipDataConfig, ClipSetConfig, PairDataConfig, PairSetConfig
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


class Objective(ABC):
    """The training of one kind of network with a run's settings, for one process's share of the batches."""

    fixed_settings: tuple[str, ...] = ("batch", "seed")  # may not change when a run is resumed

    def __init__(self, settings: Any, share: Share = WHOLE) -> None:
        self.settings, self.share = settings, share
        self.parameters: dict[str, Any] = {}  # of the task, for the card of the weights, unless configured

    @abstractmethod
    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        """Return the last point of the validation curve as metrics for the card of the weights."""

    @abstractmethod
    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return a new optimiser for all parameters."""

    @abstractmethod
    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        """Return the loss of one batch of the run's data, on the network's device."""

    @abstractmethod
    def metrics(self, network: nn.Module, held_out: Any) -> Metrics:
        """Return PSNR (dB) on held-out data, by sigma or degradation."""

    def metrics_before(self, held_out: Any) -> Metrics:
        """Return the same metrics of the network's input; empty if that is not a picture."""
        return {}

    def check(self, config: RunConfig, network: nn.Module) -> None:
        """Raise ConfigError if the network can't take the data of a configuration."""
        return


class GroupObjective(Objective):
    """Groups of patches with noise: the weighted squared error of `batch_loss`."""

    fixed_settings = ("sigma", "clip_noise", *Objective.fixed_settings)
    settings: TrainingConfig

    def __init__(self, settings: TrainingConfig, share: Share = WHOLE) -> None:
        super().__init__(settings, share)
        self.parameters = {"sigma": list(settings.sigma)}

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {f"held-out groups, sigma {sigma}": {"psnr": psnr} for sigma, psnr in last["psnr"].items()}

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


class PairObjective(Objective):
    """Degraded and clean pictures: `picture_loss` or `psnr_loss`, by AdamW as in MB-TaylorFormer V2."""

    settings: PairTrainingConfig

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out crops, {name}": {"psnr": psnr, "psnr_before": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

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

    def check(self, config: RunConfig, network: nn.Module) -> None:
        data, form = config.data, PictureForm.of(network)
        frames = data.frames if isinstance(data, PairDataConfig) else 1
        if frames != form.frames:
            raise ConfigError(
                f"{config.path}: [model] takes {form.frames} frames at once, but data.frames is {frames}; "
                "set both to the same number"
            )
        if isinstance(data, PairSetConfig) and form.tasks:
            raise ConfigError(
                f"{config.path}: [model] tasks need data.degradations, not a dataset; remove tasks"
            )
        if isinstance(data, PairDataConfig):
            try:
                task_indices(data, form.tasks)
            except ConfigError as error:
                raise ConfigError(f"{config.path}: {error}") from error
        if isinstance(data, PairDataConfig | PairSetConfig) and data.crop % form.multiple:
            raise ConfigError(
                f"{config.path}: data.crop must be a multiple of {form.multiple} for this [model], found "
                f"{data.crop}"
            )

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


class ClipObjective(Objective):
    """Clips at low and at high resolution: Charbonnier's loss over all frames, as VSR-Transformer is
    trained, or `psnr_loss` of each frame.
    """

    fixed_settings = (*Objective.fixed_settings, "optimiser")
    settings: ClipTrainingConfig

    def __init__(self, settings: ClipTrainingConfig, share: Share = WHOLE) -> None:
        super().__init__(settings, share)
        self.parameters = {"scale": SCALE}

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out clips, {name}": {"psnr": psnr, "psnr_bicubic": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

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

    def check(self, config: RunConfig, network: nn.Module) -> None:
        data, check_size = config.data, getattr(network, "check_size", None)
        if check_size and isinstance(data, ClipDataConfig | ClipSetConfig):
            try:
                check_size(data.frames, data.crop, data.crop)
            except ValueError as error:
                raise ConfigError(
                    f"{config.path}: [data] doesn't fit [model]: {error}; change data.crop and data.frames, "
                    "or [model]"
                ) from error

    @torch.no_grad()
    def metrics(self, network: nn.Module, held_out: HeldOutClips) -> Metrics:
        device = next(network.parameters()).device
        restored = [network(clip[None].to(device) / 255)[0].clamp(0, 1).cpu() for clip in held_out.small]
        return {f"x{SCALE}": mean_psnr(torch.cat(restored), held_out.large.flatten(0, 1) / 255)}

    def metrics_before(self, held_out: HeldOutClips) -> Metrics:
        enlarged = imresize(held_out.small.flatten(0, 1) / 255, SCALE).clamp(0, 1)
        return {f"x{SCALE}": mean_psnr(enlarged, held_out.large.flatten(0, 1) / 255)}


class FlowObjective(Objective):
    """Frames and the flow between them: the mean distance of the vectors, in pixels, over the levels of the
    pyramid.

    Validation measures how well real neighbouring frames are warped onto each other.
    """

    settings: FlowTrainingConfig

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out frames, {name}": {"psnr": psnr, "psnr_before": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

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
    made: Objective = load(config.kind.objective)(config.training, share)
    return made
