"""The command answers at once because nothing heavy is loaded before it is needed: measured by the modules
loaded, not by the clock.
"""

import pytest
from command_line import python
from fresh_interpreter import HEAVY, command, loaded_by


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("import vidrestore") & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("denoise", "--help"),
        ("sense", "--help"),
        ("weights", "list"),
    ],
    ids=" ".join,
)
def test_help_and_lists_load_nothing_heavy(arguments):
    assert not loaded_by(command(*arguments)) & HEAVY


def test_importing_the_package_prints_nothing():
    result = python("-c", "import vidrestore", check=True)
    assert (result.stdout, result.stderr) == ("", "")


def test_the_measure_sees_a_heavy_import():
    assert "numpy" in loaded_by("import numpy")


def test_a_source_that_cannot_be_restored_is_refused_without_torch(tmp_path):
    (tmp_path / "in.mp4").write_text("no video")
    call = f"import vidrestore\ntry:\n    vidrestore.restore({str(tmp_path / 'in.mp4')!r})\n"
    found = loaded_by(
        call
        + "except vidrestore.VidRestoreError:\n    pass\nelse:\n    raise SystemExit(1)"
    )
    assert "av" in found and "torch" not in found


@pytest.mark.parametrize("arguments", [("weights", "list"), ("denoise", "none.mp4")])
def test_a_command_ends_without_examining_the_objects_of_its_libraries(arguments):
    # what is registered first runs last
    report = "import atexit, gc; atexit.register(lambda: print(len(gc.get_objects())))"
    call = f"from vidrestore.cli import main; main({list(arguments)!r})"
    ended = python("-c", f"{report}\n{call}")
    assert int(ended.stdout.split()[-1]) < 1_000
