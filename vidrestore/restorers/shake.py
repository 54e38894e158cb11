"""Undo the blur of a shaken camera by deconvolution with its kernel, if a believable one is estimated.

Three questions decide what happens to a picture. Is it soft? By its structure function: the mean square
difference of pixels 2 apart over that of pixels 6 apart is 0.3 to 0.6 if it is sharp, and 0.1 to 0.2 along
the motion. Is there a kernel (`models.deconvolution`), longer than a lens's own blur? Is the picture that it
gives believable? A wrong kernel leaves ripples: light below black or above white, and more detail in one
direction than sharp pictures have.

Blur adds light up, and how a camera stores light isn't known of a photograph: of a few responses the one is
taken by which the picture is explained (`responses_of`). Video is taken for the 2.2th root of light.

A sharp picture stays as it is, bit for bit. A photograph with an even blur is restored by its kernel alone.
A frame of a video, whose blur is seldom even, and an uneven photograph become a mix of that and the
network's result; the kernels of neighbouring frames count as well, so that sharpness doesn't flicker. A soft
picture without a kernel is left to the network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain, combinations, pairwise, product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.models.alignment import LUMA
from vidrestore.models.deconvolution import (
    CLIPPED,
    canvas_side,
    centroid,
    kernel_of,
    scaled_kernel,
    sharpened,
    transfer,
)
from vidrestore.noise.meter import even_share
from vidrestore.noise.white import (
    BLOCK_SIDE,
    BLOCKS_PER_FRAME,
    BlockSet,
    clipping_bounds,
    noise_variance,
)
from vidrestore.pixels.linear_light import Response, from_light, to_light
from vidrestore.pixels.tiling import blend_window, tile_spans
from vidrestore.restorers.picture_restorer import PictureRestorer, PreparedClip
from vidrestore.settings.options import RestoreOptions
from vidrestore.working import steps

METHOD = "deconvolution"
DRAWN_SHARE = 0.5  # of blocks of one value, from which a picture is drawn
NEAR, FAR, DIRECTIONS = 2.0, 6.0, 16  # distances in pixels of the structure function
SOFT_RATIO = 0.25  # ratio from which no kernel is searched for
SOFTER = (0.18, 0.22)  # ratios between which the share of the network falls to nothing
# most that softness and a kernel are estimated from
RATIO_PIXELS, KERNEL_PIXELS = 3_000_000, 500_000
FRAME_PIXELS = 120_000  # the same for the kernel of a video's frame
KERNEL_SIDE = 31  # of kernels, in pixels of the picture that they are estimated from
# parts of that picture that have kernels of their own: side, overlap on each side
PART, MARGIN = 240, 32
# weights of sparsity to try for a kernel; the first alone for frames
SPARSITIES = (1.2e-2, 4e-3, 3e-2)
# Least pixels along the motion, standard deviation, of a photograph's kernel and of a frame's: lenses and
# sensors blur less.
LEAST_SPREAD, LEAST_FRAME_SPREAD = 1.25, 1.5
# most of the product of the spreads along and across: more fills the window, as no path does
WIDEST = 52.0
STRAY = 0.02  # light below black or above white, beyond which a sample strays
# shares of samples: of a believable kernel, of one beyond doubt
MOST_STRAYS, FEW_STRAYS = 0.05, 0.005
# largest ratios of a believable result; of one with few strays
MOST_DETAIL, RICH_DETAIL = 0.55, 0.65
# of the least light within the reach of the kernel: darker results are ripples
DARKEST = 0.2
# of the deconvolution; noise in grey levels above which it is lower
STRENGTH, WEAK_NOISE = 2e3, 1.6
UNEVEN_STRENGTH = 0.5  # of that, if the result has more than few strays
TILE, CACHED = 1024, 32  # side in pixels of what is deconvolved at once; frames
LEAST_SIDE = 96  # pixels; smaller pictures are left to the network
# least correlations of kernels: of neighbouring frames to average, of searches that agree; of like halves
ALIKE, EVEN = 0.85, 0.94
EVEN_SPREAD = 1.12  # largest ratio of the spreads of like halves
# least correlation of an enlarged kernel with what is estimated from it, from which the latter is taken
STEADY = 0.9
# pixels at a window's edge; share of the light there from which a kernel is cut off
EDGE, CUT_OFF = 2, 0.03
# How cameras store light: as video does, with much contrast, and as it is (scientific pictures). A kernel
# that is searched for in the middle of the first two is near that of either.
CAMERA, CONTRASTY, LINEAR = Response(), Response(contrast=1.6), Response(power=1.0)
MIDDLE = Response(contrast=1.35)
# Frequencies that a kernel takes away: the most of them that is left, and the least and most cycles per pixel
# at half the size. Without so many of them a picture tells nothing about its response.
QUIET_SHARE, QUIET_FREQUENCIES, LEAST_QUIET = 0.06, (0.03, 0.3), 20
# ratio of quiet powers, up to which responses are tried; CONTRASTY is less likely by that
CLOSE_POWERS = 1.2
RESPONSE_RELUCTANCE = 2  # factor of the strays of each less likely response
FRAME_SHARE = 0.3  # of the deconvolution in a frame of a video


class Shake(NamedTuple):
    """The blur of a picture."""

    softness: float  # least ratio of its structure function
    # (rows, columns, side, side) of an even grid; None if none is believable
    kernels: Tensor | None = None
    strength: float = STRENGTH
    is_even: bool = True  # both halves of the picture have like kernels
    response: Response = CAMERA
    is_hopeless: bool = False  # soft, but no kernel is believable
    is_short: bool = False  # a frame that is blurred by no more than its lens

    @property
    def network_share(self) -> float:
        """The share of the network's result in a frame without a kernel."""
        least, most = SOFTER
        return min(1.0, max(0.0, (most - self.softness) / (most - least)))


