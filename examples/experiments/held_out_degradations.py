"""Haze, rain, snow, motion blur and camera noise to judge networks by: models that nothing is trained with.

Frozen before the first image network was trained. All of them work in linear light on geometry in metres,
with a pinhole camera, while `vidrestore.lab.degrade` paints on the picture; nothing is shared but the names.
A clip is (T, 3, H, W) R'G'B' in [0, 1]; every model gives the degraded clip, rounded to 8 bits, and the clip
that a perfect restoration would give. Everything follows from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Pair = tuple[Tensor, Tensor]

FRAME_SECONDS = 1 / 24
SECTIONS = 24  # pictures that one blurred frame is the mean of
WAVELENGTHS = np.array([630.0, 532.0, 465.0])  # nm, of R, G, B


def hazy(clip: Tensor, seed: int) -> Pair:
    """Koschmieder's law with fog that thins out with height, over a ground plane with hills behind it.

    L = L0 exp(-tau) + A (1 - exp(-tau)) (Koschmieder, "Theorie der horizontalen Sichtweite", 1924),
    extinction 3.912 over the visibility. tau integrates b exp(-height / H) along the ray of a pixel: b exp(-h
    / H) (1 - exp(-s z / H)) H / s for slope s and distance z (Quilez, "Better fog", 2010). Blue is scattered
    more, by Angstrom's law; the airlight is brighter towards the sun.
    """
    rng = np.random.default_rng(seed)
    light = linear(clip)
    height, width = clip.shape[2:]
    distance, slope = street(height, width, rng)
    camera, scale = rng.uniform(2, 8), rng.uniform(20, 80)
    rise = np.where(np.abs(slope) < 1e-4, 1e-4, slope) / scale
    path = np.exp(-camera / scale) * -np.expm1(-np.clip(rise * distance, -3, 50)) / rise
    extinction = (
        3.912 / rng.uniform(150, 400) * (WAVELENGTHS / 532) ** -rng.uniform(0, 0.7)
    )
    seen = np.exp(-extinction[:, None, None] * path)
    sun, tint = rng.uniform(0, width), 1 + rng.normal(0, 0.03, 3)
    towards_sun = 1 + 0.15 * np.cos((np.arange(width) - sun) / width * np.pi)
    airlight = rng.uniform(0.45, 0.85) * towards_sun * tint[:, None, None]
    return stored(light * seen + airlight * (1 - seen)), clip


def street(height: int, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Distance (m) and slope of the ray of every pixel: ground up to the foot of rolling hills."""
    focal, horizon, camera = (
        0.9 * width,
        height * rng.uniform(0.3, 0.55),
        rng.uniform(1.5, 4),
    )
    rows, columns = np.mgrid[:height, :width].astype(float)
    slope = (horizon - rows) / focal
    waves = np.sin(columns / width * rng.uniform(2, 9) + rng.uniform(0, 6))
    far = rng.uniform(60, 120) * (1 + 0.4 * waves)
    return np.minimum(far, camera / np.maximum(-slope, 1e-6)), slope


def rainy(clip: Tensor, seed: int) -> Pair:
    """Drops in space, falling through the exposure; each covers what is behind it for a moment (Garg and
    Nayar, "Vision and rain", 2007).

    Diameters D (mm) by Marshall and Palmer, "The distribution of raindrops with size", 1948: exp(-4.1 R^-0.21
    D) for R mm/h; speed 9.65 - 10.3 exp(-0.6 D) m/s (Atlas et al., 1973). A pixel that drops cover for the
    share a of the exposure sees exp(-4 a) background + (1 - exp(-4 a)) drop (4, as for rain that is meant to
    be seen); a drop shows the whole sky, so it is brighter than most of a scene.
    """
    rng = np.random.default_rng(seed)
    light, (height, width) = linear(clip), clip.shape[2:]
    rate, exposure = rng.uniform(20, 80), 1 / rng.uniform(120, 400)
    decay = 4.1 * rate**-0.21
    count = int(rng.uniform(2000, 9000))
    size = 1 + np.minimum(rng.exponential(1 / decay, count), 4)
    swarm = Particles(count, (1.0, 9.0), (height, width), 2.0, rng)
    fall = 9.65 - 10.3 * np.exp(-0.6 * size)
    wind = rng.normal(0, 1.5)
    speed = np.stack([fall, wind + rng.normal(0, 0.3, count)])
    thick = size / 1000 * swarm.focal / swarm.depth  # pixels
    brightness = min(1.0, 1.6 * float(light.mean()) + 0.25)
    veil = np.exp(-rng.uniform(0.01, 0.08))
    frames = []
    for number, picture in enumerate(light):
        covered = np.zeros((height, width))
        for low, high in ((0, 1), (1, 2), (2, 4), (4, 1e9)):
            chosen = (thick >= low) & (thick < high)
            trace = swarm.traces(chosen, speed, number, exposure, thick[chosen] ** 2)
            covered += disc_blurred(trace, max(0.5, low * 0.6))
        seen = veil * np.exp(-4 * covered)
        frames.append(picture * seen + brightness * (1 - seen))
    return stored(np.stack(frames)), clip


