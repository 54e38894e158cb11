"""From planned clips to restored frames through networks that see RGB, at the film's size or larger.

Native planes to R'G'B' by the file's own matrix, range and chroma siting, through the network frame by frame,
and back. Only the clip's own frames are in floats, and one restored frame: what is restored waits in its own
samples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.clips import Bounds
from vidrestore.colour import grey_to_planes, matrix_of, planes_to_grey, rgb_to_yuv, yuv_to_rgb
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame, PixelFormat
from vidrestore.media.probe import VideoInfo
from vidrestore.options import LEAST_TILE
from vidrestore.pipeline.clip_restorer import ClipRestorer, EdgedClip, Piece, Restored, not_finite
from vidrestore.pipeline.plan import Clip, colour_planes
from vidrestore.restorers.base import RgbRestorer
from vidrestore.restorers.devices import CPU_MEMORY


class RgbClipRestorer(ClipRestorer):
    """A ClipRestorer for networks on RGB.

    Clips share frames so that each frame is restored by a clip that has all its neighbours: nothing is faded.
    `strength` mixes with the source's own planes, or, where frames are enlarged, with the source enlarged
    bicubically. Alpha passes through, or is enlarged so.
    """

    def __init__(
        self, restorer: RgbRestorer, video: VideoInfo, *, strength: float = 1.0, threads: int = 1
    ) -> None:
        super().__init__(restorer.facts, video.format, threads)
        self.restorer = restorer
        self.strength = strength
        self.video = video

    def clips_at_once(self, frame: Frame) -> int:
        """As many as there is memory for, and teams of threads."""
        if self.facts.parallel:
            return self.facts.parallel
        height, width = frame.planes[0].shape
        return max(
            1, min(self.threads // self.restorer.team, CPU_MEMORY // self.restorer.memory(height, width))
        )

    def restore(self, edged: EdgedClip) -> tuple[Piece, Piece]:
        """Restore the frames of a clip that see all their neighbours in it, or the end of their scene; the
        second piece is empty.
        """
        clip, frames, before, after = edged
        first = clip.first + (self.facts.radius if before > clip.first else 0)
        stop = clip.stop - (self.facts.radius if after < clip.stop else 0)
        keep = first - clip.first, stop - clip.first
        try:
            with torch.inference_mode():
                restored = self._restored_frames(clip, frames, keep)
        except torch.OutOfMemoryError as error:
            raise self.too_large(clip) from error
        return ((first, stop), restored), ((stop, stop), [])

    def too_large(self, clip: Clip) -> VidRestoreError:
        """The error for a clip that a GPU has too little memory for, with smaller tiles as the way out."""
        tile = max(self.restorer.tile_size(self.video.height, self.video.width))
        way_out = (
            f"give --tile {max(LEAST_TILE, tile // 128 * 64)}" if tile > LEAST_TILE else "use --device cpu"
        )
        return VidRestoreError(
            f"frames {clip.first} to {clip.stop - 1}: {self.facts.name} finds too little memory on "
            f"{self.facts.device} for tiles of "
            f"{tile} pixels; {way_out}"
        )

    def _restored_frames(self, clip: Clip, frames: list[Frame], keep: Bounds) -> list[Restored]:
        """The frames asked for; again in full precision where half of it does not hold them."""
        rgb = torch.stack([self._rgb(frame) for frame in frames])
        restored = self._native(frames, rgb, keep, None)
        if restored is None:
            self.count_retry()
            restored = self._native(frames, rgb, keep, "fp32")
        if restored is None:
            raise not_finite(clip, self.facts.name)
        return restored

    def _rgb(self, frame: Frame) -> Tensor:
        """(3, H, W) on the network's device, where all colour is converted."""
        return yuv_to_rgb(self._own_planes(frame), self.pixels, self.video.colour, self.video.height)

    def _own_planes(self, frame: Frame) -> list[Tensor]:
        planes = planes_to_grey(frame.planes[: colour_planes(self.pixels)], self.pixels)
        return [plane.to(self.facts.device) for plane in planes]

    def _native(
        self, frames: list[Frame], rgb: Tensor, keep: Bounds, precision: str | None
    ) -> list[Restored] | None:
        """Restored frames with samples of their own; None as soon as one has values that are no numbers."""
        native = []
        for at, picture in zip(
            range(*keep), self.restorer.frames(rgb, keep, precision=precision), strict=True
        ):
            if not torch.isfinite(picture.sum()):
                return None
            native.append(Restored(self._frame(frames[at], rgb[at], picture)))
        return native

    def _frame(self, frame: Frame, source: Tensor, picture: Tensor) -> Frame:
        scale, count = self.facts.scale, colour_planes(self.pixels)
        if self.strength < 1 and scale > 1:
            picture = enlarged(source, scale).lerp(picture, self.strength)
        # where no matrix is tagged players guess by the height: the output's
        height = scale * self.video.height
        planes = rgb_to_yuv(picture, self.pixels, self.video.colour, height)
        if self.strength < 1 and scale == 1:
            pairs = zip(self._own_planes(frame), planes, strict=True)
            planes = tuple(before.lerp(after, self.strength) for before, after in pairs)
        alpha = [enlarged_samples(plane, self.pixels, scale) for plane in frame.planes[count:]]
        return replace(frame, planes=(*grey_to_planes(planes, self.pixels), *alpha))


def enlarged(picture: Tensor, scale: int) -> Tensor:
    """(C, H, W) to (C, scale * H, scale * W), bicubic."""
    return F.interpolate(picture[None], scale_factor=float(scale), mode="bicubic", align_corners=False)[0]


def enlarged_samples(plane: NDArray[Any], pixels: PixelFormat, scale: int) -> NDArray[Any]:
    """A plane of stored samples, larger by bicubic interpolation; at scale 1 the plane itself."""
    if scale == 1:
        return plane
    (grey,) = planes_to_grey([plane], pixels)
    return grey_to_planes(list(enlarged(grey[None], scale)), pixels)[0]


def enlarged_frame(frame: Frame, video: VideoInfo, scale: int) -> Frame:
    """A frame with all its planes larger, as a picture to compare with; at scale 1 the frame itself."""
    if scale == 1:
        return frame
    pixels, planes = video.format, list(frame.planes)
    height, width = (scale * side for side in planes[0].shape)
    small, large = (matrix_of(pixels, video.colour, lines) for lines in (video.height, height))
    if small != large:  # what players assume of so many lines, where no matrix is tagged
        planes[:3] = _other_matrix(planes[:3], video, large)
    sizes = [pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)]
    enlarged = (enlarged_samples(plane, pixels, scale) for plane in planes)
    return replace(
        frame, planes=tuple(plane[:high, :wide] for plane, (high, wide) in zip(enlarged, sizes, strict=True))
    )


def _other_matrix(planes: list[NDArray[Any]], video: VideoInfo, matrix: int) -> tuple[NDArray[Any], ...]:
    """Y, U, V of the same colours by another matrix."""
    rgb = yuv_to_rgb(planes_to_grey(planes, video.format), video.format, video.colour, video.height)
    return grey_to_planes(
        rgb_to_yuv(rgb, video.format, replace(video.colour, matrix=matrix), video.height), video.format
    )
