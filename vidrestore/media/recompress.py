"""Clips as an encoder leaves them: encoded to H.264 or JPEG and decoded again, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import cast

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.media.encoders import fixed_threads
from vidrestore.media.formats import layout_of, planes_of

Planes = tuple[NDArray[np.uint8], ...]


def recompress(frames: Sequence[Planes], crf: float, preset: str = "veryfast") -> list[Planes]:
    """8-bit Y, U, V of 4:2:0, even sides, through x264 at a quality of `crf` (0 best, 51 worst) and back; as many frames, in order.

    The same frames give the same result each time. Raises ValueError for odd sides.
    """
    height, width = frames[0][0].shape
    if height % 2 or width % 2:
        raise ValueError(f"4:2:0 has even sides in H.264, got {width}x{height}")
    options = {"crf": str(crf), "preset": preset} | fixed_threads("libx264", 1)
    return _through(frames, "libx264", "h264", "yuv420p", options)


def recompress_jpeg(frames: Sequence[Planes], quality: int) -> list[Planes]:
    """The same through Motion JPEG with a quantiser of `quality` (2 best, 31 worst), as older cameras do it."""
    return _through(frames, "mjpeg", "mjpeg", "yuvj420p", {"qmin": str(quality), "qmax": str(quality)})


def _through(frames: Sequence[Planes], coder: str, name: str, pix_fmt: str, options: dict[str, str]) -> list[Planes]:
    """Frames through an encoder and the decoder `name`."""
    encoder = cast("av.VideoCodecContext", av.CodecContext.create(coder, "w"))
    encoder.height, encoder.width = frames[0][0].shape
    encoder.pix_fmt, encoder.time_base = pix_fmt, Fraction(1, 25)
    encoder.thread_count, encoder.options = 1, options
    packets = [packet for number, planes in enumerate(frames) for packet in encoder.encode(_picture(planes, number, pix_fmt))]
    packets += encoder.encode(None)
    decoder = cast("av.VideoCodecContext", av.CodecContext.create(name, "r"))
    decoder.thread_count = 1
    decoded = [frame for packet in [*packets, None] for frame in decoder.decode(packet)]
    layout = layout_of(decoded[0].format.name)
    return [planes_of(frame, layout) for frame in decoded]


def _picture(planes: Planes, number: int, pix_fmt: str) -> av.VideoFrame:
    flat = np.concatenate([np.ascontiguousarray(plane).reshape(-1) for plane in planes]).reshape(-1, planes[0].shape[1])
    picture = av.VideoFrame.from_ndarray(flat, format=pix_fmt)
    picture.pts, picture.time_base = number, Fraction(1, 25)
    return picture
