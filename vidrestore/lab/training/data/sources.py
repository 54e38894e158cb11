"""Make the training and held-out data of a run from its configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from torch import nn

from vidrestore.errors import ConfigError, MediaError, OptionError
from vidrestore.lab.run_config import (
    ClipDataConfig,
    DataConfig,
    GroupSetConfig,
    PairDataConfig,
    RunConfig,
    SetConfig,
    TrainingConfig,
)
from vidrestore.lab.training.data.batches import BatchSource, ReusedBatches
from vidrestore.lab.training.data.decoded import DISK_CACHE_BYTES, Decoded, DecodedFiles
from vidrestore.lab.training.data.footage import (
    CLIP_SUFFIXES,
    STILL_SUFFIXES,
    Footage,
    decode_whole,
    find_footage,
)
from vidrestore.lab.training.data.pairs import PairSource, held_out_pairs
from vidrestore.lab.training.data.patch_groups import GroupPool, held_out_groups
from vidrestore.lab.training.data.super_resolution import ClipSource, held_out_clips
from vidrestore.models.grouping import GroupNetwork
from vidrestore.restorers.base import PictureForm
from vidrestore.settings.families import load

VALIDATION_GROUPS = 1200
# crops of each degradation, and their side in pixels
VALIDATION_PAIRS, VALIDATION_SIDE = 24, 128
VALIDATION_FRAMES = 5  # frames per clip; there are more clips if they are shorter


@dataclass(frozen=True)
class Reading:
    """Settings of reading that don't change the data, except that damaged files may be skipped. Raises
    OptionError for `skip_bad` without a cache.
    """

    # folder of decoded clips and photos; None: decoded when they are needed
    cache: Path | None = None
    cache_bytes: int = DISK_CACHE_BYTES  # most bytes of that folder
    # skip clips and photos that are damaged or can't be read, with a notice of each
    skip_bad: bool = False
    workers: int = 0  # processes that make batches ahead of time
    notice: Callable[[str], None] = lambda message: None  # called with each message

    def __post_init__(self) -> None:
        if self.skip_bad and self.cache is None:
            raise OptionError(
                "`skip_bad` needs a cache, because damaged files are found when it is made; set `cache_gb` "
                "above 0"
            )


IN_MEMORY = Reading()


def make_data(
    config: RunConfig, network: nn.Module, reading: Reading = IN_MEMORY
) -> tuple[BatchSource, Any]:
    """Return training and held-out data for the run's objective, the same for every run of a configuration.

    The clips of `data.validation` are held out; if it names none, the network is validated on its training
    data. Raises ConfigError; DatasetError for a missing dataset; MediaError for a damaged file, which without
    a cache is found when it is first needed.
    """
    data = config.data
    datasets: tuple[BatchSource, Any]
    # datasets of the papers have sources of their own
    if isinstance(data, GroupSetConfig):
        datasets = import_module("vidrestore.lab.papers.training_groups").set_groups(
            config, network, reading
        )
        return datasets
    if isinstance(data, SetConfig):
        datasets = import_module("vidrestore.lab.papers.training_sets").set_data(
            data, config.folder, config.task, config.training.seed, VALIDATION_PAIRS
        )
        return datasets
    # the files to train on, and those that are held out
    clip_folders = [config.folder / name for name in data.clip_folders]
    clips = [
        path
        for folder in clip_folders
        for path in find_footage(folder, data.validation, CLIP_SUFFIXES)
    ]
    stills = [
        path
        for name in data.still_folders
        for path in find_footage(config.folder / name, (), STILL_SUFFIXES)
    ]
    held_out = []
    for name in data.validation:
        paths = [folder / name for folder in clip_folders if (folder / name).is_file()]
        if not paths:
            folders = ", ".join(map(str, clip_folders))
            raise ConfigError(f"{folders}: no file {name}, which data.validation names")
        held_out.append(paths[0])
    # a cache may skip damaged files
    decoded = _decoded(clips, stills, held_out, reading)
    if reading.cache is not None:
        clips = [path for path in clips if path in decoded]
        stills = [path for path in stills if path in decoded]
    # only groups are cut from whole windows
    length = data.frames if isinstance(data, DataConfig) else 1
    footage = Footage(clips, stills, length, data.still_share, decoded=decoded)
    validation = Footage(
        held_out or clips,
        [] if held_out or clips else stills,
        length,
        0,
        decoded=decoded,
    )
    source, held_out_data = load(config.kind.source)(
        config, footage, validation, network
    )
    # groups of patches are reused by their pool
    if isinstance(data, PairDataConfig | ClipDataConfig) and data.reuse > 1:
        source = ReusedBatches(source, data.reuse, config.training.seed)
    return source, held_out_data


def pair_data(
    config: RunConfig, footage: Footage, validation: Footage, network: nn.Module
) -> tuple[BatchSource, Any]:
    """Return degraded and clean pictures to train on, and held-out ones."""
    data = cast("PairDataConfig", config.data)
    form = PictureForm.of(network)
    held_out = held_out_pairs(
        validation, data, VALIDATION_SIDE, VALIDATION_PAIRS, form.tasks
    )
    source = PairSource(
        footage, data, config.training.seed, form.tasks, finds_haze=form.haze
    )
    return source, held_out


def clip_data(
    config: RunConfig, footage: Footage, validation: Footage, network: nn.Module
) -> tuple[BatchSource, Any]:
    """Return clips at both resolutions for training, and held-out ones."""
    data = cast("ClipDataConfig", config.data)
    count = VALIDATION_PAIRS // 2 * max(1, VALIDATION_FRAMES // data.frames)
    held_out = held_out_clips(validation, data, count)
    return ClipSource(footage, data, config.training.seed), held_out


def group_data(
    config: RunConfig, footage: Footage, validation: Footage, network: nn.Module
) -> tuple[BatchSource, Any]:
    """Return the pool to train on, and (P, T, N) uint8 held-out groups."""
    data = cast("DataConfig", config.data)
    training = cast("TrainingConfig", config.training)
    # patches that lie apart would leave pixels out
    patch = cast("GroupNetwork", network).config.patch
    if max(data.strides) > patch:
        raise ConfigError(
            f"{config.path}, [data]: strides must be at most the patch's {patch} pixels, found "
            f"{list(data.strides)}"
        )
    held_out = held_out_groups(validation, data, patch, VALIDATION_GROUPS)
    return GroupPool(footage, data, training.sigma, patch, training.seed), held_out


def _decoded(
    clips: list[Path], stills: list[Path], held_out: list[Path], reading: Reading
) -> dict[Path, Decoded | None]:
    """Return decoded files by path, None for no room in the cache; bad files raise or are skipped."""
    # without a cache every file is decoded when it is needed
    if reading.cache is None:
        return {}

    def on_error(source: Path, error: MediaError) -> None:
        # without a held-out clip, the metrics would not be comparable
        if not reading.skip_bad or source in held_out:
            raise error
        reading.notice(f"skipped: {error}")

    # files to hold out come first, so that they have room
    files = DecodedFiles(reading.cache, reading.cache_bytes)
    decoded = files.all_decoded([*held_out, *clips, *stills], decode_whole, on_error)
    if uncached := sum(part is None for part in decoded.values()):
        limit = f"{reading.cache_bytes / 1e9:g} GB"
        reading.notice(
            f"{uncached} of {len(decoded)} files have no room in {reading.cache} ({limit}): they are decoded "
            "when they are needed"
        )
    return decoded
