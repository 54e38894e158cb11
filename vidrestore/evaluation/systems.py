"""Systems to measure: networks with their weights, and others that need none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from vidrestore.options import Quality
from vidrestore.weights import Model

GIVEN = "given"  # the identity: returns its input unchanged
BICUBIC = "bicubic"
WITHOUT_WEIGHTS = (GIVEN, BICUBIC)
NAMES = {  # titles of systems that a table doesn't list
    GIVEN: "as given",
    BICUBIC: "Bicubic",
    "dust": "DUST",
    "mh-dust": "MH-DUST",
    "dust-fast": "DUST, fast",
    "dust-best": "DUST, best",
    "mh-dust-fast": "MH-DUST, fast",
    "mh-dust-best": "MH-DUST, best",
    "mb-taylorformer-t": "MB-TaylorFormer-T V2",
    "vsr-transformer-t": "VSR-Transformer-T",
    "vsr-transformer-s": "VSR-Transformer-S",
}


@dataclass(frozen=True)
class System:
    """A system to measure, with the weights it runs with, loaded from `source`.

    `only` names the one test set that the weights are for; empty for all. `label` replaces the weights' name
    if several weights on a test set share it. `quality` is that of `RestoreOptions`.
    """

    name: str
    model: Model | None = None
    source: str = ""
    device: str = "cpu"
    only: str = ""
    label: str = ""
    quality: Quality = "default"

    @property
    def weights(self) -> str:
        return self.label or (self.model.card.name if self.model else "")

    @cached_property
    def network(self) -> Any:
        """The network of `model`, which must not be None."""
        assert self.model is not None
        return self.model.network


def with_unique_labels(systems: Sequence[System]) -> list[System]:
    """Return the systems, labelled by their source if another on the same test set has the same weights'
    name.

        a/dust.safetensors and b/dust.safetensors are both named "dust"
    """

    def clash(one: System, other: System) -> bool:
        same_set = one.only == other.only or not (one.only and other.only)
        return one.weights == other.weights and one.source != other.source and same_set

    return [
        replace(one, label=one.source) if any(clash(one, other) for other in systems) else one
        for one in systems
    ]
