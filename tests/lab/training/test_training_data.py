"""Data from decoded files or from worker processes are the same; damaged files are named."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import run
from sample_pictures import write_rgb
from sample_videos import write_video
from training_runs import pair_run, tiny_run, write_clips, write_config

from vidrestore.errors import ConfigError, MediaError, OptionError
from vidrestore.files import user_folders
from vidrestore.files.atomic import Partial
from vidrestore.files.user_folders import user_folder
from vidrestore.lab.training.data import footage
from vidrestore.lab.training.data.batches import Share, WorkerError, in_order
from vidrestore.lab.training.data.decoded import HEADER, Decoded, DecodedFiles
from vidrestore.lab.training.data.footage import Footage, decode_whole
from vidrestore.lab.training.data.sources import Reading, make_data
from vidrestore.lab.training.loop import train
from vidrestore.lab.training.networks import new_network
from vidrestore.weights import load_model


def planes(value: int = 0, side: int = 10) -> tuple[torch.Tensor, ...]:
    return (
        torch.full((4, side, side), value, dtype=torch.uint8),
        torch.full((4, 5, 5), value + 1, dtype=torch.uint8),
    )


def source(folder: Path, name: str, content: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content or name)
    return folder / name


def raised(path: Path, error: MediaError) -> None:
    raise error


def decoded(
    files: DecodedFiles, source: Path, decode: Callable[[Path], Any]
) -> Decoded | None:
    return files.all_decoded([source], decode, raised)[source]


def equal(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


# Decoded files


def test_without_shared_memory_the_error_gives_advice(monkeypatch):
    """As on a system without /dev/shm, where semaphores lie."""

    def refused(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", refused)
    with pytest.raises(
        WorkerError, match=r"\(Read-only file system\); .* or set `workers=0`"
    ):
        in_order(abs, range(4), 1)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")
def test_decoded_files_are_readable_by_their_owner_only(tmp_path):
    found = decoded(
        DecodedFiles(tmp_path / "cache"),
        source(tmp_path / "data", "a"),
        lambda path: planes(7),
    )
    assert found is not None and found.path.stat().st_mode & 0o077 == 0


def test_a_change_of_mapped_data_stays_in_the_process(tmp_path):
    found = decoded(
        DecodedFiles(tmp_path / "cache"),
        source(tmp_path / "data", "a"),
        lambda path: planes(7),
    )
    found.planes()[0].zero_()
    assert equal(found.planes(), planes(7))


def test_another_content_is_decoded_again_and_the_same_elsewhere_is_not(tmp_path):
    files = DecodedFiles(tmp_path / "cache")
    first = decoded(
        files, source(tmp_path / "data", "a", "one"), lambda path: planes(1)
    )
    second = decoded(
        files, source(tmp_path / "data", "a", "two"), lambda path: planes(2)
    )
    moved = decoded(
        files,
        source(tmp_path / "other", "b", "one"),
        lambda path: pytest.fail("it is there"),
    )
    assert first == moved and first != second


@pytest.mark.parametrize("damage", ["flip", "cut", "header", "empty"])
def test_a_file_with_a_wrong_hash_is_made_again(tmp_path, damage):
    path = source(tmp_path / "data", "a")
    found = decoded(DecodedFiles(tmp_path / "cache"), path, lambda path: planes(1))
    content = bytearray(found.path.read_bytes())
    content[HEADER + 3 if damage == "flip" else 0] ^= 1
    found.path.write_bytes(
        {"cut": content[:-1], "empty": b""}.get(damage, bytes(content))
    )
    again = decoded(DecodedFiles(tmp_path / "cache"), path, lambda path: planes(2))
    assert again is not None and equal(again.planes(), planes(2))


def test_what_was_not_used_for_longest_gives_way_but_nothing_of_the_run(tmp_path):
    size = HEADER + 500
    old = DecodedFiles(tmp_path / "cache", limit=3 * size)
    kept = [
        decoded(old, source(tmp_path / "data", name), lambda path: planes())
        for name in "abc"
    ]
    for age, part in enumerate(kept):
        os.utime(part.path, (1000 - age, 1000 - age))
    files = DecodedFiles(tmp_path / "cache", limit=3 * size)
    found = files.all_decoded(
        [source(tmp_path / "data", name) for name in "cdefg"],
        lambda path: planes(),
        raised,
    )
    assert [part is not None for part in found.values()] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_a_clip_that_can_never_fit_takes_no_room_from_those_of_the_run_or_of_others(
    tmp_path,
):
    size = HEADER + sum(part.nbytes for part in planes())
    folder, paths = (
        tmp_path / "cache",
        [source(tmp_path / "data", name) for name in "abc"],
    )
    for name in ("a", "c", "other"):
        assert (
            decoded(
                DecodedFiles(folder),
                source(tmp_path / "data", name),
                lambda path: planes(),
            )
            is not None
        )
    large = tuple(part.repeat(40, 1, 1) for part in planes())
    files = DecodedFiles(folder, limit=3 * size)
    found = files.all_decoded(
        paths,
        lambda path: large if path.name.startswith("b") else pytest.fail("it is there"),
        raised,
    )
    assert [part is not None for part in found.values()] == [True, False, True]
    assert len(list(folder.iterdir())) == 3


def test_what_a_dead_process_left_half_written_goes_and_files_of_others_stay(tmp_path):
    folder = tmp_path / "cache"
    files = DecodedFiles(folder, limit=HEADER + 4000)
    theirs = [folder / name for name in ("movie.mp4.partial", "mine.planes")]
    for path in theirs:
        path.write_bytes(bytes(4000))
        os.utime(path, (0, 0))
    dead, living = (Partial(folder / f"{name}.planes") for name in ("dead", "living"))
    dead.close()
    assert (
        decoded(files, source(tmp_path / "data", "a"), lambda path: planes())
        is not None
    )
    assert (
        not dead.path.exists()
        and living.path.exists()
        and all(path.exists() for path in theirs)
    )
    living.discard()


def test_a_file_that_another_run_removed_is_decoded_from_its_source(tmp_path):
    clip, still = tmp_path / "data" / "a.mkv", tmp_path / "data" / "b.png"
    write_rgb(
        still, np.random.default_rng(1).integers(0, 256, (3, 48, 64), dtype=np.uint8)
    )
    write_video(clip, frames=4, size=(64, 48))
    stored = {
        path: decoded(DecodedFiles(tmp_path / "cache"), path, decode_whole)
        for path in (clip, still)
    }
    for share, clips, stills in ((0.0, [clip], []), (1.0, [], [still])):
        drawn = [
            Footage(clips, stills, 4, share, decoded=held).window(
                np.random.default_rng(0)
            )
            for held in (stored, None)
        ]
        assert equal(*drawn)
    for path in (tmp_path / "cache").iterdir():
        path.unlink()
    for share, clips, stills in ((0.0, [clip], []), (1.0, [], [still])):
        gone = Footage(clips, stills, 4, share, decoded=stored).window(
            np.random.default_rng(0)
        )
        assert equal(
            gone, Footage(clips, stills, 4, share).window(np.random.default_rng(0))
        )


def test_a_file_that_another_run_removes_while_room_is_made_causes_no_error(tmp_path):
    files = DecodedFiles(tmp_path / "cache")
    # is listed, but has no size
    (tmp_path / "cache" / "gone.planes").symlink_to(tmp_path / "gone")
    found = decoded(files, source(tmp_path / "data", "a"), lambda path: planes(3))
    assert found is not None and equal(found.planes(), planes(3))


def test_a_full_disk_leaves_a_clip_out_of_the_cache(tmp_path, monkeypatch):
    files = DecodedFiles(tmp_path / "cache")
    path = source(tmp_path / "data", "a")

    def full(partial: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vidrestore.files.atomic.os.replace", full)
    assert decoded(files, path, lambda path: planes()) is None
    assert not list((tmp_path / "cache").iterdir())


def test_a_cache_within_the_data_is_refused(tmp_path):
    write_clips(tmp_path)
    config = tiny_run(tmp_path)
    with pytest.raises(
        ConfigError,
        match="clips/cache: is inside the data folder .*clips; choose another `cache`",
    ):
        make_data(config, new_network(config), Reading(tmp_path / "clips" / "cache"))


def test_the_users_cache_is_where_the_system_has_it(monkeypatch, tmp_path):
    monkeypatch.setattr(user_folders.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_folder("cache") == tmp_path / "vidrestore"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_folder("cache") == Path.home() / ".cache" / "vidrestore"


# What is read is the same


def some_batches(
    config: Any, reading: Reading, steps: range = range(3, 9)
) -> list[Any]:
    output, _ = make_data(config, new_network(config), reading)
    batches = output.batches(steps, config.training.batch, reading.workers)
    return [
        part for batch in batches for part in batch if isinstance(part, torch.Tensor)
    ]


def test_batches_are_the_same_with_decoded_files(tmp_path, monkeypatch):
    """Groups and pairs, of clips and of a photo."""
    (tmp_path / "stills").mkdir()
    write_video(
        tmp_path / "stills" / "photo.png", frames=1, codec="png", pix_fmt="gray"
    )
    monkeypatch.setattr(footage, "PAN", 32)
    stills = {"stills": "stills", "still_share": 0.5}
    groups = tiny_run(tmp_path, {"data": stills | {"match_share": 0.5}})
    for config in (groups, pair_run(tmp_path, data=stills)):
        expected = some_batches(config, Reading())
        assert equal(some_batches(config, Reading(tmp_path / "cache")), expected)
        with monkeypatch.context() as patched:
            patched.setattr(
                footage,
                "decode_clip",
                lambda path, **given: pytest.fail("it is decoded"),
            )
            patched.setattr(
                footage.pictures,
                "read_picture",
                lambda path: pytest.fail("it is decoded"),
            )
            assert equal(some_batches(config, Reading(tmp_path / "cache")), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("configured", "workers"), [(tiny_run, 2), (pair_run, 1)], ids=["groups", "pairs"]
)
def test_batches_are_the_same_when_processes_make_them(tmp_path, configured, workers):
    config = configured(tmp_path)
    reading = Reading(tmp_path / "cache", workers=workers)
    assert equal(some_batches(config, reading), some_batches(config, Reading()))


def fails_at_two(number: int) -> int:
    if number == 2:
        raise MediaError(f"{number}: can't be read")
    return number


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_what_another_process_raises_is_raised_here(workers):
    results = in_order(fails_at_two, range(4), workers)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(MediaError, match="^2: can't be read$"):
        next(results)


def test_the_shares_of_a_batch_add_up_to_the_batch(tmp_path):
    config = pair_run(tmp_path)
    output, _ = make_data(config, new_network(config))
    parts = [output.batch(5, 6, Share(rank, 3)) for rank in range(3)]
    assert equal(
        [torch.cat(part) for part in zip(*parts, strict=True)], output.batch(5, 6)
    )


# Damaged files


def damaged(folder: Path) -> Path:
    """A run whose second clip is cut short."""
    write_clips(folder)
    clip = folder / "clips" / "two.mkv"
    clip.write_bytes(clip.read_bytes()[: clip.stat().st_size * 2 // 3])
    return write_config(folder)


def command(folder: Path, *arguments: object) -> int:
    inputs = (
        "--config",
        folder / "tiny.toml",
        "-o",
        folder / "runs",
        "--cache",
        folder / "cache",
    )
    return run("train", *inputs, *arguments)


@pytest.mark.parametrize(
    "options", [(), ("--cache-gb", "0", "--set", "training.steps=2000")]
)
def test_a_damaged_clip_is_named_as_an_error(tmp_path, capsys, options):
    damaged(tmp_path)
    assert command(tmp_path, *options) == 1
    (line,) = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("vidrestore: ")
    ]
    assert "clips/two.mkv: the source is damaged: " in line and "--skip-bad" in line


def test_a_damaged_clip_is_left_out_where_that_is_asked_for(tmp_path, capsys):
    damaged(tmp_path)
    assert command(tmp_path, "--skip-bad") == 0
    assert (
        f"skipped: {tmp_path / 'clips' / 'two.mkv'}: the source is damaged"
        in capsys.readouterr().err
    )
    without = tmp_path / "without"
    without.mkdir()
    write_clips(without)
    (without / "clips" / "two.mkv").unlink()
    expected = load_model(
        train(tiny_run(without), without / "runs")
    ).network.state_dict()
    assert equal(
        list(
            load_model(tmp_path / "runs" / "tiny.safetensors")
            .network.state_dict()
            .values()
        ),
        list(expected.values()),
    )


def test_a_damaged_clip_that_is_held_out_is_an_error_in_any_case(tmp_path):
    write_clips(tmp_path)
    (tmp_path / "clips" / "held.mkv").write_bytes(b"no video")
    with pytest.raises(MediaError, match="held.mkv"):
        train(
            tiny_run(tmp_path),
            tmp_path / "runs",
            reading=Reading(tmp_path / "cache", skip_bad=True),
        )


def test_leaving_out_needs_a_cache():
    with pytest.raises(
        OptionError, match="`skip_bad` needs a cache, .*; set `cache_gb` above 0"
    ):
        Reading(skip_bad=True)


def test_files_without_room_are_decoded_when_needed_and_counted(tmp_path):
    config, messages = tiny_run(tmp_path), list[str]()
    reading = Reading(tmp_path / "cache", cache_bytes=10_000, notice=messages.append)
    assert equal(some_batches(config, reading), some_batches(config, Reading()))
    assert messages == [
        f"3 of 3 files have no room in {tmp_path / 'cache'} (1e-05 GB): they are decoded when they are needed"
    ]
