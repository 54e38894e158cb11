"""Disks and shares that fail: a line for the file concerned, the batch continues, and the next run ends with
what an undisturbed one writes.
"""

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from command_line import run as command
from commands import Commands, work_of
from denoise_command import identity  # noqa: F401
from disk_faults import fault, library
from hub_server import COMMIT, REPOSITORY, HubServer, client, serving
from odd_files import KINDS, clip
from sample_pictures import write_picture
from sample_videos import write_video
from sensing_networks import exact_network, save_network
from training_runs import SMALL_VALIDATION, write_clips, write_config
from written_videos import pictures

from vidrestore.cli.inputs import run_each
from vidrestore.errors import BusyError, MediaError
from vidrestore.events import Event, Failed, Warned
from vidrestore.media.containers.file_bytes import FileBytes
from vidrestore.media.reading.reader import VideoReader


def fails(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def films(folder: Path) -> list[Path]:
    folder.mkdir()
    for name in "abc":
        write_video(folder / f"{name}.mkv", 3)
    return sorted(folder.iterdir())


# Reading


def test_a_source_that_cannot_be_read_is_an_error_of_ours_that_names_it(
    tmp_path, monkeypatch
):
    write_video(tmp_path / "film.mkv", 3)
    with VideoReader(str(tmp_path / "film.mkv")) as reader:
        monkeypatch.setattr(FileBytes, "bytes", fails)
        with pytest.raises(
            MediaError,
            match=r"film.mkv: can't be read .*output error\); check the disk",
        ):
            list(reader.frames())
    monkeypatch.setattr("vidrestore.media.reading.reader.probe", fails)
    with pytest.raises(MediaError, match="film.mkv: can't be read"):
        VideoReader(str(tmp_path / "film.mkv"))


def test_of_a_batch_only_the_file_that_cannot_be_read_fails(
    tmp_path, monkeypatch, capsys
):
    read = FileBytes.bytes
    monkeypatch.setattr(
        FileBytes,
        "bytes",
        lambda self, *place: (fails if "a.mkv" in self.file.name else read)(
            self, *place
        ),
    )
    films(tmp_path / "films")
    assert command("denoise", tmp_path / "films", "-o", tmp_path / "out") == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "b.denoised.mkv",
        "c.denoised.mkv",
    ]
    said = capsys.readouterr().err
    assert (
        "a.mkv: can't be read or written (Input/output error); check the disk" in said
    )


def test_any_error_of_the_system_fails_the_input_at_work_and_no_other(capsys):
    def work(source: str) -> int:
        if source == "b":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), "b.lock")
        return 0

    events: list[Event] = []
    assert run_each(["a", "b", "c"], work, events.append) == 3
    (failed,) = (event for event in events if isinstance(event, Failed))
    assert (failed.source, failed.exit_code) == ("b", 1)
    assert failed.message.startswith(
        "b.lock: can't be read or written (Stale file handle); check the disk"
    )
    assert "1 of 3 inputs failed: b" in capsys.readouterr().err


def test_an_input_of_another_process_has_its_turn_at_the_end_and_is_waited_for(
    monkeypatch,
):
    monkeypatch.setattr("vidrestore.cli.inputs._LOOK_SECONDS", 0)
    turns: list[str] = []

    def work(source: str) -> int:
        turns.append(source)
        if source == "a" and len(turns) < 5:
            raise BusyError("a: another process works on this already")
        return 0

    events: list[Event] = []
    assert run_each(["a", "b", "c"], work, events.append) == 0
    assert turns == ["a", "b", "c", "a", "a"]
    assert [event.message for event in events if isinstance(event, Warned)] == [
        "another process works on this; it is looked at again at the end"
    ]


def test_the_lock_of_a_host_that_may_be_gone_is_not_waited_for():
    def work(source: str) -> int:
        raise BusyError("another process", "gone.example")

    assert run_each(["a", "b"], work, lambda event: None) == 1


def test_a_full_stdout_ends_the_batch(monkeypatch):
    def work(source: str) -> int:
        raise OSError(errno.ENOSPC, "full")

    full = Mock(flush=Mock(side_effect=OSError(errno.ENOSPC, "full")))
    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr("sys.stdout", full)
        run_each(["a", "b"], work, lambda event: None)


# Removing


