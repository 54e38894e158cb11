"""Motion blur as the average light over the exposure: of consecutive frames, or along paths of the camera and
of objects.

Averages of frames as in GoPro (S. Nah et al., "Deep multi-scale convolutional neural network for dynamic
scene deblurring", CVPR 2017); paths by a random walk with inertia (G. Boracchi, A. Foi, "Modeling the
performance of image restoration from motion blur", TIP 2012, in the form of O. Kupyn et al., DeblurGAN, CVPR
2018), or even motion along a line or a bend. Near objects move more, and some move by themselves: such a part
of the scene has its own path, and lies in front of the rest. Approximated: walks are taken from a thousand,
each turned and stretched at random.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade.counters import Counters
from vidrestore.lab.degrade.particles import splat
from vidrestore.lab.degrade.per_sample import Rows, changed, in_turn
from vidrestore.lab.degrade.segmentation import COUNT, members, random_regions
from vidrestore.pixels.linear_light import from_light, to_light

MOMENTS = 64  # samples of the path per exposure
TURNED_MOMENTS = 32  # samples of these that are rendered if the camera turns
SPAN = (3.0, 24.0)  # pixels that the camera moves during one exposure, log-uniform
# share of clips whose camera moves evenly along a line, or a gentle bend
STRAIGHT_SHARE = 0.75
CAMERA_BEND = 0.3  # radians that it turns in one exposure, standard deviation
SHAKE = 0.03  # probability per moment of a jerk that reverses the motion
ROLL_SHARE = 0.3  # share of clips whose camera turns about its axis as well
ROLL = (0.004, 0.04)  # radians in one exposure, log-uniform
PART_SHARE = 0.35  # share of clips with a part that is nearer or moves by itself
STILL_SHARE = 0.4  # share of these clips with a still camera
FRONT_COVER = (0.1, 0.9)  # share of a frame that such a part may cover
DEFOCUS_SHARE = 0.2  # share of clips that are slightly out of focus as well
DEFOCUS = (0.4, 1.8)  # pixels; radius of the circle of confusion
MOTION_CELL = 4  # pixels; side of the cells for measuring motion
PATHS = 1024  # random walks that paths are taken from
KERNEL_REACH = 26  # pixels; most reach of a path's kernel from its centroid
BORDER = 20  # multiple of the sides of a canvas, for fast Fourier transforms


def average_exposures(clip: Tensor, exposure: int) -> Tensor:
    """Return (T, 3, H, W) from (T * exposure, 3, H, W): the average light of `exposure` frames each."""
    return from_light(to_light(clip).unflatten(0, (-1, exposure)).mean(1))


def motion(clip: Tensor) -> float:
    """Estimate the motion of a clip in pixels per frame as its temporal change over its spatial gradient."""
    if len(clip) < 2:
        return 0.0
    # detail would count as change, so it is averaged first
    coarse = F.avg_pool2d(clip.mean(1), MOTION_CELL)
    gradient = coarse.diff(dim=2).abs().mean() + coarse.diff(dim=1).abs().mean()
    change = coarse.diff(dim=0).abs().mean()
    return float(2 * MOTION_CELL * change / gradient.clamp(min=1e-3))


@in_turn
def blur(clips: Tensor, draw: Counters) -> Tensor:
    """Blur every frame along its section of one random path, about the section's centroid; sometimes the
    camera turns as well, or a part moves differently.
    """
    frames = clips.shape[1]
    sides = clips.shape[3:]
    # the camera's path, and its turns about an axis
    path = random_paths(frames, draw)
    turns = random_paths(frames, draw)
    path = torch.where(
        _of_path(draw.chance(STRAIGHT_SHARE)), random_arcs(frames, draw), path
    )
    path = path * _of_path(draw.log_uniform(SPAN) / spans(path))
    roll = draw.log_uniform(ROLL) / spans(turns[..., :1])
    turns = turns[..., 0] * roll[:, None, None]
    size = torch.stack([torch.full_like(path[0, 0, 0, 0], side) for side in sides])
    axis = draw.uniform(-2, 3, 2) * size
    rolls, parts, still = (
        draw.chance(share) for share in (ROLL_SHARE, PART_SHARE, STILL_SHARE)
    )
    radius = torch.where(draw.chance(DEFOCUS_SHARE), draw.log_uniform(DEFOCUS), 0.0)
    lens = disc_kernels(radius)
    # a part in front of the rest: nearer, or moving by itself
    masks = draw.branch()
    scaled_path = path * _of_path(draw.uniform(1.3, 3))
    independent_path = path + random_arcs(frames, draw) * _of_path(
        draw.log_uniform(SPAN)
    )
    foreground = torch.where(_of_path(draw.chance(0.5)), scaled_path, independent_path)
    foreground = foreground * _of_path((SPAN[1] / spans(foreground)).clamp(max=1))
    front = torch.where(_of_path(still), path, foreground)
    back = torch.where(_of_path(still & parts), 0.0, path)

    def moved(rows: Rows) -> Tensor:
        return blurred(clips[rows], path_kernels(back[rows], lens[rows]))

    def in_layers(rows: Rows) -> Tensor:
        kernels = (path_kernels(path[rows], lens[rows]) for path in (front, back))
        return blurred_layers(
            clips[rows], random_mask(clips[rows], masks.part(rows)), *kernels
        )

    def turned(rows: Rows) -> Tensor:
        return blurred_by_turns(clips[rows], path[rows], turns[rows], axis[rows])

    outputs = changed(clips, ~rolls & ~parts, moved)
    outputs = changed(outputs, ~rolls & parts, in_layers)
    return changed(outputs, rolls, turned)


def _of_path(numbers: Tensor) -> Tensor:
    """Return a number of each sample, (B,), as (B, 1, 1, 1)."""
    return numbers[:, None, None, None]


def spans(paths: Tensor) -> Tensor:
    """Return the largest extent (B,) of any exposure's section of paths (B, T, MOMENTS, axes)."""
    return (paths.amax(2) - paths.amin(2)).amax((1, 2)).clamp(min=1e-9)


