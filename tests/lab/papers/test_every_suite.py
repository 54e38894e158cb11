"""Every table and figure of the papers runs on made-up data in the layout of its test sets."""

from pathlib import Path

import pytest
from paper_test_sets import write_patch_network, write_test_sets
from torch import nn

from vidrestore.errors import OptionError
from vidrestore.lab.evaluation import evaluate
from vidrestore.lab.papers import costs, figures, sensed_patches
from vidrestore.lab.papers.tables import read_table, table_names
from vidrestore.lab.sensing.recover import recovery_clips
from vidrestore.pages.page import page
from vidrestore.pages.results import ClipMetrics

WITHOUT_WEIGHTS = {"images": "given", "super-resolution": "bicubic"}
COSTS = tuple(costs.COST_PROTOCOLS)
TASKS = ("recover", "denoise")  # of the networks


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sets")
    write_test_sets(root, frames=2)
    return root


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("networks")
    denoiser = write_patch_network(folder / "denoiser.safetensors", sensing=False)
    return [write_patch_network(folder / "sensing.safetensors"), denoiser]


@pytest.mark.parametrize(
    "name", [name for name in table_names() if read_table(name).protocol not in COSTS]
)
def test_a_suite_measures_every_test_set(name, sets, networks, tmp_path):
    table = read_table(name)
    chosen = (
        {"systems": [WITHOUT_WEIGHTS[table.protocol]]}
        if table.protocol in WITHOUT_WEIGHTS
        else {}
    )
    if table.protocol == "patches":
        tasks = sensed_patches.tasks(table)
        paths = [
            path for path, task in zip(networks, TASKS, strict=True) if task in tasks
        ]
        if name == "dust-poster2":  # its rates are others
            paths = [
                write_patch_network(tmp_path / "half.safetensors", measurements=128)
            ]
        chosen = {"weights": paths}
    result = evaluate(name, data=sets, **chosen)
    measured = {row.on.split(",")[0] for row in result.rows if row.measured}
    assert measured >= {part.title for part in table.sets if part.dataset}
    assert set(table.remarks) <= set(result.notes)


def test_the_tasks_of_table_x_have_rates_noise_and_strides_of_their_own(sets, networks):
    result = evaluate("dust-table10", data=sets, sets=["ucsd"], weights=networks)
    rows = {
        (row.on, row.weights): row
        for row in result.rows
        if row.measured and row.system == "DUST"
    }
    assert rows.keys() == {
        ("UCSD, task sensing", "sensing"),
        ("UCSD, task noisy-sensing", "sensing"),
        ("UCSD, task denoising", "denoiser"),
    }
    assert rows["UCSD, task sensing", "sensing"].reference == {
        "psnr": 36.04,
        "ssim": 0.9767,
    }
    psnrs = [row.measured["psnr"] for row in rows.values()]
    assert len(set(psnrs)) == 3


def test_initial_values_are_columns_that_the_weights_say(sets, tmp_path):
    paths = [
        write_patch_network(tmp_path / f"{number}.safetensors", **values)
        for number, values in enumerate(
            ({}, {"lambda1": 0.3}, {"lambda1": 0.3, "lambda2": 0.8})
        )
    ]
    result = evaluate("dust-table1", data=sets, weights=paths[:2])
    columns = {(row.weights, row.on) for row in result.rows if row.measured}
    printed = {
        ("0", f"Avenue, initial value {name}")
        for name in ("lambda1 0.1", "lambda2 0.4", "c 1")
    }
    assert columns == printed | {("1", "Avenue, initial value lambda1 0.3")}
    with pytest.raises(OptionError, match="fits no column of dust-table1"):
        evaluate("dust-table1", data=sets, weights=paths[2:])


def test_weights_that_were_fine_tuned_on_longer_clips_have_the_row_and_the_column_of_these(
    sets, tmp_path
):
    paths = [
        write_patch_network(tmp_path / f"of{frames}.safetensors", frames=frames)
        for frames in (20, 50)
    ]
    result = evaluate("dust-table7", data=sets, weights=paths)
    rows = {(row.system, row.on): row for row in result.rows if row.measured}
    lengths = [
        ("DUST", f"Avenue, clip length {length}") for length in (20, 25, 50, 100)
    ]
    finetuned = ("DUST, fine-tuned on that length", "Avenue, clip length 50")
    assert rows.keys() == {*lengths, finetuned}
    assert rows[finetuned].reference == {"psnr": 37.98, "ssim": 0.9768}
    other = evaluate("dust-figure4", data=sets, weights=paths[1:])
    assert {row.system for row in other.rows if row.weights} == {"dust-50-frames"}


