"""The two routes of the reference agree, so that a mistake in one of them cannot pass as the truth."""

import pytest
from mpmath import mp, mpf
from reference import (
    brute_force_hard_loss,
    brute_force_loss,
    brute_force_marginals,
    brute_force_sigma,
    reference_gradient,
    reference_hard_loss,
    reference_log_sigma,
    reference_loss,
    reference_marginals,
)

SCORES = [1.5, -0.25, 3.0, 3.0, -7.0, 0.5]
AGREEMENT = mpf(10) ** -45  # both routes carry 60 digits; their differences lose at most 15 of them


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("tau", [10.0, 1.0, 0.05])
def test_the_fast_loss_equals_the_definition(k, tau):
    for label in range(len(SCORES)):
        fast, slow = reference_loss(SCORES, label, k, tau), brute_force_loss(SCORES, label, k, tau)
        assert abs(fast - slow) < AGREEMENT
    assert reference_loss(SCORES, 0, k, tau, margin=0.0) < reference_loss(SCORES, 0, k, tau)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_gradient_equals_a_difference_quotient_of_the_definition(k):
    step, tau, label = 2.0**-40, 0.5, 1  # a power of two: the shifted scores are exact floats
    for i, slope in enumerate(reference_gradient(SCORES, label, k, tau)):
        up, down = list(SCORES), list(SCORES)
        up[i] += step
        down[i] -= step
        quotient = (brute_force_loss(up, label, k, tau) - brute_force_loss(down, label, k, tau)) / (2 * mpf(step))
        assert abs(slope - quotient) < 1e-20  # the error of a central difference is of order step²


@pytest.mark.parametrize("k", [1, 3, 6])
def test_the_polynomials_and_the_marginals_equal_their_definitions(k):
    e = [mp.exp(mpf(score)) for score in SCORES]
    for j, log_sigma in enumerate(reference_log_sigma(SCORES, k)):
        assert abs(mp.exp(log_sigma) / brute_force_sigma(e, j) - 1) < AGREEMENT
    for fast, slow in zip(reference_marginals(SCORES, k), brute_force_marginals(SCORES, k), strict=True):
        assert abs(fast - slow) < AGREEMENT


def test_the_hard_loss_equals_its_definition():
    for label in range(len(SCORES)):
        assert abs(reference_hard_loss(SCORES, label, 3) - brute_force_hard_loss(SCORES, label, 3)) < AGREEMENT


def test_a_score_of_minus_infinity_is_a_deleted_class():
    padded = [*SCORES, -mp.inf]
    assert reference_loss(padded, 1, 3, 0.1) == reference_loss(SCORES, 1, 3, 0.1)
    assert reference_gradient(padded, 1, 3, 0.1) == [*reference_gradient(SCORES, 1, 3, 0.1), 0]
    assert reference_log_sigma([0.0, -mp.inf], 2) == [0, 0, mp.ninf]
    assert reference_loss([0.0, 1.0, -mp.inf, -mp.inf], 0, 2, 1.0) == 0
    assert reference_loss([-mp.inf, 1.0, 0.0], 0, 1, 1.0) == mp.inf
