"""The papers' tables as data: whole, within bounds, and as printed."""

import re
from itertools import product

import pytest

from vidrestore.lab.papers.costs import COST_PROTOCOLS as COSTS
from vidrestore.lab.papers.datasets import splits
from vidrestore.lab.papers.suites import TABLE_PROTOCOLS, mean_of
from vidrestore.lab.papers.tables import AVERAGE, Table, read_table, table_names
from vidrestore.pages.results import ClipMetrics

TABLES = table_names()
# printed with one line per system, as the other papers' are
BY_SYSTEM = ("dust-table2", "dust-table8", "dust-table9", "dust-poster2")
# a line per task and system, across all sets
BY_TASK = ("dust-table3", "dust-table10", "dust-poster1")
# a line per metric
SIDE_BY_SIDE = ("mbt-table5", "mbt-table7", "mbt-table12", "vsr-table2")
PAPERS = {
    "dust": "dust_tsp2024.md",
    "mbt": "mb_taylorformer_v2.md",
    "vsr": "vsr_transformer.md",
}


READ = {  # settings that each protocol reads
    "patches": {"stride", "rate", "tasks", "plot"},
    "patch-costs": {"stride", "networks"},
    "picture-costs": {"networks"},
    "images": {"task"},
    "super-resolution": {"channels", "made"},
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_cell_per_system_and_column_and_sets_that_can_be_found(name):
    table = read_table(name)
    assert table.protocol in (*TABLE_PROTOCOLS, *COSTS) and table.source and table.title
    assert set(table.overhead) <= set(table.systems)
    assert set(table.settings.get("networks", table.systems)) == set(table.systems)
    assert set(table.settings) <= READ[table.protocol]
    for part in table.sets:
        assert (
            part.split in splits(part.dataset) if part.dataset else part.name == AVERAGE
        )
        assert set(part.published) == set(table.systems)
        for cells in part.published.values():
            assert len(cells) == len(part.columns)
            assert all(
                5 < cell.get("psnr", 30) < 50 and 0 < cell.get("ssim", 1) <= 1
                for cell in cells
            )


def test_well_known_values_are_in_their_cells():
    vid4 = read_table("vsr-table3").sets[0]
    assert vid4.columns == ("calendar", "city", "foliage", "walk", AVERAGE)
    assert vid4.published["bicubic"][-1] == {"psnr": 23.78, "ssim": 0.6347}
    avenue = read_table("dust-table4").sets[0]
    assert avenue.published["dust"][avenue.columns.index("0.2")] == {
        "psnr": 37.95,
        "ssim": 0.9766,
    }
    assert avenue.published["reweighted-rnn"][0] == {}  # training diverged
    assert read_table("mbt-table2").sets[0].published["mb-taylorformer-b"][0] == {
        "psnr": 41.0,
        "ssim": 0.993,
    }
    # its output diverged
    assert read_table("dust-table7").sets[0].published["reweighted-rnn"][-1] == {}


def test_the_mean_is_over_frames_and_then_over_clips_or_over_all_frames():
    clips = [
        ClipMetrics("dust", "set", "", name, {"psnr": values})
        for name, values in (("a", (30.0,)), ("b", (40.0, 42.0, 44.0)))
    ]
    assert mean_of(clips, pooled=False) == {"psnr": 36}
    assert mean_of(clips, pooled=True) == {"psnr": 39}


def printed_rows(table: Table) -> list[list[str]]:
    """Figures as they stand in one line of the paper: of one setting for DUST, of one system elsewhere."""
    rows = []
    if table.name in BY_TASK:
        for index, system in product(range(len(table.sets[0].columns)), table.systems):
            cells = [part.published[system][index] for part in table.sets]
            rows.append([f"{value:g}" for cell in cells for value in cell.values()])
        return rows
    if table.name == "dust-table1":  # a line of seven values for each scalar
        values = [f"{cell['psnr']:g}" for cell in table.sets[0].published["dust"]]
        return [values[first : first + 7] for first in (0, 7, 14)]
    for part in table.sets:
        lines = list(part.published.values())
        if (
            table.protocol == "patches" and table.name not in BY_SYSTEM
        ):  # Table VII is two, the second one of fine-tuned systems
            halves = [
                [
                    cells
                    for name, cells in part.published.items()
                    if name.endswith("-finetuned") == half
                ]
                for half in (False, True)
            ]
            lines = [line for half in halves for line in zip(*half, strict=True)]
        rows += [
            [f"{value:g}" for cell in line for value in cell.values()] for line in lines
        ]
    return [row for row in rows if row]


@pytest.mark.parametrize(
    "name", [name for name in TABLES if name.split("-")[0] in PAPERS]
)
def test_values_are_those_of_the_paper_in_its_order(name, shared):
    paper = "dust_poster.md" if "poster" in name else PAPERS[name.split("-")[0]]
    text = (shared / "papers" / paper).read_text()
    lines = [
        [f"{float(found):g}" for found in re.findall(r"(?<![\d.])\d*\.?\d+", line)]
        for line in text.splitlines()
    ]
    for row in printed_rows(read_table(name)):
        if name in SIDE_BY_SIDE:
            assert set(row) <= {figure for line in lines for figure in line}
        else:
            assert any(in_order(row, line) for line in lines), row


@pytest.mark.parametrize("name", [name for name in TABLES if read_table(name).overhead])
def test_overheads_are_those_of_the_paper(name, shared):
    text = (
        (shared / "papers" / PAPERS[name.split("-")[0]])
        .read_text()
        .replace("1.7K", "1700")
    )
    figures = re.findall(r"(?<![\d.])\d*\.?\d+", text)
    values = [
        value
        for costs in read_table(name).overhead.values()
        for value in costs.values()
    ]
    assert values and {f"{value:g}" for value in values} <= {
        f"{float(figure):g}" for figure in figures
    }
    taylorformer = read_table("mbt-table1").overhead
    for system, costs in read_table(name).overhead.items():
        assert taylorformer.get(system, costs) == costs  # the same in every table


def in_order(row: list[str], line: list[str]) -> bool:
    rest = iter(line)
    return all(figure in rest for figure in row)
