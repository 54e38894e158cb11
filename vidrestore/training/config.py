"""The configuration of a training run: one TOML file under `examples/train`, checked value by value."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from vidrestore.errors import ConfigError
from vidrestore.files.regular import LARGEST_TOML, read_limited
from vidrestore.training.data_config import (
    ClipDataConfig,
    ClipSetConfig,
    DataConfig,
    FlowDataConfig,
    FootageConfig,
    PairDataConfig,
    PairSetConfig,
)
from vidrestore.training.tables import parse_toml, require, section, toml, with_settings

PRECISIONS = ("bf16", "fp16", "fp32")
SCHEDULES = ("cosine", "restarts", "plateau")
FINAL = ("last", "best")
OPTIMISERS = ("adam", "muon")
PICTURE_LOSSES = ("spectrum", "psnr")


@dataclass(frozen=True)
class Schedule:
    """Length, learning rate and batch of a run. Raises ConfigError for values out of range."""

    steps: int
    batch: int = 64
    learning_rate: float = 1e-3
    warmup: int = 200
    # share of the steps over which the learning rate falls, as a half cosine, to the floor
    decay: float = 0.4
    clip_norm: float = 1.0
    seed: int = 0
    precision: str = "bf16"
    validate_every: int = 1000
    checkpoint_minutes: float = 3.0
    schedule: str = "cosine"
    floor: float | None = None  # the learning rate does not fall below; without, a cosine ends at 1 % of it
    # half cosines of equal length, and the share of the rate that each begins at
    restarts: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    patience: int = 5  # validations on a plateau until the rate is reduced
    factor: float = 0.3  # that it is reduced by
    # decay of the running average of the weights, which is what is judged and saved; 0: the network itself is
    average: float = 0.999
    # what the weights are at the end: those of the last step, or the best of all validations
    final: str = "last"

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "validate_every", "patience"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("learning_rate", "clip_norm"):
            require(0 < getattr(self, name) < math.inf, name, "above 0", getattr(self, name))
        for name in ("warmup", "checkpoint_minutes"):
            require(getattr(self, name) >= 0, name, "0 or more", getattr(self, name))
        require(0 <= self.decay <= 1, "decay", "in [0, 1]", self.decay)
        require(0 <= self.seed < 2**31, "seed", "in [0, 2^31)", self.seed)
        for name, known in (("precision", PRECISIONS), ("schedule", SCHEDULES), ("final", FINAL)):
            require(getattr(self, name) in known, name, " or ".join(known), getattr(self, name))
        floor = 0.0 if self.floor is None else self.floor
        require(
            0 <= floor <= self.learning_rate,
            "floor",
            f"from 0 to the learning rate's {self.learning_rate:g}",
            floor,
        )
        falls = bool(self.restarts) and all(0 < share <= 1 for share in self.restarts)
        require(falls, "restarts", "one or more shares, each above 0 and at most 1", self.restarts)
        require(0 < self.factor < 1, "factor", "between 0 and 1", self.factor)
        require(0 <= self.average < 1, "average", "in [0, 1)", self.average)


@dataclass(frozen=True)
class TrainingConfig(Schedule):
    """Training on groups. Raises ConfigError for values out of range.

    `sigma`, on the 0-255 scale: one noise level (0: none, for compressed sensing), or the lowest and highest;
    levels are then drawn evenly in their logarithm. `clip_noise`: noisy patches are clipped and rounded as a
    video file holds them; else noise stays as drawn, as it always does on measurements.
    """

    sigma: tuple[float, ...] = (1.0, 75.0)
    clip_noise: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            _is_range(self.sigma),
            "sigma",
            "one level of 0 or more, or a lowest and a highest above 0",
            self.sigma,
        )


@dataclass(frozen=True)
class PairTrainingConfig(Schedule):
    """Training on pairs of degraded and clean crops; the defaults are for a CPU. Raises ConfigError for
    values out of range.

    `loss`: "spectrum" is that of MB-TaylorFormer V2; "psnr" is the mean logarithm of each crop's squared
    error, with which NAFNet is trained (L. Chen et al., "Simple Baselines for Image Restoration", ECCV 2022),
    so that strong and faint degradations count alike.
    """

    batch: int = 2
    learning_rate: float = 3e-4
    decay: float = 1.0
    precision: str = "fp32"
    validate_every: int = 500
    weight_decay: float = 1e-4
    loss: str = "spectrum"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.loss in PICTURE_LOSSES, "loss", " or ".join(PICTURE_LOSSES), self.loss)
        require(0 <= self.weight_decay < 1, "weight_decay", "in [0, 1)", self.weight_decay)


@dataclass(frozen=True)
class ClipTrainingConfig(Schedule):
    """Training on clips, and on flow; the defaults are for a CPU. Raises ConfigError for values out of
    range.
    """

    batch: int = 2
    learning_rate: float = 4e-4
    decay: float = 1.0
    precision: str = "fp32"
    validate_every: int = 500
    optimiser: str = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.optimiser in OPTIMISERS, "optimiser", " or ".join(OPTIMISERS), self.optimiser)


TABLES = ("model", "data", "training", "parameters")
SECTIONS = {"data": DataConfig, "training": TrainingConfig}
FAMILY_SECTIONS = {  # of families with other ones
    "mb-taylorformer": {"data": PairDataConfig, "training": PairTrainingConfig},
    "vsr-transformer": {"data": ClipDataConfig, "training": ClipTrainingConfig},
    "spynet": {"data": FlowDataConfig, "training": ClipTrainingConfig},
}
# of families that are trained for others than TASKS; "all" and "flow" are for others to start from
FAMILY_TASKS = {
    "mb-taylorformer": ("dehaze", "derain", "desnow", "deblur", "denoise", "all"),
    "vsr-transformer": ("sr",),
    "spynet": ("flow",),
}
TASKS = ("denoise", "recover")
# by degradation
TASK_OF = {"haze": "dehaze", "rain": "derain", "snow": "desnow", "blur": "deblur", "noise": "denoise"}
SET_DATA = {PairDataConfig: PairSetConfig, ClipDataConfig: ClipSetConfig}  # of a [data] that names a dataset
Data = FootageConfig | PairSetConfig | ClipSetConfig


@dataclass(frozen=True)
class RunConfig:
    """One run: the name of the weights and their task, the model by family and its own settings, the data,
    the training.

    Raises ConfigError for a name that no weights can have, a task that the family isn't for, and denoising
    without noise.

    `parameters` goes onto the card of the weights: what their task may ask of them ({"rate": 0.2}); the noise
    levels unless given.
    """

    name: str
    task: str
    family: str
    model: dict[str, Any]
    data: Data
    training: Schedule
    path: Path  # of the configuration file
    parameters: dict[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # of the command line, that stand in place of what the file says

    def __post_init__(self) -> None:
        require(
            bool(re.fullmatch(r"[a-z0-9][a-z0-9-]*", self.name)),
            "name",
            "of lower-case letters, digits and hyphens",
            self.name,
        )
        tasks = FAMILY_TASKS.get(self.family, TASKS)
        require(self.task in tasks, "task", f"{' or '.join(tasks)} for {self.family}", self.task)
        if isinstance(self.training, TrainingConfig):
            senses = bool(self.model.get("measurements"))
            require(
                senses == (self.task == "recover"),
                "task",
                "recover with [model] measurements, else denoise",
                self.task,
            )
            require(
                senses or self.training.sigma[0] > 0,
                "[training] sigma",
                "above 0 to denoise",
                self.training.sigma,
            )

    @property
    def folder(self) -> Path:
        """The folder that the data's paths are relative to."""
        return self.path.resolve().parent

    def command(self, init: Iterable[str] = ()) -> str:
        """That trains it from the weights `init`, or from none; for the card of the weights."""
        settings = [part for value in self.settings for part in ("--set", value)]
        starts = [part for source in init for part in ("--init", source)]
        return shlex.join(["vidrestore", "train", "--config", self.path.name, *settings, *starts])


