"""Weights of small networks, written once for all tests of this room."""

import pytest
from device_runs import small_weights


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return small_weights(tmp_path_factory.mktemp("weights"))
