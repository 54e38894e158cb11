"""Eigenvectors of small symmetric matrices: by LAPACK on a CPU, on a GPU by a fixed sequence of products.

`torch.linalg.eigh` waits for a GPU, to read error codes. Here all pairs of basis vectors are rotated at once,
by the angles of Jacobi's method. Rotations that share a vector disturb each other, so they are shortened
where there are many; towards the end all are small, and convergence is quadratic. The start is the DCT, which
is near the principal components of patches along time. Of 2,000 groups of noisy video, 20 frames each, half
had as little beside the diagonal after ten turns as after LAPACK, and 99 % after twelve.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from vidrestore.models.fitted import on_device

TURNS = 12
LEAST = 1e-20
MOST = 1.8  # radians: sum of the rotations of one vector in a turn
TIE = 2e-6  # of the norm: eigenvalues that are nearer to each other count as equal, and hardly turn
SIZES_KEPT = 32


def eigenvectors(matrices: Tensor) -> Tensor:
    """Return orthonormal eigenvectors (S, N, N), in columns, of symmetric matrices (S, N, N) in fp32 without
    NaN and infinity, by ascending eigenvalues.
    """
    if matrices.device.type != "cpu":
        return by_rotations(matrices)
    found: Tensor = torch.linalg.eigh(matrices).eigenvectors
    return found


def by_rotations(matrices: Tensor) -> Tensor:
    """Return the same as `eigenvectors`; no operation and no shape depends on a value."""
    constants = _constants(matrices.shape[-1], matrices.device)
    norms = torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True).clamp_(min=LEAST)
    basis, zero = constants.start.expand_as(matrices), matrices.new_zeros(())
    for _ in range(TURNS):
        turned = torch.bmm(basis.mT, torch.bmm(matrices, basis))
        values = turned.diagonal(dim1=1, dim2=2)
        differences = (values[:, None] - values[..., None]).addcmul_(constants.ties, norms)
        angles = torch.addcdiv(zero, turned, differences, value=2).atan_()
        angles = angles - angles.mT  # 4 times the angles; rounding makes both halves uneven
        sums = torch.linalg.vector_norm(angles, 1, 2, keepdim=True).clamp_(min=4 * MOST)
        angles.div_(torch.maximum(sums, sums.mT))
        half = torch.baddbmm(basis, basis, angles, alpha=MOST / 2)
        basis = _nearer_to_orthonormal(torch.baddbmm(basis, half, angles, alpha=MOST))  # exp(angles), about
    basis = _nearer_to_orthonormal(basis)
    return basis.gather(2, values.argsort(1)[:, None].expand_as(basis))


def _nearer_to_orthonormal(basis: Tensor) -> Tensor:
    """Return a step of Newton and Schulz towards the nearest orthonormal basis."""
    return torch.baddbmm(basis, basis, torch.bmm(basis.mT, basis), beta=1.5, alpha=-0.5)


class _Constants(NamedTuple):
    """The basis to start from, by ascending eigenvalues of smooth motion, and what sets equal eigenvalues
    apart: antisymmetric, and infinite on the diagonal, where nothing is to be rotated.
    """

    start: Tensor
    ties: Tensor


@lru_cache(SIZES_KEPT)
def _constants(size: int, device: torch.device) -> _Constants:
    line = torch.arange(size, dtype=torch.float64)
    cosines = torch.cos(math.pi / size * (line[:, None] + 0.5) * line).float().flip(1)
    upper = torch.full((size, size), TIE).triu()
    ties = (upper - upper.mT).fill_diagonal_(math.inf)
    return _Constants(on_device(cosines / cosines.norm(dim=0), device), on_device(ties, device))
