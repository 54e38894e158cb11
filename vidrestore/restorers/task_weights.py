"""Load the weights of a task, and check that they are for it."""

from __future__ import annotations

from vidrestore.errors import CheckpointError
from vidrestore.settings.families import find_family
from vidrestore.weights import Model, load_model
from vidrestore.weights.manifest import ALL_TASKS, Card

ANY_TASK = "restore"  # task of an imported checkpoint if it was imported without one


def load_for(
    task: str, family: str, model: str, device: str, read_as: str | None = None
) -> Model:
    """Return the weights named `model`.

    Weights for all tasks suit those that their network's configuration names. Raises CheckpointError if no
    weights are found, or if they are of a family without a restorer for this task, or for another task.
    `read_as` is the family of a file that doesn't name it.
    """
    loaded = load_model(model, device=device, family=read_as)
    card = loaded.card
    if card.family != family and task not in find_family(card.family).restorers:
        raise CheckpointError(
            f"{card.name}: these weights are of the family {card.family!r}, but {task} takes {family!r}; "
            "name others"
        )
    _check_task(card, task)
    return loaded


def _check_task(card: Card, task: str) -> None:
    tasks = card.config.get("tasks", ())
    if card.task == ALL_TASKS and not tasks:
        raise CheckpointError(
            f"{card.name}: these weights are to train others from, not for {task!r}; name others with `model`"
        )
    if card.task not in (task, ANY_TASK, ALL_TASKS):
        raise CheckpointError(
            f"{card.name}: these weights are for {card.task!r}, not {task!r}; run `vidrestore {card.task}`, "
            "or name others with `model`"
        )
    if tasks and task not in tasks:
        raise CheckpointError(
            f"{card.name}: this network's tasks are {', '.join(tasks)}, not {task!r}; name other weights "
            "with `model`"
        )
