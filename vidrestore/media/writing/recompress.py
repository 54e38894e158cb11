"""Compress clips in memory: encode to H.264 or Motion JPEG and decode again."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.media.formats.encoder_table import ENCODERS, repeatable
from vidrestore.media.formats.encoding import picture
from vidrestore.media.formats.pixel_formats import planes_of
from vidrestore.pixels.frames import ColourTags, Frame

Planes = tuple[NDArray[np.uint8], ...]


def recompress(
    frames: Sequence[Planes], crf: float, preset: str = "veryfast"
) -> list[Planes]:
    """Encode and decode 8-bit Y, U, V of 4:2:0 by x264 at quality `crf` (0 best, 51 worst); the same frames
    give the same result. Raises ValueError for odd sides.
    """
    height, width = frames[0][0].shape
    if height % 2 or width % 2:
        raise ValueError(f"4:2:0 has even sides in H.264, got {width}x{height}")
    options = {"crf": str(crf), "preset": preset} | repeatable(ENCODERS["libx264"])
    return _recode(frames, "libx264", "h264", "yuv420p", options=options)


def recompress_pictures(frames: Sequence[Planes], scale: int) -> list[Planes]:
    """Encode and decode the same planes by Motion JPEG, with quantiser `scale` from 2 (best) to 31."""
    return _recode(frames, "mjpeg", "mjpeg", "yuvj420p", qmin=scale, qmax=scale)


def _recode(
    frames: Sequence[Planes], encoder: str, decoder: str, pix_fmt: str, **settings: Any
) -> list[Planes]:
    """Pass frames through an encoder and a decoder of one thread, whose results are the same in every run."""
    encoding: Any = av.CodecContext.create(encoder, "w")
    encoding.height, encoding.width = frames[0][0].shape
    encoding.pix_fmt, encoding.time_base, encoding.thread_count = (
        pix_fmt,
        Fraction(1, 25),
        1,
    )
    for name, value in settings.items():
        setattr(encoding, name, value)
    # encode all, so that delayed packets come, too
    packets: list[Any] = []
    for number, planes in enumerate(frames):
        video_frame = picture(
            Frame(planes, number, 1), pix_fmt, Fraction(1, 25), ColourTags()
        )
        packets += encoding.encode(video_frame)
    packets += encoding.encode(None)
    # decode in the same order
    decoding: Any = av.CodecContext.create(decoder, "r")
    decoding.thread_count = 1
    decoded = [
        frame for packet in [*packets, None] for frame in decoding.decode(packet)
    ]
    return [planes_of(frame) for frame in decoded]
