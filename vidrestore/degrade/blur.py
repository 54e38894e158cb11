"""Motion blur as the average light over the exposure: of consecutive frames, or along paths of the camera and
of objects.

Averages of frames as in GoPro (S. Nah et al., "Deep multi-scale convolutional neural network for dynamic
scene deblurring", CVPR 2017); paths by a random walk with inertia (G. Boracchi, A. Foi, "Modeling the
performance of image restoration from motion blur", TIP 2012, in the form of O. Kupyn et al., DeblurGAN, CVPR
2018). Near objects move more, and some move by themselves: such a part of the scene has its own path, and
lies in front of the rest.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.degrade.branches import counters
from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.regions import random_regions
from vidrestore.light import from_light, to_light

MOMENTS = 64  # samples of the path per exposure
TURNED = 32  # of them, those that are rendered if the camera turns
SPAN = (3.0, 24.0)  # pixels that the camera moves during one exposure, log-uniform
SHAKE = 0.03  # probability per moment of a jerk that reverses the motion
ROLL_SHARE = 0.3  # of clips whose camera turns about its axis as well
ROLL = (0.004, 0.04)  # radians in one exposure, log-uniform
PART_SHARE = 0.35  # of clips with a part that moves differently: it is nearer, or moves by itself
STILL_SHARE = 0.4  # of these clips, those with a still camera
COVERED = (0.1, 0.9)  # share of a frame that such a part may cover
DEFOCUS_SHARE = 0.2  # of clips that are slightly out of focus as well
DEFOCUS = (0.4, 1.8)  # pixels; radius of the circle of confusion
COARSE = 4  # pixels; side of the cells for measuring motion


def average_light(frames: Tensor) -> Tensor:
    """Return the exposure over consecutive frames (T, 3, H, W): (1, 3, H, W)."""
    return from_light(to_light(frames).mean(0, keepdim=True))


def average_exposures(clip: Tensor, exposure: int) -> Tensor:
    """Return (T, 3, H, W) from (T * exposure, 3, H, W): the average light of `exposure` frames each."""
    return from_light(to_light(clip).unflatten(0, (-1, exposure)).mean(1))


def motion(clip: Tensor) -> float:
    """Estimate the motion of a clip in pixels per frame as its temporal change over its spatial gradient."""
    if len(clip) < 2:
        return 0.0
    coarse = F.avg_pool2d(clip.mean(1), COARSE)
    along = (coarse[:, :, 1:] - coarse[:, :, :-1]).abs().mean() + (
        coarse[:, 1:] - coarse[:, :-1]
    ).abs().mean()
    return float(2 * COARSE * (coarse[1:] - coarse[:-1]).abs().mean() / along.clamp(min=1e-3))


def random_blur(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Blur every frame along its section of one random path, about the section's centroid; sometimes the
    camera turns as well, or a part moves differently.
    """
    path, lens = random_scaled_path(len(clip), rng), None
    if rng.random() < ROLL_SHARE:
        turns = random_turns(len(clip), rng)
        return blurred_by_turns(clip, path, turns, rng.uniform(-2, 3, 2) * clip.shape[2:])
    if rng.random() < DEFOCUS_SHARE:
        lens = disc_kernel(log_uniform(rng, DEFOCUS))
    if rng.random() >= PART_SHARE:
        return blurred(clip, path_kernels(path, len(clip), lens))
    mask = random_mask(clip, rng)
    if rng.random() < STILL_SHARE:
        still = path_kernels(np.zeros_like(path), len(clip), lens)
        return blurred_layers(clip, mask, path_kernels(path, len(clip), lens), still)
    nearer = path * rng.uniform(1.3, 3) if rng.random() < 0.5 else path + random_line(len(clip), rng)
    spans = [float(np.ptp(piece, axis=0).max()) for piece in np.split(nearer, len(clip))]
    nearer *= min(1.0, SPAN[1] / max(*spans, 1e-9))
    return blurred_layers(
        clip, mask, path_kernels(nearer, len(clip), lens), path_kernels(path, len(clip), lens)
    )


