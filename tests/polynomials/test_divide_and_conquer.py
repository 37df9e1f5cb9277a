"""Algorithm 1 in log space, differentiated by autograd."""

import pytest
import torch
from reference import reference_log_sigma, reference_marginals

from smooth_topk.polynomials import divide_and_conquer

FLOAT32_LOGARITHMS = 1e-6  # relative: ten levels of the tree, one rounding of 6e-8 each
FLOAT64_ROUNDING = 1e-11  # a rounding of the logarithm, which reaches 1e5 at the lowest temperature


def scores(n, tau, dtype, k):
    s = 3 * torch.randn(1, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    return (s / (k * tau)).to(dtype)


@pytest.mark.parametrize("tau", [10.0, 1.0, 1e-2, 1e-4])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 2), (3, 3), (5, 6), (5, 7), (5, 100), (20, 22), (5, 1000)])
def test_the_logarithms_are_accurate_in_float32_at_every_temperature(k, n, tau):
    x = scores(n, tau, torch.float32, k)
    truth = torch.tensor([[float(v) for v in reference_log_sigma(x[0], k)]])
    error = (divide_and_conquer.log_sigma(x, k) - truth).abs().max()
    assert error <= FLOAT32_LOGARITHMS * max(1.0, truth.abs().max())


@pytest.mark.parametrize("tau", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize(("k", "n"), [(3, 4), (5, 41)])
def test_autograd_gives_the_marginals_in_float64(k, n, tau):
    x = scores(n, tau, torch.float64, k).requires_grad_()
    (slope,) = torch.autograd.grad(divide_and_conquer.log_sigma(x, k)[0, k], x)
    truth = torch.tensor([float(v) for v in reference_marginals(x[0].tolist(), k)], dtype=torch.float64)
    assert (slope[0] - truth).abs().max() < FLOAT64_ROUNDING


def test_it_does_not_overflow_until_the_scores_themselves_do():
    assert divide_and_conquer.log_sigma(scores(1000, 1e-34, torch.float32, 5), 5).isfinite().all()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 64, 65])
def test_odd_counts_are_padded_by_the_polynomial_one(n):
    counts = divide_and_conquer.log_sigma(torch.zeros(1, n, dtype=torch.float64), n).exp()
    pascal = torch.tensor([1.0], dtype=torch.float64)
    for _ in range(n):
        pascal = torch.nn.functional.pad(pascal, (1, 0)) + torch.nn.functional.pad(pascal, (0, 1))
    torch.testing.assert_close(counts[0], pascal)


def test_the_log_of_a_sum_of_zeros_has_the_derivative_zero():
    terms = torch.full((2, 3), -torch.inf, requires_grad=True)
    total = divide_and_conquer.log_sum_exp(terms)
    assert (total == -torch.inf).all()
    (slope,) = torch.autograd.grad(total.sum(), terms)
    assert (slope == 0).all()
