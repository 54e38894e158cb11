"""The [data] section of a training configuration: the sources of pictures and the sizes of crops."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

from vidrestore.degrade import DEGRADATIONS
from vidrestore.training.tables import require

LARGEST_CROP = 288  # pixels; pans over photos have this height
LARGEST_VIEW = 1080  # pixels; largest side of a crop before it is downscaled


@dataclass(frozen=True)
class FootageConfig:
    """The sources of pictures. Raises ConfigError for values out of range.

    `clips` and `stills` are folders, or lists of several, relative to the configuration's own; an empty
    `stills` means no photos. `validation` names clips in those folders, without their folder, that are
    excluded from training and used for validation. Shares are in [0, 1].
    """

    clips: str | tuple[str, ...]
    stills: str | tuple[str, ...] = ""
    validation: tuple[str, ...] = ()
    still_share: float = 0.25  # of windows that are slow pans and zooms over photos

    def __post_init__(self) -> None:
        require(0 <= self.still_share <= 1, "still_share", "in [0, 1]", self.still_share)
        without_folder = all(name == Path(name).name for name in self.validation)
        require(
            without_folder,
            "validation",
            "names of files in the folder data.clips, without a folder",
            self.validation,
        )

    def card_entries(self) -> dict[str, str]:
        """Return a description of the data for the card of the weights."""
        clips, photos = (
            ", ".join(Path(name).name for name in names) for names in (self.clip_folders, self.still_folders)
        )
        return {"clips": clips, "photos": photos, "held out": ", ".join(self.validation)}

    @property
    def clip_folders(self) -> tuple[str, ...]:
        return (self.clips,) if isinstance(self.clips, str) else self.clips

    @property
    def still_folders(self) -> tuple[str, ...]:
        names = (self.stills,) if isinstance(self.stills, str) else self.stills
        return tuple(name for name in names if name)


@dataclass(frozen=True)
class DataConfig(FootageConfig):
    """Groups of patches from footage. Raises ConfigError for values out of range."""

    chroma_share: float = 0.2  # of groups
    match_share: float = 0.8  # of windows whose groups follow the motion; in the others patches don't move
    # steps in pixels of the grid that patches are taken from; one is drawn per window
    strides: tuple[int, ...] = (8, 12, 16)
    groups_per_window: int = 280
    reuse: int = 6  # times that a group is trained on, with new noise each time, before it is replaced
    pool: int = 24_000  # most groups in memory

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("chroma_share", "match_share"):
            require(0 <= getattr(self, name) <= 1, name, "in [0, 1]", getattr(self, name))
        require(
            bool(self.strides) and min(self.strides) >= 1,
            "strides",
            "one or more, each at least 1",
            self.strides,
        )
        require(self.groups_per_window >= 1, "groups_per_window", "at least 1", self.groups_per_window)
        require(self.reuse >= 1, "reuse", "at least 1", self.reuse)
        require(
            self.pool >= self.groups_per_window,
            "pool",
            f"at least one window of {self.groups_per_window} groups",
            self.pool,
        )


@dataclass(frozen=True)
class PairDataConfig(FootageConfig):
    """Crops of RGB footage and degraded copies. `still_share` counts crops here.

    Raises ConfigError for values out of range.
    """

    degradations: tuple[str, ...] = ("haze", "rain", "snow", "blur", "noise")  # one is drawn per crop
    crop: int = 96  # side in pixels
    frames: int = 1  # length of the network's input clip, whose middle frame is restored
    # largest side of a crop before it is downscaled to `crop`, so that it shows more of a scene; None: `crop`
    widest: int | None = None
    untouched: float = 0.08  # share of crops without degradation, so that clean video is left unchanged
    combined: float = 0.08  # share of the others that have a second degradation
    recompressed: float = 0.3  # share of the others that are compressed after the degradation
    reuse: int = 1  # steps that a batch is used for, each time cropped and mirrored differently
    fast: float = 0.0  # share of crops with fast motion
    alone: float = 0.0  # share of the others whose frame is its own neighbours, as that of a photo
    distracted: float = 0.0  # share with bright things that move and aren't weather

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.frames >= 1 and self.frames % 2 == 1, "frames", "an odd number from 1 on", self.frames)
        known = bool(self.degradations) and set(self.degradations) <= set(DEGRADATIONS)
        require(known, "degradations", f"one or more of {', '.join(DEGRADATIONS)}", self.degradations)
        require(
            16 <= self.crop <= LARGEST_CROP and self.crop % 8 == 0,
            "crop",
            f"a multiple of 8 from 16 to {LARGEST_CROP}",
            self.crop,
        )
        in_range = self.widest is None or self.crop <= self.widest <= LARGEST_VIEW
        require(in_range, "widest", f"from the crop's {self.crop} to {LARGEST_VIEW}", self.widest)
        require(self.reuse >= 1, "reuse", "at least 1", self.reuse)
        for name in ("untouched", "combined", "recompressed", "fast", "alone", "distracted"):
            require(0 <= getattr(self, name) <= 1, name, "in [0, 1]", getattr(self, name))


@dataclass(frozen=True)
class ClipDataConfig(FootageConfig):
    """Crops of RGB clips, and the same crops downscaled by 4. `still_share` counts crops here.

    Raises ConfigError for values out of range.
    """

    frames: int = 5
    crop: int = 40  # side of the low-resolution crops in pixels
    # low-resolution crops are also blurred, noisy and compressed; else downscaled bicubically alone
    practical: bool = False
    native: float = 0.0  # share of crops of photos that slide over a photo's own pixels
    reuse: int = 1  # steps that a batch is used for, each time cropped and mirrored differently

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.reuse >= 1, "reuse", "at least 1", self.reuse)
        require(self.frames >= 1, "frames", "at least 1", self.frames)
        require(0 <= self.native <= 1, "native", "in [0, 1]", self.native)
        require(
            8 <= self.crop <= LARGEST_CROP // 4 and self.crop % 8 == 0,
            "crop",
            f"a multiple of 8 from 8 to {LARGEST_CROP // 4}",
            self.crop,
        )


@dataclass(frozen=True)
class FlowDataConfig(FootageConfig):
    """Pairs of RGB crops with a random flow between them. Raises ConfigError for values out of range."""

    crop: int = 128
    reach: float = 12.0  # pixels; largest component of a flow vector

    def __post_init__(self) -> None:
        super().__post_init__()
        require(16 <= self.crop <= 160, "crop", "from 16 to 160", self.crop)
        require(0 < self.reach <= 32, "reach", "above 0 and at most 32", self.reach)


def paper_sets() -> Any:
    """Return the module of the papers' datasets, loaded when a recipe names one of them."""
    return import_module("vidrestore.papers.training_sets")


