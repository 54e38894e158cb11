"""The protocols for pictures: what is rounded, which channels, which SSIM, and the mean of means."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sample_pictures import write_rgb
from taylor_networks import restored as reflected
from taylor_networks import small

from vidrestore.errors import CheckpointError, DatasetError, OptionError
from vidrestore.lab.evaluation import evaluate
from vidrestore.lab.papers.dataset_files import Pair
from vidrestore.lab.papers.rgb_protocols import (
    luma_metrics,
    matlab_luma_metrics,
    measure_pictures,
    picture_metrics,
    picture_psnr,
    rgb_metrics,
    volume_metrics,
)
from vidrestore.lab.papers.tables import find_systems, read_table
from vidrestore.models.mb_taylorformer import settings_of
from vidrestore.pages.results import GIVEN, System
from vidrestore.weights import load_model, save_model


def pictures(
    number: int, height: int = 20, width: int = 28
) -> tuple[np.ndarray, np.ndarray]:
    """A picture and the same a little darker and in noise, (3, H, W) uint8."""
    rng = np.random.default_rng(number)
    rows, columns = np.mgrid[:height, :width] / 5
    clean = np.stack(
        [
            128 + 80 * np.sin(rows + number + channel) * np.cos(columns)
            for channel in range(3)
        ]
    )
    degraded = clean * 0.9 + rng.normal(0, 4 + 3 * number, clean.shape)
    return degraded.clip(0, 255).astype(np.uint8), clean.astype(np.uint8)


def write_pairs(folder: Path, names: tuple[str, str], numbers: range) -> None:
    for number in numbers:
        for name, picture in zip(names, pictures(number), strict=True):
            write_rgb(folder / name / f"{number}.png", picture)


def saved(folder: Path, task: str) -> Path:
    network, path = small(), folder / f"{task}.safetensors"
    save_model(
        path,
        network,
        family="mb-taylorformer",
        config=settings_of(network.config),
        task=task,
    )
    return path


def test_each_task_is_measured_as_its_papers_scripts_do():
    rng = np.random.default_rng(1)
    clean = torch.from_numpy(pictures(1)[1])
    restored = (
        clean.float() / 255 + torch.from_numpy(rng.normal(0, 0.02, clean.shape)).float()
    ).clamp(0, 1)
    stored = restored.mul(255).round().to(torch.uint8)
    assert picture_metrics("dehaze", restored, clean) == rgb_metrics(
        restored, clean.float() / 255
    )
    assert picture_metrics("derain", restored, clean) == matlab_luma_metrics(
        stored, clean
    )
    assert picture_metrics("desnow", restored, clean) == luma_metrics(stored, clean)
    assert picture_metrics("deblur", restored, clean) == volume_metrics(stored, clean)
    assert picture_metrics("denoise", restored, clean) == volume_metrics(
        restored, clean.float() / 255
    )


def test_pictures_are_reflected_to_multiples_of_eight_clamped_and_restored_at_once(
    tmp_path,
):
    write_pairs(tmp_path, ("hazy", "clear"), range(1))
    path = saved(tmp_path, "dehaze")
    table = read_table("mbt-table2")
    pairs = [Pair(tmp_path / "hazy" / "0.png", tmp_path / "clear" / "0.png")]
    taking = [System("mb-taylorformer", load_model(path), str(path)), System(GIVEN)]
    network, inputs = measure_pictures(table, table.sets[0], pairs, taking, 1)
    degraded, clean = (
        torch.from_numpy(picture).float() / 255 for picture in pictures(0)
    )
    expected = reflected(small(), degraded[None])[0].clamp(0, 1)
    assert network.frames["psnr"][0] == pytest.approx(
        rgb_metrics(expected, clean)["psnr"], abs=1e-3
    )
    assert inputs.frames["psnr"][0] == pytest.approx(
        rgb_metrics(degraded, clean)["psnr"]
    )
    assert network.comparison is not None and np.array_equal(
        network.comparison.clean, pictures(0)[1].transpose(1, 2, 0)
    )


# in the table's order
RAIN = ("Test100", "Rain100H", "Rain100L", "Test2800", "Test1200")


def test_the_average_of_deraining_is_over_sets_however_many_pictures_they_have(
    tmp_path,
):
    for index, name in enumerate(RAIN):
        write_pairs(tmp_path / "test" / name, ("input", "target"), range(index + 1))
    result = evaluate("mbt-table4", data=tmp_path, systems=["given", "restormer"])
    inputs = {row.on: row for row in result.rows if row.system == "as given"}
    sets = [inputs[title] for title in RAIN]
    assert [row.count for row in sets] == [1, 2, 3, 4, 5]
    assert inputs["Average"].measured["psnr"] == pytest.approx(
        np.mean([row.measured["psnr"] for row in sets]), abs=1e-3
    )
    assert inputs["Average"].measured["psnr"] != pytest.approx(
        np.mean([clip.means["psnr"] for clip in result.clips]), abs=1e-2
    )
    restormer = {row.on: row for row in result.rows if row.system == "Restormer"}
    assert (
        restormer["Average"].reference == {"psnr": 33.96, "ssim": 0.935}
        and not restormer["Average"].measured
    )


def test_some_of_the_sets_have_no_average_and_a_missing_one_is_refused_with_advice(
    tmp_path,
):
    write_pairs(tmp_path / "test" / "Test100", ("input", "target"), range(1))
    result = evaluate("mbt-table4", data=tmp_path, sets=["test100"])
    assert {row.on for row in result.rows} == {"Test100"}
    with pytest.raises(
        DatasetError,
        match="mbt-table4: .*Rain100H.*expected .*to skip it, choose others with `sets=test100,",
    ):
        evaluate("mbt-table4", data=tmp_path)
    with pytest.raises(
        DatasetError, match="needs its test sets; name their folder with `data`"
    ):
        evaluate("mbt-table4")


@pytest.mark.parametrize(
    "given, kind, message",
    [
        (
            {"sets": ["rain"]},
            OptionError,
            "no test set rain; there are: test100, rain100h",
        ),
        (
            {"systems": ["restromer"]},
            OptionError,
            "no system restromer; there are: given",
        ),
        (
            {"systems": ["restormer"]},
            OptionError,
            "no weights for restormer are bundled or named",
        ),
        (
            {"weights": ["dust-cs20"]},
            OptionError,
            "weights of dust, but mbt-table4 is for mb-taylorformer",
        ),
        (
            {"weights": ["dehaze.safetensors"]},
            CheckpointError,
            "these weights are for 'dehaze', not 'derain'",
        ),
    ],
)
def test_names_and_weights_that_are_not_for_the_table_are_refused(
    tmp_path, monkeypatch, given, kind, message
):
    write_pairs(tmp_path / "test" / "Test100", ("input", "target"), range(1))
    saved(tmp_path, "dehaze")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message):
        evaluate("mbt-table4", data=tmp_path, **{"sets": ["test100"]} | given)


def test_weights_may_be_for_one_set(tmp_path):
    table, path = read_table("mbt-table4"), saved(tmp_path, "derain")
    taking = find_systems(
        table, (GIVEN,), ("mb-taylorformer",), ("derain",), [f"rain100h={path}"], "cpu"
    )
    names = [(system.name, system.test_set) for system in taking]
    assert names == [(GIVEN, ""), ("mb-taylorformer-other", "rain100h")]
    with pytest.raises(OptionError, match="no test set 'average' in mbt-table4"):
        find_systems(
            table, (), ("mb-taylorformer",), ("derain",), [f"average={path}"], "cpu"
        )
    write_pairs(tmp_path / "test" / "Test100", ("input", "target"), range(1))
    write_pairs(tmp_path / "test" / "Rain100H", ("input", "target"), range(1))
    result = evaluate(
        "mbt-table4",
        data=tmp_path,
        sets=["test100", "rain100h"],
        weights=[f"rain100h={path}"],
    )
    assert {row.on for row in result.rows if row.weights} == {"Rain100H"}


@pytest.mark.parametrize("task", ["dehaze", "derain", "desnow", "deblur", "denoise"])
def test_the_psnr_that_training_validates_is_that_of_the_table(task):
    degraded, clean = map(torch.from_numpy, pictures(1))
    restored = degraded.float() / 255 * 0.97
    assert (
        picture_psnr(task, restored, clean)
        == picture_metrics(task, restored, clean)["psnr"]
    )
