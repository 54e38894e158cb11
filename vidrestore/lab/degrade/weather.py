"""Rain and snow as layers of particles that fall from frame to frame, blurred along their path and by the
lens.

Rain: O = t ((1 - S) J + S L) + (1 - t) A with streaks S of several layers, their light L, and distant rain as
a veil (W. Yang et al., "Deep joint rain detection and removal from a single image", CVPR 2017; R. Li et al.,
"Heavy rain image restoration", CVPR 2019). A drop shows a wide view of the scene upside down (K. Garg, S.
Nayar, "Vision and rain", IJCV 2007), so L is brighter than most of a scene. The rain of datasets is painted:
straight streaks, all white, in display values. Snow: K = z c + (1 - z) J with opacity z and colour c (Y.-F.
Liu et al., "DesnowNet", TIP 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade.counters import Counters
from vidrestore.lab.degrade.haze import add_haze, random_depth
from vidrestore.lab.degrade.particles import (
    Canvas,
    Particles,
    canvas_size,
    capsule,
    gaussian_spectrum,
    line_spectrum,
    moved,
    render,
    shape_spectrum,
)
from vidrestore.lab.degrade.per_sample import Rows, changed, in_turn, of_sample
from vidrestore.pixels.linear_light import from_light, to_light

# share of clips with rain that is painted over them, as in datasets
PAINTED_SHARE = 0.45
MOST_PAINTED = 3  # layers of such streaks
PAINTED_COVER = (0.1, 0.4)  # share of the picture under them
# in pixels, the latter the sigma across
PAINTED_LENGTH, PAINTED_WIDTH = (45.0, 200.0), (0.6, 1.5)
PAINTED = (0.1, 0.65)  # of white: what the brightest hundredth of the picture adds
# radians between painted rain and a vertical: usual, and at most
SLANT, STEEPEST = 0.3, 0.85
PAINTED_VEIL_SHARE = 0.1
STREAKS = (1e-4, 4e-3)  # streaks per pixel in the nearest layer
FLAKES = (2e-4, 7e-3)  # flakes per pixel of a layer with a radius of 1
# nearness of a layer of rain in focus: 1 is the nearest, with streaks of up to 60 pixels
STREAK_NEARNESS = (0.1, 1.0)
FINE_SHARE = 0.3  # share of clips with rain that have many fine streaks, long or short
FINE_COUNT = (4e-3, 2.5e-2)  # such streaks per pixel
FINE_LENGTH = (5.0, 45.0)
THICK_SHARE = 0.55  # share of clips with rain that have streaks too near to be in focus
THICK_SIGMA = (1.5, 6.0)  # sigma of their blur in pixels
THICK_COUNT = (5e-5, 6e-4)  # such streaks per pixel
STREAK_STRENGTH = (0.06, 0.8)  # least and greatest strength of streaks
OPACITY = (0.1, 1.5)  # optical depth of flakes
# speed of flakes; 1 is 4 pixels a frame and 8 more per pixel of radius
SNOW_SPEED = (0.4, 4.0)
STREAK = (3.0, 16.0)  # longest path of a flake in one exposure, in radii
LARGE_SHARE = 0.5  # share of clips with snow that have flakes too near to be in focus
LARGE = (4.0, 14.0)  # their radius in pixels
# share of clips with rain or snow that have a veil of distant particles
VEIL_SHARE = 0.8
# optical depth of the veil; heavy rain absorbs about a quarter of the light per hundred metres
VEIL = (0.0, 0.35)
# share of clips with weather added in linear light; in the others in display values, as in datasets
LINEAR_WEATHER_SHARE = 0.5
UNEVEN_VEIL_SHARE = 0.4  # share of clips whose veil has a depth
MOST_LAYERS, MOST_SMALL = 6, 5  # layers of streaks in focus, and of flakes; at least 2


def add_rain(
    clips: Tensor,
    streaks: Tensor,
    opacity: float | Tensor,
    transmission: Tensor,
    airlight: Tensor,
    light: float | Tensor = 1.0,
) -> Tensor:
    """Add streaks (..., T, 1, H, W) of `light` to (..., T, 3, H, W), all seen through a veil. At `opacity` 0
    they add light as in Yang et al.; at 1 they hide as much as they add.
    """
    return add_haze(
        clips * (1 - opacity * streaks) + light * streaks, transmission, airlight
    )


def add_snow(clips: Tensor, mask: Tensor, colour: Tensor) -> Tensor:
    """Add flakes of opacity (..., T, 1, H, W) in [0, 1] and colour (..., 3) in front of (..., T, 3, H, W)."""
    return clips + (colour[..., None, :, None, None] - clips) * mask


@in_turn
def rain(clips: Tensor, draw: Counters) -> Tensor:
    """Add layers of streaks at several depths, at about one angle, often thick ones near the lens as well; or
    white ones, painted in display values.
    """
    # streaks on a canvas that is larger than the picture
    canvas = canvas_size(clips.shape[3:])
    frames = clips.shape[1]
    painted = draw.chance(PAINTED_SHARE)
    streaks = torch.zeros((len(clips), frames, 1, *canvas))
    for layers, mask in ((_streaks, ~painted), (_painted, painted)):
        streaks = changed(
            streaks, mask, partial(_drawn, layers, frames, canvas, draw.branch())
        )
    streaks = _crop(streaks, clips)
    # light of the drops, and the veil behind which all lies
    in_light = draw.chance(LINEAR_WEATHER_SHARE) & ~painted
    light = torch.where(of_sample(painted), 1.0, _drop_light(clips, in_light, draw))
    transmission, airlight = _veil(
        clips, draw, torch.where(painted, PAINTED_VEIL_SHARE, VEIL_SHARE)
    )
    added_or_screened = draw.uniform(-1.2, 1.2).clamp(0, 1)
    opacity = of_sample(torch.where(painted, added_or_screened, draw.uniform(0.3, 1)))

    def add(scene: Tensor, air: Tensor) -> Tensor:
        return add_rain(scene, streaks, opacity, transmission, air, light)

    return _in_either(clips, in_light, airlight, add)


def _drawn(
    layers: Callable[[int, Canvas, Counters], Iterable[tuple[Tensor, Tensor]]],
    frames: int,
    canvas: Canvas,
    draw: Counters,
    rows: Rows,
) -> Tensor:
    """Return the maps (K, T, 1, *canvas) of some samples."""
    return render(layers(frames, canvas, draw.part(rows)), canvas)


def _in_either(
    clips: Tensor,
    in_light: Tensor,
    airlight: Tensor,
    add: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Apply `add` to clips and airlight (B, 3, 1, 1), where `in_light` (B,) in linear light."""
    # light, or display values, for those that are mixed in them
    scene = changed(clips, in_light, lambda rows: to_light(clips[rows]))
    air = torch.where(in_light[:, None, None, None], to_light(airlight), airlight)
    outputs = add(scene, air).clamp_(0, 1)
    return changed(outputs, in_light, lambda rows: from_light(outputs[rows]))


