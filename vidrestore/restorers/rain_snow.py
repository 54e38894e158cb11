"""Remove rain and snow: a network restores frames, and in video what is brighter than the same place of the
neighbouring frames goes, too.

Drops and flakes only add light, and seldom twice at one place (K. Garg, S. Nayar, "Detection and removal of
rain from videos", CVPR 2004). So the neighbours of a restored frame are aligned with it along the motion, and
where it is brighter than three of four, it becomes the mean of the middle two. It stays where the network
removes nothing around, and where the neighbours are aligned badly: where they differ from each other, or are
brighter than the frame as often as darker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.alignment import dense_motion, luma_of, means_around
from vidrestore.models.spynet import warp
from vidrestore.pixels.clips import reflected_window
from vidrestore.restorers.devices import CPU_MEMORY
from vidrestore.restorers.picture_restorer import (
    PictureRestorer,
    PreparedClip,
    facts_with_loss,
    pick,
)
from vidrestore.settings.options import RestoreOptions
from vidrestore.settings.tasks import TASKS
from vidrestore.working import threads_for

RADIUS = 2  # neighbours on either side
# Chosen on training clips with drawn rain and snow, and clear. Grey levels:
# an outlier is brighter by this at least, and replaced entirely if by so much more
OUTLIER_LEAST, OUTLIER_RAMP = 2.0, 4.0
# times the mean by which neighbours are brighter around, added to the least
DOUBT = 3.0
# mean change by the network between which the share of outliers that go grows
REMOVED = (1.0, 2.0)
# half the difference of the middle two neighbours between which that share falls
AGREEMENT = (1.5, 3.5)
# sides in pixels of the squares that differences are averaged over
CLOSE_SIDE, AROUND_SIDE, WIDE_SIDE = 3, 15, 31
SEARCH_MAPS = 12  # maps as large as a frame that the search takes, in frames


def without_outliers(
    source: Tensor, frames: Tensor, neighbours: Sequence[Tensor]
) -> Tensor:
    """Return restored frames (B, 3, H, W) without what four restored neighbours lack. `source`: the frames
    before the network.
    """
    first, second, third, fourth = aligned(frames, torch.cat([*neighbours])).chunk(4)
    one = torch.maximum(torch.minimum(first, second), torch.minimum(third, fourth))
    other = torch.minimum(torch.maximum(first, second), torch.maximum(third, fourth))
    middle = (one + other) / 2
    excess = frames - torch.maximum(one, other)  # over three of the four
    brighter = 255 * means_around(excess.amin(1, keepdim=True), CLOSE_SIDE)
    darker = levels_around((middle - frames).clamp_(min=0), AROUND_SIDE)
    disagreement = levels_around((one - other).abs_() / 2, AROUND_SIDE)
    # where much of a frame moves fast, neighbours may agree at a place and lack what moves there
    disagreement = torch.maximum(disagreement, disagreement.mean((2, 3), keepdim=True))
    removal = levels_around((source - frames).abs_(), WIDE_SIDE)
    share = ((brighter - OUTLIER_LEAST - DOUBT * darker) / OUTLIER_RAMP).clamp_(0, 1)
    share *= ((removal - REMOVED[0]) / (REMOVED[1] - REMOVED[0])).clamp_(0, 1)
    share *= ((AGREEMENT[1] - disagreement) / (AGREEMENT[1] - AGREEMENT[0])).clamp_(
        0, 1
    )
    return frames.lerp(middle, share)


def aligned(frames: Tensor, neighbours: Tensor) -> Tensor:
    """Return neighbours (N B, 3, H, W) warped onto frames (B, 3, H, W), by their motion at half size."""
    halves = [
        F.avg_pool2d(luma_of(pictures), 2, ceil_mode=True)
        for pictures in (frames, neighbours)
    ]
    references = halves[0].repeat(len(neighbours) // len(frames), 1, 1, 1)
    motion = 2 * dense_motion(references, halves[1])
    motion = F.interpolate(
        motion, frames.shape[-2:], mode="bilinear", align_corners=False
    )
    return warp(neighbours, motion, border="border")


def levels_around(differences: Tensor, side: int) -> Tensor:
    """Return the means of differences (B, 3, H, W) over channels and squares, in grey levels (B, 1, H, W)."""
    return means_around(differences.mean(1, keepdim=True).mul_(255), side)


class WeatherRestorer(PictureRestorer):
    """Restorer of `derain` and `desnow`: each frame goes through the network once, and is then compared with
    its neighbours.
    """

    radius = RADIUS
    shares = (2, 1)

    def __init__(self, task: str, options: RestoreOptions) -> None:
        super().__init__(task, options)
        if options.model is None and TASKS[task].amplifies_loss:
            own = self.facts.name, self.facts.weights
            self.facts = facts_with_loss(self.facts, [own])
        self.threads = threads_for(options.threads)

    def _other_bytes(self, height: int, width: int) -> int:
        frames = self.facts.clip + SEARCH_MAPS  # as many are cached, and more
        return super()._other_bytes(height, width) + 4 * 3 * height * width * frames

    def _shared_results(
        self, clip: PreparedClip, indices: Sequence[int]
    ) -> dict[int, Tensor]:
        count = len(clip.frames)
        if count == 1:
            return {}
        windows = (reflected_window(index, RADIUS, count) for index in indices)
        return self.cached(
            clip, chain(*windows), self.network_results, self._room(clip.frames)
        )

    def _restored(self, clip: PreparedClip, indices: Sequence[int]) -> Tensor:
        count = len(clip.frames)
        if count == 1:
            return super()._restored(clip, indices)
        windows = [reflected_window(index, RADIUS, count) for index in indices]
        at_once = []
        for place in zip(*windows, strict=True):
            at_once.append(torch.stack([clip.results[index] for index in place]))
        source = pick(clip.frames, indices).to(self.device)
        return without_outliers(source, at_once.pop(RADIUS), at_once)

    def _room(self, frames: Tensor) -> int:
        """Return how many restored frames the clips need that are restored at once, and one more clip."""
        memory = self.memory(frames.shape[-2], frames.shape[-1])
        clips = 1 if self.on_gpu else max(1, min(self.threads, CPU_MEMORY // memory))
        return 2 * RADIUS + (clips + 1) * (self.facts.clip - self.facts.overlap)


derainer = partial(WeatherRestorer, "derain")
desnower = partial(WeatherRestorer, "desnow")