def snowy(clip: Tensor, seed: int) -> Pair:
    """Flakes in space, sharp at one distance and out of focus at others, drifting in gusts.

    A flake of diameter D at distance z is a disc of radius f D / 2 z, spread by the thin lens over a circle
    of confusion of radius c = k |z - zf| / (z zf) to sqrt(r^2 + c^2), with the opacity that the light it
    takes away is spread over. Diameters are gamma distributed (Gunn and Marshall, "The distribution with size
    of aggregate snowflakes", 1958); a metre per second down.
    """
    rng = np.random.default_rng(seed)
    light, (height, width) = linear(clip), clip.shape[2:]
    count = int(rng.uniform(5000, 16000))
    size, swarm = (
        1.5 + rng.gamma(2.0, 1.5, count),
        Particles(count, (0.7, 14.0), (height, width), 1.6, rng),
    )
    radius = size / 2000 * swarm.focal / swarm.depth
    focus, aperture = rng.uniform(3, 10), rng.uniform(1, 4)
    spread = np.hypot(
        radius, aperture * np.abs(swarm.depth - focus) / (swarm.depth * focus)
    )
    gust = rng.uniform(-2, 2) + 0.5 * np.sin(rng.uniform(0, 6, count))
    speed = np.stack([rng.normal(1.0, 0.2, count), gust])
    exposure, whiteness = 1 / rng.uniform(50, 200), rng.uniform(0.8, 1.0)
    veil = np.exp(-rng.uniform(0.01, 0.08))
    edges = [0, 0.7, 1.2, 2, 3, 4.5, 7, 10, 1e9]
    frames = []
    for number, picture in enumerate(light):
        covered = np.zeros((height, width))
        for low, high in pairwise(edges):
            chosen = (spread >= low) & (spread < high)
            weight = np.pi * radius[chosen] ** 2
            covered += disc_blurred(
                swarm.traces(chosen, speed, number, exposure, weight),
                max(0.5, (low + min(high, 14)) / 2),
            )
        seen = veil * np.exp(-1.5 * covered)
        frames.append(picture * seen + whiteness * (1 - seen))
    return stored(np.stack(frames)), clip


class Particles:
    """Things in the space before the camera: even in volume, in a box that moves with nothing and is
    re-entered at the other side.
    """

    def __init__(
        self,
        count: int,
        reach: tuple[float, float],
        size: tuple[int, int],
        lens: float,
        rng: np.random.Generator,
    ) -> None:
        near, far = reach
        self.size, self.focal = size, lens * size[1]  # pixels
        self.depth = (near**3 + rng.uniform(0, 1, count) * (far**3 - near**3)) ** (
            1 / 3
        )
        # metres down and right of the frame's corner
        self.place = rng.uniform(0, 1, (2, count)) * self.room

    @property
    def room(self) -> Array:
        """(2, count) metres that the frame is high and wide, with some more around it, at the distance of
        each.
        """
        return np.array(self.size)[:, None] * 1.2 * self.depth / self.focal

    def traces(
        self,
        chosen: NDArray[np.bool_],
        speed: Array,
        number: int,
        exposure: float,
        weight: Array,
    ) -> Array:
        """(H, W): where the chosen are while frame `number` is exposed, `weight` pixels of each spread along
        its way.
        """
        depth, room = self.depth[chosen], self.room[:, chosen]
        longest = np.abs(speed[:, chosen] * exposure * self.focal / depth).max(
            initial=0
        )
        steps = int(np.clip(longest, 4, 24))
        start = (
            self.place[:, chosen] + speed[:, chosen] * number * FRAME_SECONDS
        ) % room
        image = np.zeros(self.size)
        for step in range(steps):
            metres = start + speed[:, chosen] * exposure * step / steps
            splat(
                image,
                metres * self.focal / depth - 0.1 * np.array(self.size)[:, None],
                weight / steps,
            )
        return image


