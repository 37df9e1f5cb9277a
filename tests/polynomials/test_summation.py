"""Algorithm 3: accurate inside the floating point range; outside it overflows, as the paper reports (Table 5)."""

import pytest
import torch
from reference import reference_log_sigma

from smooth_topk.polynomials import summation

FLOAT32_ROUNDING = 2e-6  # relative to values of order ten


def imagenet_like_scores(tau, dtype, k=5, rows=1):
    """x = s/(k tau) for 1,000 classes with scores of scale 3, about what a trained network gives."""
    scores = 3 * torch.randn(rows, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (scores / (k * tau)).to(dtype)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_a_thousand_elements_are_accurate_in_float32(k):
    x = imagenet_like_scores(1.0, torch.float32, k)
    truth = torch.tensor([[float(v) for v in reference_log_sigma(x[0], k)]])
    torch.testing.assert_close(summation.log_sigma(x, k), truth, rtol=FLOAT32_ROUNDING, atol=FLOAT32_ROUNDING)


@pytest.mark.parametrize(
    ("dtype", "fits", "overflows"), [(torch.float32, 1.0, 0.1), (torch.float64, 0.1, 0.01)], ids=["single", "double"]
)
def test_it_overflows_at_the_temperatures_of_the_paper(dtype, fits, overflows):
    batch = 128  # the paper's
    assert summation.log_sigma(imagenet_like_scores(fits, dtype, rows=batch), 5).isfinite().all()
    assert summation.log_sigma(imagenet_like_scores(overflows, dtype, rows=batch), 5).isinf().any()


def test_the_number_of_subsets_alone_overflows_float32():
    assert summation.log_sigma(torch.zeros(1, 1000), 20)[0, 20] == torch.inf  # C(1000, 20) = 3e41


def test_what_underflows_is_minus_infinity_with_a_zero_derivative():
    x = torch.full((1, 3), -60.0, requires_grad=True)
    values = summation.log_sigma(x, 2)
    (slope,) = torch.autograd.grad(values[0, 2], x)
    assert values[0, 2] == -torch.inf
    assert (slope == 0).all()