def test_layers_and_iterations_share_the_plot_of_figure_2(sets, tmp_path):
    paths = [
        write_patch_network(
            tmp_path / f"{name}.safetensors", family=family, **{setting: depth}
        )
        for name, family, setting, depth in (
            ("one", "dust", "blocks", 1),
            ("six", "dust", "blocks", 6),
            ("five", "algorithm1", "iterations", 5),
        )
    ]
    result = evaluate("dust-figure2", data=sets, weights=paths)
    (plot,) = result.plots
    depths = {
        system: tuple(positions) for system, (positions, _) in plot.curves.items()
    }
    assert depths == {"DUST": (1, 6), "Algorithm 1": (5,)}
    rows = {
        row.on: row.measured["psnr"]
        for row in result.rows
        if row.system == "DUST" and row.measured
    }
    assert [*rows.values()] == pytest.approx([*plot.curves["DUST"][1]], abs=1e-3)
    html = page(result)
    assert "layers or iterations" in html and 'data-name="Algorithm 1"' in html


def test_the_psnr_of_figure_4_is_the_mean_over_clips_of_each_of_their_frames():
    table = read_table("dust-figure4")
    videos = {
        "a": [float(value) for value in range(45)],
        "b": [100.0 + value for value in range(20)],
    }
    clips = [
        ClipMetrics("dust", "avenue", "20", name, {"psnr": tuple(psnrs)})
        for name, psnrs in videos.items()
    ]
    plots = list(figures.plots(table, table.sets, clips))
    positions, means = plots[0].curves["DUST"]
    by_hand = {
        0: [0.0, 20.0, 100.0],
        14: [14.0, 34.0, 114.0],
        15: [15.0, 35.0, 40.0, 115.0],
        19: [19.0, 39.0, 44.0, 119.0],
    }
    assert recovery_clips(45, 20)[-1] == (
        25,
        40,
        45,
    )  # the last clip reaches back: its frames 15 to 19 are new
    assert [*positions] == [*range(1, 21)]
    for frame, values in by_hand.items():
        assert means[frame] == pytest.approx(sum(values) / len(values))


def test_multiply_adds_and_parameters_are_those_of_the_layers():
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.ReLU()
    )
    network.requires_grad_(True)
    by_hand = 256 * 256 * 8 * 3 * 9 + 128 * 128 * 8 * 9
    assert costs.multiply_adds_of(network) == pytest.approx(by_hand / 1e9)
    assert costs.parameters_of(network) == pytest.approx(
        (8 * 3 * 9 + 8 + 8 * 9 + 8) / 1e6
    )


def test_the_overhead_of_a_network_is_beside_the_published_one(sets, monkeypatch):
    monkeypatch.setattr(costs, "multiply_adds_of", lambda network: 38.2574)
    result = evaluate("mbt-table1", systems=["mb-taylorformer-b"])
    (row,) = (row for row in result.rows if row.measured)
    assert row.measured == {"parameters": 2.6294, "multiply_adds": 38.2574}
    assert row.reference == {"parameters": 2.63, "multiply_adds": 37.7}
    published = evaluate(
        "mbt-table2", data=sets, sets=["sots-indoor"], systems=["pfdn", "given"]
    )
    (row,) = (row for row in published.rows if row.on == costs.OVERHEAD_ROW)
    assert (row.system, row.reference) == (
        "PFDN",
        {"parameters": 11.27, "multiply_adds": 51.5},
    )


def test_size_and_time_of_table_8(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "TIMED_STEPS", 1)
    monkeypatch.setattr(costs, "FIRST_STEPS", 0)
    monkeypatch.setattr(costs, "COUNTED_GROUPS", 2)
    write_test_sets(tmp_path, frames=41)
    table = read_table("dust-table8")
    workload = costs.read_workload(table, tmp_path)
    # clips of 20 in 41 frames, patches on 160x28 pixels, 8 apart
    assert workload.groups == 2 * 19 * 3
    assert [video.shape for video in workload.videos] == [(41, 160, 28)]
    without = evaluate("dust-table8", systems=["dust", "vit"])
    assert [row.measured["parameters"] for row in without.rows] == [2.4596, 1.376]
    assert without.notes == ("seconds need the videos of Avenue: `data`",)
    (row,) = evaluate("dust-table8", data=tmp_path, systems=["dust"]).rows
    assert row.reference == {
        "parameters": 1.38,
        "epoch_seconds": 6.0,
        "test_seconds": 20.0,
    }
    assert row.measured["epoch_seconds"] > 0 and row.measured["test_seconds"] > 0
