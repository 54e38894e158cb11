"""Compress clips in memory: encode to H.264 or Motion JPEG and decode again."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.media.encoder_table import repeatable
from vidrestore.media.formats import layout_of, planes_of

Planes = tuple[NDArray[np.uint8], ...]


def recompress(frames: Sequence[Planes], crf: float, preset: str = "veryfast") -> list[Planes]:
    """Encode and decode 8-bit Y, U, V of 4:2:0, of even sides, by x264 at quality `crf` (0 best, 51 worst).

    Returns as many frames, in order; the same frames give the same result. Raises ValueError for odd sides.
    """
    height, width = frames[0][0].shape
    if height % 2 or width % 2:
        raise ValueError(f"4:2:0 has even sides in H.264, got {width}x{height}")
    encoder = _encoder("libx264", "yuv420p", height, width)
    encoder.options = {"crf": str(crf), "preset": preset} | repeatable("libx264")
    return _decoded(encoder, "h264", frames)


def recompress_pictures(frames: Sequence[Planes], scale: int) -> list[Planes]:
    """Encode and decode the same planes by Motion JPEG, with quantiser `scale` from 2 (best) to 31."""
    height, width = frames[0][0].shape
    encoder = _encoder("mjpeg", "yuvj420p", height, width)
    encoder.qmin = encoder.qmax = scale
    return _decoded(encoder, "mjpeg", frames)


def _encoder(
    name: Literal["libx264", "mjpeg"], pix_fmt: str, height: int, width: int
) -> av.VideoCodecContext:
    """Return an encoder of one thread, whose result is the same in every run."""
    encoder: av.VideoCodecContext = av.CodecContext.create(name, "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, pix_fmt
    encoder.time_base, encoder.thread_count = Fraction(1, 25), 1
    return encoder


def _decoded(
    encoder: av.VideoCodecContext, codec: Literal["h264", "mjpeg"], frames: Sequence[Planes]
) -> list[Planes]:
    """Pass frames through an encoder and the decoder of its codec."""
    format = encoder.pix_fmt or "yuv420p"
    packets = [
        packet
        for number, planes in enumerate(frames)
        for packet in encoder.encode(_picture(planes, number, format))
    ]
    packets += encoder.encode(None)
    decoder = av.CodecContext.create(codec, "r")
    decoder.thread_count = 1
    decoded = [frame for packet in [*packets, None] for frame in decoder.decode(packet)]
    layout = layout_of("yuv420p")
    return [planes_of(frame, layout) for frame in decoded]


def _picture(planes: Planes, number: int, format: str) -> av.VideoFrame:
    flat = np.concatenate([np.ascontiguousarray(plane).reshape(-1) for plane in planes]).reshape(
        -1, planes[0].shape[1]
    )
    picture = av.VideoFrame.from_ndarray(flat, format=format)
    picture.pts, picture.time_base = number, Fraction(1, 25)
    return picture
