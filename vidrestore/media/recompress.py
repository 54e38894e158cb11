"""Clips as an encoder leaves them: encoded to H.264 and decoded again, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

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
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = width, height, "yuv420p", Fraction(1, 25)
    encoder.thread_count = 1
    encoder.options = {"crf": str(crf), "preset": preset} | fixed_threads("libx264", 1)
    packets = [packet for number, planes in enumerate(frames) for packet in encoder.encode(_picture(planes, number))]
    packets += encoder.encode(None)
    decoder = av.CodecContext.create("h264", "r")
    decoder.thread_count = 1
    decoded = [frame for packet in [*packets, None] for frame in decoder.decode(packet)]
    layout = layout_of(decoded[0].format.name)
    return [planes_of(frame, layout) for frame in decoded]


def _picture(planes: Planes, number: int) -> av.VideoFrame:
    flat = np.concatenate([np.ascontiguousarray(plane).reshape(-1) for plane in planes]).reshape(-1, planes[0].shape[1])
    picture = av.VideoFrame.from_ndarray(flat, format="yuv420p")
    picture.pts, picture.time_base = number, Fraction(1, 25)
    return picture
