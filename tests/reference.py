"""The slow, obvious truth that the tests compare against.

Scores go in as floats, which are exact decimal numbers; exact-to-50-digit values come out as mpmath numbers.
Two independent routes: the definitions of the paper with every k-subset written out (`brute_force_*`, mpmath, small n),
and the summation algorithm with 60 decimal digits (`reference_*`, decimal, any n). Only positive numbers are added, so
no digit is lost, and decimal's exponents do not overflow whatever the temperature is. A score of -inf is a deleted
class.
"""

import math
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import lru_cache
from itertools import combinations

from mpmath import mp, mpf

DIGITS = 60
CONTEXT = Context(prec=DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)
mp.dps = DIGITS


def reference_loss(scores_row: Sequence[float], label: int, k: int, tau: float, margin: float = 1.0) -> mpf:
    """Smooth loss L_{k,tau}, last line of eq. (10): tau log(1 + exp(margin/tau - x_y) sigma_k / sigma_{k-1})."""
    argument = _softplus_argument(*_split(scores_row, label, k, tau), k, tau, margin)
    return mpf(tau) * mp.log1p(mp.exp(argument))


def reference_gradient(scores_row: Sequence[float], label: int, k: int, tau: float, margin: float = 1.0) -> list[mpf]:
    """Gradient of the smooth loss in the scores, by leaving out one class at a time."""
    true_x, others = _split(scores_row, label, k, tau)
    weight = 1 / (1 + mp.exp(-_softplus_argument(true_x, others, k, tau, margin))) / k
    upper, lower = _inclusion(others, k), _inclusion(others, k - 1, degree=k)
    gradient = [weight * (_mpf(up) - _mpf(down)) for up, down in zip(upper, lower, strict=True)]
    gradient.insert(label, -weight)
    return gradient


def reference_log_sigma(x_row: Sequence[float], k: int) -> list[mpf]:
    """log sigma_0..sigma_k of e = exp(x)."""
    return [_mpf_log(sigma) for sigma in _sums(_exact(x_row), k)[-1]]


def reference_marginals(x_row: Sequence[float], k: int) -> list[mpf]:
    """d log sigma_k / dx_i, appendix C: the probability that a random k-subset contains i."""
    return [_mpf(q) for q in _inclusion(_exact(x_row), k)]


def reference_hard_loss(scores_row: Sequence[float], label: int, k: int, margin: float = 1.0) -> mpf:
    """Hard loss l_k in the scale of eq. (8): max(margin + (s_[k] without y - s_y)/k, 0)."""
    scores = [mpf(float(score)) for score in scores_row]
    others = sorted(scores[:label] + scores[label + 1 :], reverse=True)
    return max(mpf(margin) + (others[k - 1] - scores[label]) / k, mpf(0))


def brute_force_loss(scores_row: Sequence[float], label: int, k: int, tau: float, margin: float = 1.0) -> mpf:
    """Smooth loss by its definition, eq. (9): sums over all k-subsets, and over those that contain the label."""
    scores = [mpf(float(score)) for score in scores_row]
    everything, with_label = [], []
    for subset in combinations(range(len(scores)), k):
        mean = mp.fsum(scores[i] for i in subset) / k
        everything.append(mp.exp((mpf(margin) * (label not in subset) + mean) / mpf(tau)))
        if label in subset:
            with_label.append(mp.exp(mean / mpf(tau)))
    return mpf(tau) * (mp.log(mp.fsum(everything)) - mp.log(mp.fsum(with_label)))


def brute_force_hard_loss(scores_row: Sequence[float], label: int, k: int, margin: float = 1.0) -> mpf:
    """Hard loss by eq. (8): a maximum over all k-subsets minus a maximum over those that contain the label."""
    scores = [mpf(float(score)) for score in scores_row]
    mean = {subset: mp.fsum(scores[i] for i in subset) / k for subset in combinations(range(len(scores)), k)}
    everything = max(mpf(margin) * (label not in subset) + value for subset, value in mean.items())
    return everything - max(value for subset, value in mean.items() if label in subset)


def brute_force_sigma(e_row: Sequence[float | mpf], j: int) -> mpf:
    """sigma_j by its definition: the sum of all products of j distinct elements."""
    return mp.fsum(mp.fprod(subset) for subset in combinations([mpf(e) for e in e_row], j))


def brute_force_marginals(x_row: Sequence[float], k: int) -> list[mpf]:
    """The marginals of appendix C by their definition: the share of the k-subsets that contain i, by weight."""
    x = [mpf(float(value)) for value in x_row]
    weights = {subset: mp.exp(mp.fsum(x[i] for i in subset)) for subset in combinations(range(len(x)), k)}
    total = mp.fsum(weights.values())
    return [mp.fsum(w for subset, w in weights.items() if i in subset) / total for i in range(len(x))]


def _exact(row: Sequence[float]) -> tuple[Decimal, ...]:
    return tuple(Decimal(float(value)) for value in row)


def _split(scores_row: Sequence[float], label: int, k: int, tau: float) -> tuple[Decimal, tuple[Decimal, ...]]:
    """x = s/(k tau) of the label, and of all other classes."""
    with localcontext(CONTEXT):
        x = tuple(score / (k * Decimal(tau)) for score in _exact(scores_row))
    return x[label], x[:label] + x[label + 1 :]


def _softplus_argument(true_x: Decimal, others: tuple[Decimal, ...], k: int, tau: float, margin: float) -> mpf:
    sigma = _sums(others, k)[-1]
    if sigma[k] == 0:  # fewer than k other classes are left: the label is always among the first k
        return mp.ninf
    with localcontext(CONTEXT):
        return _mpf(Decimal(margin) / Decimal(tau) - true_x + (sigma[k] / sigma[k - 1]).ln())


def _inclusion(x: tuple[Decimal, ...], k: int, degree: int | None = None) -> list[Decimal]:
    """e_i sigma_{k-1}(without i) / sigma_k for each i, from the sums over what is before i and what is after i.

    The sums go to `degree`, at least k: a caller of two sizes shares them.
    """
    if k == 0 or sum(value.is_finite() for value in x) < k:
        return [Decimal(0)] * len(x)
    before, after = _sums(x, degree or k), _sums(x[::-1], degree or k)[::-1]
    total = before[-1][k]
    with localcontext(CONTEXT):
        return [
            value.exp() * sum(a * b for a, b in zip(before[i][:k], reversed(after[i + 1][:k]), strict=True)) / total
            for i, value in enumerate(x)
        ]


@lru_cache(maxsize=2)  # of a row and of its mirror image, which a loss and its gradient share
def _sums(x: tuple[Decimal, ...], k: int) -> list[list[Decimal]]:
    """sigma_0..sigma_k of the first i elements of exp(x), for i = 0..n: the summation algorithm."""
    table = [[Decimal(1)] + [Decimal(0)] * k]
    with localcontext(CONTEXT):
        for value in x:
            e, last = value.exp(), table[-1]
            table.append([last[0]] + [last[j] + e * last[j - 1] for j in range(1, k + 1)])
    return table


def _mpf(value: Decimal) -> mpf:
    return mpf(float(value)) if value.is_infinite() else mpf(str(value))


def _mpf_log(value: Decimal) -> mpf:
    return mp.ninf if value == 0 else _mpf(value.ln(CONTEXT))


def relative_error(value: float, truth: mpf) -> float:
    """|value - truth| / |truth|; 0 where both are the same infinity or both zero."""
    value = float(value)
    if truth == 0 or mp.isinf(truth):
        return 0.0 if value == float(truth) else math.inf
    return float(abs(mpf(value) - truth) / abs(truth))
