"""The pivot algorithm where the number of subsets itself exceeds single and double precision."""

from math import comb, log

import pytest
import torch
from mpmath import mp, mpf
from reference import reference_gradient, reference_log_sigma, reference_loss, reference_marginals

from smooth_topk import log_symmetric_polynomials, smooth_topk_loss, topk_probabilities
from smooth_topk.pivot.composition import composed_losses
from smooth_topk.polynomials import pivot

SINGLE_PRECISION = 1e-6  # a few roundings of float32
LOSS, GRADIENT = 1e-12, 1e-11  # what the package promises in float64
DIFFERENCE = 1e-9  # of two probabilities that share three to five digits
BEYOND_FLOAT64 = [(200, 10_000), (550, 1100), pytest.param(1098, 1100, marks=pytest.mark.slow)]


@pytest.fixture
def in_logarithms(monkeypatch):
    """Small rows take the way of the largest ones."""
    monkeypatch.setattr(pivot, "fits", lambda *arguments: False)


@pytest.mark.parametrize(
    ("x", "largest"),
    [
        ([1e305, 1e304, 0.0, -1e303], [1e305, 1.1e305, 1.1e305, 1.09e305]),
        ([1.7e308, 0.0, -1.7e308], [1.7e308, 1.7e308, 0.0]),  # a difference of two elements overflows
        ([1e301, 5e300, 0.0, -torch.inf], [1e301, 1.5e301, 1.5e301, -torch.inf]),
        ([1.7e308, 1.7e308, -torch.inf], [1.7e308, torch.inf, -torch.inf]),
    ],
)
def test_logarithms_up_to_the_largest_number_keep_their_values_and_gradients(x, largest):
    leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    log_sigmas = log_symmetric_polynomials(leaf, len(x))
    torch.testing.assert_close(log_sigmas[1:], torch.tensor(largest, dtype=torch.float64), rtol=LOSS, atol=0.0)
    for k in range(1, len(x) + 1):
        (slope,) = torch.autograd.grad(log_sigmas[k], leaf, retain_graph=True)
        among = (torch.arange(len(x)) < k) & bool(log_sigmas[k] > -torch.inf)  # one subset has all of the weight
        assert torch.equal(slope, among.double()) or x[k - 1 :][:2] == [x[0]] * 2


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 296), (torch.bfloat16, 296), (torch.float64, 115)])
def test_the_number_of_subsets_decides_the_arithmetic(dtype, most):
    scores = torch.zeros(1, 1000, dtype=dtype)
    assert [pivot.fits(scores, k) for k in (1, most, most + 1, 999)] == [True, True, False, False]


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


