"""The configuration of a training run: one TOML file such as those in `examples/train`, checked value by
value.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.families import Training, find_family, load
from vidrestore.files.regular import LARGEST_TOML, read_limited
from vidrestore.training.data_config import (
    ClipSetConfig,
    FootageConfig,
    PairSetConfig,
)
from vidrestore.training.tables import parse_toml, require, section, toml, with_settings

PRECISIONS = ("bf16", "fp16", "fp32")
SCHEDULES = ("cosine", "restarts", "plateau")
FINAL = ("last", "best")
OPTIMISERS = ("adam", "muon")
PICTURE_LOSSES = ("spectrum", "psnr")
CLIP_LOSSES = ("charbonnier", "psnr")


@dataclass(frozen=True)
class Schedule:
    """Length, learning rate and batch of a run. Raises ConfigError for values out of range."""

    steps: int
    batch: int = 64
    learning_rate: float = 1e-3
    warmup: int = 200
    # share of the steps, at the end, over which the learning rate falls to the floor as a half cosine
    decay: float = 0.4
    clip_norm: float = 1.0
    seed: int = 0
    precision: str = "bf16"
    validate_every: int = 1000
    checkpoint_minutes: float = 3.0
    schedule: str = "cosine"
    floor: float | None = None  # lowest learning rate; None: a cosine ends at 1 % of the rate
    # half cosines of equal length, by the share of the rate that each begins at
    restarts: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    patience: int = 5  # validations without improvement until the rate is reduced
    factor: float = 0.3  # the rate is multiplied by it
    # decay of the running average of the weights, which is validated and saved; 0: no average
    average: float = 0.999
    # weights written at the end: those of the last step, or of the best validation
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
        in_range = bool(self.restarts) and all(0 < share <= 1 for share in self.restarts)
        require(in_range, "restarts", "one or more shares, each above 0 and at most 1", self.restarts)
        require(0 < self.factor < 1, "factor", "between 0 and 1", self.factor)
        require(0 <= self.average < 1, "average", "in [0, 1)", self.average)


@dataclass(frozen=True)
class TrainingConfig(Schedule):
    """Training on groups of patches. Raises ConfigError for values out of range.

    `sigma`, on the 0-255 scale, is one noise level (0 for compressed sensing), or the lowest and the highest;
    levels are then drawn uniformly in their logarithm. With `clip_noise`, noisy patches are clipped and
    rounded as a video file holds them; else, and always on measurements, noise is left as drawn.
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
    # of "psnr": squared error in [0, 1] below which a crop has less weight
    least_error: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.least_error <= 1, "least_error", "above 0 and at most 1", self.least_error)
        require(self.loss in PICTURE_LOSSES, "loss", " or ".join(PICTURE_LOSSES), self.loss)
        require(0 <= self.weight_decay < 1, "weight_decay", "in [0, 1)", self.weight_decay)


@dataclass(frozen=True)
class FlowTrainingConfig(Schedule):
    """Training on the flow between frames; the defaults are for a CPU. Raises ConfigError for values out of
    range.
    """

    batch: int = 2
    learning_rate: float = 4e-4
    decay: float = 1.0
    precision: str = "fp32"
    validate_every: int = 500


@dataclass(frozen=True)
class ClipTrainingConfig(FlowTrainingConfig):
    """Training on clips; the defaults are for a CPU. Raises ConfigError for values out of range.

    `loss`: "charbonnier" is the mean distance that VSR-Transformer was trained with; the best answer to it is
    the median of all that a frame may have been. The best answer to "psnr", as in PairTrainingConfig, is
    their mean.
    """

    optimiser: str = "adam"
    loss: str = "charbonnier"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.optimiser in OPTIMISERS, "optimiser", " or ".join(OPTIMISERS), self.optimiser)
        require(self.loss in CLIP_LOSSES, "loss", " or ".join(CLIP_LOSSES), self.loss)


TABLES = ("model", "data", "training", "parameters")
# the task that removes each degradation
TASK_OF = {
    "haze": "dehaze",
    "rain": "derain",
    "snow": "desnow",
    "blur": "deblur",
    "noise": "denoise",
    "white": "denoise",
    "coloured": "denoise",
}
Data = FootageConfig | PairSetConfig | ClipSetConfig


@dataclass(frozen=True)
class RunConfig:
    """One run: the name and task of the weights, the family and settings of the model, the data, the
    training.

    `parameters` goes onto the card of the weights: what their task requires, such as {"rate": 0.2}; by
    default the noise levels. Raises ConfigError for a name that weights can't have, a task that the family
    isn't for, and denoising without noise.
    """

    name: str
    task: str
    family: str
    model: dict[str, Any]
    data: Data
    training: Schedule
    path: Path  # the configuration file
    parameters: dict[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # "KEY=VALUE" that override the file

    def __post_init__(self) -> None:
        require(
            bool(re.fullmatch(r"[a-z0-9][a-z0-9-]*", self.name)),
            "name",
            "of lower-case letters, digits and hyphens",
            self.name,
        )
        tasks = find_family(self.family).tasks
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
    def kind(self) -> Training:
        """The kind of training of the family."""
        kind = find_family(self.family).training
        assert kind is not None, "checked when the configuration was parsed"
        return kind

    @property
    def folder(self) -> Path:
        """The folder that the data's paths are relative to."""
        return self.path.resolve().parent

    def command(self, init: Iterable[str] = ()) -> str:
        """Return the command that trains the weights, started from the weights `init`, for their card."""
        settings = [part for value in self.settings for part in ("--set", value)]
        inits = [part for source in init for part in ("--init", source)]
        return shlex.join(["vidrestore", "train", "--config", self.path.name, *settings, *inits])


def read_config(path: Path, settings: Iterable[str] = ()) -> RunConfig:
    """Read the configuration of a run; `settings` ("training.steps=1000", "data.clips=videos") override the
    file.

    Raises ConfigError, with the place and the value, for a file that isn't TOML and for missing, unknown or
    wrong values; OptionError for settings that aren't KEY=VALUE or of an unknown section.
    """
    try:
        text = read_limited(path, LARGEST_TOML, follow=True).decode()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error
    return parse_config(text, path, settings)


def parse_config(text: str, path: Path, settings: Iterable[str] = ()) -> RunConfig:
    """Parse the text of a configuration as `read_config` does; its paths are relative to the folder of
    `path`.
    """
    settings = tuple(settings)
    content = with_settings(parse_toml(text, str(path)), settings, TABLES)
    for name, kind in _sections(content, path).items():
        content[name] = section(kind, content[name], f"{path}, [{name}]")
    return section(RunConfig, content, str(path), path=path, settings=settings)


def _sections(content: dict[str, Any], path: Path) -> dict[str, type[Any]]:
    """Return the dataclasses of the sections [data] and [training] that a file has, by the family's training.
    Raises ConfigError for a family that is unknown or isn't trained.
    """
    name = content.get("family")
    if not isinstance(name, str):
        return {}  # reported when the whole file is checked
    try:
        training = find_family(name).training
    except CheckpointError as error:
        raise ConfigError(f"{path}: {error}") from error
    if training is None:
        raise ConfigError(f"{path}: the family {name!r} has no training")
    data = content.get("data")
    of_dataset = training.dataset and isinstance(data, dict) and "dataset" in data
    kinds = {"data": training.dataset if of_dataset else training.data, "training": training.settings}
    return {section: load(kind) for section, kind in kinds.items() if section in content}


def config_toml(config: RunConfig) -> str:
    """Return a run's configuration as TOML, defaults included; in the same folder it reads back equal."""
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
