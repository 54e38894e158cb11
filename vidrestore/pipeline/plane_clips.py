"""Clips through restorers of colour planes: to floats, through the model, back to the source's own samples.

Frames that two clips share stay in floats until both clips are there to be cross-faded.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.clips import Planes
from vidrestore.colour import OPPONENT_NORMS, grey_to_stored, opponent_to_rgb, rgb_to_opponent
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame, PixelFormat
from vidrestore.pipeline.clip_restorer import (
    ClipRestorer,
    EdgedClip,
    Piece,
    Restored,
    all_finite,
    not_finite,
)
from vidrestore.pipeline.plan import Clip, colour_planes
from vidrestore.pipeline.transfers import as_arrays, floats
from vidrestore.restorers.base import PlaneRestorer

CLIPS_MEMORY = 600 << 20  # bytes for the float samples of all clips that are restored at once
COPIES = 4  # a clip's float samples while it is restored: in, out, and the model's sums


class Finish(NamedTuple):
    """What happens to restored planes.

    `strength` mixes: 1 is the restored picture, 0 the source; `chroma_strength` the colour differences, None:
    alike. `grain`: standard deviation of the grain that is added to brightness.
    """

    strength: float = 1.0
    chroma_strength: float | None = None
    grain: float = 0.0


PLAIN = Finish()


class PlaneClipRestorer(ClipRestorer):
    """A ClipRestorer for models of colour planes; frames that two clips share are cross-faded."""

    def __init__(
        self,
        restorer: PlaneRestorer,
        pixels: PixelFormat,
        finish: Finish = PLAIN,
        threads: int = 1,
    ) -> None:
        super().__init__(restorer.facts, pixels, threads)
        self.restorer = restorer
        self.strengths = [finish.strength] * colour_planes(pixels)
        if pixels.family == "yuv" and finish.chroma_strength is not None:
            self.strengths[1:] = [finish.chroma_strength] * (len(self.strengths) - 1)
        self.grain = finish.grain

    def clips_at_once(self, frame: Frame) -> int:
        """See `ClipRestorer.clips_at_once`: single-threaded clips use the cores best while memory lasts."""
        if self.facts.parallel:
            return self.facts.parallel
        samples = self.facts.clip * sum(plane.size for plane in frame.planes) * self.facts.scale**2
        return max(1, min(self.threads, CLIPS_MEMORY // (COPIES * 4 * samples)))

    def pieces(self, edged: EdgedClip) -> tuple[Piece, Piece]:
        """See `ClipRestorer.pieces`."""
        clip, frames, before, after, sent = edged
        edge = min(max(before, after), clip.stop)
        source = floats(sent.arrived(), self.pixels.unit) if sent else clip_planes(frames, self.pixels)
        planes = self._restored(clip, source)
        del source
        done = (
            self._brought_back(frames, planes, range(before - clip.first, after - clip.first)) if sent else {}
        )
        restored = []
        for index, (frame, *each) in enumerate(zip(frames, *planes, strict=True), clip.first):
            if index - clip.first in done:
                restored.append(done[index - clip.first])
            elif before <= index < after:
                restored.append(self._finished(Restored(frame, tuple(each))))
            else:
                # a view would keep the whole clip in memory
                own_planes = tuple(plane.clone() for plane in each)
                restored.append(Restored(frame, own_planes))
        own = edge - clip.first
        return ((clip.first, edge), restored[:own]), ((edge, clip.stop), restored[own:])

    def _brought_back(self, frames: list[Frame], planes: Planes, wanted: range) -> dict[int, Restored]:
        """Return the frames of a device's planes that no other clip has, by place: one copy per plane."""
        places = range(max(0, wanted.start), min(len(frames), wanted.stop))
        if not places:
            return {}
        chosen = [plane[places.start : places.stop] for plane in planes]
        stacks = as_arrays(grey_to_stored(chosen, self.pixels), self.pixels.depth)
        return {
            place: Restored(replace(frames[place], planes=(*native, *frames[place].planes[len(native) :])))
            for place, *native in zip(places, *stacks, strict=True)
        }

    def halve_batch(self) -> bool:
        return self.restorer.halve_batch()

    def too_large(self, clip: Clip) -> VidRestoreError:
        """Return the error for a clip that a GPU has too little memory for."""
        name = self.facts.name
        return VidRestoreError(
            f"frames {clip.first} to {clip.stop - 1}: {name} finds too little memory on the GPU; use "
            "`device=cpu`"
        )

    def _restored(self, clip: Clip, source: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        restored = self._by_network(source, clip)
        if not all_finite(restored):
            restored = self._again(source, clip)
        return self.finished_estimate(source, restored, clip.first)

    def _by_network(self, source: Planes, clip: Clip, precision: str | None = None) -> Planes:
        """Return restored planes; noise of R, G, B is removed from luma and colour differences, which the
        picture fills less evenly.
        """
        restore = partial(self.restorer.restore, measured=any(clip.rms), precision=precision)
        if self.pixels.family != "rgb" or not any(clip.sigma):
            return restore(source, clip.sigma)
        levels = tuple(level * norm for level, norm in zip(clip.sigma, OPPONENT_NORMS, strict=True))
        return opponent_to_rgb(restore(rgb_to_opponent(source), levels))

    def finished_estimate(self, source: Planes, restored: Planes, first: int) -> Planes:
        """Return restored planes (T, H, W) of the frames from `first` on, mixed with their source and with
        grain.
        """
        restored = tuple(map(_mixed, source, restored, self.strengths))
        if self.grain:
            return with_grain(restored, self.grain, first, colour=self.pixels.family == "yuv")
        return restored

    def _again(self, source: tuple[Tensor, ...], clip: Clip) -> tuple[Tensor, ...]:
        self.count_retry()
        restored = self._by_network(source, clip, "fp32")
        if not all_finite(restored):
            raise not_finite(clip, self.facts.name)
        return restored


def _mixed(before: Tensor, after: Tensor, strength: float) -> Tensor:
    return after if strength == 1 else before.lerp(after, strength)


def clip_planes(frames: list[Frame], pixels: PixelFormat) -> tuple[Tensor, ...]:
    """Return each colour plane of a clip as one tensor (T, H, W), float32 on the 0-255 scale."""
    return tuple(
        _stacked([frame.planes[plane] for frame in frames], pixels.unit)
        for plane in range(colour_planes(pixels))
    )


def _stacked(planes: list[NDArray[Any]], unit: float) -> Tensor:
    """One pass over memory that NumPy takes in huge pages: for small models the page faults would cost more
    than the conversion.
    """
    stack = np.empty((len(planes), *planes[0].shape), np.float32)
    for target, plane in zip(stack, planes, strict=True):
        target[...] = plane
    return torch.from_numpy(stack if unit == 1 else np.divide(stack, np.float32(unit), out=stack))


# Even film grain, for pictures that look too smooth, or to hide banding
GRAIN_BLUR = 0.6  # pixels, standard deviation of the blur
GRAIN_LEAST = 0.35  # strength at black and white over that in mid tones


def with_grain(planes: tuple[Tensor, ...], sigma: float, first: int, *, colour: bool) -> tuple[Tensor, ...]:
    """Return planes (T, H, W) on the 0-255 scale with grain of `sigma` in mid tones; less at black and white.

    The grain of a frame follows from its number alone, `first` for the first one. With `colour` the planes
    after the first are colour differences and stay as they are; otherwise all get the same grain.
    """
    frames, height, width = planes[0].shape
    noise = torch.stack([_frame(height, width, first + index) for index in range(frames)]).to(
        planes[0].device
    )
    grained = planes[:1] if colour else planes
    return (*(plane + sigma * noise * _tone(plane) for plane in grained), *planes[len(grained) :])


def _frame(height: int, width: int, number: int) -> Tensor:
    """Return (H, W) blurred noise of unit variance."""
    white = torch.randn(1, 1, height + 4, width + 4, generator=torch.Generator().manual_seed(number))
    line = torch.exp(-0.5 * (torch.arange(-2.0, 3.0) / GRAIN_BLUR) ** 2)
    line = line / line.norm()
    across = F.conv2d(white, line.view(1, 1, 1, 5))
    return F.conv2d(across, line.view(1, 1, 5, 1))[0, 0]


def _tone(plane: Tensor) -> Tensor:
    """Share of the grain by brightness: 1 in mid tones."""
    light = (plane / 255).clamp(0, 1)
    return GRAIN_LEAST + (1 - GRAIN_LEAST) * 4 * light * (1 - light)