def test_locks_and_leftovers_that_cannot_be_removed_do_no_harm(
    tmp_path, monkeypatch, capsys
):
    """As at ESTALE on a network share: the output is right, and the next run clears up."""
    films(tmp_path / "films")
    (tmp_path / "work").mkdir()
    options = ("-o", tmp_path / "out", "--work-dir", tmp_path / "work", "--lossless")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", fails)
        assert command("denoise", tmp_path / "films", *options) == 0
    for name in "abc":
        assert pictures(tmp_path / "out" / f"{name}.denoised.mkv") == pictures(
            tmp_path / f"films/{name}.mkv"
        )
    assert list((tmp_path / "out").rglob("job.lock"))
    assert command("denoise", tmp_path / "films", *options) == 0
    assert "finished before" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["a.denoised.mkv", "b.denoised.mkv", "c.denoised.mkv"]
    assert not list((tmp_path / "work").iterdir())


# Injected into real commands


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Commands whose calls of the C library can fail."""
    folder = tmp_path_factory.mktemp("failing")
    started = Commands(folder, preload=library(folder))
    yield started
    started.close()


NINE = ("mp4", "fragments", "mov", "mkv", "webm", "avi", "ts", "mpg", "asf")


@pytest.mark.faults
@pytest.mark.parametrize("kind", NINE)
def test_a_read_error_anywhere_is_one_line_or_no_loss(failing, tmp_path, kind):
    source, output = tmp_path / f"film{KINDS[kind][0]}", tmp_path / "out.mkv"
    source.write_bytes(clip(kind))
    assert failing.run("denoise", source, "-o", output, "--lossless")[0] == 0
    whole = pictures(output)
    for nth in range(1, 40, 2):
        output.unlink(missing_ok=True)
        code, said = failing.run(
            "denoise",
            source,
            "-o",
            output,
            "--lossless",
            before=fault("read", source.name, nth),
        )
        assert code in (0, 1, 4) and "Traceback" not in said, said
        assert code == 0 or source.name in said
        if code == 0:
            assert pictures(output) == whole
        if code == 1:
            assert not output.exists()
        if work_of(output).exists():
            assert failing.run("denoise", source, "-o", output, "--lossless")[0] == 0


# Commands, whose writing fails


@dataclass
class Work:
    """A command: its `arguments`, after those of `first` ran, and what its `outputs` hold."""

    arguments: list[object]
    outputs: Callable[[], Any]
    first: list[object] | None = None
    before: str = ""


def of_videos(*paths: Path) -> Callable[[], Any]:
    return lambda: [pictures(path) for path in paths]


def of_bytes(*paths: Path) -> Callable[[], Any]:
    return lambda: [path.read_bytes() for path in paths]


@dataclass
class Weights:
    """Weights that measure: their file, its config, and the hub that has it."""

    path: Path
    config: str
    hub: HubServer


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    path = tmp_path_factory.mktemp("weights") / "exact.safetensors"
    card = save_network(path, exact_network())
    with serving({path.name: path.read_bytes()}) as hub:
        yield Weights(path, json.dumps(card.config), hub)


def leftovers_in(folder: Path) -> list[Path]:
    """Return locks and partial files, but those of the hub's client."""
    return [
        path
        for path in folder.rglob("*")
        if path.suffix in (".lock", ".partial") and ".locks" not in path.parts
    ]


