"""A rehearsal of Windows and macOS on this system, under their rules: what they lack is taken away, and an
open file can't be renamed, replaced or removed. Neither system was run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from sample_videos import write_video

HELPERS = Path(__file__).parent / "helpers"
RULES = """
import builtins, os, signal, sys

LACKING = ("fcntl", "resource", "pwd", "grp")
plain_import = builtins.__import__
def without(name, *rest, **more):
    if name in LACKING:
        raise ImportError(name)
    return plain_import(name, *rest, **more)

import subprocess, multiprocessing, socket, tempfile, shutil, torch, av, numpy  # they know the real system
builtins.__import__ = without
for name in LACKING:
    sys.modules.pop(name, None)
for name in ("setxattr", "getxattr", "fchmod", "fork", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY",
             "sched_getaffinity", "getuid", "geteuid", "lchown"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGQUIT"):
    delattr(signal, name)

if not LINKS:
    def link(*names):  # as on exFAT
        raise OSError(1, "a file system without hard links")
    os.link = link

real_exists = os.path.exists
os.path.exists = lambda path: not str(path).startswith(("/proc", "/dev/shm")) and real_exists(path)
links, listed = os.readlink, os.listdir

def refuse_open_files(name, places):
    quick = getattr(os, name)
    def careful(*paths, **more):
        for place in places:
            full = os.path.realpath(os.fspath(paths[place]))
            for number in listed("/proc/self/fd"):
                try:
                    opened = links(f"/proc/self/fd/{number}")
                except OSError:
                    continue
                if opened == full:
                    raise PermissionError(13, f"open files can't be touched by {name}", full)
        return quick(*paths, **more)
    setattr(os, name, careful)

for name, places in (("rename", (0, 1)), ("replace", (0, 1)), ("unlink", (0,)), ("remove", (0,))):
    refuse_open_files(name, places)

real_kill = os.kill
def kill(process, number):  # there, 0 is Ctrl-C for a whole group, and most others end the process
    raise AssertionError("os.kill asks nobody on Windows")
os.kill = kill


sys.stdout.reconfigure(encoding="cp1252")
sys.stderr.reconfigure(encoding="cp1252", errors="backslashreplace")
import no_change  # from tests/helpers
from vidrestore.restorers import base
base.TASKS["denoise"] = base.TASKS["<identity>"]
if AFTER:
    from vidrestore.media import segment_file
    plain_put = segment_file.JoinedFile.put
    def put(*arguments):
        raise KeyboardInterrupt
    segment_file.JoinedFile.put = put
from vidrestore.cli import main
code = 0
for line in LINES:
    try:
        main(line)
    except SystemExit as end:
        print("ended with", end.code, file=sys.stderr)
        code = code or end.code
sys.exit(code)
"""


def commands(
    folder: Path, *lines: Sequence[object], stopped: bool = False, links: bool = True, stdin: bytes = b""
) -> tuple[int, str]:
    """Run commands in one process under these rules; return the exit code of the first that failed, 0 if none
    did, and what all printed. `stopped`: as by Ctrl-C while segments are joined.
    """
    given = [[str(word) for word in line] for line in lines]
    code = f"AFTER, LINKS, LINES = {stopped}, {links}, {given}\n{RULES}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        input=stdin,
        capture_output=True,
        timeout=300,
        env=os.environ | {"PYTHONUTF8": "0", "USERNAME": "someone", "PYTHONPATH": str(HELPERS)},
    )
    return done.returncode, (done.stdout + done.stderr).decode("cp1252")


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "none"])
def test_a_video_is_restored_and_resumed_without_what_other_systems_lack(tmp_path: Path, links: bool) -> None:
    write_video(tmp_path / "Gr\u00fc\u00dfe \u732b.mkv", 12)
    given = ("denoise", "Gr\u00fc\u00dfe \u732b.mkv", "--lossless", "-o", "out.mkv")
    code, said = commands(tmp_path, given, stopped=True, links=links)
    assert code == 130 and not (tmp_path / "out.mkv").exists(), said
    code, said = commands(tmp_path, given, (*given, "--overwrite"), links=links)
    assert code == 0 and (tmp_path / "out.mkv").exists(), said
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_pictures_pipes_and_shards_work_there(tmp_path: Path) -> None:
    write_video(tmp_path / "in.mkv", 4)
    code, said = commands(
        tmp_path,
        ("denoise", "in.mkv", "-o", "out/%04d.png"),
        ("denoise", "out", "-o", "again.mkv", "--lossless"),
        ("denoise", "in.mkv", "-o", "shared.mkv", "--shard", "1/2"),
        ("denoise", "-", "-o", "piped.mkv"),
        stdin=(tmp_path / "in.mkv").read_bytes(),
    )
    assert code == 0 and len(list((tmp_path / "out").glob("*.png"))) == 4, said
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"in.mkv", "out", "again.mkv", "shared.mkv", "piped.mkv"}, said


def test_a_network_is_trained_there(repository: Path, tmp_path: Path) -> None:
    short = ("--set", "training.steps=2", "--set", "training.validate_every=2", "--device", "cpu")
    config = repository / "examples" / "train" / "quick.toml"
    cache = ("--cache", tmp_path / "cache")
    code, said = commands(tmp_path, ("train", "--config", config, "-o", "runs", *short, *cache))
    assert code == 0 and (tmp_path / "runs" / "quick.safetensors").exists(), said