class ShakeRestorer(PictureRestorer):
    """The default restorer of `deblur`."""

    def __init__(self, options: RestoreOptions) -> None:
        super().__init__("deblur", options)
        name, weights = self.facts.name, self.facts.weights
        digest = sha256(f"{METHOD}{weights}".encode()).hexdigest()
        self.facts = replace(
            self.facts,
            name=f"{METHOD}+{name}",
            weights=digest,
            files=((name, weights),),
        )

    def _restored(self, clip: PreparedClip, indices: Sequence[int]) -> Tensor:
        """Return some frames (N, 3, H, W) of a clip, restored or unchanged, by their blur and that of their
        neighbours.
        """
        windows = [self.window(index, len(clip.frames)) for index in indices]
        halves = steps(("search", "restore"))  # of the progress
        next(halves)
        shakes = self.cached(clip, chain(*windows), self._shakes, CACHED)
        next(halves)
        results = [
            self._result(clip, index, [shakes[neighbour] for neighbour in window])
            for index, window in zip(steps(indices), windows, strict=True)
        ]
        return torch.stack(results)

    def _shakes(self, clip: PreparedClip, indices: Sequence[int]) -> list[Shake]:
        is_photo = len(clip.frames) == 1
        return [
            shake_of(clip.frames[index].to(self.device), is_photo=is_photo)
            for index in steps(indices)
        ]

    def _result(
        self, clip: PreparedClip, index: int, window: Sequence[Shake]
    ) -> Tensor:
        """Return a restored frame; the middle of `window` is its blur, the others those of its neighbours."""
        source, shake = clip.frames[index].to(self.device), window[len(window) // 2]
        length = 0.0 if shake.kernels is None else length_of(shake.kernels.mean((0, 1)))
        clip.cache.shakes[clip.first + index] = length
        if len(clip.frames) == 1 and shake.is_even and shake.kernels is not None:
            return undone(source, shake)
        agreement = sum(other.kernels is not None for other in window) / len(window)
        shake = (
            _with_neighbours(source, shake, window)
            if agreement and shake.softness < SOFT_RATIO
            else shake
        )
        agreement = agreement if shake.kernels is not None else 0.0
        if not (agreement or shake.network_share):
            if shake.is_hopeless:
                clip.cache.hopeless.add(clip.first + index)
            return source
        (result,) = super()._restored(clip, [index])
        blend = source.lerp(result, shake.network_share)
        if not agreement:
            return blend
        return blend.lerp(result.lerp(undone(source, shake), FRAME_SHARE), agreement)


def deblurrer(options: RestoreOptions) -> PictureRestorer:
    """Return the restorer of `deblur`; weights that the user names work alone."""
    return (
        ShakeRestorer(options)
        if options.model is None
        else PictureRestorer("deblur", options)
    )


def _with_neighbours(source: Tensor, shake: Shake, window: Sequence[Shake]) -> Shake:
    """Return a frame's blur, its kernel averaged with similar ones of its neighbours; if it has none, with
    the first of theirs that is believable for it. A neighbour's is too long for a frame with a short one.
    """
    neighbours = [
        (other.kernels, other.strength) for other in window if other.kernels is not None
    ]
    if shake.kernels is not None:
        alike = [
            kernels
            for kernels, _ in neighbours
            if _likeness(shake.kernels, kernels) >= ALIKE
        ]
        return shake._replace(kernels=torch.stack(alike).mean(0))
    if shake.is_short:
        return shake
    light = to_light(busiest(source, FRAME_PIXELS))
    for kernels, strength in neighbours:
        if strays(light, kernels[0, 0], strength) < MOST_STRAYS:
            return shake._replace(kernels=kernels, strength=strength)
    return shake


def _likeness(kernels: Tensor, reference: Tensor) -> float:
    """Return the correlation of slightly blurred kernels (1, 1, side, side); 0 if their sizes differ."""
    if reference.shape != kernels.shape:
        return 0.0
    one, other = (F.avg_pool2d(kernel, 3, 1, 1) for kernel in (kernels, reference))
    return float((one * other).sum() / (one.norm() * other.norm()))


def shake_of(picture: Tensor, *, is_photo: bool = True) -> Shake:
    """Return the blur of a picture (3, H, W), R'G'B' in [0, 1]; frames of a clip get less time."""
    if min(picture.shape[1:]) < LEAST_SIDE:
        return Shake(0.0)
    pictures = [picture]
    while pictures[-1][0].numel() > RATIO_PIXELS:
        pictures.append(halved(pictures[-1]))
    noise = noise_of(pictures[-1])
    softness = least_ratio(pictures[-1], noise)
    limit = (
        SOFT_RATIO if noise <= WEAK_NOISE else SOFTER[1]
    )  # noise yields false kernels
    if softness >= limit:
        return Shake(softness)
    # the kernel, at a size that its window is wide enough for
    while (
        pictures[-1][0].numel() > KERNEL_PIXELS
        and least_ratio(small := halved(pictures[-1])) < SOFT_RATIO
    ):
        pictures.append(small)
    strength = STRENGTH * min(1.0, WEAK_NOISE / max(noise, 0.1)) ** 2
    if not is_photo:
        return _shake_of_frame(pictures[-1], strength, Shake(softness))
    stray, kernel, response, is_alone = _search(pictures[-1], strength)
    if edge_share(kernel) > CUT_OFF and min(pictures[-1].shape[1:]) >= 2 * LEAST_SIDE:
        smaller = halved(pictures[-1])
        result = _search(smaller, strength)
        if result.strays < stray and edge_share(result.kernel) <= CUT_OFF:
            pictures.append(smaller)
            stray, kernel, response, is_alone = result
    if stray > MOST_STRAYS or spreads(kernel)[0] < LEAST_SPREAD:
        return Shake(softness, is_hopeless=stray > MOST_STRAYS)
    # kernels of the parts, if one for all isn't beyond doubt, and then at the picture's size
    kernels, light = (
        kernel[None, None],
        response.to_light(busiest(pictures.pop(), KERNEL_PIXELS)),
    )
    is_even = _is_even(light, least_pixels=0 if is_alone else 2 * PART**2)
    if stray > FEW_STRAYS:
        strength *= UNEVEN_STRENGTH
        parts = [max(1, round(side / PART)) for side in light.shape[1:]]
        kernels = refined(light, kernel.expand(*parts, -1, -1), strength, enlarge=False)
    if pictures:
        kernels = refined(
            response.to_light(pictures.pop()), kernels, strength, enlarge=True
        )
    for _ in pictures:  # a kernel of 61 pixels is fine enough to be enlarged
        side = 2 * kernels.shape[-1] - 1
        larger = [scaled_kernel(part, 2.0, side) for part in kernels.flatten(0, 1)]
        kernels = torch.stack(larger).view(*kernels.shape[:2], side, side)
    return Shake(softness, kernels, strength, is_even, response)


def _shake_of_frame(picture: Tensor, strength: float, shake: Shake) -> Shake:
    """Return the blur of a video's frame (3, H, W): a kernel of its busiest part, if in the whole frame it is
    beyond doubt; else that or one of the whole frame, whichever has fewer strays.
    """
    light, part = (
        to_light(busiest(picture, pixels)) for pixels in (KERNEL_PIXELS, FRAME_PIXELS)
    )
    searches = list[tuple[float, Tensor]]()
    for region in (part, light) if part.shape != light.shape else (light,):
        kernel = kernel_of(luma_of(region), KERNEL_SIDE, SPARSITIES[0])
        if spreads(kernel)[0] < LEAST_FRAME_SPREAD:
            return shake._replace(is_short=True)
        searches.append((strays(light, kernel, strength), kernel))
        if searches[-1][0] <= FEW_STRAYS:
            break
    stray, kernel = min(searches, key=lambda search: search[0])
    if stray > MOST_STRAYS:
        return shake._replace(is_hopeless=True)
    strength *= UNEVEN_STRENGTH if stray > FEW_STRAYS else 1
    return shake._replace(kernels=kernel[None, None], strength=strength)


class KernelSearch(NamedTuple):
    """A kernel (side, side) that was found with a response, and the strays of its result."""

    strays: float
    kernel: Tensor
    response: Response
    is_alone: bool = False  # doubtful, and other weights of sparsity gave other kernels


def _search(picture: Tensor, strength: float) -> KernelSearch:
    """Return the kernel of a photograph (3, H, W), with the response by which it is most believable."""
    part = busiest(picture, KERNEL_PIXELS)
    best, doubt = None, 1
    middle = half_kernel(part, MIDDLE)
    for response in responses_of(part, middle):
        first = half_kernel(part, response) if response == LINEAR else middle
        result = _searched(part, response, strength, SPARSITIES[0], first)
        best = result if best is None or doubt * result.strays < best.strays else best
        doubt *= RESPONSE_RELUCTANCE
        if best.strays <= FEW_STRAYS:
            break
    assert best is not None
    if best.strays <= FEW_STRAYS:
        return best
    others = [
        _searched(part, best.response, strength, sparsity)
        for sparsity in SPARSITIES[1:]
    ]
    return agreed([best, *others])


def agreed(results: Sequence[KernelSearch]) -> KernelSearch:
    """Return the result with the fewest strays of those whose kernel another one has as well.

    Strays alone prefer short kernels, which change little. A wrong kernel depends on the weight of sparsity.
    """
    pairs = [
        pair
        for pair in combinations(results, 2)
        if _shifted_likeness(pair[0].kernel, pair[1].kernel) >= ALIKE
    ]
    best = min(chain(*pairs) if pairs else results, key=lambda result: result.strays)
    return best._replace(is_alone=not pairs)


def _searched(
    picture: Tensor,
    response: Response,
    strength: float,
    sparsity: float,
    first: Tensor | None = None,
) -> KernelSearch:
    light = response.to_light(picture)
    kernel = kernel_of(luma_of(light), KERNEL_SIDE, sparsity, first)
    return KernelSearch(strays(light, kernel, strength), kernel, response)


def half_kernel(picture: Tensor, response: Response) -> Tensor:
    """Return the kernel of a picture (3, H, W) at half its size."""
    return kernel_of(
        luma_of(halved(response.to_light(picture))),
        KERNEL_SIDE // 4 * 2 + 3,
        SPARSITIES[0],
    )


def responses_of(picture: Tensor, kernel: Tensor) -> list[Response]:
    """Return the responses by which a picture (3, H, W) may be stored, the likeliest first; `kernel` is that
    of the picture at half its size.

    Blur adds light up: in light there is only noise at the frequencies that the kernel takes away, in other
    values there are products of other frequencies.
    """
    light = halved(CAMERA.to_light(picture))
    rows, columns = (
        torch.fft.fftfreq(side, device=light.device) for side in light.shape[1:]
    )
    radius = torch.hypot(rows[:, None], columns[None, : light.shape[2] // 2 + 1])
    least, most = QUIET_FREQUENCIES
    quiet = (
        (transfer(kernel, light).abs() < QUIET_SHARE)
        & (radius > least)
        & (radius < most)
    )
    if int(quiet.sum()) < LEAST_QUIET:
        return [CAMERA, CONTRASTY]
    powers = {
        response: quiet_power(picture, quiet, response)
        for response in (CAMERA, CONTRASTY, LINEAR)
    }
    powers[CONTRASTY] *= CLOSE_POWERS
    responses = sorted(powers, key=lambda response: powers[response])
    return [
        response
        for response in responses
        if powers[response] <= CLOSE_POWERS * powers[responses[0]]
    ]


def quiet_power(picture: Tensor, quiet: Tensor, response: Response) -> float:
    """Return how strong a picture (3, H, W) is at the `quiet` frequencies (h, w / 2 + 1) of half its size:
    the geometric mean of its light's power there, in units of the power of noise of one stored grey level.
    """
    light, stored = halved(response.to_light(picture)), halved(picture)
    level = response.to_light(stored + 0.5 / 255) - response.to_light(
        stored - 0.5 / 255
    )
    down, across = (
        torch.hann_window(side, device=light.device) for side in light.shape[1:]
    )
    window = down[:, None] * across
    spectrum = torch.fft.rfft2((light - light.mean((1, 2), keepdim=True)) * window)
    power = spectrum.abs().square().sum(0)[quiet].clamp(min=1e-12)
    return float(
        power.log().mean().exp() / (level * window).square().sum().clamp(min=1e-12)
    )


def edge_share(kernel: Tensor) -> float:
    """Return the share of a kernel's light within EDGE pixels of its window's edge."""
    return 1 - float(kernel[EDGE:-EDGE, EDGE:-EDGE].sum())


def _is_even(light: Tensor, least_pixels: int) -> bool:
    """Return True if both halves of `light` (3, H, W) have like kernels, or it has too few pixels to tell."""
    if light[0].numel() < least_pixels:
        return True
    axis = 1 if light.shape[1] > light.shape[2] else 2
    length = light.shape[axis] * 5 // 8
    halves = (
        light.narrow(axis, 0, length),
        light.narrow(axis, light.shape[axis] - length, length),
    )
    first, second = dealt(
        lambda half: kernel_of(luma_of(half), KERNEL_SIDE, SPARSITIES[0]), halves
    )
    shorter, longer = sorted((spreads(first)[0], spreads(second)[0]))
    if longer > EVEN_SPREAD * shorter:
        return False
    return _shifted_likeness(first, second) >= EVEN


def _shifted_likeness(first: Tensor, second: Tensor) -> float:
    """Return the likeness of kernels (side, side) after the best shift by a pixel at most."""
    rolled = (second.roll(shift, (0, 1)) for shift in product((-1, 0, 1), repeat=2))
    return max(_likeness(first[None, None], kernel[None, None]) for kernel in rolled)


def refined(
    light: Tensor, kernels: Tensor, strength: float, *, enlarge: bool
) -> Tensor:
    """Return the kernels of the parts of `light` (3, H, W), estimated from `kernels`; with `enlarge` these
    are of the picture at half its size.
    """
    rows, columns, side = kernels.shape[:3]
    grid = [
        spans_of(length, count, MARGIN)
        for length, count in zip(light.shape[1:], (rows, columns), strict=True)
    ]
    side = 2 * side - 1 if enlarge else side
    results = []
    for (down, across), kernel in zip(
        steps(list(product(*grid))), kernels.flatten(0, 1), strict=True
    ):
        part = busiest(light[:, slice(*down), slice(*across)], KERNEL_PIXELS)
        small = kernel if enlarge else scaled_kernel(kernel, 0.5, side // 4 * 2 + 1)
        result = kernel_of(luma_of(part), side, SPARSITIES[0], small)
        if enlarge:
            # detail of the larger picture sharpens the path of a kernel, but doesn't lead it elsewhere
            coarse = scaled_kernel(kernel, 2.0, side)
            is_worse = _shifted_likeness(coarse, result) < STEADY
        else:
            coarse, most = kernel, max(FEW_STRAYS, strays(part, kernel, strength))
            is_worse = strays(part, result, strength) > most
        results.append(coarse if is_worse else result)
    return torch.stack(results).view(rows, columns, side, side)


def spans_of(length: int, count: int, margin: int) -> list[tuple[int, int]]:
    """Return [start, stop) of `count` even parts of a side, with a margin within the side."""
    edges = [round(number * length / count) for number in range(count + 1)]
    return [
        (max(0, start - margin), min(length, stop + margin))
        for start, stop in pairwise(edges)
    ]


def undone(picture: Tensor, shake: Shake) -> Tensor:
    """Return a picture (3, H, W) deconvolved in parts that are blended, on the same device."""
    # parts of the kernels' grid, each cut where the picture is large, with a margin to blend in
    assert shake.kernels is not None
    kernels = trimmed(shake.kernels)
    light, margin = shake.response.to_light(picture), kernels.shape[-1]
    total, weights = torch.zeros_like(light), torch.zeros_like(light[:1])
    rows, columns = (
        [
            spans_of(side, max(parts, -(-side // TILE)), reach)
            for reach in (margin, 2 * margin)
        ]
        for side, parts in zip(light.shape[1:], kernels.shape[:2], strict=True)
    )
    for row, column in steps(
        list(product(range(len(rows[0])), range(len(columns[0]))))
    ):
        kernel = kernels[
            row * len(kernels) // len(rows[0]),
            column * kernels.shape[1] // len(columns[0]),
        ]
        (top, bottom), (highest, lowest) = (spans[row] for spans in rows)
        (left, right), (first, last) = (spans[column] for spans in columns)
        sharp = sharpened(light[:, highest:lowest, first:last], kernel, shake.strength)
        window = blend_window(bottom - top, right - left, 2 * margin).to(light.device)
        total[:, top:bottom, left:right] += (
            window
            * sharp[:, top - highest : bottom - highest, left - first : right - first]
        )
        weights[:, top:bottom, left:right] += window
    # ringing would be darker than anything around it
    sharp = torch.maximum(total / weights, DARKEST * least_around(light, margin // 2))
    return shake.response.from_light(sharp)


def trimmed(kernels: Tensor) -> Tensor:
    """Return kernels (..., side, side) without the border where all are 0."""
    middle = kernels.shape[-1] // 2
    reach = int((kernels.flatten(0, -3).amax(0).nonzero() - middle).abs().max())
    inner = slice(middle - reach, middle + reach + 1)
    return kernels[..., inner, inner]


def least_around(light: Tensor, reach: int) -> Tensor:
    """Return the least light (3, H, W) within `reach` pixels of each, down and across, or up to a quarter
    farther: by blocks, since a full search takes a minute in a large photograph.
    """
    side = max(1, reach // 8)
    blocks = -F.max_pool2d(-light[None], side, side, ceil_mode=True)
    blocks = -F.max_pool2d(-blocks, 2 * -(-reach // side) + 1, 1, -(-reach // side))
    return F.interpolate(blocks, scale_factor=float(side))[
        0, :, : light.shape[1], : light.shape[2]
    ]


def strays(light: Tensor, kernel: Tensor, strength: float) -> float:
    """Return the share of samples below black or above white after `light` (3, H, W) is deconvolved.

    It is 1 if the kernel fills its window, or the result has more detail than a sharp picture.
    """
    if math.prod(spreads(kernel)) > WIDEST * (len(kernel) / KERNEL_SIDE) ** 2:
        return 1.0
    sharp = sharpened(light, kernel, strength)
    stray = float(
        ((sharp < -STRAY) | ((sharp > 1 + STRAY) & (light < CLIPPED))).float().mean()
    )
    # few strays are evidence enough for a picture that is rich in detail
    detail = float(ratios(luma_of(from_light(sharp))).max())
    most_detail = RICH_DETAIL if stray <= FEW_STRAYS else MOST_DETAIL
    return stray if detail <= most_detail else 1.0


def luma_of(picture: Tensor) -> Tensor:
    """Return luma (H, W) of a picture (3, H, W), of display values or of light."""
    red, green, blue = (
        weight * plane for weight, plane in zip(LUMA, picture, strict=True)
    )
    luma: Tensor = red + green + blue
    return luma


def noise_of(picture: Tensor) -> float:
    """Return the sigma of white noise in the luma of a picture (3, H, W), in grey levels; 0 for drawings and
    text, whose outlines would pass for noise.
    """
    luma = 255 * luma_of(picture)
    step = max(3, int((luma.numel() / BLOCKS_PER_FRAME) ** 0.5)) | 1
    windows = (
        luma.unfold(0, BLOCK_SIDE, step)
        .unfold(1, BLOCK_SIDE, step)
        .reshape(-1, BLOCK_SIDE**2)
    )
    blocks = windows.cpu().numpy()
    if even_share(blocks) >= DRAWN_SHARE:
        return 0.0
    low, high = clipping_bounds(blocks)
    sample = BlockSet(
        blocks, ((blocks <= low) | (blocks >= high)).mean(axis=1), low, high
    )
    return math.sqrt(noise_variance(blocks, sample)[0])


def least_ratio(picture: Tensor, noise: float = 0.0) -> float:
    """Return the least ratio of a picture (3, H, W): how soft it is along its motion."""
    return float(ratios(luma_of(picture), noise).min())


def ratios(luma: Tensor, noise: float = 0.0) -> Tensor:
    """Return the structure function of luma (H, W) at NEAR over that at FAR pixels, by direction, both less
    the part of `noise` in grey levels.
    """
    reach = math.ceil(FAR) + 1
    size = [canvas_side(side + reach) for side in luma.shape]
    luma = luma - luma.mean()
    ones, values, squares = torch.fft.rfft2(
        torch.stack((torch.ones_like(luma), luma, luma * luma)), size
    )
    pairs = torch.stack(
        (
            2 * (squares.conj() * ones).real - 2 * values.abs().square(),
            ones.abs().square(),
        )
    )
    near_origin = (slice(None), slice(2 * reach + 1), slice(2 * reach + 1))
    sums, counts = torch.fft.irfft2(pairs, size).roll((reach, reach), (1, 2))[
        near_origin
    ]
    # on the CPU, as what is near the origin
    angles = torch.arange(DIRECTIONS) * (math.pi / DIRECTIONS)
    directions = torch.stack((angles.cos(), angles.sin()), -1)[None]
    grid = torch.stack((directions * (NEAR / reach), directions * (FAR / reach)), 1)
    mean = (sums / counts).cpu()[None, None]
    rings = (
        F.grid_sample(mean, grid, mode="bicubic", align_corners=True)[0, 0]
        - 2 * (noise / 255) ** 2
    )
    ratio: Tensor = rings[0].clamp(min=0) / rings[1].clamp(min=1e-9)
    return ratio


def spreads(kernel: Tensor) -> tuple[float, float]:
    """Return the standard deviations of a kernel in pixels along its longest direction and across."""
    line, (row, column) = torch.arange(len(kernel)) - len(kernel) // 2, centroid(kernel)
    down, right = (line - row)[:, None], (line - column)[None]
    matrix = [[down * down, down * right], [down * right, right * right]]
    moments = torch.tensor(
        [
            [float((kernel * product).sum()) for product in products]
            for products in matrix
        ]
    )
    across, along = torch.linalg.eigvalsh(moments).clamp(min=0).sqrt().tolist()
    return along, across


def length_of(kernel: Tensor) -> float:
    """Return the length in pixels of the uniform motion that has the spread of a kernel."""
    return 12**0.5 * spreads(kernel)[0]


def halved(picture: Tensor) -> Tensor:
    """Return a picture (3, H, W) at half its size."""
    return F.avg_pool2d(picture, 2)


def busiest(picture: Tensor, pixels: int) -> Tensor:
    """Return the part (3, h, w) of a picture that has the most detail, of at most so many pixels."""
    height, width = picture.shape[1:]
    scale = min(1.0, (pixels / (height * width)) ** 0.5)
    if scale == 1:
        return picture
    luma = luma_of(picture)
    detail = luma.diff(dim=0)[:, :-1].abs() + luma.diff(dim=1)[:-1].abs()
    tops, lefts = (
        tile_spans(side, int(side * scale), int(side * scale) // 2)
        for side in (height, width)
    )
    places = [(slice(*rows), slice(*columns)) for rows, columns in product(tops, lefts)]
    means = torch.stack([detail[place].mean() for place in places])
    return picture[:, *places[int(means.argmax())]]
