"""The configuration of a training run: one TOML file such as those in `examples/train`, checked value by
value.

    config = read_config(Path("examples/train/dust-denoise.toml"), ["training.steps=1000"])
    config.training.steps, config.data.validation, config_toml(config)

[data] has the sources of pictures and the sizes of crops, [training] the rest; which dataclasses these are
depends on the family.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.files.regular import LARGEST_TOML, read_limited
from vidrestore.lab.degrade import DEGRADATIONS
from vidrestore.media.reading.pictures import READABLE_SUFFIXES as PHOTOS
from vidrestore.settings.checking import (
    Checked,
    checked,
    parse_toml,
    toml,
    with_settings,
)
from vidrestore.settings.families import Training, find_family, load
from vidrestore.settings.tasks import TASKS

AtLeastOne = Annotated[int, Field(ge=1)]
Portion = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Precision = Literal["bf16", "fp32"]


@dataclass(frozen=True)
class Schedule(Checked):
    """Length, learning rate and batch of a run.

    `schedule`: "cosine" is constant and then half a cosine; "restarts" is half cosines of equal length, each
    from its share of the rate (I. Loshchilov and F. Hutter, "SGDR", ICLR 2017; VSR-Transformer); "plateau" is
    constant, and reduced if the held-out metrics stop improving (DUST).
    """

    steps: AtLeastOne
    batch: AtLeastOne = 64
    learning_rate: Positive = 1e-3
    # steps over which the rate rises from 0; None: 200, or all of a shorter run
    warmup: Annotated[int, Field(ge=0)] | None = None
    schedule: Literal["cosine", "restarts", "plateau"] = "cosine"
    # share of the steps, at the end, over which a cosine falls to the floor
    decay: Portion = 0.4
    # lowest learning rate; None: cosines end at 1 % of the rate, and a plateau has none
    floor: Annotated[float, Field(ge=0)] | None = None
    restarts: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)
    ] = (1.0,) * 4
    # validations in a row without improvement until a plateau is reduced
    patience: AtLeastOne = 5
    # by which a plateau is multiplied
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.3
    # decay of Adam's running means of gradients and of squares
    betas: tuple[Decay, Decay] = (0.9, 0.99)
    # largest norm of all gradients; 0: not clipped
    clip_norm: Annotated[float, Field(ge=0)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    precision: Precision = "bf16"
    validate_every: AtLeastOne = 1000
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 3.0
    # parts of a process's share of a batch, computed one after the other
    accumulate: AtLeastOne = 1
    # compute activations again for the gradients, instead of keeping them
    recompute: bool = False
    # translate the network by torch.compile, for GPUs: fewer, larger kernels
    compile: bool = False
    # decay of the running average of the weights, which is validated and saved; 0: no average
    average: Decay = 0.999

    def __post_init__(self) -> None:
        highest = f"at most the learning rate's {self.learning_rate:g}"
        require((self.floor or 0) <= self.learning_rate, "floor", highest, self.floor)
        expected = "false where recompute is true: both at once are not supported"
        require(
            not (self.compile and self.recompute), "compile", expected, self.compile
        )


@dataclass(frozen=True)
class TrainingConfig(Schedule):
    """Training on groups of patches."""

    # one noise level on the 0-255 scale (0 for compressed sensing), or the lowest and the highest, between
    # which levels are drawn uniformly in their logarithm
    sigma: Annotated[
        tuple[Annotated[float, Field(ge=0, le=255)], ...],
        Field(min_length=1, max_length=2),
    ] = (
        1.0,
        75.0,
    )
    # clip and round noisy patches as a video file holds them; never measurements
    clip_noise: bool = True
    # "psnr" is the mean logarithm of each group's squared error, so that groups count alike
    loss: Literal["squared", "psnr"] = "squared"
    # DUST's sensing matrix at the start of a run without initial weights: by Glorot's rule, as in the paper,
    # or the principal components of patches in batches of the first 6,400 steps, the best for linear recovery
    sensing: Literal["glorot", "principal"] = "glorot"

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = len(self.sigma) == 1 or 0 < self.sigma[0] <= self.sigma[1]
        require(
            fits,
            "sigma",
            "one level of 0 or more, or a lowest and a highest above 0",
            self.sigma,
        )


@dataclass(frozen=True)
class PairTrainingConfig(Schedule):
    """Training on pairs of degraded and clean crops; the defaults are for a CPU.

    `loss`: "spectrum" is that of MB-TaylorFormer V2; "psnr" is the mean logarithm of each crop's squared
    error, with which NAFNet is trained (L. Chen et al., "Simple Baselines for Image Restoration", ECCV 2022),
    so that strong and faint degradations count alike.
    """

    batch: AtLeastOne = 2
    learning_rate: Positive = 3e-4
    decay: Portion = 1.0
    precision: Precision = "fp32"
    validate_every: AtLeastOne = 500
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    weight_decay: Decay = 1e-4
    loss: Literal["spectrum", "psnr"] = "spectrum"
    # squared error in [0, 1] below which a crop has less weight in the loss "psnr"
    least_error: Annotated[float, Field(gt=0, le=1)] = 1e-3


@dataclass(frozen=True)
class ClipTrainingConfig(Schedule):
    """Training on clips; the defaults are for a CPU."""

    batch: AtLeastOne = 2
    learning_rate: Positive = 4e-4
    decay: Portion = 1.0
    precision: Precision = "fp32"
    validate_every: AtLeastOne = 500
    # "charbonnier", VSR-Transformer's, is minimised by the median of all possible frames, "psnr" by the mean
    loss: Literal["charbonnier", "psnr"] = "charbonnier"
    # beginnings of the names of the parameters that are trained; empty for all
    parts: tuple[str, ...] = ()


LARGEST_CROP = 288  # pixels
LARGEST_VIEW = 1080  # pixels; largest side of a crop before it is downscaled


@dataclass(frozen=True)
class FootageConfig(Checked):
    """The sources of pictures; folders are relative to the configuration's own."""

    clips: str | tuple[str, ...]  # a folder of videos, or several
    stills: str | tuple[str, ...] = ""  # the same of photos; empty for none
    # names of clips in these folders that are held out from training
    validation: tuple[str, ...] = ()
    # share of windows that are slow pans and zooms over photos
    still_share: Portion = 0.25

    def __post_init__(self) -> None:
        without_folder = all(name == Path(name).name for name in self.validation)
        expected = "names of files in the folder data.clips, without a folder"
        require(without_folder, "validation", expected, self.validation)

    def card_entries(self) -> dict[str, str]:
        """Return a description of the data for the card of the weights."""
        folders = {"clips": self.clip_folders, "photos": self.still_folders}
        entries = {}
        for kind, names in folders.items():
            entries[kind] = ", ".join(Path(name).name for name in names)
        return entries | {"held out": ", ".join(self.validation)}

    @property
    def clip_folders(self) -> tuple[str, ...]:
        return (self.clips,) if isinstance(self.clips, str) else self.clips

    @property
    def still_folders(self) -> tuple[str, ...]:
        names = (self.stills,) if isinstance(self.stills, str) else self.stills
        return tuple(name for name in names if name)


