"""Denoising with DUST: planes of a clip to groups of patches that follow the motion, through the network, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.engine.devices import torch_device, uses_bf16
from vidrestore.errors import CheckpointError
from vidrestore.models.dust import Dust, FastDust
from vidrestore.models.dust_sigma import SIGMA_RANGE, LevelDust, SigmaDust
from vidrestore.models.grouping import GROUP, origins_of, restore_patches
from vidrestore.models.linear import PackedLinear
from vidrestore.models.matching import Grid, fixed_places, matched_places
from vidrestore.weights import load_model

if TYPE_CHECKING:
    from vidrestore.engine.options import RestoreOptions

DEFAULT_MODEL = "dust-denoise"
BF16_FROM = 4.0  # sigma: below, a picture spans so many units of noise that bf16's 8 bits would show
LEVELS_KEPT = 8  # networks worked out for one sigma: a few scenes' worth of planes


@dataclass(frozen=True)
class Preset:
    """How much work per frame: patch stride of the first plane and of smaller ones, and whether their patches follow the motion."""

    stride: int
    smaller_stride: int
    match: bool
    match_smaller: bool


PRESETS = {
    "fast": Preset(14, 16, match=False, match_smaller=False),
    "default": Preset(14, 16, match=True, match_smaller=False),
    "best": Preset(5, 8, match=True, match_smaller=True),
}


class DenoiseRestorer:
    """Restorer of the task `denoise`; see `engine.tasks.Restorer`.

    Raises CheckpointError for weights of another family, or of a network that takes measurements instead of pixels.
    """

    clip, overlap, scale, radius = GROUP, 2, 1, GROUP - 1
    pixels: Literal["planes", "rgb"] = "planes"
    needs_sigma = True

    def __init__(self, options: RestoreOptions) -> None:
        self.device = torch_device(options.device)
        self.preset = PRESETS[options.quality]
        model = load_model(options.model or DEFAULT_MODEL, device=str(self.device))
        self.name = model.card.name
        self.network = _denoiser(model.network, self.name)
        self.patch = self.network.config.patch
        self.match = options.match
        self.precision = options.precision
        self.parallel = 0 if self.device.type == "cpu" else 1
        self._levels: OrderedDict[tuple[float, torch.dtype], LevelDust | FastDust] = OrderedDict()
        self._lock = Lock()

    def restore(self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None) -> tuple[Tensor, ...]:
        """Restore planes (T, H, W) on the 0-255 scale; the first one guides the matching of all. A plane with sigma 0 is left as it is."""
        guide, origins = clip[0].to(self.device), dict[torch.Size, Tensor]()
        restored = []
        for plane, level in zip(clip, sigma, strict=True):
            here = _at_least(plane.to(self.device), self.patch)
            if level and here.shape not in origins:
                origins[here.shape] = self._origins(here, guide)
            work = self._level(level, precision or self.precision) if level else None
            done = restore_patches(here, origins[here.shape], self.patch, work) if work else here
            restored.append(done[:, : plane.shape[1], : plane.shape[2]].to(plane.device))
        return tuple(restored)

    def operations(self, sizes: Sequence[tuple[int, int]]) -> dict[str, float]:
        """Products of the network for one frame, where no holes have to be filled; see `engine.tasks.Counted`."""
        grids = [self._grid(max(height, self.patch), max(width, self.patch), index == 0) for index, (height, width) in enumerate(sizes)]
        tokens = sum(grid.rows * grid.columns for grid in grids) * self.clip / (self.clip - self.overlap)
        return {"bf16" if uses_bf16(self.precision, self.device) else "fp32": tokens * self.network.operations(self.clip)}

    def _origins(self, plane: Tensor, guide: Tensor) -> Tensor:
        frames, height, width = plane.shape
        guide = _at_least(guide, self.patch)
        first = guide.shape == plane.shape
        grid = self._grid(height, width, first)
        follow = self.match and (self.preset.match if first else self.preset.match_smaller)
        if not follow or frames == 1:
            return origins_of(fixed_places(frames, grid, plane.device), height, width)
        guide = guide if first else F.interpolate(guide[None], size=(height, width), mode="area")[0]
        return origins_of(matched_places(guide, grid), height, width)

    def _grid(self, height: int, width: int, first: bool) -> Grid:
        stride = self.preset.stride if first else self.preset.smaller_stride
        return Grid(height, width, self.patch, max(1, stride * self.patch // 16))

    def _level(self, sigma: float, precision: str) -> LevelDust | FastDust:
        """The network at one sigma, worked out once and kept for a while."""
        sigma = max(sigma, SIGMA_RANGE[0])
        dtype = torch.bfloat16 if sigma >= BF16_FROM and uses_bf16(precision, self.device) else torch.float32
        with self._lock, torch.no_grad():
            if (sigma, dtype) not in self._levels:
                made = self.network.at(sigma, dtype, PackedLinear)
                self._levels[sigma, dtype] = made
            self._levels.move_to_end((sigma, dtype))
            while len(self._levels) > LEVELS_KEPT:
                self._levels.popitem(last=False)
            return self._levels[sigma, dtype]


def _denoiser(network: object, name: str) -> Dust | SigmaDust:
    if isinstance(network, SigmaDust) or (isinstance(network, Dust) and network.config.measurements is None):
        return network
    raise CheckpointError(f"{name}: these weights do not denoise; name some whose task is 'denoise' (see `vidrestore weights list`)")


def _at_least(plane: Tensor, side: int) -> Tensor:
    """Planes smaller than a patch are continued by their last row and column."""
    below, right = max(0, side - plane.shape[1]), max(0, side - plane.shape[2])
    return F.pad(plane[:, None], (0, right, 0, below), mode="replicate")[:, 0] if below or right else plane
