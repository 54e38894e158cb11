"""Estimate the loss of a lossy coder as the sigma of the white noise that denoises best.

A coder rounds to multiples of a quantiser's step, which errs by step / sqrt(12). The share of it that
denoises best was fitted to training clips after real encoders (examples/experiments/fit_coding.py), at fixed
quantisers and at fixed rates; content matters less than the step. H.264,
MPEG-1, -2 and -4, and VP9 give their quantisers by FFmpeg's encoding parameters (struct AVVideoEncParams,
libavutil/video_enc_params.h), JPEG by its tables (ITU-T T.81, B.2.4.1). Other codecs are judged by the bits
of a pixel.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from av.sidedata.sidedata import SideDataContainer
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from vidrestore.media.containers.file_bytes import jpeg_segments
from vidrestore.media.reading.probe import SourceInfo, is_lossless
from vidrestore.pixels.frames import PixelFormat, VideoInfo
from vidrestore.settings.options import Input

_MPEG = (
    "mpeg1video",
    "mpeg2video",
    "mpeg4",
    "msmpeg4v2",
    "msmpeg4v3",
    "wmv1",
    "wmv2",
    "h263",
    "flv1",
)
WITH_PARAMETERS = frozenset({"h264", "vp9", "rv10", "rv20", *_MPEG})
# codecs whose pictures or packets have them
WITH_QUANTISERS = WITH_PARAMETERS | {"mjpeg"}
# options of a decoder that gives its quantisers
PARAMETERS = {"export_side_data": "venc_params"}
# Sigma of what the coder took from which a video is enlarged as a compressed one: x264's at crf 19. On four
# clips of 160x90 behind x264 the network for clean video is better above 0.4 to 0.7 bits per pixel.
CODED = 1.5
LEAST_SIGMA = 1.0  # the network removes no less
# Bits of another codec that one of H.264 is worth, at the same PSNR of clips behind real encoders
EFFICIENCY = {
    "h264": 1.0,
    "hevc": 1.5,
    "vp9": 1.5,
    "av1": 2.0,
    "mpeg2video": 0.6,
    "mpeg4": 0.8,
    "vp8": 0.8,
}
EFFICIENCY |= dict.fromkeys(("rv10", "rv20", "theora"), 0.5) | {
    "dvvideo": 0.2,
    "asv1": 0.2,
    "dirac": 0.15,
}
EFFICIENCY |= dict.fromkeys(
    ("mjpeg", "prores", "dnxhd", "svq1", "asv2", "speedhq", "jpeg2000", "cfhd"), 0.3
)
EFFICIENCY |= {
    "cinepak": 0.1,
    "dxv": 0.08,
    "hap": 0.08,
    "msvideo1": 0.07,
    "rpza": 0.03,
    "roq": 0.02,
}
UNKNOWN_EFFICIENCY = 0.5  # of others, older ones for the most part
ROUNDING = 12**-0.5  # root mean square of the error, of a step
_TABLES = 0xFFDB  # marker of a JPEG's quantisation tables
_FRAME_HEADERS = range(0xFFC0, 0xFFC3)  # markers of a JPEG's size and components
# Of a step, by which a restored coefficient of a block may differ from the decoded one, and the sigma of
# frames within this over that of others
WITHIN, STRONGER = 0.3, 1.5
# entries of a JPEG's table, in zigzag order; higher ones are mostly rounded to 0
LOW_FREQUENCIES = 10
# types of encoding parameters
_VP9_PARAMETERS, _H264_PARAMETERS, _MPEG2_PARAMETERS = 0, 1, 2
_PARAMETERS_HEAD = struct.Struct("=I4xQQ2i8i")  # AVVideoEncParams
_BLOCK_NUMBERS = 5  # numbers of a block of it, of which the last is the delta
# Chroma's quantiser of H.264 from luma's, for 30 to 51 (ITU-T H.264, table 8-15)
_H264_CHROMA = (
    29,
    30,
    31,
    32,
    32,
    33,
    34,
    34,
    35,
    35,
    36,
    36,
    37,
    37,
    37,
    38,
    38,
    38,
    39,
    39,
    39,
    39,
)
# The step of AC coefficients of VP9 in eighths by quantiser index (VP9 bitstream specification, 8.6.1), at
# some, between which its logarithm is about linear
_VP9_INDEX = (0, 20, 50, 96, 121, 137, 150, 160, 169, 176, 188, 198, 210, 219, 235, 255)
_VP9_STEP = (
    4,
    27,
    57,
    104,
    155,
    203,
    255,
    305,
    359,
    408,
    510,
    615,
    771,
    915,
    1243,
    1828,
)


@dataclass(frozen=True)
class BitRule:
    """The rule of sigma (0-255 scale) by bits of H.264 per pixel: `sigma_at_a_bit` * bits ** `exponent`.

    sigma_at_a_bit: sigma at one bit a pixel
    exponent: of the bits
    least: sigma that is removed below H.264's efficiency; codecs for editing are better than this rule at
        many bits
    most_at_h264: greatest sigma at H.264's efficiency, divided by another codec's; still pictures take few
        bits, and better coders filter their blocks
    most: greatest sigma of any codec
    """

    sigma_at_a_bit: float = 1.05
    exponent: float = -0.6
    least: float = 1.3
    most_at_h264: float = 4.0
    most: float = 10.0


BIT_RULE = BitRule()


class Loss(NamedTuple):
    """Sigma of what a coder took, on the 0-255 scale; 0 if too little or unknown."""

    luma: float = 0.0
    chroma: float = 0.0


NO_LOSS = Loss()
# The sigma that denoises best, of luma and of chroma: factor and exponent of the quantiser's error, and the
# least error that is worth it
FITS = {  # by codec
    "h264": ((0.8, 0.75, 2.1), (0.95, 0.4, 1.1)),
    "mpeg": ((1.05, 0.87, 0.9), (1.1, 0.65, 1.0)),
    "vp9": ((1.0, 0.63, 1.0), (0.6, 0.5, 2.8)),
    "jpeg": ((0.9, 1.0, 0.5), (0.6, 1.0, 0.5)),
}


def _loss(kind: str, *steps: float) -> Loss:
    """Return the loss by steps of the quantisers of luma and chroma."""
    sigmas = (
        _sigma(ROUNDING * step, *fit)
        for fit, step in zip(FITS[kind], steps, strict=True)
    )
    return Loss(*sigmas)


def _sigma(error: float, factor: float, power: float, least: float) -> float:
    return max(LEAST_SIGMA, factor * error**power) if error >= least else 0.0


def loss_of(picture: VideoFrame, video: VideoInfo) -> Loss | None:
    """Return the loss of a picture of `video` by its encoding parameters; None without them."""
    # PyAV frees the names of a PNG's profile twice
    if video.codec not in WITH_PARAMETERS:
        return None
    try:
        # not `picture.side_data`: the picture would keep it, and it keeps the picture
        side_data = SideDataContainer(picture)  # type: ignore[call-arg]
    except ValueError:  # a kind that PyAV doesn't know
        return None
    for data in side_data:
        if data.type.name == "VIDEO_ENC_PARAMS":
            return loss_by_parameters(bytes(data), video.format.depth)
    return None


def loss_by_parameters(data: bytes, depth: int) -> Loss | None:
    """Return the loss by the bytes of an AVVideoEncParams; None if they hold no quantiser that is known."""
    count, offset, size, kind, quantiser, *deltas = _PARAMETERS_HEAD.unpack_from(data)
    # the quantiser of the frame, changed by the mean of its blocks
    mean = float(quantiser)
    if count:
        blocks = np.frombuffer(data, np.uint8, count * size, offset).reshape(
            count, size
        )
        numbers = blocks[:, : 4 * _BLOCK_NUMBERS].copy().view(np.int32)
        mean += float(numbers[:, -1].mean())
    # each codec has a scale of its own
    if kind == _H264_PARAMETERS:
        scale = 2.0 ** (8 - depth)
        deeper = 6 * (depth - 8)  # what deeper samples add to both quantisers
        chroma = mean + deltas[3] - deeper  # deltas: DC and AC of Y, U, V
        chroma = (
            float(np.interp(chroma, range(30, 52), _H264_CHROMA, left=chroma)) + deeper
        )
        return _loss("h264", scale * _h264_step(mean), scale * _h264_step(chroma))
    if kind == _MPEG2_PARAMETERS and mean > 0:
        return _loss("mpeg", mean, mean)
    if kind == _VP9_PARAMETERS:
        indices = quantiser + deltas[1], quantiser + deltas[3]
        luma, chroma = np.exp(np.interp(indices, _VP9_INDEX, np.log(_VP9_STEP))) / 8
        return _loss("vp9", float(luma), float(chroma))
    return None


def _h264_step(quantiser: float) -> float:
    return float(2 ** ((quantiser - 4) / 6))


def _diagonal(place: int) -> tuple[int, int]:
    """Return the place's diagonal, and where it lies on it: every other one goes upwards."""
    row, column = divmod(place, 8)
    return row + column, row if (row + column) % 2 else column


