"""Objectives: the loss functions, the optimiser and the validation metrics of each kind of training.

Groups of patches are measured or made noisy, pictures and clips are degraded, and networks recover them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from vidrestore.errors import ConfigError
from vidrestore.lab.degrade import add_gaussian_noise, imresize
from vidrestore.lab.run_config import (
    ClipDataConfig,
    ClipSetConfig,
    ClipTrainingConfig,
    PairDataConfig,
    PairSetConfig,
    PairTrainingConfig,
    RunConfig,
    TrainingConfig,
)
from vidrestore.lab.training.data.batches import WHOLE_BATCH, BatchSource, Share
from vidrestore.lab.training.data.footage import back_and_forth
from vidrestore.lab.training.data.pairs import (
    HeldOutPairs,
    HeldOutPictures,
    task_indices,
)
from vidrestore.lab.training.data.super_resolution import HeldOutClips
from vidrestore.lab.training_events import Metrics
from vidrestore.models.dust import Dust
from vidrestore.models.fast_linear import PlainLinear
from vidrestore.models.grouping import GroupNetwork
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.models.scattering import without_haze
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.restorers.base import PictureForm
from vidrestore.settings.families import load


class Objective(ABC):
    """The training of one kind of network with a run's settings, for one process's share of the batches."""

    # may not change when a run is resumed
    fixed_settings: tuple[str, ...] = ("batch", "seed")
    measured, baseline = "crops", "psnr_before"  # names on the card of the weights

    def __init__(self, settings: Any, share: Share = WHOLE_BATCH) -> None:
        self.settings = settings
        self.share = share

    def parameters(self, network: nn.Module) -> dict[str, Any]:
        """Return the parameters of the task for the card of the weights, unless they are configured."""
        return {}

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        """Return the last point of the validation curve as metrics for the card of the weights."""
        return {
            f"held-out {self.measured}, {name}": {
                "psnr": psnr,
                self.baseline: last["before"][name],
            }
            for name, psnr in last["psnr"].items()
        }

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return a new optimiser for all parameters."""
        rate = self.settings.learning_rate
        return torch.optim.Adam(
            network.parameters(), lr=rate, betas=self.settings.betas, fused=True
        )

    @abstractmethod
    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        """Return the loss of one batch of the run's data, on the network's device."""

    def parts(
        self, batch: tuple[Any, ...], count: int
    ) -> Iterator[tuple[Objective, tuple[Any, ...]]]:
        """Yield `count` equal parts of a batch, each with its objective; the mean of their losses is the
        batch's.
        """
        for number in range(count):
            share = Share(number, count)
            part = (
                value[share.of(len(value))] if isinstance(value, Tensor) else value
                for value in batch
            )
            yield self, tuple(part)

    @abstractmethod
    def metrics(self, network: nn.Module, held_out: Any) -> Metrics:
        """Return PSNR (dB) on held-out data, by sigma or degradation."""

    def metrics_before(self, held_out: Any) -> Metrics:
        """Return the same metrics of the network's input; empty if that is not a picture."""
        return {}

    def measure(
        self,
        network: nn.Module,
        held_out: Any,
        average: Callable[[list[Tensor]], None] = lambda sums: None,
    ) -> tuple[Metrics, Metrics]:
        """Return the metrics after and before a network; of whole pictures, those of all processes, whose
        sums `average` replaces by their means.
        """
        # whole pictures are shared by the processes, all else each measures itself
        if not isinstance(held_out, HeldOutPictures):
            return self.metrics(network, held_out), self.metrics_before(held_out)
        device = next(network.parameters()).device
        sums = held_out.sums(partial(whole_picture, network), self.share).to(device)
        average([sums])
        return held_out.means(sums.cpu())

    def check(self, config: RunConfig, network: nn.Module) -> None:
        """Raise ConfigError if the network can't take the data of a configuration."""
        return

    def start(self, networks: Iterable[nn.Module], source: BatchSource) -> None:
        """Initialise the networks of a new run by the data, if its settings ask for that."""
        return