def works(folder: Path, exact: Weights) -> dict[str, Work]:
    """Thirteen commands in a folder with their inputs."""
    film, small = folder / "film.mkv", folder / "small.mkv"
    # the same bytes in every folder, as measurements name their source by its head
    write_video(film, 45, container={"fflags": "+bitexact"})
    write_video(small, 3, size=(32, 32))
    photos, numbered = folder / "photos", folder / "numbered"
    for place in (photos, numbered):
        place.mkdir()
        for number in (1, 2, 3):
            write_picture(place / f"{number:04}.png", (10 * number, 100, 200))
    model = ["--model", exact.path]
    write_clips(folder)
    config = write_config(folder)
    out, plain = folder / "out.mkv", ["--lossless", "--threads", "1"]
    (folder / "work").mkdir()
    (folder / "made").mkdir()
    shown = [folder / "made" / f"{number:04}.png" for number in (1, 2, 3)]
    each = [folder / "made" / f"{number:04}.denoised.png" for number in (1, 2, 3)]
    measured = folder / "m.safetensors"
    sense: list[object] = ["sense", film, *model, "-o", measured]
    imported = folder / "imported.safetensors"
    convert: list[object] = [
        "weights",
        "import",
        exact.path,
        "-o",
        imported,
        "--overwrite",
    ]
    cache = (
        folder
        / "hub"
        / "hub"
        / f"models--{REPOSITORY.replace('/', '--')}"
        / "snapshots"
        / COMMIT
    )
    train: list[object] = [
        "train",
        "--config",
        config,
        "-o",
        folder / "runs",
        "--device",
        "cpu",
        "--resume",
    ]
    return {
        "denoise": Work(["denoise", film, "-o", out, *plain], of_videos(out)),
        "denoise, work elsewhere": Work(
            ["denoise", film, "-o", out, *plain, "--work-dir", folder / "work"],
            of_videos(out),
        ),
        "denoise, sidecar": Work(
            ["denoise", film, "-o", out, *plain, "--sidecar"], of_videos(out)
        ),
        "photos": Work(
            ["denoise", photos, "--photos", "-o", folder / "made"], of_bytes(*each)
        ),
        "pictures": Work(
            ["denoise", numbered, "-o", folder / "made" / "%04d.png"], of_bytes(*shown)
        ),
        "sr": Work(["sr", small, "-o", out, *plain], of_videos(out)),
        "run": Work(
            ["run", small, "--steps", "denoise,sr", "-o", out, *plain], of_videos(out)
        ),
        "sense": Work(sense, of_bytes(measured)),
        "recover": Work(
            ["recover", measured, *model, "-o", out, "--lossless"],
            of_videos(out),
            sense,
        ),
        "eval": Work(
            [
                "eval",
                small,
                "--reference",
                small,
                "--json",
                folder / "e.json",
                "--html",
                folder / "e.html",
                "-y",
            ],
            of_bytes(folder / "e.html"),
        ),
        "train": Work(
            train,
            of_bytes(folder / "runs" / "tiny.safetensors"),
            before=SMALL_VALIDATION,
        ),
        "import": Work(
            [*convert, "--family", "dust", "--config", exact.config], of_bytes(imported)
        ),
        "pull": Work(
            ["weights", "pull", f"hf:{REPOSITORY}@{COMMIT}/{exact.path.name}"],
            of_bytes(cache / exact.path.name),
            before=client(exact.hub.address, folder / "hub"),
        ),
    }


def work_in(folder: Path, exact: Weights, name: str, commands: Commands) -> Work:
    """One of the commands in a new folder, after those that it needs."""
    folder.mkdir()
    work = works(folder, exact)[name]
    if work.first:
        assert commands.run(*work.first)[0] == 0
    return work


NAMES = (
    "denoise", "denoise, work elsewhere", "denoise, sidecar", "photos", "pictures", "sr", "run", "sense",
    "recover", "eval", "train", "import", "pull",
)  # fmt: skip
CALLS = ("unlink", "close", "fsync", "link", "rename", "mkdir", "write", "ftruncate")


@pytest.mark.faults
@pytest.mark.parametrize("name", NAMES)
def test_a_command_killed_at_any_moment_gets_there(commands, exact, tmp_path, name):
    """One to three kills in a row, at moments of its own pace; then the same command."""
    whole = work_in(tmp_path / "whole", exact, name, commands)
    began = time.monotonic()
    assert commands.run(*whole.arguments, before=whole.before)[0] == 0
    seconds, expected = time.monotonic() - began, whole.outputs()
    for moment in range(12):
        folder = tmp_path / str(moment)
        work = work_in(folder, exact, name, commands)
        for _ in range(1 + moment % 3):
            run = commands.start(*work.arguments, before=work.before)
            time.sleep(seconds * (moment + 0.5) / 12)
            run.kill()
        code, said = commands.run(*work.arguments, before=work.before)
        assert code == 0, said
        assert work.outputs() == expected
        assert not leftovers_in(folder)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["mkv", "mp4"])
