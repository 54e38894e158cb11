"""Remove haze: two networks look at a small picture, and their change of luma is applied to the full frame,
smoothed over neighbouring frames.

One network estimates the depth of the haze and removes only that, the other was trained on thick fog. In a
scene with almost no haze nothing changes; in more haze the first decides, and in thick haze the logarithm of
luma is mostly that of the second. Both invent colours, so those of the scattering model are taken: a frame is
a share of the scene's light, and light of the colour of the airlight. Who asks for haze to go always sees
some: where the networks don't, luma is mostly that of the dark channel prior. In thick haze the networks
darken the sky, too, in blotches: it stays.

The amount of haze is seen in a whole scene, not in a corner of it, and haze changes little from pixel to
pixel. So a small picture suffices, and takes a fraction of the time. Its change, a gain and an offset for
every place, is that of the fast guided filter: K. He, J. Sun, "Fast Guided Filter", arXiv 1505.00996, 2015;
K. He, J. Sun, X. Tang, "Guided Image Filtering", IEEE TPAMI 35, 2013.

The haze varies a little from frame to frame by the networks, so its depth, the colour of the airlight and the
change of brightness are averaged over neighbouring frames. No pixels are averaged: motion leaves no ghosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.errors import CheckpointError, OptionError
from vidrestore.models.alignment import luma_of
from vidrestore.models.dark_channel import DarkChannel, HazySky, share
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.models.scattering import without_haze
from vidrestore.pixels.clips import reflected_window
from vidrestore.pixels.linear_light import from_light
from vidrestore.restorers.base import PictureForm
from vidrestore.restorers.picture_restorer import (
    PictureRestorer,
    PreparedClip,
    default_model,
    facts_with_loss,
    pick,
)
from vidrestore.settings.options import RestoreOptions
from vidrestore.weights import Model, load_model

TASK = "dehaze"
# joined by default with the network that estimates haze
THICK_HAZE = "mb-taylorformer-t-dehaze"
# Parameters of weights
COARSE_LINES = "coarse_lines"  # lines of the small picture
MOST_LINES = 1 << 15
# a frame whose shorter side is below this times the lines is restored itself
LEAST_RATIO = 1.5
GUIDE_RADIUS = 2  # radius of the windows of a change, in pixels of the small picture
# added to the variance in a window, so that the gain of flat windows is near 1
FLAT = 1e-5

# Mean optical depths of a scene between which the share of its haze that is removed grows, and between which
# the share of the second network grows, to MOST_THICK. Clear frames and photographs have up to 0.05, hazy
# photographs 0.04 to 0.65. What `suggest` and the result call haze has limits of its own, in grey levels
# (`jobs.findings`, `event_log`).
HAZE, THICK, MOST_THICK = (0.04, 0.2), (0.1, 0.3), 0.7
# share of the dark channel prior in the logarithm of luma, of scenes that aren't THICK
MOST_PRIOR = 0.7
# share of the source in the logarithm of luma of the sky in THICK haze
SKY_LEFT = 0.9
# deviations of luma between which a scene is seen; behind an even picture, as of a fade to white, is none
SEEN = 1 / 255, 3 / 255
BLACK = 4e-3  # luma is taken to be brighter
# most that colours gain by contrast alone: more shows blocks and a brown sky
CLEAREST = 1.8

# frames on either side that depth, airlight and change of brightness are averaged over
ESTIMATE_RADIUS = 5
ESTIMATES = 48  # estimates of haze that are cached for neighbouring clips


def coarse_lines(parameters: Mapping[str, Any], name: str) -> int | None:
    """Return the lines of the small picture from the parameters of the weights `name`; None if the network
    restores whole frames.

    Raises CheckpointError unless they are a whole number from 1 to MOST_LINES.
    """
    lines = parameters.get(COARSE_LINES)
    if lines is not None and (type(lines) is not int or not 1 <= lines <= MOST_LINES):
        raise CheckpointError(
            f"{name}: {COARSE_LINES} must be a whole number from 1 to {MOST_LINES}, found {lines!s:.40}"
        )
    return lines


def coarse_size(
    height: int, width: int, lines: int | None, multiple: int
) -> tuple[int, int]:
    """Return (height, width) of the small picture: the shorter side is near `lines`, both are multiples of
    `multiple`. Without `lines`, or if the frame is hardly larger, it is the frame's own size.
    """
    if lines is None or min(height, width) < LEAST_RATIO * lines:
        return height, width
    scale = lines / min(height, width)
    rows, columns = (
        max(multiple, round(side * scale / multiple) * multiple)
        for side in (height, width)
    )
    return rows, columns


def guided_change(
    small: Tensor, restored: Tensor, size: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return gain and offset (B, C, H, W) that change a frame as `small` (B, C, h, w) changes to `restored`.

    In every window of `small` and for every channel, they make gain * small + offset nearest to `restored` by
    least squares (He et al. 2013, eqs. 5 and 6; here the gain of flat windows tends to 1). Their means over
    the windows that cover a pixel are enlarged bilinearly to the frame (He and Sun 2015, algorithm 2).
    """
    # subtracted, since rounding would outweigh a small variance
    level = small.mean((-2, -1), keepdim=True)
    centred = small - level
    mean, aim = _means(centred), _means(restored)
    variance, covariance = (
        _means(centred * centred) - mean * mean,
        _means(centred * restored) - mean * aim,
    )
    gain = (covariance + FLAT) / (variance + FLAT)
    gain, offset = _means(gain), _means(aim - gain * mean)
    maps = torch.cat((gain, offset - gain * level), 1)
    gain, offset = F.interpolate(
        maps, size=size, mode="bilinear", align_corners=False
    ).chunk(2, 1)
    return gain, offset


