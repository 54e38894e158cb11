"""The result of adopting a checkpoint that a family's authors wrote; a `Family` names its adopter.

An adopter is a function (tensors, arguments) -> Adopted. `tensors` are those of the file by their names
there, without the prefixes of DataParallel and similar; `arguments` are those of the authors' constructor by
its own names, empty if the user gave none. The adopter works out the config (from shapes, unless the
arguments give it), renames and regroups the tensors, and raises ValueError if they don't fit. The caller
checks that the result has exactly the network's tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Adopted:
    """The family's config, and the tensors by the names and in the shapes of our network.

    `task` and `parameters` are those of a card.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    task: str = "restore"
    parameters: Mapping[str, Any] = field(default_factory=dict)