def splat(image: Array, places: Array, weight: Array) -> None:
    """Add weights at fractional (row, column) places, shared among the four pixels around each."""
    base = np.floor(places).astype(int)
    share = places - base
    for down in (0, 1):
        for right in (0, 1):
            row, column = base[0] + down, base[1] + right
            inside = (
                (row >= 0)
                & (row < image.shape[0])
                & (column >= 0)
                & (column < image.shape[1])
            )
            part = np.abs(1 - down - share[0]) * np.abs(1 - right - share[1]) * weight
            np.add.at(image, (row[inside], column[inside]), part[inside])


def disc_blurred(image: Array, radius: float) -> Array:
    """Convolved with a disc of an anti-aliased edge whose sum is 1."""
    reach = int(np.ceil(radius))
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disc = np.clip(radius + 0.5 - np.hypot(rows, columns), 0, 1)
    shape = (image.shape[0] + 2 * reach, image.shape[1] + 2 * reach)
    full = np.fft.irfft2(
        np.fft.rfft2(image, shape) * np.fft.rfft2(disc / disc.sum(), shape), shape
    )
    return full[reach : reach + image.shape[0], reach : reach + image.shape[1]]


def shaken(clip: Tensor, seed: int) -> Pair:
    """A camera that turns about its three axes while it exposes (Whyte et al., "Non-uniform deblurring for
    shaken images", 2010).

    The blurred frame is the mean light over SECTIONS moments of the scene under the homography K R K^-1.
    Angles are sums of two tremors of a hand (Stiles, "Frequency and displacement amplitude relations for
    normal hand tremor", 1976: about 4 and 9 Hz) and go on from frame to frame. The sharp frame is that of the
    mean pose, around which the light of the blurred one lies: against the pose of another moment, a shift
    that no picture shows, a perfect restoration would lose to none.
    """
    rng = np.random.default_rng(seed)
    light = torch.from_numpy(linear(clip)).float()
    focal = 0.9 * clip.shape[3]
    # radians of pitch, yaw and roll
    amplitude = rng.uniform(8, 22, 3) / np.array([focal, focal, clip.shape[3] / 3]) / 2
    rate = np.array([4.0, 9.0])[:, None] * rng.uniform(0.8, 1.2, (2, 3))
    phase = rng.uniform(0, 2 * np.pi, (2, 3))

    def angles(seconds: float) -> Array:
        tremors = np.array([[1.0], [0.5]]) * np.sin(2 * np.pi * rate * seconds + phase)
        turns: Array = amplitude * tremors.sum(0)
        return turns

    frames = []
    for number, picture in enumerate(light):
        middle = number * FRAME_SECONDS
        moments = (
            middle
            + (np.arange(SECTIONS) + 0.5 - SECTIONS / 2) / SECTIONS * FRAME_SECONDS
        )
        poses = np.stack([angles(moment) for moment in moments])
        views = [turned_view(picture, pose - poses.mean(0), focal) for pose in poses]
        frames.append(torch.stack(views).mean(0).numpy().astype(float))
    return stored(np.stack(frames)), clip


def turned_view(picture: Tensor, angles: Array, focal: float) -> Tensor:
    """(3, H, W) as seen by a camera turned by pitch, yaw and roll; mirrored beyond the borders."""
    height, width = picture.shape[1:]
    (sp, sy, sr), (cp, cy, cr) = np.sin(angles), np.cos(angles)
    rotation = np.array([[cr, -sr, 0], [sr, cr, 0], [0, 0, 1]]) @ np.array(
        [[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]]
    )
    rotation = rotation @ np.array([[1, 0, 0], [0, cp, -sp], [0, sp, cp]])
    rows, columns = (
        np.mgrid[:height, :width] - np.array([height - 1, width - 1])[:, None, None] / 2
    )
    ray = np.tensordot(
        rotation, np.stack([columns, rows, np.full((height, width), focal)]), 1
    )
    x, y = focal * ray[0] / ray[2], focal * ray[1] / ray[2]
    grid = torch.from_numpy(
        np.stack([2 * x / (width - 1), 2 * y / (height - 1)], -1)
    ).float()
    view: Tensor = F.grid_sample(
        picture[None],
        grid[None],
        mode="bilinear",
        padding_mode="reflection",
        align_corners=True,
    )[0]
    return view


