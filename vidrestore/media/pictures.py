"""Read single pictures (JPEG, PNG, TIFF, WebP) as safely as videos, and write PNG."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import av
import numpy as np
import torch
from numpy.typing import NDArray

from vidrestore.colour import planes_to_grey, yuv_to_rgb
from vidrestore.errors import MediaError
from vidrestore.frames import ColourTags
from vidrestore.media.formats import layout_of, planes_of
from vidrestore.media.source import DEMUXERS

T = TypeVar("T")

SUFFIXES = tuple(DEMUXERS)


def read_picture(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Y, U and V of a picture at full size (4:4:4), each (height, width) uint8: BT.601, limited range.

    Raises MediaError for a file that is not such a picture, by its name or by its content.
    """
    planes = _decoded(
        path, lambda frame: frame.reformat(format="yuv444p", dst_color_range="MPEG").to_ndarray()
    )
    return planes[0], planes[1], planes[2]


def read_rgb(path: Path) -> NDArray[np.uint8]:
    """Return (3, height, width) uint8: R, G, B of a file, without alpha. JPEG equals libjpeg's result within
    4 grey levels.

    Raises MediaError as `read_picture` does.
    """
    return _decoded(path, _rgb)


def png(picture: NDArray[np.uint8]) -> bytes:
    """Return (height, width, 3) R, G, B as a PNG file; the same picture gives the same bytes."""
    context: Any = av.CodecContext.create("png", "w")
    context.height, context.width = picture.shape[:2]
    context.pix_fmt, context.time_base = "rgb24", Fraction(1)
    context.options = {"pred": "paeth", "compression_level": "6"}  # for photographs
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def _decoded(path: Path, taken: Callable[[av.VideoFrame], T]) -> T:
    """Return the result of `taken` for the picture in a file, decoded while the file is open."""
    demuxer = DEMUXERS.get(path.suffix.lower())
    if demuxer is None:
        raise MediaError(f"{path}: not a picture by its name; expected {', '.join(SUFFIXES)}")
    options = {"protocol_whitelist": "file", "format_whitelist": demuxer}
    try:
        with av.open(f"file:{path}", "r", format=demuxer, container_options=options) as container:
            for frame in container.decode(video=0):
                return taken(frame)
    except (OSError, av.FFmpegError) as error:
        raise MediaError(f"{path}: can't be read as a picture ({error})") from error
    raise MediaError(f"{path}: holds no picture")


def _rgb(frame: av.VideoFrame) -> NDArray[np.uint8]:
    """Return R, G, B of a frame. YCbCr goes by `colour`: FFmpeg's own conversion of 4:2:0 is up to 35 grey
    levels from libjpeg's at edges.
    """
    if len(frame.format.components) < 3 or frame.format.is_rgb:
        return np.ascontiguousarray(frame.to_ndarray(format="rgb24").transpose(2, 0, 1))
    layout = layout_of(frame.format.name)
    full = frame.format.name.startswith("yuvj") or frame.color_range == 2
    tags = ColourTags(matrix=6, range=2 if full else 1, chroma_location=2)
    planes = planes_to_grey(planes_of(frame, layout), layout.format)
    rgb = yuv_to_rgb(planes, layout.format, tags, frame.height)
    return rgb.mul_(255).round_().clamp_(0, 255).to(torch.uint8).numpy()
