"""Remove haze, rain, snow, blur and camera noise by networks that map pictures to pictures, such as
MB-TaylorFormer, from whole frames if memory allows, else in tiles.

A network takes single frames, or a frame and its neighbours (`restorers.base.PictureForm`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from vidrestore.clips import Bounds, reflected
from vidrestore.errors import CheckpointError, OptionError
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.restorers.base import IMAGE_NETWORKS, Facts, PictureForm
from vidrestore.restorers.dehaze import RADIUS as HAZE_RADIUS
from vidrestore.restorers.dehaze import (
    ComputedOnce,
    Estimate,
    HazeNetworks,
    apply_guided_change,
    changed_detail,
    coarse_lines,
    coarse_size,
    dehaze_smoothly,
    downscale,
    estimates_of,
    keys_of,
)
from vidrestore.restorers.devices import (
    MOST_TILES,
    all_bits,
    half_type,
    memory_for,
    tiles_for,
    torch_device,
)
from vidrestore.restorers.task_weights import load_for
from vidrestore.tiling import apply_tiled, padded, tile_sides
from vidrestore.weights import load_model

if TYPE_CHECKING:
    from vidrestore.options import RestoreOptions

import torch.nn.functional as F

T = TypeVar("T")
FAMILY = "mb-taylorformer"  # of the default weights
THICK_HAZE = "mb-taylorformer-t-dehaze"  # joined by default with the network that finds haze
DEFAULTS = IMAGE_NETWORKS | {"denoise": "mb-taylorformer-h-denoise"}  # for camera noise
OVERLAP = 32  # default of pixels that tiles share
# Frames of a clip with temporal smoothing. Longer clips restore fewer frames twice, but hold more in memory.
# Without smoothing no frame is restored twice, and on a CPU clips are as short as possible, because an
# interrupted run loses the clips in progress. On a GPU each clip gives GPU_CLIP frames, restored together.
CLIP, GPU_CLIP = 12, 24
ESTIMATES = 48  # of haze, kept for neighbouring clips
MAPS = 8  # of the widest convolution, at the peak of a network that doesn't state its memory
STRIPS = 48 << 20  # bytes of the maps that are processed in strips, for pictures of any size


class Given(NamedTuple):
    """A clip (T, 3, H, W) and how it is restored."""

    clip: Tensor
    source: Tensor  # the pictures that the network restores: those of the clip, or small ones on the device
    keys: list[tuple[int, ...]]  # of these pictures, if haze is estimated
    half: torch.dtype | None
    tile: tuple[int, int]
    tiles: int  # at once, if a picture has several
    # Pictures at once. One on a CPU; on a GPU, where small operations take as long as large ones, as many as
    # keep it busy. One for a compiled network, so that it is compiled for one shape.
    together: int


class PictureRestorer:
    """Restorer by any network that maps RGB pictures to pictures; see `restorers.base.RgbRestorer`.

    A network may see a whole tile, and a frame in tiles then comes out a little worse, so tiles are used only
    if memory is short or the user sets their size. The parameters of some weights choose small pictures (see
    `restorers.dehaze`), from which tiles are then cut. Raises CheckpointError for weights of another
    family or task, OptionError for tiles that the network can't take.
    """

    sees: Literal["rgb"] = "rgb"
    team = 1

    def __init__(self, task: str, options: RestoreOptions) -> None:
        self.device = torch_device(options.device)
        preferred = DEFAULTS.get(task, "")
        model = load_for(task, FAMILY, options.model, str(self.device), preferred, options.family)
        self.network, self.form = model.network, PictureForm.of(model.network)
        name, weights = model.card.name, model.card.sha256
        if isinstance(model.network, MBTaylorFormer) and self.form.haze and options.model is None:
            thick = load_model(THICK_HAZE, device=str(self.device))
            self.network = HazeNetworks(model.network, thick.network).eval()
            name += f"+{thick.card.name}"
            weights = sha256((weights + thick.card.sha256).encode()).hexdigest()
        self.scale = self.form.scale
        if self.scale > 1 and task != "sr":
            raise CheckpointError(
                f"{model.card.name}: enlarges {self.scale} times, but {task} keeps the size; use sr"
            )
        self.pixel_memory = self.form.pixel_memory or self.scale**2 * estimated_memory(self.network)
        tasks = self.form.tasks
        # the index of the task, if the network has several
        self.tasks = [torch.tensor([tasks.index(task)], device=self.device)] if tasks else []
        self.coarse_lines = coarse_lines(model.card.parameters, model.card.name)
        self.budget = memory_for(self.device)
        self.precision = options.precision
        self.estimates: ComputedOnce[Estimate] = ComputedOnce(ESTIMATES)
        self.seen = self.form.frames // 2  # neighbours on either side that the network takes
        # neighbours on either side that haze is averaged over
        self.averaged = HAZE_RADIUS if self.form.haze else 0
        self.smoothed = STEADY_RADIUS if options.steady else 0
        radius = self.seen + self.averaged + self.smoothed
        self.on_gpu = self.device.type != "cpu"
        self.facts = Facts(
            name,
            weights,
            str(self.device),
            clip=self._clip(radius),
            overlap=2 * radius,
            radius=radius,
            cached=not self.smoothed,
            scale=self.scale,
            parallel=1 if self.on_gpu else 0,
        )
        self.tile = options.tile
        self.most_tiles = MOST_TILES  # at once
        if self.tile is not None and self.tile % self.form.multiple:
            raise OptionError(
                f"tile must be a multiple of {self.form.multiple} for {self.facts.name}, got {self.tile}"
            )

    def _clip(self, radius: int) -> int:
        if self.on_gpu:
            return GPU_CLIP + 2 * radius
        return max(CLIP, 3 * radius) if self.smoothed or self.averaged else max(1, 3 * radius)

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def sample(self) -> None:
        return None

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: fewer tiles or pictures."""
        self.most_tiles, before = max(1, self.most_tiles // 2), self.most_tiles
        return self.most_tiles < before

    def memory(self, height: int, width: int) -> int:
        rows, columns = self.tile_size(height, width)
        return self._beside(height, width) + self.pixel_memory * rows * columns

    def _beside(self, height: int, width: int) -> int:
        """Return the bytes in addition to the network's maps: RGB frames, given and restored, and strips."""
        restored = self.scale**2 * (self.facts.clip if self.on_gpu else 1)
        return 4 * 3 * height * width * (self.facts.clip + restored + 3 + 2 * self.facts.radius) + STRIPS

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        """See `RgbRestorer.tile_size`; sides are multiples of the network's `multiple`."""
        room = max(self.budget - self._beside(height, width), self.budget // 4)
        multiple = self.form.multiple
        return tile_sides(
            *(coarse_size(height, width, self.coarse_lines, multiple) or (height, width)),
            tile=self.tile,
            pixels=room // self.pixel_memory,
            overlap=OVERLAP,
            multiple=multiple,
        )

    def frames(self, clip: Tensor, keep: Bounds, *, precision: str | None = None) -> Iterator[Tensor]:
        """See `RgbRestorer.frames`."""
        given, near = self._given(clip, precision), dict[int, Tensor]()
        for first in range(*keep, given.together):
            kept = range(first, min(first + given.together, keep[1]))
            around = range(max(0, first - self.smoothed), min(len(clip), kept.stop + self.smoothed))
            fresh = [at for at in around if at not in near]
            near = {at: near[at] for at in around if at in near}
            for part in groups(fresh, given.together):
                near |= zip(part, self._restored(given, part), strict=True)
            for at in kept:
                beside = [near[other] for other in around if 0 < abs(other - at) <= self.smoothed]
                yield smooth(near[at], beside) if self.smoothed else near[at]

    def picture(self, window: Tensor, precision: str | None = None) -> Tensor:
        """Return the middle frame (3, H, W) of a scene (T, 3, H, W) restored."""
        return self._restored(self._given(window, precision), [len(window) // 2])[0]

    def detail_changed(self, window: Tensor) -> float:
        """Return the detail that the network alone changes in the middle frame of a scene (T, 3, H, W), in
        grey levels.
        """
        given, middle = self._given(window, None), len(window) // 2
        with torch.inference_mode(), all_bits(self.device, given.half):
            restored = self._by_network(given, [middle]).clamp(0, 1)
            frame = window[middle : middle + 1].to(self.device)
            return float(changed_detail(frame, restored))

    def haze_level(self, picture: Tensor) -> float:
        """Return the amount of haze in a picture (3, H, W): the network's mean change in grey levels."""
        given = self._given(picture[None], None)
        with torch.inference_mode(), all_bits(self.device, given.half):
            (found,) = self._estimates(given, [0], [0])
            return 255 * float((found.restored - found.given).abs().mean())

    def _given(self, clip: Tensor, precision: str | None) -> Given:
        height, width = clip.shape[-2:]
        size = coarse_size(height, width, self.coarse_lines, self.form.multiple)
        source = downscale(clip.to(self.device), size) if size else clip
        tile = self.tile_size(*source.shape[-2:])
        tiles = min(self.most_tiles, tiles_for(self.device, tile, self.pixel_memory))
        whole = tile[0] >= source.shape[-2] and tile[1] >= source.shape[-1]
        return Given(
            clip,
            source,
            keys_of(source) if self.form.haze else [],
            half_type(precision or self.precision, self.device),
            tile,
            tiles,
            min(tiles, GPU_CLIP) if self.on_gpu and whole else 1,
        )

    def _restored(self, given: Given, places: Sequence[int]) -> list[Tensor]:
        """Return frames (3, H, W) of a clip restored."""
        clip, source = given.clip, given.source
        with torch.inference_mode(), all_bits(self.device, given.half):
            if self.form.haze:
                return self._without_haze(given, places)
            restored = self._by_network(given, places)
            if source is not clip:
                frames = pick(clip, places).to(self.device)
                restored = apply_guided_change(pick(source, places), restored, frames)
        return list(restored.to(clip.device))

    def _without_haze(self, given: Given, places: Sequence[int]) -> list[Tensor]:
        """Return frames without haze, as much of it removed as from their neighbours."""
        clip, averaged = given.clip, self.averaged
        near = {
            at: [reflected(index, len(clip)) for index in range(at - averaged, at + averaged + 1)]
            for at in places
        }
        estimates: dict[int, Estimate] = {}
        for part in groups(sorted({index for several in near.values() for index in several}), given.together):
            keys = [(*(given.keys[seen] for seen in self._seen(at, len(clip))), given.half) for at in part]
            found = self.estimates.get(keys, partial(self._estimates, given, part))
            estimates |= zip(part, found, strict=True)
        clear: list[Tensor] = []
        for part in groups(places, given.together):
            windows = [[estimates[index] for index in near[at]] for at in part]
            clear += dehaze_smoothly(windows, pick(clip, part).to(self.device)).to(clip.device)
        return clear

    def _estimates(self, given: Given, places: Sequence[int], wanted: Sequence[int]) -> list[Estimate]:
        """Estimate the haze of those of `places` whose positions are `wanted`."""
        own = [places[position] for position in wanted]
        small = pick(given.source, own).to(self.device)
        return estimates_of(small, self._by_network(given, own))

    def _seen(self, at: int, count: int) -> list[int]:
        """Return the frames of a scene of `count` that the network takes to restore one; beyond its ends the
        scene is reflected.
        """
        return [reflected(index, count) for index in range(at - self.seen, at + self.seen + 1)]

    def _by_network(self, given: Given, places: Sequence[int]) -> Tensor:
        """Return pictures (N, 3, H, W) by the network, on its device."""
        network, source, half = self.network, given.source, given.half

        def work(tiles: Tensor) -> Tensor:
            pictures = tiles if self.seen else tiles[:, 0]
            with torch.autocast(self.device.type, half or torch.bfloat16, enabled=half is not None):
                tasks = (task.expand(len(pictures)) for task in self.tasks)
                restored: Tensor = network(pictures, *tasks)[:, None].float()
            return restored

        windows = torch.stack([pick(source, self._seen(at, len(source))) for at in places])
        sized = padded(windows.to(self.device), self.form.multiple)
        whole = apply_tiled(work, sized, given.tile, OVERLAP, self.scale, given.tiles)
        height, width = (self.scale * side for side in source.shape[-2:])
        return whole[:, 0, :, :height, :width]


def pick(pictures: Tensor, places: Sequence[int]) -> Tensor:
    """Return some of (T, 3, H, W) pictures; unlike an index, the places aren't copied to a device."""
    return torch.stack([pictures[at] for at in places])


def groups(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, `size` at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


def estimated_memory(network: torch.nn.Module) -> int:
    """Return bytes per pixel at the peak of a network that doesn't state them: `MAPS` maps of its widest
    convolution.
    """
    channels = [part.shape[0] for part in network.parameters() if part.dim() == 4]
    return 4 * MAPS * max(channels, default=3)


def enlarger(options: RestoreOptions) -> PictureRestorer:
    """Return the restorer of `sr` by a network for single frames.

    Raises CheckpointError if it doesn't enlarge as much as is asked for.
    """
    restorer = PictureRestorer("sr", options)
    if restorer.scale < options.scale:
        raise CheckpointError(
            f"{restorer.facts.name}: enlarges {restorer.scale} times, less than `scale={options.scale}`"
        )
    return restorer


def picture_denoiser(options: RestoreOptions) -> PictureRestorer:
    """Return the restorer of `denoise` by a network that sees whole frames. Raises OptionError for options of
    others.
    """
    if options.sigma != "auto" or options.quality != "default" or not options.match:
        raise OptionError(
            f"{options.model} estimates noise itself; remove `sigma` and `quality`, and match=False"
        )
    return PictureRestorer("denoise", options)


dehazer = partial(PictureRestorer, "dehaze")
derainer = partial(PictureRestorer, "derain")
desnower = partial(PictureRestorer, "desnow")
deblurrer = partial(PictureRestorer, "deblur")


# Less flicker of networks that restore single pictures: each restored frame is mixed with its neighbours by a
# bilateral filter along time. Flicker changes an area by a few grey levels, motion by more. So a neighbour's
# pixel has the weight exp(-(d / SPREAD)^2 / 2), where d is the mean absolute difference of the two frames
# over all channels and a box around the pixel. Areas that move are hardly changed: they leave no ghosts, and
# motion need not be estimated.
STEADY_RADIUS = 1  # frames on either side
SPREAD = 4 / 255  # mean difference, for samples in [0, 1]
BOX = 9  # side of the box in pixels


def smooth(frame: Tensor, neighbours: Sequence[Tensor]) -> Tensor:
    """Return a restored frame (C, H, W) mixed with restored neighbours of the same size; RGB in [0, 1]."""
    total, weights = frame.clone(), torch.ones_like(frame[:1])
    for other in neighbours:
        weight = _agreement(frame, other)
        total.addcmul_(weight, other)
        weights += weight
    return total.div_(weights)


def _agreement(frame: Tensor, other: Tensor) -> Tensor:
    """Return the weight (1, H, W) of a neighbour in (0, 1]."""
    apart = (frame - other).abs_().mean(0, keepdim=True)
    around = F.avg_pool2d(apart[None], BOX, stride=1, padding=BOX // 2, count_include_pad=False)[0]
    return around.div_(SPREAD).square_().mul_(-0.5).exp_()
