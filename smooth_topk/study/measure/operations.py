"""Counting instead of timing: how many multiplications an algorithm makes, on any machine the same."""

from collections.abc import Callable, Sequence
from itertools import product

import pandas as pd


class CountedNumber:
    """A number that counts every multiplication it takes part in."""

    def __init__(self, value: float, tally: list[int]):
        self.value, self.tally = value, tally

    def __mul__(self, other):
        self.tally[0] += 1
        return CountedNumber(self.value * _value(other), self.tally)

    def __add__(self, other):
        return CountedNumber(self.value + _value(other), self.tally)

    __rmul__, __radd__ = __mul__, __add__


def count_multiplications(algorithm: Callable, n: int, k: int) -> int:
    """Returns how many multiplications algorithm(e, k) makes for n elements; products of two constants are free.

    Example:
        >>> count_multiplications(lambda e, k: sum(value * value for value in e), n=10, k=1)
        10
    """
    tally = [0]
    algorithm([CountedNumber(1.0, tally) for _ in range(n)], k)
    return tally[0]


def level_cost_table(n: int, ks: Sequence[int]) -> pd.DataFrame:
    """Returns the multiplications of each level of the product tree of n elements, truncated at degree k.

    Args:
        n: a power of two, so that every level has complete pairs.

    Returns:
        Columns k, elements (of the products of a level: 2, 4, ..., n), multiplications (of all products of the level,
        without those of two constant coefficients, which are one).

    Example:
        >>> level_cost_table(4, [1])["multiplications"].tolist()
        [4, 2]
    """
    rows = []
    for k, level in product(ks, range(1, n.bit_length())):
        elements = 2**level
        degree = min(k, elements // 2)  # of each of the two factors
        pairs = sum(min(degree, k - i) + 1 for i in range(degree + 1)) - 1
        rows.append((k, elements, n // elements * pairs))
    return pd.DataFrame(rows, columns=["k", "elements", "multiplications"])


def _value(number) -> float:
    return number.value if isinstance(number, CountedNumber) else number
