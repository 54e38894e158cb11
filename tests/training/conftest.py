"""Fixtures of all tests of training."""

import pytest

from vidrestore.training.data import sources


@pytest.fixture(autouse=True)
def small_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few groups and crops are held out, which takes milliseconds."""
    monkeypatch.setattr(sources, "VALIDATION_GROUPS", 40)
    monkeypatch.setattr(sources, "VALIDATION_PAIRS", 2)
    monkeypatch.setattr(sources, "VALIDATION_SIDE", 16)
