"""Imports run in one direction, read from the source of every module."""

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import vidrestore

PACKAGE = Path(vidrestore.__file__).parent

# A module imports from its own group and from those above it, nothing else. The package itself stands
# outside: it hands on what lies below.
GROUPS = (
    {"cores", "errors", "event_log", "events", "pixels", "settings", "working"},
    {"files"},
    {"models"},
    {"noise"},
    {"media"},
    {"weights"},
    {"restorers"},
    {"pipeline"},
    {"jobs"},
    {"pages"},
    {"scale"},
    {"cli", "__main__"},
    {"lab"},
)
LAYER = {name: number for number, group in enumerate(GROUPS) for name in group}
MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"
)


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package_of(path: Path) -> list[str]:
    parts = module_name(path).split(".")
    return parts if path.name == "__init__.py" else parts[:-1]


@cache
def imported_names(path: Path) -> frozenset[str]:
    """Return the full names of all imports of a file, also of those inside functions and for types only;
    relative ones made absolute.
    """
    names: set[str] = set()
    package = _package_of(path) if path.is_relative_to(PACKAGE) else []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            )
            origin = ".".join(part for part in (base, node.module) if part)
            names |= {f"{origin}.{alias.name}" for alias in node.names}
    return frozenset(names)


def own_imports(path: Path) -> set[str]:
    return {name for name in imported_names(path) if name.split(".")[0] == "vidrestore"}


def room(name: str) -> str | None:
    """The file or folder of the package that a full name belongs to; None for what `vidrestore` itself
    offers, such as __version__.
    """
    first = [*name.split("."), ""][1]
    return (
        first
        if (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file()
        else None
    )


def test_a_module_imports_only_from_its_own_group_and_those_before_it():
    for path in MODULES:
        own = room(module_name(path))
        assert own in LAYER, f"{own} is new: give it a place in GROUPS"
        rooms = {name: room(name) for name in own_imports(path)}
        assert not [
            name for name, other in rooms.items() if other and LAYER[other] > LAYER[own]
        ], path


LAB = "vidrestore.lab"
# which name its parts
REGISTRIES = {"vidrestore", "vidrestore.cli.app", "vidrestore.settings.families"}


def test_nothing_outside_the_lab_imports_it_and_registries_alone_name_its_parts():
    naming = set()
    for path in PACKAGE.rglob("*.py"):
        module = module_name(path)
        if room(module) != "lab":
            text = path.read_text(encoding="utf-8")
            assert module == "vidrestore" or not [
                name for name in own_imports(path) if name.startswith(LAB)
            ]
            naming |= {module} if re.search(r'"(vidrestore\.)?lab\.', text) else set()
    assert naming == REGISTRIES


MEDIA_FOLDERS = ("containers", "formats", "reading", "writing")


PAPERS = f"{LAB}.papers"
SEAMS = {  # each names, in a string, what it loads of the papers when a user asks for it
    "vidrestore.settings.families": {
        "recovery",
        "recovery_transformers",
        "unfolded_rnns",
    },
    f"{LAB}.run_config": {"datasets"},
    f"{LAB}.training.data.sources": {"training_groups", "training_sets"},
    f"{LAB}.evaluation": {"suites"},
}


def test_evaluation_training_and_families_load_the_papers_only_when_asked():
    loaded: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        module = module_name(path)
        if not module.startswith(PAPERS):
            imports = own_imports(path)
            assert not [name for name in imports if name.startswith(PAPERS)], module
            text = path.read_text(encoding="utf-8")
            for name in re.findall(rf'"{re.escape(PAPERS)}\.(\w+)[":]', text):
                loaded.setdefault(module, set()).add(name)
    assert loaded == SEAMS


def test_folders_of_media_import_only_from_those_before_them():
    for path in (PACKAGE / "media").rglob("*/*.py"):
        allowed = MEDIA_FOLDERS[: MEDIA_FOLDERS.index(path.parent.name) + 1]
        others = {
            name.split(".")[2]
            for name in own_imports(path)
            if name.startswith("vidrestore.media.")
        }
        assert others <= {*allowed}, path


def test_the_data_of_training_import_nothing_of_the_training_that_takes_them():
    training = f"{LAB}.training."
    for path in (PACKAGE / "lab" / "training" / "data").rglob("*.py"):
        used = {name for name in own_imports(path) if name.startswith(training)}
        assert all(name.startswith(f"{training}data.") for name in used), path


def test_a_video_is_restored_by_a_package_without_the_lab(tmp_path, repository):
    """As after `rm -r vidrestore/lab`."""
    copy = tmp_path / "vidrestore"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("lab", "__pycache__"))
    (tmp_path / "weights").symlink_to(repository / "weights")
    command = [sys.executable, "-m", "vidrestore"]
    surroundings = os.environ | {"PYTHONPATH": str(tmp_path)}
    source = repository / "examples" / "noisy.mp4"
    denoise = [
        *command,
        "denoise",
        source,
        "-o",
        tmp_path / "out.mkv",
        "--duration",
        "0.1",
        "--fast",
    ]
    assert (
        subprocess.run(denoise, cwd=tmp_path, env=surroundings, timeout=300).returncode
        == 0
    )
    show = [*command, "--help"]
    listed = subprocess.run(
        show, cwd=tmp_path, env=surroundings, capture_output=True, timeout=300
    ).stdout
    assert b"denoise" in listed and b"recover" not in listed


def test_no_two_modules_have_the_same_name():
    stems = [path.stem for path in MODULES if path.name != "__init__.py"]
    assert not {stem for stem in stems if stems.count(stem) > 1}


def test_only_media_imports_av():
    others = [path for path in MODULES if room(module_name(path)) != "media"]
    assert not [
        path
        for path in others
        if {name.split(".")[0] for name in imported_names(path)} & {"av"}
    ]


def test_no_test_imports_from_another_test():
    for path in Path(__file__).parent.rglob("*.py"):
        assert not [
            name
            for name in imported_names(path)
            if name.split(".")[0].startswith("test_")
        ], path


def test_no_module_imports_itself_by_way_of_others():
    known = {module_name(path): path for path in MODULES}
    imports = {
        # names of modules, or of something in one
        name: {
            each if each in known else each.rpartition(".")[0]
            for each in own_imports(path)
        }
        for name, path in known.items()
    }
    TopologicalSorter(
        {name: found & {*known} - {name} for name, found in imports.items()}
    ).prepare()