class GroupObjective(Objective):
    """Groups of patches with noise: the weighted squared error of `batch_loss`."""

    fixed_settings = ("sigma", "clip_noise", *Objective.fixed_settings)
    settings: TrainingConfig

    def parameters(self, network: nn.Module) -> dict[str, Any]:
        """Return the range of sigma and, if patches are measured, the CS rate that they are measured at."""
        rate = sensing_rate(network)
        if rate is None:
            return {"sigma": list(self.settings.sigma)}
        noise = {"sigma": list(self.settings.sigma)} if any(self.settings.sigma) else {}
        return {"rate": round(rate, CARD_RATE_DIGITS)} | noise

    def check(self, config: RunConfig, network: nn.Module) -> None:
        # a rate in [parameters] must be that of the measurements
        rate = sensing_rate(network)
        stated = config.parameters.get("rate")
        if (
            rate is not None
            and stated is not None
            and abs(stated - rate) > 0.5 * 10**-CARD_RATE_DIGITS
        ):
            raise ConfigError(
                f"{config.path}: [parameters] rate is {stated:g}, but model.measurements is a rate of "
                f"{rate:.{CARD_RATE_DIGITS}g}; remove it: the card follows the measurements"
            )
        if self.settings.sensing == "principal" and (
            rate is None or not isinstance(network, Dust)
        ):
            raise ConfigError(
                f'{config.path}: training.sensing = "principal" is for DUST with [model] measurements; '
                "remove it"
            )

    def start(self, networks: Iterable[nn.Module], source: BatchSource) -> None:
        """Set the sensing matrix to the principal components of the data, if that is asked for."""
        if self.settings.sensing == "glorot":
            return
        batches = (
            source.batch(step, self.settings.batch)[0] for step in STARTING_STEPS
        )
        groups = torch.cat([batch[:, ::STARTING_STRIDE].double() for batch in batches])
        for network in networks:
            dust = cast("Dust", network)
            dust.set_sensing(
                principal_components(groups, len(dust.sensing), self.settings).to(
                    dust.sensing
                )
            )

    def card_metrics(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            f"held-out groups, sigma {sigma}": {"psnr": psnr}
            for sigma, psnr in last["psnr"].items()
        }

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        clean, sigma = batch
        seed = (self.settings.seed << 32) + step
        return batch_loss(network, clean, sigma, seed, self.settings, self.share)

    def parts(
        self, batch: tuple[Any, ...], count: int
    ) -> Iterator[tuple[Objective, tuple[Any, ...]]]:
        """Yield the whole batch with smaller shares, since the noise is that of the whole."""
        first = self.share.rank * count
        processes = self.share.count
        for number in range(count):
            yield (
                type(self)(self.settings, Share(first + number, processes * count)),
                batch,
            )

    def metrics(self, network: nn.Module, held_out: Tensor) -> Metrics:
        sigmas = validation_sigmas(self.settings.sigma)
        return {
            sigma: group_psnr(network, held_out, sigma, self.settings)
            for sigma in sigmas
        }


