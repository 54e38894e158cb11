"""Values for shell completion."""

from __future__ import annotations

from collections.abc import Callable


def models(incomplete: str) -> list[tuple[str, str]]:
    """Return names of weights, each with its task."""
    from vidrestore.weights import read_manifest

    return [
        (name, card.task) for name, card in sorted(read_manifest().items()) if name.startswith(incomplete)
    ]


def encoders(incomplete: str) -> list[str]:
    """Return names of encoders."""
    from vidrestore.media.encoder_table import ENCODERS

    return [name for name in ENCODERS if name.startswith(incomplete)]


def tasks(incomplete: str) -> list[str]:
    """Return names of tasks."""
    from vidrestore.restorers.base import TASKS

    return [name for name in TASKS if name.startswith(incomplete) and not name.startswith("<")]


def names(words: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a completion of a fixed list."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


COMPLETIONS: dict[str, Callable[[str], list[str] | list[tuple[str, str]]]] = {
    "model": models,
    "encoder": encoders,
    "task": tasks,
    "device": names(("auto", "cpu", "cuda", "mps")),
}
