"""The training loop: batches, optimiser, average of the weights, held-out figures, checkpoints to resume
from.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from vidrestore.errors import ConfigError
from vidrestore.files.stopping import interrupts_held
from vidrestore.training.checkpoints import check_alike, no_other, read_checkpoint, write_checkpoint
from vidrestore.training.config import RunConfig, written_config
from vidrestore.training.data.batches import WorkerError, workers_watched
from vidrestore.training.data.sources import IN_MEMORY, Reading, make_data, reused
from vidrestore.training.identity import check_same, identity_of
from vidrestore.training.memory_watch import memory_watched
from vidrestore.training.networks import check_sizes, complete, full_model, new_network, take_over
from vidrestore.training.objective import GroupNetwork, objective_of
from vidrestore.training.parallel import LostError, Together, processes
from vidrestore.training.run_records import recording
from vidrestore.training.schedule import Plateau, learning_rate
from vidrestore.training.training_events import (
    Began,
    Figures,
    Interrupted,
    Listener,
    Noticed,
    Reached,
    Stepped,
    Validated,
    noted,
    to_all,
)
from vidrestore.weights.checkpoint import save_model

SMALLEST_SCALE = 2.0**-10  # of losses in fp16: where gradients overflow even so, training has diverged


def train(
    config: RunConfig,
    output: Path,
    *,
    resume: bool = False,
    init: str | Path | Sequence[str | Path] | None = None,
    device: str = "auto",
    tensorboard: bool = False,
    reading: Reading = IN_MEMORY,
    listen: Listener = lambda event: None,
) -> Path:
    """Train as the configuration says and write `<output>/<name>.safetensors`; returns its path.

    Those are the averaged weights of the last step, or of the best validation where `config.training.final`
    is "best"; `<name>.best.safetensors` are the latter in any case. A checkpoint stands beside them every few
    minutes, and when the run is interrupted; `<name>.log.jsonl` has a line per step, `<name>.svg` shows the
    loss and the held-out figures, and with `tensorboard` the folder `<name>.tensorboard` holds both. With
    `resume` the run goes on from the checkpoint, or begins anew where there is none. Batches and noise follow
    from the seed and the step, so a resumed run computes what it would have computed; only the loss that is
    reported next is a mean over fewer steps, and a GPU's sums may differ in their last bits from run to run.
    It first makes the windows of that step again, which takes a minute or so.

    `reading` says how data is read. Started by torchrun, in several processes, each computes its share of
    every batch; the first writes.

    `init` (a name or file of weights of the same network, or of several parts of it) is where a new run
    starts; a resumed one has its own.

    Raises ConfigError for data that isn't there or doesn't fit the network, for a checkpoint of another run
    or one that would be overwritten, where another process trains the same, and when training diverges;
    MediaError for data that can't be read; CheckpointError for weights that don't fit and for what can't be
    written; OptionError for a device or package that isn't there; LostError and WorkerError where another
    process of the run ends; KeyboardInterrupt after Ctrl-C.
    """
    with memory_watched(config), processes(device) as (together, place):
        return _go(
            Run(config, output, place, together), resume, sources_of(init), tensorboard, reading, listen
        )


def _go(
    run: Run, resume: bool, init: Sequence[str | Path], tensorboard: bool, reading: Reading, listen: Listener
) -> Path:
    """Begin or go on, and keep records of it; returns the path of the weights."""
    with ExitStack() as stack:
        if run.together.first:
            stack.enter_context(no_other(run.checkpoint))
        resumes = run.checkpoint.exists()
        if resumes and not resume:
            raise ConfigError(
                f"{run.checkpoint}: holds an earlier run; go on with `resume`, choose another `output`, or "
                "remove it"
            )
        if resumes:
            run.load_checkpoint()
        elif run.weights_path.exists():
            raise ConfigError(
                f"{run.weights_path}: exists, without the checkpoint of its run; choose another `output`, "
                "or move it away"
            )
        else:
            for source in init:
                run.start_from(source)
        beside = run.output / run.config.name
        tell = to_all()
        if run.together.first:
            tell = stack.enter_context(recording(beside, lambda: run.curve, listen, tensorboard=tensorboard))
        tell(Began(run.step, run.config.training.steps, str(run.device), run.checkpoint if resumes else None))
        run.go(tell, replace(reading, notice=lambda message: tell(Noticed(message))))
        return run.save_weights()


@dataclass(frozen=True)
class Best:
    """The weights that were best at a validation, and what they came to: mean PSNR (dB) over the held-out
    figures.
    """

    step: int
    psnr: float
    weights: dict[str, Tensor]


class Run:
    """State of one training run: the network, the average of its weights, the optimiser, and how far it is.

    Raises ConfigError for a model that can't be built or can't take the data, an output folder that can't be
    made, and a batch that the processes can't share.
    """

    def __init__(
        self, config: RunConfig, output: Path, device: torch.device, together: Together | None = None
    ) -> None:
        self.config, self.output, self.device, self.together = config, output, device, together or Together()
        if config.training.batch % self.together.share.count:
            raise ConfigError(
                f"{config.path}: a batch of {config.training.batch} can't be shared by "
                f"{self.together.share.count} processes;"
                " set training.batch to a multiple"
            )
        self.objective = objective_of(config, self.together.share)
        self.network = new_network(config).to(device)
        check_sizes(config, self.network)
        self.objective.begin(self.network)
        self.architecture = cast("GroupNetwork", self.network).config
        self.average = copy.deepcopy(self.network).eval()
        self.optimiser = self.objective.optimiser(self.network)
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.training.precision == "fp16")
        self.plateau = Plateau(config.training.patience, config.training.factor)
        self.step, self.seconds, self.gradient_norm = 0, 0.0, 0.0
        self.curve: list[dict[str, Any]] = []
        self.best: Best | None = None
        self.init: list[str] = []  # weights that it started from
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{output}: can't be made a folder ({error.strerror}); choose another `output`"
            ) from error

    @property
    def checkpoint(self) -> Path:
        return self.output / f"{self.config.name}.checkpoint"

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        return learning_rate(self.step, self.config.training, self.plateau.share)

    @property
    def model(self) -> dict[str, Any]:
        """The network's configuration in full, defaults included: what builds it again."""
        return full_model(self.config, self.network)

    def start_from(self, source: str | Path) -> None:
        """Take over other weights. Raises CheckpointError as `take_over` does."""
        take_over(self.config, (self.network, self.average), source)
        self.init.append(str(source))

    def go(self, listen: Listener, reading: Reading = IN_MEMORY) -> None:
        """Train to the last step; saves a checkpoint now and then, at the end, and on KeyboardInterrupt,
        LostError or WorkerError, which go up.
        """
        settings = self.config.training
        if self.step >= settings.steps and not self.due:
            return
        listen(Reached("read"))
        with self.together.first_before_others():
            source, held_out = make_data(self.config, self.architecture, reading)
        source = reused(source, self.config.data, settings.seed, partial(on_device, device=self.device))
        made = source.batches(
            range(self.step, settings.steps), settings.batch, reading.workers, self.together.share
        )
        with workers_watched(), closing(made):
            listen(Reached("batches"))
            batches = chain(list(islice(made, 1)), made)  # what takes long for the first one is not training
            try:
                with workers_watched():
                    self._steps(batches, held_out, listen)
            # none of them comes within a step, so that the last one is whole
            except (KeyboardInterrupt, LostError, WorkerError):
                self._save(listen)
                listen(Interrupted(self.step, self.checkpoint))
                raise
            self._save(listen)

    def _steps(self, batches: Iterator[tuple[Any, ...]], held_out: Any, listen: Listener) -> None:
        """Take all that are left, judge and save in between."""
        settings = self.config.training
        saved = time.monotonic()
        began = saved - self.seconds
        losses: list[float] = []
        listen(Reached("train"))
        while True:
            if self.due:  # at first, too: a run may have been interrupted while it was judged
                listen(Reached("judge"))
                listen(self.validate(held_out, losses))
                listen(Reached("train"))
                losses.clear()
            if self.step >= settings.steps:
                break
            if time.monotonic() - saved > 60 * settings.checkpoint_minutes:
                self._save(listen)
                listen(Reached("train"))
                saved = time.monotonic()
            batch, rate = next(batches), self.learning_rate
            with interrupts_held():
                losses.append(self.update(*on_device(batch, self.device)))
                self.seconds = time.monotonic() - began
                listen(Stepped(self.step, settings.steps, losses[-1], rate, self.gradient_norm, self.seconds))

    def _save(self, listen: Listener) -> None:
        listen(Reached("save"))
        self.save_checkpoint()

    @property
    def due(self) -> bool:
        """Return True if a validation is due."""
        settings, judged = self.config.training, self.curve[-1]["step"] if self.curve else 0
        return judged < self.step and (
            self.step % settings.validate_every == 0 or self.step >= settings.steps
        )

    def update(self, *batch: Any) -> float:
        """One step on a batch of the run's data; returns its loss. Raises ConfigError where that, or its
        gradient, is not finite.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate
        loss = self.objective.loss(self.network, batch, self.step)
        self.optimiser.zero_grad()
        if loss.requires_grad:  # an algorithm with nothing to learn is only judged and saved
            self.scaler.scale(loss).backward()
        mean = loss.detach()
        self.together.average(
            [mean, *(part.grad for part in self.network.parameters() if part.grad is not None)]
        )
        if loss.requires_grad:
            self.scaler.unscale_(self.optimiser)
        value = float(mean)
        self.gradient_norm = float(
            nn.utils.clip_grad_norm_(self.network.parameters(), self.config.training.clip_norm)
        )
        self._check_finite(value)
        if loss.requires_grad:
            self.scaler.step(self.optimiser)  # leaves out a step whose gradients overflowed in fp16
            self.scaler.update()
        self._average()
        self.step += 1
        return value

    def _check_finite(self, loss: float) -> None:
        """ConfigError says where training diverged, and what there is to go on from."""
        # is dealt with by a smaller scale
        overflow = self.scaler.is_enabled() and self.scaler.get_scale() > SMALLEST_SCALE
        if math.isfinite(loss) and (math.isfinite(self.gradient_norm) or overflow):
            return
        kept = (
            f"{self.checkpoint} holds the last step that was saved"
            if self.checkpoint.exists()
            else "no step was saved yet"
        )
        best = f", {self.best_path} the best weights, of step {self.best.step}" if self.best else ""
        raise ConfigError(
            f"{self.config.name}: training diverged at step {self.step} (loss {loss:.4g}, gradient "
            f"{self.gradient_norm:.4g}); try a lower"
            f" training.learning_rate, or training.precision=fp32; {kept}{best}"
        )

    def _average(self) -> None:
        decay = min(self.config.training.average, (1 + self.step) / (10 + self.step))
        means, latest = (tuple(network.parameters()) for network in (self.average, self.network))
        with torch.no_grad():
            torch._foreach_lerp_(means, latest, 1 - decay)  # on a GPU few calls, not one per parameter

    def validate(self, held_out: Any, losses: list[float]) -> Validated:
        """Judge the averaged network, note the figures in the curve, and keep the weights that are best."""
        figures, before = self.together.told(self._figures(held_out))
        psnr = sum(figures.values()) / len(figures)
        better = not math.isnan(psnr) and (self.best is None or psnr > self.best.psnr)
        parts = {"psnr": figures} | ({"before": before} if before else {})
        with interrupts_held():
            self.curve.append(
                {"step": self.step, "seconds": round(self.seconds)}
                | {name: noted(part) for name, part in parts.items()}
            )
            if self.config.training.schedule == "plateau":
                self.plateau.judged(better)
            if better:
                weights = {
                    name: tensor.detach().cpu().clone() for name, tensor in self.average.state_dict().items()
                }
                self.best = Best(self.step, psnr, weights)
                self._write_weights(self.best_path, self.average, self.step)
        return Validated(self.step, self.seconds, sum(losses) / max(len(losses), 1), figures, before, better)

    def _figures(self, held_out: Any) -> tuple[Figures, Figures]:
        """After and before, which the first process measures for all."""
        if not self.together.first:
            return {}, {}
        return self.objective.figures(self.average, held_out), self.objective.figures_before(held_out)

    @property
    def identity(self) -> dict[str, Any]:
        """See `identity_of`."""
        return identity_of(self.config, self.model, self.objective.kept)

    def save_checkpoint(self) -> None:
        """Everything a resumed run needs. Raises CheckpointError where it can't be written; the one before
        stays then.
        """
        if not self.together.first:
            return
        parts = {
            name: getattr(self, name).state_dict()
            for name in ("network", "average", "optimiser", "scaler", "plateau")
        }
        state = parts | {
            "step": self.step,
            "seconds": self.seconds,
            "curve": self.curve,
            "init": self.init,
            "identity": self.identity,
        }
        with interrupts_held():
            write_checkpoint(
                self.checkpoint, state | {"best": None if self.best is None else vars(self.best)}
            )

    def load_checkpoint(self) -> None:
        """Go on from the checkpoint. Raises CheckpointError where it can't be read, ConfigError where it is
        of another run.
        """
        state = read_checkpoint(self.checkpoint)
        check_same(self.checkpoint, self.config, state.get("identity", {}), self.identity)
        settings = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.optimiser.param_groups
        ]
        try:
            for name in ("network", "average", "optimiser"):
                getattr(self, name).load_state_dict(state[name])
            for group, now in zip(self.optimiser.param_groups, settings, strict=True):
                group.update(now)  # the weight decay may be another than before
            if state.get("scaler") and self.scaler.is_enabled():
                self.scaler.load_state_dict(state["scaler"])
            if "plateau" in state:  # not in checkpoints of before there was one
                self.plateau.load_state_dict(state["plateau"])
            self.best = Best(**state["best"]) if state.get("best") else None
            if self.best:
                check_alike(self.best.weights, self.average.state_dict())
            self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]
            # not in checkpoints of before it was kept
            self.init = [str(source) for source in sources_of(state.get("init"))]
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.checkpoint}: is of another network than [model] describes; choose another `output`"
            ) from error

    @property
    def best_path(self) -> Path:
        return self.output / f"{self.config.name}.best.safetensors"

    @property
    def weights_path(self) -> Path:
        return self.output / f"{self.config.name}.safetensors"

    def save_weights(self) -> Path:
        """Write what the run comes to: the averaged network of the last step, or the best one, as
        `training.final` says.
        """
        path, network, step = self.weights_path, self.average, self.step
        if self.config.training.final == "best" and self.best is not None:
            network, step = copy.deepcopy(self.average), self.best.step
            network.load_state_dict(self.best.weights)
        self._write_weights(path, network, step)
        return path

    def _write_weights(self, path: Path, network: nn.Module, step: int) -> None:
        """Write a step's network in half precision, with its training and held-out metrics."""
        if not self.together.first:
            return
        config = self.config
        curve = [point for point in self.curve if point["step"] <= step]
        training = {
            "data": "; ".join(f"{what}: {name}" for what, name in config.data.described().items() if name),
            "command": config.command(self.init),
            "configuration": written_config(complete(config, self.network)),
            "steps": step,
            "weights": "averaged" if config.training.average else "not averaged",
            "seconds": round(self.seconds)
            if step == self.step
            else curve[-1]["seconds"],  # the best was judged, so it is on the curve
            "curve": curve[-40:],
        }
        save_model(
            path,
            network,
            family=config.family,
            config=self.model,
            task=config.task,
            parameters=config.parameters or self.objective.parameters,
            extra={"training": training, "measured": self.objective.measured(curve[-1]) if curve else {}},
            half=True,
        )


def sources_of(init: str | Path | Sequence[str | Path] | None) -> Sequence[str | Path]:
    """Weights to start from, however many there are."""
    return [] if init is None else [init] if isinstance(init, str | Path) else init


def on_device(batch: tuple[Any, ...], device: torch.device) -> tuple[Any, ...]:
    """A batch with its tensors where the network is."""
    return tuple(part.to(device) if isinstance(part, Tensor) else part for part in batch)
