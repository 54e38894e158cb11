"""Another user of the machine, who may write to the same folder, plants what he likes: nobody's file is
touched, and no work of his is taken for ours.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sample_videos import write_video

import vidrestore
from vidrestore.errors import CheckpointError, MediaError
from vidrestore.lab.training.data.decoded import HEADER, DecodedFiles
from vidrestore.lab.training.run_records import StepLog
from vidrestore.lab.training_events import Began

NOBODY = 65534
pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("setpriv"),
    reason="needs root and setpriv, to be another user",
)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody can write to, with a video and a file that nobody may change."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        write_video(folder / "in.mkv", 12, size=(64, 48))
        (folder / "victim").write_text("precious")
        (folder / "victim").chmod(0o600)
        yield folder


def other(folder: Path, script: str, group: int = NOBODY) -> bool:
    """Run shell commands in a folder as another user, of our group if it is 0; True if they succeed."""
    command = [
        "setpriv",
        f"--reuid={NOBODY}",
        f"--regid={group}",
        "--clear-groups",
        "sh",
        "-ec",
        script,
    ]
    return (
        subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
        == 0
    )


def restore(folder: Path, **options: Any) -> vidrestore.Summary:
    lossless = vidrestore.EncoderOptions(lossless=True)
    chosen = {"encoder": lossless, "device": "cpu", "threads": 1} | options
    return vidrestore.restore(
        folder / "in.mkv", folder / "out.mkv", task="<identity>", **chosen
    )


def untouched(folder: Path) -> bool:
    return (folder / "victim").read_text() == "precious"


@pytest.mark.parametrize(
    "script, said",
    [
        ("mkdir -m 2770 WORK", "belongs to another user"),
        ("mkdir -m 777 WORK; ln -s ../victim WORK/job.lock", "belongs to another user"),
        ("mkfifo WORK", "not a folder"),
    ],
)
def test_a_planted_work_folder_is_refused(shared, script, said):
    group = 0 if "2770" in script else NOBODY  # ours, which may then write there, too
    assert other(shared, script.replace("WORK", "out.mkv.vidrestore"), group)
    with pytest.raises(MediaError, match=rf"out.mkv.vidrestore: {said}"):
        restore(shared)
    assert untouched(shared) and not (shared / "out.mkv").exists()


@pytest.mark.parametrize("plant", ["ln -s victim out.mkv", "ln -s nowhere out.mkv"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_planted_output_is_not_written_through(shared, plant, overwrite):
    assert other(shared, plant)
    with pytest.raises(
        MediaError,
        match="already exists|a link to (victim|nowhere), and nothing is written",
    ):
        restore(shared, overwrite=overwrite)
    assert untouched(shared) and not (shared / "nowhere").exists()


def test_the_log_of_a_training_is_not_written_through_a_link(shared):
    assert other(shared, "ln -s victim a.jsonl")
    with pytest.raises(
        CheckpointError, match="a.jsonl: can't be written .a symbolic link"
    ):
        StepLog(shared / "a.jsonl")(Began(0, 10, "cpu", None))
    assert untouched(shared)


def test_decoded_clips_that_another_user_has_put_into_the_cache_are_decoded_again(
    shared,
):
    cache, source = shared / "cache", shared / "data" / "in.mkv"
    source.parent.mkdir()
    shutil.copy(shared / "in.mkv", source)
    right, wrong = (torch.full((1, 2, 2), value, dtype=torch.uint8) for value in (1, 9))
    files = DecodedFiles(cache)
    cache.chmod(0o777)
    path = files.reserve(source)
    header = json.dumps(
        {"shapes": [[1, 2, 2]], "sha256": hashlib.sha256(bytes([9] * 4)).hexdigest()}
    )
    (shared / "planted").write_bytes(header.encode().ljust(HEADER) + bytes([9] * 4))
    (shared / "planted").chmod(0o644)
    plant = f"cp ../planted {path.name}"
    assert other(cache, plant)
    found = files.all_decoded(
        [source], lambda source: (right,), lambda source, error: None
    )[source]
    assert found is not None and torch.equal(found.planes()[0], right)
    assert other(cache, f"rm -f {path.name}; {plant}")  # after it was looked at
    with pytest.raises(FileNotFoundError):
        found.planes()
    assert not torch.equal(right, wrong)