# place in rows of 8 of each entry of a table
_ZIGZAG = np.array(sorted(range(64), key=_diagonal))


class JpegPlane(NamedTuple):
    """A component of a JPEG: its sampling factors, and the quantiser's steps (8, 8) by frequency."""

    across: int
    down: int
    steps: NDArray[np.float32]


def jpeg_planes(data: bytes) -> tuple[JpegPlane, ...]:
    """Return the components of a JPEG, or of a packet of Motion JPEG; none without tables."""
    tables: dict[int, NDArray[np.float32]] = {}
    for marker, segment in jpeg_segments(io.BytesIO(data[2:])):
        while marker == _TABLES and segment:
            wide = segment[0] >> 4
            end = 1 + 64 * (1 + wide)
            if len(segment) < end:
                break
            steps = np.empty(64, np.float32)
            steps[_ZIGZAG] = np.frombuffer(segment[1:end], ">u2" if wide else np.uint8)
            tables[segment[0] & 15] = steps.reshape(8, 8)
            segment = segment[end:]
        if marker in _FRAME_HEADERS and len(segment) > 5:
            entries = [
                segment[offset : offset + 3]
                for offset in range(6, 6 + 3 * segment[5], 3)
            ]
            if all(len(entry) == 3 and entry[2] in tables for entry in entries):
                return tuple(
                    JpegPlane(entry[1] >> 4, entry[1] & 15, tables[entry[2]])
                    for entry in entries
                )
    return ()


