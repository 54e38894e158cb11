"""The video that several processes restore."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from long_videos import long_video

FRAMES = 300


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 frames at varying times with sound and subtitles."""
    times = list(np.cumsum(np.random.default_rng(0).integers(30, 60, FRAMES)) - 30)
    return long_video(
        tmp_path_factory.mktemp("film") / "film.mkv", times=[int(time) for time in times], text="subrip"
    )
