"""Convert frames between the samples of videos and of pictures.

Videos that stay videos keep their samples. EXR holds linear light: it is restored as sRGB and written as
linear light again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.frames import UNSPECIFIED, ColourTags, Frame, PixelFormat
from vidrestore.media.formats import layout_of

if TYPE_CHECKING:
    from vidrestore.media.encoding import EncoderChoice
    from vidrestore.media.probe import VideoInfo

# code points of ITU-T H.273
BT709, BT601, SRGB, LINEAR = 1, 5, 13, 8
_LIMITED, _FULL = 1, 2
_LEFT, _CENTRE = 1, 2


def as_encoded(video: VideoInfo, choice: EncoderChoice) -> VideoInfo:
    """Return the description of the frames that the encoder gets.

    That is `video` itself, unless pictures become a video or a video becomes pictures.
    """
    pixels = layout_of(choice.pix_fmt).format
    if choice.encoder == "exr":
        colour = replace(_rgb(video.colour), transfer=LINEAR)
    elif choice.encoder == "mjpeg":
        colour = replace(video.colour, matrix=BT601, range=_FULL, chroma_location=_CENTRE)
    elif pixels == video.format:
        return video
    elif pixels.family == "yuv":
        colour = replace(video.colour, matrix=BT709, range=_LIMITED, chroma_location=_LEFT)
    else:
        colour = _rgb(video.colour)
    if pixels.family == "gray":
        colour = replace(colour, matrix=UNSPECIFIED)
    return replace(video, format=pixels, pix_fmt=choice.pix_fmt, colour=colour)


def _rgb(colour: ColourTags) -> ColourTags:
    return replace(colour, matrix=0, range=_FULL, chroma_location=0)


def converted(frame: Frame, video: VideoInfo, target: VideoInfo) -> Frame:
    """Convert a frame of `video` to the samples of `target`."""
    if video.format == target.format and _interpretation(video.colour) == _interpretation(target.colour):
        return frame
    planes = _planes(frame, video, target)
    if target.colour.transfer == LINEAR:
        colours = len(planes) - target.format.alpha
        planes = (*map(to_linear, planes[:colours]), *planes[colours:])
    return replace(frame, planes=planes)


def _interpretation(colour: ColourTags) -> tuple[int, ...]:
    """Return the tags that determine the colours of samples."""
    matrix = BT601 if colour.matrix == 6 else colour.matrix
    return matrix, colour.range, colour.chroma_location, colour.transfer == LINEAR


def _planes(frame: Frame, video: VideoInfo, target: VideoInfo) -> tuple[NDArray[Any], ...]:
    from vidrestore.colour import grey_to_planes, planes_to_grey, rgb_to_yuv, yuv_to_rgb

    source = planes_to_grey(frame.planes, video.format)
    rgb = yuv_to_rgb(source, video.format, video.colour, video.height)
    made = list(rgb_to_yuv(rgb, target.format, target.colour, video.height))
    if target.format.alpha:
        made.append(source[-1] * (_white(target.format) / _white(video.format)))
    return grey_to_planes(made, target.format)


def _white(pixels: PixelFormat) -> float:
    """Return the largest sample on the 0-255 scale."""
    return 255.0 if pixels.depth == 32 else (2**pixels.depth - 1) / pixels.unit


def to_linear(plane: NDArray[Any]) -> NDArray[np.float32]:
    """Convert sRGB samples to linear light; the curve is extended below black and above white."""
    value = np.abs(plane)
    light = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    linear: NDArray[np.float32] = np.copysign(light, plane).astype(np.float32, copy=False)
    return linear


def from_linear(plane: NDArray[Any]) -> NDArray[np.float32]:
    """Convert linear light to sRGB samples: the inverse of `to_linear`."""
    light = np.abs(plane)
    value = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    shown: NDArray[np.float32] = np.copysign(value, plane).astype(np.float32, copy=False)
    return shown