def _painted(
    frames: int, canvas: Canvas, draw: Counters
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield maps of straight streaks as an image editor makes them, with the spectrum of their softness:
    noise blurred along an angle, partly over a short way, of which only what exceeds a level stays.

    They are others in every frame, or move along their angle.
    """
    # what all layers share
    angle = (SLANT * draw.normal()).clamp(-STEEPEST, STEEPEST)
    layers = draw.integers(1, MOST_PAINTED + 1)
    level = _exceeded_by(draw.uniform(*PAINTED_COVER) / layers)
    # of all layers; each varies about these
    width, length, bright = (
        draw.log_uniform(bounds) for bounds in (PAINTED_WIDTH, PAINTED_LENGTH, PAINTED)
    )
    is_random = draw.chance(0.5)[:, None]
    speed = draw.log_uniform((3.0, 150.0))[:, None]
    jumps = draw.uniform(300.0, 5e3, 2)
    total = torch.zeros(())
    for number in range(MOST_PAINTED):
        part = draw.branch()
        tilted = angle + 0.04 * draw.normal()
        down = torch.stack((tilted.cos(), tilted.sin()), 1)
        # the softness: along the angle over a long way, and over a short one
        sigma = width * draw.log_uniform((0.5, 2.5))
        along = (length * draw.log_uniform((0.4, 2.0))).maximum(5 * sigma)
        line = line_spectrum(along, draw.uniform(0.1, 1) * along, down, canvas)
        brief = (along * draw.uniform(0.08, 0.3)).maximum(2.5 * sigma)
        brighter = draw.uniform(0.0, 1.5)
        parts = brighter[:, None, None] * line_spectrum(
            brief, 0.7 * brief, down, canvas
        )
        shape = (line + parts) * gaussian_spectrum(sigma, canvas)
        # the noise, moved from frame to frame
        noise = torch.fft.rfft2(part.normal(*canvas)) * shape
        spectra = moved(noise, frames, torch.where(is_random, jumps, speed * down))
        maps = torch.fft.irfft2(spectra, s=canvas)[:, :, None]
        # what exceeds the level
        above = maps / maps[:, :1].std((3, 4), keepdim=True) - of_sample(level)
        gain = draw.log_uniform((0.25, 1.5))
        most = draw.log_uniform((0.8, 5.0))
        streaks = (of_sample(gain) * above).clamp(min=0).minimum(of_sample(most))
        weight = draw.uniform(0.3, 1) * (number < layers)
        total = total + of_sample(weight) * streaks
    # the strength is that of the brightest hundredth
    samples = total[:, 0, 0, ::2, ::2].flatten(1)
    brightest = torch.quantile(samples, 0.99, dim=1).clamp(min=1e-3)
    yield (
        of_sample(bright / brightest) * total,
        gaussian_spectrum(draw.uniform(0.2, 0.4), canvas),
    )


def _exceeded_by(share: Tensor) -> Tensor:
    """Return the level that this share of standard normal numbers exceeds."""
    level: Tensor = -torch.special.ndtri(share)
    return level


def _streaks(
    frames: int, canvas: Canvas, draw: Counters
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield maps of streaks with the spectra of their profiles: in focus, and too near for it."""
    # what all layers of a clip share
    angle = 0.35 * draw.normal()
    strength = draw.log_uniform(STREAK_STRENGTH)
    down = torch.stack((angle.cos(), angle.sin()), 1)
    # relative to the longest exposure; drops are dots in a short one
    short = draw.log_uniform((0.2, 1.0))
    usual = draw.uniform(0.5, 1)
    exposure = torch.where(draw.chance(0.3), short, usual)
    # in focus, at several depths
    layers = draw.integers(2, MOST_LAYERS + 1)
    fine = draw.chance(FINE_SHARE)
    thick = draw.chance(THICK_SHARE)
    for number in range(MOST_LAYERS):
        scale = draw.log_uniform(STREAK_NEARNESS)
        part = draw.branch()
        density = draw.log_uniform(STREAKS) / scale
        length = 60 * scale * exposure * draw.uniform(0.5, 1)
        thin = scale * draw.uniform(0.6, 1.2)
        bright = strength * draw.uniform(0.5, 1.5)
        if (is_present := number < layers).any():
            particles = Particles.drawn(
                part, canvas, density * is_present, 120 * scale, length, down, 0.05
            )
            yield (
                particles.traces(frames, canvas, bright),
                gaussian_spectrum(thin.clamp(min=0.35), canvas),
            )
    # fine ones, as of distant or of heavy rain
    length = draw.log_uniform(FINE_LENGTH)
    part = draw.branch()
    density = draw.log_uniform(FINE_COUNT).minimum(0.25 / length)
    step = draw.uniform(1, 4) * length
    bright = draw.log_uniform((0.05, 0.5))
    sigma = draw.uniform(0.35, 0.8)
    if fine.any():
        particles = Particles.drawn(
            part, canvas, density * fine, step, length, down, 0.05
        )
        yield particles.traces(frames, canvas, bright), gaussian_spectrum(sigma, canvas)
    # near the lens
    sigma = draw.log_uniform(THICK_SIGMA)
    part = draw.branch()
    length = sigma * draw.uniform(4, 14) * exposure.sqrt()
    density = draw.log_uniform(THICK_COUNT)
    bright = (strength * draw.uniform(0.5, 1.5) + 0.08).clamp(max=0.6)
    if thick.any():
        step = torch.full_like(length, 200.0)
        particles = Particles.drawn(
            part, canvas, density * thick, step, length, down, 0.08
        )
        yield particles.traces(frames, canvas, bright), gaussian_spectrum(sigma, canvas)


def _drop_light(clips: Tensor, in_light: Tensor, draw: Counters) -> Tensor:
    """Return the colour of drops (B, T, 3, H, W), linear where `in_light`: sky light and surroundings."""
    # sky above all, and the surroundings upside down
    overall = clips.mean((1, 2, 3, 4))
    sky = (overall * draw.uniform(1.0, 1.8) + draw.uniform(0.15, 0.45)).clamp(max=1)
    colour = sky[:, None] * (1 + 0.02 * draw.normal(3))
    colour = colour[:, None, :, None, None]
    surroundings = clips[..., 2::5, 2::5].flip(3) - of_sample(overall)
    light = colour + of_sample(draw.uniform(0, 0.5)) * surroundings
    light = torch.maximum(light, 0.5 * colour).clamp(0, 1)
    light = torch.where(of_sample(in_light), to_light(light), light)
    return F.interpolate(light.flatten(0, 1), clips.shape[3:], mode="bilinear").view_as(
        clips
    )


@in_turn
def snow(clips: Tensor, draw: Counters) -> Tensor:
    """Add layers of flakes with common wind and individual drift; larger ones are fewer and out of focus."""
    # opacity adds up where flakes cover each other
    canvas = canvas_size(clips.shape[3:])
    depth = _crop(render(_flakes(clips.shape[1], canvas, draw), canvas), clips, 20)
    mask = 1 - torch.exp(-depth)
    transmission, airlight = _veil(clips, draw)
    in_light = draw.chance(LINEAR_WEATHER_SHARE)
    overall = clips.mean((1, 2, 3, 4))
    bright = draw.uniform(0.7, 1).maximum((1.3 * overall).clamp(max=1))
    colour = bright[:, None] * (1 + 0.02 * draw.normal(3))
    colour = torch.where(in_light[:, None], to_light(colour), colour)
    return _in_either(
        clips,
        in_light,
        airlight,
        lambda scene, air: add_snow(add_haze(scene, transmission, air), mask, colour),
    )


def _flakes(
    frames: int, canvas: Canvas, draw: Counters
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield maps of flakes of one size each, with the spectra of their shapes."""
    # what all flakes of a clip share
    wind = 0.8 * draw.normal()
    exposure = draw.log_uniform((0.03, 0.6))
    depth = draw.log_uniform(OPACITY)
    down = torch.stack((wind.cos(), wind.sin()), 1)
    small = draw.integers(2, MOST_SMALL + 1)
    large = draw.integers(1, 3) * draw.chance(LARGE_SHARE)
    for number in range(MOST_SMALL + 2):
        is_small = number < MOST_SMALL
        radius = draw.log_uniform((0.3, 4) if is_small else LARGE)
        part = draw.branch()
        is_present = number < small if is_small else number - MOST_SMALL < large
        density = draw.log_uniform(FLAKES) / radius**1.7
        fall = (4 + 8 * radius) * draw.log_uniform(SNOW_SPEED)
        streak = (fall * exposure).minimum(radius * draw.log_uniform(STREAK))
        # the light that a flake absorbs is spread over its disc, so larger flakes are fainter
        opacity = depth * draw.uniform(0.5, 1.5) * (3 / radius).sqrt().clamp(max=1)
        passed = (streak / (2 * radius + 1)).clamp(min=1)
        shape = _flake(radius, draw)
        if is_present.any():
            particles = Particles.drawn(
                part, canvas, density * is_present, fall, streak, down, 0.25
            )
            yield (
                particles.traces(frames, canvas, opacity / passed),
                shape_spectrum(shape, canvas),
            )


def _flake(radius: Tensor, draw: Counters) -> Tensor:
    """Return (B, side, side): a flake of a radius each, rarely round, sharp or out of focus."""
    # a short capsule, soft or sharp
    soft = draw.uniform(0.4, 1.6) * radius.clamp(min=1)
    softness = torch.where(draw.chance(0.7), soft, 0.7)
    return capsule(
        radius * draw.uniform(0, 1.2),
        draw.uniform(0, math.pi),
        0.7 * radius,
        softness,
        19,
    )


def _crop(maps: Tensor, clips: Tensor, largest: float = 1.0) -> Tensor:
    """Crop the pictures from the maps of a larger canvas."""
    height, width = clips.shape[3:]
    return maps[..., :height, :width].clamp(max=largest)


def _veil(
    clips: Tensor, draw: Counters, share: Tensor | float = VEIL_SHARE
) -> tuple[Tensor, Tensor]:
    """Return transmission (B, T, 1, H, W) and airlight (B, 3, 1, 1) of distant particles."""
    # the same everywhere, or by a depth
    density = of_sample(draw.uniform(*VEIL) * draw.chance(share))
    uneven = draw.chance(UNEVEN_VEIL_SHARE)
    branch = draw.branch()

    def uneven_depth(rows: Rows) -> Tensor:
        return random_depth(clips[rows], branch.part(rows))

    depth = changed(torch.ones_like(clips[:, :, :1]), uneven, uneven_depth)
    # the light of the sky, which lights the scene as well
    airlight = draw.uniform(0.5, 0.95).minimum(0.1 + 2 * clips.mean((1, 2, 3, 4)))
    return torch.exp(-density * depth), airlight.view(-1, 1, 1, 1).expand(-1, 3, -1, -1)
