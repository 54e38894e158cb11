"""`--sidecar` and `verify`: what was made of what, and whether it still is so."""

import hashlib
import json
import os
import re
import sys
from functools import partial

import av
import pytest
from command_line import run as command
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from sample_videos import write_video

import vidrestore
from vidrestore.weights import read_manifest

verify = partial(command, "verify")


@pytest.fixture
def video(tmp_path):
    write_video(tmp_path / "in.mkv", 5, "libx264")
    return tmp_path / "in.mkv"


def change(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_sidecar_records_files_weights_options_noise_and_times(
    video, capsys, monkeypatch
):
    monkeypatch.undo()  # the real weights
    monkeypatch.setattr(sys, "argv", ["/bin/vidrestore", "denoise", "in one.mkv"])
    assert run(video, "--sigma", "20", "--quality", "fast", "--sidecar", "--json") == 0
    times = [json.loads(line)["time"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(times) == times
    output = video.with_name("in.denoised.mkv")
    found = json.loads(output.with_name("in.denoised.mkv.vidrestore.json").read_text())
    for part, path in (("source", video), ("result", output)):
        assert (
            found[part]["path"] == path.name
            and found[part]["bytes"] == path.stat().st_size
        )
        assert found[part]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (
        found["vidrestore"]
        == found["plan"]["versions"]["vidrestore"]
        == vidrestore.__version__
    )
    assert found["command"] == "vidrestore denoise 'in one.mkv'"
    assert found["plan"]["weights"] == {
        "dust-denoise": read_manifest()["dust-denoise"].sha256
    }
    (step,) = found["steps"]
    assert (step["task"], step["options"]["sigma"], step["options"]["quality"]) == (
        "denoise",
        20,
        "fast",
    )
    assert found["done"]["frames"] == 5 and found["done"]["scenes"][0]["sigma"] == [
        20,
        20,
        20,
    ]
    assert found["began"] < found["ended"] and found["began"].endswith("+00:00")


def test_verify_fails_when_a_byte_changes(video, capsys):
    assert run(video, "--lossless", "--sidecar", "-q") == 0
    sidecar = video.parent / "in.denoised.mkv.vidrestore.json"
    assert verify(sidecar) == 0
    assert capsys.readouterr().out.count("as recorded") == 2
    change(video.with_name("in.denoised.mkv"))
    assert verify(sidecar) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        "in.mkv: as recorded" in lines[0]
        and "in.denoised.mkv: differs from the record" in lines[1]
    )
    video.unlink()
    assert verify(sidecar) == 1 and "in.mkv: can't be read" in capsys.readouterr().out


def test_moved_files_verify_beside_their_sidecar_and_other_files_are_refused(
    video, tmp_path, capsys
):
    assert run(video, "--sidecar", "-q") == 0
    (tmp_path / "moved").mkdir()
    for path in tmp_path.glob("in*"):
        path.rename(tmp_path / "moved" / path.name)
    assert verify(tmp_path / "moved" / "in.denoised.mkv.vidrestore.json") == 0
    assert verify(tmp_path / "none.json") == 1


@pytest.mark.parametrize(
    "content, reason",
    [
        ("{}", "missing: result, sidecar, source"),
        ("[", "Expecting value"),
        ("3", "an object was expected"),
        ("[" * 50_000, "nested too deeply"),
        ('{"sidecar": 1, "source": 3, "result": 3}', "source"),
        ({"sha256": None}, "source.sha256 must be a valid string, found None"),
        ({"sha256": "0"}, "source.sha256 must match pattern"),
        ({"path": "a\0b"}, "source.path must match pattern"),
        ({"bytes": "many"}, "source.bytes must be a valid integer"),
        (b"\0\0\0\x1cftyp\xff", "not text"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_verify_refuses_what_no_run_has_recorded(content, reason, tmp_path, capsys):
    if isinstance(content, dict):
        recorded = {"path": "a.mkv", "bytes": 0, "sha256": "0" * 64}
        content = json.dumps(
            {"sidecar": 1, "source": recorded | content, "result": recorded}
        )
    content = content.encode() if isinstance(content, str) else content
    (tmp_path / "other.json").write_bytes(content)
    assert verify(tmp_path / "other.json") == 1
    found = capsys.readouterr().err
    assert "other.json: not a sidecar of vidrestore" in found and reason in found


def test_verify_compares_no_pipe_and_counts_no_digits_without_end(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "1.png").write_bytes(b"")
    for path, reason in (
        ("-", "standard input"),
        ("%0999999999d.png", "can't be read"),
    ):
        recorded = {"path": path, "bytes": 0, "sha256": "0" * 64}
        (tmp_path / "s.json").write_text(
            json.dumps({"sidecar": 1, "source": recorded, "result": recorded})
        )
        assert verify("s.json") == 1
        assert reason in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_verify_waits_for_no_pipe_and_reads_no_device(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "pipe", "a named pipe"),
        ("/dev/zero", "a device"),
    ):
        recorded = {"path": str(path), "bytes": 0, "sha256": "0" * 64}
        (tmp_path / "s.json").write_text(
            json.dumps({"sidecar": 1, "source": recorded, "result": recorded})
        )
        assert verify(tmp_path / "s.json") == 1
        assert f"can't be read ({reason}" in capsys.readouterr().out
        assert verify(path) == 1


def test_a_sidecar_written_after_the_run_describes_this_output_and_lists_what_it_lacks(
    video,
):
    sidecar = video.with_name("in.denoised.mkv.vidrestore.json")
    assert run(video, "--sidecar", "-q") == 0
    first = sidecar.read_bytes()
    assert run(video, "--sidecar", "-q") == 0 and sidecar.read_bytes() == first
    assert run(video, "--strength", "0.5", "-y", "-q") == 0 and verify(sidecar) == 1
    sidecar.unlink()
    assert (
        run(video, "--strength", "0.5", "--sidecar", "-q") == 0 and verify(sidecar) == 0
    )
    assert "lacks the plan" in json.loads(sidecar.read_text())["lacks"]
    assert "lacks" not in json.loads(first)


def test_a_refused_run_does_not_replace_the_record_of_a_run(video, capsys):
    sidecar = video.with_name("in.denoised.mkv.vidrestore.json")
    assert run(video, "--sidecar", "-q") == 0
    first = sidecar.read_bytes()
    assert run(video, "--strength", "0.5", "--sidecar", "-q") == 1
    assert sidecar.read_bytes() == first


def test_pictures_have_sidecars_and_pipes_none(tmp_path, capsys):
    for number in range(3):
        write_video(tmp_path / f"{number}.png", 1, "png", "rgb24", format="image2")
    assert (
        run(tmp_path / "%d.png", "-o", tmp_path / "out" / "%04d.png", "--sidecar", "-q")
        == 0
    )
    sidecar = tmp_path / "out" / "%04d.png.vidrestore.json"
    assert verify(sidecar) == 0
    change(tmp_path / "out" / "0001.png")
    assert verify(sidecar) == 1
    for option in ("-o -", "--dry-run", "--preview 1s"):
        assert run(tmp_path / "0.png", *option.split(), "--sidecar") == 2
        assert "not with --preview, --dry-run or pipes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, key", [("a.mp4", "encoder"), ("a.mkv", "VIDRESTORE"), ("a.mov", "xmp")]
)
def test_tags_of_the_output_say_how_it_was_made_unless_refused(video, name, key):
    for options, tagged in ((), True), (("--no-tags", "-y"), False):
        assert (
            run(video, "-o", video.with_name(name), "--strength", "0.5", "-q", *options)
            == 0
        )
        with av.open(
            str(video.with_name(name)), container_options={"export_xmp": "1"}
        ) as file:
            found = file.metadata.get(key, "")
        made = rf" {vidrestore.__version__}: denoise identity@\w*.* strength=0.5; \d+ frames"
        assert (
            bool(re.search(rf"\bvidrestore [0-9a-f]{{16}}\+[0-9a-f]{{8}}{made}", found))
            == tagged
        )


def test_a_batch_with_sidecars_leaves_a_list_of_what_became_of_each_input(
    tmp_path, capsys
):
    for name in ("a.mkv", "c.mkv", "c.denoised.mkv"):
        write_video(tmp_path / name, 2, "libx264")
    names = [tmp_path / name for name in ("a.mkv", "gone.mkv", "c.mkv")]
    (tmp_path / "gone.mkv").write_text("no video")
    assert run(*names, "--sidecar", "-q") == 3
    listed = json.loads((tmp_path / "vidrestore-batch.json").read_text())["inputs"]
    assert [each["state"] for each in listed] == ["done", "failed", "skipped"]
    assert [each["input"] for each in listed] == [str(name) for name in names]
    assert (
        listed[0]["output"] == str(tmp_path / "a.denoised.mkv")
        and "gone.mkv" in listed[1]["reason"]
    )
    assert run(*names, "--sidecar", "-q") == 3  # its own list is replaced
    for mine in ("mine", '["vidrestore_batch"]', '"vidrestore_batch"', "[" * 60_000):
        (tmp_path / "vidrestore-batch.json").write_text(mine)
        capsys.readouterr()
        assert run(*names, "--sidecar", "--overwrite") == 2
        assert "which vidrestore did not write; move it" in capsys.readouterr().err
        assert (tmp_path / "vidrestore-batch.json").read_text() == mine


@pytest.fixture
def batch(tmp_path, capsys):
    """Two restored videos, one in a folder below, with sidecars and a list."""
    for name in ("nas/a.mkv", "nas/below/b.mkv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_video(tmp_path / name, 3, "libx264")
    assert (
        run(tmp_path / "nas", "-o", tmp_path / "out", "--recursive", "--sidecar", "-q")
        == 0
    )
    capsys.readouterr()
    return tmp_path / "out"


def test_verify_takes_a_folder_a_list_and_a_video(batch, capsys, monkeypatch):
    video = batch / "below" / "b.denoised.mkv"
    for record, files in ((batch, 4), (batch / "vidrestore-batch.json", 4), (video, 2)):
        assert verify(record) == 0
        assert capsys.readouterr().out.count("as recorded") == files
    change(video)
    for record in (batch, batch / "vidrestore-batch.json", video):
        assert verify(record) == 1
        assert f"{video}: differs from the record" in capsys.readouterr().out
    (batch / "below" / "b.denoised.mkv.vidrestore.json").unlink()
    assert verify(batch / "vidrestore-batch.json") == 1
    assert (
        verify(video) == 1
        and "b.denoised.mkv: it has no sidecar" in capsys.readouterr().err
    )


def test_verify_names_what_a_batch_did_not_finish(batch, capsys):
    place = batch / "vidrestore-batch.json"
    content = json.loads(place.read_text())
    content["inputs"][0] |= {"state": "failed", "reason": "no space left"}
    place.write_text(json.dumps(content))
    for record in (place, batch):
        assert verify(record) == 1
        assert "a.mkv: failed: no space left" in capsys.readouterr().out
    place.write_text('{"vidrestore_batch": 1, "inputs": [{}]}')
    assert verify(place) == 1 and "not the list of a batch" in capsys.readouterr().err
    (batch.parent / "empty").mkdir()
    assert verify(batch.parent / "empty") == 1
    assert "no sidecar (*.vidrestore.json) is in it" in capsys.readouterr().err


def test_a_batch_with_sidecars_is_silent_the_second_time(batch, capsys):
    line = (batch.parent / "nas", "-o", batch, "--recursive", "--sidecar")
    records = {path: path.read_bytes() for path in batch.rglob("*.vidrestore.json")}
    assert run(*line) == 0
    assert capsys.readouterr().err == ""
    assert records == {
        path: path.read_bytes() for path in batch.rglob("*.vidrestore.json")
    }
    sidecar = batch / "a.denoised.mkv.vidrestore.json"
    sidecar.write_text(sidecar.read_text().replace('"sha256": "', '"sha256": "0', 2))
    assert run(*line) == 0
    assert (
        f"left alone: {sidecar} exists; remove it for one of this run"
        in capsys.readouterr().err
    )


def test_the_record_of_a_stump_is_replaced_with_it_and_is_never_right(batch, capsys):
    video, sidecar = batch / "a.denoised.mkv", batch / "a.denoised.mkv.vidrestore.json"
    whole = video.read_bytes()
    video.write_bytes(stump := whole[: len(whole) // 2])
    record = json.loads(sidecar.read_text())
    record["result"] |= {"sha256": hashlib.sha256(stump).hexdigest()}
    sidecar.write_text(json.dumps(record))
    assert verify(video) == 1
    assert (
        "as recorded, but not whole: the file is cut short" in capsys.readouterr().out
    )
    assert run(batch.parent / "nas" / "a.mkv", "-o", video, "--sidecar") == 0
    assert "it is made again" in capsys.readouterr().err
    assert verify(video) == 0
