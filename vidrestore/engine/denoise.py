"""Denoising with DUST: planes of a clip to groups of patches that follow the motion, through the network, and back."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.dust_sigma import LevelDust, SigmaDust
from vidrestore.models.grouping import GROUP, origins_of, restore_patches
from vidrestore.models.linear import PackedLinear
from vidrestore.models.matching import Grid, fixed_places, matched_places
from vidrestore.weights import load_model

if TYPE_CHECKING:
    from vidrestore.engine.options import RestoreOptions

DEFAULT_MODEL = "dust-denoise"
FULL_PRECISION_BELOW = 4.0  # sigma: in noise units the picture's range then is so wide that bf16's 8 bits would show


@dataclass(frozen=True)
class Preset:
    """How much work per frame: patch stride of the first plane and of smaller ones, and whether patches follow the motion."""

    stride: int
    chroma_stride: int
    match: bool


PRESETS = {"fast": Preset(16, 16, False), "default": Preset(11, 12, True), "best": Preset(6, 8, True)}


class DenoiseRestorer:
    """Restorer of the task `denoise`; see `engine.tasks.Restorer`."""

    clip, overlap, scale, radius, parallel = GROUP, 2, 1, GROUP - 1, 0
    pixels: Literal["planes", "rgb"] = "planes"
    needs_sigma = True

    def __init__(self, options: RestoreOptions) -> None:
        model = load_model(options.model or DEFAULT_MODEL)
        self.name = model.card.name
        self.network = model.network
        self.patch: int = self.network.config.patch  # type: ignore[union-attr, assignment]
        self.preset = PRESETS[options.quality]
        self.match = self.preset.match and options.match
        self.precision = options.precision
        self._levels: dict[tuple[float, torch.dtype], LevelDust] = {}
        self._lock = Lock()

    def restore(self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None) -> tuple[Tensor, ...]:
        """Restore planes (T, H, W) on the 0-255 scale; the first one guides the matching of all."""
        places: dict[torch.Size, Tensor] = {}
        return tuple(
            plane if level == 0 else self._restore_plane(plane, level, clip[0], places, precision)
            for plane, level in zip(clip, sigma, strict=True)
        )

    def _restore_plane(self, plane: Tensor, sigma: float, guide: Tensor, places: dict[torch.Size, Tensor], precision: str | None) -> Tensor:
        height, width = plane.shape[1:]
        padded = _at_least(plane, self.patch)
        if padded.shape not in places:
            places[padded.shape] = self._origins(padded, guide)
        network = self._level(sigma, precision or self.precision)
        restored, _ = restore_patches(padded, places[padded.shape], self.patch, network)
        return restored[:, :height, :width]

    def _origins(self, plane: Tensor, guide: Tensor) -> Tensor:
        first = plane.shape[1:] == _at_least(guide, self.patch).shape[1:]
        frames, height, width = plane.shape
        grid = Grid(height, width, self.patch, self.preset.stride if first else self.preset.chroma_stride)
        if not self.match or frames == 1:
            return origins_of(fixed_places(frames, grid), height, width)
        guide = _at_least(guide, self.patch) if first else F.interpolate(guide[None], size=(height, width), mode="area")[0]
        return origins_of(matched_places(guide, grid), height, width)

    def _level(self, sigma: float, precision: str) -> LevelDust:
        """The network at one sigma, packed once and kept; estimates of sigma are taken to 1 %."""
        sigma = float(f"{sigma:.2g}") if sigma >= 10 else round(sigma, 2)
        dtype = torch.bfloat16 if _use_bf16(sigma, precision) else torch.float32
        with self._lock:
            if (sigma, dtype) not in self._levels:
                assert isinstance(self.network, SigmaDust)
                with torch.no_grad():
                    self._levels[sigma, dtype] = self.network.at(sigma, dtype, PackedLinear)
            return self._levels[sigma, dtype]


def _use_bf16(sigma: float, precision: str) -> bool:
    if precision == "auto":
        return sigma >= FULL_PRECISION_BELOW and torch.cpu._is_avx512_bf16_supported()
    return precision == "bf16"


def _at_least(plane: Tensor, side: int) -> Tensor:
    """Planes smaller than a patch are continued by their last row and column."""
    below, right = max(0, side - plane.shape[1]), max(0, side - plane.shape[2])
    return F.pad(plane[:, None], (0, right, 0, below), mode="replicate")[:, 0] if below or right else plane
