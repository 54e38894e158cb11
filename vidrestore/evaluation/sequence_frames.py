"""Frames of test sequences, from pictures or from a video."""

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

GREY = (0.299, 0.587, 0.114)  # of R, G, B: BT.601, as OpenCV and MATLAB make pictures gray


def clean_frames(sequence: FrameSequence, most: int | None = None) -> Iterator[Tensor]:
    """Yield the first `most` clean frames in order, each (3, H, W) uint8 R, G, B. Raises MediaError."""
    frames = video_frames(str(sequence.clean[0])) if sequence.video else picture_frames(sequence.clean)
    return islice(frames, most)


def picture_frames(paths: Iterable[Path]) -> Iterator[Tensor]:
    """Pictures one by one, (3, H, W) uint8."""
    for path in paths:
        yield torch.from_numpy(read_rgb(path))


def video_frames(path: str) -> Iterator[Tensor]:
    """Frames of a video by its own matrix and range, (3, H, W) uint8. Raises MediaError as soon as it shows
    that the video is damaged.
    """
    with VideoReader(path) as reader:
        video = reader.info.video
        for frame in reader.frames():
            _check_whole(path, reader)
            planes = planes_to_grey(
                frame.planes[: video.format.plane_count - video.format.alpha], video.format
            )
            yield eight_bits(yuv_to_rgb(planes, video.format, video.colour, video.height))
        _check_whole(path, reader)


def _check_whole(path: str, reader: VideoReader) -> None:
    if reader.damage.found:
        raise MediaError(
            f"{path}: {reader.damage.summary()}; figures would be of another video, so fetch it again"
        )


def eight_bits(picture: Tensor) -> Tensor:
    """Samples in [0, 1] as 8 bits hold them: clamped and rounded, uint8."""
    return picture.mul(255).round_().clamp_(0, 255).to(torch.uint8)


def grey(picture: Tensor) -> Tensor:
    """(3, H, W) uint8 -> (H, W) uint8."""
    red, green, blue = picture.double().unbind()
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue).round_().to(torch.uint8)


def shrunk(frames: Tensor, lines: int) -> Tensor:
    """(T, H, W) uint8 -> (T, lines, W lines / H rounded down) uint8: each sample the mean of the area that it
    covers.
    """
    height, width = frames.shape[1:]
    down, right = area_matrix(height, lines), area_matrix(width, width * lines // height)
    small: Tensor = (down @ frames.double() @ right.mT).round_()
    return small.to(torch.uint8)


def area_matrix(length: int, count: int) -> Tensor:
    """(count, length) float64: the share that each of `length` samples has in each of `count` equal stretches
    of them.
    """
    edges = torch.arange(count + 1, dtype=torch.float64) * length / count
    samples = torch.arange(length, dtype=torch.float64)
    overlap = torch.minimum(edges[1:, None], samples + 1) - torch.maximum(edges[:-1, None], samples)
    return overlap.clamp_(min=0) * count / length


def stacked(frames: Iterator[Tensor], where: str) -> Tensor:
    """Frames as one tensor (T, ...). Raises DatasetError if there are none, or of different sizes."""
    taken = list(frames)
    if not taken:
        raise DatasetError(f"{where}: no frame can be decoded; unpack the release again")
    for number, frame in enumerate(taken):
        if frame.shape != taken[0].shape:
            sizes = (f"{shape[-1]}x{shape[-2]}" for shape in (frame.shape, taken[0].shape))
            raise DatasetError(
                f"{where}: frame {number} is {' but the first '.join(sizes)}; unpack the release again"
            )
    return torch.stack(taken)
