"""Nothing that takes a device is left out of the rehearsal."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_in import LINES_SEEN

import vidrestore

PACKAGE = Path(vidrestore.__file__).parent
ROOMS = ("models", "restorers", "pipeline", "sensing", "training", "colour.py", "tiling.py", "degrade")
HANDED_ON = "hands the device on, or asks what it can do"
# Functions that mention a device but compute nothing on it, and those that another form stands for.
NOT_REHEARSED = {
    "restorers/devices.py": "chooses devices and number formats by what torch says of them",
    "models/fast/processor.py": "asks what the CPU can do",
    "models/fast/strips.py strip_spans": "counts rows on the host",
    "models/fast/linear.py PackedLinear.__init__": "asks where a weight is",
    "models/deform_conv.py _torchvision_kernel": "a kernel that is not installed here",
    "restorers/base.py": "declares",
    "restorers/dust_restorer.py DenoiseRestorer.__init__": HANDED_ON,
    "restorers/dust_restorer.py DenoiseRestorer._level": HANDED_ON,
    "restorers/dust_restorer.py DenoiseRestorer._transform": HANDED_ON,
    "restorers/mb_taylorformer_restorer.py ImageRestorer.__init__": HANDED_ON,
    "restorers/task_weights.py load_for": HANDED_ON,
    "restorers/vsr_restorer.py VsrRestorer.__init__": HANDED_ON,
    "restorers/vsr_restorer.py VsrRestorer._network": HANDED_ON,
    "pipeline/rgb_clips.py RgbClipRestorer.too_large": "names the device in a message",
    "training/parallel.py": "several processes, each with a device of its own",
    "training/rehearsal.py": "the steps of a run, which are rehearsed one by one",
    "training/loop.py train": HANDED_ON,
    "restorers/vsr_restorer.py VsrRestorer._tiles_at_once": HANDED_ON,
    "pipeline/clip_restorer.py ClipRestorer._sent": HANDED_ON,
    "pipeline/clip_restorer.py ClipRestorer.restore": HANDED_ON,
    "pipeline/clip_restorer.py ClipRestorer._finished": HANDED_ON,
    "pipeline/transfers.py Sent.arrived": HANDED_ON,
    "pipeline/transfers.py Uploads.__init__": HANDED_ON,
    "sensing/recover.py recover": HANDED_ON,
    "sensing/recover.py recovering_model": HANDED_ON,
    "sensing/recover.py recovered_frames": HANDED_ON,
    "sensing/recover.py Recoverer.__init__": HANDED_ON,
    "sensing/recover.py Recoverer._native": HANDED_ON,
    "sensing/recover.py _use_bf16": HANDED_ON,
    "sensing/sense.py sense": HANDED_ON,
    "sensing/sense.py sensing_model": HANDED_ON,
    "sensing/sense.py Sensor.__init__": HANDED_ON,
    "training/loop.py _go": HANDED_ON,
    "training/loop.py Run._steps": HANDED_ON,
    "training/loop.py Run.__init__": HANDED_ON,
    "training/training_events.py": "says which device",
    "degrade/added_noise.py add_gaussian_noise": "drawn where its generator is; in the loss of a step",
}


def functions_with_a_device() -> Iterator[tuple[Path, str, ast.AST]]:
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")) or [PACKAGE / room]:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from ((path, name, node) for name, node in _functions(tree, "") if _has_device(node))


def _functions(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield inside + child.name, child


def _has_device(function: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Attribute | ast.keyword | ast.arg)
        and "device" in {getattr(node, "attr", None), getattr(node, "arg", None)}
        for node in ast.walk(function)
    )


def test_every_function_that_takes_a_device_was_rehearsed(request: pytest.FixtureRequest) -> None:
    files = {item.path for item in request.session.items}
    whole = files >= set(Path(__file__).parent.glob("test_*.py")) and not request.config.option.keyword
    if not whole or "PYTEST_XDIST_WORKER" in os.environ:  # a worker runs a part of it only
        pytest.skip("needs the whole rehearsal in one process")
    missing = []
    for path, name, node in functions_with_a_device():
        place = str(path.relative_to(PACKAGE))
        lines = range(node.lineno, node.end_lineno + 1)  # type: ignore[attr-defined]
        if {place, f"{place} {name}"} & NOT_REHEARSED.keys():
            continue
        if not any((str(path), line) in LINES_SEEN for line in lines):
            missing.append(f"{place} {name}")
    assert not missing, "\n".join(missing)
