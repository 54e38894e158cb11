"""Code that puts a model that changes nothing in the place of the real one, and the frames of a file."""

from pathlib import Path

import av
from no_change import ADDED

WITH_IDENTITY = ADDED + (
    "from vidrestore.tasks import TASKS; TASKS['denoise'] = no_change.IDENTITY_DENOISE; from "
    "vidrestore.cli import main; "
)


def frames_of(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))
