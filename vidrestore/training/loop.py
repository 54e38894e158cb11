"""The training loop: batches, optimiser, average of the weights, held-out figures, checkpoints to resume from."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from vidrestore.engine.devices import torch_device
from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.training.config import RunConfig, Schedule
from vidrestore.training.interrupts import interrupts_held
from vidrestore.training.networks import full_model, new_network, take_over
from vidrestore.training.objective import Figures, GroupNetwork, objective_of
from vidrestore.training.sources import make_data
from vidrestore.weights.checkpoint import save_model

AVERAGE = 0.999  # decay of the running average of the weights, which is what is validated and saved


@dataclass(frozen=True)
class Began:
    """A run begins at `step`: anew, or from `checkpoint`."""

    step: int
    steps: int
    device: str
    checkpoint: Path | None


@dataclass(frozen=True)
class Progress:
    """A validation: seconds of training in all, mean loss since the last one (or since the run was resumed), held-out PSNR.

    That is in dB by sigma, or by degradation, with the PSNR of what the network was given in `before`.
    """

    step: int
    seconds: float
    loss: float
    psnr: Figures
    before: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class Interrupted:
    """Ctrl-C: everything up to `step` is in `checkpoint`."""

    step: int
    checkpoint: Path


Listener = Callable[[Began | Progress | Interrupted], None]


def train(
    config: RunConfig,
    output: Path,
    *,
    resume: bool = False,
    init: str | Path | None = None,
    device: str = "auto",
    listen: Listener = lambda event: None,
) -> Path:
    """Train as the configuration says and write `<output>/<name>.safetensors`, the averaged network; returns its path.

    A checkpoint stands beside it every few minutes, and when the run is interrupted. With `resume` the run goes on from there, or begins
    anew where there is none. Batches and noise follow from the seed and the step, so a resumed run computes what it would have computed;
    only the loss that is reported next is a mean over fewer steps, and a GPU's sums may differ in their last bits from run to run.
    It first makes the windows of that step again, which takes a minute or so.

    `init` (a name or file of weights of the same network) is where a new run starts; a resumed one has its own.

    Raises ConfigError for data that isn't there, for a checkpoint of another run or one that would be overwritten, and when training
    diverges; CheckpointError for weights that don't fit; OptionError for a device that isn't there; KeyboardInterrupt after Ctrl-C.
    """
    run = Run(config, output, torch_device(device))
    resumes = run.checkpoint.exists()
    if resumes and not resume:
        raise ConfigError(f"{run.checkpoint}: holds an earlier run; go on with --resume, choose another --output, or remove it")
    if resumes:
        run.load_checkpoint()
    elif init is not None:
        run.start_from(init)
    listen(Began(run.step, config.training.steps, str(run.device), run.checkpoint if resumes else None))
    run.go(listen)
    return run.save_weights()


class Run:
    """State of one training run: the network, the average of its weights, the optimiser, and how far it is.

    Raises ConfigError for a model that can't be built and an output folder that can't be made.
    """

    def __init__(self, config: RunConfig, output: Path, device: torch.device) -> None:
        self.config, self.output, self.device = config, output, device
        self.objective = objective_of(config)
        self.network = new_network(config).to(device)
        self.objective.begin(self.network)
        self.architecture = cast("GroupNetwork", self.network).config
        self.average = copy.deepcopy(self.network).eval()
        self.optimiser = self.objective.optimiser(self.network)
        self.step, self.seconds = 0, 0.0
        self.curve: list[dict[str, Any]] = []
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{output}: can't be made a folder ({error.strerror}); choose another --output") from error

    @property
    def checkpoint(self) -> Path:
        return self.output / f"{self.config.name}.checkpoint"

    @property
    def model(self) -> dict[str, Any]:
        """The network's configuration in full, defaults included: what builds it again."""
        return full_model(self.config, self.network)

    def start_from(self, source: str | Path) -> None:
        """Take over other weights. Raises CheckpointError as `take_over` does."""
        take_over(self.config, (self.network, self.average), source)

    def go(self, listen: Listener) -> None:
        """Train to the last step; a checkpoint is saved now and then, at the end, and on KeyboardInterrupt, which is raised again."""
        settings = self.config.training
        if self.step >= settings.steps:
            return
        source, held_out = make_data(self.config, self.architecture)
        source.batch(self.step, settings.batch)  # what takes long for the first one is not training
        saved = time.monotonic()
        began = saved - self.seconds
        losses: list[float] = []
        try:
            while self.step < settings.steps:
                batch = source.batch(self.step, settings.batch)
                with interrupts_held():
                    losses.append(self.update(*on_device(batch, self.device)))
                    self.seconds = time.monotonic() - began
                if self.step % settings.validate_every == 0 or self.step == settings.steps:
                    listen(self.validate(held_out, losses))
                    losses.clear()
                if time.monotonic() - saved > 60 * settings.checkpoint_minutes:
                    self.save_checkpoint()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            self.save_checkpoint()
            listen(Interrupted(self.step, self.checkpoint))
            raise
        self.save_checkpoint()

    def update(self, *batch: Any) -> float:
        """One step on a batch of the run's data; returns its loss. Raises ConfigError where that, or its gradient, is not finite."""
        settings = self.config.training
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.step, settings)
        loss = self.objective.loss(self.network, batch, self.step)
        self.optimiser.zero_grad()
        if loss.requires_grad:  # an algorithm with nothing to learn is only judged and saved
            loss.backward()
        if not nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip_norm).isfinite():
            raise ConfigError(f"{self.config.name}: training diverged at step {self.step}; try a lower learning_rate, or precision fp32")
        self.optimiser.step()
        decay = min(AVERAGE, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for mean, tensor in zip(self.average.parameters(), self.network.parameters(), strict=True):
                mean.lerp_(tensor, 1 - decay)
        self.step += 1
        return float(loss.detach())

    def validate(self, held_out: Any, losses: list[float]) -> Progress:
        """Judge the averaged network, and note the figures in the curve."""
        figures, before = self.objective.figures(self.average, held_out), self.objective.figures_before(held_out)
        noted = {"psnr": figures} | ({"before": before} if before else {})
        self.curve.append({"step": self.step, "seconds": round(self.seconds)} | {name: _rounded(part) for name, part in noted.items()})
        return Progress(self.step, self.seconds, sum(losses) / max(len(losses), 1), figures, before)

    def identity(self) -> dict[str, Any]:
        """What may not change between a run and its continuation, name by name; how long and how fast it learns may."""
        config = self.config
        sections = {"model": self.model, "data": asdict(config.data)}
        values = {f"[{section}] {name}": value for section, part in sections.items() for name, value in part.items()}
        values |= {f"[training] {name}": getattr(config.training, name) for name in self.objective.kept}
        return {"task": config.task, "family": config.family} | values

    def save_checkpoint(self) -> None:
        """Everything a resumed run needs, written beside the old one and moved over it."""
        state = {
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "curve": self.curve,
            "identity": self.identity(),
        }
        partial = self.checkpoint.with_suffix(".partial")
        with interrupts_held():
            torch.save(state, partial)
            partial.replace(self.checkpoint)

    def load_checkpoint(self) -> None:
        """Go on from the checkpoint. Raises CheckpointError where it can't be read, ConfigError where it is of another run."""
        try:
            state: dict[str, Any] = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle raises whatever the file makes it raise
            raise CheckpointError(f"{self.checkpoint}: can't be read as a checkpoint; remove it to start anew") from error
        self._check_same(state.get("identity", {}))
        try:
            self.network.load_state_dict(state["network"])
            self.average.load_state_dict(state["average"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]
        except (KeyError, RuntimeError, ValueError) as error:
            raise ConfigError(f"{self.checkpoint}: is of another network than [model] describes; choose another --output") from error

    def _check_same(self, earlier: dict[str, Any]) -> None:
        """ConfigError names what the configuration has changed; checkpoints of before identities were saved have none."""
        now = self.identity()
        changed = [name for name in earlier.keys() | now.keys() if earlier.get(name) != now.get(name)] if earlier else []
        if changed:
            details = "; ".join(f"{name} was {earlier.get(name)!r} and is {now.get(name)!r}" for name in sorted(changed))
            raise ConfigError(f"{self.checkpoint}: is of another run: {details}; change it back, or choose another --output")

    def save_weights(self) -> Path:
        """Write the averaged network, in half precision, with how it was trained and the last held-out figures."""
        config, path = self.config, self.output / f"{self.config.name}.safetensors"
        training = {
            "data": "; ".join(f"{what}: {name}" for what, name in config.data.described().items() if name),
            "command": f"vidrestore train --config {config.path.name}",
            "steps": self.step,
            "seconds": round(self.seconds),
            "curve": self.curve[-40:],
        }
        save_model(
            path,
            self.average,
            family=config.family,
            config=self.model,
            task=config.task,
            parameters=config.parameters or self.objective.parameters,
            extra={"training": training, "measured": self.objective.measured(self.curve[-1]) if self.curve else {}},
            half=True,
        )
        return path


def on_device(batch: tuple[Any, ...], device: torch.device) -> tuple[Any, ...]:
    """A batch with its tensors where the network is."""
    return tuple(part.to(device) if isinstance(part, Tensor) else part for part in batch)


def _rounded(figures: Figures) -> dict[str, float]:
    """For the curve: names as JSON has them."""
    return {name if isinstance(name, str) else f"{name:g}": round(psnr, 3) for name, psnr in figures.items()}


def learning_rate(step: int, settings: Schedule) -> float:
    """Linear warm-up, a plateau, then half a cosine down to 1 %."""
    falling = settings.steps * settings.decay
    left = (settings.steps - step) / falling if falling else 1.0
    fall = 1.0 if left >= 1 else 0.01 + 0.99 * 0.5 * (1 - math.cos(math.pi * left))
    return settings.learning_rate * min(1.0, (step + 1) / max(settings.warmup, 1)) * fall
