"""From planes to groups of patches and back: where DUST's tokens are taken, and how their estimates become pictures again."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 20  # tokens of a group, the paper's clip length
CHUNK = 64  # groups restored at once: their activations stay in the processor's cache

Restore = Callable[[Tensor], Tensor]  # (B, T, N) noisy groups -> (B, T, N)


def origins_of(places: Tensor, height: int, width: int) -> Tensor:
    """(T, S, 2) corners -> (S, T) indices of their first pixels in the flattened plane (T, height, width)."""
    frames = torch.arange(len(places), device=places.device)[:, None]
    return ((frames * height + places[..., 0]) * width + places[..., 1]).T.contiguous()


def coverage(origins: Tensor, shape: tuple[int, int, int], patch: int) -> Tensor:
    """(T, H, W) int16, how many of the patches at flat `origins` hold each pixel, fewer than 2^15: +1 and -1 at patch corners, summed up
    along rows and columns. In place and in small integers: a clip has many pixels.
    """
    frames, height, width = shape
    row, column = origins.flatten().div(width, rounding_mode="floor"), origins.flatten() % width
    row = row + row.div(height, rounding_mode="floor")  # frames are one row taller here
    corners = torch.zeros(frames * (height + 1) * (width + 1), dtype=torch.int16, device=origins.device)
    for down, right, sign in ((0, 0, 1), (patch, 0, -1), (0, patch, -1), (patch, patch, 1)):
        index = (row + down) * (width + 1) + column + right
        corners.index_add_(0, index, torch.full_like(index, sign, dtype=torch.int16))
    return corners.view(frames, height + 1, width + 1).cumsum_(1).cumsum_(2)[:, :height, :width]


def patches_over_holes(counts: Tensor, patch: int) -> Tensor:
    """(P,) flat origins of patches that hold every pixel with a count of 0: per block of patch x patch pixels, one around its holes.

    They come sorted by place, then time, so that neighbours make a group.
    """
    frames, height, width = counts.shape
    rows, columns = -(-height // patch), -(-width // patch)
    holes = F.pad(counts == 0, (0, columns * patch - width, 0, rows * patch - height)).view(frames, rows, patch, columns, patch)
    top = holes.any(4).to(torch.uint8).argmax(2)  # (frames, rows, columns): first row of the block with a hole
    left = holes.any(2).to(torch.uint8).argmax(3)
    row, column, frame = holes.any(4).any(2).permute(1, 2, 0).nonzero().unbind(1)
    y = (row * patch + top[frame, row, column]).clamp(max=height - patch)
    x = (column * patch + left[frame, row, column]).clamp(max=width - patch)
    return (frame * height + y) * width + x


def restore_patches(plane: Tensor, origins: Tensor, patch: int, restore: Restore) -> Tensor:
    """Restore a plane (T, H, W) by groups of patches at flat (S, T) origins; holes that they leave are filled by groups of their own.

    Every pixel becomes the mean of the estimates that hold it.
    """
    frames, height, width = plane.shape
    counts = coverage(origins, (frames, height, width), patch)
    extra = patches_over_holes(counts, patch)
    total = torch.zeros(plane.numel(), device=plane.device)
    side = torch.arange(patch, device=plane.device)
    offsets = (side[:, None] * width + side).flatten()
    flat = plane.reshape(-1)
    full = len(extra) // GROUP * GROUP
    for groups in (*origins.split(CHUNK), *extra[:full].view(-1, GROUP).split(CHUNK), extra[full:][None]):
        if groups.numel():
            index = (groups[..., None] + offsets).flatten()
            restored = restore(flat.index_select(0, index).view(*groups.shape, -1))
            total.index_add_(0, index, restored.flatten())
    if len(extra):
        counts += coverage(extra, (frames, height, width), patch)
    return total.view_as(plane).div_(counts)