def random_arcs(frames: int, draw: Counters) -> Tensor:
    """Return (B, T, MOMENTS, 2): even motion along a line or a gentle bend, 1 long in every exposure, as that
    of most objects, and of a camera that pans.
    """
    moments = torch.arange(frames * MOMENTS) / MOMENTS
    angles = (
        draw.uniform(0, math.tau)[:, None]
        + CAMERA_BEND * draw.normal()[:, None] * moments
    )
    arcs = torch.stack((angles.sin(), angles.cos()), 2).cumsum(1) / MOMENTS
    exposures: Tensor = arcs.unflatten(1, (frames, MOMENTS))
    return exposures


def random_paths(frames: int, draw: Counters) -> Tensor:
    """Return (B, T, MOMENTS, 2) rows and columns: random walks, turned at random."""
    # one of many walks, turned
    walks = random_walks(frames * MOMENTS)[draw.integers(0, PATHS)]
    angle = draw.uniform(0, math.tau)[:, None]
    down, right = walks.unbind(2)
    cosine = angle.cos()
    sine = angle.sin()
    turned = (down * cosine - right * sine, down * sine + right * cosine)
    paths: Tensor = torch.stack(turned, 2).unflatten(1, (frames, MOMENTS))
    return paths


@cache
def random_walks(moments: int) -> Tensor:
    """Return (PATHS, moments, 2), always the same: random walks with inertia, a pull back, and jerks."""
    # what differs from walk to walk
    draw = Counters(0, 0, torch.arange(PATHS))
    inertia = draw.uniform(0.7, 1)[:, None]
    noise = 10 ** draw.uniform(-2.5, -0.3)[:, None]
    pull = draw.uniform(0, 0.05)[:, None] / MOMENTS
    speed = draw.normal(2)
    pushes = noise[..., None] * draw.normal(moments, 2)
    jerks = 0.5 * draw.normal(moments, 2)
    jerked = draw.chance(SHAKE * noise, moments)[..., None]
    # a step at a time, for all walks
    place = torch.zeros(PATHS, 2)
    path = []
    for number in range(moments):
        path.append(place)
        back = (2 * speed + jerks[:, number]) * jerked[:, number]
        speed = inertia * speed + pushes[:, number] - pull * place - back
        speed = speed / speed.norm(dim=1, keepdim=True).clamp(min=1e-9)
        place = place + speed
    return torch.stack(path, 1)


