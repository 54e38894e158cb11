"""The training loop: batches, optimiser, average of the weights, validation, checkpoints to resume from.

path = train(read_config(Path("examples/train/dust-denoise.toml")), Path("runs"))  # weights
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vidrestore.errors import ConfigError
from vidrestore.files.stopping import delayed_signals
from vidrestore.lab.run_config import RunConfig
from vidrestore.lab.training.checkpoints import (
    check_alike,
    check_same,
    identity_of,
    read_checkpoint,
    run_lock,
    write_checkpoint,
)
from vidrestore.lab.training.data.batches import WorkerError, on_device, worker_errors
from vidrestore.lab.training.data.pairs import HeldOutPictures
from vidrestore.lab.training.data.sources import IN_MEMORY, Reading, make_data
from vidrestore.lab.training.learner import Learner, Validations
from vidrestore.lab.training.networks import (
    check_speed,
    full_model,
    load_initial_weights,
    new_network,
    train_parts,
    write_weights,
)
from vidrestore.lab.training.objective import objective_of
from vidrestore.lab.training.parallel import LostError, ProcessGroup, processes
from vidrestore.lab.training.run_records import board_writer, recording
from vidrestore.lab.training_events import (
    Began,
    Interrupted,
    Listener,
    Metrics,
    Noticed,
    Reached,
    Stepped,
    Validated,
)

READ_SECONDS = 1.0  # between two looks at the losses on a GPU, which wait for it
LEARNT = ("network", "average", "optimiser")  # parts of a checkpoint


def train(
    config: RunConfig,
    output: Path,
    *,
    resume: bool = False,
    init: Sequence[str | Path] = (),
    device: str = "auto",
    tensorboard: bool = False,
    reading: Reading = IN_MEMORY,
    stop_after: float = math.inf,
    on_event: Listener = lambda event: None,
) -> Path:
    """Train by a configuration, write `<output>/<name>.safetensors` and return its path.

    That file holds the averaged weights of the last step, `<name>.best.safetensors` those of the best
    validation. A checkpoint is written beside them every few minutes and when the run is interrupted,
    `<name>.log.jsonl` and `<name>.log.csv` have a line per step, `<name>.validations.csv` the held-out
    metrics, `<name>.svg` shows both.

    Batches and noise depend only on the
    seed and the step, so a resumed run computes the same, apart from a GPU's rounding; only the next reported
    loss is a mean over fewer steps. A resumed run first makes the windows of its step again, which takes
    about a minute. After `stop_after` seconds, or the signal SIGUSR1 (as batch systems send before they end a
    job), it ends after the step that is under way, with a checkpoint, whose path is returned; of several
    processes all end after the same step. In several processes started by torchrun, each computes its share
    of every batch; the first writes.

    Raises ConfigError for missing or unfit data, for a checkpoint of another run or one that would be
    overwritten, if another process works on the same run, and if training diverges; MediaError for
    unreadable data; CheckpointError for unfit weights, for files that can't be written and for others' files
    of the same names; OptionError for a
    missing device or package; LostError and WorkerError if another process of the run ends;
    KeyboardInterrupt after Ctrl-C.

    Args:
        config (RunConfig): The run, as `read_config` reads it from a file.
        output (path): Folder of weights, checkpoint and logs; made if it is missing.
        resume (bool): Continue from the checkpoint, if it exists; default False.
        init (sequence of str or path): Names or files of weights for a new run, of the same network or of
            parts of it; default empty: random ones.
        device (str): "cpu", "cuda", "cuda:1" and so on; default "auto": an NVIDIA GPU if there is one.
        tensorboard (bool): Write losses and metrics to the folder `<name>.tensorboard` as well; default
            False.
        reading (Reading): Cache, worker processes and treatment of damaged files; default: no cache, and
            batches made by this process.
        stop_after (float): Seconds until the run ends with a checkpoint; default infinity.
        on_event (callable): Called with every event of the run; by default events are dropped.
    """
    # what must end with the run is entered in this order: memory, signals, processes, lock, records
    deadline = time.monotonic() + stop_after
    if tensorboard:
        board_writer()  # before a folder is made
    with ExitStack() as stack:
        stack.enter_context(memory_errors(config))
        stop = stack.enter_context(stop_signal(deadline))
        group, compute_device = stack.enter_context(processes(device))
        run = Run(config, output, compute_device, group)
        if group.first:
            stack.enter_context(run_lock(run.checkpoint))
        resumed = run.begin(resume, init)
        records = recording(
            output / config.name, run.validations, on_event, tensorboard=tensorboard
        )
        emit: Listener = (
            stack.enter_context(records) if group.first else lambda event: None
        )
        checkpoint = run.checkpoint if resumed else None
        emit(Began(run.step, config.training.steps, str(compute_device), checkpoint))
        run.train(
            emit, replace(reading, notice=lambda message: emit(Noticed(message))), stop
        )
        return (
            run.save_weights() if run.step >= config.training.steps else run.checkpoint
        )


class Run:
    """A training run: the network, its optimiser, the validations, and the step. Raises ConfigError for a
    model that can't be built or can't take the data, an output that isn't a folder, and a batch that can't be
    divided equally among the processes.
    """

    def __init__(
        self,
        config: RunConfig,
        output: Path,
        device: torch.device,
        group: ProcessGroup | None = None,
    ) -> None:
        # a batch must be dealt out equally
        self.config = config
        self.output = output
        self.group = group or ProcessGroup()
        count = self.group.share.count
        parts = config.training.accumulate
        if config.training.batch % (count * parts):
            divided = (
                f"{count} processes"
                + f" and {parts} parts each (training.accumulate)" * (parts > 1)
            )
            raise ConfigError(
                f"{config.path}: a batch of {config.training.batch} can't be divided among {divided}; set "
                f"training.batch to a multiple of {count * parts}"
            )
        # network, objective and optimiser; the step and all that a checkpoint holds
        network = new_network(config).to(device)
        train_parts(config, network)
        check_speed(config, network)
        objective = objective_of(config, self.group.share)
        objective.check(config, network)
        self.learner = Learner(network, objective, self.group, device)
        self.validations = Validations(config.training)
        self.step = 0
        self.seconds = 0.0
        self.losses: list[float] = []  # since the last validation
        # steps with loss and norm still on the device: number, learning rate, both values
        self.unread: list[tuple[int, float, Tensor]] = []
        self.init: list[str] = []  # sources of the initial weights
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{output}: can't create this folder ({error.strerror}); choose another `output`"
            ) from error

    @property
    def network(self) -> nn.Module:
        return self.learner.network

    @property
    def checkpoint(self) -> Path:
        return self.output / f"{self.config.name}.checkpoint"

    @property
    def weights_path(self) -> Path:
        return self.output / f"{self.config.name}.safetensors"

    @property
    def best_path(self) -> Path:
        return self.output / f"{self.config.name}.best.safetensors"

    def begin(self, resume: bool, init: Sequence[str | Path]) -> bool:
        """Load the checkpoint and return True, or initial weights. Raises ConfigError for an earlier run:
        log and plot in the folder belong to this one, weights only to that of a checkpoint. With `resume`
        the best weights of a run that was cut before its first checkpoint are replaced.
        """
        # a checkpoint is continued only if asked for
        if self.checkpoint.exists():
            if not resume:
                raise ConfigError(
                    f"{self.checkpoint}: belongs to an earlier run; continue it with `resume`, choose "
                    "another `output`, or remove it"
                )
            self.load_checkpoint()
            return True
        # weights without one belong to a run that must not be lost
        for path in (
            [self.weights_path] if resume else [self.weights_path, self.best_path]
        ):
            if path.exists():
                raise ConfigError(
                    f"{path}: already exists, without the checkpoint of its run; choose another `output`, or "
                    "move the file"
                )
        for source in init:
            self.initialise_from(source)
        return False

    def initialise_from(self, source: str | Path) -> None:
        """Load weights of another file. Raises CheckpointError as `load_initial_weights` does."""
        load_initial_weights(
            self.config, (self.learner.network, self.learner.average), source
        )
        self.init.append(str(source))

    def train(
        self,
        on_event: Listener,
        reading: Reading = IN_MEMORY,
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train to the last step, or until `stops()` is true; save now and then and at the end."""
        settings = self.config.training
        if self.step >= settings.steps and not self.validations.due(self.step):
            return
        # the first process fills the cache for the others
        on_event(Reached("read"))
        with self.group.first_before_others():
            source, held_out = make_data(self.config, self.network, reading)
        if not self.step and not self.init:
            self.learner.objective.start((self.network, self.learner.average), source)
        steps = range(self.step, settings.steps)
        generated = source.batches(
            steps, settings.batch, reading.workers, self.group.share
        )
        with worker_errors(), closing(generated):
            on_event(Reached("batches"))
            # make the first batch now, so that its time isn't counted as training
            batches = chain(list(islice(generated, 1)), generated)
            try:
                with worker_errors():
                    self._steps(batches, held_out, on_event, stops)
            # neither is raised within a step, so the last step is complete
            except (KeyboardInterrupt, LostError, WorkerError):
                self._report(on_event)
                self._save(on_event)
                on_event(Interrupted(self.step, self.checkpoint))
                raise
            self._save(on_event)
            if self.step < settings.steps:
                on_event(Interrupted(self.step, self.checkpoint))

    def _steps(
        self,
        batches: Iterator[tuple[Any, ...]],
        held_out: Any,
        on_event: Listener,
        stops: Callable[[], bool],
    ) -> None:
        """Take all remaining steps, or until a process stops, with validations and checkpoints in between."""
        # times of the last save and of the last look at the losses
        settings = self.config.training
        device = self.learner.device
        saved = read = time.monotonic()
        began = saved - self.seconds
        on_event(Reached("train"))
        while True:
            now = time.monotonic()
            self.seconds = now - began
            # also at the start: the run may have been interrupted in a validation
            due = self.validations.due(self.step)
            save = now - saved > 60 * settings.checkpoint_minutes
            self.learner.stops = stops()
            ends = self.learner.agreed() or self.step >= settings.steps
            if device.type == "cpu" or now - read > READ_SECONDS or due or save or ends:
                self._report(on_event)
                read = now
            if due:
                on_event(Reached("validate"))
                on_event(self.validate(held_out))
                on_event(Reached("train"))
                self.losses.clear()
            if ends:
                break
            if save:
                self._save(on_event)
                on_event(Reached("train"))
                saved = time.monotonic()
            batch = next(batches)
            with delayed_signals():
                self.update(*on_device(batch, device))

    def _report(self, on_event: Listener) -> None:
        """Report the steps since the last report, and keep their losses."""
        with delayed_signals():
            for stepped in self.read():
                self.losses.append(stepped.loss)
                on_event(stepped)

    def _save(self, on_event: Listener) -> None:
        on_event(Reached("save"))
        self.save_checkpoint()

    def update(self, *batch: Any) -> Tensor:
        """Take one step on a batch and return its loss, on the device; `read` returns its metrics."""
        rate = self.validations.learning_rate(self.step)
        numbers = self.learner.update(batch, self.step, rate)
        self.step += 1
        self.unread.append((self.step, rate, numbers))
        return numbers[0]

    def read(self) -> list[Stepped]:
        """Return the steps taken since the last call. Raises ConfigError if training has diverged."""
        # one transfer from the device for all steps since the last look
        if not self.unread:
            return []
        steps, rates, numbers = zip(*self.unread, strict=True)
        self.unread.clear()
        events = []
        for step, rate, (loss, norm) in zip(
            steps, rates, torch.stack(numbers).tolist(), strict=True
        ):
            self._check_finite(step - 1, loss, norm)
            events.append(
                Stepped(
                    step, self.config.training.steps, loss, rate, norm, self.seconds
                )
            )
        return events

    def _check_finite(self, step: int, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        # say which weights are left
        best = self.validations.best
        remaining = (
            f"{self.checkpoint} holds the last step that was saved"
            if self.checkpoint.exists()
            else "no step was saved yet"
        )
        best_weights = (
            f", {self.best_path} the best weights, of step {best.step}" if best else ""
        )
        raise ConfigError(
            f"{self.config.name}: training diverged at step {step} (loss {loss:.4g}, gradient "
            f"{norm:.4g}); try a lower training.learning_rate, or training.precision=fp32; "
            f"{remaining}{best_weights}"
        )

    def validate(self, held_out: Any) -> Validated:
        """Validate the averaged network, add the metrics to the curve, keep the best weights."""
        measured: tuple[Metrics, Metrics] = ({}, {})
        average = self.learner.average
        objective = self.learner.objective
        # whole pictures are dealt to all processes; of other data the first one validates for all
        if self.group.first or isinstance(held_out, HeldOutPictures):
            measured = objective.measure(average, held_out, self.group.average)
        metrics, before = self.group.broadcast(measured)
        with delayed_signals():
            better = self.validations.add(self.step, metrics, before, average)
            if better:
                self._write_weights(self.best_path)
        loss = sum(self.losses) / max(len(self.losses), 1)
        data = self.config.data
        has_held_out = bool(data.validation or getattr(data, "validation_share", 0))
        return Validated(
            self.step, self.seconds, loss, metrics, before, better, has_held_out
        )

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that may not change when the run is resumed; see `identity_of`."""
        model = full_model(self.config, self.network)
        return identity_of(self.config, model, self.learner.objective.fixed_settings)

    def save_checkpoint(self) -> None:
        """Save all that a resumed run needs. Raises CheckpointError, and leaves the earlier one."""
        if not self.group.first:
            # what the learner holds, then the run's own numbers
            return
        state = {name: getattr(self.learner, name).state_dict() for name in LEARNT}
        state |= {
            name: getattr(self, name)
            for name in ("step", "seconds", "losses", "init", "identity")
        }
        with delayed_signals():
            write_checkpoint(self.checkpoint, state | self.validations.state_dict())

    def load_checkpoint(self) -> None:
        """Restore the checkpoint. Raises CheckpointError if unreadable, ConfigError if of another run."""
        # the same run, with settings that may have changed
        state = read_checkpoint(self.checkpoint)
        check_same(self.checkpoint, state["identity"], self.identity)
        groups = self.learner.optimiser.param_groups
        settings = [dict(group) for group in groups]
        for values in settings:
            del values["params"]
        try:
            for name in LEARNT:
                getattr(self.learner, name).load_state_dict(state[name])
            for group, values in zip(
                self.learner.optimiser.param_groups, settings, strict=True
            ):
                # the configuration's weight decay may have changed
                group.update(values)
            self.validations.load_state_dict(state)
            if self.validations.best:
                check_alike(
                    self.validations.best.weights, self.learner.average.state_dict()
                )
            for name in ("step", "seconds", "losses", "init"):
                setattr(self, name, state[name])
        except (
            AttributeError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise ConfigError(
                f"{self.checkpoint}: is of another network than that of [model]; choose another `output`"
            ) from error

    def save_weights(self) -> Path:
        """Write the averaged network of the last step; return the path."""
        self._write_weights(self.weights_path)
        return self.weights_path

    def _write_weights(self, path: Path) -> None:
        """Write the averaged network in half precision, with its training and held-out metrics."""
        if self.group.first:
            average = self.learner.average
            curve = self.validations.curve
            write_weights(
                path,
                average,
                self.config,
                self.learner.objective,
                curve=curve,
                init=self.init,
                step=self.step,
            )


@contextmanager
def stop_signal(deadline: float) -> Iterator[Callable[[], bool]]:
    """Yield a function that is true from `deadline` on, by `time.monotonic`, and after SIGUSR1."""
    received: list[int] = []
    # handlers can be set in the main thread alone
    numbers = [signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {
        number: signal.signal(number, lambda number, frame: received.append(number))
        for number in numbers
    }
    try:
        yield lambda: bool(received) or time.monotonic() >= deadline
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
            f"{config.path}: memory ran out ({reason}); set training.accumulate to 2 or more, "
            f"training.recompute to true, or try a smaller training.batch than {config.training.batch}"
        ) from error
