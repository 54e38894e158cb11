"""The video that several processes restore."""

from pathlib import Path

import pytest
from long_videos import film_of

from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Step


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return film_of(tmp_path_factory.mktemp("film") / "film.mkv", 300)


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest, film: Path) -> bytes:
    """The file that one process makes of the film with the OPTIONS of the module."""
    output = film.with_name("whole.mkv")
    batch = Batch(
        [str(film)], str(output), [Step("<identity>", request.module.OPTIONS)]
    )
    batch.restore(batch.request(str(film)))
    return output.read_bytes()
