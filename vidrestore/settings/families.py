"""Families of networks: `FAMILIES` has a descriptor of each, with its network, restorers and training. Add
one here.

A package of your own adds a family by an entry point of the group `vidrestore.families`, whose name is the
family's and whose object is its `Family`; see examples/own_network. Code is named by strings "module:name",
so that only the family in use is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from vidrestore.errors import CheckpointError
from vidrestore.settings.tasks import TASKS

ENTRY_POINTS = "vidrestore.families"


@dataclass(frozen=True)
class Training:
    """The training of one kind of networks; each value is a "module:name"."""

    data: str  # dataclass of [data]
    settings: str  # dataclass of [training]
    # (config, footage, held-out footage, network) -> training and held-out data
    source: str
    objective: str  # a subclass of `lab.training.objective.Objective`
    dataset: str = ""  # dataclass of a [data] that names a dataset of the papers


@dataclass(frozen=True)
class Family:
    """One family of networks; functions and classes are named "module:name"."""

    build: str  # makes a network from the settings in its weights file
    # by task, functions of RestoreOptions
    restorers: Mapping[str, str] = field(default_factory=dict)
    further_tasks: tuple[str, ...] = ()  # that networks are trained for
    training: Training | None = None
    # converts checkpoints of other code, see `weights.importing`; empty: no changes
    adopt: str = ""
    read: str = ""  # path -> the `weights.Model` in a file that doesn't name its family
    speed: str = ""  # on a CPU: "fast" (frames a second) or "slow" (seconds a frame)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that its networks are trained for."""
        return (*self.restorers, *self.further_tasks)


# The three kinds of training, for families here and in other packages.
GROUPS = Training(  # groups of patches of planes, with noise or measured
    "vidrestore.lab.run_config:DataConfig",
    "vidrestore.lab.run_config:TrainingConfig",
    "vidrestore.lab.training.data.sources:group_data",
    "vidrestore.lab.training.objective:GroupObjective",
    "vidrestore.lab.run_config:GroupSetConfig",
)
# degraded RGB pictures, or short clips of which the middle frame is restored
PICTURES = Training(
    "vidrestore.lab.run_config:PairDataConfig",
    "vidrestore.lab.run_config:PairTrainingConfig",
    "vidrestore.lab.training.data.sources:pair_data",
    "vidrestore.lab.training.objective:PairObjective",
    "vidrestore.lab.run_config:PairSetConfig",
)
CLIPS = Training(  # RGB clips downscaled by four
    "vidrestore.lab.run_config:ClipDataConfig",
    "vidrestore.lab.run_config:ClipTrainingConfig",
    "vidrestore.lab.training.data.sources:clip_data",
    "vidrestore.lab.training.objective:ClipObjective",
    "vidrestore.lab.run_config:ClipSetConfig",
)
# restorers of any network that maps pictures to pictures, by task
PICTURE_RESTORERS = {
    task.name: task.restorer
    for task in TASKS.values()
    if task.weights and task.scale == 1
} | {"denoise": "vidrestore.restorers.picture_restorer:picture_denoiser"}


def _of_papers(build: str) -> Family:
    return Family(build, further_tasks=("denoise", "recover"), training=GROUPS)


FAMILIES: dict[str, Family] = {
    "algorithm1": _of_papers("vidrestore.lab.papers.recovery:build"),
    "dust": Family(
        "vidrestore.models.dust_sigma:build",
        {"denoise": TASKS["denoise"].restorer},
        ("recover",),
        training=GROUPS,
        speed="fast",
    ),
    "l1-l1-rnn": _of_papers("vidrestore.lab.papers.unfolded_rnns:build_l1_l1_rnn"),
    "mb-taylorformer": Family(
        "vidrestore.models.mb_taylorformer:build",
        PICTURE_RESTORERS,
        ("all",),
        training=PICTURES,
        adopt="vidrestore.weights.releases:adopt_taylorformer",
        speed="slow",
    ),
    "reweighted-rnn": _of_papers(
        "vidrestore.lab.papers.unfolded_rnns:build_reweighted_rnn"
    ),
    "sista": _of_papers("vidrestore.lab.papers.unfolded_rnns:build_sista"),
    "sista-rnn": _of_papers("vidrestore.lab.papers.unfolded_rnns:build_sista_rnn"),
    "spandrel": Family(
        "",
        {
            task: name
            for task, name in PICTURE_RESTORERS.items()
            if TASKS[task].has_published
        }
        | {"sr": "vidrestore.restorers.picture_restorer:enlarger"},
        read="vidrestore.weights.community:read",
        speed="slow",
    ),
    "spynet": Family(
        "vidrestore.models.spynet:build",
        further_tasks=("flow",),
        adopt="vidrestore.weights.releases:adopt_flow",
    ),
    "unfolded-transformer": _of_papers(
        "vidrestore.lab.papers.recovery_transformers:build_unfolded_transformer"
    ),
    "vit": _of_papers("vidrestore.lab.papers.recovery_transformers:build_vit"),
    "vsr-transformer": Family(
        "vidrestore.models.vsr_recurrent:build",
        {"sr": TASKS["sr"].restorer},
        training=CLIPS,
        adopt="vidrestore.weights.releases:adopt_vsr",
        speed="slow",
    ),
}


def find_family(name: str) -> Family:
    """Return a family by name, of this package or of an installed one. Raises CheckpointError."""
    if name in FAMILIES:
        return FAMILIES[name]
    # other packages name theirs by entry points
    from importlib.metadata import entry_points

    installed = entry_points(group=ENTRY_POINTS)
    if name not in installed.names:
        names = ", ".join(sorted({*FAMILIES, *installed.names}))
        raise CheckpointError(
            f"unknown model family {name!r}; this version has: {names}"
        )
    point = installed[name]
    try:
        family = point.load()
    except Exception as error:  # the code of another package may raise any exception
        raise CheckpointError(
            f"the model family {name!r} can't be loaded from {point.value}: {error}"
        ) from error
    if not isinstance(family, Family):
        raise CheckpointError(
            f"the model family {name!r}: {point.value} is {family!r:.80}, not a "
            "vidrestore.settings.families.Family"
        )
    return family


def load(name: str) -> Any:
    """Return the object that "module:name" names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
