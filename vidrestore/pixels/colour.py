"""Convert stored samples to planes on the 0-255 scale (`planes_to_grey`), and planes to RGB in [0, 1]
(`yuv_to_rgb`), by the file's own matrix, range and chroma siting (ITU-T H.273), and back.

RGB stays in the file's transfer (R'G'B') and is not clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.errors import MediaError
from vidrestore.pixels.frames import UNSPECIFIED, ColourTags, PixelFormat

Matrix: TypeAlias = NDArray[np.floating[Any]]

IDENTITY, YCGCO = 0, 8  # matrix code points of H.273 that have no Kr and Kb
LUMA_WEIGHTS = {  # matrix code point: (Kr, Kb)
    1: (0.2126, 0.0722),  # BT.709
    4: (0.30, 0.11),  # FCC
    5: (0.299, 0.114),  # BT.601, 625 lines
    6: (0.299, 0.114),  # BT.601, 525 lines
    7: (0.212, 0.087),  # SMPTE 240M
    9: (0.2627, 0.0593),  # BT.2020, non-constant luminance
}
TAPS_KEPT = 32  # filters: enough for the sizes of a few videos
LIMITED, FULL = 1, 2  # range code points
LEFT = 1  # chroma location without a tag: the default of MPEG-2, H.264 and H.265
# chroma location: (down, right) of the first chroma sample, 0 at its first luma sample, 1 at its last
CHROMA_SITES = {
    1: (0.5, 0.0),  # left
    2: (0.5, 0.5),  # centre
    3: (0.0, 0.0),  # top-left
    4: (0.0, 0.5),  # top
    5: (1.0, 0.0),  # bottom-left
    6: (1.0, 0.5),  # bottom
}


def planes_to_grey(
    planes: Sequence[NDArray[Any] | Tensor], format: PixelFormat
) -> tuple[Tensor, ...]:
    """Convert stored samples to float32 tensors on the 0-255 scale, always copies (10 bits: a quarter)."""
    greys = []
    for plane in planes:
        if isinstance(plane, Tensor):
            grey = plane.to(torch.float32, copy=True)
        else:  # copying also handles read-only and strided views
            grey = torch.from_numpy(np.array(plane, dtype=np.float32, order="C"))
        greys.append(grey if format.unit == 1 else grey.mul_(1 / format.unit))
    return tuple(greys)


def grey_to_planes(
    planes: Sequence[Tensor], format: PixelFormat
) -> tuple[NDArray[Any], ...]:
    """Undo `planes_to_grey`: convert planes to uint8 or uint16 samples, rounded and clipped to [0, 2^depth -
    1], or to float32, neither rounded nor clipped. Computed on the planes' device; the result is on the CPU.
    """
    samples = (plane.cpu().numpy() for plane in grey_to_stored(planes, format))
    return tuple(
        array.view(np.uint16) if 8 < format.depth <= 16 else array for array in samples
    )


def grey_to_stored(planes: Sequence[Tensor], format: PixelFormat) -> tuple[Tensor, ...]:
    """Convert as `grey_to_planes`, on the planes' device: uint8, float32, or int16 for 16 bits, since devices
    hardly support uint16.
    """
    samples = [plane.detach().to(torch.float32) * format.unit for plane in planes]
    if format.depth == 32:
        return tuple(samples)
    rounded = (plane.round_().clamp_(0, 2**format.depth - 1) for plane in samples)
    if format.depth <= 8:
        return tuple(plane.to(torch.uint8) for plane in rounded)
    return tuple(plane.to(torch.int32).to(torch.int16) for plane in rounded)


def yuv_to_rgb(
    planes: Sequence[Tensor], format: PixelFormat, tags: ColourTags, height: int
) -> Tensor:
    """Convert planes of `planes_to_grey`, each (..., H, W) at its own size, to R'G'B' (..., 3, H, W),
    nominally in [0, 1].

    `height` is the frame's, not the tile's: an untagged matrix is BT.709 from 720 lines, else BT.601. RGB
    planes are scaled, gray is repeated, alpha is ignored. Raises MediaError for an unknown matrix.
    """
    # gray alone has no colour to turn
    encode, offset = _encoding(format, tags, height)
    if format.family == "gray":
        scale = encode[0].sum()
        (gray,) = _combine(np.array([[1 / scale]]), planes[:1], -offset / scale)
        return torch.stack([gray] * 3, dim=-3)
    luma, *chroma = planes[:3]
    if format.family == "yuv":
        chroma = [
            upsample_chroma(plane, format, tags, luma.shape[-2], luma.shape[-1])
            for plane in chroma
        ]
    # the inverse of what encodes, chroma first at full size
    decode = np.linalg.inv(encode)
    return torch.stack(_combine(decode, [luma, *chroma], -decode @ offset), dim=-3)


def rgb_matrix(
    format: PixelFormat, tags: ColourTags, height: int
) -> tuple[tuple[float, ...], ...]:
    """Return the matrix (3, 4) of `yuv_to_rgb`: R'G'B' = matrix @ (first, second, third plane, 1)."""
    encode, offset = _encoding(format, tags, height)
    decode = np.linalg.inv(encode)
    if format.family == "gray":
        decode = np.tile(np.array([1 / encode[0].sum(), 0, 0]), (3, 1))
    matrix = np.column_stack((decode, -decode @ offset))
    return tuple(tuple(row) for row in matrix.tolist())


