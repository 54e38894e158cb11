"""What a training run is: one TOML file under `examples/train`, checked value by value."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from vidrestore.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class DataConfig:
    """Where pictures come from. Paths are relative to the configuration's own folder. `validation`: names kept out of training."""

    clips: str
    stills: str = ""
    validation: tuple[str, ...] = ()
    still_share: float = 0.25  # of windows, made as slow pans and zooms over photos
    chroma_share: float = 0.2  # of groups
    match_share: float = 0.8  # of windows whose groups follow the motion; the others stay in place
    strides: tuple[int, ...] = (8, 12, 16)
    groups_per_window: int = 280
    reuse: int = 6  # how often a group is trained on, each time with other noise, before it is replaced
    pool: int = 24_000  # groups in memory


@dataclass(frozen=True)
class TrainingConfig:
    """How to train.

    `sigma`: one noise level (0 for compressed sensing without noise), or the lowest and highest; levels are then drawn evenly in its log.
    """

    steps: int
    sigma: tuple[float, ...] = (1.0, 75.0)
    batch: int = 64
    learning_rate: float = 1e-3
    warmup: int = 200
    decay: float = 0.4  # share of the steps over which the learning rate falls, as a half cosine, to 1 %
    clip_norm: float = 1.0
    seed: int = 0
    precision: str = "bf16"
    validate_every: int = 1000
    checkpoint_minutes: float = 3.0


@dataclass(frozen=True)
class RunConfig:
    """One run: the model by family and its own settings, the data, the training, the name of the weights."""

    name: str
    task: str
    family: str
    model: dict[str, Any]
    data: DataConfig
    training: TrainingConfig
    folder: Path  # of the configuration file; data paths are relative to it

    @property
    def seed(self) -> int:
        return self.training.seed


def read_config(path: Path) -> RunConfig:
    """Raises ConfigError for a file that is no TOML, and for missing, unknown or wrong values."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error
    unknown = content.keys() - {"name", "task", "family", "model", "data", "training"}
    missing = {"name", "task", "family", "model", "data", "training"} - content.keys()
    if unknown or missing:
        raise ConfigError(f"{path}: {_complaint(unknown, missing)}; a run has name, task, family, [model], [data] and [training]")
    data = _section(DataConfig, content["data"], f"{path}, [data]")
    training = _section(TrainingConfig, content["training"], f"{path}, [training]")
    _check(training, data, path)
    return RunConfig(content["name"], content["task"], content["family"], content["model"], data, training, path.resolve().parent)


def _section(kind: type[T], values: dict[str, Any], where: str) -> T:
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    unknown = values.keys() - known.keys()
    if unknown:
        raise ConfigError(f"{where}: {_complaint(unknown, set())}; there are: {', '.join(known)}")
    try:
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def _complaint(unknown: set[str], missing: set[str]) -> str:
    parts = [f"unknown: {', '.join(sorted(unknown))}"] if unknown else []
    return "; ".join(parts + ([f"missing: {', '.join(sorted(missing))}"] if missing else []))


def _check(training: TrainingConfig, data: DataConfig, path: Path) -> None:
    checks = {
        "training.steps must be at least 1": training.steps >= 1,
        "training.batch must be at least 1": training.batch >= 1,
        "training.sigma must be one level, or a lowest and a highest above 0": _is_range(training.sigma),
        "training.precision must be 'bf16' or 'fp32'": training.precision in ("bf16", "fp32"),
        "data shares must be in [0, 1]": all(0 <= share <= 1 for share in (data.still_share, data.chroma_share, data.match_share)),
        "data.pool must hold at least one window of groups": data.pool >= data.groups_per_window > 0,
    }
    for text, holds in checks.items():
        if not holds:
            raise ConfigError(f"{path}: {text}")


def _is_range(sigma: tuple[float, ...]) -> bool:
    return (len(sigma) == 1 and sigma[0] >= 0) or (len(sigma) == 2 and 0 < sigma[0] <= sigma[1])
