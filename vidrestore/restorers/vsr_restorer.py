"""Enlarge frames four times by VSR-Transformer, from windows of frames of one scene, in tiles if the network
or memory requires it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from threading import Lock
from typing import Literal, cast

import torch
from torch import Tensor

from vidrestore.errors import OptionError
from vidrestore.models.vsr_clip import VsrClip
from vidrestore.models.vsr_recurrent import RecurrentConfig, VsrRecurrent
from vidrestore.models.vsr_transformer import SCALE, SIDE, VsrTransformer
from vidrestore.pixels.clips import Bounds, reflected
from vidrestore.pixels.tiling import apply_by_centres, apply_tiled, padded, tile_sides
from vidrestore.restorers.base import Facts
from vidrestore.restorers.devices import (
    MOST_TILES,
    half_type,
    in_all_bits,
    memory_for,
    tiles_for,
    torch_device,
    uses_bf16,
)
from vidrestore.restorers.result_cache import ResultCache
from vidrestore.restorers.task_weights import load_for
from vidrestore.settings.options import RestoreOptions
from vidrestore.settings.tasks import TASKS
from vidrestore.working import steps

TASK, VSR_FAMILY = "sr", "vsr-transformer"
OVERLAP = 32  # pixels of the input that tiles share; in the released form always
RELEASED_BATCH = 4  # tiles at once
# bytes for a batch of them; measured: 91 MB for one, 148 for two
RELEASED_MEMORY = 400 << 20
# frames that a clip gives if memory allows; those around it are computed as well
KEPT = 24
# frames of tiles that a GPU computes at once before it takes more tiles
LEAST_TOGETHER = 8
# one over the share of memory for frames that wait for all of their tiles, and for the network's maps
WAITING_SHARE = 4
TILE_SHARE = 3
# per pixel and feature, of each part of a clip that is computed at the same time
PART_BYTES = 70


class VsrRestorer:
    """Restorer of the task `sr`; see `restorers.base.RgbRestorer`.

    Released networks take tiles of 64 pixels that share 32, of which the centres are kept: that is part of
    the network. Recurrent ones take whole frames, or blended tiles if memory is short or the user sets their
    size; they also take some frames before and after those that they restore.
    Raises CheckpointError for other weights, OptionError for tiles that the network can't take.
    """

    input_kind: Literal["rgb"] = "rgb"

    def __init__(self, options: RestoreOptions) -> None:
        self.device = torch_device(options.device)
        default = TASKS[TASK].weights[options.input == "clean"]
        model = load_for(TASK, VSR_FAMILY, options.model or default, str(self.device))
        network = cast("VsrTransformer | VsrRecurrent", model.network)
        self.networks = {torch.float32: network.for_inference()}
        config, self.precision = network.config, options.precision
        # the configuration of a recurrent network; None for a released one
        self.recurrent = config if isinstance(config, RecurrentConfig) else None
        self.budget = memory_for(self.device)
        overlap = 2 * config.radius
        self.facts = Facts(
            model.card.name,
            model.card.sha256,
            str(self.device),
            clip=KEPT + overlap,
            overlap=overlap,
            radius=config.radius,
            scale=SCALE,
        )
        self.tile = options.tile
        self.most_tiles = MOST_TILES  # at once
        self._lock = Lock()
        if not self.recurrent and self.tile not in (None, SIDE):
            raise OptionError(
                f"{self.facts.name} only knows tiles of {SIDE} pixels that share {OVERLAP}; leave `tile` out"
            )

    @property
    def _pixel_memory(self) -> int:
        """Bytes per pixel of the input that a network takes at its peak: a recurrent one for the states of a
        clip, in bfloat16 or float32, and for temporary maps.

        Measured at 320x180: 4.4 kB for 14 frames in bfloat16, 7.5 in float32; this gives 5.4 and 7.7.
        """
        if not self.recurrent:
            return RELEASED_MEMORY // RELEASED_BATCH // SIDE**2
        # bytes of a feature: in two frames of the clip, and of the temporary maps
        two_frames = 5 if uses_bf16(self.precision, self.device) else 10
        temporary = 50
        return self.recurrent.features * (self.facts.clip * two_frames // 2 + temporary)

    def clip_length(self, height: int, width: int) -> int:
        """See `AnyRestorer.clip_length`; frames in tiles wait for all their tiles, whole ones don't."""
        small, large = 4 * 3 * height * width, 4 * 3 * height * width * SCALE**2
        share = self.budget // WAITING_SHARE
        frame_bytes = large + small if self._is_tiled(height, width) else small
        overlap, radius = self.facts.overlap, self.facts.radius
        return overlap + max(
            radius, min(KEPT, (share - overlap * small) // frame_bytes)
        )

    def memory(self, height: int, width: int) -> int:
        small, large = 4 * 3 * height * width, 4 * 3 * height * width * SCALE**2
        length = self.clip_length(height, width)
        outputs = length - self.facts.overlap if self._is_tiled(height, width) else 3
        rows, columns = self.tile_size(height, width)
        network, pixels = RELEASED_MEMORY, rows * columns
        if self.recurrent:
            extra_frames = self._frames_at_once(pixels) - 1
            network = pixels * (self._pixel_memory + extra_frames * self._frame_memory)
        return 2 * length * small + outputs * large + network

    def part_memory(self, height: int, width: int) -> int:
        """See `RgbRestorer.part_memory`: of a recurrent network its temporary maps, and results that wait."""
        rows, columns = self.tile_size(height, width)
        return (
            rows * columns * PART_BYTES * self.recurrent.features
            if self.recurrent
            else RELEASED_MEMORY
        )

    def _is_tiled(self, height: int, width: int) -> bool:
        rows, columns = self.tile_size(height, width)
        return rows < height or columns < width

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        """See `RgbRestorer.tile_size`; for a released network always 64."""
        if not self.recurrent:
            return SIDE, SIDE
        pixels = self.budget // TILE_SHARE // self._pixel_memory
        return tile_sides(
            height, width, tile=self.tile, pixels=pixels, overlap=OVERLAP, multiple=1
        )

    def frames(
        self,
        clip: Tensor,
        keep: Bounds,
        *,
        precision: str | None = None,
        first: int = 0,
        cache: ResultCache | None = None,
    ) -> Iterator[Tensor]:
        """See `RgbRestorer.frames`; nothing is cached."""
        height, width = clip.shape[-2:]
        network = self._network(precision or self.precision)
        half = None if network.dtype == torch.float32 else network.dtype
        enlarged = self._enlarged(network, clip.to(self.device), keep)
        for large in in_all_bits(enlarged, self.device, half):
            yield large[:, : SCALE * height, : SCALE * width].to(clip.device)

    def _enlarged(
        self, network: VsrTransformer | VsrRecurrent, clip: Tensor, keep: Bounds
    ) -> Iterator[Tensor]:
        """Yield the enlarged frames `keep` of a clip (T, 3, H, W), in tiles where memory asks for them."""
        if isinstance(network, VsrTransformer):
            work = partial(released_windows, network, keep)
            batch = (
                RELEASED_BATCH
                if self.device.type == "cpu"
                else self._tiles_at_once((SIDE, SIDE))
            )
            batch = min(batch, self.most_tiles)
            yield from apply_by_centres(
                work, padded(clip, 1, SIDE), SIDE, OVERLAP, SCALE, batch
            )
        elif self._is_tiled(*clip.shape[-2:]):
            size = self.tile_size(*clip.shape[-2:])
            batch = self._tiles_at_once(size)
            at_once = self._frames_at_once(batch * size[0] * size[1])
            work = partial(recurrent_frames, network, keep, at_once)
            # the states of one tile are in memory: its frames are the parts that workers share
            yield from apply_tiled(
                work, clip[None], size, OVERLAP, SCALE, batch, most=1
            )[0]
        else:
            at_once = self._frames_at_once(clip.shape[-2] * clip.shape[-1])
            with torch.inference_mode():
                for frame in network.frames([*clip[:, None]], keep, at_once):
                    yield frame[0]

    def _tiles_at_once(self, tile: tuple[int, int]) -> int:
        batch_memory = LEAST_TOGETHER * self._frame_memory if self.recurrent else 0
        return min(
            self.most_tiles,
            tiles_for(self.device, tile, self._pixel_memory + batch_memory),
        )

    def _frames_at_once(self, pixels: int) -> int:
        """Return the number of frames of a size for which a recurrent network computes results without
        neighbours together: one on a CPU, on a GPU as memory allows.
        """
        if self.device.type == "cpu":
            return 1
        room = self.budget - self.budget // WAITING_SHARE - pixels * self._pixel_memory
        return max(
            1,
            min(
                self.most_tiles, self.facts.clip, room // (pixels * self._frame_memory)
            ),
        )

    @property
    def _frame_memory(self) -> int:
        """Bytes per pixel of the input for each further frame that a recurrent network computes together.

        Measured at 320x180 with seven of them: 0.50 kB in bfloat16, 0.41 in float32; this gives 0.77 and 1.3,
        because a GPU keeps fp16 beside.
        """
        assert self.recurrent
        return self.recurrent.features * (
            12 if uses_bf16(self.precision, self.device) else 20
        )

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: fewer tiles."""
        self.most_tiles, before = max(1, self.most_tiles // 2), self.most_tiles
        return self.most_tiles < before

    def _network(self, precision: str) -> VsrTransformer | VsrRecurrent:
        """Return the network in a number format, converted once."""
        # flow and frames stay in float32
        dtype = half_type(precision, self.device) or torch.float32
        with self._lock:
            if dtype not in self.networks:
                self.networks[dtype] = deepcopy(
                    self.networks[torch.float32]
                ).for_inference(dtype)
            return self.networks[dtype]


def recurrent_frames(
    network: VsrRecurrent, keep: Bounds, at_once: int, tiles: Tensor
) -> Tensor:
    """Return frames [first, stop) of tiles (B, T, 3, h, w): (B, T', 3, 4h, 4w), float32."""
    with torch.inference_mode():
        return torch.stack(list(network.frames(tiles.unbind(1), keep, at_once)), 1)


def released_windows(network: VsrTransformer, keep: Bounds, tiles: Tensor) -> Tensor:
    """Return frames [first, stop) of tiles (B, T, 3, 64, 64), each from its window: (B, T', 3, 256, 256)."""
    restorer = VsrClip(network, tiles.transpose(0, 1))
    windows = (
        frame_window(index, tiles.shape[1], network.config.frames)
        for index in steps(range(*keep))
    )
    with torch.inference_mode():
        return torch.stack(
            [
                restorer.restore(window, network.config.frames // 2).float()
                for window in windows
            ],
            1,
        )


def frame_window(centre: int, count: int, frames: int) -> list[int]:
    """Return the `frames` frames around frame `centre` of a scene with `count`.

    Beyond the ends the paper's tests continue with frames from the other side of the window: that of frame 0
    of 100 is [4, 3, 0, 1, 2], that of 99 is [97, 98, 99, 96, 95] (EDVR's "reflection_circle"). Scenes too
    short for that are reflected at their ends.
    """
    radius = frames // 2

    def place(index: int) -> int:
        if 0 <= index < count:
            return index
        circled = (
            centre + radius - index
            if index < 0
            else centre - radius - (index - count + 1)
        )
        return circled if 0 <= circled < count else reflected(index, count)

    return [place(index) for index in range(centre - radius, centre + radius + 1)]
