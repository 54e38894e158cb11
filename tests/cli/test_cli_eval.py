"""`vidrestore eval` as it is typed: what is printed, written and refused."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from dataset_folders import VID4
from eval_command import run, write_vid4
from sample_pictures import write_rgb
from taylor_networks import PRINTED

from vidrestore.errors import MediaError
from vidrestore.lab.evaluation import evaluate
from vidrestore.lab.papers.printed_forms import printed_form
from vidrestore.lab.papers.suites import PATCH_FAMILIES
from vidrestore.lab.papers.tables import read_table, table_names
from vidrestore.pages.results import ClipMetrics, Result, Row
from vidrestore.weights import Model, build_network, save_model
from vidrestore.weights.manifest import Card

BICUBIC = ("--suite", "vsr-table3", "--systems", "bicubic", "--data")


def write_avenue(folder: Path, frames: int = 1) -> None:
    rows, columns = np.mgrid[:180, :320] / 20
    for number in range(frames):
        picture = [
            128 + 90 * np.sin(rows + number / 4 + channel) * np.cos(columns)
            for channel in range(3)
        ]
        write_rgb(
            folder / "testing" / "frames" / "01" / f"{number:03d}.png",
            np.stack(picture).clip(0, 255).astype(np.uint8),
        )


def test_a_table_is_printed_in_columns_and_written_as_json_and_csv(tmp_path, capsys):
    write_vid4(tmp_path)
    files = tmp_path / "found.json", tmp_path / "found.csv"
    line = ("--suite", "vsr-table3", "--systems", "bicubic,edvr-l", "--data", tmp_path)
    assert run(*line, "--json", files[0], "--csv", files[1]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert (
        lines[0].startswith("VSR-Transformer, Table 3")
        and "arXiv 2106.06847" in lines[0]
    )
    assert lines[1].split() == [
        "system",
        "on",
        *("psnr", "published", "ssim", "published", "parameters", "published"),
    ]
    found = json.loads(files[0].read_text())
    average = next(
        row
        for row in found["rows"]
        if row["system"] == "Bicubic" and row["on"].endswith("average")
    )
    assert (
        f"Bicubic  Vid4, clip average   {average['measured']['psnr']:.2f}  23.78"
        in said.out
    )
    assert any(line.startswith("EDVR-L") and "27.35" in line for line in lines)
    assert "- frames cropped to multiples of 4" in said.out
    assert [clip["clip"] for clip in found["clips"]] == list(VID4)
    assert len(found["clips"][0]["frames"]["psnr"]) == 1
    rows = csv.DictReader(files[1].read_text().splitlines())
    line = next(
        row
        for row in rows
        if row["system"] == "Bicubic" and row["on"].endswith("average")
    )
    assert (float(line["psnr"]), float(line["psnr_published"])) == (
        average["measured"]["psnr"],
        23.78,
    )
    assert said.err == "Vid4: calendar (1 of 4)\n"  # the others follow at once


def test_on_a_terminal_progress_is_a_bar(tmp_path, capsys, monkeypatch):
    write_vid4(tmp_path)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(*BICUBIC, tmp_path) == 0
    assert "Vid4 calendar (1 of 4)" in capsys.readouterr().err


def test_what_is_missing_is_an_error_with_the_layout_that_is_expected(tmp_path, capsys):
    assert run("--suite", "vsr-table3", "--data", tmp_path) == 1
    assert "GT/calendar, GT/city, GT/foliage and GT/walk" in capsys.readouterr().err
    assert run("--suite", "vsr-table3", "--data", tmp_path / "nowhere") == 1
    assert "no such folder" in capsys.readouterr().err
    assert run("--suite", "vsr-table30") == 2
    assert (
        "no suite named 'vsr-table30' (did you mean vsr-table3"
        in capsys.readouterr().err
    )
    assert run("--suite", "bundled", "--systems", "dust") == 2
    assert "choose rows of a paper's table" in capsys.readouterr().err
    assert run("--suite", "bundled", "video.mp4") == 2
    assert "videos are compared with --reference" in capsys.readouterr().err


def test_the_suites_are_listed_a_line_each(capsys):
    assert run("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["bundled", *table_names()]
    assert "Table 3: x4 on Vid4" in lines[-3]
    assert max(map(len, lines)) <= 80


def test_a_file_that_can_t_be_written_is_an_error(tmp_path, capsys):
    write_vid4(tmp_path)
    assert run(*BICUBIC, tmp_path, "--json", tmp_path / "no" / "found.json") == 1
    said = capsys.readouterr()
    assert f"there is no folder {tmp_path / 'no'}; create it first" in said.err
    assert not said.out and "Vid4" not in said.err  # before anything is measured
    (tmp_path / "folder.html").mkdir()
    assert run(*BICUBIC, tmp_path, "--html", tmp_path / "folder.html") == 1
    assert "a folder, but a file name was expected" in capsys.readouterr().err


def test_what_would_be_written_over_a_video_is_refused(tmp_path, capsys):
    video = tmp_path / "a.mp4"
    video.write_bytes(b"a video")
    assert run("--reference", video, "--json", video, tmp_path / "b.mp4") == 1
    assert (
        f"{video}: --json writes a file, whose name must end with .json"
        in capsys.readouterr().err
    )
    assert video.read_bytes() == b"a video"


def test_one_file_that_can_not_be_written_does_not_cost_the_others(
    tmp_path, capsys, monkeypatch
):
    write_vid4(tmp_path)
    files = [tmp_path / f"found.{kind}" for kind in ("json", "csv", "html")]

    def written(path, content):
        if path == files[0]:
            raise MediaError(f"{path}: no space left to write it")
        path.write_bytes(content)

    monkeypatch.setattr("vidrestore.files.atomic.write_whole", written)
    options = [part for file in files for part in (f"--{file.suffix[1:]}", file)]
    assert run(*BICUBIC, tmp_path, *options) == 1
    assert f"{files[0]}: no space left to write it" in capsys.readouterr().err
    assert files[1].stat().st_size and files[2].stat().st_size


def test_names_that_are_not_text_and_infinite_metrics_are_shown_and_written(
    tmp_path, capsys, monkeypatch
):
    row = Row(
        "denoise", "video [a]\udcff.mkv", {"psnr": math.inf}, {"psnr": 20.0}, "[red]"
    )
    clip = ClipMetrics(
        "denoise", "videos", "", "video [a]\udcff.mkv", {"psnr": (math.inf, 30.0)}
    )
    made = Result("reference", "Videos", "before", (row,), clips=(clip,))
    monkeypatch.setattr(
        "vidrestore.lab.evaluation.evaluate", lambda suite, **settings: made
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    files = [tmp_path / f"found.{kind}" for kind in ("json", "csv", "html")]
    options = [part for file in files for part in (f"--{file.suffix[1:]}", file)]
    assert run("--reference", "clean", "video", *options) == 0
    assert "denoise  [red]    video [a]\\udcff.mkv  inf" in capsys.readouterr().out
    found = json.loads(files[0].read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (found["rows"][0]["on"], found["rows"][0]["measured"]) == (
        "video [a]\udcff.mkv",
        {"psnr": None},
    )
    assert found["clips"][0]["frames"] == {"psnr": [None, 30.0]}
    assert "nan" not in files[2].read_text(encoding="utf-8") and files[1].read_text(
        encoding="utf-8"
    )


def test_one_folder_does_not_pass_for_several_test_sets(tmp_path, capsys):
    for folder in ("input", "target"):
        write_rgb(tmp_path / folder / "1.png", np.zeros((3, 16, 16), np.uint8))
    arguments = ("--suite", "mbt-table4", "--data", tmp_path, "--systems", "given")
    assert run(*arguments) == 1
    assert f"{tmp_path}: may be " in capsys.readouterr().err
    assert run(*arguments, "--sets", "rain100l") == 0


def tiny_dust(folder: Path, name: str, family: str = "dust", **config: object) -> Path:
    settings = (
        ({"atoms": 256} if family == "dust" else {})
        | {"patch": 16, "measurements": 51}
        | config
    )
    path = folder / f"{name}.safetensors"
    network = build_network(family, settings)
    save_model(path, network, family=family, config=settings, task="recover")
    return path


def test_all_systems_of_the_dust_paper_take_part_by_their_files(tmp_path):
    write_avenue(tmp_path)
    files = [
        tiny_dust(tmp_path, "one", kind="printed"),
        tiny_dust(tmp_path, "four", kind="printed", heads=4),
    ]
    found = evaluate(
        "dust-table4", data=tmp_path, sets=["avenue"], weights=list(map(str, files))
    )
    rows = {(row.system, row.on): row for row in found.rows}
    for system, weights in (("DUST", "one"), ("MH-DUST", "four")):
        row = rows[system, "Avenue, CS rate 0.2"]
        assert row.weights == weights and row.count == 1 and row.measured["psnr"] > 5
        assert (
            not rows[system, "Avenue, CS rate 0.1"].measured
            and rows[system, "Avenue, CS rate 0.1"].reference
        )
    assert rows["ViT", "Avenue, CS rate 0.2"].reference == {
        "psnr": 36.71,
        "ssim": 0.9732,
    }
    # nothing published, nothing measured
    assert ("Reweighted-RNN", "Avenue, CS rate 0.1") not in rows


def test_weights_of_one_name_in_two_folders_are_two_rows(tmp_path):
    write_avenue(tmp_path)
    files = []
    for folder, blocks in (("a", 1), ("lr=1e-4", 2)):
        (tmp_path / folder).mkdir()
        files.append(tiny_dust(tmp_path / folder, "own", kind="printed", blocks=blocks))
    found = evaluate(
        "dust-table4",
        data=tmp_path,
        sets=["avenue"],
        weights=[str(files[0]), *map(str, files)],
    )
    rows = {row.weights: row.measured["psnr"] for row in found.rows if row.measured}
    assert list(rows) == list(map(str, files)) and len({*rows.values()}) == 2
    alone = evaluate(
        "dust-table4", data=tmp_path, sets=["avenue"], weights=[f"avenue={files[1]}"]
    )
    measured = {row.weights: row.measured["psnr"] for row in alone.rows if row.measured}
    assert measured == {"own": rows[str(files[1])]}


def test_named_weights_that_fit_no_column_are_refused_before_anything_is_measured(
    tmp_path, capsys, monkeypatch
):
    decoder = "vidrestore.lab.papers.sensed_patches.gray_video"
    monkeypatch.setattr(
        decoder, lambda sequence, lines: pytest.fail("a video was decoded")
    )
    write_avenue(tmp_path)
    arguments = ("--suite", "dust-table4", "--data", tmp_path, "--sets", "avenue")
    assert run(*arguments, "--weights", "dust-denoise") == 2
    expected = "dust-denoise: fits no column of dust-table4 on avenue (CS rate 0.1, 0.2, 0.3, 0.4, 0.5,"
    assert f"{expected} patches of 16x16); name" in capsys.readouterr().err
    assert run(*arguments, "--weights", "ucsd=dust-cs20") == 2
    expected = "dust-cs20: fits no column of dust-table4 on avenue, but is named for ucsd; name others"
    assert expected in capsys.readouterr().err


SMALL: dict[str, dict[str, object]] = {  # instead of 1024 atoms and a hundred layers
    "algorithm1": {"atoms": 256, "iterations": 2},
    "sista": {"atoms": 256, "layers": 2},
    **{
        family: {"atoms": 256}
        for family in ("sista-rnn", "l1-l1-rnn", "reweighted-rnn")
    },
}


@pytest.mark.parametrize(
    "family", [family for family in PATCH_FAMILIES if family != "dust"]
)
def test_every_family_that_dust_is_held_against_takes_part(tmp_path, family):
    write_avenue(tmp_path)
    path = tiny_dust(tmp_path, "own", family, **SMALL.get(family, {}))
    found = evaluate("dust-table6", data=tmp_path, weights=[str(path)])
    rows = [row for row in found.rows if row.measured]
    assert [row.on for row in rows] == [
        f"Avenue, sigma {sigma}" for sigma in (10, 20, 50, 100)
    ]
    published = read_table("dust-table6").sets[0].published
    assert rows[0].reference == (published[family][0] if family in published else {})
    # the noise reaches it
    assert rows[0].weights == "own" and rows[0].measured != rows[-1].measured


def test_a_relative_of_the_printed_network_is_named_as_one(tmp_path):
    write_avenue(tmp_path)
    found = evaluate(
        "dust-table5",
        data=tmp_path,
        sets=["avenue"],
        systems=["dust-any-sigma", "given"],
        weights=["dust-denoise"],
    )
    assert found.notes == (
        "dust-denoise: not the paper's network, but its variant for every sigma",
    )
    gains = {
        row.on: row.measured["psnr"]
        for row in found.rows
        if row.system == "DUST for every sigma" and row.measured
    }
    given = {
        row.on: row.measured["psnr"] for row in found.rows if row.system == "as given"
    }
    # it is for 1 to 75
    assert set(gains) == {f"Avenue, sigma {sigma}" for sigma in (10, 20, 50)}
    assert all(gains[on] > given[on] + 3 for on in gains)


def test_the_mean_of_the_dust_paper_is_over_all_frames_of_a_set(tmp_path):
    write_avenue(tmp_path, frames=3)
    write_rgb(
        tmp_path / "testing" / "frames" / "02" / "000.png",
        np.full((3, 180, 320), 250, np.uint8),
    )
    found = evaluate("dust-table5", data=tmp_path, sets=["avenue"], systems=["given"])
    frames = [
        value
        for clip in found.clips
        if clip.column == "50"
        for value in clip.frames["psnr"]
    ]
    (row,) = (row for row in found.rows if row.on == "Avenue, sigma 50")
    assert row.count == len(frames) == 4
    assert row.measured["psnr"] == pytest.approx(np.mean(frames), abs=1e-3)


ABLATIONS: dict[str, dict[str, object]] = {
    "": {"offset_limit": [-3, 3]},
    "-plain-p": {"embedding": "plain", "chain": False},
    "-dilated-p": {"embedding": "dilated", "chain": False},
    "-plain": {"embedding": "plain"},
    "-no-cpe": {"attention": {"position": "none"}},
    "-any-offset": {"offset_limit": []},
    "-offset-2": {"offset_limit": [-2, 2]},
    "-p4": {"attention": {"focus_power": 4}},
}


@pytest.mark.parametrize(
    ("family", "config", "system"),
    [
        ("dust", {"kind": "printed", "heads": 4}, "mh-dust"),
        ("dust", {"kind": "printed", "correlation": True}, "dust-f"),
        ("dust", {"kind": "printed", "normalise": False}, "dust-not-normalised"),
        (
            "unfolded-transformer",
            {"normalise": False},
            "unfolded-transformer-not-normalised",
        ),
        ("algorithm1", {}, "algorithm1"),
        ("algorithm1", {"normalise": True}, "algorithm1-normalised"),
        ("mb-taylorformer", {"size": "t"}, "mb-taylorformer-t"),
        ("vsr-transformer", {"size": "n"}, "vsr-transformer-n"),
        *(
            ("mb-taylorformer", config, f"mb-taylorformer-b{name}")
            for name, config in ABLATIONS.items()
        ),
    ],
)
def test_the_configuration_of_a_network_determines_its_system(family, config, system):
    model = Model(
        build_network(family, config), Card("any", family, config, "any", "0" * 64, 1)
    )
    focus_powers = (
        read_table("mbt-table12").systems
        if config.get("attention", {}).keys() & {"focus_power"}
        else ()
    )
    assert printed_form(model, focus_powers).system == system


OWN_ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "dust-temperature": ("dust", {"kind": "printed", "temperature": True}),
    "dust-5-layers": ("dust", {"kind": "printed", "blocks": 5}),
    "mh6-dust": ("dust", {"kind": "printed", "heads": 6}),
    "mb-taylorformer-b-p5": ("mb-taylorformer", {"attention": {"focus_power": 5}}),
    "mb-taylorformer-b-norm": ("mb-taylorformer", {"norm": "layer"}),
    "mb-taylorformer-b-tasks": ("mb-taylorformer", {"tasks": ["dehaze", "derain"]}),
    "vsr-transformer-features": ("vsr-transformer", {"features": 16}),
}


@pytest.mark.parametrize("system", OWN_ROWS)
def test_what_the_papers_do_not_print_has_a_row_of_its_own(system):
    family, config = OWN_ROWS[system]
    model = Model(
        build_network(family, config), Card("any", family, config, "any", "0" * 64, 1)
    )
    tables = map(read_table, ("dust-table4", "mbt-table2", "vsr-table1"))
    assert printed_form(model).system == system
    assert not any(system in table.systems for table in tables)


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({"attention": vars(PRINTED), "first_residual": True}, ""),
        ({}, "attention.focus_power = 8 (printed: 4)"),
        (
            {"attention": {"position": "convolution"}},
            "attention.remainder = sigmoid (printed: plain)",
        ),
    ],
)
def test_the_printed_and_the_released_network_have_the_papers_row_and_the_released_one_a_note(
    config, note
):
    card = Card("any", "mb-taylorformer", config, "any", "0" * 64, 1)
    form = printed_form(Model(build_network("mb-taylorformer", config), card))
    assert form.system == "mb-taylorformer-b"
    assert note in form.note and bool(note) == bool(form.note)


def test_the_bundled_sensing_weights_are_in_the_row_of_the_paper_with_a_note_of_their_start(
    tmp_path,
):
    write_avenue(tmp_path)
    found = evaluate(
        "dust-table4", data=tmp_path, sets=["avenue"], weights=["dust-cs20"]
    )
    (row,) = (row for row in found.rows if row.measured)
    assert (row.system, row.weights, row.reference["psnr"]) == (
        "DUST",
        "dust-cs20",
        37.95,
    )
    start = "trained from principal components instead of a random sensing matrix"
    assert found.notes == (f"dust-cs20: the paper's network, but {start}",)