def loss_by_tables(planes: tuple[JpegPlane, ...]) -> Loss:
    """Return the loss of a JPEG of at least one component."""
    # low frequencies decide what is seen, and are rarely rounded to nothing
    low = _ZIGZAG[:LOW_FREQUENCIES]
    steps = [float(np.mean(plane.steps.flatten()[low])) for plane in planes]
    return _loss("jpeg", steps[0], steps[min(1, len(steps) - 1)])


def block_steps(
    planes: tuple[JpegPlane, ...], pixels: PixelFormat
) -> tuple[NDArray[np.float32], ...]:
    """Return the steps of each plane of a decoded JPEG, whose blocks of 8 x 8 samples begin at its corner;
    none if the decoder converted the colours or the subsampling.
    """
    if pixels.family == "rgb" or len(planes) != pixels.plane_count:
        return ()
    luma, *chroma = planes
    # sampling factors grow from the coarsest plane, shifts from the finest
    across, down = pixels.chroma_width_shift, pixels.chroma_height_shift
    shifted = {(plane.across << across, plane.down << down) for plane in chroma}
    return (
        tuple(plane.steps for plane in planes)
        if shifted <= {(luma.across, luma.down)}
        else ()
    )


def bits_per_pixel(source: SourceInfo) -> float | None:
    """Return the bits per pixel of the source, converted to H.264's efficiency; None if unknown."""
    video = source.video
    if video.frame_bits is None:
        return None
    efficiency = EFFICIENCY.get(video.codec, UNKNOWN_EFFICIENCY)
    return efficiency * video.frame_bits / (video.width * video.height)


def loss_by_bits(source: SourceInfo) -> Loss:
    """Return the loss by bits per pixel, for codecs without known quantisers; none for lossless ones."""
    # codecs for editing take so many bits that the rule would see no loss
    codec = source.video.codec
    bits = None if source.pictures or is_lossless(codec) else bits_per_pixel(source)
    if bits is None:
        return NO_LOSS
    rule, efficiency = BIT_RULE, EFFICIENCY.get(codec, UNKNOWN_EFFICIENCY)
    sigma = min(
        rule.sigma_at_a_bit * bits**rule.exponent,
        rule.most_at_h264 / efficiency,
        rule.most,
    )
    least = LEAST_SIGMA if efficiency >= 1 else rule.least
    return Loss(sigma, sigma) if sigma >= least else NO_LOSS


def kind_by_coding(source: SourceInfo, loss: float) -> tuple[Input, str]:
    """Return the kind of input by `loss`, the sigma of what the coder took from luma, and why, in words."""
    codec = source.video.codec
    if codec == "gif":
        return "compressed", "gif has few colours"
    if is_lossless(codec):
        return "clean", f"{codec} has no losses"
    # a codec of which nothing is known counts as lossy
    by_bits = codec in EFFICIENCY and bool(loss or bits_per_pixel(source))
    if codec not in WITH_QUANTISERS and not by_bits:
        return "compressed", codec
    return "compressed" if loss >= CODED else "clean", f"coding loss {loss:.1f}"