@pytest.mark.parametrize(
    "change", ["cut", "emptied", "appended", "removed", "replaced"]
)
def test_a_source_that_changes_while_it_is_read_is_refused(
    commands, tmp_path, kind, change
):
    source, output = tmp_path / f"film.{kind}", tmp_path / "out.mkv"
    source.write_bytes(data := clip(kind, 60))
    run = commands.start("denoise", source, "-o", output, "--lossless", slow_clip=0.3)
    run.until(lambda: "slowly: restore" in run.said)
    if change == "removed":
        source.unlink()
    elif change == "replaced":
        (tmp_path / "other").write_bytes(clip("mpg"))
        (tmp_path / "other").replace(source)
    else:
        changed = {
            "cut": data[: len(data) * 6 // 10],
            "emptied": b"",
            "appended": data + bytes(100),
        }
        source.write_bytes(changed[change])
    assert run.wait() == 1 and "Traceback" not in run.said, run.said
    assert not output.exists()


@pytest.mark.faults
@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_fails_is_a_line_at_most_and_the_next_run_gets_there(
    failing, exact, tmp_path, name
):
    whole = work_in(tmp_path / "whole", exact, name, failing)
    assert failing.run(*whole.arguments, before=whole.before)[0] == 0
    expected = whole.outputs()
    for call in CALLS:
        for nth, once in ((1, True), (3, True), (1, False), (2, False)):
            folder = tmp_path / f"{call}-{nth}-{once}"
            work = work_in(folder, exact, name, failing)
            code, said = failing.run(
                *work.arguments,
                before=work.before + "\n" + fault(call, folder.name, nth, once=once),
            )
            assert code in (0, 1, 3) and "Traceback" not in said, (
                f"{call} {nth} {once}: {said}"
            )
            if code == 0:
                assert work.outputs() == expected, f"{call} {nth} {once}: {said}"
            code, again = failing.run(*work.arguments, before=work.before)
            finished = "already exists" in again or "finished before" in again
            assert code == 0 or finished, f"{call} {nth} {once}: {said}\n{again}"
            assert work.outputs() == expected, f"{call} {nth} {once}: {said}"
            assert not leftovers_in(folder), f"{call} {nth} {once}: {said}\n{again}"


REFUSALS = [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS]


@pytest.mark.faults
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("error", REFUSALS)
def test_a_share_without_locks_is_written_to_with_a_warning(
    failing, tmp_path, error, elsewhere
):
    source, share = tmp_path / "film.mkv", tmp_path / "share"
    write_video(source, 45)
    share.mkdir()
    (tmp_path / "work").mkdir()
    options = [
        "-o",
        share / "out.mkv",
        "--lossless",
        *["--work-dir", tmp_path / "work"][: 2 * elsewhere],
    ]
    code, said = failing.run(
        "denoise", source, *options, before=fault("flock", "/share/", error=error)
    )
    warned = "refuses locks" in said
    assert code == 0 and "Traceback" not in said, said
    assert warned == (error != errno.ENOSYS and not elsewhere), said
    assert pictures(share / "out.mkv") == pictures(source)
    assert [path.name for path in share.iterdir()] == ["out.mkv"] and not list(
        (tmp_path / "work").iterdir()
    )


@pytest.mark.faults
def test_two_batches_into_one_folder_share_its_files_and_both_end_well(
    commands, tmp_path
):
    films(tmp_path / "films")
    arguments = ("denoise", tmp_path / "films", "-o", tmp_path / "out", "--lossless")
    runs = [commands.start(*arguments, slow_clip=0.3) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0], [run.said for run in runs]
    assert not any("Traceback" in run.said for run in runs)
    for name in "abc":
        assert pictures(tmp_path / "out" / f"{name}.denoised.mkv") == pictures(
            tmp_path / f"films/{name}.mkv"
        )
    assert sum(run.said.count("finished before") for run in runs) >= 1
    assert len(list((tmp_path / "out").iterdir())) == 3


@pytest.mark.faults
@pytest.mark.parametrize("call", ["read", "close"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_weights_that_cannot_be_read_or_closed_are_a_line(
    failing, exact, tmp_path, call, nth
):
    work = work_in(tmp_path / "recovered", exact, "recover", failing)
    code, said = failing.run(*work.arguments, before=fault(call, exact.path.name, nth))
    assert code == 0 or (
        code == 1 and f"{exact.path}: can't be read as weights" in said
    ), said
    assert "Traceback" not in said
    assert code == 1 or len(pictures(tmp_path / "recovered" / "out.mkv")) == 45