def _means(maps: Tensor) -> Tensor:
    """Return means over windows; at the borders over the part inside the picture."""
    return F.avg_pool2d(
        maps,
        2 * GUIDE_RADIUS + 1,
        stride=1,
        padding=GUIDE_RADIUS,
        count_include_pad=False,
    )


class HazeNetworks(nn.Module):
    """The two default networks: map pictures (B, 3, H, W) to (B, 10, H, W), the output of the first, its
    optical depth, the R'G'B' of its airlight, and the output of the second.
    """

    def __init__(self, first: MBTaylorFormer, thick: nn.Module) -> None:
        super().__init__()
        self.config, self.first, self.thick = first.config, first, thick

    def forward(self, pictures: Tensor) -> Tensor:
        haze = self.first.scattering(pictures)
        deviation = luma_of(pictures).std((2, 3), correction=0, keepdim=True)
        airlight = from_light(haze.airlight).expand_as(pictures)
        return torch.cat(
            (
                without_haze(pictures, haze),
                haze.depth * share(deviation, *SEEN),
                airlight,
                self.thick(pictures).float(),
            ),
            1,
        )


class HazeEstimate(NamedTuple):
    """Small pictures (B, C, h, w), and as networks restored them: R'G'B' of one network, luma of two."""

    source: Tensor
    restored: Tensor  # by the first network
    thick: Tensor | None = None  # by the second
    # (B, 5, 1, 1): mean optical depth, share of a sky, and R'G'B' of airlight whose luma is 1
    haze: Tensor | None = None
    sky: Tensor | None = None  # how much each place is sky, if there is one
    prior: Tensor | None = None  # luma by the dark channel prior, if all haze is to go

    def clear(self, scene: Tensor | None) -> Tensor:
        """Return the pictures without haze, in scenes (B, 2, 1, 1) of these mean optical depths and shares of
        a sky.
        """
        if scene is None or self.thick is None or self.sky is None:
            return self.restored
        depth, sky = scene.split(1, 1)
        thickness = share(depth, *THICK)
        first, thick = self.restored.log(), self.thick.log()
        if self.prior is not None:
            clear = first.lerp(thick, MOST_THICK)
            clear = clear.lerp(self.prior.log(), MOST_PRIOR * (1 - thickness))
        else:
            clear = first.lerp(thick, MOST_THICK * thickness)
        left = SKY_LEFT * thickness * sky * self.sky
        clear = clear.lerp(self.source.log(), left).exp()
        if self.prior is not None:
            return clear
        return self.source.lerp(clear, share(depth, *HAZE))


def estimates_of(
    small: Tensor, outputs: Tensor, *, always: bool = False
) -> list[HazeEstimate]:
    """Return the estimates of small pictures (B, 3, h, w) from the outputs of a network or HazeNetworks;
    `always`: with the dark channel prior for haze that the latter don't see.
    """
    parts = [small, outputs[:, :3].clamp(0, 1)]
    if outputs.shape[1] > 3:
        first, depth, airlight, thick = outputs.split((3, 1, 3, 3), 1)
        lumas = (
            luma_of(torch.cat((small, first, thick)).clamp(0, 1))
            .clamp(min=BLACK)
            .chunk(3)
        )
        depth, airlight = (
            maps.mean((2, 3), keepdim=True) for maps in (depth, airlight)
        )
        sky, scene = HazySky().shares(small.clamp(0, 1))
        haze = torch.cat((depth, scene, airlight / luma_of(airlight)), 1)
        parts = [*lumas, haze, sky]
        parts += [DarkChannel().clear_luma(small.clamp(0, 1)).clamp(min=BLACK)] * always
    frames = zip(*(part.split(1) for part in parts), strict=True)
    return [HazeEstimate(*maps) for maps in frames]


