"""Random numbers by counters: the published words of Philox, and the distributions made of them."""

import math

import pytest
import torch

from vidrestore.lab.degrade.counters import FEW_WORDS, LARGEST_WORD, Counters, philox

# kat_vectors of Random123 1.14: counter, key, result
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (LARGEST_WORD,) * 4,
        (LARGEST_WORD, LARGEST_WORD),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
MANY = 20_000


def counters(samples=(0, 1), seed=7, step=3):
    return Counters(seed, step, torch.tensor(samples))


@pytest.mark.parametrize("counter, key, result", KNOWN)
def test_the_words_are_those_published_with_philox(counter, key, result):
    words = philox(tuple(torch.tensor(word) for word in counter), key)
    assert tuple(map(int, words)) == result


def test_the_words_of_a_call_are_philox_of_block_call_sample_and_step():
    drawn = counters((5, 2**32 - 1), seed=2**33 + 7)
    drawn.uniform(0, 1, FEW_WORDS + 1)
    words = drawn.integers(0, 2**31, 4 * 100)
    counter = (torch.arange(256), *(torch.tensor(word) for word in (1, 2**32 - 1, 3)))
    assert torch.equal(words[1], torch.cat(philox(counter, (7, 2)))[:400] >> 1)


@pytest.mark.parametrize("count", [1, FEW_WORDS, 10 * FEW_WORDS])
def test_numbers_depend_on_seed_step_sample_and_call_but_not_on_the_rest_of_the_batch(
    count,
):
    def drawn(*samples, step=3, seed=7, calls=0):
        numbers = counters(samples, seed, step)
        for _ in range(calls):
            numbers.normal(3)
        return numbers.normal(count)

    alone = drawn(4)[0]
    assert torch.equal(drawn(9, 4)[1], alone)
    for other in (
        drawn(5),
        drawn(4, step=4),
        drawn(4, seed=8),
        drawn(4, seed=7 + 2**32),
        drawn(4, calls=1),
    ):
        assert not torch.equal(other[0], alone)


def test_a_part_of_the_batch_continues_with_the_numbers_of_its_samples():
    whole, other = counters((0, 1, 2)), counters((0, 1, 2))
    for drawn in (whole, other):
        drawn.uniform(0, 1, 500), drawn.normal(3)
    for rows in (slice(1, 3), torch.tensor([1, 2])):
        part = whole.part(rows)
        assert torch.equal(part.normal(3), other.part(rows).normal(3))
    assert torch.equal(
        torch.cat((part.normal(2), part.normal(500)), 1), whole_next(other)[1:]
    )


def whole_next(drawn):
    drawn.normal(3)
    return torch.cat((drawn.normal(2), drawn.normal(500)), 1)


def test_a_branch_has_numbers_of_its_own_whatever_is_drawn_elsewhere():
    def drawn(later):
        whole = counters()
        branch = whole.branch()
        for _ in range(later):
            whole.normal(500)
        return branch.normal(500)

    assert torch.equal(drawn(0), drawn(3))
    whole = counters()
    whole.branch()
    for other in (
        whole.branch().normal(500),
        whole.normal(500),
        counters().normal(500),
    ):
        assert not torch.equal(other, drawn(0))


def test_the_first_numbers_do_not_depend_on_how_many_are_drawn():
    assert torch.equal(counters().normal(3000, 2)[:, :2000], counters().normal(2000, 2))


def test_many_words_are_the_same_whatever_is_computed_at_once(monkeypatch):
    whole = counters().normal(9000)
    monkeypatch.setattr("vidrestore.lab.degrade.counters.RUNS_AT_ONCE", 4)
    assert torch.equal(counters().normal(9000), whole)


def within(values, mean, deviation, sigmas=4.5):
    assert abs(float(values.double().mean()) - mean) < sigmas * deviation / math.sqrt(
        values.numel()
    )


def test_each_kind_of_number_has_its_distribution():
    drawn = counters()
    uniform = drawn.uniform(-1, 3, MANY)
    assert -1 <= float(uniform.min()) < -0.99 and 2.99 < float(uniform.max()) < 3
    within(uniform, 1, 4 / math.sqrt(12))
    within(drawn.log_uniform((0.1, 10), MANY).log(), 0, math.log(100) / math.sqrt(12))
    whole = drawn.integers(2, 6, MANY)
    assert set(whole.flatten().tolist()) == {2, 3, 4, 5}
    within(whole, 3.5, math.sqrt(15 / 12))
    within(drawn.chance(0.3, MANY), 0.3, math.sqrt(0.21))
    bounds = drawn.uniform(
        torch.tensor([[0.0], [5.0]]), torch.tensor([[1.0], [6.0]]), 10
    )
    assert float(bounds[0].max()) < 1 and float(bounds[1].min()) >= 5


def test_normal_numbers_have_the_moments_tails_and_independence_of_normal_ones():
    normal = counters().normal(2, MANY)
    assert normal.shape == (2, 2, MANY)
    within(normal, 0, 1)
    within(normal**2, 1, math.sqrt(2))
    within(normal**4, 3, math.sqrt(96))
    within(normal.abs() > 2, 0.0455, math.sqrt(0.0455))
    pairs = normal.flatten(1)[:, : 2 * MANY]
    within(pairs[:, :-1] * pairs[:, 1:], 0, 1)
    within(normal[0] * normal[1], 0, 1)
    within(normal[:, 0] * normal[:, 1], 0, 1)


def test_gamma_variates_have_the_mean_and_variance_of_their_shape():
    drawn = Counters(1, 0, torch.arange(MANY)).gamma(0.08, 0.5, 2.0)
    for values, alpha in zip(drawn.unbind(1), (0.08, 0.5, 2.0), strict=True):
        within(values, alpha, math.sqrt(alpha))
        within((values - alpha) ** 2, alpha, math.sqrt(6 * alpha + 2 * alpha**2))


def test_single_numbers_have_no_shape_beyond_the_batch():
    drawn = counters()
    assert (
        drawn.uniform().shape
        == drawn.normal().shape
        == drawn.integers(0, 3).shape
        == (2,)
    )
