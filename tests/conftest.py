"""What all tests share: where the shared clips lie, and one thread per process (tiny tensors are slower on
many).
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

# read when torch loads, here and in the commands that tests start
os.environ.setdefault("OMP_NUM_THREADS", "1")

import no_change  # noqa: F401
import pytest
from commands import Commands

REPOSITORY = Path(__file__).parents[1]
# seconds that a test takes at most; one that waits on nevertheless: faulthandler_timeout
LIMIT = 15 * 60


def pytest_configure() -> None:
    """Under `nohup` commands get SIGHUP as elsewhere, and SIGINT behind a script's `&`: a process inherits a
    signal that is ignored, but no handler.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """No test waits without a limit."""
    if not hasattr(signal, "alarm"):
        return (yield)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(LIMIT)
    try:
        return (yield)
    finally:
        signal.alarm(0)


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("the test took longer than its limit")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A user's cache, configuration and data are in folders of the tests, here and in the commands that they
    start.
    """
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("CACHE", "CONFIG", "DATA"):
            patch.setenv(f"XDG_{kind}_HOME", str(tmp_path_factory.mktemp(kind.lower())))
        yield


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """A command that computes with several threads in this process leaves the next module one again: sums
    then have the same last bits, and threads that wait for each other slow nothing down.
    """
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


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
