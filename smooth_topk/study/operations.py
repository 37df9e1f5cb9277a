"""Counting instead of timing: how many multiplications an algorithm makes, on any machine the same."""

from collections.abc import Callable


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


def _value(number) -> float:
    return number.value if isinstance(number, CountedNumber) else number
