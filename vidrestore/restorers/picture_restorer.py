"""Remove haze, rain, snow, blur and camera noise by networks that map pictures to pictures, such as
MB-TaylorFormer, from whole frames if memory allows, else in tiles.

A network takes single frames, or a frame and its neighbours (`restorers.base.PictureForm`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.clips import Bounds, reflected
from vidrestore.errors import CheckpointError, OptionError
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.options import RestoreOptions
from vidrestore.restorers.base import IMAGE_NETWORKS, Facts, PictureForm
from vidrestore.restorers.dehaze import RADIUS as HAZE_RADIUS
from vidrestore.restorers.dehaze import (
    Estimate,
    HazeNetworks,
    ResultCache,
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
from vidrestore.weights import Model, load_model
from vidrestore.working import steps

T = TypeVar("T")
FAMILY = "mb-taylorformer"  # family of the default weights
THICK_HAZE = "mb-taylorformer-t-dehaze"  # joined by default with the network that finds haze
DEFAULTS = IMAGE_NETWORKS | {"denoise": "mb-taylorformer-h-denoise"}  # for camera noise
OVERLAP = 32  # default of pixels that tiles share
# Frames of a clip with temporal smoothing. Longer clips restore fewer frames twice, but hold more in memory.
# Without smoothing no frame is restored twice, and on a CPU clips are as short as possible, because an
# interrupted run loses the clips in progress. On a GPU each clip gives GPU_CLIP frames, restored together.
CLIP, GPU_CLIP = 12, 24
ESTIMATES = 48  # estimates of haze that are cached for neighbouring clips
MAPS = 8  # maps of the widest convolution, at the peak of a network that doesn't state its memory
STRIPS = 48 << 20  # bytes of the maps that are processed in strips, for pictures of any size


class PreparedClip(NamedTuple):
    """A clip (T, 3, H, W) and how it is restored."""

    frames: Tensor
    source: Tensor  # the pictures that the network restores: those frames, or small ones on the device
    half: torch.dtype | None
    tile: tuple[int, int]
    tiles: int  # at once, if a picture has several
    # Pictures at once. One on a CPU; on a GPU, where small operations take as long as large ones, as many as
    # keep it busy.
    together: int
    keys: list[int]  # keys of the source's pictures, if haze is estimated
    undone: Callable[[float], None] | None = None  # see `RgbRestorer.frames`


class TiledNetwork:
    """A network that maps RGB pictures to pictures, on whole ones if memory allows, else on tiles.

    Attention is limited to a tile, which costs a little quality, so tiles are used only if memory is short or
    the user sets their size. Raises OptionError for tiles that the network can't take.
    """

    def __init__(self, model: Model, task: str, options: RestoreOptions, device: torch.device) -> None:
        self.network, self.form, self.device = model.network, PictureForm.of(model.network), device
        self.pixel_memory = self.form.pixel_memory or self.form.scale**2 * estimated_memory(model.network)
        self.budget, self.tile, self.most_tiles = memory_for(device), options.tile, MOST_TILES
        tasks = self.form.tasks
        # the index of the task, if the network has several
        self.tasks = [torch.tensor([tasks.index(task)], device=device)] if tasks else []
        if self.tile is not None and self.tile % self.form.multiple:
            raise OptionError(
                f"tile must be a multiple of {self.form.multiple} for {model.card.name}, got {self.tile}"
            )

    def tile_size(self, height: int, width: int, beside: int) -> tuple[int, int]:
        """Return (height, width) of the tiles of a picture if other data takes `beside` bytes."""
        room = max(self.budget - beside, self.budget // 4)
        pixels, multiple = room // self.pixel_memory, self.form.multiple
        return tile_sides(height, width, tile=self.tile, pixels=pixels, overlap=OVERLAP, multiple=multiple)

    def seen(self, at: int, count: int) -> list[int]:
        """Return the frames that restore one of a scene of `count`, reflected at its ends."""
        radius = self.form.frames // 2
        return [reflected(index, count) for index in range(at - radius, at + radius + 1)]

    def restored(self, clip: PreparedClip, places: Sequence[int]) -> Tensor:
        """Return some pictures (N, 3, H, W) of a clip's source restored, on the network's device."""
        source, half = clip.source, clip.half

        def work(tiles: Tensor) -> Tensor:
            pictures = tiles if self.form.frames > 1 else tiles[:, 0]
            with torch.autocast(self.device.type, half or torch.bfloat16, enabled=half is not None):
                tasks = (task.expand(len(pictures)) for task in self.tasks)
                restored: Tensor = self.network(pictures, *tasks)[:, None].float()
            return restored

        windows = torch.stack([pick(source, self.seen(at, len(source))) for at in places])
        sized, scale = padded(windows.to(self.device), self.form.multiple), self.form.scale
        whole = apply_tiled(work, sized, clip.tile, OVERLAP, scale, clip.tiles)
        height, width = (scale * side for side in source.shape[-2:])
        return whole[:, 0, :, :height, :width]


class PictureRestorer:
    """Restorer by any network that maps RGB pictures to pictures; see `restorers.base.RgbRestorer`.

    The parameters of some weights choose small pictures (see `restorers.dehaze`), from which tiles are then
    cut. Raises CheckpointError for weights of another family or task.
    """

    sees: Literal["rgb"] = "rgb"
    team = 1

    def __init__(self, task: str, options: RestoreOptions) -> None:
        device, preferred = torch_device(options.device), DEFAULTS.get(task, "")
        model = load_for(task, FAMILY, options.model, str(device), preferred, options.family)
        name, weights = model.card.name, model.card.sha256
        files: tuple[tuple[str, str], ...] = ()
        self.tiled = TiledNetwork(model, task, options, device)
        form = self.tiled.form
        if form.scale > 1 and task != "sr":
            raise CheckpointError(f"{name}: enlarges {form.scale} times, but {task} keeps the size; use sr")
        self.coarse_lines = coarse_lines(model.card.parameters, name)
        if isinstance(model.network, MBTaylorFormer) and form.haze and options.model is None:
            thick = load_model(THICK_HAZE, device=str(device))
            self.tiled.network = HazeNetworks(model.network, thick.network).eval()
            name += f"+{thick.card.name}"
            files = tuple((each.card.name, each.card.sha256) for each in (model, thick))
            weights = sha256((weights + thick.card.sha256).encode()).hexdigest()
        self.precision = options.precision
        self.estimates: ResultCache[Estimate] = ResultCache(ESTIMATES)
        # neighbours on either side that haze is averaged over, and that frames are mixed with
        self.averaged, self.smoothed = HAZE_RADIUS * form.haze, STEADY_RADIUS * options.steady
        self.on_gpu = device.type != "cpu"
        radius = form.frames // 2 + self.averaged + self.smoothed
        if self.on_gpu:
            clip = GPU_CLIP + 2 * radius
        else:
            clip = max(CLIP if self.smoothed or self.averaged else 1, 3 * radius)
        self.facts = Facts(
            name,
            weights,
            str(device),
            files=files,
            clip=clip,
            overlap=2 * radius,
            radius=radius,
            cached=not self.smoothed,
            scale=form.scale,
            parallel=1 if self.on_gpu else 0,
        )

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def sample(self) -> None:
        return None

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: fewer tiles or pictures."""
        before = self.tiled.most_tiles
        self.tiled.most_tiles = max(1, before // 2)
        return self.tiled.most_tiles < before

    def memory(self, height: int, width: int) -> int:
        rows, columns = self.tile_size(height, width)
        return self._beside(height, width) + self.tiled.pixel_memory * rows * columns

    def _beside(self, height: int, width: int) -> int:
        """Return the bytes in addition to the network's maps: RGB frames, given and restored, and strips."""
        restored = self.facts.scale**2 * (self.facts.clip if self.on_gpu else 1)
        return 4 * 3 * height * width * (self.facts.clip + restored + 3 + 2 * self.facts.radius) + STRIPS

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        """See `RgbRestorer.tile_size`; sides are multiples of the network's `multiple`."""
        size = self._coarse_size(height, width) or (height, width)
        return self.tiled.tile_size(*size, self._beside(height, width))

    def _coarse_size(self, height: int, width: int) -> tuple[int, int] | None:
        return coarse_size(height, width, self.coarse_lines, self.tiled.form.multiple)

    def frames(
        self,
        clip: Tensor,
        keep: Bounds,
        *,
        precision: str | None = None,
        undone: Callable[[float], None] | None = None,
    ) -> Iterator[Tensor]:
        """See `RgbRestorer.frames`."""
        prepared, near = self._prepared(clip, precision)._replace(undone=undone), dict[int, Tensor]()
        for first in steps(range(*keep, prepared.together)):
            kept = range(first, min(first + prepared.together, keep[1]))
            around = range(max(0, first - self.smoothed), min(len(clip), kept.stop + self.smoothed))
            fresh = [at for at in around if at not in near]
            near = {at: near[at] for at in around if at in near}
            for part in groups(fresh, prepared.together):
                near |= zip(part, self._restored(prepared, part), strict=True)
            for at in kept:
                beside = [near[other] for other in around if 0 < abs(other - at) <= self.smoothed]
                yield smooth(near[at], beside) if self.smoothed else near[at]

    def picture(self, window: Tensor, precision: str | None = None) -> Tensor:
        """Return the middle frame (3, H, W) of a scene (T, 3, H, W) restored."""
        return self._restored(self._prepared(window, precision), [len(window) // 2])[0]

    def detail_changed(self, window: Tensor) -> float:
        """Return the detail, in grey levels, changed in the middle frame of a scene (T, 3, H, W)."""
        prepared, middle = self._prepared(window, None), len(window) // 2
        with torch.inference_mode(), all_bits(self.tiled.device, prepared.half):
            restored = self.tiled.restored(prepared, [middle]).clamp(0, 1)
            return float(changed_detail(window[middle : middle + 1].to(restored.device), restored))

    def haze_level(self, picture: Tensor) -> float:
        """Return the amount of haze in a picture (3, H, W): the network's mean change in grey levels."""
        prepared = self._prepared(picture[None], None)
        with torch.inference_mode(), all_bits(self.tiled.device, prepared.half):
            (found,) = self._estimates(prepared, [0], [0])
            return 255 * float((found.restored - found.given).abs().mean())

    def _prepared(self, clip: Tensor, precision: str | None) -> PreparedClip:
        device, size = self.tiled.device, self._coarse_size(*clip.shape[-2:])
        source = downscale(clip.to(device), size) if size else clip
        tile = self.tile_size(*source.shape[-2:])
        tiles = min(self.tiled.most_tiles, tiles_for(device, tile, self.tiled.pixel_memory))
        whole = tile[0] >= source.shape[-2] and tile[1] >= source.shape[-1]
        return PreparedClip(
            clip,
            source,
            half_type(precision or self.precision, device),
            tile,
            tiles,
            min(tiles, GPU_CLIP) if self.on_gpu and whole else 1,
            keys_of(source) if self.averaged else [],
        )

    def _restored(self, clip: PreparedClip, places: Sequence[int]) -> list[Tensor]:
        """Return frames (3, H, W) of a clip restored."""
        with torch.inference_mode(), all_bits(self.tiled.device, clip.half):
            if self.averaged:
                return self._without_haze(clip, places)
            restored = self.tiled.restored(clip, places)
            if clip.source is not clip.frames:
                frames = pick(clip.frames, places).to(restored.device)
                restored = apply_guided_change(pick(clip.source, places), restored, frames)
        return list(restored.to(clip.frames.device))

    def _without_haze(self, clip: PreparedClip, places: Sequence[int]) -> list[Tensor]:
        """Return frames without haze, as much of it removed as from their neighbours."""
        count, averaged = len(clip.frames), self.averaged
        near = {
            at: [reflected(index, count) for index in range(at - averaged, at + averaged + 1)]
            for at in places
        }
        estimates: dict[int, Estimate] = {}
        for part in groups(sorted({index for several in near.values() for index in several}), clip.together):
            keys = [(*(clip.keys[seen] for seen in self.tiled.seen(at, count)), clip.half) for at in part]
            found = self.estimates.get(keys, partial(self._estimates, clip, part))
            estimates |= zip(part, found, strict=True)
        clear: list[Tensor] = []
        for part in groups(places, clip.together):
            windows = [[estimates[index] for index in near[at]] for at in part]
            frames = pick(clip.frames, part)
            clear += dehaze_smoothly(windows, frames.to(self.tiled.device)).to(frames.device)
        return clear

    def _estimates(self, clip: PreparedClip, places: Sequence[int], wanted: Sequence[int]) -> list[Estimate]:
        """Estimate the haze of those of `places` whose positions are `wanted`."""
        own = [places[position] for position in wanted]
        return estimates_of(pick(clip.source, own).to(self.tiled.device), self.tiled.restored(clip, own))


def pick(pictures: Tensor, places: Sequence[int]) -> Tensor:
    """Return some of (T, 3, H, W) pictures; unlike an index, the places aren't copied to a device."""
    return torch.stack([pictures[at] for at in places])


def groups(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, `size` at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


def estimated_memory(network: torch.nn.Module) -> int:
    """Return bytes per pixel of a network that doesn't state them: `MAPS` maps of its widest convolution."""
    channels = [part.shape[0] for part in network.parameters() if part.dim() == 4]
    return 4 * MAPS * max(channels, default=3)


def enlarger(options: RestoreOptions) -> PictureRestorer:
    """Return the restorer of `sr` by a network for single frames.

    Raises CheckpointError if it doesn't enlarge as much as is asked for.
    """
    restorer = PictureRestorer("sr", options)
    if restorer.facts.scale < options.scale:
        raise CheckpointError(
            f"{restorer.facts.name}: enlarges {restorer.facts.scale} times, less than `scale={options.scale}`"
        )
    return restorer


def picture_denoiser(options: RestoreOptions) -> PictureRestorer:
    """Return the restorer of `denoise` by a network on frames. Raises OptionError for others' options."""
    if options.sigma != "auto" or options.quality != "default" or not options.match:
        raise OptionError(
            f"{options.model} estimates noise itself; remove `sigma` and `quality`, and match=False"
        )
    return PictureRestorer("denoise", options)


dehazer = partial(PictureRestorer, "dehaze")
derainer = partial(PictureRestorer, "derain")
desnower = partial(PictureRestorer, "desnow")


# Reduce the flicker of networks that restore single pictures: each restored frame is mixed with its
# neighbours by a bilateral filter along time. Flicker changes an area by a few grey levels, motion by more.
# So a neighbour's pixel has the weight exp(-(d / SPREAD)^2 / 2), where d is the mean absolute difference of
# the two frames over all channels and a box around the pixel. Areas that move are hardly changed: they leave
# no ghosts, and motion need not be estimated.
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