@dataclass(frozen=True)
class DataConfig(FootageConfig):
    """Groups of patches from footage."""

    chroma_share: Portion = 0.2  # share of groups from chroma planes
    # share of windows whose groups follow the motion; in the others patches don't move
    match_share: Portion = 0.8
    # steps in pixels of the grid that patches are taken from; one is drawn per window
    strides: Annotated[tuple[AtLeastOne, ...], Field(min_length=1)] = (8, 12, 16)
    groups_per_window: AtLeastOne = 280
    frames: AtLeastOne = 20  # length of a group
    # mirror groups, but don't transpose them: a sensing matrix of few rows is made for upright pictures
    upright: bool = False
    # times that a group is trained on, with new noise each time, before it is replaced
    reuse: AtLeastOne = 6
    pool: int = 24_000  # most groups in memory

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = f"at least one window of {self.groups_per_window} groups"
        require(self.pool >= self.groups_per_window, "pool", expected, self.pool)


@dataclass(frozen=True)
class PairDataConfig(FootageConfig):
    """Crops of RGB footage and degraded copies. `still_share` counts crops here."""

    # one is drawn per crop
    degradations: tuple[str, ...] = ("haze", "rain", "snow", "blur", "noise")
    # side in pixels
    crop: Annotated[int, Field(ge=16, le=LARGEST_CROP, multiple_of=8)] = 96
    # length of the network's input clip, whose middle frame is restored
    frames: AtLeastOne = 1
    # largest side of a crop before it is downscaled to `crop`, so that it shows more of a scene; None: `crop`
    widest: int | None = None
    # share of crops without degradation, so that clean video is left unchanged
    untouched: Portion = 0.08
    combined: Portion = 0.08  # share of the others that have a second degradation
    # share of the others that are compressed after the degradation
    recompressed: Portion = 0.3
    # steps that a batch is used for, each time cropped and mirrored differently
    reuse: AtLeastOne = 1
    fast: Portion = 0.0  # share of crops with fast motion
    # share of the others whose frame is its own neighbours, as that of a photo
    alone: Portion = 0.0
    distracted: Portion = 0.0  # share with bright moving objects that aren't weather

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.frames % 2 == 1, "frames", "an odd number", self.frames)
        valid = bool(self.degradations) and set(self.degradations) <= set(DEGRADATIONS)
        require(
            valid,
            "degradations",
            f"one or more of {', '.join(DEGRADATIONS)}",
            self.degradations,
        )
        in_range = self.widest is None or self.crop <= self.widest <= LARGEST_VIEW
        require(
            in_range,
            "widest",
            f"from the crop's {self.crop} to {LARGEST_VIEW}",
            self.widest,
        )


