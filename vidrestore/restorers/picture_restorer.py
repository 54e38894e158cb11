"""Remove haze, rain, snow, blur and camera noise by networks that map pictures to pictures, such as
MB-TaylorFormer, from whole frames if memory allows, else in tiles.

A network takes single frames, or a frame and its neighbours (`restorers.base.PictureForm`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.errors import CheckpointError, OptionError
from vidrestore.pixels.clips import Bounds, reflected_window
from vidrestore.pixels.tiling import apply_tiled, padded, tile_sides
from vidrestore.restorers.base import Facts, PictureForm
from vidrestore.restorers.devices import (
    MOST_TILES,
    all_bits,
    half_type,
    memory_for,
    tiles_for,
    torch_device,
)
from vidrestore.restorers.result_cache import ResultCache
from vidrestore.restorers.task_weights import load_for
from vidrestore.settings.options import DENOISE, ENLARGE, RestoreOptions
from vidrestore.settings.tasks import TASKS
from vidrestore.weights import Model, card_of
from vidrestore.working import steps

T = TypeVar("T")
FAMILY = "mb-taylorformer"  # family of the default weights
CAMERA_DENOISER = "mb-taylorformer-h-denoise"
# removes a photograph's loss of coding before other tasks
LOSS_DENOISER = TASKS["denoise"].weights[0]
OVERLAP = 32  # default of pixels that tiles share
# Frames that a clip gives on a GPU, restored together. On a CPU clips are as short as possible, because an
# interrupted run loses the clips in progress.
GPU_CLIP = 24
# maps of the widest convolution, at the peak of a network that doesn't state its memory
MAPS = 8
# bytes of the maps that are processed in strips, for pictures of any size
STRIPS = 48 << 20


class PreparedClip(NamedTuple):
    """A clip (T, 3, H, W) and how it is restored."""

    frames: Tensor
    # the pictures that the network restores: those frames, or smaller ones
    source: Tensor
    half: torch.dtype | None
    tile: tuple[int, int]
    tiles: int  # at once, if a picture has several
    # Pictures at once. One on a CPU; on a GPU, where small operations take as long as large ones, as many as
    # keep it busy.
    batch: int
    first: int  # number of its first frame in the video
    cache: ResultCache  # of the video
    # results that several of its frames need, by the numbers of frames
    results: dict[int, Any]


class PictureRestorer:
    """Restorer by any network that maps RGB pictures to pictures; see `restorers.base.RgbRestorer`.

    Whole pictures go through the network if memory allows, since attention is limited to a tile, which costs
    a little quality. `model`: weights that are loaded already, else those of the options or the task's
    default. Raises CheckpointError for weights of another family or task, OptionError for tiles that the
    network can't take.
    """

    input_kind: Literal["rgb"] = "rgb"
    # neighbours on either side that a frame depends on, apart from those that the network takes
    radius = 0
    shares = (0, 1)  # of the time: results that several frames need, and the frames

    def __init__(
        self, task: str, options: RestoreOptions, model: Model | None = None
    ) -> None:
        self.device = device = torch_device(options.device)
        model = model or default_model(task, options)
        self.network, self.form = model.network, PictureForm.of(model.network)
        form = self.form
        self.pixel_memory = form.pixel_memory or form.scale**2 * estimated_memory(
            model.network
        )
        self.budget, self.tile, self.most_tiles = (
            memory_for(device),
            options.tile,
            MOST_TILES,
        )
        # the index of the task, if the network has several
        self.tasks = (
            [torch.tensor([form.tasks.index(task)], device=device)]
            if form.tasks
            else []
        )
        if self.tile is not None and self.tile % form.multiple:
            raise OptionError(
                f"tile must be a multiple of {form.multiple} for {model.card.name}, got {self.tile}"
            )
        if form.scale > 1 and task not in ENLARGE:
            raise CheckpointError(
                f"{model.card.name}: enlarges {form.scale} times, but {task} keeps the size; use sr"
            )
        if task not in DENOISE and getattr(self.network, "takes_sigma", False):
            raise OptionError(
                f"{options.model} takes the noise's level, so it is for denoise alone"
            )
        self.precision = options.precision
        self.on_gpu = device.type != "cpu"
        radius = form.frames // 2 + self.radius
        self.facts = Facts(
            model.card.name,
            model.card.sha256,
            str(device),
            clip=GPU_CLIP + 2 * radius if self.on_gpu else max(1, 3 * radius),
            overlap=2 * radius,
            radius=radius,
            cached=True,
            scale=form.scale,
        )

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: fewer tiles or pictures."""
        before = self.most_tiles
        self.most_tiles = max(1, before // 2)
        return self.most_tiles < before

    def memory(self, height: int, width: int) -> int:
        return self._other_bytes(height, width) + self.part_memory(height, width)

    def part_memory(self, height: int, width: int) -> int:
        rows, columns = self.tile_size(height, width)
        return self.pixel_memory * rows * columns

    def _other_bytes(self, height: int, width: int) -> int:
        """Return the bytes in addition to the network's maps: RGB frames, given and restored, and strips."""
        restored = self.facts.scale**2 * (self.facts.clip if self.on_gpu else 1)
        frames = self.facts.clip + restored + 3 + 2 * self.facts.radius
        return 4 * 3 * height * width * frames + STRIPS

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        """See `RgbRestorer.tile_size`; sides are multiples of the network's `multiple`."""
        room = max(self.budget - self._other_bytes(height, width), self.budget // 4)
        pixels, multiple = room // self.pixel_memory, self.form.multiple
        size = self._source_size(height, width)
        return tile_sides(
            *size, tile=self.tile, pixels=pixels, overlap=OVERLAP, multiple=multiple
        )

    def _source_size(self, height: int, width: int) -> tuple[int, int]:
        """Return (height, width) of the pictures that the network restores, for frames of this size."""
        return height, width

    def frames(
        self,
        clip: Tensor,
        keep: Bounds,
        *,
        precision: str | None = None,
        first: int = 0,
        cache: ResultCache | None = None,
    ) -> Iterator[Tensor]:
        """See `RgbRestorer.frames`."""
        setup = self._setup(
            clip, precision, first, ResultCache() if cache is None else cache
        )
        batches = [
            range(start, min(start + setup.batch, keep[1]))
            for start in range(*keep, setup.batch)
        ]

        def restored(indices: Sequence[int]) -> Tensor:
            with torch.inference_mode(), all_bits(self.device, setup.half):
                return self._restored(setup, indices).to(clip.device)

        stages = steps(("shared", "restored"), self.shares)
        next(stages)
        with torch.inference_mode(), all_bits(self.device, setup.half):
            setup.results.update(self._shared_results(setup, range(*keep)))
        next(stages)
        for frames in dealt(restored, batches):
            yield from frames

    def network_output(self, window: Tensor) -> Tensor:
        """Return the network's output (1, C, h, w) for the middle frame of a scene (T, 3, H, W)."""
        setup = self._setup(window, None, 0, ResultCache())
        with torch.inference_mode(), all_bits(self.device, setup.half):
            return self.network_results(setup, [len(window) // 2])

    def _setup(
        self, clip: Tensor, precision: str | None, first: int, cache: ResultCache
    ) -> PreparedClip:
        source = self._source(clip)
        tile = self.tile_size(*clip.shape[-2:])
        tiles = min(self.most_tiles, tiles_for(self.device, tile, self.pixel_memory))
        is_whole = tile[0] >= source.shape[-2] and tile[1] >= source.shape[-1]
        half = half_type(precision or self.precision, self.device)
        batch = min(tiles, GPU_CLIP) if self.on_gpu and is_whole else 1
        return PreparedClip(clip, source, half, tile, tiles, batch, first, cache, {})

    def _source(self, clip: Tensor) -> Tensor:
        """Return the pictures (T, 3, h, w) that the network restores."""
        return clip

    def _shared_results(
        self, clip: PreparedClip, indices: Sequence[int]
    ) -> dict[int, Any]:
        """Return the results that several of some frames need, computed once, by the numbers of frames."""
        return {}

    def _restored(self, clip: PreparedClip, indices: Sequence[int]) -> Tensor:
        """Return some frames (N, 3, H, W) of a clip restored."""
        return self.network_results(clip, indices)

    def window(self, index: int, count: int) -> list[int]:
        """Return the frames that restore one of a scene of `count`, reflected at its ends."""
        return reflected_window(index, self.form.frames // 2, count)

    def network_results(self, clip: PreparedClip, indices: Sequence[int]) -> Tensor:
        """Return the network's results for some of a clip's source pictures, (N, 3, H, W), on its device."""
        source, half = clip.source, clip.half

        def work(tiles: Tensor) -> Tensor:
            pictures = tiles if self.form.frames > 1 else tiles[:, 0]
            with torch.autocast(
                self.device.type, half or torch.bfloat16, enabled=half is not None
            ):
                tasks = (task.expand(len(pictures)) for task in self.tasks)
                restored: Tensor = self.network(pictures, *tasks)[:, None].float()
            return restored

        windows = torch.stack(
            [pick(source, self.window(index, len(source))) for index in indices]
        )
        sized, scale = (
            padded(windows.to(self.device), self.form.multiple),
            self.form.scale,
        )
        outputs = apply_tiled(work, sized, clip.tile, OVERLAP, scale, clip.tiles)
        height, width = (scale * side for side in source.shape[-2:])
        return outputs[:, 0, :, :height, :width]

    def cached(
        self,
        clip: PreparedClip,
        indices: Iterable[int],
        compute: Callable[[PreparedClip, Sequence[int]], Iterable[T]],
        room: int,
    ) -> dict[int, T]:
        """Return results for frames of a clip, of which `room` are cached for the clips after it. `compute`
        returns those of some frames.
        """

        def results(missing: list[int]) -> Iterator[T]:
            batches = [
                missing[start : start + clip.batch]
                for start in range(0, len(missing), clip.batch)
            ]
            return chain.from_iterable(dealt(partial(compute, clip), batches))

        # the same frame, seen with other neighbours, has another result
        keys = {}
        for index in sorted(set(indices)):
            window = self.window(index, len(clip.frames))
            keys[index] = clip.half, *(clip.first + number for number in window)
        return clip.cache.get(keys, results, room)


def facts_with_loss(facts: Facts, files: Sequence[tuple[str, str]]) -> Facts:
    """Return the facts of a restorer before which a photograph's loss of coding is removed; `files` are the
    names and checksums of its own weights.
    """
    denoiser = card_of(LOSS_DENOISER)
    files = (*files, (denoiser.name, denoiser.sha256))
    checksums = "".join(checksum for _, checksum in files)
    weights = sha256(checksums.encode()).hexdigest()
    return replace(facts, weights=weights, files=files, takes_loss=True)


def default_model(task: str, options: RestoreOptions) -> Model:
    """Return the weights that the options name, else the task's default. Raises CheckpointError."""
    default = CAMERA_DENOISER if task == "denoise" else TASKS[task].weights[0]
    device = str(torch_device(options.device))
    return load_for(task, FAMILY, options.model or default, device, options.family)


def pick(pictures: Tensor, indices: Sequence[int]) -> Tensor:
    """Return some of (T, 3, H, W) pictures; unlike an index, the places aren't copied to a device."""
    return torch.stack([pictures[index] for index in indices])


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
    """Return the restorer of `denoise` by a network on frames. Raises OptionError for options of others."""
    restorer = PictureRestorer("denoise", options)
    network: Any = restorer.network
    takes_sigma = getattr(network, "takes_sigma", False)
    # a network that takes sigma needs a number, any other none
    is_wrong = takes_sigma == (options.sigma == "auto")
    if is_wrong or options.quality != "default" or not options.match:
        advice = (
            "needs the noise's level as `sigma`"
            if takes_sigma
            else "estimates noise itself, without `sigma`"
        )
        raise OptionError(
            f"{options.model} {advice}; `quality` and match=False are for DUST alone"
        )
    if takes_sigma:
        network.sigma = options.sigma
    return restorer
