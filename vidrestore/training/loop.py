"""The training loop: batches, optimiser, average of the weights, held-out figures, checkpoints to resume from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from vidrestore.degrade import add_gaussian_noise
from vidrestore.errors import ConfigError
from vidrestore.models.dust import Dust
from vidrestore.models.dust_family import config_of
from vidrestore.models.dust_sigma import SigmaDust
from vidrestore.models.linear import PlainLinear
from vidrestore.training.config import RunConfig, TrainingConfig
from vidrestore.training.footage import CLIP_SUFFIXES, STILL_SUFFIXES, Footage, find_footage
from vidrestore.training.groups import GroupPool
from vidrestore.weights.checkpoint import build_network, load_network, read_card, save_model

FRAMES = 20  # tokens of a group, the paper's clip length
AVERAGE = 0.999  # decay of the running average of the weights, which is what is validated and saved
LOSS_POWER = 1.3  # errors grow about so with sigma: dividing by sigma ** 1.3 gives every level about the same say
VALIDATION_SIGMAS = (5.0, 20.0, 50.0)
VALIDATION_GROUPS = 1200
Network = Dust | SigmaDust
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass
class Progress:
    """What a listener is told at each validation: step, seconds in all, loss since the last, held-out PSNR by sigma."""

    step: int
    seconds: float
    loss: float
    psnr: dict[float, float] = field(default_factory=dict)


def train(
    config: RunConfig,
    output: Path,
    *,
    resume: bool = False,
    init: Path | None = None,
    listen: Callable[[Progress], None] | None = None,
) -> Path:
    """Train as the configuration says and write `<output>/<name>.safetensors`; returns its path.

    A checkpoint stands beside it every few minutes; with `resume` the run goes on from there. `init` starts from other weights.
    Raises ConfigError for data that isn't there, CheckpointError for weights that don't fit.
    """
    run = Run(config, output, init)
    if resume:
        run.load_checkpoint()
    run.go(listen or (lambda progress: None))
    return run.save_weights()


class Run:
    """State of one training run."""

    def __init__(self, config: RunConfig, output: Path, init: Path | None) -> None:
        self.config, self.output = config, output
        torch.manual_seed(config.seed)
        self.network = _network(config, init)
        self.average = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=config.training.learning_rate, betas=(0.9, 0.99))
        self.step, self.seconds = 0, 0.0
        self.curve: list[dict[str, Any]] = []
        output.mkdir(parents=True, exist_ok=True)

    @property
    def checkpoint(self) -> Path:
        return self.output / f"{self.config.name}.checkpoint"

    def go(self, listen: Callable[[Progress], None]) -> None:
        settings = self.config.training
        pool, held_out = make_pools(self.config, seed=self.config.seed + self.step)
        saved = began = time.monotonic()
        losses: list[float] = []
        before = self.seconds
        while self.step < settings.steps:
            losses.append(self._train_step(pool))
            self.step += 1
            self.seconds = before + time.monotonic() - began
            if self.step % settings.validate_every == 0 or self.step == settings.steps:
                listen(self._validate(held_out, losses))
                losses.clear()
            if time.monotonic() - saved > 60 * settings.checkpoint_minutes:
                self.save_checkpoint()
                saved = time.monotonic()
        self.save_checkpoint()

    def _train_step(self, pool: GroupPool) -> float:
        settings = self.config.training
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.step, settings)
        clean, sigma = pool.batch(settings.batch)
        noise_seed = (self.config.seed << 32) + self.step
        loss = batch_loss(self.network, clean, sigma, noise_seed, settings.precision)
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip_norm)
        self.optimiser.step()
        decay = min(AVERAGE, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, tensor in self.network.state_dict().items():
                self.average[name].lerp_(tensor, 1 - decay)
        return float(loss.detach())

    def _averaged(self) -> Network:
        network = build_network(self.config.family, self.config.model)
        network.load_state_dict(self.average)
        return cast("Network", network.eval())

    def _validate(self, held_out: Tensor, losses: list[float]) -> Progress:
        network, settings = self._averaged(), self.config.training
        sigmas = VALIDATION_SIGMAS if len(settings.sigma) == 2 else settings.sigma
        figures = {sigma: group_psnr(network, held_out, sigma, settings.precision) for sigma in sigmas}
        self.curve.append({"step": self.step, "seconds": round(self.seconds), "psnr": {f"{s:g}": round(p, 3) for s, p in figures.items()}})
        return Progress(self.step, self.seconds, sum(losses) / max(len(losses), 1), figures)

    def save_checkpoint(self) -> None:
        """Everything a resumed run needs, written beside the old one and moved over it."""
        state = {
            "network": self.network.state_dict(),
            "average": self.average,
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "curve": self.curve,
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def load_checkpoint(self) -> None:
        if not self.checkpoint.exists():
            return
        state = torch.load(self.checkpoint, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.average = state["average"]
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]

    def save_weights(self) -> Path:
        path = self.output / f"{self.config.name}.safetensors"
        network = self._averaged()
        training = {"config": self.config.name, "steps": self.step, "seconds": round(self.seconds), "curve": self.curve[-40:]}
        parameters = {"sigma": list(self.config.training.sigma)}
        save_model(
            path,
            network,
            family=self.config.family,
            config=config_of(network),
            task=self.config.task,
            parameters=parameters,
            extra={"training": training},
            half=True,
        )
        return path


def _network(config: RunConfig, init: Path | None) -> Network:
    network = build_network(config.family, config.model)
    if init is not None:
        network.load_state_dict(load_network(init, read_card(init)).state_dict())
    return cast("Network", network.train())


def make_pools(config: RunConfig, seed: int) -> tuple[GroupPool, Tensor]:
    """The pool to train on, begun, and (P, T, N) held-out groups, the same for every run of a configuration."""
    data, patch = config.data, config.model.get("patch", 16)
    clips = find_footage(config.folder / data.clips, data.validation, CLIP_SUFFIXES)
    stills = find_footage(config.folder / data.stills, (), STILL_SUFFIXES) if data.stills else []
    held_out = [config.folder / data.clips / name for name in data.validation]
    if missing := [path.name for path in held_out if not path.exists()]:
        raise ConfigError(f"{config.folder / data.clips}: no {', '.join(missing)}, named in data.validation")
    pool = GroupPool(Footage(clips, stills, FRAMES, data.still_share), data, config.training.sigma, patch, seed)
    pool.fill(data.pool // 4)
    judged = GroupPool(Footage(held_out or clips, [], FRAMES, 0), data, (20.0,), patch, seed=1)
    judged.fill(VALIDATION_GROUPS)
    return pool, judged.groups[:VALIDATION_GROUPS]


def learning_rate(step: int, settings: TrainingConfig) -> float:
    """Linear warm-up, a plateau, then half a cosine down to 1 %."""
    falling = settings.steps * settings.decay
    left = (settings.steps - step) / falling if falling else 1.0
    fall = 1.0 if left >= 1 else 0.01 + 0.99 * 0.5 * (1 - math.cos(math.pi * left))
    return settings.learning_rate * min(1.0, (step + 1) / max(settings.warmup, 1)) * fall


def batch_loss(network: Network, clean: Tensor, sigma: float, seed: int, precision: str) -> Tensor:
    """Mean squared error of the restored groups; for denoising weighted so that every noise level counts alike."""
    if isinstance(network, Dust) and network.config.measurements is not None:
        restored = network.fast(DTYPES[precision], PlainLinear)(network.measure(clean))
        return (restored - clean).square().mean()
    noisy = add_gaussian_noise(clean, sigma, seed)
    return (restored_groups(network, noisy, sigma, precision) - clean).square().mean() / sigma**LOSS_POWER


def restored_groups(network: Network, noisy: Tensor, sigma: float, precision: str) -> Tensor:
    """(B, T, N) noisy groups -> restored ones, with gradients."""
    dtype = DTYPES[precision]
    form = network.at(sigma, dtype, PlainLinear) if isinstance(network, SigmaDust) else network.fast(dtype, PlainLinear)
    restored: Tensor = form(noisy)
    return restored


@torch.no_grad()
def group_psnr(network: Network, groups: Tensor, sigma: float, precision: str) -> float:
    """PSNR (dB) over all held-out patches, with the same noise each time."""
    errors = []
    for index, part in enumerate(groups.split(200)):
        clean = part.float()
        if isinstance(network, Dust) and network.config.measurements is not None:
            restored = network.fast(DTYPES[precision])(network.measure(clean))
        else:
            restored = restored_groups(network, add_gaussian_noise(clean, sigma, index), sigma, precision)
        errors.append((restored.clamp(0, 255) - clean).square().mean((1, 2)))
    return 10 * math.log10(255**2 / float(torch.cat(errors).mean()))