@dataclass(frozen=True)
class ClipDataConfig(FootageConfig):
    """Crops of RGB clips, and the same crops downscaled by 4. `still_share` counts crops here."""

    frames: AtLeastOne = 5
    # side of the low-resolution crops in pixels
    crop: Annotated[int, Field(ge=8, le=LARGEST_CROP // 4, multiple_of=8)] = 40
    # low-resolution crops are also blurred, noisy and compressed; else downscaled bicubically alone
    practical: bool = False
    # share of crops of photos that slide over a photo's own pixels
    native: Portion = 0.0
    # steps that a batch is used for, each time cropped and mirrored differently
    reuse: AtLeastOne = 1


@dataclass(frozen=True)
class SetConfig(Checked):
    """One of the papers' datasets."""

    dataset: str
    folder: str  # relative to the configuration's own
    split: str = "train"
    # splits of the same dataset, or of others in the folder, as in ["test", "rain100l/test"]; empty: the
    # network is validated on its training data
    validation: tuple[str, ...] = ()
    kind: ClassVar[Literal["pairs", "clips"]]

    def __post_init__(self) -> None:
        # imported late: the papers' tables are large
        # only for recipes that name one
        sets = import_module("vidrestore.lab.papers.datasets")
        datasets = sets.names(self.kind)
        for name, split in [(self.dataset, self.split), *self.validation_sets]:
            require(name in datasets, "dataset", f"one of {', '.join(datasets)}", name)
            require(
                split in sets.splits(name),
                f"split of {name}",
                " or ".join(sets.splits(name)),
                split,
            )

    @property
    def validation_sets(self) -> list[tuple[str, str]]:
        """The datasets and splits of `validation`."""
        pairs = []
        for entry in self.validation:
            name, _, split = entry.rpartition("/")
            pairs.append((name or self.dataset, split))
        return pairs

    def card_entries(self) -> dict[str, str]:
        """Return a description of the data for the card of the weights."""
        return {
            "dataset": f"{self.dataset} {self.split}",
            "held out": ", ".join(self.validation),
        }


@dataclass(frozen=True)
class PairSetConfig(SetConfig):
    """Crops of a dataset of degraded and clean pictures."""

    crop: Annotated[int, Field(ge=16, multiple_of=8)] = 256  # side in pixels
    # most whole pictures of each test set of `validation`, spread evenly over it; 0 for all
    validation_pictures: Annotated[int, Field(ge=0)] = 0
    kind = "pairs"


@dataclass(frozen=True)
class ClipSetConfig(SetConfig):
    """Crops of a dataset of clips, and the same crops downscaled by 4."""

    frames: AtLeastOne = 5
    # side of the low-resolution crops in pixels
    crop: Annotated[int, Field(ge=8, multiple_of=8)] = 64
    # use the dataset's low-resolution frames; else downscale bicubically
    read_small: bool = False
    kind = "clips"


@dataclass(frozen=True)
class GroupSetConfig(SetConfig):
    """Groups of patches at fixed places of a dataset's clips, in gray, as the DUST paper has them (IV-A).

    `validation` names further splits to hold out; by default a share of the clips is held out.
    """

    # of the clips; 0: validate on training data
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    # length of a group; clips are cut into whole groups side by side
    frames: AtLeastOne = 20
    # pixels between patches; a patch's side for patches that don't overlap
    stride: AtLeastOne = 8
    # height after downscaling; 0: none; None: as the paper
    lines: Annotated[int, Field(ge=0)] | None = None
    most_frames: AtLeastOne = 200  # of each clip, from its beginning
    kind = "clips"

    def card_entries(self) -> dict[str, str]:
        share = (
            f"{self.validation_share:.0%} of the clips" if self.validation_share else ""
        )
        return super().card_entries() | {
            "held out": ", ".join(self.validation) or share
        }


def require(holds: bool, name: str, expected: str, value: Any) -> None:
    """Raise ConfigError, saying that `name` must be `expected`, unless `holds` is true."""
    if not holds:
        text = list(value) if isinstance(value, tuple) else repr(value)
        raise ConfigError(f"{name} must be {expected}, found {text}")


SECTIONS = ("model", "data", "training", "parameters")
TASK_OF = {kind: task.name for task in TASKS.values() for kind in task.degradations}


@dataclass(frozen=True)
class RunConfig:
    """One run. Raises ConfigError for a task that the family isn't for, and denoising without noise."""

    name: str  # of the weights
    task: str
    family: str
    model: dict[str, Any]  # settings of the network
    data: FootageConfig | SetConfig
    training: Schedule
    path: Path  # the configuration file
    # such as {"rate": 0.2}, for the card of the weights; by default the noise levels
    parameters: dict[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # "KEY=VALUE" that override the file

    def __post_init__(self) -> None:
        tasks = find_family(self.family).tasks
        # what the schedule and the task ask of each other
        require(
            self.task in tasks,
            "task",
            f"{' or '.join(tasks)} for {self.family}",
            self.task,
        )
        warmup = self.training.warmup or 0
        steps = self.training.steps
        require(
            warmup <= steps,
            "[training] warmup",
            f"at most the {steps} steps of the run",
            warmup,
        )
        if isinstance(self.training, TrainingConfig):
            sigma, senses = self.training.sigma, bool(self.model.get("measurements"))
            expected = "recover with [model] measurements, else denoise"
            require(senses == (self.task == "recover"), "task", expected, self.task)
            require(
                senses or sigma[0] > 0, "[training] sigma", "above 0 to denoise", sigma
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
        return shlex.join(
            ["vidrestore", "train", "--config", self.path.name, *settings, *inits]
        )


def read_config(
    path: Path, settings: Iterable[str] = (), data: Path | None = None
) -> RunConfig:
    """Read the configuration of a run; `settings` ("training.steps=1000", "data.clips=v") override the file,
    and data comes from the folder `data` if that is given.

    Raises ConfigError, with the place and the value, for a file that isn't TOML and for missing, unknown or
    wrong values; OptionError for settings that aren't KEY=VALUE or of an unknown section.
    """
    try:
        text = read_limited(path, LARGEST_TOML).decode()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error
    return parse_config(text, path, settings, data)


def _data_settings(folder: Path, section: Any) -> list[str]:
    """Return the settings by which [data] takes its data from `folder`: all its videos and photos, none held
    out, or the dataset that it names. Raises ConfigError.
    """
    # all videos and photos of the folder, or the dataset in it
    place = folder.resolve()
    # also of a name that is too long, of which `Path.is_dir` raises OSError
    if not os.path.isdir(place):
        raise ConfigError(f"{folder}: no such folder")
    if isinstance(section, dict) and "dataset" in section:
        return [f"data.folder={json.dumps(str(place))}"]
    photos = any(entry.suffix.lower() in PHOTOS for entry in place.iterdir())
    data = {
        "clips": str(place),
        "stills": str(place) if photos else "",
        "validation": [],
    }
    return [f"data.{name}={json.dumps(value)}" for name, value in data.items()]


@dataclass(frozen=True)
class _File(Checked):
    """The content of a file before [data] and [training] are checked, whose dataclasses the family names."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    task: str
    family: str
    model: dict[str, Any]
    data: dict[str, Any]
    training: dict[str, Any]
    parameters: dict[str, Any] = field(default_factory=dict)


def parse_config(
    text: str, path: Path, settings: Iterable[str] = (), data: Path | None = None
) -> RunConfig:
    """Parse a configuration as `read_config` does; paths are relative to the folder of `path`."""
    # the file, with what the command line changes
    try:
        tables = parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error
    data_settings = _data_settings(data, tables.get("data")) if data else []
    settings = (*data_settings, *settings)
    content = with_settings(tables, settings, SECTIONS)
    file = checked(_File, content, str(path))
    # the family decides what [data] and [training] hold
    try:
        training = find_family(file.family).training
    except CheckpointError as error:
        raise ConfigError(f"{path}: {error}") from error
    if training is None:
        raise ConfigError(f"{path}: the family {file.family!r} has no training")
    of_dataset = training.dataset and "dataset" in file.data
    kinds = {
        "data": training.dataset if of_dataset else training.data,
        "training": training.settings,
    }
    sections = {}
    for name, kind in kinds.items():
        sections[name] = checked(load(kind), content[name], f"{path}, [{name}]")
    try:
        return RunConfig(**(vars(file) | sections), path=path, settings=settings)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def config_toml(config: RunConfig) -> str:
    """Return a run's configuration as TOML, defaults included; in the same folder it reads back equal."""
    return toml({item.name: getattr(config, item.name) for item in fields(_File)})
