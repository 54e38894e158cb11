"""The commands of the lab, by name; `cli.app` loads this module by its name."""

from __future__ import annotations

from collections.abc import Callable

from vidrestore.lab.commands.eval_commands import evaluate
from vidrestore.lab.commands.sense_commands import recover, sense
from vidrestore.lab.commands.train_commands import train

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "eval": evaluate,
    "sense": sense,
    "recover": recover,
}
