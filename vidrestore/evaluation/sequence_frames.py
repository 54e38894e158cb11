"""Read the frames of a test sequence, from pictures or from a video."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from vidrestore.colour import planes_to_grey, yuv_to_rgb
from vidrestore.datasets import FrameSequence
from vidrestore.errors import DatasetError, MediaError
from vidrestore.media.pictures import read_rgb
from vidrestore.media.reader import VideoReader

GREY = (0.299, 0.587, 0.114)  # weights of R, G, B: BT.601, as OpenCV and MATLAB use


def clean_frames(sequence: FrameSequence, most: int | None = None) -> Iterator[Tensor]:
    """Yield the clean frames in order, at most `most` of them, each (3, H, W) uint8 R, G, B. Raises
    MediaError.
    """
    frames = video_frames(str(sequence.clean[0])) if sequence.video else picture_frames(sequence.clean)
    return islice(frames, most)


def picture_frames(paths: Iterable[Path]) -> Iterator[Tensor]:
    """Yield pictures one by one, (3, H, W) uint8 R, G, B."""
    for path in paths:
        yield torch.from_numpy(read_rgb(path))


def video_frames(path: str) -> Iterator[Tensor]:
    """Yield the frames of a video converted by its own matrix and range, (3, H, W) uint8 R, G, B.

    Raises MediaError as soon as decoding finds damage.
    """
    with VideoReader(path) as reader:
        video = reader.info.video
        for frame in reader.frames():
            _check_undamaged(path, reader)
            planes = planes_to_grey(
                frame.planes[: video.format.plane_count - video.format.alpha], video.format
            )
            yield eight_bits(yuv_to_rgb(planes, video.format, video.colour, video.height))
        _check_undamaged(path, reader)


def _check_undamaged(path: str, reader: VideoReader) -> None:
    if reader.damage.found:
        raise MediaError(
            f"{path}: {reader.damage.summary()}; metrics would be of other pictures; fetch the file again"
        )


def eight_bits(picture: Tensor) -> Tensor:
    """Clamp and round samples in [0, 1] to uint8."""
    return picture.mul(255).round_().clamp_(0, 255).to(torch.uint8)


def grey(picture: Tensor) -> Tensor:
    """Return the gray levels of a picture: (3, H, W) uint8 -> (H, W) uint8."""
    red, green, blue = picture.double().unbind()
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue).round_().to(torch.uint8)


def downscaled(frames: Tensor, lines: int) -> Tensor:
    """Downscale by area means: (T, H, W) uint8 -> (T, lines, floor(W * lines / H)) uint8."""
    height, width = frames.shape[1:]
    down, right = area_matrix(height, lines), area_matrix(width, width * lines // height)
    small: Tensor = (down @ frames.double() @ right.mT).round_()
    return small.to(torch.uint8)


def area_matrix(length: int, count: int) -> Tensor:
    """Return the (count, length) float64 matrix that averages `length` samples over `count` intervals."""
    edges = torch.arange(count + 1, dtype=torch.float64) * length / count
    samples = torch.arange(length, dtype=torch.float64)
    overlap = torch.minimum(edges[1:, None], samples + 1) - torch.maximum(edges[:-1, None], samples)
    return overlap.clamp_(min=0) * count / length


def stacked(frames: Iterator[Tensor], where: str) -> Tensor:
    """Stack frames to one tensor (T, ...). Raises DatasetError if there are none or their sizes differ."""
    stack = list(frames)
    if not stack:
        raise DatasetError(f"{where}: has no frame that can be decoded; unpack the release again")
    for number, frame in enumerate(stack):
        if frame.shape != stack[0].shape:
            sizes = (f"{shape[-1]}x{shape[-2]}" for shape in (frame.shape, stack[0].shape))
            raise DatasetError(
                f"{where}: frame {number} is {' but the first '.join(sizes)}; unpack the release again"
            )
    return torch.stack(stack)
