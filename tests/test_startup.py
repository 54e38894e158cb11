"""The command answers at once because nothing heavy is loaded before it is needed: judged by the modules loaded, not by the clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "av", "numpy", "safetensors", "huggingface_hub"}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running `code`."""
    report = f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}}, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, timeout=120, check=True)
    return set(result.stderr.split())


def command(*arguments: str) -> str:
    call = f"from vidrestore.cli import main\ntry:\n    main({list(arguments)!r})\n"
    return call + "except SystemExit as end:\n    assert not end.code, end.code"


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import vidrestore") & HEAVY


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("denoise", "--help"), ("weights", "list")], ids=" ".join)
def test_help_and_lists_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert not loaded_by(command(*arguments)) & HEAVY


def test_importing_the_package_prints_nothing() -> None:
    result = subprocess.run([sys.executable, "-c", "import vidrestore"], capture_output=True, text=True, timeout=120, check=True)
    assert (result.stdout, result.stderr) == ("", "")


def test_the_measure_sees_a_heavy_import() -> None:
    assert "numpy" in loaded_by("import numpy")
