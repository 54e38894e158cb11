"""Denoise planes: the presets of the qualities fast, default and best of the task `denoise`.

1. DUST restores groups of patches that follow the motion, which makes the first estimate of every plane.
2. The spectrum of measured noise is found, which can show that noise is weaker than was measured.
3. Non-local Bayes makes further estimates, each guided by the one before (`models.nonlocal_bayes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from threading import Lock
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.errors import CheckpointError, OptionError
from vidrestore.models.dust import Dust, FastDust, Transform
from vidrestore.models.dust_sigma import SIGMA_RANGE, LevelDust, SigmaDust
from vidrestore.models.fast_linear import PackedLinear
from vidrestore.models.fields import field_of, real_samples
from vidrestore.models.grouping import CHUNK, GROUP, origins_of, restore_patches
from vidrestore.models.matching import (
    Grid,
    fixed_positions,
    halve,
    matched_positions,
    pair_like,
)
from vidrestore.models.noise_model import (
    FRAMES,
    coarse_level,
    is_white,
    lower_level,
    may_be_white,
    relative_spectrum,
)
from vidrestore.models.nonlocal_bayes import CHUNK as TRACKS
from vidrestore.models.nonlocal_bayes import (
    Noise,
    Sampling,
    bayes_gains,
    inverse_covariance,
    nonlocal_bayes,
)
from vidrestore.restorers.base import Facts
from vidrestore.restorers.devices import batch_for, torch_device, uses_bf16
from vidrestore.settings.options import RestoreOptions
from vidrestore.settings.tasks import TASKS
from vidrestore.weights import load_model
from vidrestore.working import steps

# sigma; for less noise, rounding to the 8 bits of bf16 would be visible
BF16_FROM = 4.0
# Of a GPU: those of a clip of 1080p on an H100; each group is 20 rows of a matrix product.
GROUPS_PER_PROCESSOR = 64.0
# networks prepared for one sigma: enough for the planes of a few scenes
LEVELS_KEPT = 8
TRACKS_PER_PROCESSOR = 64.0  # tracks filtered at once per processor of a GPU
PATCHES = 80  # usual number in a group
# copies of a group of similar patches in memory, temporary ones included
GROUP_COPIES = 8
# patches of a group in each of GROUP frames, as many in all in short clips
LEAST_SAMPLES = 4
# time of a further pass over that of the first estimate: of several frames, of one
FURTHER = (1, 4)
FIRST_OF_CODING = 0.6  # sigma of the first estimate over that of a coder's loss
# share of the residual that real rows between interpolated ones have; by training clips
OF_FIELDS = 1.4


class Preset(NamedTuple):
    """A quality: the number of groups of patches, and of estimates from them."""

    stride: int  # of the groups of a grid, in sixteenths of a patch
    # estimates by non-local Bayes, of luma and of colour differences
    passes: tuple[int, int]
    grids: int = 1  # of groups, for each estimate
    # of luma and colour differences; None: as GROUP frames
    samples: tuple[Sampling, Sampling] | None = None


# one, and those shifted by half a stride; the first estimate has the grid that isn't shifted
GRIDS = 4
PRESETS = {
    "fast": Preset(16, (1, 1)),
    "default": Preset(16, (3, 2)),
    "best": Preset(8, (3, 2), grids=2),
}
SAMPLES = Sampling(48, 2), Sampling(60, 3)
PHOTOGRAPHS = {  # and other single frames
    "fast": Preset(16, (1, 1), samples=SAMPLES),
    "default": Preset(16, (2, 2), samples=SAMPLES),
    "best": Preset(16, (2, 2), samples=(Sampling(48, 2), Sampling(80, 3))),
}
# of the time of a clip: finding its patches, and denoising its planes
MATCHING_SHARES = (1, 11)


class DenoiseRestorer:
    """Restorer of the task `denoise`; see `restorers.base.PlaneRestorer`.

    Raises OptionError for options of other networks, CheckpointError for weights of another family, or of a
    network that takes measurements instead of pixels.
    """

    input_kind: Literal["planes"] = "planes"

    def __init__(self, options: RestoreOptions) -> None:
        if options.tile is not None:
            raise OptionError(
                "`tile`: for networks that see whole frames, and DUST sees patches; leave that out, or set "
                "`model` to such a network"
            )
        self.device = torch_device(options.device)
        self.preset, self.photograph = (
            PRESETS[options.quality],
            PHOTOGRAPHS[options.quality],
        )
        model = load_model(
            options.model or TASKS["denoise"].weights[0], device=str(self.device)
        )
        self.network = _checked_network(model.network, model.card.name)
        self.patch = self.network.config.patch
        self.match = options.match
        self.precision = options.precision
        self.facts = Facts(
            model.card.name,
            model.card.sha256,
            str(self.device),
            clip=GROUP,
            overlap=1,
            radius=GROUP - 1,
            needs_sigma=True,
            warnings=_range_warning(self.network, model.card.name, options.sigma),
        )
        # bytes of a group's codes, and of a group of similar patches, temporary ones included
        codes = 8 * 4 * GROUP * self.network.config.atoms
        similar = GROUP_COPIES * 4 * PATCHES * self.patch**2
        self.batch = batch_for(self.device, CHUNK, codes, GROUPS_PER_PROCESSOR)
        # filtered at once
        self.tracks = batch_for(self.device, TRACKS, similar, TRACKS_PER_PROCESSOR)
        self._levels = lru_cache(LEVELS_KEPT)(self.network.at)
        patch, device = self.patch, self.device
        self._transform = cache(
            lambda dtype: Transform(patch, dtype, PackedLinear, device)
        )
        self._lock = Lock()

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def restore(
        self,
        clip: tuple[Tensor, ...],
        sigma: tuple[float, ...],
        *,
        measured: bool = False,
        coding: tuple[tuple[float, ...], ...] = (),
        precision: str | None = None,
        real_rows: Sequence[int | None] = (),
    ) -> tuple[Tensor, ...]:
        """Restore planes (T, H, W) on the 0-255 scale. Patches of all planes follow the motion of the first
        one. A plane with sigma 0 is left as it is.
        """
        precision = precision or self.precision
        planes = [_padded_to(plane.to(self.device), self.patch) for plane in clip]
        coding = coding or ((),) * len(planes)
        levels = list(zip(planes, sigma, coding, strict=True))
        sizes = [plane.numel() for plane in planes]
        positions = ClipPositions(planes[0], self.patch, follow=self.match)
        shares = MATCHING_SHARES if positions.follow else (0, 1)
        stages = steps(("positions", "planes"), shares)
        next(stages)
        shapes = dict.fromkeys(plane.shape for plane, level, _ in levels if level)
        positions.find([*shapes], self._preset(planes[0]).stride)
        next(stages)
        restored: list[Tensor] = []
        for plane, level, frames in steps(levels, sizes):
            luma = restored[0] if restored else None
            if level:
                plane = self._denoised(
                    plane,
                    level,
                    luma,
                    positions,
                    precision,
                    measured,
                    frames,
                    real_rows,
                )
            restored.append(plane)
        # without the rows and columns that fill the last patches
        results = []
        for plane, source in zip(restored, clip, strict=True):
            height, width = source.shape[1:]
            results.append(plane[:, :height, :width].to(source.device))
        return tuple(results)

    def _denoised(
        self,
        plane: Tensor,
        sigma: float,
        luma: Tensor | None,
        positions: ClipPositions,
        precision: str,
        measured: bool,
        coding: tuple[float, ...],
        rows: Sequence[int | None],
    ) -> Tensor:
        """Return the last estimate of a plane (T, H, W); `luma` is that of the first plane for others.

        The loss of a coder is white, and the first estimate is made for less of it: what that takes from the
        picture isn't returned in full. Where the spectrum of the first plane's noise shows that white or
        coarse noise is weaker than was measured, the first estimate is made again for that. Interpolated rows
        have another spectrum, so that it is measured in a field of the others, if `rows` has some.
        """
        dtype = torch.bfloat16 if uses_bf16(precision, self.device) else torch.float32
        # groups (GRIDS * S, T)
        grids = positions.origins(plane.shape, self._preset(plane).stride, GRIDS)
        # those of the first estimate last
        grids = grids.unflatten(0, (GRIDS, -1)).roll(-1, 0)
        groups, spectrum = grids.flatten(0, 1), None
        colour = luma is not None
        passes = self._preset(plane).passes[colour]
        stages = steps(("first", "further"), (1, passes * FURTHER[len(plane) == 1]))
        next(stages)
        measured = measured and not coding
        first = FIRST_OF_CODING * sigma if coding else sigma
        estimate = self.restored_plane(plane, first, positions, precision)
        least = SIGMA_RANGE[0]
        levels = tuple(max(level * sigma, least) if level else 0.0 for level in coding)
        sigma = max(sigma, least)
        field = field_of(rows, plane, groups, self.patch) if measured else None

        def spectrum_of(estimate: Tensor, sigma: float) -> Tensor:
            assert field is not None
            parts = field.of(plane), field.of(estimate)
            return relative_spectrum(
                *parts, sigma, field.groups, self._transform(dtype)
            )

        # the spectrum tells white noise from coarse, and how far the level was taken too high
        if field is not None and field.groups.shape[1] >= FRAMES:
            spectrum = spectrum_of(estimate, sigma)
            level = lower_level(spectrum) if luma is None else None
            if is_white(spectrum):
                spectrum = None
            elif level is not None:
                lower = max(sigma * level**0.5, SIGMA_RANGE[0])
                trial = self.restored_plane(plane, lower, positions, precision)
                if may_be_white(spectrum_of(trial, lower)):
                    sigma, estimate, spectrum = lower, trial, None
            coarse = (
                coarse_level(spectrum, sigma)
                if spectrum is not None and luma is None
                else None
            )
            if spectrum is not None and coarse is not None:
                sigma, spectrum = coarse, spectrum * (sigma / coarse) ** 2
                estimate = self.restored_plane(plane, sigma, positions, precision)
        # the noise by brightness and spectrum, for the estimates that follow
        luma = None if luma is None else _resized(luma, plane.shape)
        brightness = None
        if measured:
            brightness = estimate if luma is None else luma
        whitener = None if spectrum is None else inverse_covariance(spectrum)
        noise = Noise(
            sigma, brightness, whitener, tuple(level / sigma for level in levels)
        )
        next(stages)
        real = real_samples(rows, plane)
        restored = self.further_estimates(
            plane, estimate, grids, noise, dtype, real, colour=colour
        )
        for frame, level in enumerate(levels):
            if not level:  # without a loss
                restored[frame] = plane[frame]
        return restored

    def further_estimates(
        self,
        plane: Tensor,
        estimate: Tensor,
        grids: Tensor,
        noise: Noise,
        dtype: torch.dtype,
        real: Tensor | None = None,
        *,
        colour: bool,
    ) -> Tensor:
        """Return the last estimate of luma or of a colour difference by non-local Bayes, each from some of
        the groups (G, S, T). A group has more patches of each frame in short clips.

        Samples that are not `real` were never measured: as in expectation maximisation, the estimate before
        takes their place. The others of their frames then change by more, since the gains are fitted to whole
        frames; not those of a colour difference in coarse noise, most of which is left in the estimate.
        """
        # how many samples each group is fitted to
        preset = self._preset(plane)
        passes, count = preset.passes[colour], preset.grids
        samples = Sampling(
            max(LEAST_SAMPLES, round(LEAST_SAMPLES * GROUP / len(plane)))
        )
        kind = "clips"
        if preset.samples:
            samples, kind = preset.samples[colour], ("luma", "chroma")[colour]
        if real is not None:
            is_exact = real.all(1, keepdim=True) | (
                colour and noise.whitener is not None
            )
            shares = real * torch.where(is_exact, 1.0, OF_FIELDS)
        turns = (
            grids.repeat(2, 1, 1)[: passes * count]
            .unflatten(0, (passes, count))
            .flatten(1, 2)
        )
        for stage, tracks in enumerate(steps(list(turns))):
            gains = bayes_gains(kind, stage, noise.sigma, self.device)
            source = plane if real is None else estimate.lerp(plane, shares)
            estimate = nonlocal_bayes(
                source,
                estimate,
                tracks,
                self.patch,
                noise,
                gains,
                samples,
                dtype,
                self.tracks,
            )
        return estimate

    def _preset(self, plane: Tensor) -> Preset:
        return self.photograph if len(plane) == 1 else self.preset

    def restored_plane(
        self, plane: Tensor, sigma: float, positions: ClipPositions, precision: str
    ) -> Tensor:
        """Return the first estimate of a plane (T, H, W) of at least a patch; `positions` are its clip's."""
        origins = positions.origins(plane.shape, self._preset(plane).stride)
        return restore_patches(
            plane, origins, self.patch, self._level(sigma, precision), self.batch
        )

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: fewer groups and tracks at once."""
        before = self.batch, self.tracks
        self.batch, self.tracks = (max(1, size // 2) for size in before)
        return (self.batch, self.tracks) < before

    def _level(self, sigma: float, precision: str) -> LevelDust | FastDust:
        """Return the network prepared for one sigma; the latest few are kept."""
        sigma = max(sigma, SIGMA_RANGE[0])
        dtype = (
            torch.bfloat16
            if sigma >= BF16_FROM and uses_bf16(precision, self.device)
            else torch.float32
        )
        with self._lock, torch.no_grad():
            return cast(
                "LevelDust | FastDust", self._levels(sigma, dtype, PackedLinear)
            )


# shifts of up to four grids, in half strides down and right
SHIFTS = ((0, 0), (1, 1), (0, -1), (-1, 0))


class ClipPositions:
    """Patch positions for all planes of a clip, found in its noisy luma (T, H, W); each result is computed
    once.

    Without `follow` they are fixed.
    """

    def __init__(self, luma: Tensor, patch: int, *, follow: bool) -> None:
        self.luma, self.patch, self.follow = luma, patch, follow and len(luma) > 1
        self._corners: dict[Grid, Tensor] = {}

    def find(self, shapes: Sequence[torch.Size], stride: int) -> None:
        """Find the groups in planes of different shapes, each in a worker that is idle."""
        if self.follow:
            list(dealt(partial(self._corners_in, stride=stride), shapes))

    def origins(self, shape: torch.Size, stride: int, grids: int = 1) -> Tensor:
        """Return (S, T) flat origins of groups in a plane of `shape` (T, H, W); `stride` is in sixteenths of
        a patch.

        With 2 `grids` the second is the first shifted by half a stride both ways, so that groups are found
        once and used twice. With 4 it is also shifted either way. Shifted ones leave a border uncovered, so
        that fixed grids have their first row and column once more.
        """
        height, width = shape[1:]
        grid, corners = self._corners_in(shape, stride)
        # shifted by half a stride, but within the plane
        limit, half = (
            pair_like(corners, height - self.patch, width - self.patch),
            grid.stride // 2,
        )
        shifts = [
            pair_like(corners, half * down, half * right)
            for down, right in SHIFTS[:grids]
        ]
        shifted = [
            torch.minimum((corners + shift).clamp_(min=0), limit) for shift in shifts
        ]
        if grids > 1 and not self.follow:
            border = (
                corners[:, : grid.columns],
                corners[:, grid.columns :: grid.columns],
            )
            shifted = [torch.cat((positions, *border), 1) for positions in shifted]
        return torch.cat(
            [origins_of(positions, height, width) for positions in shifted]
        )

    def _corners_in(self, shape: torch.Size, stride: int) -> tuple[Grid, Tensor]:
        """Return the grid of a plane of `shape` (T, H, W) and the corners (T, S, 2) of its groups."""
        frames, height, width = shape
        grid = Grid(height, width, self.patch, max(1, stride * self.patch // 16))
        if not self.follow:
            return grid, fixed_positions(frames, grid, self.luma.device)
        if grid not in self._corners:
            self._corners[grid] = matched_positions(_resized(self.luma, shape), grid)
        return grid, self._corners[grid]


def _range_warning(
    network: Dust | SigmaDust, name: str, sigma: float | str
) -> tuple[str, ...]:
    """Return a warning if `sigma` is outside the network's range; at 0 nothing is denoised."""
    low, high = SIGMA_RANGE
    if (
        not isinstance(network, SigmaDust)
        or isinstance(sigma, str)
        or sigma == 0
        or low <= sigma <= high
    ):
        return ()
    nearest = min(max(sigma, low), high)
    return (
        f"{name} was trained for sigma {low:g} to {high:g}; sigma {sigma:g} is taken for {nearest:g}",
    )


def _checked_network(network: object, name: str) -> Dust | SigmaDust:
    if isinstance(network, SigmaDust) or (
        isinstance(network, Dust) and network.config.measurements is None
    ):
        return network
    raise CheckpointError(
        f"{name}: these weights do not denoise; name some whose task is 'denoise' (see `vidrestore weights "
        "list`)"
    )


def _resized(luma: Tensor, shape: torch.Size) -> Tensor:
    """Return luma (T, H, W) at the size of a plane with fewer samples, of `shape` (T, H', W')."""
    if shape == luma.shape:
        return luma
    if shape[1:] == (-(-luma.shape[1] // 2), -(-luma.shape[2] // 2)):
        return halve(luma)  # ten times as fast as `interpolate`
    return F.interpolate(luma[None], shape[1:], mode="area")[0]


def _padded_to(plane: Tensor, side: int) -> Tensor:
    """Extend a plane that is smaller than a patch by repeating its last row and column."""
    below, right = max(0, side - plane.shape[1]), max(0, side - plane.shape[2])
    return (
        F.pad(plane[:, None], (0, right, 0, below), mode="replicate")[:, 0]
        if below or right
        else plane
    )
