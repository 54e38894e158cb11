"""Align the neighbours of a frame with it: dense motion by block matching from coarse to fine, and a warp.

Every level of a pyramid of luma compares each pixel's surroundings with those around where the coarser level
points, refines the best shift by a parabola, and takes the median of its neighbours. Differences are capped,
so that rain or snow in a few pixels of a block doesn't decide. Where the picture fits as well without motion,
the motion is 0, so that weather isn't followed. Nothing is learnt.

    clip = aligned(clip)    # (B, T, 3, H, W), every frame as the middle one sees the scene
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.fast_maps import (
    CPU_STRIP,
    Span,
    in_one_piece,
    is_traced,
    spans,
)
from vidrestore.models.matching import maps_of_means, median_of_nine
from vidrestore.models.spynet import warp

# Chosen on training clips, clean and with drawn rain and snow, by the PSNR of the clean frame after the warp.
LUMA = (0.299, 0.587, 0.114)
LEVELS = 6  # pyramid levels, each half the size of the one before
# levels from full size that search by 1 pixel and not by 2: motion is known by then
FINE = 2
RADIUS = 3  # pixels; blocks reach as far on each side
FULL_RADIUS = 4  # pixels at full size
CAP = 0.15  # largest difference of luma in [0, 1] that counts
RELUCTANCE = 0.002  # difference of luma that a shift by a pixel must save
WINDOW_SPREAD = 1.5  # pixels; standard deviation of the windows of least squares
LEAST_SLOPE = 3e-5  # squared slope of luma that is added, so that flat areas don't move
HALF_STEPS, FULL_STEPS = 3, 5  # steps of least squares
# no motion if its difference is at most this many times that of the motion found
STILL = 1.1
STILL_RADIUS = 7  # pixels; of the blocks that decide it


def aligned(clips: Tensor) -> Tensor:
    """Return clips (B, T, 3, H, W) in [0, 1] with every frame warped onto the middle one."""
    frames = list(clips.unbind(1))
    middle = len(frames) // 2
    neighbours = frames[:middle] + frames[middle + 1 :]
    pictures = torch.cat(neighbours).float()
    reference = luma_of(frames[middle].float())
    references = reference.repeat(len(neighbours), 1, 1, 1)
    motion = dense_motion(references, luma_of(pictures))
    warped = (
        warp(pictures, motion, border="border").to(clips.dtype).chunk(len(neighbours))
    )
    return torch.stack([*warped[:middle], frames[middle], *warped[middle:]], 1)


def dense_motion(references: Tensor, neighbours: Tensor) -> Tensor:
    """Return (B, 2, H, W), x then y in pixels: where each pixel of `references`, luma (B, 1, H, W), lies in
    `neighbours`.
    """
    height, width = references.shape[-2:]
    multiple = 2 ** (LEVELS - 1)
    beyond = (0, -width % multiple, 0, -height % multiple)
    reference, neighbour = (
        _pyramid(F.pad(picture, beyond, mode="replicate"))
        for picture in (references, neighbours)
    )
    flow = reference[-1].new_zeros(len(references), 2, *reference[-1].shape[-2:])
    for level in reversed(range(LEVELS)):
        if level < LEVELS - 1:
            flow = 2 * F.interpolate(
                flow, scale_factor=2.0, mode="bilinear", align_corners=False
            )
        flow = _refined(reference[level], neighbour[level], flow, level)
    flow = flow * ~_fits_still(reference[0], neighbour[0], flow)
    return flow[..., :height, :width]


def subpixel_motion(references: Tensor, neighbours: Tensor) -> Tensor:
    """Return the motion of pictures (B, 3, H, W) as `dense_motion` does, found at half size and refined at
    both sizes by least squares (B. Lucas, T. Kanade, 1981). For small, clean pictures; all motion is
    followed.
    """
    height, width = references.shape[-2:]
    beyond = (0, width % 2, 0, height % 2)
    reference, neighbour = (
        F.pad(luma_of(picture.float()), beyond, mode="replicate")
        for picture in (references, neighbours)
    )
    small = (F.avg_pool2d(reference, 2), F.avg_pool2d(neighbour, 2))
    flow = _least_squares(*small, dense_motion(*small), HALF_STEPS)
    flow = 2 * F.interpolate(
        flow, scale_factor=2.0, mode="bilinear", align_corners=False
    )
    return _least_squares(reference, neighbour, flow, FULL_STEPS)[..., :height, :width]


def _least_squares(
    reference: Tensor, neighbour: Tensor, flow: Tensor, steps: int
) -> Tensor:
    """Return the flow (B, 2, h, w) of luma (B, 1, h, w) after steps of least squares in Gaussian windows."""
    right, down = _slopes(reference)
    xx, xy, yy = _smoothed(
        torch.cat((right * right, right * down, down * down), 1)
    ).split(1, 1)
    xx, yy = xx + LEAST_SLOPE, yy + LEAST_SLOPE
    determinant = xx * yy - xy * xy
    for _ in range(steps):
        error = warp(neighbour, flow, border="border", mode="bicubic") - reference
        x, y = _smoothed(torch.cat((right * error, down * error), 1)).split(1, 1)
        flow = flow - (
            torch.cat((yy * x - xy * y, xx * y - xy * x), 1) / determinant
        ).clamp_(-1, 1)
    return flow


def _slopes(pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Return the slopes of pictures (B, C, H, W) to the right and down, per pixel."""
    height, width = pictures.shape[-2:]
    padded = F.pad(pictures, (2, 2, 2, 2), mode="replicate")

    def slope(cut: Callable[[int], Tensor]) -> Tensor:
        return (8 * (cut(3) - cut(1)) - (cut(4) - cut(0))) / 12

    return (
        slope(lambda offset: padded[..., 2:-2, offset : offset + width]),
        slope(lambda offset: padded[..., offset : offset + height, 2:-2]),
    )


