"""A checkpoint can't ask for more memory than it has bytes."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from vidrestore.errors import CheckpointError
from vidrestore.files.regular import check_pickled
from vidrestore.lab.training.checkpoints import read_checkpoint
from vidrestore.weights.importing import import_checkpoint

LARGE = 1 << 24  # bytes, for want of a terabyte


class Asks:
    """Unpickled as so many bytes of nothing, which torch allows."""

    def __reduce__(self) -> Any:
        return bytearray, (LARGE,)


def saved(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def compressed(folder: Path) -> Path:
    whole, path = (
        saved(folder / "whole.pth", {"layer": torch.zeros(LARGE // 4)}),
        folder / "bomb.pth",
    )
    with (
        zipfile.ZipFile(whole) as read,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written,
    ):
        for member in read.infolist():
            written.writestr(member.filename, read.read(member))
    return path


def shared(folder: Path) -> Path:
    """The members' bytes are the same ones, over and over."""
    path = folder / "bomb.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", bytes(LARGE // 256))
        (first,) = archive.filelist
        archive.filelist.extend([first] * 255)
    return path


def asking(folder: Path) -> Path:
    return saved(folder / "bomb.pth", {"layer": Asks()})


def asking_in_the_old_form(folder: Path) -> Path:
    path = folder / "bomb.pth"
    torch.save({"layer": Asks()}, path, _use_new_zipfile_serialization=False)
    return path


BOMBS = [
    (compressed, "compressed"),
    (shared, "bytes, and the file"),
    (asking, "asks for memory"),
]
BOMBS += [(asking_in_the_old_form, "asks for memory")]


@pytest.mark.parametrize(
    "make, reason", BOMBS, ids=[make.__name__ for make, _ in BOMBS]
)
def test_a_checkpoint_that_unpacks_to_more_than_its_file_is_refused(
    tmp_path, monkeypatch, make, reason
):
    bomb = make(tmp_path)
    monkeypatch.setattr(
        torch, "load", lambda *given, **more: pytest.fail("it was unpacked")
    )
    monkeypatch.setattr(
        zipfile.ZipFile, "testzip", lambda archive: pytest.fail("it was unpacked")
    )
    with pytest.raises(ValueError, match=reason):
        check_pickled(bomb)
    with pytest.raises(
        CheckpointError, match="bomb.pth: can't be read as a checkpoint; remove it"
    ):
        read_checkpoint(bomb)
    with pytest.raises(
        CheckpointError, match="bomb.pth: not a checkpoint that can be read safely"
    ):
        import_checkpoint(bomb, tmp_path / "ours.safetensors", family="dust")


def test_checkpoints_as_they_are_saved_pass(tmp_path):
    state = {"layer": torch.zeros(1000), "names": ["a", "b"], "step": 3}
    check_pickled(saved(tmp_path / "new.pth", state))
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    check_pickled(tmp_path / "old.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(state["names"]))
    check_pickled(tmp_path / "plain.pth")
