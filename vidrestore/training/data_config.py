"""The [data] section of a training configuration: where pictures come from, and how crops are cut."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vidrestore import datasets
from vidrestore.degrade import DEGRADATIONS
from vidrestore.training.tables import require

LARGEST_CROP = 288  # photos are filmed at this height
LARGEST_VIEW = 1080  # side of what may be cut, to be made smaller


@dataclass(frozen=True)
class FootageConfig:
    """The sources of pictures. Raises ConfigError for values out of range.

    `clips` and `stills` are folders, or lists of several, relative to the configuration's own; an empty
    `stills` means no photos. `validation` names the clips among those, without their folder, that are kept
    out of training and judged instead. Shares are in [0, 1].
    """

    clips: str | tuple[str, ...]
    stills: str | tuple[str, ...] = ""
    validation: tuple[str, ...] = ()
    still_share: float = 0.25  # of windows, made as slow pans and zooms over photos

    def __post_init__(self) -> None:
        require(0 <= self.still_share <= 1, "still_share", "in [0, 1]", self.still_share)
        bare = all(name == Path(name).name for name in self.validation)
        require(
            bare, "validation", "names of files in the folder data.clips, without a folder", self.validation
        )

    def described(self) -> dict[str, str]:
        """For the card of the weights."""
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
    match_share: float = 0.8  # of windows whose groups follow the motion; the others stay in place
    # of the grids that patches are taken from, in pixels; one is drawn per window
    strides: tuple[int, ...] = (8, 12, 16)
    groups_per_window: int = 280
    reuse: int = 6  # how often a group is trained on, each time with other noise, before it is replaced
    pool: int = 24_000  # groups in memory

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
    """Crops of RGB footage, degraded. Raises ConfigError for values out of range; `still_share` counts crops
    here.
    """

    degradations: tuple[str, ...] = tuple(DEGRADATIONS)  # one is drawn per crop
    crop: int = 96  # side in pixels
    frames: int = 1  # of a degraded clip, whose middle frame is restored; as many as the network sees
    # side that a crop may be cut with, at most, before it is made smaller: more of a scene at once
    widest: int | None = None
    untouched: float = 0.08  # share of crops that are left as they are, so that clean video is, too
    combined: float = 0.08  # share of the others that have a second degradation
    recompressed: float = 0.3  # share of the others that are compressed at last, as files are
    reuse: int = 1  # steps that a batch is trained on, each time cut and mirrored anew

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
        cuts = self.widest is None or self.crop <= self.widest <= LARGEST_VIEW
        require(cuts, "widest", f"from the crop's {self.crop} to {LARGEST_VIEW}", self.widest)
        require(self.reuse >= 1, "reuse", "at least 1", self.reuse)
        for name in ("untouched", "combined", "recompressed"):
            require(0 <= getattr(self, name) <= 1, name, "in [0, 1]", getattr(self, name))


@dataclass(frozen=True)
class ClipDataConfig(FootageConfig):
    """Crops of RGB clips, and the same four times smaller. Raises ConfigError for values out of range;
    `still_share` counts crops here.
    """

    frames: int = 5
    crop: int = 40  # side of the small crops in pixels
    # made small as in practice: blurred, noisy and compressed; else by bicubic resizing alone
    practical: bool = False
    reuse: int = 1  # steps that a batch is trained on, each time cut and mirrored anew

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.reuse >= 1, "reuse", "at least 1", self.reuse)
        require(self.frames >= 1, "frames", "at least 1", self.frames)
        require(
            8 <= self.crop <= LARGEST_CROP // 4 and self.crop % 8 == 0,
            "crop",
            f"a multiple of 8 from 8 to {LARGEST_CROP // 4}",
            self.crop,
        )


@dataclass(frozen=True)
class FlowDataConfig(FootageConfig):
    """Pairs of RGB crops that a drawn flow leads from one to the other. Raises ConfigError for values out of
    range.
    """

    crop: int = 128
    reach: float = 12.0  # pixels: about the longest flow

    def __post_init__(self) -> None:
        super().__post_init__()
        require(16 <= self.crop <= 160, "crop", "from 16 to 160", self.crop)
        require(0 < self.reach <= 32, "reach", "above 0 and at most 32", self.reach)


@dataclass(frozen=True)
class SetConfig:
    """One of the papers' datasets (`vidrestore.datasets`) below a folder, which is relative to the
    configuration's own.

    `validation` is what is judged: splits of the same dataset, or of others below that folder, as in ["test",
    "rain100l/test"]. Without any, the network is judged on what it is trained on. Raises ConfigError for a
    dataset or split that isn't known.
    """

    dataset: str
    folder: str
    split: str = "train"
    validation: tuple[str, ...] = ()
    kind: ClassVar[datasets.Kind]

    def __post_init__(self) -> None:
        known = datasets.names(self.kind)
        for name, split in [(self.dataset, self.split), *self.judged]:
            require(name in known, "dataset", f"one of {', '.join(known)}", name)
            require(
                split in datasets.splits(name), f"split of {name}", " or ".join(datasets.splits(name)), split
            )

    @property
    def judged(self) -> list[tuple[str, str]]:
        """Datasets and splits of `validation`."""
        return [
            (name or self.dataset, split)
            for name, _, split in (entry.rpartition("/") for entry in self.validation)
        ]

    def described(self) -> dict[str, str]:
        """For the card of the weights."""
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
    """Crops of a dataset of clips, and the same four times smaller. Raises ConfigError for values out of
    range.
    """

    frames: int = 5
    crop: int = 64  # side of the small crops in pixels
    read_small: bool = False  # small frames are the dataset's own; else they are made by bicubic resizing
    kind = "clips"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.frames >= 1, "frames", "at least 1", self.frames)
        require(self.crop >= 8 and self.crop % 8 == 0, "crop", "a multiple of 8 from 8 on", self.crop)
