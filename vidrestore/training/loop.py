"""The training loop: batches, optimiser, average of the weights, validation, checkpoints to resume from.

path = train(read_config(Path("examples/train/dust-denoise.toml")), Path("runs"))  # weights
for done in rehearse(config): print(done.description)  # one step of everything, in a temporary folder
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from vidrestore.errors import ConfigError, OptionError
from vidrestore.files.stopping import interrupts_held
from vidrestore.jobs.frame_progress import peak_memory
from vidrestore.restorers.devices import torch_device
from vidrestore.training.checkpoints import (
    check_alike,
    check_same,
    identity_of,
    read_checkpoint,
    run_lock,
    write_checkpoint,
)
from vidrestore.training.config import RunConfig, SetConfig
from vidrestore.training.data.batches import WorkerError, on_device, worker_errors
from vidrestore.training.data.planes import PlaneSource
from vidrestore.training.data.sources import IN_MEMORY, Reading, make_data, with_reuse
from vidrestore.training.networks import (
    full_model,
    load_initial_weights,
    new_network,
    sources_of,
    train_parts,
    write_weights,
)
from vidrestore.training.objective import objective_of
from vidrestore.training.parallel import LostError, ProcessGroup, processes
from vidrestore.training.run_records import recording
from vidrestore.training.schedule import Plateau, learning_rate
from vidrestore.training.step import CapturedStep, ResidentStep, TrainingStep
from vidrestore.training.training_events import (
    Began,
    Interrupted,
    Listener,
    Metrics,
    Noticed,
    Reached,
    Stepped,
    Validated,
    rounded_metrics,
    to_all,
)
from vidrestore.weights import load_model

READ_SECONDS = 1.0  # between two looks at the losses on a GPU, which wait for it
SMALLEST_SCALE = 2.0**-10  # loss scale in fp16; if gradients overflow even so, training has diverged


def train(
    config: RunConfig,
    output: Path,
    *,
    resume: bool = False,
    init: str | Path | Sequence[str | Path] | None = None,
    device: str = "auto",
    tensorboard: bool = False,
    reading: Reading = IN_MEMORY,
    stop_after: float = math.inf,
    on_event: Listener = lambda event: None,
) -> Path:
    """Train as the configuration says, write `<output>/<name>.safetensors` and return its path.

    Those are the averaged weights of the last step, or of the best validation if `config.training.final` is
    "best"; `<name>.best.safetensors` holds the latter in any case. A checkpoint is written beside them every
    few minutes and when the run is interrupted, `<name>.log.jsonl` has a line per step, `<name>.svg` shows
    the loss and the held-out metrics, and with `tensorboard` so does the folder `<name>.tensorboard`. With
    `resume` the run continues from the checkpoint, if it exists. Batches and noise depend only on the seed
    and the step, so a resumed run computes the same, apart from a GPU's rounding; only the next reported loss
    is a mean over fewer steps. A resumed run first makes the windows of its step again, which takes about a
    minute. After `stop_after` seconds it ends after the step that is under way, with a checkpoint, whose path
    is returned.

    `reading` says how to read data. In several processes started by torchrun, each computes its share of
    every batch; the first writes. `init` names weights (of the same network, or of parts of it) for a new
    run.

    Raises ConfigError for missing or unfit data, for a checkpoint of another run or one that would be
    overwritten, if another process trains the same, and if training diverges; MediaError for unreadable data;
    CheckpointError for unfit weights and for files that can't be written; OptionError for a missing device or
    package, and `stop_after` in several processes; LostError and WorkerError if another process of the run
    ends; KeyboardInterrupt after Ctrl-C.
    """
    deadline = time.monotonic() + stop_after
    with memory_errors(config), processes(device) as (group, place):
        if stop_after < math.inf and not group.alone:
            raise OptionError("`stop_after` is for one process: several wouldn't stop at the same step")
        run = Run(config, output, place, group)
        return _train_run(run, resume, sources_of(init), tensorboard, reading, deadline, on_event)


def _train_run(
    run: Run,
    resume: bool,
    init: Sequence[str | Path],
    tensorboard: bool,
    reading: Reading,
    deadline: float,
    on_event: Listener,
) -> Path:
    """Start or resume a run, keep its records, and return the path of the weights, or of the checkpoint if
    the deadline comes first.
    """
    with ExitStack() as stack:
        if run.group.first:
            stack.enter_context(run_lock(run.checkpoint))
        has_checkpoint = run.checkpoint.exists()
        if has_checkpoint and not resume:
            raise ConfigError(
                f"{run.checkpoint}: belongs to an earlier run; continue it with `resume`, choose another "
                "`output`, or remove it"
            )
        if has_checkpoint:
            run.load_checkpoint()
        elif run.weights_path.exists():
            raise ConfigError(
                f"{run.weights_path}: already exists, without the checkpoint of its run; choose another "
                "`output`, or move the file"
            )
        else:
            for source in init:
                run.initialise_from(source)
        stem = run.output / run.config.name
        emit = to_all()
        if run.group.first:
            emit = stack.enter_context(recording(stem, lambda: run.curve, on_event, tensorboard=tensorboard))
        emit(
            Began(
                run.step,
                run.config.training.steps,
                str(run.device),
                run.checkpoint if has_checkpoint else None,
            )
        )
        run.train(emit, replace(reading, notice=lambda message: emit(Noticed(message))), deadline)
        return run.save_weights() if run.step >= run.config.training.steps else run.checkpoint


@dataclass(frozen=True)
class Best:
    """The weights of the best validation, and its PSNR (dB), the mean over the held-out metrics."""

    step: int
    psnr: float
    weights: dict[str, Tensor]


class Run:
    """The state of one training run: the network, the average of its weights, the optimiser, and the step.

    Raises ConfigError for a model that can't be built or can't take the data, an output folder that can't be
    created, and a batch that the processes can't share equally.
    """

    def __init__(
        self, config: RunConfig, output: Path, device: torch.device, group: ProcessGroup | None = None
    ) -> None:
        self.config, self.output, self.device, self.group = config, output, device, group or ProcessGroup()
        if config.training.batch % self.group.share.count:
            raise ConfigError(
                f"{config.path}: a batch of {config.training.batch} can't be divided among "
                f"{self.group.share.count} processes; set training.batch to a multiple of that number"
            )
        self.objective = objective_of(config, self.group.share)
        self.network = new_network(config).to(device)
        train_parts(config, self.network)
        if device.type == "cuda" and not isinstance(config.data, SetConfig) and config.data.resident:
            for part in self.network.modules():
                if isinstance(part, nn.Conv2d):
                    part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.objective.check(config, self.network)
        self.average = copy.deepcopy(self.network).eval()
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.training.precision == "fp16")
        self.take_step = TrainingStep(self.network, self.average, self.objective, self.group, self.scaler)
        self.optimiser = self.take_step.optimiser
        self.resident_step: Callable[[], Tensor] | None = None  # that draws its batch itself
        self.plateau = Plateau(config.training.patience, config.training.factor)
        self.step, self.seconds = 0, 0.0
        # of steps whose loss and norm are still on the device: their number, learning rate, and both
        self.unread: list[tuple[int, float, Tensor]] = []
        self.curve: list[dict[str, Any]] = []
        self.best: Best | None = None
        self.init: list[str] = []  # sources of the initial weights
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{output}: can't create this folder ({error.strerror}); choose another `output`"
            ) from error

    @property
    def checkpoint(self) -> Path:
        return self.output / f"{self.config.name}.checkpoint"

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return learning_rate(self.step, self.config.training, self.plateau.share)

    @property
    def model(self) -> dict[str, Any]:
        """The network's full configuration, defaults included, from which it can be rebuilt."""
        return full_model(self.config, self.network)

    def initialise_from(self, source: str | Path) -> None:
        """Load weights of another file. Raises CheckpointError as `load_initial_weights` does."""
        load_initial_weights(self.config, (self.network, self.average), source)
        self.init.append(str(source))

    def train(self, on_event: Listener, reading: Reading = IN_MEMORY, deadline: float = math.inf) -> None:
        """Train to the last step, or until `deadline` on the clock `time.monotonic`; save checkpoints now and
        then, at the end, and when interrupted.
        """
        settings = self.config.training
        if self.step >= settings.steps and not self.validation_due:
            return
        on_event(Reached("read"))
        with self.group.first_before_others():
            source, held_out = make_data(self.config, self.network, reading)
        steps = range(self.step, settings.steps)
        generated: Generator[tuple[Any, ...]]
        if isinstance(source, PlaneSource) and source.resident:
            self.resident_step = self._resident_step(source)
            generated = (() for _ in steps)
        else:
            source = with_reuse(
                source, self.config.data, settings.seed, partial(on_device, device=self.device)
            )
            generated = source.batches(steps, settings.batch, reading.workers, self.group.share)
        with worker_errors(), closing(generated):
            on_event(Reached("batches"))
            # make the first batch now, so that its time isn't counted as training
            batches = chain(list(islice(generated, 1)), generated)
            try:
                with worker_errors():
                    self._steps(batches, held_out, on_event, deadline)
            # these are never raised within a step, so the last step is complete
            except (KeyboardInterrupt, LostError, WorkerError):
                self._report([], on_event)
                self._save(on_event)
                on_event(Interrupted(self.step, self.checkpoint))
                raise
            self._save(on_event)
            if self.step < settings.steps:
                on_event(Interrupted(self.step, self.checkpoint))

    def _resident_step(self, source: PlaneSource) -> Callable[[], Tensor]:
        """Return what takes the next step on data on the device, a CUDA graph where there can be one."""
        if self.scaler.is_enabled() or not self.group.alone:
            raise ConfigError(
                f"{self.config.path}: data.resident is for one process and training.precision bf16 or fp32; "
                "change one of them, or set data.resident=false"
            )
        source.planes  # noqa: B018  decoded now, so that this isn't counted as training
        step = ResidentStep(self.take_step, source, self.config.training.batch, self.step)
        return CapturedStep(step, self.optimiser) if self.device.type == "cuda" else step

    def _steps(
        self, batches: Iterator[tuple[Any, ...]], held_out: Any, on_event: Listener, deadline: float
    ) -> None:
        """Take all remaining steps until the deadline, with validations and checkpoints in between."""
        settings = self.config.training
        saved = read = time.monotonic()
        began = saved - self.seconds
        losses: list[float] = []
        on_event(Reached("train"))
        while True:
            now = time.monotonic()
            self.seconds = now - began
            due = self.validation_due  # also at the start: the run may have been interrupted in a validation
            save = now - saved > 60 * settings.checkpoint_minutes
            ends = self.step >= settings.steps or now >= deadline
            if self.device.type == "cpu" or now - read > READ_SECONDS or due or save or ends:
                self._report(losses, on_event)
                read = now
            if due:
                on_event(Reached("validate"))
                on_event(self.validate(held_out, losses))
                on_event(Reached("train"))
                losses.clear()
            if ends:
                break
            if save:
                self._save(on_event)
                on_event(Reached("train"))
                saved = time.monotonic()
            batch = next(batches)
            with interrupts_held():
                self.update(*on_device(batch, self.device))

    def _report(self, losses: list[float], on_event: Listener) -> None:
        """Tell of the steps that weren't read yet, and add their losses to the list."""
        with interrupts_held():
            for stepped in self.read():
                losses.append(stepped.loss)
                on_event(stepped)

    def _save(self, on_event: Listener) -> None:
        on_event(Reached("save"))
        self.save_checkpoint()

    @property
    def validation_due(self) -> bool:
        """Return True if a validation is due."""
        settings, validated = self.config.training, self.curve[-1]["step"] if self.curve else 0
        return validated < self.step and (
            self.step % settings.validate_every == 0 or self.step >= settings.steps
        )

    def update(self, *batch: Any) -> Tensor:
        """Take one step on a batch, or on one that it draws, and return its loss, on the device; `read` tells
        of it.
        """
        rate, settings = self.learning_rate, self.config.training
        self.take_step.rate.fill_(rate)
        self.take_step.renewal.fill_(1 - min(settings.average, (1 + self.step) / (10 + self.step)))
        numbers = self.resident_step() if self.resident_step else self.take_step(batch, self.step)
        self.step += 1
        self.unread.append((self.step, rate, numbers))
        return numbers[0]

    def read(self) -> list[Stepped]:
        """Wait for the device and return the steps taken since the last call. Raises ConfigError if training
        has diverged, with the files to continue from.
        """
        if not self.unread:
            return []
        steps, rates, numbers = zip(*self.unread, strict=True)
        self.unread.clear()
        found = []
        for step, rate, (loss, norm) in zip(steps, rates, torch.stack(numbers).tolist(), strict=True):
            self._check_finite(step - 1, loss, norm)
            found.append(Stepped(step, self.config.training.steps, loss, rate, norm, self.seconds))
        return found

    def _check_finite(self, step: int, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        # in fp16 the scaler then reduces the scale
        if math.isfinite(loss) and self.scaler.is_enabled() and self.scaler.get_scale() > SMALLEST_SCALE:
            return
        remaining = (
            f"{self.checkpoint} holds the last step that was saved"
            if self.checkpoint.exists()
            else "no step was saved yet"
        )
        best = f", {self.best_path} the best weights, of step {self.best.step}" if self.best else ""
        raise ConfigError(
            f"{self.config.name}: training diverged at step {step} (loss {loss:.4g}, gradient "
            f"{norm:.4g}); try a lower training.learning_rate, or training.precision=fp32; "
            f"{remaining}{best}"
        )

    def validate(self, held_out: Any, losses: list[float]) -> Validated:
        """Validate the averaged network, add the metrics to the curve, and keep the weights if they are the
        best.
        """
        measured: tuple[Metrics, Metrics] = ({}, {})
        if self.group.first:  # it measures for all
            objective = self.objective
            measured = objective.metrics(self.average, held_out), objective.metrics_before(held_out)
        metrics, before = self.group.broadcast(measured)
        psnr = sum(metrics.values()) / len(metrics)
        better = not math.isnan(psnr) and (self.best is None or psnr > self.best.psnr)
        parts = {"psnr": metrics} | ({"before": before} if before else {})
        with interrupts_held():
            self.curve.append(
                {"step": self.step} | {name: rounded_metrics(part) for name, part in parts.items()}
            )
            if self.config.training.schedule == "plateau":
                self.plateau.step(better)
            if better:
                weights = {
                    name: tensor.detach().cpu().clone() for name, tensor in self.average.state_dict().items()
                }
                self.best = Best(self.step, psnr, weights)
                self._write_weights(self.best_path, self.average, self.step)
        return Validated(self.step, self.seconds, sum(losses) / max(len(losses), 1), metrics, before, better)

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that may not change when the run is resumed; see `identity_of`."""
        return identity_of(self.config, self.model, self.objective.fixed_settings)

    def save_checkpoint(self) -> None:
        """Save everything that a resumed run needs. Raises CheckpointError; the earlier checkpoint remains
        then.
        """
        if not self.group.first:
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
        """Restore the checkpoint. Raises CheckpointError if it can't be read, ConfigError if it is of another
        run.
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
                group.update(now)  # the configuration's weight decay may have changed
            if state.get("scaler") and self.scaler.is_enabled():
                self.scaler.load_state_dict(state["scaler"])
            if "plateau" in state:  # missing in checkpoints of earlier versions
                self.plateau.load_state_dict(state["plateau"])
            self.best = Best(**state["best"]) if state.get("best") else None
            if self.best:
                check_alike(self.best.weights, self.average.state_dict())
            self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]
            # missing in checkpoints of earlier versions
            self.init = [str(source) for source in sources_of(state.get("init"))]
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.checkpoint}: is of another network than that of [model]; choose another `output`"
            ) from error

    @property
    def best_path(self) -> Path:
        return self.output / f"{self.config.name}.best.safetensors"

    @property
    def weights_path(self) -> Path:
        return self.output / f"{self.config.name}.safetensors"

    def save_weights(self) -> Path:
        """Write the averaged network of the last step or the best, as `training.final` says; return the
        path.
        """
        path, network, step = self.weights_path, self.average, self.step
        if self.config.training.final == "best" and self.best is not None:
            network, step = copy.deepcopy(self.average), self.best.step
            network.load_state_dict(self.best.weights)
        self._write_weights(path, network, step)
        return path

    def _write_weights(self, path: Path, network: nn.Module, step: int) -> None:
        """Write a step's network in half precision, with its training and held-out metrics."""
        if not self.group.first:
            return
        curve = [point for point in self.curve if point["step"] <= step]
        write_weights(
            path,
            network,
            self.config,
            self.objective,
            curve=curve,
            init=self.init,
            step=step,
        )