def read_config(path: Path, settings: Iterable[str] = ()) -> RunConfig:
    """Read one run; `settings` ("training.steps=1000", "data.clips=videos") stand in place of what the file
    says.

    Raises ConfigError for a file that is no TOML, and for missing, unknown or wrong values: where and what
    they are. OptionError for settings of another form, or of a section that isn't known.
    """
    try:
        text = read_limited(path, LARGEST_TOML, follow=True).decode()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error
    return parse_config(text, path, settings)


def parse_config(text: str, path: Path, settings: Iterable[str] = ()) -> RunConfig:
    """As `read_config`, from the text of a configuration whose paths are relative to the folder of `path`."""
    settings = tuple(settings)
    content = with_settings(parse_toml(text, str(path)), settings, TABLES)
    family = content.get("family")
    for name, kind in (
        FAMILY_SECTIONS.get(family, SECTIONS) if isinstance(family, str) else SECTIONS
    ).items():
        if name in content:
            of_a_set = isinstance(content[name], dict) and "dataset" in content[name]
            content[name] = section(
                SET_DATA.get(kind, kind) if of_a_set else kind, content[name], f"{path}, [{name}]"
            )
    return section(RunConfig, content, str(path), path=path, settings=settings)


def written_config(config: RunConfig) -> str:
    """A run as a TOML file, defaults included, which in the folder of the first reads back equal."""
    return toml(
        {
            item.name: getattr(config, item.name)
            for item in fields(config)
            if item.name not in ("path", "settings")
        }
    )


def _is_range(sigma: tuple[float, ...]) -> bool:
    if not all(map(math.isfinite, sigma)):
        return False
    return (len(sigma) == 1 and sigma[0] >= 0) or (len(sigma) == 2 and 0 < sigma[0] <= sigma[1])
