"""The statistics of book/protocol.md: intervals over searches, seeds and test images, ranks, regret, best-of-m curves.

The hits of a loss are an array (searches, seeds, test images): whether the label was among the first five. Seeds and
images are the same for all losses, so differences are paired.
"""

from collections.abc import Mapping
from math import comb
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

DRAWS = 2_000
SEED = 20_181_102
FACTORS = ("searches", "seeds", "test images")


class Difference(NamedTuple):
    """A difference of two accuracies with its bootstrap intervals, all as shares of images."""

    mean: float
    interval_90: tuple[float, float]
    interval_95: tuple[float, float]
    p_value: float  # two-sided: twice the smaller share of bootstrap means on either side of zero


def difference(first: NDArray, second: NDArray, draws: int = DRAWS) -> Difference:
    """Returns first minus second; searches, seeds and test images are resampled together, in pairs.

    Args:
        first: hits (searches, seeds, images).
        second: hits of the same shape, with the same seeds and images.
        draws: bootstrap samples.
    """
    gained = _difference_of_hits(first, second)
    means = _resampled(gained, FACTORS, draws)
    below, above = (means <= 0).mean(), (means >= 0).mean()
    low, high = (np.quantile(means, ends).tolist() for ends in ((0.05, 0.95), (0.025, 0.975)))
    return Difference(
        float(gained.mean()),
        (low[0], low[1]),
        (high[0], high[1]),
        float(min(1.0, 2 * max(min(below, above), 1 / draws))),
    )


def variance_shares(first: NDArray, second: NDArray, draws: int = DRAWS) -> dict[str, float]:
    """Returns which share of the difference's variance searches, seeds and test images have, each resampled alone."""
    gained = _difference_of_hits(first, second)
    alone = {factor: float(_resampled(gained, (factor,), draws).var()) for factor in FACTORS}
    total = sum(alone.values()) or 1.0
    return {factor: variance / total for factor, variance in alone.items()}


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Returns p-values corrected for their number by Holm's step-down method.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    corrected, largest = {}, 0.0
    for index, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - index) * p_values[name]))
        corrected[name] = round(largest, 12)
    return {name: corrected[name] for name in p_values}


def regret_and_rank(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Returns per loss the mean distance to the best loss of a setting, and the mean rank (1 is best).

    Args:
        accuracy: mean accuracies, one row per setting, one column per loss.
    """
    regret = accuracy.rsub(accuracy.max(axis=1), axis=0)
    return pd.DataFrame({"regret": regret.mean(), "rank": accuracy.rank(axis=1, ascending=False).mean()})


def probability_of_improvement(first: NDArray, second: NDArray) -> float:
    """Returns the share of (search, seed) pairs in which first has the higher accuracy; a tie counts as half."""
    gained = _difference_of_hits(first, second).mean(axis=2)
    return float((gained > 0).mean() + (gained == 0).mean() / 2)


def best_of_m(validation: NDArray, score: NDArray) -> NDArray:
    """Returns the expected score of the trial that validation prefers among m random ones, for m = 1 to all.

    Args:
        validation: what the selection sees, (trials,).
        score: what is reported, (trials,).
    """
    ordered = np.asarray(score, dtype=float)[np.argsort(validation, kind="stable")]
    count = len(ordered)
    chances = [[comb(place, m - 1) / comb(count, m) for place in range(count)] for m in range(1, count + 1)]
    return np.asarray(chances) @ ordered


def _difference_of_hits(first: NDArray, second: NDArray) -> NDArray:
    first, second = np.asarray(first), np.asarray(second)
    if first.shape != second.shape or first.ndim != 3:
        raise ValueError(f"Hits must be (searches, seeds, images) of one shape, got {first.shape} and {second.shape}.")
    return first.astype(np.int8) - second.astype(np.int8)


def _resampled(gained: NDArray, factors: tuple[str, ...], draws: int) -> NDArray:
    """Returns the means (draws,) after drawing each of the factors with replacement."""
    generator = np.random.default_rng(SEED)
    weights = [
        generator.multinomial(size, np.full(size, 1 / size), draws) / size
        if factor in factors
        else np.full((draws, size), 1 / size)
        for factor, size in zip(FACTORS, gained.shape, strict=True)
    ]
    rows = gained.reshape(-1, gained.shape[2]).astype(np.float32) @ weights[2].T.astype(np.float32)
    by_run = rows.reshape(*gained.shape[:2], draws)
    return np.einsum("srd,ds,dr->d", by_run, weights[0], weights[1])