@contextmanager
def memory_errors(config: RunConfig) -> Iterator[None]:
    """Raise ConfigError in place of the error raised if memory runs out, on a GPU or the CPU."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(
            error, (MemoryError, torch.OutOfMemoryError)
        ) and "can't allocate memory" not in str(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else "no more is available"
        raise ConfigError(
            f"{config.path}: memory ran out ({reason}); try a smaller training.batch than "
            f"{config.training.batch}"
        ) from error


@dataclass(frozen=True)
class RehearsalStep:
    """One part of the rehearsal and the seconds that it took."""

    description: str
    seconds: float


def rehearse(
    config: RunConfig,
    *,
    init: str | Path | Sequence[str | Path] | None = None,
    device: str = "auto",
    reading: Reading = IN_MEMORY,
) -> Iterator[RehearsalStep]:
    """Build, read, train a step, validate, save and load; yield each with its time when it is done. Raises as
    `train` does.
    """
    with memory_errors(config), worker_errors(), TemporaryDirectory(prefix="vidrestore-") as folder:
        last = time.monotonic()

        def lap(description: str) -> RehearsalStep:
            nonlocal last
            before, last = last, time.monotonic()
            return RehearsalStep(description, last - before)

        run = Run(config, Path(folder), torch_device(device))
        for weights in sources_of(init):
            run.initialise_from(weights)
        parameters = sum(part.numel() for part in run.network.parameters())
        yield lap(f"{config.family} with {parameters:,} parameters on {run.device}")
        source, held_out = make_data(config, run.network, reading)
        yield lap("held-out data")
        batches = source.batches(range(2), config.training.batch, reading.workers)
        batch = next(batches)
        yield lap(f"first batch: {_shapes(batch)}")
        run.update(*on_device(batch, run.device))
        loss = run.read()[-1].loss
        yield lap(f"update: loss {loss:.4f}")
        next(batches)
        yield lap("second batch")
        progress = run.validate(held_out, [loss])
        yield lap("validation: " + ", ".join(f"{name} {psnr:.2f} dB" for name, psnr in progress.psnr.items()))
        run.save_checkpoint()
        yield lap(f"checkpoint written: {_size(run.checkpoint)}")
        run.load_checkpoint()
        yield lap("checkpoint read")
        weights = run.save_weights()
        yield lap(f"weights written: {_size(weights)}")
        load_model(weights)
        yield lap("weights loaded")


def memory_used() -> str:
    """Describe the peak memory of this process, if the system reports it, and of the GPU, if there is one."""
    peak = peak_memory()
    gpu_peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return ("unknown memory" if peak is None else f"{peak / 1e9:.2f} GB") + (
        f", GPU {gpu_peak / 1e9:.2f} GB" if gpu_peak else ""
    )


def _shapes(batch: tuple[Any, ...]) -> str:
    return ", ".join(
        "x".join(map(str, part.shape)) if isinstance(part, torch.Tensor) else f"{part:.3g}" for part in batch
    )


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