def rgb_to_yuv(
    rgb: Tensor, format: PixelFormat, tags: ColourTags, height: int
) -> tuple[Tensor, ...]:
    """Undo `yuv_to_rgb`: convert R'G'B' (..., 3, H, W) to planes on the 0-255 scale, each at its own size,
    without alpha or clipping.
    """
    encode, offset = _encoding(format, tags, height)
    planes = _combine(
        encode[:1] if format.family == "gray" else encode, rgb.unbind(-3), offset
    )
    if format.family == "yuv":
        planes[1:] = [downsample_chroma(plane, format, tags) for plane in planes[1:]]
    return tuple(planes)


# Luma and two colour differences of R, G, B, each of the same range, by orthogonal rows: white noise stays
# white and independent, weaker by the norm of a row (K. Dabov et al., "Color image denoising via sparse 3D
# collaborative filtering with grouping constraint in luminance-chrominance space", ICIP 2007).
OPPONENT = np.array(
    [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 0.0, -1 / 2], [1 / 4, -1 / 2, 1 / 4]]
)
OPPONENT_NORMS = tuple(np.linalg.norm(OPPONENT, axis=1).tolist())
_OPPONENT_OFFSET = np.array([0.0, 127.5, 127.5])


def rgb_to_opponent(planes: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Convert planes R, G, B on the 0-255 scale to luma and two colour differences on that scale."""
    return tuple(_combine(OPPONENT, planes, _OPPONENT_OFFSET))


def opponent_to_rgb(planes: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Undo `rgb_to_opponent`."""
    decode = np.linalg.inv(OPPONENT)
    return tuple(_combine(decode, planes, -decode @ _OPPONENT_OFFSET))


def _combine(rows: Matrix, channels: Sequence[Tensor], offset: Matrix) -> list[Tensor]:
    """Return rows @ channels + offset in float32; a matrix product could use TF32 or bf16."""
    sums = []
    for row, shift in zip(rows.tolist(), offset.tolist(), strict=False):
        # terms of weight 0 are left out
        (first, weight), *terms = [
            term for term in zip(channels, row, strict=True) if term[1]
        ]
        total = first * weight + shift
        for channel, weight in terms:
            total = total.add_(channel, alpha=weight)
        sums.append(total)
    return sums


def _encoding(
    format: PixelFormat, tags: ColourTags, height: int
) -> tuple[Matrix, Matrix]:
    """Return (3, 3) and (3,) of planes = matrix @ rgb + offset; rgb in [0, 1], planes on the 0-255 scale."""
    # which samples are black, and how far luma and chroma reach
    matrix = matrix_of(format, tags, height)
    # chroma ranges from -0.5 to 0.5 around 128; without chroma all three planes are like luma
    coloured = matrix != IDENTITY
    is_full = tags.range == FULL if tags.range else format.family != "yuv"
    if is_full or format.name.startswith("yuvj"):
        black = 0.0
        luma = 255.0 if format.depth == 32 else (2**format.depth - 1) / format.unit
        chroma = luma
    else:
        black, luma = 16.0, 219.0
        # in H.273, Cg and Co are computed from limited-range R, G, B
        chroma = 224.0 if matrix in LUMA_WEIGHTS else luma
    centre = 128.0 if coloured else black
    scales = np.array([[luma], [chroma], [chroma]])
    return scales * _rows(format, matrix), np.array([black, centre, centre])


def _rows(format: PixelFormat, matrix: int) -> Matrix:
    """Return the matrix from analogue R, G, B in [0, 1] to luma and chroma."""
    if format.family == "rgb":
        return np.eye(3)
    if matrix == IDENTITY:
        return np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])  # G, B, R
    if matrix == YCGCO:
        return np.array([[0.25, 0.5, 0.25], [-0.25, 0.5, -0.25], [0.5, 0.0, -0.5]])
    red, blue = LUMA_WEIGHTS[matrix]
    luma = np.array([red, 1 - red - blue, blue])
    cb = (np.array([0, 0, 1]) - luma) / (2 * (1 - blue))
    cr = (np.array([1, 0, 0]) - luma) / (2 * (1 - red))
    return np.stack([luma, cb, cr])


