"""The table of the DUST paper's systems: what is read off a training."""

from __future__ import annotations

import pytest
from systems_table import curve


def test_the_gain_is_of_a_fifth_more_steps() -> None:
    points = [
        {"step": step, "psnr": {"sigma 20": psnr}}
        for step, psnr in ((500, 28.0), (1000, 29.0), (1100, 29.5), (1200, 29.75))
    ]
    assert curve({"steps": 1200, "curve": points}) == (1200, pytest.approx(0.75))


def test_of_a_training_judged_once_no_gain_is_known() -> None:
    assert curve({"steps": 1, "curve": [{"step": 1, "psnr": {"sigma 0": 18.0}}]}) == (1, None)
