"""Pixel formats: how FFmpeg stores samples, how to read them as planes, and how to convert them.

A frame leaves this module in the *delivered* format, which is planar, in native byte order and R, G, B order:
nv12 as yuv420p, p010le as yuv420p10le, rgb24 as gbrp, yuvj420p as yuv420p (its range is in the colour tags).

Videos that stay videos keep their samples; between videos and pictures they are converted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

import av
import numpy as np
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from av.video.plane import VideoPlane
from numpy.typing import NDArray

from vidrestore.errors import MediaError
from vidrestore.pixels.frames import (
    UNSPECIFIED,
    PixelFormat,
    Scale,
    VideoInfo,
    enlarged_size,
)

Family = Literal["yuv", "rgb", "gray"]
Plane: TypeAlias = NDArray[Any]

# Packed formats: the component of each sample of plane 0 (and 1) in one period; "x" is padding.
_PACKED = {
    "rgb24": ("rgb",), "bgr24": ("bgr",), "rgb48": ("rgb",), "bgr48": ("bgr",),
    "rgba": ("rgba",), "bgra": ("bgra",), "argb": ("argb",), "abgr": ("abgr",),
    "rgba64": ("rgba",), "bgra64": ("bgra",),
    "rgb0": ("rgbx",), "bgr0": ("bgrx",), "0rgb": ("xrgb",), "0bgr": ("xbgr",),
    "ya8": ("ya",), "ya16": ("ya",),
    "yuyv422": ("yuyv",), "uyvy422": ("uyvy",), "yvyu422": ("yvyu",),
    "y210": ("yuyv",), "y212": ("yuyv",), "y216": ("yuyv",),
    "vuya": ("vuya",), "vuyx": ("vuyx",), "ayuv": ("ayuv",), "uyva": ("uyva",),
    "vyu444": ("vyu",), "ayuv64": ("ayuv",),
    "nv12": ("y", "uv"), "nv21": ("y", "vu"), "nv16": ("y", "uv"), "nv20": ("y", "uv"),
    "nv24": ("y", "uv"), "nv42": ("y", "vu"),
    "p010": ("y", "uv"), "p012": ("y", "uv"), "p016": ("y", "uv"),
    "p210": ("y", "uv"), "p212": ("y", "uv"), "p216": ("y", "uv"),
    "p410": ("y", "uv"), "p412": ("y", "uv"), "p416": ("y", "uv"),
}  # fmt: skip
# Formats that are read as 8 bits of R, G, B: (lowest bit, number of bits) of each in a sample, or in a colour
# of the palette, which FFmpeg stores as AARRGGBB.
_BIT_FIELDS = {
    "pal8": ((16, 8), (8, 8), (0, 8)),
    "rgb555": ((10, 5), (5, 5), (0, 5)), "bgr555": ((0, 5), (5, 5), (10, 5)),
    "rgb565": ((11, 5), (5, 6), (0, 5)), "bgr565": ((0, 5), (5, 6), (11, 5)),
}  # fmt: skip
# Formats of 10 or 12 bits that sit in the high bits of 16.
_HIGH_BITS = frozenset({"p010", "p012", "p210", "p212", "p410", "p412", "y210", "y212"})
_SUBSAMPLING = {
    (1, 1): "420",
    (1, 0): "422",
    (0, 0): "444",
    (2, 0): "411",
    (0, 1): "440",
    (2, 2): "410",
}
_DEPTHS = frozenset({*range(8, 17), 32})  # bits of a sample


@dataclass(frozen=True)
class PlaneSamples:
    """The samples of a delivered plane: every `step`-th from `start` in each row of the stored `plane`."""

    plane: int
    start: int = 0
    step: int = 1


@dataclass(frozen=True)
class Layout:
    """The storage of a pix_fmt: the delivered format, and where the samples of each of its planes lie."""

    format: PixelFormat
    samples: tuple[PlaneSamples, ...]
    stored: np.dtype[Any]  # type of the samples in the file, with its byte order
    shift: int = 0  # right shift for samples that use the upper bits
    fields: tuple[tuple[int, int], ...] = ()  # see `_BIT_FIELDS`


@lru_cache
def layout_of(pix_fmt: str) -> Layout:
    """Return the storage of `pix_fmt` (FFmpeg's name). Raises MediaError for formats that can't be read."""
    try:
        description = av.VideoFormat(pix_fmt, 256, 256)
    except ValueError:
        raise MediaError(f"pixel format {pix_fmt!r} is unknown to FFmpeg") from None
    stem, parts = pix_fmt.removesuffix("le").removesuffix("be"), description.components
    order = ">" if description.is_big_endian else "<"

    # formats whose colours are bits within one number
    if fields := _BIT_FIELDS.get(stem):
        rgb = _delivered(av.VideoFormat("gbrp", 256, 256), 8, None)
        stored = np.dtype("u1" if stem == "pal8" else f"{order}u2")
        return Layout(rgb, (PlaneSamples(0),) * 3, stored, fields=fields)
    if not _is_supported(description, stem):
        instead = "gray" if len(parts) == 1 else "yuv444p16le"
        if description.is_rgb:
            instead = "gbrp16le"
        raise MediaError(
            f"pixel format {pix_fmt} is not supported; convert first, for example: ffmpeg -i IN -c:v ffv1 "
            f"-pix_fmt {instead} OUT.mkv"
        )

    # where the samples of each plane lie
    pattern = _PACKED.get(stem)
    planar = (PlaneSamples(part.plane) for part in parts)
    samples = _packed_samples(pattern) if pattern else tuple(planar)

    # their type in the file, and what they are delivered as
    bits = parts[0].bits
    floating = stem.endswith(("f16", "f32"))
    stored = np.dtype(f"{order}{'f' if floating else 'u'}{(bits + 7) // 8}")
    shift = 16 - bits if stem in _HIGH_BITS or stem.endswith("msb") else 0
    delivered = _delivered(description, 32 if floating else bits, pattern)
    return Layout(delivered, samples, stored, shift)


def _is_supported(description: VideoFormat, stem: str) -> bool:
    """Return True for samples of Y, U, V, of R, G, B, or of grey that have whole bytes and one depth."""
    parts = description.components
    depths = {part.bits for part in parts}
    is_colour = not (description.is_bayer or stem.startswith(("bayer", "xyz")))
    is_apart = stem in _PACKED or len({part.plane for part in parts}) == len(parts)
    has_one_depth = (
        not description.is_bit_stream and len(depths) == 1 and depths <= _DEPTHS
    )
    return is_colour and is_apart and has_one_depth


def _packed_samples(pattern: tuple[str, ...]) -> tuple[PlaneSamples, ...]:
    order = "rgba" if "r" in pattern[0] else "yuva"
    samples = {}
    for plane, period in enumerate(pattern):
        for letter in set(period) - {"x"}:
            step = len(period) // period.count(letter)
            samples[letter] = PlaneSamples(plane, period.index(letter), step)
    return tuple(samples[letter] for letter in order if letter in samples)


def _delivered(
    description: VideoFormat, depth: int, pattern: tuple[str, ...] | None
) -> PixelFormat:
    """Return the planar format in which the samples of FFmpeg's format are delivered."""
    letters = "".join(pattern or ())
    # the family and subsampling name the planar format of the same samples
    alpha = (
        "a" in letters
        if pattern
        else any(part.is_alpha for part in description.components)
    )
    family: Family = "gray" if len(description.components) - alpha == 1 else "yuv"
    if description.is_rgb:
        family = "rgb"
    width, height = description.chroma_width(256), description.chroma_height(256)
    shifts = (
        (9 - width.bit_length(), 9 - height.bit_length()) if family == "yuv" else (0, 0)
    )
    suffix = {8: "", 32: "f32le"}.get(depth, f"{depth}le")
    stem = f"yuv{'a' * alpha}{_SUBSAMPLING.get(shifts, '???')}p"
    if family == "rgb":
        stem = f"gbr{'a' * alpha}p"
    elif family == "gray":
        stem = "ya" + "8" * (depth == 8) if alpha else "gray"
    return PixelFormat(stem + suffix, family, depth, *shifts, alpha=alpha)


def planes_of(frame: VideoFrame) -> tuple[NDArray[Any], ...]:
    """Copy the delivered planes of a decoded frame, each (height, width), in uint8, uint16 or float32. Raises
    MediaError as `layout_of` does, and for a palette with transparent colours.
    """
    stored, layout = frame.planes, layout_of(frame.format.name)
    # formats of a few bits per colour are widened to 8
    if layout.fields:
        values = _take(stored[0], PlaneSamples(0), layout, frame.height, frame.width)
        if layout.stored.itemsize == 1:
            values = _coloured(values, stored[1])
        return tuple(_widened(values >> shift, bits) for shift, bits in layout.fields)
    planes = []
    for index, samples in enumerate(layout.samples):
        size = layout.format.plane_size(index, frame.height, frame.width)
        planes.append(_take(stored[samples.plane], samples, layout, *size))
    return tuple(planes)


def _coloured(values: NDArray[Any], palette: VideoPlane) -> NDArray[Any]:
    colours: NDArray[Any] = np.frombuffer(cast(Any, palette), np.uint32, 256)[values]
    # transparent colours would need a plane of their own
    alpha = colours >> 24
    if alpha.max() > 0 and alpha.min() < 255:  # some files have 0 everywhere
        raise MediaError(
            "a palette with transparent colours is not supported; convert first, for example: ffmpeg -i IN "
            "-c:v ffv1 -pix_fmt bgra OUT.mkv"
        )
    return colours


def _widened(values: NDArray[Any], bits: int) -> NDArray[Any]:
    """Return the lowest `bits` of values, 5 to 8, as 8 bits, from 0 to 255."""
    values = values & ((1 << bits) - 1)
    return (values << (8 - bits) | values >> (2 * bits - 8)).astype(np.uint8)


def store_plane(frame: VideoFrame, index: int, plane: NDArray[Any]) -> None:
    """Write a delivered plane into a frame that owns its buffers. Not for palettes."""
    layout = layout_of(frame.format.name)
    samples = layout.samples[index]
    _stored(frame.planes[samples.plane], samples, layout, *plane.shape)[:] = (
        plane << layout.shift
    )


def _take(
    plane: VideoPlane, samples: PlaneSamples, layout: Layout, height: int, width: int
) -> NDArray[Any]:
    values = _stored(plane, samples, layout, height, width)
    native = (
        np.dtype(np.float32)
        if layout.stored.kind == "f"
        else layout.stored.newbyteorder("=")
    )
    copied = values.astype(native, order="C", copy=True)
    if layout.shift:
        copied >>= layout.shift
    return copied


def _stored(
    plane: VideoPlane, samples: PlaneSamples, layout: Layout, height: int, width: int
) -> NDArray[Any]:
    """Return a view of the samples of a delivered plane as they are stored."""
    line = abs(plane.line_size)
    # rows as they lie in memory, then the plane's own samples of each
    rows = np.frombuffer(cast(Any, plane), np.uint8).reshape(-1, line)
    # stored bottom-up; PyAV's buffer begins at the lowest address
    if plane.line_size < 0:
        rows = rows[::-1]
    rows = rows[:height, : line - line % layout.stored.itemsize].view(layout.stored)
    return rows[
        :, samples.start : samples.start + samples.step * (width - 1) + 1 : samples.step
    ]


def enlarged_video(video: VideoInfo, scale: Scale) -> VideoInfo:
    """Return the description of the video whose frames are `scale` times larger.

    Without a tag most players guess the matrix by the height, others don't: one that changes is tagged.
    """
    height, width = enlarged_size(video.height, video.width, scale)
    large = replace(video, height=height, width=width)
    if scale == 1 or video.format.family != "yuv" or video.colour.matrix != UNSPECIFIED:
        return large
    from vidrestore.pixels.colour import matrix_of

    before, after = (
        matrix_of(info.format, info.colour, info.height) for info in (video, large)
    )
    return (
        large
        if before == after
        else replace(large, colour=replace(video.colour, matrix=after))
    )