def _smoothed(maps: Tensor) -> Tensor:
    """Return maps (B, C, h, w) after a Gaussian of WINDOW_SPREAD pixels."""
    reach = math.ceil(3 * WINDOW_SPREAD)
    line = torch.arange(-reach, reach + 1, device=maps.device, dtype=maps.dtype)
    kernel = (-(line**2) / (2 * WINDOW_SPREAD**2)).exp()
    channels = int(maps.shape[1])
    kernel = (kernel / kernel.sum()).expand(channels, 1, 1, 2 * reach + 1)
    wide = F.conv2d(
        F.pad(maps, (reach, reach, 0, 0), mode="replicate"), kernel, groups=channels
    )
    columns = kernel.transpose(-1, -2)
    return F.conv2d(
        F.pad(wide, (0, 0, reach, reach), mode="replicate"), columns, groups=channels
    )


def luma_of(pictures: Tensor) -> Tensor:
    """Return luma (B, 1, H, W) of R'G'B' (B, 3, H, W)."""
    red, green, blue = pictures.split(1, 1)
    luma: Tensor = (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])
    return luma


def means_around(maps: Tensor, side: int) -> Tensor:
    """Return the means of maps (B, C, H, W) over squares of an odd side in pixels, inside the picture."""
    height, width = maps.shape[-2:]
    around = F.pad(maps, [side // 2] * 4).flatten(0, 1)
    shares = [_inside(length, side, maps) for length in (height, width)]
    means: Tensor = maps_of_means(around, side).unflatten(0, maps.shape[:2])
    return means / (shares[0][:, None] * shares[1])


def _inside(length: int, side: int, like: Tensor) -> Tensor:
    """Return (length,): the share of the pixels around each of a line that lie on the line."""
    places = torch.arange(length, device=like.device, dtype=like.dtype)
    before, after = (
        places.clamp(max=side // 2),
        (length - 1 - places).clamp(max=side // 2),
    )
    return (before + after + 1) / side


def _pyramid(pictures: Tensor) -> list[Tensor]:
    levels = [pictures]
    while len(levels) < LEVELS:
        levels.append(F.avg_pool2d(levels[-1], 2))
    return levels


def _refined(reference: Tensor, neighbour: Tensor, flow: Tensor, level: int) -> Tensor:
    """Return the flow (B, 2, h, w) of a level after a search around it."""
    height, width = reference.shape[-2:]
    reach = 1 if level < FINE else 2
    radius = FULL_RADIUS if level == 0 else RADIUS
    moved = F.pad(warp(neighbour, flow, border="border"), [reach] * 4, mode="replicate")
    strips = [(0, height)]
    # what stays in the processor's cache
    if reference.device.type == "cpu" and not is_traced():
        strips = spans(
            height, CPU_STRIP // (len(reference) * (2 * reach + 1) ** 2 * width)
        )
    shifts = [_best_shifts(reference, moved, strip, reach, radius) for strip in strips]
    return _median(flow + torch.cat(shifts, 2))


def _best_shifts(
    reference: Tensor, moved: Tensor, strip: Span, reach: int, radius: int
) -> Tensor:
    """Return the shifts (B, 2, rows, w), x then y, of a strip of rows that are moved least differently from
    the reference (B, 1, h, w). `moved`: with `reach` more pixels on each side.
    """
    (start, stop), (height, width), side = strip, reference.shape[-2:], 2 * reach + 1
    first, last = max(0, start - radius), min(height, stop + radius)
    shifted = [
        moved[..., y + first : y + last, x : x + width]
        for y in range(side)
        for x in range(side)
    ]
    beyond = radius, radius, radius - start + first, radius + stop - last
    cost = _block_difference(shifted, reference[:, :, first:last], beyond)
    line = torch.arange(
        -reach, reach + 1, dtype=cost.dtype, device=cost.device
    )  # a copy would wait for a GPU
    lengths = (line[:, None].square() + line.square()).sqrt().flatten()
    cost = cost + RELUCTANCE * lengths[:, None, None]
    least, best = _least(cost)
    row = best.div(side, rounding_mode="floor")
    places = torch.cat((best - side * row, row), 1)
    return places - reach + _subpixel_offsets(cost, least, best, places, side)


def _least(cost: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least cost (B, 1, h, w) of at most 128, (B, N, h, w), and its index as a float.

    `Tensor.min` of a CPU takes five times as long for the index, and floats move four times as many bytes.
    """
    least = cost.amin(1, keepdim=True)
    count, dtype = cost.shape[1], cost.dtype if is_traced() else torch.uint8
    index = torch.arange(count, dtype=dtype, device=cost.device)[:, None, None]
    places = (cost > least).to(dtype).mul_(count).add_(index)
    return least, places.amin(1, keepdim=True).to(cost.dtype)


def _block_difference(
    pictures: Sequence[Tensor], reference: Tensor, beyond: Sequence[int]
) -> Tensor:
    """Return the mean capped differences (B, N, h, w) of N pictures (B, 1, h, w) from a reference over blocks
    around their pixels. `beyond`: by how many blocks reach over the left, right, upper and lower border,
    which is repeated there.
    """
    side = 2 * beyond[0] + 1
    if reference.device.type == "cpu" and not in_one_piece():
        padded = _padded_differences(pictures, reference, beyond)
    else:  # in few launches
        difference = (torch.cat([*pictures], 1) - reference).abs_().clamp_(max=CAP)
        padded = F.pad(difference, beyond, mode="replicate")
    if is_traced():  # an exporter has no strides
        return F.avg_pool2d(padded, side, 1)
    means: Tensor = maps_of_means(padded.flatten(0, 1), side).unflatten(
        0, padded.shape[:2]
    )
    return means


def _padded_differences(
    pictures: Sequence[Tensor], reference: Tensor, beyond: Sequence[int]
) -> Tensor:
    """Return the capped differences of `_block_difference` with their border repeated, each picture's
    written at its place.
    """
    left, right, upper, lower = beyond
    height, width = reference.shape[-2:]
    size = upper + height + lower, left + width + right
    padded = reference.new_empty(len(reference), len(pictures), *size)
    rows = padded[..., upper : upper + height, :]
    inner = rows[..., left : left + width]
    for picture, place in zip(pictures, inner.split(1, 1), strict=True):
        torch.sub(picture, reference, out=place).abs_().clamp_(max=CAP)
    rows[..., :left] = inner[..., :1]
    rows[..., left + width :] = inner[..., -1:]
    padded[..., :upper, :] = rows[..., :1, :]
    padded[..., upper + height :, :] = rows[..., -1:, :]
    return padded


def _subpixel_offsets(
    cost: Tensor, least: Tensor, best: Tensor, places: Tensor, side: int
) -> Tensor:
    """Return the offsets (B, 2, h, w), x then y and at most half a pixel, from the best shift, with the cost
    `least`, to the minimum of a parabola through that and the costs of the shifts beside it; 0 at the border
    of the search: where `places`, its column and row, are 0 or side - 1.
    """
    # a column before and after, a row before and after
    around = _costs_beside(cost, best, (-1, 1, -side, side))
    before, after = around[:, ::2], around[:, 1::2]
    offsets = (
        (before - after) / 2 / (before + after - 2 * least).clamp(min=1e-6)
    ).clamp(-0.5, 0.5)
    # `where` takes ten times as long on a CPU
    return offsets * ((places > 0) & (places < side - 1))


def _costs_beside(cost: Tensor, best: Tensor, steps: Sequence[int]) -> Tensor:
    """Return costs (B, M, h, w) of (B, N, h, w): those of the shifts M `steps` after the best, whose index
    (B, 1, h, w) is a float; any costs where no shifts are.
    """
    batch, count = cost.shape[:2]
    if cost.device.type != "cpu" or is_traced():
        indices = torch.cat([best + step for step in steps], 1).clamp_(0, count - 1)
        return cost.gather(1, indices.long())
    # places in a list of all costs, which is read in half the time
    pixels = cost.shape[2] * cost.shape[3]
    lists = torch.arange(0, cost.numel(), count * pixels, dtype=torch.int32)
    origins = lists[:, None] + torch.arange(pixels, dtype=torch.int32)
    places = best.flatten(1).int().mul_(pixels).add_(origins)
    neighbours = [places + step * pixels for step in steps]
    indices = torch.stack(neighbours, 1).clamp_(0, cost.numel() - 1)
    costs: Tensor = cost.flatten().index_select(0, indices.flatten())
    return costs.view(batch, len(steps), *cost.shape[2:])


def _median(flow: Tensor) -> Tensor:
    """Return the component-wise median over 3 x 3 pixels."""
    height, width = flow.shape[-2:]
    padded = F.pad(flow, (1, 1, 1, 1), mode="replicate")
    if flow.device.type != "cpu":  # in few launches
        around = [
            padded[..., y : y + height, x : x + width]
            for y in range(3)
            for x in range(3)
        ]
        return median_of_nine(torch.stack(around, 1))
    return torch.stack(
        [_median_by_columns(part) for part in padded.flatten(0, 1)]
    ).view_as(flow)


def _median_by_columns(padded: Tensor) -> Tensor:
    """Return the median (h, w) over 3 x 3 pixels of (h + 2, w + 2): of the greatest least value, the median
    one and the least greatest of its columns.
    """
    rows = padded[:-2], padded[1:-1], padded[2:]
    least, middle, greatest = (
        reduce(torch.minimum, rows),
        _median_of_three(*rows),
        reduce(torch.maximum, rows),
    )

    def around(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return values[:, :-2], values[:, 1:-1], values[:, 2:]

    return _median_of_three(
        reduce(torch.maximum, around(least)),
        _median_of_three(*around(middle)),
        reduce(torch.minimum, around(greatest)),
    )


def _median_of_three(first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    below = torch.minimum(torch.maximum(first, second), third)
    return torch.maximum(torch.minimum(first, second), below)


def _fits_still(reference: Tensor, neighbour: Tensor, flow: Tensor) -> Tensor:
    """Return (B, 1, h, w): True where a picture fits about as well without motion."""
    pictures = (neighbour, warp(neighbour, flow, border="border"))
    differences = _block_difference(pictures, reference, [STILL_RADIUS] * 4)
    return differences[:, :1] <= STILL * differences[:, 1:]
