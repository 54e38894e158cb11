"""Files that appear whole, under hidden names until then that nobody can foresee."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vidrestore.errors import MediaError
from vidrestore.files import atomic
from vidrestore.files.atomic import Partial, remove_partials, replacing

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path):
    target = tmp_path / "a.json"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(target) as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert target.read_text() == "old" and names(tmp_path) == ["a.json"]
    with replacing(target) as stream:
        stream.write(b"new")
        assert target.read_text() == "old"
    assert target.read_text() == "new" and names(tmp_path) == ["a.json"]


def test_partial_files_have_different_hidden_and_short_names(tmp_path):
    partials = [Partial(tmp_path / ("é" * 125 + ".mp4")) for _ in range(3)]
    assert len({partial.path for partial in partials}) == 3
    assert all(
        partial.path.name.startswith(".") and len(partial.path.name) < 100
        for partial in partials
    )
    for partial in partials:
        partial.discard()
    assert names(tmp_path) == []


@posix
def test_a_name_that_is_taken_by_a_link_is_never_written_through(tmp_path, monkeypatch):
    """Even who guesses the random part gets nothing."""
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda size: "ab" * size)
    foreseen = Partial(tmp_path / "a.mkv")
    foreseen.discard()
    victim = tmp_path / "victim"
    for content in ("precious", None):  # then a dangling link
        if content is None:
            victim.unlink()
        else:
            victim.write_text(content)
        foreseen.path.unlink(missing_ok=True)
        foreseen.path.symlink_to(victim)
        with pytest.raises(FileExistsError):
            Partial(tmp_path / "a.mkv")
        assert victim.exists() == (content is not None) and (
            content is None or victim.read_text() == content
        )


def test_a_file_of_the_same_name_and_content_is_replaced(tmp_path):
    target, partial = tmp_path / "a.mkv", Partial(tmp_path / "a.mkv")
    target.write_text("ours")
    partial.file.write(b"ours")
    partial.put_in_place(overwrite=False)
    assert target.read_text() == "ours" and names(tmp_path) == ["a.mkv"]


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_modes_follow_the_umask_and_private_files_are_the_owners(tmp_path, mask):
    before = os.umask(mask)
    try:
        for name, private, expected in (
            ("a", False, 0o666 & ~mask),
            ("b", True, 0o600),
        ):
            with replacing(tmp_path / name, private=private):
                pass
            assert (tmp_path / name).stat().st_mode & 0o777 == expected
    finally:
        os.umask(before)


@posix
def test_partial_files_of_dead_processes_are_removed_and_those_of_living_ones_stay(
    tmp_path,
):
    script = f"""
import os, sys
from pathlib import Path
from vidrestore.files.atomic import Partial
left = Partial(Path({str(tmp_path / "a.mkv")!r})); print("there", flush=True)
sys.stdin.read(); os._exit(9)"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert (
            process.stdin and process.stdout and process.stdout.readline() == b"there\n"
        )
        remove_partials(tmp_path / "a.mkv")
        assert len(names(tmp_path)) == 1
        remove_partials(tmp_path / "b.mkv")
        process.stdin.close()
    remove_partials(tmp_path / "b.mkv")
    assert len(names(tmp_path)) == 1
    remove_partials(tmp_path / "a.mkv")
    assert names(tmp_path) == []


@posix
def test_cleaning_up_neither_waits_for_pipes_nor_follows_links(tmp_path):
    partial = Partial(tmp_path / "a.mkv")
    partial.discard()
    pipe, victim = partial.path, tmp_path / "victim"
    os.mkfifo(pipe)
    victim.touch()
    link = pipe.with_name(f"{pipe.name[:-12]}abcd.partial")
    link.symlink_to(victim)
    remove_partials(tmp_path / "a.mkv")
    assert victim.exists()


# Windows, where a file that a player has open can't be replaced


def kept_open(monkeypatch: pytest.MonkeyPatch, times: int) -> list[object]:
    """Let the first `times` tries to replace a file fail as on Windows; return a list of all tries."""
    tries: list[object] = []
    replace = os.replace

    def replace_unless_open(path: object, target: object) -> None:
        tries.append(target)
        if len(tries) <= times:
            raise PermissionError(13, "The process cannot access the file")
        replace(path, target)

    monkeypatch.setattr(atomic, "_KEEPS_OPEN_FILES", True)
    monkeypatch.setattr(atomic, "OPEN_SECONDS", 0.05)
    monkeypatch.setattr(os, "replace", replace_unless_open)
    return tries


def test_a_file_that_is_open_for_a_moment_is_waited_for(tmp_path, monkeypatch):
    tries = kept_open(monkeypatch, 3)
    (tmp_path / "a.mkv").write_text("old")
    with replacing(tmp_path / "a.mkv") as file:
        file.write(b"new")
    assert len(tries) == 4 and (tmp_path / "a.mkv").read_text() == "new"
    assert names(tmp_path) == ["a.mkv"]


def test_a_finished_file_whose_name_stays_open_is_kept_under_another_name(
    tmp_path, monkeypatch
):
    kept_open(monkeypatch, 10**9)
    (tmp_path / "a.mkv").write_text("old")
    for number in (1, 2):
        with (
            pytest.raises(
                MediaError,
                match=r"a.mkv: another program has this file open.* kept as a\.\w+\.mkv",
            ),
            replacing(tmp_path / "a.mkv") as file,
        ):
            file.write(b"new %d" % number)
    assert (tmp_path / "a.mkv").read_text() == "old" and (
        tmp_path / "a.new.mkv"
    ).read_text() == "new 1"
    assert len(names(tmp_path)) == 3
    with (
        pytest.raises(PermissionError),
        replacing(tmp_path / "plan.json", private=True) as file,
    ):
        file.write(b"{}")
    assert len(names(tmp_path)) == 3


def test_elsewhere_a_folder_without_permission_fails_at_once(tmp_path, monkeypatch):
    tries = kept_open(monkeypatch, 10**9)
    monkeypatch.setattr(atomic, "_KEEPS_OPEN_FILES", False)
    with pytest.raises(PermissionError), replacing(tmp_path / "a.mkv") as file:
        file.write(b"new")
    assert len(tries) == 1 and names(tmp_path) == []


def test_a_name_that_windows_refuses_is_said_by_its_option(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(MediaError, match="give `report` another name"):
        atomic.check_output(tmp_path / "a?.html", [], option="report")
