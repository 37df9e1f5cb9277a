"""The statistics of the protocol, on hits whose differences are known."""

import numpy as np
import pandas as pd
import pytest

from smooth_topk.study.measure.comparison import (
    best_of_m,
    difference,
    holm,
    probability_of_improvement,
    regret_and_rank,
    variance_shares,
)

MONTE_CARLO = 0.25  # relative: an interval of 2,000 draws, against the normal one


def hits(accuracy: np.ndarray, seed: int, images: int = 4_000) -> np.ndarray:
    """Independent hits with the given accuracy per (search, seed)."""
    return np.random.default_rng(seed).random((*accuracy.shape, images)) < accuracy[:, :, None]


def test_the_interval_of_independent_images_is_the_binomial_one():
    first, second = hits(np.full((1, 1), 0.6), 0), hits(np.full((1, 1), 0.5), 1)
    found = difference(first, second)
    spread = np.sqrt((0.6 * 0.4 + 0.5 * 0.5) / 4_000)
    assert found.mean == pytest.approx(first.mean() - second.mean())
    assert found.interval_95[1] - found.interval_95[0] == pytest.approx(2 * 1.96 * spread, rel=MONTE_CARLO)
    assert found.interval_95[0] < found.interval_90[0] < found.mean < found.interval_90[1] < found.interval_95[1]
    assert found.p_value < 0.01


def test_seeds_that_differ_widen_the_interval_and_get_their_share():
    base = np.full((1, 8), 0.5)
    noisy = base + np.linspace(-0.1, 0.1, 8)
    shares = variance_shares(hits(noisy, 0), hits(base, 1))
    assert shares["seeds"] > 0.8
    assert shares["searches"] < 1e-9  # there is one
    assert sum(shares.values()) == pytest.approx(1)
    steady, widened = difference(hits(base, 2), hits(base, 1)), difference(hits(noisy, 0), hits(base, 1))
    assert np.ptp(widened.interval_95) > 2 * np.ptp(steady.interval_95)


def test_searches_that_differ_get_their_share():
    first = hits(np.array([[0.4], [0.5], [0.6]]) + np.zeros((3, 4)), 0)
    assert variance_shares(first, hits(np.full((3, 4), 0.5), 1))["searches"] > 0.8


def test_the_same_hits_differ_by_nothing():
    same = hits(np.full((2, 3), 0.3), 0)
    assert difference(same, same) == (0.0, (0.0, 0.0), (0.0, 0.0), 1.0)
    assert probability_of_improvement(same, same) == 0.5


def test_hits_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="8"):
        difference(np.ones((1, 8, 10)), np.ones((1, 12, 10)))


def test_holm_is_monotone_and_at_least_the_raw_value():
    raw = {"a": 0.001, "b": 0.02, "c": 0.6, "d": 0.021}
    corrected = holm(raw)
    assert corrected["a"] == pytest.approx(0.004)
    assert corrected["b"] == corrected["d"] == pytest.approx(0.06)
    assert corrected["c"] == 0.6


def test_regret_and_rank_of_a_table():
    table = pd.DataFrame({"a": [0.5, 0.9], "b": [0.4, 1.0]}, index=["first", "second"])
    found = regret_and_rank(table)
    assert found.loc["a"].tolist() == pytest.approx([0.05, 1.5])
    assert found.loc["b"].tolist() == pytest.approx([0.05, 1.5])


def test_best_of_m_begins_with_the_mean_and_ends_with_the_winner():
    validation, score = np.array([0.1, 0.4, 0.3]), np.array([1.0, 2.0, 6.0])
    assert best_of_m(validation, score) == pytest.approx([3.0, (2 + 2 + 6) / 3, 2.0])