def dehaze_smoothly(
    windows: Sequence[Sequence[HazeEstimate]], frames: Tensor
) -> Tensor:
    """Return frames (B, 3, H, W) without haze, each as the middle one of T estimates has it.

    The haze, and the gain of each channel's mean, are the means over all estimates of a window.
    """
    count, length = len(windows), len(windows[0])
    fields = zip(*(estimate for window in windows for estimate in window), strict=True)
    estimates = HazeEstimate._make(
        None if maps[0] is None else torch.cat(maps) for maps in fields
    )
    scene = haze = None
    if estimates.haze is not None:
        haze = estimates.haze.unflatten(0, (count, length)).mean(1)
        scene = haze[:, :2].repeat_interleave(length, 0)
    if estimates.sky is not None:
        # the same for all estimates of a window, whose edges it then gets
        sky = estimates.sky.unflatten(0, (count, length)).mean(1)
        sky = HazySky().edged(estimates.source, sky.repeat_interleave(length, 0))
        estimates = estimates._replace(sky=sky)
    clear = estimates.clear(scene)
    gains = (_level(clear) / _level(estimates.source)).unflatten(0, (count, length))
    steady: Tensor = gains.mean(1) / gains[:, length // 2]
    middle = slice(length // 2, None, length)
    gain, offset = guided_change(
        estimates.source[middle], clear[middle], frames.shape[-2:]
    )
    if haze is None:
        return (gain * frames + offset) * steady
    return with_luma(frames, gain, offset, steady, haze[:, 2:])


def with_luma(
    frames: Tensor, gain: Tensor, offset: Tensor, steady: Tensor, colour: Tensor
) -> Tensor:
    """Return R'G'B' (B, 3, H, W) with (gain * luma + offset) * steady as luma, by the scattering model in
    display values: a scene's contrast grows by one factor in all channels, and what is taken off has the
    colour (B, 3, 1, 1) of the airlight, whose luma is 1.
    """
    luma = luma_of(frames)
    clear = (gain * luma + offset) * steady
    contrast = torch.maximum(gain.clamp(1, CLEAREST), clear / luma.clamp(min=BLACK))
    return contrast * frames + colour * (clear - contrast * luma)


def _level(pictures: Tensor) -> Tensor:
    """Return the means of channels (B, C, 1, 1), none of them black."""
    return pictures.mean((-2, -1), keepdim=True).clamp(min=BLACK)


class DehazeRestorer(PictureRestorer):
    """Restorer of `dehaze` by networks that look at small pictures, or estimate haze."""

    radius = ESTIMATE_RADIUS
    shares = (2, 1)

    def __init__(self, options: RestoreOptions, model: Model | None = None) -> None:
        model = model or default_model(TASK, options)
        self.always = options.haze == "always"
        self.lines = coarse_lines(model.card.parameters, model.card.name)
        super().__init__(TASK, options, model)
        network = model.network
        if (
            isinstance(network, MBTaylorFormer)
            and self.form.haze
            and options.model is None
        ):
            thick = load_model(THICK_HAZE, device=self.facts.device)
            self.network = HazeNetworks(network, thick.network).eval()
            cards = model.card, thick.card
            both = replace(self.facts, name="+".join(card.name for card in cards))
            files = [(card.name, card.sha256) for card in cards]
            self.facts = facts_with_loss(both, files)

    def _source_size(self, height: int, width: int) -> tuple[int, int]:
        return coarse_size(height, width, self.lines, self.form.multiple)

    def _source(self, clip: Tensor) -> Tensor:
        size = self._source_size(clip.shape[-2], clip.shape[-1])
        return F.interpolate(clip.to(self.device), size=size, mode="area")

    def haze_level(self, picture: Tensor) -> float:
        """Return the first network's mean change of a picture (3, H, W) in grey levels."""
        source = self._source(picture[None])
        restored = self.network_output(picture[None])[:, :3].clamp(0, 1)
        return 255 * float((restored - source).abs().mean())

    def _shared_results(
        self, clip: PreparedClip, indices: Sequence[int]
    ) -> dict[int, HazeEstimate]:
        windows = (
            reflected_window(index, ESTIMATE_RADIUS, len(clip.frames))
            for index in indices
        )
        return self.cached(clip, chain(*windows), self._estimates, ESTIMATES)

    def _restored(self, clip: PreparedClip, indices: Sequence[int]) -> Tensor:
        windows = [
            reflected_window(index, ESTIMATE_RADIUS, len(clip.frames))
            for index in indices
        ]
        frames = pick(clip.frames, indices).to(self.device)
        estimate_windows = [
            [clip.results[index] for index in window] for window in windows
        ]
        return dehaze_smoothly(estimate_windows, frames)

    def _estimates(
        self, clip: PreparedClip, indices: Sequence[int]
    ) -> list[HazeEstimate]:
        outputs = self.network_results(clip, indices)
        return estimates_of(pick(clip.source, indices), outputs, always=self.always)


def dehazer(options: RestoreOptions) -> PictureRestorer:
    """Return the restorer of `dehaze`. Raises CheckpointError, OptionError."""
    if options.haze == "always" and options.model is not None:
        raise OptionError(
            f"`haze=always` is for the two default networks; {options.model} alone always removes what it "
            "sees: leave out one of `haze` and `model`"
        )
    model = default_model(TASK, options)
    if COARSE_LINES in model.card.parameters or PictureForm.of(model.network).haze:
        return DehazeRestorer(options, model)
    return PictureRestorer(TASK, options, model)
