"""Denoise planes: the recipe of the three qualities of the task `denoise`.

1. DUST restores groups of patches that follow the motion, which makes the first estimate of every plane.
2. The spectrum of measured noise is found, which can show that white noise is weaker than was measured.
3. Non-local Bayes makes further estimates, each guided by the one before (`models.nonlocal_bayes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import CheckpointError, OptionError
from vidrestore.models.dust import Dust, FastDust, Transform
from vidrestore.models.dust_sigma import SIGMA_RANGE, LevelDust, SigmaDust
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.grouping import CHUNK, GROUP, restore_patches
from vidrestore.models.noise_model import FRAMES, is_white, lower_level, may_be_white, relative_spectrum
from vidrestore.models.nonlocal_bayes import CHUNK as TRACKS
from vidrestore.models.nonlocal_bayes import Noise, bayes_gains, inverse_covariance, nonlocal_bayes
from vidrestore.models.patch_positions import ClipPositions
from vidrestore.restorers.base import DENOISER, Facts, Sample
from vidrestore.restorers.devices import batch_for, torch_device, uses_bf16
from vidrestore.weights import load_model

if TYPE_CHECKING:
    from vidrestore.options import RestoreOptions

BF16_FROM = 4.0  # sigma; for less noise, rounding to the 8 bits of bf16 would be visible
SAMPLE_SIGMA = 20.0  # for measuring the speed of the network alone
# Of a GPU: those of a clip of 1080p on an H100; each group is 20 rows of a matrix product.
GROUPS_PER_PROCESSOR = 64.0
LEVELS_KEPT = 8  # networks prepared for one sigma: enough for the planes of a few scenes
TRACKS_PER_PROCESSOR = 64.0  # of a GPU
PATCHES = 80  # in a group, about
GROUP_COPIES = 8  # of a group of similar patches in memory, temporary ones included
LEAST_SAMPLES = 3  # patches of a group in each of GROUP frames, as many in all in short clips
OVERLAPPING = 1.5  # patches more, as a share, of single frames


class Preset(NamedTuple):
    """A quality: how many groups of patches are restored, and how often.

    stride: of the groups of a grid, in sixteenths of a patch. passes: estimates by non-local Bayes, of luma
    and of colour differences, from `grids` of groups each.
    """

    stride: int
    passes: tuple[int, int]
    grids: int = 1


GRIDS = 4  # one, and those shifted by half a stride; the first estimate has the grid that isn't shifted
PRESETS = {"fast": Preset(16, (1, 1)), "default": Preset(16, (3, 2)), "best": Preset(8, (3, 2), grids=2)}


def denoiser(options: RestoreOptions) -> DenoiseRestorer:
    """Return the restorer of `denoise` by DUST. Raises OptionError for options of other networks."""
    own = {"tile": None, "steady": False}  # with their defaults
    if given := [f"`{name}`" for name, default in own.items() if getattr(options, name) != default]:
        raise OptionError(
            f"{', '.join(given)}: for networks that see whole frames, and DUST sees patches; leave that out, "
            "or set `model` to such a network"
        )
    return DenoiseRestorer(options)


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
        self.network = _checked_network(model.network, model.card.name)
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
            doubts=_range_warning(self.network, model.card.name, options.sigma),
        )
        # bytes of a group's codes, temporary ones included
        each = 8 * 4 * GROUP * self.network.config.atoms
        self.batch = batch_for(self.device, CHUNK, each, GROUPS_PER_PROCESSOR)
        self.further = FurtherEstimates(options.quality, self.patch, self.device)
        self._levels = lru_cache(LEVELS_KEPT)(self._prepared)
        self._lock = Lock()

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def restore(
        self,
        clip: tuple[Tensor, ...],
        sigma: tuple[float, ...],
        *,
        measured: bool = False,
        precision: str | None = None,
    ) -> tuple[Tensor, ...]:
        """Restore planes (T, H, W) on the 0-255 scale. Patches of all planes follow the motion of the first
        one. A plane with sigma 0 is left as it is.
        """
        precision = precision or self.precision
        planes = [_padded_to(plane.to(self.device), self.patch) for plane in clip]
        positions = ClipPositions(planes[0], self.patch, follow=self.match)
        first = [
            self.restored_plane(plane, level, positions, precision) if level else plane
            for plane, level in zip(planes, sigma, strict=True)
        ]
        restore_luma = partial(self.restored_plane, planes[0], positions=positions, precision=precision)
        dtype = torch.bfloat16 if uses_bf16(precision, self.device) else torch.float32
        refined = self.further.refine_clip(planes, first, sigma, positions, restore_luma, dtype, measured)
        return tuple(
            restored[:, : plane.shape[1], : plane.shape[2]].to(plane.device)
            for restored, plane in zip(refined, clip, strict=True)
        )

    def restored_plane(self, plane: Tensor, sigma: float, positions: ClipPositions, precision: str) -> Tensor:
        """Return the first estimate of a plane (T, H, W) of at least a patch; `positions` are its clip's."""
        origins = positions.origins(plane.shape, self.preset.stride)
        return restore_patches(plane, origins, self.patch, self._level(sigma, precision), self.batch)

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: fewer groups and tracks at once."""
        before = self.batch, self.further.batch
        self.batch, self.further.batch = (max(1, each // 2) for each in before)
        return (self.batch, self.further.batch) < before

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
        with self._lock:
            return self._levels(sigma, dtype)

    @torch.no_grad()
    def _prepared(self, sigma: float, dtype: torch.dtype) -> LevelDust | FastDust:
        return self.network.at(sigma, dtype, PackedLinear)


@dataclass(frozen=True)
class Refinement:
    """How a plane is estimated again: groups (G, S, T) of some grids, the noise, the dtype of products,
    whether the noise was measured, its spectrum (N,), None of white noise, and for a colour difference the
    last estimate of luma (T, H, W) at its size.
    """

    grids: Tensor
    sigma: float
    dtype: torch.dtype
    measured: bool
    spectrum: Tensor | None = None
    luma: Tensor | None = None


class FurtherEstimates:
    """Makes the further estimates of a quality, in patches of `patch` pixels; `batch` groups are filtered at
    once.
    """

    def __init__(self, quality: str, patch: int, device: torch.device) -> None:
        self.preset = PRESETS[quality]
        self.patch, self.device = patch, device
        each = GROUP_COPIES * 4 * PATCHES * patch**2
        self.batch = batch_for(device, TRACKS, each, TRACKS_PER_PROCESSOR)
        # the transform of the second estimate, made once for each dtype
        self._transform = cache(lambda dtype: Transform(patch, dtype, PackedLinear, device))

    def refine_clip(
        self,
        planes: list[Tensor],
        first: list[Tensor],
        sigma: tuple[float, ...],
        positions: ClipPositions,
        restore_luma: Callable[[float], Tensor],
        dtype: torch.dtype,
        measured: bool,
    ) -> list[Tensor]:
        """Return the last estimates of planes from the first ones, unless their sigma is 0.

        restore_luma: makes a first estimate of luma for another sigma. dtype: of products. measured: the
        noise may not be white.
        """
        refined: list[Tensor] = []
        for plane, estimate, level in zip(planes, first, sigma, strict=True):
            least = max(level, SIGMA_RANGE[0])
            if not level:
                refined.append(estimate)
                continue
            luma = _resized(refined[0], plane) if refined else None
            work = Refinement(self._grids(plane, positions), least, dtype, measured, luma=luma)
            work = replace(work, spectrum=self._coloured_spectrum(plane, estimate, work))
            if not refined:
                work, estimate = self._with_lower_sigma(plane, estimate, work, restore_luma)
            refined.append(self.nonlocal_estimate(plane, estimate, work))
        return refined

    def _grids(self, plane: Tensor, positions: ClipPositions) -> Tensor:
        """Return groups (GRIDS, S, T), those of the first estimate last."""
        grids: Tensor = positions.origins(plane.shape, self.preset.stride, GRIDS).unflatten(0, (GRIDS, -1))
        return grids.roll(-1, 0)

    def _coloured_spectrum(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor | None:
        """Return the spectrum of measured noise, None of white noise."""
        if not work.measured or len(plane) < FRAMES:
            return None
        spectrum = self._measure_spectrum(plane, estimate, work)
        return None if is_white(spectrum) else spectrum

    def _measure_spectrum(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor:
        transform, groups = self._transform(work.dtype), work.grids.flatten(0, 1)
        return relative_spectrum(plane, estimate, work.sigma, groups, transform)

    def _with_lower_sigma(
        self,
        plane: Tensor,
        estimate: Tensor,
        work: Refinement,
        restore_luma: Callable[[float], Tensor],
    ) -> tuple[Refinement, Tensor]:
        """Lower the sigma of white noise that was measured too high, and make the first estimate for it."""
        level = None if work.spectrum is None else lower_level(work.spectrum)
        if level is None:
            return work, estimate
        lower = replace(work, sigma=max(work.sigma * level**0.5, SIGMA_RANGE[0]), spectrum=None)
        tried = restore_luma(lower.sigma)
        spectrum = self._measure_spectrum(plane, tried, lower)
        return (lower, tried) if may_be_white(spectrum) else (work, estimate)

    def nonlocal_estimate(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor:
        """Return the last of the estimates by non-local Bayes."""
        noise, samples = self.noise(estimate, work), _samples(len(plane))
        for stage, tracks in enumerate(self.nonlocal_tracks(work)):
            gains = bayes_gains(stage, work.sigma, self.device)
            estimate = nonlocal_bayes(
                plane, estimate, tracks, self.patch, noise, gains, samples, work.dtype, self.batch
            )
        return estimate

    def noise(self, estimate: Tensor, work: Refinement) -> Noise:
        """Return the noise of a plane whose first estimate is given."""
        whitener = None if work.spectrum is None else inverse_covariance(work.spectrum)
        brightness = estimate if work.luma is None else work.luma
        return Noise(work.sigma, brightness if work.measured else None, whitener)

    def nonlocal_tracks(self, work: Refinement) -> Tensor:
        """Return the tracks (E, S, T) of each estimate by non-local Bayes."""
        grids, passes = self.preset.grids, self.preset.passes[work.luma is not None]
        turns = work.grids.repeat(2, 1, 1)[: passes * grids]
        tracks: Tensor = turns.unflatten(0, (passes, grids)).flatten(1, 2)
        return tracks


def _samples(frames: int) -> int:
    """Return the patches of a group in every frame: more in short clips, and still more where the noise of
    patches that overlap can't be averaged along time.
    """
    return max(LEAST_SAMPLES, round(LEAST_SAMPLES * (1 + OVERLAPPING / frames) * GROUP / frames))


def _resized(luma: Tensor, plane: Tensor) -> Tensor:
    """Return luma (T, H, W) at the size of another plane."""
    if luma.shape == plane.shape:
        return luma
    return F.interpolate(luma[None], size=plane.shape[1:], mode="area")[0]


def _range_warning(network: Dust | SigmaDust, name: str, sigma: float | str) -> tuple[str, ...]:
    """Return a warning if `sigma` is outside the range that the network was trained for; at 0 nothing is
    denoised.
    """
    low, high = SIGMA_RANGE
    if not isinstance(network, SigmaDust) or isinstance(sigma, str) or sigma == 0 or low <= sigma <= high:
        return ()
    nearest = min(max(sigma, low), high)
    return (f"{name} was trained for sigma {low:g} to {high:g}; sigma {sigma:g} is taken for {nearest:g}",)


def _checked_network(network: object, name: str) -> Dust | SigmaDust:
    if isinstance(network, SigmaDust) or (isinstance(network, Dust) and network.config.measurements is None):
        return network
    raise CheckpointError(
        f"{name}: these weights do not denoise; name some whose task is 'denoise' (see `vidrestore weights "
        "list`)"
    )


def _padded_to(plane: Tensor, side: int) -> Tensor:
    """Extend a plane that is smaller than a patch by repeating its last row and column."""
    below, right = max(0, side - plane.shape[1]), max(0, side - plane.shape[2])
    return F.pad(plane[:, None], (0, right, 0, below), mode="replicate")[:, 0] if below or right else plane
