"""The learning rate at every step, beside formulas of the papers' releases."""

import math

import pytest

from vidrestore.lab.run_config import TrainingConfig
from vidrestore.lab.training.learner import Plateau, learning_rate


def test_a_cosine_falls_to_a_floor():
    # as MB-TaylorFormer V2, in thousands
    settings = TrainingConfig(
        steps=500, learning_rate=3e-4, warmup=0, decay=0.6, floor=1e-6
    )
    for step in (0, 150, 200, 201, 350, 499):
        annealed = (
            1e-6
            + (3e-4 - 1e-6) * (1 + math.cos(math.pi * max(step - 200, 0) / 300)) / 2
        )
        assert learning_rate(step, settings) == pytest.approx(annealed)


def test_a_cosine_restarts_at_its_shares_of_the_rate():
    settings = TrainingConfig(
        steps=1200,
        learning_rate=2e-4,
        warmup=0,
        schedule="restarts",
        restarts=(1.0, 0.5, 0.5),
        floor=1e-7,
    )
    for step in (0, 1, 200, 399, 400, 600, 799, 800, 1199):
        start, weight = step // 400 * 400, 1.0 if step < 400 else 0.5
        annealed = (
            1e-7
            + weight
            * (2e-4 - 1e-7)
            * (1 + math.cos(math.pi * (step - start) / 400))
            / 2
        )
        assert learning_rate(step, settings) == pytest.approx(annealed)


def test_a_restart_with_a_small_share_never_falls_below_the_floor():
    settings = TrainingConfig(
        steps=100,
        learning_rate=1e-3,
        warmup=0,
        schedule="restarts",
        restarts=(1.0, 0.001),
        floor=1e-5,
    )
    rates = [learning_rate(step, settings) for step in range(50, 100)]
    assert (
        rates[0] == pytest.approx(1e-5 + 0.001 * (1e-3 - 1e-5)) and min(rates) >= 1e-5
    )


def test_restarts_that_the_steps_do_not_divide_by_have_no_step_beyond_the_last():
    settings = TrainingConfig(
        steps=10, learning_rate=1.0, warmup=0, schedule="restarts", restarts=(1.0,) * 3
    )
    rates = [learning_rate(step, settings) for step in range(10)]
    assert all(0.01 <= rate <= 1 for rate in rates) and rates[9] < rates[7]


def test_a_plateau_is_level_reduced_and_never_below_its_floor():
    settings = TrainingConfig(
        steps=100, learning_rate=1e-3, warmup=10, schedule="plateau", floor=2e-4
    )
    assert learning_rate(4, settings) == pytest.approx(5e-4)
    assert [learning_rate(step, settings, 0.3) for step in (20, 99)] == pytest.approx(
        [3e-4, 3e-4]
    )
    assert learning_rate(50, settings, 0.09) == pytest.approx(2e-4)


def test_a_plateau_is_a_number_of_validations_in_a_row_that_are_no_better():
    plateau = Plateau(patience=3, factor=0.5)
    shares = []
    for better in (
        True,
        False,
        False,
        True,
        False,
        False,
        False,
        False,
        False,
        False,
        True,
    ):
        plateau.step(better)
        shares.append(plateau.share)
    assert shares == [1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_a_restored_plateau_continues_to_wait_where_it_was():
    plateau, again = Plateau(2, 0.1), Plateau(2, 0.1)
    plateau.step(False)
    again.load_state_dict(plateau.state_dict())
    again.step(False)
    assert again.share == 0.1


def test_the_usual_warm_up_is_no_longer_than_the_training():
    short, long = (
        TrainingConfig(steps=50, decay=0.0),
        TrainingConfig(steps=5000, decay=0.0),
    )
    assert [learning_rate(step, short) for step in (0, 24, 49)] == pytest.approx(
        [2e-5, 5e-4, 1e-3]
    )
    assert [learning_rate(step, long) for step in (0, 99, 199, 300)] == pytest.approx(
        [5e-6, 5e-4, 1e-3, 1e-3]
    )