@pytest.mark.parametrize(("k", "n"), BEYOND_FLOAT64)
def test_the_polynomials_of_equal_scores_are_binomials_beyond_float64(k, n):
    assert max(comb(n, j) for j in (k, min(k, n // 2))) > torch.finfo(torch.float64).max
    truth = torch.tensor([float(mp.log(comb(n, j))) for j in range(k + 1)], dtype=torch.float64)
    log_sigmas = log_symmetric_polynomials(torch.zeros(n, dtype=torch.float64), k)
    torch.testing.assert_close(log_sigmas, truth, rtol=LOSS, atol=LOSS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("k", "n"), BEYOND_FLOAT64)
def test_the_loss_of_equal_scores_and_its_gradient_are_exact_beyond_float64(k, n, dtype):
    tau, label = 0.1, 3
    scores = torch.full((1, n), 2.0, dtype=dtype, requires_grad=True)
    loss = smooth_topk_loss(scores, torch.tensor([label]), k=k, tau=tau)
    (gradient,) = torch.autograd.grad(loss, scores)
    z = 1 / mpf(tau) + mp.log(mpf(n - k) / k)  # log of C(n - 1, k) / C(n - 1, k - 1)
    weight = 1 / (1 + mp.exp(-z)) / k
    truth = torch.full((1, n), float(weight / (n - 1)), dtype=torch.float64)
    truth[0, label] = -float(weight)
    loss_tolerance, tolerance = (LOSS, GRADIENT) if dtype == torch.float64 else (SINGLE_PRECISION,) * 2
    assert loss.item() == pytest.approx(float(mpf(tau) * mp.log1p(mp.exp(z))), rel=loss_tolerance)
    assert (gradient - truth).abs().max() <= tolerance * truth.abs().max()
    others = torch.arange(n) != label  # each a thousandth of the label's, or less
    relative = max(DIFFERENCE, tolerance)
    torch.testing.assert_close(gradient[:, others].double(), truth[:, others], rtol=relative, atol=0.0)


@pytest.mark.parametrize(("k", "n"), BEYOND_FLOAT64)
def test_the_probabilities_of_equal_scores_are_k_over_n_beyond_float64(k, n):
    probabilities = topk_probabilities(torch.zeros(n, dtype=torch.float64), k)
    torch.testing.assert_close(probabilities, torch.full_like(probabilities, k / n), rtol=GRADIENT, atol=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "n"), [(200, 400), (520, 1040)])
def test_random_scores_are_exact_for_half_of_many_classes(k, n):
    """C(400, 200) is 10^119, C(1040, 520) is 10^311."""
    scores = 3 * torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    tau, label = 1 / k, 5
    leaf = scores[None].clone().requires_grad_()
    loss = smooth_topk_loss(leaf, torch.tensor([label]), k=k, tau=tau)
    (gradient,) = torch.autograd.grad(loss, leaf)
    truth = torch.tensor([float(d) for d in reference_gradient(scores.tolist(), label, k, tau)], dtype=torch.float64)
    assert loss.item() == pytest.approx(float(reference_loss(scores.tolist(), label, k, tau)), rel=LOSS)
    assert (gradient[0] - truth).abs().max() <= GRADIENT * truth.abs().max()
    log_sigmas = torch.tensor([float(v) for v in reference_log_sigma(scores, k)], dtype=torch.float64)
    torch.testing.assert_close(log_symmetric_polynomials(scores, k), log_sigmas, rtol=LOSS, atol=LOSS)


@pytest.mark.parametrize(("k", "n"), [(200, 1000), (550, 1100)])
def test_second_derivatives_of_equal_scores_are_covariances_however_many_subsets(k, n):
    """∂² log σ_k / ∂x_i ∂x_j is the covariance of "i is in" and "j is in" (Proposition 7)."""
    x = torch.zeros(1, n, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(pivot.log_sigma(x, k)[0, k], x, create_graph=True)
    (second,) = torch.autograd.grad(slope[0, 0], x)
    variance, covariance = k / n * (1 - k / n), k * (k - 1) / (n * (n - 1)) - (k / n) ** 2
    truth = torch.full_like(second, covariance)
    truth[0, 0] = variance
    torch.testing.assert_close(second, truth, rtol=DIFFERENCE, atol=0.0)


@pytest.mark.parametrize("tau", [10.0, 1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("kind", ["random", "tied", "deleted"])
def test_the_way_of_logarithms_is_exact_at_every_temperature_and_scale(in_logarithms, kind, tau):
    generator = torch.Generator().manual_seed(1)
    for (k, n), scale in [((1, 2), 1.0), ((3, 12), 1e-2), ((5, 6), 100.0), ((5, 30), 10.0), ((10, 12), 1.0)]:
        scores = scale * torch.randn(n, generator=generator, dtype=torch.float64)
        if kind == "tied":
            scores = (2 * scores / scale).round() * scale / 2
        if kind == "deleted":
            scores[1 : n - k] = -torch.inf
        leaf = scores[None].clone().requires_grad_()
        loss = composed_losses(leaf, torch.tensor([0]), k, tau, 1.0)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        truth = torch.tensor([float(d) for d in reference_gradient(scores.tolist(), 0, k, tau)], dtype=torch.float64)
        true_loss = float(reference_loss(scores.tolist(), 0, k, tau))
        assert loss.item() == pytest.approx(true_loss, rel=LOSS, abs=LOSS * 1e-6)
        assert (gradient[0] - truth).abs().max() <= max(GRADIENT * truth.abs().max(), 1e-300)
        marginals = torch.tensor([float(p) for p in reference_marginals(scores / (k * tau), k)], dtype=torch.float64)
        assert (topk_probabilities(scores, k, tau=tau) - marginals).abs().max() < GRADIENT


def test_the_way_of_logarithms_is_twice_differentiable_with_ties_and_deleted_classes(in_logarithms):
    scores = torch.tensor([[1.0, 1.0, 0.0, 1.0, -1.0, -torch.inf]], dtype=torch.float64)

    def losses(finite):
        return composed_losses(torch.cat([finite, scores[:, 5:]], 1), torch.tensor([2]), 2, 0.5, 1.0)

    leaf = scores[:, :5].clone().requires_grad_()
    assert torch.autograd.gradcheck(losses, leaf)
    assert torch.autograd.gradgradcheck(losses, leaf)


def test_the_way_of_logarithms_has_no_loss_and_no_gradient_where_no_subset_exists(in_logarithms):
    scores = torch.tensor([[0.0, 1.0, -torch.inf, -torch.inf]], requires_grad=True)
    loss = composed_losses(scores, torch.tensor([0]), 2, 1.0, 1.0)
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    assert loss.item() == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("way", ["linear", "logarithms"])
def test_blocks_of_rows_do_not_change_the_probabilities_or_the_gradient(way, monkeypatch):
    if way == "logarithms":
        monkeypatch.setattr(pivot, "fits", lambda *arguments: False)
    scores = torch.randn(7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(7)

    def run():
        leaf = scores.clone().requires_grad_()
        return topk_probabilities(scores, 3), *torch.autograd.grad(
            composed_losses(leaf, labels, 3, 0.5, 1.0).sum(), leaf
        )

    whole = run()
    monkeypatch.setattr(pivot, "MEMORY", 3 * 12 * 2)  # two rows per block, and one in the last
    for blocked, expected in zip(run(), whole, strict=True):
        torch.testing.assert_close(blocked, expected, rtol=LOSS, atol=LOSS)
