"""The command `vidrestore denoise` in this process, with a model that changes nothing."""

from __future__ import annotations

import pytest

from vidrestore.cli import main
from vidrestore.restorers.base import TASKS


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """For modules that import it: `denoise` gives back what it is given."""
    monkeypatch.setitem(TASKS, "denoise", TASKS["<identity>"])


def run(*arguments: object) -> int:
    """Exit code of `vidrestore denoise ...`."""
    with pytest.raises(SystemExit) as end:
        main(["denoise", *map(str, arguments)])
    return int(end.value.code or 0)
