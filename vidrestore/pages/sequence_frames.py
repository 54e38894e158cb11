"""Read the frames of a video as R, G, B, and convert pictures: to gray, to 8 bits, to another size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.errors import MediaError
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pixels.colour import planes_to_grey, yuv_to_rgb
from vidrestore.pixels.frames import Frame, VideoInfo

GREY = (0.299, 0.587, 0.114)  # weights of R, G, B: BT.601, as OpenCV and MATLAB use


def video_frames(path: str) -> Iterator[Tensor]:
    """Yield the frames of `timed_frames` without their times."""
    return (picture for _, picture in timed_frames(path))


def timed_frames(path: str) -> Iterator[tuple[float, Tensor]]:
    """Yield the frames of a video: seconds, and R, G, B (3, H, W) uint8 by the video's own matrix and range.
    Raises MediaError as soon as decoding finds damage.
    """
    with VideoReader(path) as reader:
        video = reader.info.video
        for frame in reader.frames():
            _check_undamaged(path, reader)
            yield float(frame.pts * video.time_base), picture_of(frame, video)
        _check_undamaged(path, reader)


def picture_of(frame: Frame, video: VideoInfo) -> Tensor:
    """Return a decoded frame as (3, H, W) uint8 R, G, B, without alpha."""
    planes = planes_to_grey(
        frame.planes[: video.format.plane_count - video.format.alpha], video.format
    )
    return eight_bits(yuv_to_rgb(planes, video.format, video.colour, video.height))


def _check_undamaged(path: str, reader: VideoReader) -> None:
    if reader.damage.found:
        raise MediaError(
            f"{path}: {reader.damage.sentence}; metrics would be of other pictures; fetch the file again"
        )


def eight_bits(picture: Tensor) -> Tensor:
    """Clamp and round samples in [0, 1] to uint8."""
    return picture.mul(255).round_().clamp_(0, 255).to(torch.uint8)


def channels_last(picture: Tensor) -> NDArray[Any]:
    """Return a (C, H, W) picture as a contiguous (H, W, C) array."""
    array: NDArray[Any] = np.ascontiguousarray(picture.movedim(0, -1).numpy())
    return array


def grey(picture: Tensor) -> Tensor:
    """Return the gray levels of a picture: (3, H, W) uint8 -> (H, W) uint8."""
    red, green, blue = picture.double().unbind()
    levels = GREY[0] * red + GREY[1] * green + GREY[2] * blue
    return levels.round_().to(torch.uint8)


def area_matrix(length: int, count: int) -> Tensor:
    """Return the (count, length) float64 matrix that averages `length` samples over `count` intervals."""
    # how much of each sample lies in each interval
    edges = torch.arange(count + 1, dtype=torch.float64) * length / count
    samples = torch.arange(length, dtype=torch.float64)
    starts = torch.maximum(edges[:-1, None], samples)
    overlap = torch.minimum(edges[1:, None], samples + 1) - starts
    return overlap.clamp_(min=0) * count / length
