"""What a run is trained on and judged by, made from what its configuration names."""

from __future__ import annotations

from typing import Any, Protocol, cast

from torch import Tensor

from vidrestore.errors import ConfigError
from vidrestore.training.clip_sets import clip_set_data
from vidrestore.training.config import (
    ClipDataConfig,
    ClipSetConfig,
    DataConfig,
    FlowDataConfig,
    PairDataConfig,
    PairSetConfig,
    RunConfig,
    TrainingConfig,
)
from vidrestore.training.footage import CLIP_SUFFIXES, STILL_SUFFIXES, Footage, find_footage
from vidrestore.training.groups import GroupPool, held_out_groups
from vidrestore.training.paired_sets import pair_set_data
from vidrestore.training.pairs import PairSource, held_out_pairs
from vidrestore.training.super_resolution import ClipSource, FlowSource, held_out_clips, held_out_frames

FRAMES = 20  # tokens of a group, the paper's clip length
VALIDATION_GROUPS = 1200
VALIDATION_PAIRS, VALIDATION_SIDE = 24, 128  # crops of each degradation, and their side in pixels


class Source(Protocol):
    """Where batches come from: one follows from the seed and its step."""

    def batch(self, step: int, size: int) -> tuple[Any, ...]: ...


def make_data(config: RunConfig, architecture: Any) -> tuple[Source, Any]:
    """What to train on, and held-out data for the run's objective, the same for every run of a configuration.

    What `data.validation` names is held out; without any, the network is judged on what it is trained on. Raises ConfigError, and
    DatasetError for one of the papers' datasets that isn't there.
    """
    data, seed = config.data, config.training.seed
    if isinstance(data, PairSetConfig):
        return pair_set_data(data, config.folder, seed, VALIDATION_PAIRS)
    if isinstance(data, ClipSetConfig):
        return clip_set_data(data, config.folder, seed, VALIDATION_PAIRS // 2)
    folder = config.folder / data.clips
    clips = find_footage(folder, data.validation, CLIP_SUFFIXES)
    stills = find_footage(config.folder / data.stills, (), STILL_SUFFIXES) if data.stills else []
    held_out = [folder / name for name in data.validation]
    if missing := [path.name for path in held_out if not path.is_file()]:
        raise ConfigError(f"{folder}: no {', '.join(missing)}, named in data.validation")
    footage = Footage(clips, stills, FRAMES, data.still_share)
    judged = Footage(held_out or clips, [] if held_out or clips else stills, FRAMES, 0)
    if isinstance(data, PairDataConfig):
        return PairSource(footage, data, seed), held_out_pairs(judged, data, VALIDATION_SIDE, VALIDATION_PAIRS)
    if isinstance(data, ClipDataConfig):
        return ClipSource(footage, data, seed), held_out_clips(judged, data, VALIDATION_PAIRS // 2)
    if isinstance(data, FlowDataConfig):
        return FlowSource(footage, data, seed), held_out_frames(judged, VALIDATION_SIDE, VALIDATION_PAIRS)
    return _groups(config, footage, judged, architecture.patch)


def _groups(config: RunConfig, footage: Footage, judged: Footage, patch: int) -> tuple[GroupPool, Tensor]:
    """The pool to train on, and (P, T, N) uint8 held-out groups."""
    data, training = cast("DataConfig", config.data), cast("TrainingConfig", config.training)
    if max(data.strides) > patch:
        raise ConfigError(f"{config.path}, [data]: strides must be at most the patch's {patch} pixels, found {list(data.strides)}")
    pool = GroupPool(footage, data, training.sigma, patch, training.seed)
    return pool, held_out_groups(judged, data, patch, VALIDATION_GROUPS)
