"""Denoise planes with DUST: cut a clip into groups of patches that follow the motion, restore them by the
network, and put them together again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import CheckpointError
from vidrestore.models.bayes_gains import gains as bayes_gains
from vidrestore.models.dust import Dust, FastDust
from vidrestore.models.dust_sigma import SIGMA_RANGE, LevelDust, SigmaDust
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.finisher import COLOUR, LUMA, finish, finisher
from vidrestore.models.grouping import CHUNK, GROUP, restore_patches
from vidrestore.models.halfsize import DETAIL_NOISE, detailed_groups, double, halve
from vidrestore.models.noise_spectrum import FRAMES, is_white, lower_level, may_be_white, relative_spectrum
from vidrestore.models.nonlocal_bayes import CHUNK as TRACKS
from vidrestore.models.nonlocal_bayes import Noise, inverse_covariance, nonlocal_bayes
from vidrestore.models.patch_positions import ClipPositions, Following
from vidrestore.models.second_gains import LEAST_FRAMES, Gains, gains, gains_name
from vidrestore.models.second_pass import Transform, in_pairs, refine
from vidrestore.restorers.base import DENOISER, Facts, Sample
from vidrestore.restorers.devices import batch_for, torch_device, uses_bf16
from vidrestore.weights import load_model

if TYPE_CHECKING:
    from vidrestore.options import RestoreOptions

BF16_FROM = 4.0  # sigma; for less noise, rounding to the 8 bits of bf16 would be visible
SAMPLE_SIGMA = 20.0  # for measuring the speed of the network alone
GROUPS_PER_PROCESSOR = 4.0  # of a GPU: each group is 80 rows of a matrix product
TRACKS_PER_PROCESSOR = 16.0  # of a GPU, in the second estimate
PATCHES = 80  # in a group of the second estimate, about
GROUP_COPIES = 8  # of a group of similar patches in memory, temporary ones included
LEVELS_KEPT = 8  # networks prepared for one sigma: enough for the planes of a few scenes


class Sampling(NamedTuple):
    """The positions of groups of patches."""

    stride: int  # in sixteenths of a patch
    positions: Following
    grids: int = 1


class Further(NamedTuple):
    """Further estimates of luma, each guided by the one before: one by `second_pass`, then some by
    `nonlocal_bayes`, from `grids` of groups each, of as many patches in every frame as `samples`. Patches may
    be matched once more, in the first estimate.
    """

    stride: int
    estimates: int
    grids: int = 1
    samples: int = 3
    matched_again: bool = False


@dataclass(frozen=True)
class Preset:
    """A quality: the groups of patches that are restored.

    `first` are those of the first plane. Smaller planes, of colour differences, are restored at half their
    size with `half`, and where they are detailed also at full size with `colour`. `second` are those of
    further estimates of the first plane. `second_colour` are the groups for a second estimate of the others;
    each of their grids makes an estimate of white noise, guided by that of the one before. `finished`: the
    last estimates are corrected by small networks.
    """

    first: Sampling
    half: Sampling
    colour: Sampling
    second: Further
    second_colour: Sampling
    finished: bool = True


GRIDS = 4  # one, and those shifted by half a stride; the first estimate has the grid that isn't shifted
IN_TURN_FROM = 3  # frames: with fewer, an estimate is not good enough to guide another
LEAST_SAMPLES = 3  # patches of a group in each of GROUP frames, as many in all in short clips
OVERLAPPING = 1.5  # patches more, as a share, of single frames
COLOUR_DETAIL = 1.085  # the mean over the 5000 pixels of a group hardly ever reaches this by noise alone
PRESETS = {
    "fast": Preset(
        first=Sampling(16, "matched"),
        half=Sampling(16, "camera"),
        colour=Sampling(16, "camera"),
        second=Further(16, estimates=1),
        second_colour=Sampling(16, "camera"),
        finished=False,
    ),
    "default": Preset(
        first=Sampling(16, "matched"),
        half=Sampling(14, "camera"),
        colour=Sampling(16, "camera"),
        second=Further(16, estimates=2, samples=4, matched_again=True),
        second_colour=Sampling(16, "camera", 2),
    ),
    "best": Preset(
        first=Sampling(8, "matched"),
        half=Sampling(5, "matched"),
        colour=Sampling(8, "camera"),
        second=Further(8, estimates=3, grids=2, samples=4, matched_again=True),
        second_colour=Sampling(8, "matched", 2),
    ),
}


@dataclass(frozen=True)
class Refining:
    """How a plane is estimated again: groups (G, S, T) of some grids, the noise, and its spectrum (N,), None
    of white noise.
    """

    grids: Tensor
    sigma: float
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


class DenoiseRestorer:
    """Restorer of the task `denoise`; see `restorers.base.PlaneRestorer`.

    Raises CheckpointError for weights of another family, or of a network that takes measurements instead of
    pixels.
    """

    sees: Literal["planes"] = "planes"

    def __init__(self, options: RestoreOptions) -> None:
        self.device = torch_device(options.device)
        self.quality, self.preset = options.quality, PRESETS[options.quality]
        model = load_model(options.model or DENOISER, device=str(self.device))
        self.network = _denoiser(model.network, model.card.name)
        self.patch = self.network.config.patch
        self.match = options.match
        self.white = not isinstance(options.sigma, str)  # noise given by its sigma alone
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
        each = GROUP_COPIES * 4 * PATCHES * self.patch**2
        self.tracks = batch_for(self.device, TRACKS, each, TRACKS_PER_PROCESSOR)
        self._levels: OrderedDict[tuple[float, torch.dtype], LevelDust | FastDust] = OrderedDict()
        self._transforms: dict[torch.dtype, Transform] = {}
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
        done = self._second(planes, first, sigma, positions, precision)
        return tuple(
            restored[:, : plane.shape[1], : plane.shape[2]].to(plane.device)
            for restored, plane in zip(done, clip, strict=True)
        )

    def _second(
        self,
        planes: list[Tensor],
        first: list[Tensor],
        sigma: tuple[float, ...],
        positions: ClipPositions,
        precision: str,
    ) -> list[Tensor]:
        """Return second estimates of planes; patches are matched in the first estimates."""
        again = ClipPositions(first[0], self.patch, follow=self.match, before=positions)
        dtype = torch.bfloat16 if uses_bf16(precision, self.device) else torch.float32
        done = []
        for index, (plane, estimate, level) in enumerate(zip(planes, first, sigma, strict=True)):
            if not level:
                done.append(estimate)
            elif index:
                luma = _resized(done[0], plane)
                done.append(self._colour_again(plane, estimate, level, (positions, again), luma, dtype))
            else:
                restored = partial(self.restored_plane, plane, positions=positions, precision=precision)
                done.append(self._luma_again(plane, estimate, level, (positions, again), restored, dtype))
        return done

    def _luma_again(
        self,
        plane: Tensor,
        estimate: Tensor,
        sigma: float,
        positions: tuple[ClipPositions, ClipPositions],
        restored: Callable[[float], Tensor],
        dtype: torch.dtype,
    ) -> Tensor:
        further = self.preset.second
        found = positions[further.matched_again].origins(plane.shape, further.stride, "matched", GRIDS)
        grids = found.unflatten(0, (GRIDS, -1)).roll(-1, 0)
        work = Refining(grids, max(sigma, SIGMA_RANGE[0]))
        work = replace(work, spectrum=self._spectrum(plane, estimate, work, dtype))
        work, estimate = self._lowered(plane, estimate, work, restored, dtype)
        return self.refined(plane, estimate, work, dtype)

    def _colour_again(
        self,
        plane: Tensor,
        estimate: Tensor,
        sigma: float,
        positions: tuple[ClipPositions, ClipPositions],
        luma: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        sampling = self.preset.second_colour
        found = positions[sampling.positions == "matched"]
        work = RefiningColour(
            found.origins(plane.shape, *sampling).unflatten(0, (sampling.grids, -1)),
            max(sigma, SIGMA_RANGE[0]),
            luma=luma,
            camera=sampling.positions == "camera",
        )
        work = replace(work, spectrum=self._spectrum(plane, estimate, work, dtype))
        return self.refined_colour(plane, estimate, work, dtype)

    def _lowered(
        self,
        plane: Tensor,
        estimate: Tensor,
        work: Refining,
        restored: Callable[[float], Tensor],
        dtype: torch.dtype,
    ) -> tuple[Refining, Tensor]:
        """Lower the sigma of white noise that was measured too high; `restored` makes a first estimate for
        it.
        """
        level = None if work.spectrum is None else lower_level(work.spectrum)
        if level is None:
            return work, estimate
        lower = replace(work, sigma=max(work.sigma * level**0.5, SIGMA_RANGE[0]), spectrum=None)
        tried = restored(lower.sigma)
        found = self._measured(plane, tried, lower, dtype)
        return (lower, tried) if may_be_white(found) else (work, estimate)

    def refined(self, plane: Tensor, estimate: Tensor, work: Refining, dtype: torch.dtype) -> Tensor:
        """Return the last of the estimates of luma that are made in turn.

        The gains of Wiener's filter were fitted to white noise, and don't help against another; without them
        it needs all grids.
        """
        fitted = len(plane) >= LEAST_FRAMES and work.spectrum is None
        about = (work.sigma, len(plane), self.patch, self.device)
        factors = gains(gains_name(self.quality, colour=False), 0, *about) if fitted else None
        tracks = work.grids[: 1 if fitted else GRIDS].flatten(0, 1)[:, None]
        estimate = self._filtered(plane, estimate, tracks, work, estimate, factors, dtype)
        estimate = self.alike(plane, estimate, work, dtype)
        return self.finished(plane, estimate, work.sigma, None, dtype)

    def alike(self, plane: Tensor, estimate: Tensor, work: Refining, dtype: torch.dtype) -> Tensor:
        """Return the last of the estimates of luma by non-local Bayes."""
        whitener = None if work.spectrum is None else inverse_covariance(work.spectrum)
        samples = _samples(self.preset.second.samples, len(plane))
        for stage, tracks in enumerate(self.alike_tracks(work, len(plane))):
            noise = Noise(work.sigma, None if self.white else estimate, whitener)
            shares = bayes_gains(self.quality, stage, work.sigma, self.device)
            estimate = nonlocal_bayes(
                plane, estimate, tracks, self.patch, noise, shares, samples, dtype, self.tracks
            )
        return estimate

    def finished(
        self, plane: Tensor, estimate: Tensor, sigma: float, luma: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        """Return the last estimate, corrected if the quality has that; with `luma` that of a colour
        difference.
        """
        if not self.preset.finished:
            return estimate
        network = finisher(LUMA if luma is None else COLOUR, dtype, self.device)
        return finish(network, plane, estimate, sigma, luma)

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

    def refined_colour(
        self, plane: Tensor, estimate: Tensor, work: RefiningColour, dtype: torch.dtype
    ) -> Tensor:
        """Return the second estimate of a colour difference, or the last of those that are made in turn.

        The gains were fitted to white noise, and help against other noise, too.
        """
        fitted = len(plane) >= LEAST_FRAMES
        name = gains_name(self.quality, colour=True)
        about = (work.sigma, len(plane), self.patch, self.device)
        for stage, tracks in enumerate(work.tracks(in_turn=fitted and work.spectrum is None)):
            factors = gains(name, stage, *about) if fitted else None
            estimate = self._filtered(plane, estimate, tracks, work, work.luma, factors, dtype)
        return self.finished(plane, estimate, work.sigma, work.luma, dtype)

    def _filtered(
        self,
        plane: Tensor,
        estimate: Tensor,
        tracks: Tensor,
        work: Refining,
        brightness: Tensor | None,
        factors: Gains | None,
        dtype: torch.dtype,
    ) -> Tensor:
        return refine(
            plane,
            estimate,
            work.sigma,
            tracks,
            self._transform(dtype),
            None if self.white else brightness,
            max(1, self.tracks // tracks.shape[1]),
            work.spectrum,
            factors,
        )

    def _spectrum(self, plane: Tensor, estimate: Tensor, work: Refining, dtype: torch.dtype) -> Tensor | None:
        """Return the spectrum of measured noise, None of white noise."""
        if self.white or len(plane) < FRAMES:
            return None
        spectrum = self._measured(plane, estimate, work, dtype)
        return None if is_white(spectrum) else spectrum

    def _measured(self, plane: Tensor, estimate: Tensor, work: Refining, dtype: torch.dtype) -> Tensor:
        transform, groups = self._transform(dtype), work.grids.flatten(0, 1)
        return relative_spectrum(plane, estimate, work.sigma, groups, transform)

    def _transform(self, dtype: torch.dtype) -> Transform:
        """Return the transform of the second estimate, made once."""
        with self._lock:
            if dtype not in self._transforms:
                self._transforms[dtype] = Transform(self.patch, dtype, PackedLinear, self.device)
            return self._transforms[dtype]

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
        before = self.batch, self.tracks
        self.batch, self.tracks = max(1, self.batch // 2), max(1, self.tracks // 2)
        return (self.batch, self.tracks) < before

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


def _samples(wanted: int, frames: int) -> int:
    """Return the patches of a group in every frame: more in short clips, and still more where the noise of
    patches that overlap can't be averaged along time.
    """
    return max(wanted, round(LEAST_SAMPLES * (1 + OVERLAPPING / frames) * GROUP / frames))


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


def _resized(luma: Tensor, plane: Tensor) -> Tensor:
    """Return luma (T, H, W) at the size of another plane."""
    if luma.shape == plane.shape:
        return luma
    return F.interpolate(luma[None], size=plane.shape[1:], mode="area")[0]


def _at_least(plane: Tensor, side: int) -> Tensor:
    """Extend a plane that is smaller than a patch by repeating its last row and column."""
    below, right = max(0, side - plane.shape[1]), max(0, side - plane.shape[2])
    return F.pad(plane[:, None], (0, right, 0, below), mode="replicate")[:, 0] if below or right else plane
