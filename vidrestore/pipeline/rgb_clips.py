"""From planned clips to restored frames through networks on RGB, at the video's size or larger.

Native planes to R'G'B' by the file's own matrix, range and chroma siting, through the network frame by frame,
and back. Only the clip's own frames are in floats, and one restored frame: what is restored waits in its own
samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.clips import Bounds
from vidrestore.colour import (
    grey_to_planes,
    grey_to_stored,
    matrix_of,
    planes_to_grey,
    rgb_to_yuv,
    yuv_to_rgb,
)
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame, PixelFormat, Scale, VideoInfo, enlarged_size
from vidrestore.options import LEAST_TILE
from vidrestore.pipeline.clip_restorer import ClipRestorer, EdgedClip, Piece, Restored, not_finite
from vidrestore.pipeline.plan import Clip, colour_planes
from vidrestore.pipeline.transfers import Stacks, as_arrays, floats
from vidrestore.restorers.base import RgbRestorer
from vidrestore.restorers.devices import CPU_MEMORY, memory_for

FETCHED = 256 << 20  # bytes of a plane's samples that wait on a device to be brought back together
# bytes of RGB that a device converts together, or one over the share of its memory: a step takes as long for
# few samples as for many
CONVERTED, CONVERTED_SHARE = 512 << 20, 16


class Sources(NamedTuple):
    """Frames, and their planes' stored samples on the device, if that is not the CPU."""

    frames: list[Frame]
    there: Stacks | None

    def part(self, places: slice) -> Sources:
        there = None if self.there is None else tuple(stack[places] for stack in self.there)
        return Sources(self.frames[places], there)


class Converted(NamedTuple):
    """Restored frames as planes (T, h, w), and the sum of their samples, which is NaN or infinite if one of
    them is.
    """

    sources: Sources
    planes: tuple[Tensor, ...]
    total: Tensor


