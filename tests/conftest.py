"""What all tests share: where the shared clips lie, and one thread per process (tiny tensors are slower on
many).
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# read when torch loads, here and in the commands that tests start
os.environ.setdefault("OMP_NUM_THREADS", "1")

import no_change  # noqa: F401
import pytest
from commands import Commands

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A user's cache, configuration and data are in folders of the tests, here and in the commands that they
    start.
    """
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("CACHE", "CONFIG", "DATA"):
            patch.setenv(f"XDG_{kind}_HOME", str(tmp_path_factory.mktemp(kind.lower())))
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the repository (`data`, `golden`, ...); skips where it is absent."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder `shared` beside the repository")
    return folder


@pytest.fixture(scope="session")
def shared_data(shared: Path) -> Path:
    """The real clips and photos (`eval`, `train`, `stills`) of the folder `shared` beside the repository;
    skips where it is absent.
    """
    return shared / "data"


@pytest.fixture
def given(shared: Path, tmp_path: Path):
    """Copies one of the shared inputs into the folder of the test."""

    def copied(name: str) -> Path:
        if not (shared / "inputs" / name).is_file():
            pytest.skip(f"needs {name} among the shared inputs")
        return Path(shutil.copy(shared / "inputs" / name, tmp_path))

    return copied


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Starts commands in processes of their own, without the seconds that torch takes to load."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    started = Commands(tmp_path_factory.mktemp("commands"))
    yield started
    started.close()
