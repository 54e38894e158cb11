"""Small networks of each form that is compiled or exported."""

import pytest

from vidrestore.models import alignment
from vidrestore.models.vsr_recurrent import RecurrentConfig

NARROW = {"widths": (8, 16, 16, 16), "blocks": (1, 1, 1, 1), "branches": (1, 1, 1, 2)}
SMALL_VSR = RecurrentConfig(
    features=8,
    extraction=1,
    layers=1,
    reconstruction=1,
    shared=4,
    keys=4,
    hidden=4,
    context=1,
)


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch):
    """Motion by fewer levels and steps: graphs are smaller, of the same operations."""
    for name, count in (("LEVELS", 2), ("HALF_STEPS", 1), ("FULL_STEPS", 1)):
        monkeypatch.setattr(alignment, name, count)
