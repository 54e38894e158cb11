"""Compress clips in memory: encode to H.264 or Motion JPEG and decode again."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.frames import ColourTags, Frame
from vidrestore.media.encoder_table import repeatable
from vidrestore.media.encoding import picture
from vidrestore.media.formats import layout_of, planes_of

Planes = tuple[NDArray[np.uint8], ...]


def recompress(frames: Sequence[Planes], crf: float, preset: str = "veryfast") -> list[Planes]:
    """Encode and decode 8-bit Y, U, V of 4:2:0 by x264 at quality `crf` (0 best, 51 worst); the same frames
    give the same result. Raises ValueError for odd sides.
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
    pix_fmt, packets = encoder.pix_fmt or "yuv420p", list[Any]()
    for number, planes in enumerate(frames):
        made = picture(Frame(planes, number, 1), pix_fmt, Fraction(1, 25), ColourTags())
        packets += encoder.encode(made)
    packets += encoder.encode(None)
    decoder = av.CodecContext.create(codec, "r")
    decoder.thread_count = 1
    decoded = [frame for packet in [*packets, None] for frame in decoder.decode(packet)]
    return [planes_of(frame, layout_of("yuv420p")) for frame in decoded]
