"""The command answers at once because nothing heavy is loaded before it is needed: measured by the modules
loaded, not by the clock.
"""

import subprocess
import sys

import pytest
from fresh_interpreter import HEAVY, command, loaded_by


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("import vidrestore") & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("denoise", "--help"), ("sense", "--help"), ("weights", "list")],
    ids=" ".join,
)
def test_help_and_lists_load_nothing_heavy(arguments):
    assert not loaded_by(command(*arguments)) & HEAVY


def test_importing_the_package_prints_nothing():
    result = subprocess.run(
        [sys.executable, "-c", "import vidrestore"], capture_output=True, text=True, timeout=120, check=True
    )
    assert (result.stdout, result.stderr) == ("", "")


def test_the_measure_sees_a_heavy_import():
    assert "numpy" in loaded_by("import numpy")
