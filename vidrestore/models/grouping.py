"""Groups of patches: take DUST's tokens from planes, and average their estimates to planes again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.models.fast_linear import Linear
from vidrestore.models.fitted import on_device

GROUP = 20  # tokens of a group, the paper's clip length
# groups restored at once, so that their activations stay in the processor's cache
CHUNK = 32
# The last chunk is padded to a multiple of this, because oneDNN keeps megabytes of code for every size.
STEP = 16
STEPS_KEPT = 32  # sizes of planes
INT32_MOST = 2**31 - 1

Restore = Callable[[Tensor], Tensor]  # (B, T, N) noisy groups -> (B, T, N)


def frames_at_once(clip: Tensor) -> int:
    """Return how many frames of a clip (T, ...) to compute at once: one on a CPU, so that it stays in the
    cache, all on a GPU, where every operation costs a launch.
    """
    return 1 if clip.device.type == "cpu" else max(1, len(clip))


class GroupNetwork(Protocol):
    """The methods that a network of groups of patches has in addition to those of nn.Module."""

    config: Any  # a dataclass with at least `patch`, the side of the patches in pixels
    sensing: Any  # the sensing matrix (M, N), a parameter; None for a denoiser

    def parameters(self) -> Iterator[Tensor]: ...

    def measure(self, patches: Tensor) -> Tensor:
        """Map clean patches (B, T, N) to the network's input (B, T, M), before noise."""
        ...

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> Callable[[Tensor], Tensor]:
        """Return the function (B, T, M) -> (B, T, N) for one noise level, with matrix products in `dtype`."""
        ...


def origins_of(positions: Tensor, height: int, width: int) -> Tensor:
    """Convert (T, S, 2) corners to (S, T) indices of their pixels in the flattened (T, height, width)."""
    frames = torch.arange(len(positions), device=positions.device)[:, None]
    return (
        (frames * height + positions[..., 0]) * width + positions[..., 1]
    ).T.contiguous()


def coverage(origins: Tensor, shape: tuple[int, int, int], patch: int) -> Tensor:
    """Return (T, H, W) int16: the number of patches at flat `origins` that contain each pixel, fewer than
    2^15.

    +1 and -1 at patch corners are summed along rows and columns, in place and in small integers to save
    memory.
    """
    frames, height, width = shape
    row, column = (
        origins.flatten().div(width, rounding_mode="floor"),
        origins.flatten() % width,
    )
    row = row + row.div(height, rounding_mode="floor")  # frames are one row taller here
    corners = torch.zeros(
        frames * (height + 1) * (width + 1), dtype=torch.int16, device=origins.device
    )
    steps, signs = _corner_steps(patch, width + 1, origins.device)
    places = (row * (width + 1) + column)[:, None] + steps
    corners.index_add_(0, places.flatten(), signs.repeat(len(places)))
    return (
        corners.view(frames, height + 1, width + 1)
        .cumsum_(1)
        .cumsum_(2)[:, :height, :width]
    )