def noisy(clip: Tensor, seed: int) -> Pair:
    """A sensor that counts electrons behind a Bayer filter, read out row by row, then developed.

    Poisson counts, normal read noise, an offset per row (Wei et al., "A physics-based noise formation model
    for extreme low-light raw denoising", 2020), 12 bits, demosaicing by Malvar, He and Cutler (2004), white
    balance, sRGB. The clean clip is developed from the same sensor without noise, as the ground truths of
    SIDD are.
    """
    rng = np.random.default_rng(seed)
    # electrons of a white pixel, and of the readout
    white, read = (np.exp(rng.uniform(np.log(120), np.log(1500))), rng.uniform(1.5, 6))
    gains = np.array([rng.uniform(1.5, 2.2), 1.0, rng.uniform(1.4, 2.0)])[:, None, None]
    results: tuple[list[Array], list[Array]] = ([], [])
    for picture in linear(clip):
        exact = mosaic(picture / gains) * white
        rows = rng.normal(0, 0.3 * read, (len(exact), 1))
        counted = (
            rng.poisson(np.maximum(exact, 0)) + rng.normal(0, read, exact.shape) + rows
        )
        digital = np.round(counted / white * 3800) / 3800
        for frames, raw in zip(results, (digital, exact / white), strict=True):
            frames.append(demosaiced(raw) * gains)
    degraded, clean = (stored(np.stack(frames)) for frames in results)
    return degraded, clean


def mosaic(picture: Array) -> Array:
    """(3, H, W) -> (H, W) behind red, green / green, blue."""
    raw: Array = picture[1].copy()
    raw[::2, ::2] = picture[0, ::2, ::2]
    raw[1::2, 1::2] = picture[2, 1::2, 1::2]
    return raw


# Malvar et al., Fig. 2, times 8: green at red or blue; red at green in a red row; the same in a red column;
# red at blue.
GREEN = np.array(
    [
        [0, 0, -1, 0, 0],
        [0, 0, 2, 0, 0],
        [-1, 2, 4, 2, -1],
        [0, 0, 2, 0, 0],
        [0, 0, -1, 0, 0],
    ]
)
ALONG = np.array(
    [
        [0, 0, 0.5, 0, 0],
        [0, -1, 0, -1, 0],
        [-1, 4, 5, 4, -1],
        [0, -1, 0, -1, 0],
        [0, 0, 0.5, 0, 0],
    ]
)
ACROSS = np.array(
    [
        [0, 0, -1.5, 0, 0],
        [0, 2, 0, 2, 0],
        [-1.5, 0, 6, 0, -1.5],
        [0, 2, 0, 2, 0],
        [0, 0, -1.5, 0, 0],
    ]
)


def demosaiced(raw: Array) -> Array:
    """(H, W) behind red, green / green, blue -> (3, H, W)."""
    kernels = torch.from_numpy(np.stack([GREEN, ALONG, ALONG.T, ACROSS]))[:, None] / 8
    padded = F.pad(torch.from_numpy(raw)[None, None], (2, 2, 2, 2), mode="reflect")
    green, along, down, across = F.conv2d(padded, kernels)[0].numpy()
    red, blue = across.copy(), across.copy()
    for channel, (row, column) in ((red, (0, 0)), (blue, (1, 1))):
        channel[row::2, column::2] = raw[row::2, column::2]
        channel[row::2, 1 - column :: 2] = along[row::2, 1 - column :: 2]
        channel[1 - row :: 2, column::2] = down[1 - row :: 2, column::2]
    green[::2, 1::2], green[1::2, ::2] = raw[::2, 1::2], raw[1::2, ::2]
    return np.stack([red, green, blue])


def linear(clip: Tensor) -> Array:
    """R'G'B' of sRGB (IEC 61966-2-1) in [0, 1] -> light, 1 for white."""
    values = clip.double().numpy()
    return np.where(
        values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4
    )


def stored(light: Array) -> Tensor:
    """Light -> R'G'B' in [0, 1] as 8 bits hold it, float32."""
    light = np.clip(light, 0, 1)
    values = np.where(
        light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055
    )
    return torch.from_numpy(np.round(255 * values) / 255).float()


MODELS: dict[str, Callable[[Tensor, int], Pair]] = {
    "dehaze": hazy,
    "derain": rainy,
    "desnow": snowy,
    "deblur": shaken,
    "denoise": noisy,
}


def degraded_clips(clips: list[Tensor], task: str) -> Iterator[Pair]:
    """Every clip degraded for a task, the seed being its number."""
    for number, clip in enumerate(clips):
        yield MODELS[task](clip, number)
