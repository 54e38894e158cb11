"""Denoise planes with DUST: cut a clip into groups of patches that follow the motion, restore them by the
network, and put them together again.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import CheckpointError
from vidrestore.models.dust import Dust, FastDust
from vidrestore.models.dust_sigma import SIGMA_RANGE, LevelDust, SigmaDust
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.grouping import CHUNK, GROUP, restore_patches
from vidrestore.models.halfsize import DETAIL_NOISE, detailed_groups, double, halve
from vidrestore.models.patch_positions import ClipPositions
from vidrestore.restorers.base import DENOISER, Facts, Sample
from vidrestore.restorers.denoise_presets import PRESETS
from vidrestore.restorers.devices import batch_for, torch_device, uses_bf16
from vidrestore.restorers.further_estimates import FurtherEstimates
from vidrestore.weights import load_model

if TYPE_CHECKING:
    from vidrestore.options import RestoreOptions

BF16_FROM = 4.0  # sigma; for less noise, rounding to the 8 bits of bf16 would be visible
SAMPLE_SIGMA = 20.0  # for measuring the speed of the network alone
GROUPS_PER_PROCESSOR = 4.0  # of a GPU: each group is 80 rows of a matrix product
COLOUR_DETAIL = 1.085  # the mean over the 5000 pixels of a group hardly ever reaches this by noise alone
LEVELS_KEPT = 8  # networks prepared for one sigma: enough for the planes of a few scenes


class DenoiseRestorer:
    """Restorer of the task `denoise`; see `restorers.base.PlaneRestorer`.

    Raises CheckpointError for weights of another family, or of a network that takes measurements instead of
    pixels.
    """

    sees: Literal["planes"] = "planes"

    def __init__(self, options: RestoreOptions) -> None:
        self.device = torch_device(options.device)
        self.preset = PRESETS[options.quality]
        model = load_model(options.model or DENOISER, device=str(self.device))
        self.network = _denoiser(model.network, model.card.name)
        self.patch = self.network.config.patch
        self.match = options.match
        self.precision = options.precision
        self.facts = Facts(
            model.card.name,
            model.card.sha256,
            str(self.device),
            clip=GROUP,
            overlap=2,
            radius=GROUP - 1,
            needs_sigma=True,
            parallel=0 if self.device.type == "cpu" else 1,
            doubts=_doubts(self.network, model.card.name, options.sigma),
        )
        # bytes of a group's codes, temporary ones included
        each = 8 * 4 * GROUP * self.network.config.atoms
        self.batch = batch_for(self.device, CHUNK, each, GROUPS_PER_PROCESSOR)
        white = not isinstance(options.sigma, str)
        self.further = FurtherEstimates(options.quality, self.patch, self.device, white=white)
        self._levels: OrderedDict[tuple[float, torch.dtype], LevelDust | FastDust] = OrderedDict()
        self._lock = Lock()

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
    ) -> tuple[Tensor, ...]:
        """Restore planes (T, H, W) on the 0-255 scale. Patches of all planes follow the motion of the first
        one. A plane with sigma 0 is left as it is.
        """
        precision = precision or self.precision
        planes = [_at_least(plane.to(self.device), self.patch) for plane in clip]
        positions = ClipPositions(planes[0], self.patch, follow=self.match)
        first = [
            self.restored_plane(plane, level, positions, precision) if level else plane
            for plane, level in zip(planes, sigma, strict=True)
        ]
        again = ClipPositions(first[0], self.patch, follow=self.match, before=positions)
        restored = partial(self.restored_plane, planes[0], positions=positions, precision=precision)
        dtype = torch.bfloat16 if uses_bf16(precision, self.device) else torch.float32
        done = self.further.of_clip(planes, first, sigma, (positions, again), restored, dtype)
        return tuple(
            finished[:, : plane.shape[1], : plane.shape[2]].to(plane.device)
            for finished, plane in zip(done, clip, strict=True)
        )

    def restored_plane(self, plane: Tensor, sigma: float, positions: ClipPositions, precision: str) -> Tensor:
        """Return the first estimate of a plane (T, H, W) of at least a patch; `positions` are its clip's."""
        preset, first = self.preset, plane.shape == positions.luma.shape
        origins = positions.origins(plane.shape, *(preset.first if first else preset.colour))
        work = self._level(sigma, precision)
        if first or sigma / 2 < SIGMA_RANGE[0]:
            return restore_patches(plane, origins, self.patch, work, chunk=self.batch)
        small = halve(plane)
        power = COLOUR_DETAIL * DETAIL_NOISE * sigma**2
        detailed = detailed_groups(plane, small, origins, self.patch, power, self.batch)
        base = double(self._half(small, sigma / 2, positions, precision), *plane.shape[1:])
        return restore_patches(plane, detailed, self.patch, work, base, self.batch)

    def _half(self, small: Tensor, sigma: float, positions: ClipPositions, precision: str) -> Tensor:
        """Restore a plane that was downscaled to half its size."""
        here = _at_least(small, self.patch)
        origins = positions.origins(here.shape, *self.preset.half)
        level = self._level(sigma, precision)
        restored = restore_patches(here, origins, self.patch, level, chunk=self.batch)
        return restored[:, : small.shape[1], : small.shape[2]]

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: fewer groups and tracks at once."""
        before = self.batch, self.further.tracks
        self.batch, self.further.tracks = (max(1, each // 2) for each in before)
        return (self.batch, self.further.tracks) < before

    def sample(self) -> Sample:
        """Return the network on one chunk of groups; see `restorers.base.AnyRestorer.sample`."""
        work, groups = (
            self._level(SAMPLE_SIGMA, self.precision),
            torch.empty(self.batch, GROUP, self.patch**2, device=self.device),
        )
        groups.uniform_(0, 255)
        numbers = "bf16" if uses_bf16(self.precision, self.device) else "fp32"
        return Sample(lambda: work(groups), len(groups) * GROUP * self.network.operations(GROUP), numbers)

    def _level(self, sigma: float, precision: str) -> LevelDust | FastDust:
        """Return the network prepared for one sigma; the latest few are kept."""
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


def _doubts(network: Dust | SigmaDust, name: str, sigma: float | str) -> tuple[str, ...]:
    """Return a warning if `sigma` is outside the range that the network was trained for; at 0 nothing is
    denoised.
    """
    low, high = SIGMA_RANGE
    if not isinstance(network, SigmaDust) or isinstance(sigma, str) or sigma == 0 or low <= sigma <= high:
        return ()
    nearest = min(max(sigma, low), high)
    return (f"{name} was trained for sigma {low:g} to {high:g}; sigma {sigma:g} is taken for {nearest:g}",)


def _denoiser(network: object, name: str) -> Dust | SigmaDust:
    if isinstance(network, SigmaDust) or (isinstance(network, Dust) and network.config.measurements is None):
        return network
    raise CheckpointError(
        f"{name}: these weights do not denoise; name some whose task is 'denoise' (see `vidrestore weights "
        "list`)"
    )


def _at_least(plane: Tensor, side: int) -> Tensor:
    """Extend a plane that is smaller than a patch by repeating its last row and column."""
    below, right = max(0, side - plane.shape[1]), max(0, side - plane.shape[2])
    return F.pad(plane[:, None], (0, right, 0, below), mode="replicate")[:, 0] if below or right else plane
