"""The package in examples/own_network adds a network that trains, resumes, verifies, evaluates and restores,
with nothing changed in vidrestore.
"""

import os
import subprocess
from pathlib import Path

import pytest
from command_line import python
from sample_videos import write_video

from vidrestore.settings.families import FAMILIES

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_network"
SETTINGS = (
    "training.steps=2",
    "training.validate_every=1",
    "data.crop=16",
    "data.validation=held.mkv",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package installed in `site`, its configuration, and tiny clips."""
    folder = tmp_path_factory.mktemp("own")
    information = folder / "site" / "own_network-0.1.0.dist-info"
    information.mkdir(parents=True)
    declared = (EXAMPLE / "pyproject.toml").read_text()
    name, _, value = declared.split('[project.entry-points."vidrestore.families"]\n')[
        1
    ].partition(" = ")
    value = value.split("\n")[0].strip('"')
    (information / "entry_points.txt").write_text(
        f"[vidrestore.families]\n{name} = {value}\n"
    )
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: own-network\nVersion: 0.1.0\n"
    )
    for file in ("own_network.py", "own-desnow.toml"):
        (folder / ("site" if file.endswith(".py") else ".") / file).write_text(
            (EXAMPLE / file).read_text()
        )
    (folder / "clips").mkdir()
    for clip in ("one", "held"):
        write_video(folder / "clips" / f"{clip}.mkv", frames=8, size=(144, 136))
    write_video(folder / "in.mkv", frames=3)
    return folder


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    surroundings = os.environ | {"PYTHONPATH": str(folder / "site")}
    return python(
        "-m", "vidrestore", *arguments, cwd=folder, env=surroundings, timeout=300
    )


def train(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return command(
        folder,
        "train",
        "--config",
        "own-desnow.toml",
        "--cache-gb",
        "0",
        *settings,
        *arguments,
    )


@pytest.mark.slow
def test_a_network_of_an_installed_package_does_all_that_one_of_vidrestore_does(folder):
    assert "own-network" not in FAMILIES
    trained = train(folder)
    assert trained.returncode == 0, trained.stderr
    resumed = train(folder, "--resume", "--set", "training.steps=3")
    assert resumed.returncode == 0, resumed.stderr
    assert "step 2 of 3" in resumed.stderr
    weights = str(folder / "runs" / "own-desnow.safetensors")
    verified = command(folder, "weights", "verify", weights)
    assert f"{weights}: ok" in verified.stdout, verified.stderr
    evaluated = command(
        folder, "eval", "--config", "own-desnow.toml", "--weights", weights
    )
    assert evaluated.returncode == 0, evaluated.stderr
    restored = command(
        folder, "desnow", "in.mkv", "--model", weights, "-o", "out.mkv", "--tile", "64"
    )
    assert restored.returncode == 0, restored.stderr
    assert (folder / "out.mkv").exists()


def test_a_family_that_is_not_installed_is_refused_by_the_names_of_the_known_ones(
    folder,
):
    config = (folder / "own-desnow.toml").read_text().replace("own-network", "another")
    (folder / "another.toml").write_text(config)
    refused = command(folder, "train", "--config", "another.toml")
    assert refused.returncode == 1
    assert (
        "another.toml: unknown model family 'another'; this version has: "
        in refused.stderr
    )
    assert "own-network" in refused.stderr


def test_the_example_stays_as_short_as_it_promises():
    assert len((EXAMPLE / "own_network.py").read_text().splitlines()) < 60