class PairObjective(Objective):
    """Degraded and clean pictures: `picture_loss` or `psnr_loss`, by AdamW as in MB-TaylorFormer V2."""

    settings: PairTrainingConfig

    def optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        rate = self.settings.learning_rate
        decay = self.settings.weight_decay
        betas = self.settings.betas
        parameters = network.parameters()
        return torch.optim.AdamW(
            parameters, lr=rate, betas=betas, weight_decay=decay, fused=True
        )

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        # haze is found, all else is removed
        degraded, clean, *tasks = batch
        if clean.shape[1] > degraded.shape[-3]:
            return haze_loss(network, degraded, clean, self.settings)
        restored = restored_pictures(network, degraded, self.settings.precision, *tasks)
        if self.settings.loss == "psnr":
            return psnr_loss(restored, clean, self.settings.least_error)
        return picture_loss(restored, clean)

    def check(self, config: RunConfig, network: nn.Module) -> None:
        # frames, tasks and crops must be those that the network takes
        data = config.data
        form = PictureForm.of(network)
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
        if (
            isinstance(data, PairDataConfig | PairSetConfig)
            and data.crop % form.multiple
        ):
            raise ConfigError(
                f"{config.path}: data.crop must be a multiple of {form.multiple} for this [model], found "
                f"{data.crop}"
            )

    def metrics(self, network: nn.Module, held_out: HeldOutPairs) -> Metrics:
        degraded = held_out.degraded
        tasks = held_out.tasks
        return {
            name: picture_psnr(network, degraded[name], clean, tasks.get(name))
            for name, clean in held_out.clean.items()
        }

    def metrics_before(self, held_out: HeldOutPairs) -> Metrics:
        metrics: Metrics = {}
        for name, clean in held_out.clean.items():
            before = held_out.degraded[name]
            # of clips
            middle = before if before.dim() == 4 else before[:, before.shape[1] // 2]
            metrics[name] = mean_psnr(middle / 255, clean / 255)
        return metrics


class ClipObjective(Objective):
    """Clips at low and high resolution: VSR-Transformer's Charbonnier loss, or `psnr_loss` of each frame."""

    measured, baseline = "clips", "psnr_bicubic"
    settings: ClipTrainingConfig

    def parameters(self, network: nn.Module) -> dict[str, Any]:
        return {"scale": SCALE}

    def loss(self, network: nn.Module, batch: tuple[Any, ...], step: int) -> Tensor:
        small, large = batch
        restored = restored_pictures(network, small, self.settings.precision)
        if self.settings.loss == "psnr":
            return psnr_loss(restored.flatten(0, 1), large.flatten(0, 1))
        return charbonnier(restored - large)

    def check(self, config: RunConfig, network: nn.Module) -> None:
        data = config.data
        # networks of clips know which sizes they take
        check_size = getattr(network, "check_size", None)
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
        restored = [
            network(clip[None].to(device) / 255)[0].clamp(0, 1).cpu()
            for clip in held_out.small
        ]
        return {
            f"x{SCALE}": mean_psnr(
                torch.cat(restored), held_out.large.flatten(0, 1) / 255
            )
        }

    def metrics_before(self, held_out: HeldOutClips) -> Metrics:
        enlarged = imresize(held_out.small.flatten(0, 1) / 255, SCALE).clamp(0, 1)
        return {f"x{SCALE}": mean_psnr(enlarged, held_out.large.flatten(0, 1) / 255)}


def objective_of(config: RunConfig, share: Share = WHOLE_BATCH) -> Objective:
    """Return the objective of a configuration, for one process's share of the batches."""
    objective: Objective = load(config.kind.objective)(config.training, share)
    if isinstance(config.data, PairSetConfig):
        objective.measured = "pictures"
    return objective


# The squared error grows about as sigma ** 1.3; divided by that, every level has about the same weight.
LOSS_POWER = 1.3
GROUPS_AT_ONCE = 200  # groups validated at once
# grey levels squared, 43 dB; groups with a smaller one have less weight in "psnr"
LEAST_GROUP_ERROR = 3.0
# principal components: the steps whose batches are taken, every how many frames, rounds of weighting groups
STARTING_STEPS, STARTING_STRIDE, STARTING_ROUNDS = range(0, 6400, 100), 5, 5
CARD_RATE_DIGITS = 2  # of a CS rate on a card: 51 of 256 measurements are 0.2
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
# squared error in [0, 1], 30 dB; crops with a smaller one have less weight in `psnr_loss`
LEAST_SQUARED_ERROR = 1e-3
SPECTRUM_WEIGHT = 0.1  # weight of the spectra's error in `picture_loss`
# in `haze_loss`; where haze is thick, gradients by the scene are steep and noisy
SCENE_WEIGHT = 0.05
LEAST_AIRLIGHT = 0.02  # light; darker haze counts as this
# dB; held-out pictures count as at most this, beyond which no difference is visible
MOST_COUNTED_PSNR = 50.0
VALIDATION_SIGMAS = (5.0, 20.0, 50.0)


def sensing_rate(network: nn.Module) -> float | None:
    """Return the CS rate M / N of a network that measures patches, or None."""
    config = cast("GroupNetwork", network).config
    measurements = getattr(config, "measurements", None)
    return measurements / config.patch**2 if measurements else None


def restored_groups(
    network: nn.Module,
    clean: Tensor,
    sigma: float,
    seed: int,
    settings: TrainingConfig,
    share: Share = WHOLE_BATCH,
) -> Tensor:
    """Degrade and restore clean groups (B, T, N) on the 0-255 scale; return a share (B', T, N), float32.

    The noise depends on `seed` alone (and on the kind of device). With `clip_noise` noisy patches are
    clipped and rounded as in a video file; measurements are not.
    """
    # the noise is that of the whole batch, the network sees a share of it
    group_network = cast("GroupNetwork", network)
    noisy = measured = group_network.measure(clean)
    clip_and_round = settings.clip_noise and measured is clean
    if sigma:
        generator = torch.Generator(clean.device).manual_seed(seed)
        noisy = add_gaussian_noise(
            measured, sigma, generator, clip_and_round=clip_and_round
        )
    return group_network.at(sigma, DTYPES[settings.precision], PlainLinear)(
        noisy[share.of(len(noisy))]
    )


def batch_loss(
    network: nn.Module,
    clean: Tensor,
    sigma: float,
    seed: int,
    settings: TrainingConfig,
    share: Share = WHOLE_BATCH,
) -> Tensor:
    """Return the mean squared error of the restored groups, in grey levels, or with the loss "psnr" the mean
    of its logarithm; with noise, weighted so that levels count alike. `seed` is that of the noise.
    """
    restored = restored_groups(network, clean, sigma, seed, settings, share)
    squares = (restored - clean[share.of(len(clean))]).square()
    if settings.loss == "psnr":
        logarithm: Tensor = (squares.mean((1, 2)) + LEAST_GROUP_ERROR).log().mean()
        return logarithm
    error = squares.mean()
    return error / sigma**LOSS_POWER if sigma else error


def principal_components(
    groups: Tensor, count: int, settings: TrainingConfig
) -> Tensor:
    """Return the (count, N) orthonormal rows A with the least loss of A^T A s for patches s of groups
    (P, T, N).
    """
    weights = groups.new_ones(len(groups))
    for _ in range(STARTING_ROUNDS if settings.loss == "psnr" else 1):
        patches = (groups * weights.sqrt()[:, None, None]).flatten(0, 1)
        # the strongest last
        vectors: Tensor = torch.linalg.eigh(patches.mT @ patches).eigenvectors
        rows = vectors[:, -count:].flip(1).mT
        rest = groups - groups @ rows.mT @ rows
        # the derivative of the loss
        weights = 1 / (rest.square().mean((1, 2)) + LEAST_GROUP_ERROR)
    return rows


@torch.no_grad()
def group_psnr(
    network: nn.Module, groups: Tensor, sigma: float, settings: TrainingConfig
) -> float:
    """Return the PSNR (dB) over all (P, T, N) groups, with the same noise every time."""
    # the sum over all groups, so that parts of any size give the same
    device = next(network.parameters()).device
    squares, count = 0.0, 0
    for index, part in enumerate(groups.split(GROUPS_AT_ONCE)):
        clean = part.to(device).float()
        restored = restored_groups(network, clean, sigma, index, settings).clamp(0, 255)
        squares += float((restored - clean).square().double().sum())
        count += clean.numel()
    return 10 * math.log10(255**2 * count / squares) if squares else math.inf


def validation_sigmas(sigmas: tuple[float, ...]) -> tuple[float, ...]:
    """Return the levels to validate at: the single one trained, or the usual ones in the range, or its
    geometric mean if there are none.
    """
    # the usual levels that the training covers
    low = sigmas[0]
    high = sigmas[-1]
    levels = (
        tuple(sigma for sigma in VALIDATION_SIGMAS if low <= sigma <= high)
        if low < high
        else (low,)
    )
    return levels or (min(max(float(f"{math.sqrt(low * high):.3g}"), low), high),)


def restored_pictures(
    network: nn.Module, degraded: Tensor, precision: str, *tasks: Tensor
) -> Tensor:
    """Return pictures (B, 3, H, W) or clips (B, T, 3, H, W) in [0, 1] after the network: float32, not
    clamped. A network with tasks takes their indices (B,).
    """
    with in_precision(degraded.device, precision):
        restored: Tensor = network(degraded, *tasks)
    return restored.float()


def in_precision(device: torch.device, precision: str) -> torch.autocast:
    """Return an autocast context for bf16, which is disabled for fp32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def charbonnier(error: Tensor) -> Tensor:
    """Return the mean of sqrt(error^2 + 1e-12); the release's sum grows with a crop."""
    return (error.square() + 1e-12).sqrt().mean()


def picture_loss(restored: Tensor, clean: Tensor) -> Tensor:
    """Return MB-TaylorFormer V2's loss: the mean absolute error, and a tenth of that of the spectra."""
    error = restored - clean
    # the difference of the spectra is the spectrum of the difference
    spectrum = torch.view_as_real(torch.fft.fft2(error))
    return error.abs().mean() + SPECTRUM_WEIGHT * spectrum.abs().mean()


def psnr_loss(
    restored: Tensor, clean: Tensor, least_error: float = LEAST_SQUARED_ERROR
) -> Tensor:
    """Return the mean over crops of log(squared error + `least_error`), which falls as PSNR rises."""
    return ((restored - clean).square().mean((1, 2, 3)) + least_error).log().mean()


def haze_loss(
    network: nn.Module, hazy: Tensor, truth: Tensor, settings: PairTrainingConfig
) -> Tensor:
    """Return the loss of a network that finds haze, on pictures and truth as of `pairs.PairSource.batch`.

    These are the mean errors of the transmission, of its square root, and of the airlight's logarithm,
    weighted by its visibility, and a little of `psnr_loss` of the scenes: with that alone a network learns to
    remove too little haze, since errors of the airlight are amplified where it is thick.
    """
    # the air, the scene behind it, and how much of it is seen
    clean, depth, airlight = truth.split((3, 1, 3), 1)
    with in_precision(hazy.device, settings.precision):
        haze = cast("MBTaylorFormer", network).scattering(hazy)
    scenes = psnr_loss(without_haze(hazy, haze), clean, settings.least_error)
    opacity = 1 - (-depth).exp()
    errors = []
    for power in (0.5, 1.0):
        difference = (-power * haze.depth).exp() - (-power * depth).exp()
        errors.append(difference.abs().mean())
    colours = (haze.airlight.log() - airlight.clamp(min=LEAST_AIRLIGHT).log()).abs()
    loss: Tensor = (
        errors[0] + errors[1] + (opacity * colours).mean() + SCENE_WEIGHT * scenes
    )
    return loss


@torch.no_grad()
def picture_psnr(
    network: nn.Module, degraded: Tensor, clean: Tensor, task: int | None = None
) -> float:
    """Return the mean PSNR (dB) over pictures (N, 3, H, W) uint8, or clips' middle frames, restored one by
    one, all for the same task, by its index if the network has tasks.
    """
    device = next(network.parameters()).device
    tasks = [] if task is None else [torch.tensor([task], device=device)]
    restored = [
        network(picture[None].to(device) / 255, *tasks).clamp(0, 1).cpu()
        for picture in degraded
    ]
    return mean_psnr(torch.cat(restored), clean / 255)


@torch.no_grad()
def whole_picture(network: nn.Module, picture: Tensor) -> Tensor:
    """Return a picture (3, H, W) in [0, 1] after the network, reflected at the right and bottom to sides that
    the network takes, as in the papers' tables.
    """
    # reflected to the multiple, then cut to its size again
    height, width = picture.shape[1:]
    multiple = PictureForm.of(network).multiple
    indices = []
    for side in (height, width):
        length = -(-side // multiple) * multiple
        indices.append(torch.from_numpy(back_and_forth(np.arange(length), side)))
    rows, columns = indices
    padded = picture[:, rows][:, :, columns].to(next(network.parameters()).device)
    restored: Tensor = network(padded[None])[0]
    return restored[:, :height, :width].float().cpu()


def mean_psnr(pictures: Tensor, reference: Tensor) -> float:
    """Return the mean PSNR (dB) over pictures (N, 3, H, W) in [0, 1], each counted as at most
    MOST_COUNTED_PSNR, so that a crop that needed no restoration doesn't outweigh the others.
    """
    # few pictures without any error would outweigh all others
    squared = (pictures.double() - reference.double()).square().mean((1, 2, 3))
    squared = squared.clamp(min=10 ** (-MOST_COUNTED_PSNR / 10))
    return float((-10 * squared.log10()).mean())
