"""Work folders that others can write to, and two runs of one output: nobody else's file is touched, and no
run loses another's.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from sample_videos import write_video

import vidrestore
from vidrestore.errors import BusyError, MediaError, VidRestoreError
from vidrestore.jobs.resume import WorkFolder
from vidrestore.lab.training.checkpoints import read_checkpoint
from vidrestore.weights import load_model

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "in.mkv", 12, size=(64, 48))
    return tmp_path / "in.mkv"


def restore(video: Path, output: Path, **options: Any) -> vidrestore.Summary:
    lossless = vidrestore.EncoderOptions(lossless=True)
    options = {"encoder": lossless, "device": "cpu", "threads": 1} | options
    return vidrestore.restore(video, output, task="<identity>", **options)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_work_folders_are_the_owners_alone(tmp_path):
    folder = WorkFolder(str(tmp_path / "out.mkv"))
    with folder.locked():
        folder.write("plan", {})
        assert folder.path.stat().st_mode & 0o777 == 0o700
        assert (folder.path / "plan.json").stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_a_work_folder_is_refused(tmp_path, video):
    work, victim = tmp_path / "out.mkv.vidrestore", tmp_path / "victim"
    victim.mkdir()
    work.symlink_to(victim)
    with pytest.raises(MediaError, match="out.mkv.vidrestore: not a folder"):
        restore(video, tmp_path / "out.mkv")
    assert names(victim) == [] and not (tmp_path / "out.mkv").exists()


@pytest.mark.parametrize(
    "read, name",
    [
        (load_model, "a.safetensors"),
        (read_checkpoint, "a.checkpoint"),
    ],
    ids=["weights", "checkpoint"],
)
def test_pipes_in_place_of_weights_and_checkpoints_are_refused_at_once(
    tmp_path, read, name
):
    os.mkfifo(tmp_path / name)
    with pytest.raises(VidRestoreError, match=rf"{name}: can't be read"):
        read(tmp_path / name)


# One output


@pytest.fixture
def ways(tmp_path: Path) -> dict[str, WorkFolder]:
    """Work folders of one output."""
    for name in ("videos", "one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("videos")
    return {
        "beside": WorkFolder(str(tmp_path / "videos" / "out.mkv")),
        "by a link": WorkFolder(str(tmp_path / "link" / "out.mkv")),
        "from elsewhere": WorkFolder(os.path.relpath(tmp_path / "videos" / "out.mkv")),
        "with a folder for the work": WorkFolder(
            str(tmp_path / "videos" / "out.mkv"), str(tmp_path / "one")
        ),
        "with another": WorkFolder(
            str(tmp_path / "link" / "out.mkv"), str(tmp_path / "two")
        ),
    }


def test_two_runs_of_one_output_exclude_each_other_however_they_name_it(tmp_path, ways):
    for first, holding in ways.items():
        with holding.locked():
            for second, folder in ways.items():
                if second != first:
                    with (
                        pytest.raises(BusyError, match="works on this already"),
                        folder.locked(),
                    ):
                        pass
    assert (
        names(tmp_path / "videos")
        == names(tmp_path / "one")
        == names(tmp_path / "two")
        == []
    )


def test_one_output_has_one_place_in_a_folder_for_the_work(ways, tmp_path):
    def place(output: object) -> Path:
        return WorkFolder(str(output), str(tmp_path / "two")).path

    same = [
        tmp_path / "videos" / "out.mkv",
        os.path.relpath(tmp_path / "videos" / "out.mkv"),
    ]
    assert {place(output) for output in same} == {ways["with another"].path}
    assert place(tmp_path / "out.mkv") != ways["with another"].path
