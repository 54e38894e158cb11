"""Each script of `examples/` starts as its head says: with `--help`, and in its smallest form."""

import pickle
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fit_noise
import pytest
from paper_test_sets import picture, write_patch_network
from sample_pictures import write_rgb

from vidrestore.weights import load_model

EXAMPLES = Path(__file__).parents[1] / "examples"
# it writes the page of the API; test_examples compares the two
WITHOUT_OPTIONS = {"api_page"}
SCRIPTS = sorted(
    path
    for path in EXAMPLES.rglob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    and path.stem not in WITHOUT_OPTIONS
)
NAMES = [path.stem for path in SCRIPTS]


@pytest.fixture(autouse=True)
def script_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts import others of their folder, as Python lets them when they are started."""
    for folder in (EXAMPLES, EXAMPLES / "experiments"):
        monkeypatch.syspath_prepend(folder)


def started(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> int:
    """Run a script as `python NAME.py ARGUMENTS` does, in this process; return its exit code."""
    path = SCRIPTS[NAMES.index(name)]
    monkeypatch.setattr(sys, "argv", [path.name, *map(str, arguments)])
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("name", NAMES)
def test_a_script_explains_itself(name, monkeypatch, capsys):
    assert started(monkeypatch, name, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: {name}.py")


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*.sh")), ids=lambda path: path.stem
)
def test_a_shell_script_without_arguments_says_which_it_needs(path):
    outcome = subprocess.run(["bash", path], capture_output=True, text=True, timeout=60)
    assert outcome.returncode != 0 and outcome.stderr.strip()
    assert "unbound variable" not in outcome.stderr


def write_sequences(root: Path, frames: int, folder: str = "davis480p_heldout") -> Path:
    """The clips that scripts look for in the shared data, at 48x64."""
    for name in ("car-shadow", "dog", "kite-surf"):
        for number in range(frames):
            write_rgb(
                root / "eval" / folder / name / f"{number:05d}.png",
                picture(number, 1, 48, 64),
            )
    return root


def test_the_held_out_table_has_all_tasks_by_default(tmp_path, monkeypatch, capsys):
    data = write_sequences(tmp_path, 9)
    monkeypatch.setattr(
        "vidrestore.restorers.picture_restorer.PictureRestorer.frames", unchanged
    )
    assert started(monkeypatch, "held_out_table", "--data", data, "--frames", 1) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    tasks = dict.fromkeys(row[0].removeprefix("| ") for row in rows)
    assert [*tasks] == ["dehaze", "derain", "desnow", "deblur", "denoise"]
    networks = {row[1] for row in rows if row[1].startswith("mb-taylorformer-h-")}
    assert networks == {f"mb-taylorformer-h-{task}" for task in tasks}
    by_network = [row[2:] for row in rows if row[1] == "mb-taylorformer-h-denoise"]
    assert by_network == [
        row[2:] for row in rows if row[:2] == ["| denoise", "degraded"]
    ]


def unchanged(restorer, clip, keep, **options):
    """What a network of pictures would restore, as it is."""
    yield from clip[slice(*keep)]


def test_the_systems_table_leaves_out_what_was_not_trained(
    tmp_path, monkeypatch, capsys
):
    data = write_sequences(tmp_path, 3)
    monkeypatch.setattr(
        "vidrestore.lab.papers.sensed_patches.downscaled", lambda frames, lines: frames
    )
    write_patch_network(tmp_path / "printed-dust-cs20.safetensors")
    assert started(monkeypatch, "systems_table", tmp_path, "--data", data) == 0
    said = capsys.readouterr()
    (row,) = said.out.splitlines()[2:]
    assert row.startswith("| DUST | CS 0.2 | ")
    assert f"{tmp_path / 'vit-cs20.safetensors'}: no such file, left out" in said.err


def test_a_mean_of_weights_is_nearer_to_the_one_with_the_larger_share(
    tmp_path, monkeypatch
):
    paths = [
        write_patch_network(tmp_path / f"{name}.safetensors", blocks=1, lambda1=value)
        for name, value in (("first", 0.1), ("second", 2.0))
    ]
    mean = tmp_path / "mean.safetensors"
    assert started(monkeypatch, "mean_of_weights", *paths, mean, "--share", 0.25) == 0
    first, second, between = (
        float(load_model(str(path)).network.raw_threshold.detach())
        for path in (*paths, mean)
    )
    assert between == pytest.approx(0.75 * first + 0.25 * second)


def test_noise_is_not_fitted_to_samples_of_which_none_is_held_out(tmp_path):
    samples = tmp_path / "samples.pkl"
    samples.write_bytes(pickle.dumps([SimpleNamespace(held_out=False)] * 4))
    with pytest.raises(
        SystemExit,
        match="0 of 4 samples are held out, where some must be; .* 40 at least",
    ):
        fit_noise.fit(tmp_path / "noise.safetensors", [samples])
    assert not (tmp_path / "noise.safetensors").exists()
