"""Objectives: how networks are trained and judged: groups of patches, measured and made noisy, or degraded
pictures, to be given back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.degrade import add_gaussian_noise, imresize
from vidrestore.models.fast.linear import Linear, PlainLinear
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.models.spynet import Spynet, warp
from vidrestore.models.vsr_transformer import SCALE, VsrTransformer
from vidrestore.training.config import ClipTrainingConfig, PairTrainingConfig, RunConfig, TrainingConfig
from vidrestore.training.data.batches import WHOLE, Share
from vidrestore.training.data.pairs import HeldOutPairs
from vidrestore.training.data.super_resolution import HeldOutClips, HeldOutFrames
from vidrestore.training.data_config import FlowDataConfig
from vidrestore.training.muon import Muon
from vidrestore.training.training_events import Figures

# errors grow about so with sigma: dividing by sigma ** 1.3 gives every level about the same say
LOSS_POWER = 1.3
CHUNK = 200  # groups that are judged at once
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
DIFFERENCE_GAIN = 5.0  # of the first filters of a flow network
LEAST_ERROR = 1e-3  # squared error, of [0, 1], below which a crop's PSNR counts less and less: 30 dB
SPECTRUM_WEIGHT = 0.1  # of the spectra's difference in the loss for pictures
VALIDATION_SIGMAS = (5.0, 20.0, 50.0)


class Objective(Protocol):
    """The training of one kind of network: a run's settings, and what stays the same between a run and its
    continuation.
    """

    kept: tuple[str, ...]  # names in [training] that may not change

    # for the card of the weights where the configuration doesn't say: what their task may ask of them
    parameters: dict[str, Any]

    def measured(self, last: dict[str, Any]) -> dict[str, Any]:
        """The last point of the curve as the card has it."""
        ...

    def begin(self, network: nn.Module) -> None:
        """Set a fresh network to where learning begins best."""
        ...

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        """A fresh one for all parameters."""
        ...

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        """Of one batch as the run's data gives it, on the network's device."""
        ...

    def figures(self, network: nn.Module, held_out: Any) -> Figures:
        """PSNR on held-out data, by what was done to it."""
        ...

    def figures_before(self, held_out: Any) -> Figures:
        """The same of what the network is given; empty if that is no picture to compare."""
        ...


class GroupObjective:
    """Groups of patches in noise: the weighted squared error of `batch_loss`."""

    kept: tuple[str, ...] = ("sigma", "clip_noise", "batch", "seed")

    def __init__(self, settings: TrainingConfig, share: Share = WHOLE) -> None:
        self.settings, self.share = settings, share
        self.parameters: dict[str, Any] = {"sigma": list(settings.sigma)}

    def measured(self, last: dict[str, Any]) -> dict[str, Any]:
        return {f"held-out groups, sigma {sigma}": {"psnr": psnr} for sigma, psnr in last["psnr"].items()}

    def begin(self, network: nn.Module) -> None:
        """Its own start is good."""

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(network.parameters(), lr=self.settings.learning_rate, betas=(0.9, 0.99))

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        (clean, sigma), settings = batch, self.settings
        seed = (settings.seed << 32) + step
        return batch_loss(
            network, clean, sigma, seed, settings.precision, self.share, clip_noise=settings.clip_noise
        )

    def figures(self, network: nn.Module, held_out: Tensor) -> Figures:
        settings = self.settings
        sigmas = validation_sigmas(settings.sigma)
        return {
            sigma: group_psnr(network, held_out, sigma, settings.precision, clip_noise=settings.clip_noise)
            for sigma in sigmas
        }

    def figures_before(self, held_out: Tensor) -> Figures:
        return {}


class PairObjective:
    """Degraded and clean pictures: `picture_loss`, by AdamW as in MB-TaylorFormer V2."""

    kept: tuple[str, ...] = ("batch", "seed")

    def __init__(self, settings: PairTrainingConfig) -> None:
        self.settings = settings
        self.parameters: dict[str, Any] = {}

    def measured(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out crops, {name}": {"psnr": psnr, "psnr_before": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

    def begin(self, network: nn.Module) -> None:
        """A network gives back what it is given: its last convolution, whose result is added to that, is
        zero.
        """
        nn.init.zeros_(cast("MBTaylorFormer", network).head)

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            network.parameters(), lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        degraded, clean, *tasks = batch
        measure = psnr_loss if self.settings.loss == "psnr" else picture_loss
        return measure(restored_pictures(network, degraded, self.settings.precision, *tasks), clean)

    def figures(self, network: nn.Module, held_out: HeldOutPairs) -> Figures:
        degraded, tasks = held_out.degraded, held_out.tasks
        return {
            name: picture_psnr(network, degraded[name], clean, tasks.get(name))
            for name, clean in held_out.clean.items()
        }

    def figures_before(self, held_out: HeldOutPairs) -> Figures:
        before = {name: middle_frames(held_out.degraded[name]) for name in held_out.clean}
        return {name: mean_psnr(before[name] / 255, clean / 255) for name, clean in held_out.clean.items()}


def middle_frames(pictures: Tensor) -> Tensor:
    """Return pictures (N, 3, H, W) as they are, of clips (N, frames, 3, H, W) the middle frames."""
    return pictures if pictures.dim() == 4 else pictures[:, pictures.shape[1] // 2]


class ClipObjective:
    """Small and large clips: Charbonnier's loss over all frames, as VSR-Transformer is trained."""

    kept: tuple[str, ...] = ("batch", "seed", "optimiser")

    def __init__(self, settings: ClipTrainingConfig) -> None:
        self.settings = settings
        self.parameters: dict[str, Any] = {"scale": SCALE}

    def measured(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out clips, {name}": {"psnr": psnr, "psnr_bicubic": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

    def begin(self, network: nn.Module) -> None:
        """A network enlarges bilinearly: its last convolution, whose result is added to that, is zero.

        Weights lie as the maps do, channels last.
        """
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = [part for part in cast("VsrTransformer", network).tail if isinstance(part, nn.Conv2d)][-1]
        for parameter in last.parameters():
            nn.init.zeros_(parameter)

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        rate = self.settings.learning_rate
        if self.settings.optimiser == "muon":
            model = cast("VsrTransformer", network)
            others = (model.flow, model.extractor[0], model.tail)  # what takes in and gives frames, and flow
            return Muon(
                network, rate, apart=[parameter for part in others if part for parameter in part.parameters()]
            )
        return torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, 0.99), fused=True)

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        small, large = batch
        return charbonnier(restored_pictures(network, small, self.settings.precision) - large)

    @torch.no_grad()
    def figures(self, network: nn.Module, held_out: HeldOutClips) -> Figures:
        device = next(network.parameters()).device
        restored = [network(clip[None].to(device) / 255)[0].clamp(0, 1).cpu() for clip in held_out.small]
        return {f"x{SCALE}": mean_psnr(torch.cat(restored), held_out.large.flatten(0, 1) / 255)}

    def figures_before(self, held_out: HeldOutClips) -> Figures:
        enlarged = imresize(held_out.small.flatten(0, 1) / 255, SCALE).clamp(0, 1)
        return {f"x{SCALE}": mean_psnr(enlarged, held_out.large.flatten(0, 1) / 255)}


