"""What real commands restore, and where there is no room for it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from long_videos import film_of


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return film_of(tmp_path_factory.mktemp("film") / "film.mkv", 150)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs permission to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