def random_scaled_path(frames: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (frames * MOMENTS, 2): a random path whose longest exposure spans a random number of pixels."""
    path = random_path(frames * MOMENTS, rng)
    spans = [float(np.ptp(part, axis=0).max()) for part in np.split(path, frames)]
    path *= log_uniform(rng, SPAN) / max(*spans, 1e-9)
    return path


def random_line(frames: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (frames * MOMENTS, 2): a uniform motion along a line, as that of most objects during an
    exposure.
    """
    angle, length = rng.uniform(0, 2 * math.pi), log_uniform(rng, SPAN)
    along = np.linspace(0, length * frames, frames * MOMENTS)
    return np.stack([math.sin(angle) * along, math.cos(angle) * along], 1)


def random_path(moments: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (moments, 2) rows and columns: a random walk with inertia, pulled back to its start, with
    occasional jerks.
    """
    inertia, noise, pull = (
        rng.uniform(0.7, 1),
        10 ** rng.uniform(-2.5, -0.3),
        rng.uniform(0, 0.05) / MOMENTS,
    )
    down, right = rng.normal(0, 1, 2).tolist()
    pushes, chances, jerks = (
        rng.normal(0, noise, (moments, 2)).tolist(),
        rng.random(moments).tolist(),
        rng.normal(0, 0.5, (moments, 2)),
    )
    row = column = 0.0
    path = []
    for (push_down, push_right), chance, jerk in zip(pushes, chances, jerks.tolist(), strict=True):
        path.append((row, column))
        turned = chance < SHAKE * noise
        jerk_down, jerk_right = (2 * down + jerk[0], 2 * right + jerk[1]) if turned else (0.0, 0.0)
        down = inertia * down + push_down - pull * row - jerk_down
        right = inertia * right + push_right - pull * column - jerk_right
        speed = max(math.hypot(down, right), 1e-9)
        down, right = down / speed, right / speed
        row, column = row + down, column + right
    return np.array(path)


def random_mask(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T, 1, H, W) in [0, 1]: 1 in a random set of regions of the scene that covers a share of
    COVERED; less or more of it only if one region is larger.
    """
    regions = random_regions(clip[None], counters(rng))[0]
    areas = torch.bincount(regions.flatten(), minlength=int(regions.max()) + 1) / regions.numel()
    chosen, covered = torch.zeros(len(areas)), 0.0
    wanted = rng.uniform(COVERED[0], 0.6)
    for region in rng.permutation(len(areas)):
        if covered < wanted and (not covered or covered + areas[region] <= COVERED[1]):
            chosen[region], covered = 1.0, covered + float(areas[region])
    return chosen[regions][:, None]


def random_turns(frames: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (frames * MOMENTS,) angles in radians about the camera's axis, a random walk with inertia."""
    turns = random_path(frames * MOMENTS, rng)[:, 0]
    spans = [float(np.ptp(part)) for part in np.split(turns, frames)]
    return turns * (log_uniform(rng, ROLL) / max(*spans, 1e-9))


def blurred_by_turns(
    clip: Tensor,
    path: NDArray[np.float64],
    turns: NDArray[np.float64],
    axis: NDArray[np.float64],
) -> Tensor:
    """Blur (T, 3, H, W) by a camera that moves along `path` (T * MOMENTS, 2) and turns by `turns` (T *
    MOMENTS,) about `axis` (row, column), both relative to their means over each exposure.
    """
    frames, _, height, width = clip.shape
    light = to_light(clip)
    rows, columns = torch.meshgrid(
        torch.arange(height).float() - axis[0], torch.arange(width).float() - axis[1], indexing="ij"
    )
    exposures = []
    parts = zip(light, np.split(path, frames), np.split(turns, frames), strict=True)
    for picture, shifts, angles in parts:
        shifts, angles = (part[:: MOMENTS // TURNED] - part.mean(0) for part in (shifts, angles))
        views = []
        for (down, right), angle in zip(shifts, angles, strict=True):
            cosine, sine = math.cos(angle), math.sin(angle)
            y = rows * cosine - columns * sine + axis[0] + down
            x = rows * sine + columns * cosine + axis[1] + right
            views.append(torch.stack((2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1), -1))
        seen = F.grid_sample(
            picture.expand(len(views), -1, -1, -1),
            torch.stack(views),
            mode="bilinear",
            padding_mode="reflection",
            align_corners=True,
        )
        exposures.append(seen.mean(0))
    return from_light(torch.stack(exposures))


def path_kernel(path: NDArray[np.float64], reach: int | None = None) -> Tensor:
    """Return the blur kernel (side, side), side odd, sum 1, of a path (moments, 2), whose centroid is at the
    centre: the light of a blurred frame lies around its mean pose.
    """
    positions = path - path.mean(0)
    reach = reach or math.ceil(np.abs(positions).max()) + 1
    side = 2 * reach + 1
    base = np.floor(positions).astype(int)
    share = positions - base
    kernel = np.zeros(side * side)
    for down in (0, 1):
        for right in (0, 1):
            part = np.abs(1 - down - share[:, 0]) * np.abs(1 - right - share[:, 1])
            kernel += np.bincount(
                (base[:, 0] + down + reach) * side + base[:, 1] + right + reach, part, side * side
            )
    return torch.from_numpy(kernel / kernel.sum()).float().view(side, side)


def path_kernels(path: NDArray[np.float64], frames: int, lens: Tensor | None = None) -> Tensor:
    """Return (frames, side, side): the kernels of the frames' sections of a path, blurred by a lens (side,
    side).
    """
    parts = np.split(path, frames)
    reach = max(math.ceil(np.abs(part - part.mean(0)).max()) for part in parts) + 1
    kernels = torch.stack([path_kernel(part, reach) for part in parts])
    return (
        kernels if lens is None else F.conv2d(kernels[:, None], lens[None, None], padding=len(lens) - 1)[:, 0]
    )


def disc_kernel(radius: float) -> Tensor:
    """Return (side, side), side odd, sum 1: the circle of confusion of a lens out of focus."""
    reach = math.ceil(radius)
    line = torch.arange(-reach, reach + 1).float()
    shape = (radius + 0.5 - torch.hypot(line[:, None], line)).clamp(0, 1)
    return shape / shape.sum()


def gaussian_blurred(clip: Tensor, sigma: float) -> Tensor:
    """Filter (T, 3, H, W) by a Gaussian of `sigma` pixels, in display values; the border is replicated."""
    reach = math.ceil(3 * sigma)
    line = torch.exp(-torch.arange(-reach, reach + 1).float().square() / (2 * sigma**2))
    line /= line.sum()
    planes = F.pad(clip, [reach] * 4, mode="replicate").flatten(0, 1)[:, None]
    return F.conv2d(F.conv2d(planes, line[None, None, None]), line[None, None, :, None]).view_as(clip)


def blurred(clip: Tensor, kernels: Tensor) -> Tensor:
    """Filter the light of (T, 3, H, W) by kernels (T or 1, side, side); the border is replicated."""
    return from_light(FourierBlur(clip.shape[2:], kernels)(to_light(clip)))


def blurred_layers(clip: Tensor, part: Tensor, front: Tensor, back: Tensor) -> Tensor:
    """Blur (T, 3, H, W) by `front` in the part (T, 1, H, W) and by `back` behind it; kernels are (T, side,
    side).

    Behind the part, the rest is filled in from its surroundings.
    """
    layers = torch.cat((to_light(clip) * part, part), 1)
    before, behind = (FourierBlur(clip.shape[2:], kernels) for kernels in (front, back))
    moved = before(layers)
    rest = behind(torch.cat((to_light(clip), torch.ones_like(part)), 1) - layers)
    filled = (rest[:, :3] + 1e-3 * to_light(clip)) / (rest[:, 3:] + 1e-3)
    return from_light(moved[:, :3] + (1 - moved[:, 3:]) * filled)


class FourierBlur:
    """Filter planes (T, C, H, W) by kernels (T or 1, side, side) in Fourier space; the border is
    replicated.
    """

    def __init__(self, size: torch.Size, kernels: Tensor) -> None:
        self.reach, self.size = kernels.shape[-1] // 2, tuple(size)
        self.canvas = [-(-(side + 2 * self.reach) // 16) * 16 for side in size]
        self.spectra = torch.fft.rfft2(kernels, s=self.canvas)[:, None]

    def __call__(self, planes: Tensor) -> Tensor:
        height, width = self.size
        padded = F.pad(planes, [self.reach] * 4, mode="replicate")
        spread: Tensor = torch.fft.irfft2(
            torch.fft.rfft2(padded, s=self.canvas) * self.spectra, s=self.canvas
        )
        return spread[..., 2 * self.reach :, 2 * self.reach :][..., :height, :width]