class FlowObjective:
    """Frames and the flow between them: the distance of the vectors, in pixels of the frame, meant over the
    levels of the pyramid.

    Judged by how well real neighbours are warped onto each other.
    """

    kept: tuple[str, ...] = ("batch", "seed")

    def __init__(self, settings: ClipTrainingConfig) -> None:
        self.settings = settings
        self.parameters: dict[str, Any] = {}

    def measured(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out frames, {name}": {"psnr": psnr, "psnr_before": last["before"][name]}
            for name, psnr in last["psnr"].items()
        }

    def begin(self, network: nn.Module) -> None:
        """Every level looks at differences from the first step on; without that, nothing was learnt in 1,500
        steps.
        """
        for level in cast("Spynet", network).levels:
            see_differences(cast("nn.Sequential", level))

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(network.parameters(), lr=self.settings.learning_rate)

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        reference, supporting, flow = batch
        with in_precision(reference.device, self.settings.precision):
            found = cast("Spynet", network).flows(reference, supporting)
        distances = [flow_distance(level.float(), flow) for level in found]
        return torch.stack(distances).mean()

    @torch.no_grad()
    def figures(self, network: nn.Module, held_out: HeldOutFrames) -> Figures:
        device = next(network.parameters()).device
        reference, supporting = (
            frames.to(device) / 255 for frames in (held_out.reference, held_out.supporting)
        )
        return {
            "warped": mean_psnr(
                warp(supporting, network(reference, supporting), border="border").cpu(), reference.cpu()
            )
        }

    def figures_before(self, held_out: HeldOutFrames) -> Figures:
        return {"warped": mean_psnr(held_out.supporting / 255, held_out.reference / 255)}


