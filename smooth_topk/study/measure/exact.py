"""The truth behind the error maps: losses and derivatives with 50 decimal digits, for any temperature.

Only positive numbers are added (the summation algorithm, Algorithm 3), so no digit is lost, and a decimal exponent is
long enough for exp(s/(kτ)) whatever τ is. Slow: about a millisecond for a row of 40 classes.
"""

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import torch
from torch import Tensor

DIGITS = Context(prec=50, Emin=MIN_EMIN, Emax=MAX_EMAX)


def exact_loss(scores: Tensor, labels: Tensor, *, k: int, tau: float, margin: float = 1.0) -> tuple[Tensor, Tensor]:
    """Losses (N,) of eq. (10) and their derivatives by the scores (N, n), rounded once, to float64.

    Args:
        scores: (N, n), finite.
        labels: (N,).
        k, tau, margin: as in `smooth_topk_loss`.
    """
    with localcontext(DIGITS):
        rows = [_row(row, label, k, Decimal(tau), Decimal(margin)) for row, label in _pairs(scores, labels)]
    return _float64([loss for loss, _ in rows]), _float64([gradient for _, gradient in rows])


def _row(scores: list[float], label: int, k: int, tau: Decimal, margin: Decimal) -> tuple[Decimal, list[Decimal]]:
    e = [(Decimal(score) / (k * tau)).exp() for score in scores]
    true, others = e[label], e[:label] + e[label + 1 :]
    sigma = _prefix_sums(others, k)[-1]
    odds = (margin / tau).exp() * sigma[k] / (true * sigma[k - 1])
    weight = odds / (1 + odds) / k
    upper, lower = _inclusion(others, k), _inclusion(others, k - 1)
    gradient = [weight * (up - low) for up, low in zip(upper, lower, strict=True)]
    gradient.insert(label, -weight)
    return tau * _log1p(odds), gradient


def _inclusion(e: list[Decimal], k: int) -> list[Decimal]:
    """The share of the k-subsets that contain i, from the sums over what is before i and what is after i."""
    if k == 0:
        return [Decimal(0)] * len(e)
    before, after = _prefix_sums(e, k), _prefix_sums(e[::-1], k)[::-1]
    total = before[-1][k]
    return [
        value * sum(a * b for a, b in zip(before[i][:k], reversed(after[i + 1][:k]), strict=True)) / total
        for i, value in enumerate(e)
    ]


def _prefix_sums(e: list[Decimal], k: int) -> list[list[Decimal]]:
    """σ_0..σ_k of the first i elements, for i = 0..n."""
    table = [[Decimal(1)] + [Decimal(0)] * k]
    for value in e:
        last = table[-1]
        table.append([last[0]] + [last[j] + value * last[j - 1] for j in range(1, k + 1)])
    return table


def _log1p(odds: Decimal) -> Decimal:
    """log(1 + odds); by its series where 1 + odds would round the odds away."""
    return odds - odds * odds / 2 if odds < Decimal("1e-25") else (1 + odds).ln()


def _pairs(scores: Tensor, labels: Tensor):
    return zip(scores.tolist(), labels.tolist(), strict=True)


def _float64(values) -> Tensor:
    numbers = [[float(v) for v in row] if isinstance(row, list) else float(row) for row in values]
    return torch.tensor(numbers, dtype=torch.float64)
