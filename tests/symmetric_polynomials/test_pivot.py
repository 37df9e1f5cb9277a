"""The pivot algorithm where the number of subsets itself exceeds single precision."""

from math import comb, log

import pytest
import torch

from smooth_topk import log_symmetric_polynomials, smooth_topk_loss

SINGLE_PRECISION = 1e-6  # a few roundings of float32


@pytest.mark.parametrize("k", [20, 50, 100])
def test_more_subsets_than_the_largest_float32_do_not_overflow(k):
    assert comb(1000, k) > torch.finfo(torch.float32).max
    log_sigma = log_symmetric_polynomials(torch.zeros(1000), k)[k].item()
    assert log_sigma == pytest.approx(log(comb(1000, k)), rel=SINGLE_PRECISION)


@pytest.mark.parametrize("k", [20, 33, 50, 100])
def test_the_loss_and_its_gradient_are_those_of_float64_for_any_k(k):
    scores = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.tensor([3, 4])
    loss = smooth_topk_loss(scores, labels, k=k, tau=1.0)
    double = scores.detach().double().requires_grad_()
    truth = smooth_topk_loss(double, labels, k=k, tau=1.0)
    (gradient,), (truth_gradient,) = torch.autograd.grad(loss, scores), torch.autograd.grad(truth, double)
    assert loss.item() == pytest.approx(truth.item(), rel=SINGLE_PRECISION)
    assert (gradient - truth_gradient).abs().max() <= SINGLE_PRECISION * truth_gradient.abs().max()