def see_differences(level: nn.Sequential) -> None:
    """Begin with He's normal weights, and first filters of no mean, every second one the difference of the
    two frames.

    Neighbouring frames differ by far less than either varies, so filters drawn at random hardly answer to
    what moves. The last layer begins small: the flow of the coarser level is kept at first.
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


def flow_distance(found: Tensor, flow: Tensor) -> Tensor:
    """Mean length of the difference of flows (B, 2, h, w) and (B, 2, H, W), in pixels of the second, which is
    averaged down.
    """
    ratio = flow.shape[-1] / found.shape[-1]
    expected = F.interpolate(flow, found.shape[-2:], mode="area") / ratio
    distance: Tensor = (found - expected).square().sum(1).add(1e-4).sqrt()
    return ratio * distance.mean()


def objective_of(config: RunConfig, share: Share = WHOLE) -> Objective:
    """Return the objective of a configuration's data and training, for one process's share of batches."""
    data, settings = config.data, config.training
    if isinstance(settings, ClipTrainingConfig):
        return FlowObjective(settings) if isinstance(data, FlowDataConfig) else ClipObjective(settings)
    if isinstance(settings, PairTrainingConfig):
        return PairObjective(settings)
    assert isinstance(settings, TrainingConfig)
    return GroupObjective(settings, share)


class GroupNetwork(Protocol):
    """The methods that training needs of a network, beside those of nn.Module."""

    config: Any  # a dataclass with at least `patch`, the side of its patches

    def measure(self, patches: Tensor) -> Tensor:
        """Clean patches (B, T, N) -> what the network is given (B, T, M), before noise; a denoiser is given
        the patches themselves.
        """
        ...

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """The function (B, T, M) -> (B, T, N) at one noise level, products in `dtype`."""
        ...


def restored_groups(
    network: nn.Module,
    clean: Tensor,
    sigma: float,
    seed: int,
    precision: str,
    share: Share = WHOLE,
    *,
    clip_noise: bool = True,
) -> Tensor:
    """Clean groups (B, T, N) on the 0-255 scale, degraded and restored: a share of them (B', T, N) float32,
    with gradients.

    The noise follows from the seed (and the kind of device). With `clip_noise` noisy patches are clipped and
    rounded, as a video file holds them; on the measurements of compressed sensing noise stays as drawn.
    """
    form = cast("GroupNetwork", network)
    measured = form.measure(clean)
    generator = torch.Generator(clean.device).manual_seed(seed)
    noisy = (
        add_gaussian_noise(measured, sigma, generator, clip_and_round=clip_noise and measured is clean)
        if sigma
        else measured
    )
    return form.at(sigma, DTYPES[precision], PlainLinear)(noisy[share.of(len(noisy))])


def batch_loss(
    network: nn.Module,
    clean: Tensor,
    sigma: float,
    seed: int,
    precision: str,
    share: Share = WHOLE,
    *,
    clip_noise: bool = True,
) -> Tensor:
    """Mean squared error of the restored groups, in grey levels; with noise weighted so that every level
    counts alike.
    """
    restored = restored_groups(network, clean, sigma, seed, precision, share, clip_noise=clip_noise)
    error = (restored - clean[share.of(len(clean))]).square().mean()
    return error / sigma**LOSS_POWER if sigma else error


@torch.no_grad()
def group_psnr(
    network: nn.Module, groups: Tensor, sigma: float, precision: str, *, clip_noise: bool = True
) -> float:
    """PSNR (dB) over all of the (P, T, N) groups together, with the same noise each time; computed where the
    network is.
    """
    device = next(network.parameters()).device
    squares, count = 0.0, 0
    for index, part in enumerate(groups.split(CHUNK)):
        clean = part.to(device).float()
        restored = restored_groups(network, clean, sigma, index, precision, clip_noise=clip_noise).clamp(
            0, 255
        )
        squares += float((restored - clean).square().double().sum())
        count += clean.numel()
    return 10 * math.log10(255**2 * count / squares) if squares else math.inf


def validation_sigmas(trained: tuple[float, ...]) -> tuple[float, ...]:
    """The noise levels to judge at: the one, or the usual ones within a range, or its geometric middle where
    there are none.
    """
    low, high = trained[0], trained[-1]
    usual = tuple(sigma for sigma in VALIDATION_SIGMAS if low <= sigma <= high) if low < high else (low,)
    return usual or (min(max(float(f"{math.sqrt(low * high):.3g}"), low), high),)


def restored_pictures(network: nn.Module, degraded: Tensor, precision: str, *tasks: Tensor) -> Tensor:
    """Return pictures (B, 3, H, W) or clips (B, T, 3, H, W) in [0, 1] after the network: float32, not
    clamped.

    A network with tasks takes the indices of theirs (B,).
    """
    with in_precision(degraded.device, precision):
        restored: Tensor = network(degraded, *tasks)
    return restored.float()


def in_precision(device: torch.device, precision: str) -> torch.autocast:
    """Products inside are done in half precision where that is asked for."""
    return torch.autocast(
        device.type, DTYPES["bf16" if precision == "fp32" else precision], enabled=precision != "fp32"
    )


def charbonnier(error: Tensor) -> Tensor:
    """Mean of sqrt(error^2 + 1e-12), as the release of VSR-Transformer has it but for the mean, which doesn't
    grow with the crop.
    """
    return (error.square() + 1e-12).sqrt().mean()


def picture_loss(restored: Tensor, clean: Tensor) -> Tensor:
    """Mean absolute error of the samples, plus 0.1 times that of the real and imaginary parts of their
    spectra (MB-TaylorFormer V2).
    """
    error = restored - clean
    # a difference of spectra is the spectrum of the difference
    spectrum = torch.view_as_real(torch.fft.fft2(error))
    return error.abs().mean() + SPECTRUM_WEIGHT * spectrum.abs().mean()


def psnr_loss(restored: Tensor, clean: Tensor) -> Tensor:
    """Return the mean over crops of log(squared error + LEAST_ERROR): PSNR in other units and the other way
    up.
    """
    return ((restored - clean).square().mean((1, 2, 3)) + LEAST_ERROR).log().mean()


@torch.no_grad()
def picture_psnr(network: nn.Module, degraded: Tensor, clean: Tensor, task: int | None = None) -> float:
    """Mean PSNR (dB) over pictures (N, 3, H, W) uint8, or middle frames of clips, restored one by one where
    the network is.

    All are of one task, given by its index if the network has tasks.
    """
    device = next(network.parameters()).device
    tasks = [] if task is None else [torch.tensor([task], device=device)]
    restored = [network(picture[None].to(device) / 255, *tasks).clamp(0, 1).cpu() for picture in degraded]
    return mean_psnr(torch.cat(restored), clean / 255)


def mean_psnr(pictures: Tensor, reference: Tensor) -> float:
    """Mean over pictures (N, 3, H, W) in [0, 1] of the PSNR (dB) of each; an equal one counts as 100 dB."""
    squared = (pictures.double() - reference.double()).square().mean((1, 2, 3)).clamp(min=1e-10)
    return float((-10 * squared.log10()).mean())
