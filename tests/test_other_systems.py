"""A rehearsal of Windows and macOS on this system, under their rules (`helpers/other_system.py`). Neither
system was run.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import python
from sample_videos import write_video

HELPERS = Path(__file__).parent / "helpers"


def commands(
    folder: Path,
    *lines: Sequence[object],
    stopped: bool = False,
    links: bool = True,
    stdin: bytes = b"",
) -> tuple[int, str]:
    """Run commands in one process under these rules; return the exit code of the first that failed, 0 if none
    did, and what all printed. `stopped`: as by Ctrl-C while segments are joined.
    """
    order = {
        "lines": [[str(word) for word in line] for line in lines],
        "stopped": stopped,
        "links": links,
    }
    more = {
        "PYTHONUTF8": "0",
        "USERNAME": "someone",
        "PYTHONPATH": str(HELPERS),
        "COLUMNS": "100",
    }
    surroundings = os.environ | more | {"OTHER_SYSTEM": json.dumps(order)}
    script = str(HELPERS / "other_system.py")
    done = python(
        script, cwd=folder, input=stdin, text=False, timeout=300, env=surroundings
    )
    return done.returncode, (done.stdout + done.stderr).decode("cp1252")


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "none"])
def test_a_video_is_restored_and_resumed_without_the_calls_that_windows_lacks(
    tmp_path, links
):
    write_video(tmp_path / "Gr\u00fc\u00dfe \u732b.mkv", 12)
    given = ("denoise", "Gr\u00fc\u00dfe \u732b.mkv", "--lossless", "-o", "out.mkv")
    code, said = commands(tmp_path, given, stopped=True, links=links)
    assert code == 130 and not (tmp_path / "out.mkv").exists(), said
    proof = ("--report", "page.html", "--sidecar")
    verify = ("verify", "out.mkv.vidrestore.json")
    again = ((*given, "--overwrite", *proof), given, verify)
    code, said = commands(tmp_path, given, *again, links=links)
    assert code == 0 and (tmp_path / "out.mkv").exists(), said
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    assert "\u732b" in (tmp_path / "page.html").read_text("utf-8")


def test_pictures_pipes_shards_processes_and_help_work_there(tmp_path):
    write_video(tmp_path / "in.mkv", 4)
    code, said = commands(
        tmp_path,
        ("denoise", "in.mkv", "-o", "out/%04d.png"),
        ("denoise", "out", "-o", "again.mkv", "--lossless"),
        ("denoise", "in.mkv", "-o", "shared.mkv", "--shard", "2/2"),
        ("denoise", "-", "-o", "piped.mkv"),
        ("denoise", "in.mkv", "-o", "spawned.mkv", "--device", "cpu,cpu"),
        ("--help",),
        ("denoise", "--help"),
        stdin=(tmp_path / "in.mkv").read_bytes(),
    )
    assert code == 0 and len(list((tmp_path / "out").glob("*.png"))) == 4, said
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "in.mkv",
        "out",
        "again.mkv",
        "shared.mkv",
        "piped.mkv",
        "spawned.mkv",
    }, said


def test_a_network_is_trained_there(repository, tmp_path):
    short = (
        "--set",
        "training.steps=2",
        "--set",
        "training.validate_every=2",
        "--device",
        "cpu",
    )
    config = repository / "examples" / "train" / "quick.toml"
    cache = ("--cache", tmp_path / "cache")
    code, said = commands(
        tmp_path, ("train", "--config", config, "-o", "runs", *short, *cache)
    )
    assert code == 0 and (tmp_path / "runs" / "quick.safetensors").exists(), said


def test_what_windows_refuses_is_an_error_of_one_line_and_leaves_nothing(tmp_path):
    for folder in ("", "one", "two"):
        (tmp_path / folder).mkdir(exist_ok=True)
    for name in ("in.mkv", "one/A.mkv", "two/a.mkv"):
        write_video(tmp_path / name, 2)
    deep, near = "/".join(["deep" * 10] * 5), "x" * (215 - len(str(tmp_path)))
    expected = {
        "in.mkv -o 12:30.mkv": "12:30.mkv: Windows takes no file name with ':' there; give -o",
        "in.mkv -o %04d?.png": "%04d?.png: Windows takes no file name with '?' there",
        "in.mkv -o aux.mkv": "aux.mkv: Windows takes no file name with 'aux.' there",
        "in.mkv -o out.mkv.": "out.mkv.: the name has no suffix, which chooses the container",
        "in.mkv -o out./": "out.: this folder for the outputs can't be made",
        "in.mkv --report a|b": "--report a|b: the folder can't be made",
        f"in.mkv -o {deep}/": " characters, too many for Windows; choose a shorter folder with -o",
        f"in.mkv -o {near}.mkv": f"{near}.mkv.vidrestore/job.json: the path of what is written for it has",
        "one two -o out/ -y": "two/a.mkv would become out/A.denoised.mkv, too",
        "in.mkv -o one/A.mkv": "A.mkv: already exists; add --overwrite to replace it, or give -o another",
    }
    before = sorted(tmp_path.rglob("*"))
    code, said = commands(tmp_path, *(("denoise", *line.split()) for line in expected))
    errors = [line for line in said.splitlines() if line.startswith("vidrestore: ")]
    assert (
        code
        and [text for text in expected.values() if text not in "\n".join(errors)] == []
    ), said
    # the pair of one name has three lines
    assert "Traceback" not in said and len(errors) == len(expected) + 2, said
    assert sorted(tmp_path.rglob("*")) == before
