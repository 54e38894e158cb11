"""Only regular files of a sensible size are opened."""

import errno
import os
from pathlib import Path

import pytest

from vidrestore.files.regular import (
    open_descriptor,
    open_regular,
    read_limited,
    write_problem,
)

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")


@posix
def test_pipes_folders_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (
        (tmp_path / "pipe", "a named pipe"),
        (tmp_path, "a folder"),
        (Path("/dev/zero"), "a device"),
    ):
        with pytest.raises(OSError, match=f"{kind}, but a regular file was expected"):
            open_regular(path)


@posix
def test_links_are_followed_to_read_and_not_to_write(tmp_path):
    (tmp_path / "a").write_text("here")
    (tmp_path / "link").symlink_to("a")
    assert read_limited(tmp_path / "link", 4) == b"here"
    with pytest.raises(OSError, match="a symbolic link, but"):
        open_descriptor(tmp_path / "link", os.O_RDWR)


def test_a_file_beyond_its_limit_is_not_read(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)  # a sparse file
    with pytest.raises(OSError, match="larger than 1 MB"):
        read_limited(tmp_path / "large", 1 << 20)


def test_too_many_open_files_are_named_with_the_way_out():
    result = str(write_problem("out.mkv", OSError(errno.EMFILE, "Too many open files")))
    assert (
        result
        == "out.mkv: too many open files; raise the limit (`ulimit -n 256`) and run again"
    )
