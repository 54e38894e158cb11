"""Haze, rain, snow, blur and camera noise removed by MB-TaylorFormer: whole frames while they fit, else
tiles.

The released networks see single frames; those for CPUs see a frame between its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor

from vidrestore.clips import Bounds, reflected
from vidrestore.errors import OptionError
from vidrestore.models.fast.compiled import Compiled
from vidrestore.models.mb_taylorformer import MBTaylorFormer, MBTaylorFormerConfig
from vidrestore.restorers.base import IMAGE_NETWORKS, Facts
from vidrestore.restorers.computed_once import ComputedOnce, key_of
from vidrestore.restorers.dark_channel import prior_haze
from vidrestore.restorers.devices import (
    MOST_TILES,
    all_bits,
    half_type,
    memory_for,
    tiles_for,
    torch_device,
)
from vidrestore.restorers.haze_shares import RADIUS as HAZE_RADIUS
from vidrestore.restorers.haze_shares import Estimate, haze_shares, steadily_changed
from vidrestore.restorers.least_change import detail_levels, if_detail_changed
from vidrestore.restorers.small_picture import changed_as, coarse_lines, coarse_size, made_small
from vidrestore.restorers.task_weights import load_for
from vidrestore.restorers.temporal_smoothing import RADIUS, steadied
from vidrestore.tiling import apply_tiled, padded, tile_sides

if TYPE_CHECKING:
    from vidrestore.options import RestoreOptions

FAMILY = "mb-taylorformer"
DEFAULTS = IMAGE_NETWORKS | {"denoise": "mb-taylorformer-h-denoise"}  # of camera noise, if it is named
OVERLAP = 32  # pixels that tiles share unless told
# Frames, with temporal smoothing: of longer clips less is restored twice, of shorter ones less is held.
# Without it nothing is restored twice, and clips are as short as can be: slow work is lost by the clip.
CLIP = 12
ESTIMATES = 48  # of haze that are kept for neighbouring clips
STRIPS = 48 << 20  # bytes for what is worked through in strips, whatever the size of the picture


class ImageRestorer:
    """Restorer of the tasks that work on RGB frames; see `restorers.base.RgbRestorer`.

    Attention is global: tiles see less than whole frames, so they are used only where memory asks for them,
    or the user. Weights may ask for frames to be restored as small pictures, which tiles are cut from then;
    see `restorers.small_picture`. Raises CheckpointError for weights of another family or task, OptionError
    for tiles that the network can't take.
    """

    sees: Literal["rgb"] = "rgb"
    team = 1

    def __init__(self, task: str, options: RestoreOptions) -> None:
        self.device = torch_device(options.device)
        model = load_for(task, FAMILY, options.model, str(self.device), DEFAULTS[task])
        self.network = cast("MBTaylorFormer", model.network)
        self.compiled = Compiled(self.network, self.device) if options.compile else None
        tasks = self.network.config.tasks
        # of the one picture
        self.tasks = [torch.tensor([tasks.index(task)], device=self.device)] if tasks else []
        self.coarse_lines = coarse_lines(model.card.parameters, model.card.name)
        self.budget = memory_for(self.device)
        self.precision = options.precision
        self.detail = detail_levels(model.card.parameters, model.card.name)
        self.haze = haze_shares(model.card.parameters, model.card.name)
        self.estimates: ComputedOnce[Estimate] = ComputedOnce(ESTIMATES)
        self.seen = self.network.config.frames // 2  # neighbours that the network sees, either side
        self.averaged = HAZE_RADIUS if self.haze else 0  # neighbours that haze is averaged over, either side
        self.smoothed = RADIUS if options.steady else 0
        radius = self.seen + self.averaged + self.smoothed
        self.facts = Facts(
            model.card.name,
            model.card.sha256,
            str(self.device),
            clip=max(CLIP, 3 * radius) if self.smoothed or self.averaged else max(1, 3 * radius),
            overlap=2 * radius,
            radius=radius,
            parallel=0 if self.device.type == "cpu" and not options.compile else 1,
        )
        self.tile_overlap = OVERLAP if options.tile_overlap is None else options.tile_overlap
        self.tile = options.tile
        self.most_tiles = MOST_TILES  # at once
        if self.tile is not None and self.tile % self.network.config.multiple:
            raise OptionError(
                f"tile must be a multiple of {self.network.config.multiple} for {self.facts.name}, "
                f"got {self.tile}"
            )

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def sample(self) -> None:
        return None

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: fewer tiles."""
        self.most_tiles, before = max(1, self.most_tiles // 2), self.most_tiles
        return self.most_tiles < before

    def memory(self, height: int, width: int) -> int:
        rows, columns = self.tile_size(height, width)
        return self._beside(height, width) + pixel_memory(self.network.config) * rows * columns

    def _beside(self, height: int, width: int) -> int:
        """Bytes besides the network's maps: frames in RGB (the clip, and one on its way), and strips."""
        return 4 * 3 * height * width * (self.facts.clip + 4 + 2 * self.facts.radius) + STRIPS

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        """See `RgbRestorer.tile_size`; sides are multiples of what the network asks for."""
        room = max(self.budget - self._beside(height, width), self.budget // 4)
        multiple = self.network.config.multiple
        return tile_sides(
            *(coarse_size(height, width, self.coarse_lines, multiple) or (height, width)),
            tile=self.tile,
            pixels=room // pixel_memory(self.network.config),
            overlap=self.tile_overlap,
            multiple=multiple,
        )

    def frames(self, clip: Tensor, keep: Bounds, *, precision: str | None = None) -> Iterator[Tensor]:
        """See `RgbRestorer.frames`."""
        source, near = self._source(clip), dict[int, Tensor]()
        for at in range(*keep):
            around = range(max(0, at - self.smoothed), min(len(clip), at + self.smoothed + 1))
            near = {
                index: near[index] if index in near else self._frame(clip, source, index, precision)
                for index in around
            }
            yield (
                steadied(near[at], [near[index] for index in around if index != at])
                if self.smoothed
                else near[at]
            )

    def picture(self, window: Tensor, precision: str | None = None) -> Tensor:
        """Return the middle frame (3, H, W) of a scene (T, 3, H, W) restored."""
        return self._frame(window, self._source(window), len(window) // 2, precision)

    def _source(self, clip: Tensor) -> Tensor:
        """Return the pictures that the network restores: those of a clip, or small ones on the device."""
        height, width = clip.shape[-2:]
        size = coarse_size(height, width, self.coarse_lines, self.network.config.multiple)
        return made_small(clip.to(self.device), size) if size else clip

    def _frame(self, clip: Tensor, source: Tensor, at: int, precision: str | None) -> Tensor:
        """Return a frame of a clip restored, given the clip's pictures for the network."""
        half = half_type(precision or self.precision, self.device)
        with torch.inference_mode(), all_bits(self.device, half):
            if self.haze:
                restored = self._without_haze(clip, source, at, half)
                return clip[at] if restored is None else restored[0].to(clip.device)
            restored = self._restored(source, at, half)
            if source is not clip or self.detail:
                frame = clip[at : at + 1].to(self.device)
            if source is not clip:
                restored = changed_as(source[at : at + 1], restored, frame)
            if self.detail:
                restored = if_detail_changed(frame, restored, self.detail)
        return restored[0].to(clip.device)

    def _without_haze(self, clip: Tensor, source: Tensor, at: int, half: torch.dtype | None) -> Tensor | None:
        """Return a frame (1, 3, H, W) with as little haze as its neighbours have; None if there is none."""
        assert self.haze is not None
        near = (reflected(index, len(clip)) for index in range(at - self.averaged, at + self.averaged + 1))
        estimates = [self._estimate(clip, source, index, half) for index in near]
        return steadily_changed(estimates, self.haze, clip[at : at + 1].to(self.device))

    def _estimate(self, clip: Tensor, source: Tensor, at: int, half: torch.dtype | None) -> Estimate:
        def compute() -> Estimate:
            given = source[at : at + 1].to(self.device)
            haze = prior_haze(given, clip[at : at + 1].to(self.device))
            network = self._restored(source, at, half).clamp(0, 1)
            return Estimate(given, network, haze.removed_from(given), haze)

        return self.estimates.get(key_of(self._window(source, at), half), compute)

    def _window(self, clip: Tensor, at: int) -> Tensor:
        """Return the frames (T, 3, H, W) that the network sees of a clip to restore one; beyond the ends of
        the scene it is reflected.
        """
        places = [reflected(index, len(clip)) for index in range(at - self.seen, at + self.seen + 1)]
        return torch.stack([clip[place] for place in places])

    def _restored(self, source: Tensor, at: int, half: torch.dtype | None) -> Tensor:
        """Return a picture (1, 3, H, W) by the network, on its device."""
        network, multiple = self.compiled or self.network, self.network.config.multiple

        def work(tile: Tensor) -> Tensor:
            given = tile if self.seen else tile[:, 0]
            with torch.autocast(self.device.type, half or torch.bfloat16, enabled=half is not None):
                tasks = (task.expand(len(given)) for task in self.tasks)
                restored: Tensor = network(given, *tasks)[:, None].float()
            return restored

        window = self._window(source, at).to(self.device)
        rows, columns = source.shape[-2:]
        tile = self.tile_size(rows, columns)
        batch = min(self.most_tiles, tiles_for(self.device, tile, pixel_memory(self.network.config)))
        whole = apply_tiled(work, padded(window, multiple)[None], tile, self.tile_overlap, batch=batch)
        return whole[0, :, :, :rows, :columns]


def pixel_memory(config: MBTaylorFormerConfig) -> int:
    """Bytes per pixel at the peak, in the last level of the decoder: its maps, one per branch, two for
    queries and values, two in passing.

    Measured: 424 for T at 512x960 and 1239 for B at 256x480, with `STRIPS`; this gives 352 and 1267.
    """
    return int(1.1 * 4 * config.widths[1] * (config.branches[0] + 4)) // config.unshuffle**2


dehazer = partial(ImageRestorer, "dehaze")
derainer = partial(ImageRestorer, "derain")
desnower = partial(ImageRestorer, "desnow")
deblurrer = partial(ImageRestorer, "deblur")
image_denoiser = partial(ImageRestorer, "denoise")
