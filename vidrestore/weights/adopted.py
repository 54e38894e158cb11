"""The result of adopting a checkpoint that a family's authors wrote; `upstream.ADOPTERS` names
the module of each family.

An adopter is a function (tensors, arguments) -> Adopted. `tensors` are those of the file by their names
there, without what DataParallel and the like put before them; `arguments` are those of the authors'
constructor under its own names, empty if the user gave none. It works out the config (from shapes where
the arguments don't say), renames and regroups the tensors, and raises ValueError with what doesn't fit;
whether the tensors are exactly those of the network is checked by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Adopted:
    """The family's config, and the tensors by the names and in the shapes of our network; `task` and
    `parameters` as in a card.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    task: str = "restore"
    parameters: Mapping[str, Any] = field(default_factory=dict)
