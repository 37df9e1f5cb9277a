"""The formula of chapter 2 and the numbers of book/proofs.md: what it counts, and what it measures."""

from fractions import Fraction
from math import ceil, exp, log, log1p, log2

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smooth_topk import hard_topk_loss, smooth_topk_loss

ROUNDING = 1e-9  # float64, some hundred operations


def product_up_to(p, q, k):
    """Coefficients 0..k of the product of two polynomials."""
    result = [0] * (min(k, len(p) + len(q) - 2) + 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q[: k + 1 - i]):
            result[i + j] += a * b
    return result


def multiplications(k):
    """Of real numbers: a product truncated at degree k, directly and by the FFT of real numbers."""
    length = 2 ** ceil(log2(2 * k + 1))
    complex_products = 3 * (length // 2) * ceil(log2(length)) + length
    return (k + 1) * (k + 2) // 2, 4 * complex_products // 2


@given(st.integers(1, 12), st.integers(1, 40))
def test_the_levels_of_the_tree_sum_to_less_than_2kn(exponent, k):
    n = 2**exponent
    levels = [2**j * min(k, Fraction(n, 2 ** (j + 1))) ** 2 for j in range(exponent)]
    full = sum(cost for j, cost in enumerate(levels) if n >= 2 ** (j + 1) * k)
    assert full < k * n
    assert sum(levels) - full < k * n


def test_the_fft_needs_fewer_multiplications_only_above_k_256():
    assert [multiplications(k) for k in (5, 16, 64, 256, 512, 1024)] == [
        (21, 224), (153, 1280), (2145, 6656), (33_153, 32_768), (131_841, 71_680), (525_825, 155_648),
    ]  # fmt: skip


def test_the_fft_loses_the_small_coefficients_and_the_direct_product_none():
    drawn = 3 * torch.randn(16, generator=torch.Generator().manual_seed(16))
    weights = torch.exp(drawn / (5 * 0.1))
    halves = [torch.ones(1), torch.ones(1)]
    for place, weight in enumerate(weights):
        halves[place // 8] = torch.stack(product_up_to(halves[place // 8], torch.stack([torch.ones(()), weight]), 5))
    exact = product_up_to(*[[Fraction(value.item()) for value in half] for half in halves], 5)
    truth = torch.tensor([float(value) for value in exact], dtype=torch.float64)
    assert truth[5].item() == pytest.approx(3.7e21, rel=0.01)

    transforms = [torch.fft.rfft(half, 16) for half in halves]
    by_fft = torch.fft.irfft(transforms[0] * transforms[1], 16)[:6]
    directly = torch.stack(product_up_to(*[list(half) for half in halves], 5))
    assert (directly.double() / truth - 1).abs().max() < 1e-6
    assert (by_fft.double() / truth - 1).abs()[:4].min() > 0.5  # no right digit


@given(st.lists(st.floats(-8, 8), min_size=2, max_size=9), st.data())
def test_measured_from_the_balance_k_minus_1_and_k_are_the_most_likely_numbers(exponents, data):
    """k - 1/2 classes are drawn on average; no other number is as likely as k - 1 or as k."""
    k = data.draw(st.integers(1, len(exponents)))
    x = torch.tensor(exponents, dtype=torch.float64)
    low, high = -50.0, 50.0
    for _ in range(100):  # bisection for the shift with the wanted average
        middle = (low + high) / 2
        low, high = (middle, high) if (x + middle).sigmoid().sum() < k - 0.5 else (low, middle)
    shares = torch.ones(1, dtype=torch.float64)
    for p in (x + low).sigmoid():
        padded = torch.nn.functional.pad(shares, (1, 1))
        shares = (1 - p) * padded[1:] + p * padded[:-1]
    largest = shares.argsort(descending=True)
    assert sorted(largest[:2].tolist()) == [k - 1, k]
    assert len(shares) == 2 or shares[largest[2]] < shares[largest[1]]


@given(st.lists(st.floats(-20, 20), min_size=3, max_size=9), st.sampled_from([0.05, 0.5, 1.0, 10.0]), st.data())
def test_the_smooth_loss_is_a_softplus_of_the_shortfall_with_a_bounded_correction(values, tau, data):
    n = len(values)
    k, label = data.draw(st.integers(1, n - 1)), data.draw(st.integers(0, n - 1))
    scores = torch.tensor(values, dtype=torch.float64)
    kth = sorted(values[:label] + values[label + 1 :])[-k]
    h = torch.tensor(1 + (kth - values[label]) / k, dtype=torch.float64)
    least, largest = (tau * torch.logaddexp(h / tau + c, torch.zeros(())) for c in (-log(k), log(n - k)))
    loss = smooth_topk_loss(scores, torch.tensor(label), k=k, tau=tau)
    hard = hard_topk_loss(scores, torch.tensor(label), k=k)
    assert hard.item() == pytest.approx(h.clamp_min(0).item(), abs=ROUNDING)
    assert least - ROUNDING <= loss <= largest + ROUNDING
    assert -tau * log(k) - ROUNDING <= loss - hard <= tau * log(n - k + 1) + ROUNDING


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_bounds_of_the_correction_are_limits(k):
    classes, far = 9, 1e4
    lowest = torch.full((classes,), -far, dtype=torch.float64)
    lowest[: k + 1] = 0.0  # k others tie, the rest is far below
    highest = torch.zeros(classes, dtype=torch.float64)
    highest[1:k] = far  # k - 1 others are far above, the rest ties
    for scores, c in ((lowest, -log(k)), (highest, log(classes - k))):
        loss = smooth_topk_loss(scores, torch.tensor(0), k=k, tau=1.0, margin=1.0)
        assert loss.item() == pytest.approx(log1p(exp(1.0 + c)), abs=ROUNDING)
