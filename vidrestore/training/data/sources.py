"""Training and held-out data of a run, from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from vidrestore.errors import ConfigError, MediaError, OptionError
from vidrestore.training.config import RunConfig, TrainingConfig
from vidrestore.training.data.batches import Reused, Source
from vidrestore.training.data.clip_sets import clip_set_data
from vidrestore.training.data.decoded import CACHE_BYTES, Decoded, DecodedFiles
from vidrestore.training.data.footage import (
    CLIP_SUFFIXES,
    STILL_SUFFIXES,
    Footage,
    decode_whole,
    find_footage,
)
from vidrestore.training.data.groups import GroupPool, held_out_groups
from vidrestore.training.data.paired_sets import pair_set_data
from vidrestore.training.data.pairs import PairSource, held_out_pairs
from vidrestore.training.data.super_resolution import ClipSource, FlowSource, held_out_clips, held_out_frames
from vidrestore.training.data_config import (
    ClipDataConfig,
    ClipSetConfig,
    DataConfig,
    FlowDataConfig,
    PairDataConfig,
    PairSetConfig,
)

FRAMES = 20  # tokens of a group, the paper's clip length
VALIDATION_GROUPS = 1200
VALIDATION_PAIRS, VALIDATION_SIDE = 24, 128  # crops of each degradation, and their side in pixels
JUDGED_FRAMES = 5  # of a clip; of shorter ones, more are judged


@dataclass(frozen=True)
class Reading:
    """The way of reading data; its content follows from the configuration alone, but for clips that are left
    out as damaged.

    `workers` processes make batches ahead of time. `cache` is a folder for what clips and photos decode to,
    of at most `cache_bytes`; without, they are decoded when they are needed. With `skip_bad` clips and photos
    that are damaged or can't be read are left out, which `notice` hears of. Raises OptionError for that
    without a cache.
    """

    cache: Path | None = None
    cache_bytes: int = CACHE_BYTES
    skip_bad: bool = False
    workers: int = 0
    notice: Callable[[str], None] = lambda message: None

    def __post_init__(self) -> None:
        if self.skip_bad and self.cache is None:
            raise OptionError(
                "damaged files are found when the cache is made: `skip_bad` needs one, so `cache_gb` above 0"
            )


IN_MEMORY = Reading()


def make_data(config: RunConfig, architecture: Any, reading: Reading = IN_MEMORY) -> tuple[Source, Any]:
    """Return training data, and held-out data for the run's objective, the same for every run of a
    configuration.

    What `data.validation` names is held out; without any, the network is judged on what it is trained on.
    Raises ConfigError, and DatasetError for one of the papers' datasets that isn't there; MediaError for a
    damaged file, without a cache when it is first needed.
    """
    data, seed = config.data, config.training.seed
    if isinstance(data, PairSetConfig):
        return pair_set_data(data, config.folder, seed, VALIDATION_PAIRS)
    if isinstance(data, ClipSetConfig):
        return clip_set_data(data, config.folder, seed, VALIDATION_PAIRS // 2)
    clip_folders = [config.folder / name for name in data.clip_folders]
    clips = [path for folder in clip_folders for path in find_footage(folder, data.validation, CLIP_SUFFIXES)]
    stills = [
        path for name in data.still_folders for path in find_footage(config.folder / name, (), STILL_SUFFIXES)
    ]
    held_out = [held_out_clip(clip_folders, name) for name in data.validation]
    decoded = _decoded(clips, stills, held_out, reading)
    clips, stills = (
        [path for path in paths if path in decoded or reading.cache is None] for paths in (clips, stills)
    )
    footage = Footage(clips, stills, FRAMES, data.still_share, decoded=decoded)
    judged = Footage(held_out or clips, [] if held_out or clips else stills, FRAMES, 0, decoded=decoded)
    if isinstance(data, PairDataConfig):
        tasks = architecture.tasks
        held_out_data = held_out_pairs(judged, data, VALIDATION_SIDE, VALIDATION_PAIRS, tasks)
        return PairSource(footage, data, seed, tasks), held_out_data
    if isinstance(data, ClipDataConfig):
        count = VALIDATION_PAIRS // 2 * max(1, JUDGED_FRAMES // data.frames)
        return ClipSource(footage, data, seed), held_out_clips(judged, data, count)
    if isinstance(data, FlowDataConfig):
        return FlowSource(footage, data, seed), held_out_frames(judged, VALIDATION_SIDE, VALIDATION_PAIRS)
    return _groups(config, footage, judged, architecture.patch)


def reused(
    source: Source, data: Any, seed: int, place: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> Source:
    """Return a source of pictures whose batches are each trained on in `data.reuse` steps, at their `place`.

    Groups of patches are reused by their pool.
    """
    if isinstance(data, PairDataConfig | ClipDataConfig) and data.reuse > 1:
        return Reused(source, data.reuse, seed, place)
    return source


def held_out_clip(folders: Sequence[Path], name: str) -> Path:
    """The clip that `data.validation` names, in one of the folders of clips. Raises ConfigError if none
    has it.
    """
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(f"{', '.join(map(str, folders))}: no {name}, named in data.validation")


def _decoded(
    clips: list[Path], stills: list[Path], held_out: list[Path], reading: Reading
) -> dict[Path, Decoded | None]:
    """All files of a run by their path, None if there is no room; without those that are bad, unless that
    is an error.
    """
    if reading.cache is None:
        return {}

    def bad(source: Path, error: MediaError) -> None:
        if (
            not reading.skip_bad or source in held_out
        ):  # without one of those, figures would be of something else
            raise error
        reading.notice(f"left out: {error}")

    files = DecodedFiles(reading.cache, reading.cache_bytes)
    found = files.all_decoded([*held_out, *clips, *stills], decode_whole, bad)
    if without := sum(part is None for part in found.values()):
        limit = f"{reading.cache_bytes / 1e9:g} GB"
        reading.notice(
            f"{without} of {len(found)} files have no room in {reading.cache} ({limit}): they are decoded "
            "when they are needed"
        )
    return found


def _groups(config: RunConfig, footage: Footage, judged: Footage, patch: int) -> tuple[GroupPool, Tensor]:
    """The pool to train on, and (P, T, N) uint8 held-out groups."""
    data, training = cast("DataConfig", config.data), cast("TrainingConfig", config.training)
    if max(data.strides) > patch:
        raise ConfigError(
            f"{config.path}, [data]: strides must be at most the patch's {patch} pixels, found "
            f"{list(data.strides)}"
        )
    pool = GroupPool(footage, data, training.sigma, patch, training.seed)
    return pool, held_out_groups(judged, data, patch, VALIDATION_GROUPS)
