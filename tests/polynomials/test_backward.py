"""Algorithm 2: where the recursion is trusted, where the series takes over, and how far off the series can be."""

import pytest
import torch
from reference import brute_force_sigma, reference_marginals

from smooth_topk import log_symmetric_polynomials
from smooth_topk.polynomials import backward, divide_and_conquer

FLOAT32_RECURSION = 1e-4  # elements of one order of magnitude: each of the k steps loses less than a digit
FLOAT64_ROUNDING = 1e-12
NAME = "divide_and_conquer"
DOMINATED = torch.tensor([[30.0, 0.5, 0.0, -0.5, 0.25, 0.1, -0.2, 0.3]])  # the first element is unstable


def marginals(x, k, series_order=None):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(backward.log_sigma(x, k, series_order)[:, k].sum(), x)
    return slope


def truth(x, k):
    return torch.tensor([[float(v) for v in reference_marginals(row, k)] for row in x], dtype=x.dtype)


@pytest.mark.parametrize(("k", "order"), [(1, 1), (2, 1), (5, 1), (8, 2), (10, 2), (20, 4), (50, 10)])
def test_the_default_order_is_a_fifth_of_k_and_at_least_one(k, order):
    assert backward.default_series_order(k) == order


def test_the_values_are_those_of_divide_and_conquer():
    x = torch.randn(3, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(backward.log_sigma(x, 4), divide_and_conquer.log_sigma(x, 4), rtol=FLOAT64_ROUNDING, atol=0)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_recursion_is_accurate_where_no_element_dominates(k):
    x = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    _, unstable = backward.recursion(x, divide_and_conquer.log_sigma(x, k), k)
    assert not unstable.any()
    assert (marginals(x, k) - truth(x, k)).abs().max() < FLOAT32_RECURSION


def test_a_dominating_element_is_detected_and_no_other():
    _, unstable = backward.recursion(DOMINATED, divide_and_conquer.log_sigma(DOMINATED, 3), 3)
    assert not unstable[0, 0].any()  # δ_1 = 1 needs no subtraction
    assert unstable[0, 1:, 0].all()
    assert not unstable[0, :, 1:].any()


def test_the_series_repairs_a_dominating_element_in_float32():
    error = (marginals(DOMINATED, 3) - truth(DOMINATED, 3)).abs().max()
    assert error < FLOAT32_RECURSION
    log_delta, _ = backward.recursion(DOMINATED, divide_and_conquer.log_sigma(DOMINATED, 3), 3)
    log_truth = torch.log(torch.tensor(float(brute_force_sigma(DOMINATED[0, 1:].exp().tolist(), 2))))
    assert not abs(log_delta[0, 2, 0] - log_truth) < 1  # without it not even the order of magnitude is right


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_error_of_the_series_is_that_of_proposition_6(order):
    k, e = 2, [40.0, 3.0, 2.0, 1.5, 1.0, 0.5]
    x = torch.tensor([e], dtype=torch.float64).log()
    approximate = backward.series(x, divide_and_conquer.log_sigma(x, k + order), k, order)[0, k - 1, 0]
    exact = reference_marginals(x[0], k)[0]
    predicted = float(brute_force_sigma(e[1:], k + order) / (brute_force_sigma(e, k) * e[0] ** order))
    assert abs(abs(float(approximate) - float(exact)) - predicted) < FLOAT64_ROUNDING


def test_a_complete_series_is_exact():
    x = torch.tensor([[9.0, 1.0, 0.0, -1.0, 0.5]], dtype=torch.float64)
    complete = backward.series(x, divide_and_conquer.log_sigma(x, 5), 2, 3)[0, 1, 0]
    assert abs(complete - truth(x, 2)[0, 0]) < FLOAT64_ROUNDING


def test_the_series_is_not_controlled_when_two_elements_tie_at_the_top():
    x = torch.tensor([[40.0, 40.0, 40.0, 0.0, 0.0, 0.0]])  # k = 2 of three equal elements: the terms do not decrease
    series = backward.series(x, divide_and_conquer.log_sigma(x, 3), 2, 1)[0, 1, 0]
    assert abs(series - truth(x, 2)[0, 0]) < 1e-4  # complete after one term: only three elements count
    wide = torch.cat([torch.full((1, 6), 40.0), torch.zeros(1, 4)], 1)
    series = backward.series(wide, divide_and_conquer.log_sigma(wide, 3), 2, 1)[0, 1, 0]
    assert abs(series - truth(wide, 2)[0, 0]) > 0.5  # truncated while it still grows


def test_a_second_derivative_is_refused_not_wrong():
    x = torch.randn(1, 5, requires_grad=True)
    (slope,) = torch.autograd.grad(backward.log_sigma(x, 2)[0, 2], x, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(slope.sum(), x)


def test_the_series_order_reaches_the_algorithm_through_the_public_function():
    x = DOMINATED.double().requires_grad_()
    slopes = []
    for order in (0, 2):
        values = log_symmetric_polynomials(x - 22, 3, algorithm=NAME, series_order=order)
        slopes.append(torch.autograd.grad(values[0, 3], x)[0])
    assert not torch.equal(*slopes)


def test_it_works_under_the_function_transforms():
    x = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    slope = torch.func.vmap(torch.func.grad(lambda row: log_symmetric_polynomials(row, 2, algorithm=NAME)[2]))(x)
    torch.testing.assert_close(slope, marginals(x, 2))
