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
# Functions that mention a device but compute nothing on it, and those that another form stands for.
NOT_REHEARSED = {
    "restorers/devices.py": "chooses devices and number formats by what torch says of them",
    "models/fast/linear.py processor_has": "asks what the CPU can do",
    "models/fast/compiled.py Compiled.__init__": "chooses how torch compiles",
    "models/fast/maps.py strip_spans": "counts rows on the host",
    "models/fast/linear.py PackedLinear.__init__": "asks where a weight is",
    "models/deform_conv.py _torchvision_kernel": "a kernel that is not installed here",
    "restorers/base.py": "declares",
    "pipeline/rgb_clips.py RgbClipRestorer.too_large": "names the device in a message",
    "pipeline/rgb_clips.py RgbClipRestorer._at_once": "counts frames on the host",
    "training/parallel.py": "several processes, each with a device of its own",
    "training/rehearsal.py": "the steps of a run, which are rehearsed one by one",
    "restorers/denoise.py FurtherEstimates.__init__": "asks how much the device does at once",
    "restorers/vsr_restorer.py VsrRestorer._tiles_at_once": "asks what the device holds",
    "pipeline/transfers.py Sent.arrived": "waits for a stream, of which the stand-in has none",
    "pipeline/transfers.py Uploads.__init__": "makes a stream",
    "sensing/recover.py _use_bf16": "asks what the device can do",
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
