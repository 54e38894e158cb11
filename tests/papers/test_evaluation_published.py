"""The papers' tables as data: whole, within bounds, and as printed."""

import re

import pytest

from vidrestore.evaluation.results import ClipMetrics
from vidrestore.papers.datasets import splits
from vidrestore.papers.suites import PROTOCOLS, mean_of
from vidrestore.papers.tables import AVERAGE, Table, read_table, table_names

TABLES = table_names()
BY_SYSTEM = ("dust-table2", "dust-table9")  # printed with one line per system, as the other papers' are
PAPERS = {"dust": "dust_tsp2024.md", "mbt": "mb_taylorformer_v2.md", "vsr": "vsr_transformer.md"}


READ = {  # settings that each protocol reads
    "patches": {"stride", "rate"},
    "images": {"task"},
    "super-resolution": {"channels", "made"},
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_cell_per_system_and_column_and_sets_that_can_be_found(name):
    table = read_table(name)
    assert table.protocol in PROTOCOLS and table.source and table.title
    assert set(table.settings) <= READ[table.protocol]
    for part in table.sets:
        assert part.split in splits(part.dataset) if part.dataset else part.name == AVERAGE
        assert set(part.published) == set(table.systems)
        for cells in part.published.values():
            assert len(cells) == len(part.columns)
            assert all(5 < cell.get("psnr", 30) < 50 and 0 < cell.get("ssim", 1) <= 1 for cell in cells)


def test_well_known_values_are_in_their_cells():
    vid4 = read_table("vsr-table3").sets[0]
    assert vid4.columns == ("calendar", "city", "foliage", "walk", AVERAGE)
    assert vid4.published["bicubic"][-1] == {"psnr": 23.78, "ssim": 0.6347}
    avenue = read_table("dust-table4").sets[0]
    assert avenue.published["dust"][avenue.columns.index("0.2")] == {"psnr": 37.95, "ssim": 0.9766}
    assert avenue.published["reweighted-rnn"][0] == {}  # training diverged
    assert read_table("mbt-table2").sets[0].published["mb-taylorformer-b"][0] == {"psnr": 41.0, "ssim": 0.993}
    assert read_table("dust-table7").sets[0].published["reweighted-rnn"][-1] == {}  # its output diverged


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
    for part in table.sets:
        lines = list(part.published.values())
        if (
            table.protocol == "patches" and table.name not in BY_SYSTEM
        ):  # Table VII is two, the second one of fine-tuned systems
            halves = [
                [cells for name, cells in part.published.items() if name.endswith("-finetuned") == half]
                for half in (False, True)
            ]
            lines = [line for half in halves for line in zip(*half, strict=True)]
        rows += [[f"{value:g}" for cell in line for value in cell.values()] for line in lines]
    return [row for row in rows if row]


@pytest.mark.parametrize("name", [name for name in TABLES if name.split("-")[0] in PAPERS])
def test_values_are_those_of_the_paper_in_its_order(name, shared):
    text = (shared / "papers" / PAPERS[name.split("-")[0]]).read_text()
    lines = [
        [f"{float(found):g}" for found in re.findall(r"(?<![\d.])\d*\.?\d+", line)]
        for line in text.splitlines()
    ]
    for row in printed_rows(read_table(name)):
        if name in (
            "mbt-table5",
            "mbt-table7",
            "mbt-table12",
            "vsr-table2",
        ):  # printed with the systems side by side
            assert set(row) <= {figure for line in lines for figure in line}
        else:
            assert any(in_order(row, line) for line in lines), row


def in_order(row: list[str], line: list[str]) -> bool:
    rest = iter(line)
    return all(figure in rest for figure in row)
