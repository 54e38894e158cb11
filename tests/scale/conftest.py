"""The video that several processes restore."""

from __future__ import annotations

from pathlib import Path

import pytest
from long_videos import film_of


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return film_of(tmp_path_factory.mktemp("film") / "film.mkv", 300)
