"""The qualities of the task `denoise`: which groups of patches are restored, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vidrestore.models.patch_positions import Following


class Sampling(NamedTuple):
    """The positions of groups of patches."""

    stride: int  # in sixteenths of a patch
    positions: Following
    grids: int = 1


class Further(NamedTuple):
    """Further estimates of luma, each guided by the one before: one by `second_estimate`, then some by
    `nonlocal_bayes`, from `grids` of groups each, of as many patches in every frame as `samples`. Patches may
    be matched once more, in the first estimate.
    """

    stride: int
    estimates: int
    grids: int = 1
    samples: int = 3
    matched_again: bool = False


@dataclass(frozen=True)
class Preset:
    """A quality: the groups of patches that are restored.

    `first` are those of the first plane. Smaller planes, of colour differences, are restored at half their
    size with `half`, and where they are detailed also at full size with `colour`. `second` are those of
    further estimates of the first plane. `second_colour` are the groups for a second estimate of the others;
    each of their grids makes an estimate of white noise, guided by that of the one before. `finished`: the
    last estimates are corrected by small networks.
    """

    first: Sampling
    half: Sampling
    colour: Sampling
    second: Further
    second_colour: Sampling
    finished: bool = True


GRIDS = 4  # one, and those shifted by half a stride; the first estimate has the grid that isn't shifted
PRESETS = {
    "fast": Preset(
        first=Sampling(16, "matched"),
        half=Sampling(16, "camera"),
        colour=Sampling(16, "camera"),
        second=Further(16, estimates=1),
        second_colour=Sampling(16, "camera"),
        finished=False,
    ),
    "default": Preset(
        first=Sampling(16, "matched"),
        half=Sampling(14, "camera"),
        colour=Sampling(16, "camera"),
        second=Further(16, estimates=2, samples=4, matched_again=True),
        second_colour=Sampling(16, "camera", 2),
    ),
    "best": Preset(
        first=Sampling(8, "matched"),
        half=Sampling(5, "matched"),
        colour=Sampling(8, "camera"),
        second=Further(8, estimates=3, grids=2, samples=4, matched_again=True),
        second_colour=Sampling(8, "matched", 2),
    ),
}