@dataclass(frozen=True)
class SetConfig:
    """One of the papers' datasets (`vidrestore.papers`) in a folder, which is relative to the
    configuration's own.

    `validation` lists splits of the same dataset, or of others in that folder, as in ["test",
    "rain100l/test"]. If it is empty, the network is validated on its training data. Raises ConfigError for an
    unknown dataset or split.
    """

    dataset: str
    folder: str
    split: str = "train"
    validation: tuple[str, ...] = ()
    kind: ClassVar[Literal["pairs", "clips"]]

    def __post_init__(self) -> None:
        sets = paper_sets()
        known = sets.names(self.kind)
        for name, split in [(self.dataset, self.split), *self.validation_sets]:
            require(name in known, "dataset", f"one of {', '.join(known)}", name)
            require(split in sets.splits(name), f"split of {name}", " or ".join(sets.splits(name)), split)

    @property
    def validation_sets(self) -> list[tuple[str, str]]:
        """The datasets and splits of `validation`."""
        return [
            (name or self.dataset, split)
            for name, _, split in (entry.rpartition("/") for entry in self.validation)
        ]

    def card_entries(self) -> dict[str, str]:
        """Return a description of the data for the card of the weights."""
        return {"dataset": f"{self.dataset} {self.split}", "held out": ", ".join(self.validation)}


@dataclass(frozen=True)
class PairSetConfig(SetConfig):
    """Crops of a dataset of degraded and clean pictures. Raises ConfigError for values out of range."""

    crop: int = 256  # side in pixels
    kind = "pairs"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.crop >= 16 and self.crop % 8 == 0, "crop", "a multiple of 8 from 16 on", self.crop)


@dataclass(frozen=True)
class ClipSetConfig(SetConfig):
    """Crops of a dataset of clips, and the same crops downscaled by 4. Raises ConfigError for values out of
    range.
    """

    frames: int = 5
    crop: int = 64  # side of the low-resolution crops in pixels
    read_small: bool = False  # use the dataset's low-resolution frames; else downscale bicubically
    kind = "clips"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.frames >= 1, "frames", "at least 1", self.frames)
        require(self.crop >= 8 and self.crop % 8 == 0, "crop", "a multiple of 8 from 8 on", self.crop)
