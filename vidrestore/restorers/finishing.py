"""Finishing DUST's estimate with a convolutional network: planes of any layout to packed frames, through it, and back."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import CheckpointError
from vidrestore.models.finisher import MIDDLE, Finisher, packed, unpacked
from vidrestore.weights import load_model

Planes = tuple[Tensor, ...]  # (T, H, W) on the 0-255 scale


class Finish:
    """Corrects the estimates of clips. Raises CheckpointError for weights of another family.

    Planes are luma and two of colour differences of one size, luma alone, or luma and alpha's like: more than three are refused.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        model = load_model(name, device=str(device))
        if not isinstance(model.network, Finisher):
            raise CheckpointError(f"{name}: these weights do not finish what DUST began; they are for the task {model.card.task!r}")
        self.name, self.sha256 = model.card.name, model.card.sha256
        self._networks = {torch.float32: model.network.to(memory_format=torch.channels_last)}  # type: ignore[call-overload]

    def prepare(self, dtype: torch.dtype) -> Finisher:
        """The network in one precision."""
        if dtype not in self._networks:
            whole = self._networks[torch.float32]
            self._networks[dtype] = copy.deepcopy(whole).to(dtype=dtype)
        network: Finisher = self._networks[dtype]
        return network

    def __call__(self, source: Planes, estimate: Planes, sigma: tuple[float, ...], dtype: torch.dtype) -> Planes:
        """The estimate (Y, or Y, U, V), corrected; `sigma` as the planes' own sizes show it."""
        network, (height, width) = self.prepare(dtype), estimate[0].shape[1:]
        half = -(-height // 2), -(-width // 2)
        seen, small = (self._frames(planes, half, network.config.multiple) for planes in (source, estimate))
        level = torch.tensor([[sigma[0], _small_sigma(estimate, sigma, half)]], device=small.device)
        reach = network.config.neighbours
        corrected = torch.empty_like(small)
        for index in range(len(small)):
            others = [small[min(max(index + step, 0), len(small) - 1)][None] for step in range(-reach, reach + 1) if step]
            corrected[index] = network(seen[index][None], small[index][None], others, level)[0]
        return _applied(estimate, small, corrected, half)

    @staticmethod
    def _frames(planes: Planes, half: tuple[int, int], multiple: int) -> Tensor:
        """(T, 6, h, w) with sides the network takes; edges are repeated beyond the picture, and missing colour is grey."""
        luma = planes[0]
        grey = [luma.new_full((len(luma), *half), MIDDLE)] * 2
        chroma = [_resized(plane, half) for plane in planes[1:]] if len(planes) == 3 else grey
        rows, columns = (-(-size // multiple) * multiple for size in half)
        luma = _continued(luma, 2 * rows, 2 * columns)
        return packed(luma, *(_continued(plane, rows, columns) for plane in chroma))


def _applied(estimate: Planes, small: Tensor, corrected: Tensor, half: tuple[int, int]) -> Planes:
    height, width = estimate[0].shape[1:]
    luma, *chroma = unpacked(corrected)
    finished = [luma[:, :height, :width]]
    if len(estimate) == 3:
        before = unpacked(small)[1:]
        for plane, now, then in zip(estimate[1:], chroma, before, strict=True):
            if plane.shape[1:] == half:
                finished.append(now[:, : half[0], : half[1]])
            else:
                change = (now - then)[:, : half[0], : half[1]]
                finished.append(plane + F.interpolate(change[None], plane.shape[1:], mode="bilinear", align_corners=False)[0])
    return tuple(finished)


def _resized(plane: Tensor, size: tuple[int, int]) -> Tensor:
    return plane if plane.shape[1:] == size else F.interpolate(plane[None], size, mode="area")[0]


def _small_sigma(planes: Planes, sigma: tuple[float, ...], half: tuple[int, int]) -> float:
    """Of the chroma planes together, once they have half the size of luma: means of independent samples are less noisy."""
    if len(planes) < 3:
        return 0.0
    averaged = max(1.0, planes[1].shape[1] / half[0] * planes[1].shape[2] / half[1])
    return float(((sigma[1] ** 2 + sigma[2] ** 2) / 2 / averaged) ** 0.5)


def _continued(plane: Tensor, rows: int, columns: int) -> Tensor:
    below, right = rows - plane.shape[1], columns - plane.shape[2]
    return F.pad(plane[:, None], (0, right, 0, below), mode="replicate")[:, 0] if below or right else plane