def matrix_of(format: PixelFormat, tags: ColourTags, height: int) -> int:
    """Return the tagged matrix (ITU-T H.273), or the one that players assume for frames of `height` lines.
    Raises MediaError for an unknown matrix.
    """
    if format.family == "rgb":
        return IDENTITY
    if tags.matrix == UNSPECIFIED or (
        format.family == "gray" and tags.matrix not in LUMA_WEIGHTS
    ):
        return 1 if height >= 720 else 6
    if tags.matrix not in (IDENTITY, YCGCO, *LUMA_WEIGHTS):
        raise MediaError(
            f"colour matrix {tags.matrix} (ITU-T H.273) can't be turned into RGB; the matrices known are "
            f"{sorted((IDENTITY, YCGCO, *LUMA_WEIGHTS))}. If the tag is wrong, correct it in the source, "
            "for H.264 with ffmpeg's -bsf:v h264_metadata=matrix_coefficients=1"
        )
    return tags.matrix


def upsample_chroma(
    plane: Tensor, format: PixelFormat, tags: ColourTags, height: int, width: int
) -> Tensor:
    """Interpolate a chroma plane (..., h, w) at every luma sample (..., height, width): bilinear at the true
    sites, the border replicated.
    """
    # down, then across
    for dim, length, (step, site) in zip(
        (-2, -1), (height, width), chroma_grid(format, tags), strict=True
    ):
        if step > 1:
            taps = _taps(
                length, 1 / step, -site / step, plane.shape[dim], 1, plane.device
            )
            plane = _triangle(plane, dim, taps)
    return plane


def downsample_chroma(plane: Tensor, format: PixelFormat, tags: ColourTags) -> Tensor:
    """Resample chroma (..., H, W) to the chroma plane by a triangle filter centred on the true sites."""
    for dim, (step, site) in zip((-2, -1), chroma_grid(format, tags), strict=True):
        if step > 1:
            count = -(-plane.shape[dim] // step)
            plane = _triangle(
                plane,
                dim,
                _taps(count, step, site, plane.shape[dim], step, plane.device),
            )
    return plane


def chroma_grid(format: PixelFormat, tags: ColourTags) -> list[tuple[int, float]]:
    """Return luma samples per chroma sample, and the first one's position in them; down, then right."""
    steps = (1 << format.chroma_height_shift, 1 << format.chroma_width_shift)
    shares = CHROMA_SITES[tags.chroma_location or LEFT]
    return [
        (step, (step - 1) * share) for step, share in zip(steps, shares, strict=True)
    ]


Taps = list[tuple[Tensor, Tensor]]  # indices of samples (count,) and weights (count, 1)


@lru_cache(TAPS_KEPT)
@torch.inference_mode(False)
def _taps(
    count: int,
    step: float,
    first: float,
    length: int,
    radius: int,
    device: torch.device,
) -> Taps:
    """Return the taps of `count` positions, from `first` on and `step` apart, among `length` samples, by a
    triangle of half-width `radius`; the weights of a position sum to one.
    """
    positions = torch.arange(count, dtype=torch.float32, device=device) * step + first
    start = (positions - radius).floor().long() + 1
    taps: Taps = []
    # weights of a triangle around each position
    for number in (start + tap for tap in range(2 * radius)):
        weights = (1 - (number - positions).abs() / radius).clamp(min=0) / radius
        taps.append((number.clamp(0, length - 1), weights[:, None]))
    return taps


def _triangle(plane: Tensor, dim: int, taps: Taps) -> Tensor:
    """Resample `plane` along `dim`, -1 or -2."""
    total: Tensor | None = None
    for number, weight in taps:
        term = plane.index_select(dim, number) * (weight if dim == -2 else weight[:, 0])
        total = term if total is None else total.add_(term)
    assert total is not None
    return total