def random_mask(clips: Tensor, draw: Counters) -> Tensor:
    """Return (B, T, 1, H, W), 0 or 1: 1 in a random set of regions of a scene that covers a share of
    FRONT_COVER; less or more of it only if one region is larger.
    """
    # regions in random order, as long as they fit
    regions = random_regions(clips, draw)
    areas = members(regions).float().mean((2, 3, 4))
    target = draw.uniform(FRONT_COVER[0], 0.6)
    order = draw.uniform(0, 1, COUNT[1]).argsort(1)
    covered = torch.zeros_like(target)
    mask = torch.zeros_like(areas)
    for region in order.unbind(1):
        area = areas.gather(1, region[:, None])[:, 0]
        fits = (covered < target) & (
            (covered == 0) | (covered + area <= FRONT_COVER[1])
        )
        mask = mask.scatter(1, region[:, None], fits.float()[:, None])
        covered = covered + area * fits
    return mask.gather(1, regions.flatten(1)).view_as(regions)[:, :, None]


def blurred_by_turns(
    clips: Tensor, path: Tensor, turns: Tensor, axis: Tensor
) -> Tensor:
    """Blur (B, T, 3, H, W) by a camera that moves along `path` (B, T, MOMENTS, 2) and turns by `turns` (B, T,
    MOMENTS) about `axis` (B, 2), row and column, both relative to their means over each exposure.
    """
    height, width = clips.shape[3:]
    # light, relative to the middle of each exposure
    light = to_light(clips).flatten(0, 1)
    path, turns = (values - values.mean(2, keepdim=True) for values in (path, turns))
    rows = torch.arange(height) - axis[:, :1, None]
    columns = torch.arange(width) - axis[:, 1:, None]
    total = torch.zeros_like(light)
    grid = light.new_empty(len(light), height, width, 2)
    # the sum of all moments
    for number in range(0, MOMENTS, MOMENTS // TURNED_MOMENTS):
        cosine = turns[:, :, number, None].cos()
        sine = turns[:, :, number, None].sin()
        centres = path[:, :, number] + axis[:, None]
        for axis_number, side, down, right in (
            (1, height, cosine, -sine),
            (0, width, sine, cosine),
        ):
            place = (rows * down).flatten(0, 1)[:, :, None] + (columns * right).flatten(
                0, 1
            )[:, None]
            place += centres[..., 1 - axis_number].flatten()[:, None, None]
            grid[..., axis_number] = place * (2 / (side - 1)) - 1
        total += F.grid_sample(
            light, grid, mode="bilinear", padding_mode="reflection", align_corners=True
        )
    return from_light(total / TURNED_MOMENTS).view_as(clips)


def path_kernels(paths: Tensor, lens: Tensor | None = None) -> Tensor:
    """Return the blur kernels (B, T, side, side), side odd, sum 1, of paths (B, T, moments, 2), with their
    centroids at the centre, since a frame's light lies around its mean pose. They are blurred by lenses (B,
    side, side).
    """
    # drawn around their centroid
    positions = paths - paths.mean(2, keepdim=True)
    reach = min(KERNEL_REACH, math.ceil(float(positions.abs().max())) + 1)
    reach += 0 if lens is None else lens.shape[1] // 2
    rows, columns = (positions + reach).unbind(3)
    canvas = (2 * reach + 1, 2 * reach + 1)
    kernels = splat(rows, columns, torch.ones_like(rows[:, 0]), canvas)[:, :, 0]
    if lens is not None:
        # the kernels of a sample have one lens
        spread = F.conv2d(
            kernels.transpose(0, 1),
            lens[:, None],
            padding=lens.shape[1] // 2,
            groups=len(lens),
        )
        kernels = spread.transpose(0, 1)
    return kernels / kernels.sum((2, 3), keepdim=True)


def disc_kernels(radius: Tensor) -> Tensor:
    """Return (B, side, side), side odd, sum 1: circles of confusion of a radius of at most DEFOCUS[1]."""
    # a disc with a soft rim
    reach = math.ceil(DEFOCUS[1])
    line = torch.arange(-reach, reach + 1).float()
    distance = torch.hypot(line[:, None], line)
    shape = (radius[:, None, None] + 0.5 - distance).clamp(0, 1)
    return shape / shape.sum((1, 2), keepdim=True)


def gaussian_blurred(clip: Tensor, sigma: float) -> Tensor:
    """Filter (T, 3, H, W) by a Gaussian of `sigma` pixels, in display values; the border is replicated."""
    reach = math.ceil(3 * sigma)
    line = torch.exp(-torch.arange(-reach, reach + 1).float().square() / (2 * sigma**2))
    line /= line.sum()
    planes = F.pad(clip, [reach] * 4, mode="replicate").flatten(0, 1)[:, None]
    rows = F.conv2d(planes, line[None, None, None])
    return F.conv2d(rows, line[None, None, :, None]).view_as(clip)


def blurred(clips: Tensor, kernels: Tensor) -> Tensor:
    """Filter the light of (..., T, 3, H, W) by kernels (..., T or 1, side, side); borders are replicated."""
    return from_light(filtered_by(to_light(clips), kernels))


def blurred_layers(clips: Tensor, part: Tensor, front: Tensor, back: Tensor) -> Tensor:
    """Blur clips (..., T, 3, H, W) in two layers: the foreground, given by the mask `part` (..., T, 1, H, W),
    by the kernels `front`, and the background by `back`; kernels are (..., T, side, side). What the
    foreground hides of the background is filled in from its surroundings.
    """
    # what moves covers what doesn't, which is filled in
    light = to_light(clips)
    layer = torch.cat((light * part, part), -3)  # premultiplied by its alpha, the mask
    foreground = filtered_by(layer, front)
    background = filtered_by(
        torch.cat((light, torch.ones_like(part)), -3) - layer, back
    )
    alpha = foreground[..., 3:, :, :]
    weight = background[..., 3:, :, :]
    # the light of visible background; the picture's own where none is near
    filled = (background[..., :3, :, :] + 1e-3 * light) / (weight + 1e-3)
    return from_light(foreground[..., :3, :, :] + (1 - alpha) * filled)


def filtered_by(planes: Tensor, kernels: Tensor) -> Tensor:
    """Filter (..., T, C, H, W) by kernels (..., T or 1, side, side) by FFT; borders are replicated."""
    # a multiple of small primes is fast
    height, width = planes.shape[-2:]
    reach = kernels.shape[-1] // 2
    canvas = [-(-(side + 2 * reach) // BORDER) * BORDER for side in (height, width)]
    padded = F.pad(planes.flatten(0, -4), [reach] * 4, mode="replicate").unflatten(
        0, planes.shape[:-3]
    )
    spectra = torch.fft.rfft2(kernels, s=canvas).unsqueeze(-3)
    spread: Tensor = torch.fft.irfft2(
        torch.fft.rfft2(padded, s=canvas) * spectra, s=canvas
    )
    return spread[..., 2 * reach :, 2 * reach :][..., :height, :width]
