"""The command `vidrestore denoise` in this process, with a model that changes nothing."""

from functools import partial

import pytest
from command_line import run as command
from no_change import IDENTITY_DENOISE

from vidrestore.media.writing.picture_writer import PictureFiles
from vidrestore.settings.tasks import TASKS


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """For modules that import it: `denoise` gives back what it is given."""
    monkeypatch.setitem(TASKS, "denoise", IDENTITY_DENOISE)


@pytest.fixture
def encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that name it: pictures in which nothing was changed are encoded again, too."""
    monkeypatch.setattr(PictureFiles, "_unchanged", lambda *_: None)


run = partial(command, "denoise")