class RgbClipRestorer(ClipRestorer):
    """A ClipRestorer for networks on RGB.

    Clips share frames so that each frame is restored by a clip that has all its neighbours: nothing is faded.
    `strength` mixes with the source's own planes, or, if frames are enlarged, with the source enlarged
    bicubically. Alpha passes through, or is enlarged so. `scale` is the output's, by default the network's; a
    larger result is downscaled, antialiased.
    """

    def __init__(
        self,
        restorer: RgbRestorer,
        video: VideoInfo,
        scale: Scale | None = None,
        *,
        strength: float = 1.0,
        threads: int = 1,
    ) -> None:
        super().__init__(restorer.facts, video.format, threads)
        self.restorer = restorer
        self.strength = strength
        self.video = video
        self.scale = restorer.facts.scale if scale is None else scale
        self.converted = max(CONVERTED, memory_for(self.device) // CONVERTED_SHARE)

    def clips_at_once(self, frame: Frame) -> int:
        """Return how many clips there is memory for, and teams of threads."""
        if self.facts.parallel:
            return self.facts.parallel
        height, width = frame.planes[0].shape
        return max(
            1, min(self.threads // self.restorer.team, CPU_MEMORY // self.restorer.memory(height, width))
        )

    def pieces(self, edged: EdgedClip) -> tuple[Piece, Piece]:
        """Restore the frames of a clip that see all their neighbours in it, or the end of their scene; the
        second piece is empty.
        """
        clip, keep = edged.clip, self._kept(edged)
        first, stop = (clip.first + place for place in keep)
        stacks = edged.sent.arrived() if edged.sent else None
        return ((first, stop), self._restored_frames(clip, edged.frames, stacks, keep)), ((stop, stop), [])

    def _kept(self, edged: EdgedClip) -> Bounds:
        """Return the places [first, stop) in a clip of the frames that see all their neighbours in it, or the
        end of their scene.
        """
        clip, radius = edged.clip, self.facts.radius
        return (
            radius if edged.before > clip.first else 0,
            len(edged.frames) - (radius if edged.after < clip.stop else 0),
        )

    def halve_batch(self) -> bool:
        return self.restorer.halve_batch()

    def too_large(self, clip: Clip) -> VidRestoreError:
        """Return the error for a clip that a GPU has too little memory for, with smaller tiles as the way
        out.
        """
        height, width = self.video.height, self.video.width
        rows, columns = self.restorer.tile_size(height, width)
        tile = max(rows, columns)
        fitting = memory_for(self.device) * rows * columns // self.restorer.memory(height, width)
        smaller = max(LEAST_TILE, min(tile // 2, math.isqrt(fitting)) // LEAST_TILE * LEAST_TILE)
        way_out = f"give `tile={smaller}`" if tile > LEAST_TILE else "use `device=cpu`"
        return VidRestoreError(
            f"frames {clip.first} to {clip.stop - 1}: {self.facts.name} finds too little memory on "
            f"{self.facts.device} for tiles of {tile} pixels; {way_out}"
        )

    def _restored_frames(
        self, clip: Clip, frames: list[Frame], stacks: Stacks | None, keep: Bounds
    ) -> list[Restored]:
        """Restore the frames `keep`; again in fp32 if half precision can't hold them."""
        sources = Sources(frames, stacks)
        native = self._native if self.device.type == "cpu" else self._brought_back
        rgb = self._all_rgb(sources)
        restored = native(sources, rgb, keep, None)
        if restored is None:
            self.count_retry()
            restored = native(sources, rgb, keep, "fp32")
        if restored is None:
            raise not_finite(clip, self.facts.name)
        return restored

    def _all_rgb(self, sources: Sources) -> Tensor:
        """Return (T, 3, H, W) of all frames."""
        count, step = len(sources.frames), self._at_once((self.video.height, self.video.width))
        return torch.cat([self._rgb(sources.part(slice(at, at + step))) for at in range(0, count, step)])

    def _at_once(self, size: tuple[int, int]) -> int:
        """Return how many frames of a size to convert together: one on a CPU, whose caches are small."""
        return 1 if self.device.type == "cpu" else max(1, self.converted // (4 * 3 * math.prod(size)))

    def _rgb(self, sources: Sources) -> Tensor:
        """Return (T, 3, H, W) on the network's device: all colour is converted there."""
        return yuv_to_rgb(self._own_planes(sources), self.pixels, self.video.colour, self.video.height)

    def _own_planes(self, sources: Sources) -> tuple[Tensor, ...]:
        """Return planes (T, h, w) on the 0-255 scale."""
        if sources.there is not None:
            return floats(sources.there, self.pixels.unit)
        [frame] = sources.frames
        planes = planes_to_grey(frame.planes[: colour_planes(self.pixels)], self.pixels)
        return tuple(plane[None] for plane in planes)

    def _native(
        self, sources: Sources, rgb: Tensor, keep: Bounds, precision: str | None
    ) -> list[Restored] | None:
        """Return restored frames with samples of their own; None as soon as one holds NaN or infinity."""
        native = []
        for own, planes, total in self._converted(sources, rgb, keep, precision):
            if not torch.isfinite(total):
                return None
            [frame] = own.frames
            native.append(
                self._with_alpha(frame, grey_to_planes([plane[0] for plane in planes], self.pixels))
            )
        return native

    def _brought_back(
        self, sources: Sources, rgb: Tensor, keep: Bounds, precision: str | None
    ) -> list[Restored] | None:
        """Return frames as `_native` does, from a device: one copy per plane for as many frames as `FETCHED`
        bytes hold.
        """
        native: list[Restored] = []
        stored = (
            Converted(own, grey_to_stored(planes, self.pixels), total)
            for own, planes, total in self._converted(sources, rgb, keep, precision)
        )
        size = enlarged_size(self.video.height, self.video.width, self.scale)
        each = math.prod(size) * (1 if self.pixels.depth <= 8 else 2) * self._at_once(size)
        while several := list(islice(stored, max(1, FETCHED // each))):
            if not torch.isfinite(torch.stack([part.total for part in several])).all():
                return None
            planes = zip(*(part.planes for part in several), strict=True)
            stacks = as_arrays(tuple(torch.cat(parts) for parts in planes), self.pixels.depth)
            frames = [frame for part in several for frame in part.sources.frames]
            for frame, *samples in zip(frames, *stacks, strict=True):
                native.append(self._with_alpha(frame, samples))
        return native

    def _converted(
        self, sources: Sources, rgb: Tensor, keep: Bounds, precision: str | None
    ) -> Iterator[Converted]:
        """Yield restored frames, several at once on a device, as planes on the 0-255 scale."""
        pictures = self.restorer.frames(rgb, keep, precision=precision)
        at, size = keep[0], enlarged_size(self.video.height, self.video.width, self.scale)
        while several := list(islice(pictures, self._at_once(size))):
            own, restored = slice(at, at + len(several)), torch.stack(several)
            given = sources.part(own)
            if restored.shape == rgb[own].shape:
                self.count_changes(rgb[own], restored)
            yield Converted(given, self._planes(given, rgb[own], restored), restored.sum())
            at = own.stop
        assert at == keep[1], "as many frames as asked for"

    def _with_alpha(self, frame: Frame, planes: Sequence[NDArray[Any]]) -> Restored:
        more = frame.planes[colour_planes(self.pixels) :]
        alpha = [enlarged_samples(plane, self.pixels, self.scale) for plane in more]
        return Restored(replace(frame, planes=(*planes, *alpha)))

    def _planes(self, sources: Sources, rgb: Tensor, pictures: Tensor) -> tuple[Tensor, ...]:
        """Return restored pictures as planes on the 0-255 scale, mixed with their sources."""
        scale = self.scale
        if scale != self.facts.scale:
            pictures = shrunk(pictures, enlarged_size(rgb.shape[-2], rgb.shape[-1], scale))
        if self.strength < 1 and scale > 1:
            pictures = enlarged(rgb, scale).lerp(pictures, self.strength)
        # without a tagged matrix players guess by the height: the output's
        height = pictures.shape[-2]
        planes = rgb_to_yuv(pictures, self.pixels, self.video.colour, height)
        if self.strength < 1 and scale == 1:
            pairs = zip(self._own_planes(sources), planes, strict=True)
            planes = tuple(before.lerp(after, self.strength) for before, after in pairs)
        return planes


def enlarged(pictures: Tensor, scale: Scale) -> Tensor:
    """Enlarge (N, C, H, W) to (N, C, scale * H, scale * W), bicubic."""
    size = enlarged_size(pictures.shape[-2], pictures.shape[-1], scale)
    return F.interpolate(pictures, size, mode="bicubic", align_corners=False)


def shrunk(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    """Downscale (N, C, H, W) to a smaller `size`, bicubic, antialiased."""
    return F.interpolate(pictures, size, mode="bicubic", align_corners=False, antialias=True)


def enlarged_samples(plane: NDArray[Any], pixels: PixelFormat, scale: Scale) -> NDArray[Any]:
    """Return a plane of stored samples enlarged by bicubic interpolation; at scale 1 the plane itself."""
    if scale == 1:
        return plane
    (grey,) = planes_to_grey([plane], pixels)
    return grey_to_planes(list(enlarged(grey[None, None], scale)[0]), pixels)[0]


def enlarged_frame(frame: Frame, video: VideoInfo, scale: Scale) -> Frame:
    """Return a frame with all its planes enlarged, to compare with; at scale 1 the frame itself."""
    if scale == 1:
        return frame
    pixels, planes = video.format, list(frame.planes)
    height, width = enlarged_size(planes[0].shape[0], planes[0].shape[1], scale)
    small, large = (matrix_of(pixels, video.colour, lines) for lines in (video.height, height))
    if small != large:  # the matrix that players assume for that height if none is tagged
        planes[:3] = _other_matrix(planes[:3], video, large)
    sizes = [pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)]
    if scale.denominator == 1:  # chroma of odd sizes reaches beyond the picture
        larger = [
            enlarged_samples(plane, pixels, scale)[:h, :w]
            for plane, (h, w) in zip(planes, sizes, strict=True)
        ]
    else:
        grey = zip(planes_to_grey(planes, pixels), sizes, strict=True)
        sized = [F.interpolate(plane[None, None], size, mode="bicubic")[0, 0] for plane, size in grey]
        larger = list(grey_to_planes(sized, pixels))
    return replace(frame, planes=tuple(larger))


def _other_matrix(planes: list[NDArray[Any]], video: VideoInfo, matrix: int) -> tuple[NDArray[Any], ...]:
    """Return Y, U, V of the same colours by another matrix."""
    rgb = yuv_to_rgb(planes_to_grey(planes, video.format), video.format, video.colour, video.height)
    return grey_to_planes(
        rgb_to_yuv(rgb, video.format, replace(video.colour, matrix=matrix), video.height), video.format
    )
