"""Which weights a task takes where the user names none, and whether those named are for it."""

from __future__ import annotations

from vidrestore.errors import CheckpointError
from vidrestore.weights import Model, load_model, read_manifest

ANY_TASK = "restore"  # what an imported checkpoint is for, as long as nobody has said


def load_for(task: str, family: str, model: str | None, device: str, preferred: str) -> Model:
    """The weights named `model`, else those called `preferred`, else the first of the manifest for this task and family.

    Raises CheckpointError where there are none, or where those named are of another family or for another task.
    """
    loaded = load_model(model or _bundled(task, family, preferred), device=device)
    card = loaded.card
    if card.family != family:
        raise CheckpointError(f"{card.name}: these weights are of the family {card.family!r}, but {task} takes {family!r}; name others")
    if card.task not in (task, ANY_TASK):
        raise CheckpointError(
            f"{card.name}: these weights are for {card.task!r}, not {task!r}; run `vidrestore {card.task}`, or name others with --model"
        )
    return loaded


def _bundled(task: str, family: str, preferred: str) -> str:
    names = [card.name for card in read_manifest().values() if (card.task, card.family) == (task, family)]
    if not names:
        raise CheckpointError(
            f"no weights for {task!r} are bundled with this version; bring the authors' in with `vidrestore weights import FILE "
            f"--family {family} --task {task} -o OUT.safetensors` and name them with --model OUT.safetensors"
        )
    return preferred if preferred in names else names[0]
