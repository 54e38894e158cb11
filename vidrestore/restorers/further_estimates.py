"""Estimate planes again, guided by DUST's first estimate: by Wiener's filter, luma then by non-local Bayes.
The last estimates are corrected by small networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.dust_sigma import SIGMA_RANGE
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.finisher import COLOUR, LUMA, finish, finisher
from vidrestore.models.grouping import GROUP
from vidrestore.models.noise_model import FRAMES, is_white, lower_level, may_be_white, relative_spectrum
from vidrestore.models.nonlocal_bayes import CHUNK, Noise, bayes_gains, inverse_covariance, nonlocal_bayes
from vidrestore.models.patch_positions import ClipPositions
from vidrestore.models.second_estimate import LEAST_FRAMES, Gains, Transform, in_pairs, refine, wiener_gains
from vidrestore.restorers.denoise_presets import GRIDS, PRESETS
from vidrestore.restorers.devices import batch_for

TRACKS_PER_PROCESSOR = 16.0  # of a GPU
PATCHES = 80  # in a group, about
GROUP_COPIES = 8  # of a group of similar patches in memory, temporary ones included
IN_TURN_FROM = 3  # frames: with fewer, an estimate is not good enough to guide another
LEAST_SAMPLES = 3  # patches of a group in each of GROUP frames, as many in all in short clips
OVERLAPPING = 1.5  # patches more, as a share, of single frames


@dataclass(frozen=True)
class Refining:
    """How a plane is estimated again: groups (G, S, T) of some grids, the noise, the dtype of products, and
    the noise's spectrum (N,), None of white noise.
    """

    grids: Tensor
    sigma: float
    dtype: torch.dtype
    spectrum: Tensor | None = None


@dataclass(frozen=True)
class RefiningColour(Refining):
    """The same of a colour difference: the last estimate of `luma` (T, H, W), at its size, whose brightness
    measured noise may follow, and whether all groups move with the camera.
    """

    luma: Tensor | None = None
    camera: bool = False

    def tracks(self, *, in_turn: bool) -> list[Tensor]:
        """Return tracks (S, M, T) for each estimate: one for each grid in turn, or one for all."""
        by_place = self.grids.transpose(0, 1)
        parts = list(by_place.split(1, 1)) if in_turn else [by_place]
        # what moves alike can share the components, two neighbours at a time
        return [in_pairs(part) if self.camera else part for part in parts]


class FurtherEstimates:
    """Makes the further estimates of a quality, in patches of `patch` pixels; `tracks` groups are filtered at
    once. `white`: the noise is given by its sigma alone, not measured.
    """

    def __init__(self, quality: str, patch: int, device: torch.device, *, white: bool) -> None:
        self.quality, self.preset = quality, PRESETS[quality]
        self.patch, self.device, self.white = patch, device, white
        each = GROUP_COPIES * 4 * PATCHES * patch**2
        self.tracks = batch_for(device, CHUNK, each, TRACKS_PER_PROCESSOR)
        self._transforms: dict[torch.dtype, Transform] = {}
        self._lock = Lock()

    def of_clip(
        self,
        planes: list[Tensor],
        first: list[Tensor],
        sigma: tuple[float, ...],
        positions: tuple[ClipPositions, ClipPositions],
        restored: Callable[[float], Tensor],
        dtype: torch.dtype,
    ) -> list[Tensor]:
        """Return the last estimates of planes from the first ones, unless their sigma is 0.

        positions: matched in the source, and in the first estimate. restored: makes a first estimate of luma
        for another sigma. dtype: of products.
        """
        done: list[Tensor] = []
        for plane, estimate, level in zip(planes, first, sigma, strict=True):
            least = max(level, SIGMA_RANGE[0])
            if not level:
                done.append(estimate)
            elif done:
                work = self._colour(plane, least, positions, _resized(done[0], plane), dtype)
                work = replace(work, spectrum=self._spectrum(plane, estimate, work))
                done.append(self.refined_colour(plane, estimate, work))
            else:
                luma = self._luma(plane, least, positions, dtype)
                luma = replace(luma, spectrum=self._spectrum(plane, estimate, luma))
                luma, estimate = self._lowered(plane, estimate, luma, restored)
                done.append(self.refined(plane, estimate, luma))
        return done

    def _luma(
        self, plane: Tensor, sigma: float, positions: tuple[ClipPositions, ClipPositions], dtype: torch.dtype
    ) -> Refining:
        further = self.preset.second
        found = positions[further.matched_again].origins(plane.shape, further.stride, "matched", GRIDS)
        return Refining(found.unflatten(0, (GRIDS, -1)).roll(-1, 0), sigma, dtype)

    def _colour(
        self,
        plane: Tensor,
        sigma: float,
        positions: tuple[ClipPositions, ClipPositions],
        luma: Tensor,
        dtype: torch.dtype,
    ) -> RefiningColour:
        sampling = self.preset.second_colour
        found = positions[sampling.positions == "matched"].origins(plane.shape, *sampling)
        grids = found.unflatten(0, (sampling.grids, -1))
        return RefiningColour(grids, sigma, dtype, luma=luma, camera=sampling.positions == "camera")

    def _lowered(
        self,
        plane: Tensor,
        estimate: Tensor,
        work: Refining,
        restored: Callable[[float], Tensor],
    ) -> tuple[Refining, Tensor]:
        """Lower the sigma of white noise that was measured too high; `restored` makes a first estimate for
        it.
        """
        level = None if work.spectrum is None else lower_level(work.spectrum)
        if level is None:
            return work, estimate
        lower = replace(work, sigma=max(work.sigma * level**0.5, SIGMA_RANGE[0]), spectrum=None)
        tried = restored(lower.sigma)
        found = self._measured(plane, tried, lower)
        return (lower, tried) if may_be_white(found) else (work, estimate)

    def refined(self, plane: Tensor, estimate: Tensor, work: Refining) -> Tensor:
        """Return the last of the estimates of luma that are made in turn.

        The gains of Wiener's filter were fitted to white noise, and don't help against another; without them
        it needs all grids.
        """
        fitted = len(plane) >= LEAST_FRAMES and work.spectrum is None
        about = (work.sigma, len(plane), self.patch, self.device)
        factors = wiener_gains(self.quality, 0, *about) if fitted else None
        tracks = work.grids[: 1 if fitted else GRIDS].flatten(0, 1)[:, None]
        estimate = self._filtered(plane, estimate, tracks, work, estimate, factors)
        estimate = self.alike(plane, estimate, work)
        return self.finished(plane, estimate, work)

    def alike(self, plane: Tensor, estimate: Tensor, work: Refining) -> Tensor:
        """Return the last of the estimates of luma by non-local Bayes."""
        whitener = None if work.spectrum is None else inverse_covariance(work.spectrum)
        samples = _samples(self.preset.second.samples, len(plane))
        for stage, tracks in enumerate(self.alike_tracks(work, len(plane))):
            noise = Noise(work.sigma, None if self.white else estimate, whitener)
            shares = bayes_gains(self.quality, stage, work.sigma, self.device)
            estimate = nonlocal_bayes(
                plane, estimate, tracks, self.patch, noise, shares, samples, work.dtype, self.tracks
            )
        return estimate

    def finished(self, plane: Tensor, estimate: Tensor, work: Refining, luma: Tensor | None = None) -> Tensor:
        """Return the last estimate, corrected if the quality has that; with `luma` that of a colour
        difference.
        """
        if not self.preset.finished:
            return estimate
        network = finisher(LUMA if luma is None else COLOUR, work.dtype, self.device)
        return finish(network, plane, estimate, work.sigma, luma)

    def alike_tracks(self, work: Refining, frames: int) -> Tensor:
        """Return the tracks (E, S, T) of each estimate by non-local Bayes. Of a few frames there is a single
        one by as many grids, which averages its errors better.
        """
        second = self.preset.second
        count = second.estimates * second.grids
        if frames < IN_TURN_FROM:
            return work.grids[:count].flatten(0, 1)[None]
        grids = work.grids.roll(-1, 0).repeat(2, 1, 1)[:count]
        tracks: Tensor = grids.unflatten(0, (second.estimates, -1)).flatten(1, 2)
        return tracks

    def refined_colour(self, plane: Tensor, estimate: Tensor, work: RefiningColour) -> Tensor:
        """Return the second estimate of a colour difference, or the last of those that are made in turn.

        The gains were fitted to white noise, and help against other noise, too.
        """
        fitted = len(plane) >= LEAST_FRAMES
        about = (work.sigma, len(plane), self.patch, self.device)
        for stage, tracks in enumerate(work.tracks(in_turn=fitted and work.spectrum is None)):
            factors = wiener_gains(f"{self.quality} colour", stage, *about) if fitted else None
            estimate = self._filtered(plane, estimate, tracks, work, work.luma, factors)
        return self.finished(plane, estimate, work, work.luma)

    def _filtered(
        self,
        plane: Tensor,
        estimate: Tensor,
        tracks: Tensor,
        work: Refining,
        brightness: Tensor | None,
        factors: Gains | None,
    ) -> Tensor:
        return refine(
            plane,
            estimate,
            work.sigma,
            tracks,
            self._transform(work.dtype),
            None if self.white else brightness,
            max(1, self.tracks // tracks.shape[1]),
            work.spectrum,
            factors,
        )

    def _spectrum(self, plane: Tensor, estimate: Tensor, work: Refining) -> Tensor | None:
        """Return the spectrum of measured noise, None of white noise."""
        if self.white or len(plane) < FRAMES:
            return None
        spectrum = self._measured(plane, estimate, work)
        return None if is_white(spectrum) else spectrum

    def _measured(self, plane: Tensor, estimate: Tensor, work: Refining) -> Tensor:
        transform, groups = self._transform(work.dtype), work.grids.flatten(0, 1)
        return relative_spectrum(plane, estimate, work.sigma, groups, transform)

    def _transform(self, dtype: torch.dtype) -> Transform:
        """Return the transform of the second estimate, made once."""
        with self._lock:
            if dtype not in self._transforms:
                self._transforms[dtype] = Transform(self.patch, dtype, PackedLinear, self.device)
            return self._transforms[dtype]


def _samples(wanted: int, frames: int) -> int:
    """Return the patches of a group in every frame: more in short clips, and still more where the noise of
    patches that overlap can't be averaged along time.
    """
    return max(wanted, round(LEAST_SAMPLES * (1 + OVERLAPPING / frames) * GROUP / frames))


def _resized(luma: Tensor, plane: Tensor) -> Tensor:
    """Return luma (T, H, W) at the size of another plane."""
    if luma.shape == plane.shape:
        return luma
    return F.interpolate(luma[None], size=plane.shape[1:], mode="area")[0]