@lru_cache(STEPS_KEPT)
def _corner_steps(
    patch: int, width: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the steps from a patch's corner to all four in lines of `width` pixels, and what each counts."""
    down = patch * width
    steps, signs = (
        torch.tensor([0, down, patch, down + patch]),
        torch.tensor([1, -1, -1, 1]),
    )
    return on_device(steps, device), on_device(signs.short(), device)


def patches_over_holes(counts: Tensor, patch: int) -> Tensor:
    """Return (P,) flat origins of patches that contain every pixel with a count of 0.

    There is one patch per block of patch x patch pixels, around the block's holes. They are sorted by
    position, then time, so that neighbours form a group.
    """
    frames, height, width = counts.shape
    # a GPU waits once, for the number of patches
    if counts.device.type == "cpu" and counts.amin() > 0:
        return torch.empty(0, dtype=torch.long, device=counts.device)
    rows, columns = -(-height // patch), -(-width // patch)
    right, bottom = columns * patch - width, rows * patch - height
    holes = F.pad(counts == 0, (0, right, 0, bottom)).view(
        frames, rows, patch, columns, patch
    )
    in_rows = holes.any(4)
    row, column, frame = in_rows.any(2).permute(1, 2, 0).nonzero().unbind(1)
    # first row of the block with a hole
    top = in_rows[frame, row, :, column].to(torch.uint8).argmax(1)
    left = holes[frame, row, :, column].any(1).to(torch.uint8).argmax(1)
    y = (row * patch + top).clamp(max=height - patch)
    x = (column * patch + left).clamp(max=width - patch)
    return (frame * height + y) * width + x


def windows(plane: Tensor, patch: int) -> Tensor:
    """Return (origins, patch, patch), the patch at each flat origin, a view of a plane (T, H, W)."""
    width = plane.shape[2]
    last = plane.numel() - (patch - 1) * (width + 1)
    return plane.as_strided((last, patch, patch), (1, width, 1))


def add_patches(total: Tensor, origins: Tensor, width: int, patches: Tensor) -> None:
    """Add patches (..., N) to a flattened plane (T * H * W,), fp32, whose lines have `width` pixels, at flat
    `origins` (...). A GPU reads indices of half the size.
    """
    short = total.device.type != "cpu" and total.numel() <= INT32_MOST
    dtype = torch.int32 if short else torch.long
    line = torch.arange(math.isqrt(patches.shape[-1]), dtype=dtype, device=total.device)
    steps = (line[:, None] * width + line).flatten()
    places = (origins.to(dtype)[..., None] + steps).flatten()
    if short:
        total.index_add_(0, places, patches.flatten())
    else:
        total.scatter_add_(0, places, patches.flatten())


def averaged(total: Tensor, counts: Tensor) -> Tensor:
    """Divide sums (T, H, W) by their integer `counts`, in place, and return them. A CPU copies the divisors
    to floats, so it has few of them at once.
    """
    step = frames_at_once(total)
    for sums, numbers in zip(total.split(step), counts.split(step), strict=True):
        sums.div_(numbers)
    return total


def restore_patches(
    plane: Tensor,
    origins: Tensor,
    patch: int,
    restore: Restore,
    chunk: int = CHUNK,
) -> Tensor:
    """Restore a plane (T, H, W) by groups of patches at flat (S, T) origins, `chunk` groups at once.

    Every pixel becomes the mean of the estimates that contain it. Pixels without an estimate are covered by
    extra groups.
    """
    frames, height, width = plane.shape
    plane = plane.contiguous()
    counts = coverage(origins, (frames, height, width), patch)
    holes = patches_over_holes(counts, patch)
    # the first ones are repeated to fill the last group
    room = -(-len(holes) // GROUP) * GROUP
    filling = torch.arange(room, device=holes.device) % max(len(holes), 1)
    extra = holes[filling].view(-1, GROUP)
    total = torch.zeros_like(plane).view(-1)
    patches = windows(plane, patch)

    def restored(groups: Tensor) -> Tensor:
        filled = torch.cat([groups, groups[-1:].expand(-len(groups) % STEP, -1)])
        return restore(
            patches.index_select(0, filled.flatten()).view(*filled.shape, -1)
        )[: len(groups)]

    parts = [
        groups
        for groups in (*origins.split(chunk), *extra.split(chunk))
        if groups.numel()
    ]
    for groups, estimates in zip(parts, dealt(restored, parts), strict=True):
        add_patches(total, groups, width, estimates)
    if len(extra):
        counts += coverage(extra, (frames, height, width), patch)
    return averaged(total.view_as(plane), counts)


def patches_at(plane: Tensor, groups: Tensor, side: int) -> Tensor:
    """Return the patches of a contiguous plane at flat (S, T) origins: (S, T, N)."""
    patches = windows(plane, side).index_select(0, groups.flatten())
    return patches.view(*groups.shape, -1)
