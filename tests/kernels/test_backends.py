"""Every backend against 60 digits: any k, temperature, scale, length of rows; edges; weights and reductions."""

import math

import pytest
import torch
from accuracy import GRADIENT, LOSS, assert_close, assert_exact, random_scores
from mpmath import mp, mpf
from torch._subclasses.fake_tensor import FakeTensorMode

from smooth_topk.pivot import numba_backend, torch_backend

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@pytest.fixture(autouse=True)
def double_where_it_exists(request, backend):
    if "triton" in backend.name and request.node.callspec.params.get("dtype") == torch.float64:
        pytest.skip("the Triton kernels are for float32")


@DTYPES
@pytest.mark.parametrize("tau", [10.0, 0.3, 1e-2, 1e-4])
@pytest.mark.parametrize("k", range(1, 12))
def test_losses_and_gradients_are_exact_for_every_k_temperature_and_scale(backend, k, tau, dtype):
    scale = torch.tensor([[1e-2], [1.0], [100.0]], dtype=torch.float64)
    scores, labels = random_scores(3, 12, scale, dtype)
    losses, gradient = backend.run(scores, labels, k, tau)
    assert losses.dtype == gradient.dtype == dtype
    assert_exact(scores, labels, k, tau, losses, gradient)


LARGER_K = [(5, 33, 1.0), (8, 70, 0.1), (9, 300, 1.0), (14, 16, 1e-4), (16, 17, 1.0), (16, 40, 10.0), (17, 40, 10.0)]
LARGER_K += [(20, 22, 1e-4), (32, 40, 10.0), (33, 40, 1.0), (50, 100, 0.02), (98, 100, 0.1), (149, 300, 0.05)]


@DTYPES
@pytest.mark.parametrize(("k", "classes", "tau"), LARGER_K)
def test_larger_k_are_exact_too(backend, k, classes, tau, dtype):
    scores, labels = random_scores(2, classes, scale=3.0, dtype=dtype, seed=k)
    assert_exact(scores, labels, k, tau, *backend.run(scores, labels, k, tau))


def varied_scores(kind, classes, seed):
    """A row of scores: the kinds of data on which alternating sums are known to fail, and ordinary ones."""
    x = random_scores(1, classes, dtype=torch.float64, seed=seed)[0]
    return {"rounded": x.round(), "equal": 1 + 1e-6 * x, "heavy": x**5, "two groups": 9.0 * (x > 1)}[kind]


@DTYPES
@pytest.mark.parametrize("kind", ["rounded", "equal", "heavy", "two groups"])
@pytest.mark.parametrize("spread", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("k", [3, 13, 20, 38])
def test_any_distribution_of_scores_is_exact_where_the_temperature_matters(backend, kind, spread, k, dtype):
    scores, labels = (varied_scores(kind, 40, seed=k) * (spread * k * 0.7)).to(dtype), torch.tensor([k])
    assert_exact(scores, labels, k, 0.7, *backend.run(scores, labels, k, 0.7))


def two_levels(classes, high, k, gap, true_score, tau, margin):
    """Loss, and derivatives by the label, by a class of score `gap` and by a class of score 0, of which there are many.

    σ_j = Σ_i C(h, i) a^i C(n - h, j - i) with a = exp(gap/(kτ)): sums of positive numbers in 60 digits.
    """
    others = classes - 1
    a, tau = mp.exp(mpf(gap) / (k * mpf(tau))), mpf(tau)

    def binomials(count, base):
        terms = [mpf(1)]
        for j in range(1, k + 1):
            terms.append(terms[-1] * base * (count - j + 1) / j)
        return terms

    def sigma(j, upper, lower):
        return mp.fsum(upper[i] * lower[j - i] for i in range(j + 1))

    upper, lower = binomials(high, a), binomials(others - high, 1)
    without_high, without_low = binomials(high - 1, a), binomials(others - high - 1, 1)
    sigma_k, sigma_below = sigma(k, upper, lower), sigma(k - 1, upper, lower)
    z = mpf(margin) / tau - mpf(true_score) / (k * tau) + mp.log(sigma_k / sigma_below)
    share = 1 / (1 + mp.exp(-z)) / k
    by_high = a * (sigma(k - 1, without_high, lower) / sigma_k - sigma(k - 2, without_high, lower) / sigma_below)
    by_low = sigma(k - 1, upper, without_low) / sigma_k - sigma(k - 2, upper, without_low) / sigma_below
    return tau * mp.log1p(mp.exp(z)), (-share, share * by_high, share * by_low)


@DTYPES
@pytest.mark.parametrize(
    ("classes", "high", "k", "gap", "tau"),
    [
        (2000, 3, 5, 5.0, 0.1),
        (100_000, 4, 16, 30.0, 0.2),
        (2000, 800, 1000, 1.0, 1.0),  # C(n, k) is 10^600, beyond float64
        (10_000, 100, 200, 2.0, 0.01),
        (3000, 1000, 2998, 1.0, 0.1),
    ],
)
def test_thousands_of_classes_on_two_levels_are_exact(backend, classes, high, k, gap, tau, dtype):
    scores = torch.zeros(1, classes, dtype=dtype)
    scores[0, :high], scores[0, -1] = gap, 0.25
    losses, gradient = backend.run(scores, torch.tensor([classes - 1]), k, tau)
    loss, derivatives = two_levels(classes, high, k, gap, 0.25, tau, 1.0)
    assert_close(losses[0], gradient[0, [-1, 0, high]], loss, derivatives, dtype)
    assert gradient.double().sum().abs() < classes * GRADIENT[dtype] * abs(float(derivatives[0]))


@pytest.mark.parametrize("tau", [1.0, 0.05])
@pytest.mark.parametrize("k", [1, 5, 8, 16, 50])
@pytest.mark.parametrize("classes", [100, 1023, 1024, 1025, 5000, (1 << 14) + 9])
def test_rows_of_any_length_agree_with_float64_in_plain_torch(backend, classes, k, tau):
    scores, labels = random_scores(140 if classes == 100 else 3, classes, scale=3.0)
    losses, gradient = (t.cpu().double() for t in backend.run(scores, labels, k, tau, 0.7))
    settings = numba_backend.Settings(k, tau, 0.7, -100, "none", 0.0)
    expected, expected_gradient = torch_backend.loss_and_gradient(scores.double(), labels, None, settings)
    torch.testing.assert_close(losses, expected, rtol=LOSS[torch.float32], atol=2e-12)
    error = (gradient - expected_gradient).abs().amax(1) / expected_gradient.abs().amax(1)
    assert error.max() < GRADIENT[torch.float32]


@DTYPES
@pytest.mark.parametrize("tau", [1.0, 1e-3])
def test_ties_and_sorted_classes_are_exact(backend, tau, dtype):
    scores = torch.tensor([[1, 0, 1, 1, 0, 1, 1, 1, 0, 1], [2] * 10, [0, 0, 0, 0, 0, 0, 0, 0, 0, 5]], dtype=dtype)
    labels = torch.tensor([0, 3, 9])
    for k in (1, 3, 8):
        assert_exact(scores, labels, k, tau, *backend.run(scores, labels, k, tau))
    scores, labels = random_scores(2, 150, dtype=dtype)
    for descending in (False, True):
        ordered = scores.sort(1, descending=descending).values
        assert_exact(ordered, labels, 5, tau, *backend.run(ordered, labels, 5, tau))


@DTYPES
def test_a_class_at_minus_infinity_is_a_deleted_class(backend, dtype):
    scores, labels = random_scores(3, 80, dtype=dtype)
    labels = labels % 7
    kept = [*range(7), *range(40, 80)]
    scores[:, 7:40] = -math.inf
    for k in (4, 20, 46):  # 46: every other class that is left
        losses, gradient = backend.run(scores, labels, k, 1.0)
        assert_exact(scores[:, kept], labels, k, 1.0, losses, gradient[:, kept])
        assert gradient[:, 7:40].eq(0).all()


@DTYPES
@pytest.mark.parametrize("k", [4, 18])
def test_the_loss_is_zero_when_fewer_than_k_other_classes_exist(backend, k, dtype):
    scores = torch.full((3, 25), -math.inf, dtype=dtype)
    scores[0, :k] = torch.arange(float(k))
    scores[1, 0] = 1e30
    losses, gradient = backend.run(scores, torch.tensor([0, 0, 15]), k, 1.0)
    assert losses.tolist() == [0.0, 0.0, 0.0]
    assert gradient.eq(0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("k", [1, 3, 9, 40])
def test_nan_and_plus_infinity_make_their_own_row_nan_and_no_other(backend, bad, k):
    scores, _ = random_scores(6, 70)
    labels = torch.tensor([2] * 6)
    scores[0, 50] = bad
    scores[1, 2] = bad  # the label's own score
    scores[2] = bad
    scores[3], scores[3, 69] = -math.inf, bad
    scores[4, :60] = bad  # more than k of them
    losses, gradient = backend.run(scores, labels, k, 1.0)
    assert losses.isnan().tolist() == [True] * 5 + [False]
    assert gradient[:5].isnan().all()
    assert_exact(scores[5:], labels[5:], k, 1.0, losses[5:], gradient[5:])


@pytest.mark.parametrize("k", [2, 20])
def test_a_label_at_minus_infinity_costs_infinitely_much(backend, k):
    scores, labels = random_scores(2, 30)
    scores[0, labels[0]] = -math.inf
    losses, gradient = backend.run(scores, labels, k, 1.0)
    assert losses[0] == math.inf
    assert gradient[0].sum().abs() < 1e-6
    assert gradient[0, labels[0]].item() == pytest.approx(-1 / k)


@DTYPES
@pytest.mark.parametrize("k", [5, 20])
def test_the_smallest_temperatures_and_the_largest_scores_give_the_hard_loss(backend, k, dtype):
    scores, labels = random_scores(4, 50, scale=1e30, dtype=dtype)
    scores[0] = 1.0  # ties
    others = scores.double().scatter(1, labels[:, None], -math.inf)
    hard = (1 + (others.topk(k).values[:, -1] - scores.double().gather(1, labels[:, None])[:, 0]) / k).relu()
    for tau in (1e-300, 1e-40, 1e-20):
        losses, gradient = backend.run(scores, labels, k, tau)
        torch.testing.assert_close(losses.cpu().double(), hard, rtol=LOSS[dtype], atol=0.0)
        assert gradient.isfinite().all()
    assert backend.run(scores, labels, k, 1e30)[1].isfinite().all()


@pytest.mark.parametrize("k", [1, 12])
def test_the_margin_may_cancel_the_scores_and_small_differences_of_large_scores_count(backend, k):
    scores, labels = random_scores(1, 40)
    scores[0, labels] = 5.0 * k
    assert_exact(scores, labels, k, 1e-3, *backend.run(scores, labels, k, 1e-3, margin=5.0), margin=5.0)
    scores = torch.tensor([[1e8 + 8 * (j % 5) for j in range(30)]])
    labels = torch.tensor([7])
    assert_exact(scores, labels, k, 1.0, *backend.run(scores, labels, k, 1.0))


@pytest.mark.parametrize("k", [5, 15, 20])
def test_any_strides_are_taken_and_no_rows_give_no_losses(backend, k):
    scores, labels = random_scores(6, 200)
    expected = backend.run(scores, labels, k, 1.0)
    strided = scores.T.contiguous().T
    found = backend.run(strided, labels.repeat_interleave(2)[::2], k, 1.0)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    losses, gradient = backend.run(scores[:0], labels[:0], k, 1.0)
    assert (losses.shape, gradient.shape) == ((0,), (0, 200))


@pytest.mark.parametrize("k", [4, 20])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore_index", [-100, 3])
@DTYPES
def test_weights_ignored_labels_and_reductions(backend, weighted, ignore_index, k, dtype):
    scores, labels = random_scores(150, 40, dtype=dtype)
    labels[::7] = ignore_index
    scores[0], scores[7] = math.nan, math.inf  # ignored
    weight = torch.rand(80, dtype=dtype)[::2] if weighted else None
    counts = (labels != ignore_index).to(dtype) * (1 if weight is None else weight[labels.clamp(min=0)])
    losses, gradient = (t.cpu() for t in backend.run(scores, labels % 40, k, 0.3))
    expected = {"none": torch.where(counts > 0, losses * counts, 0.0)}
    derivatives = {"none": torch.where(counts[:, None] > 0, gradient * counts[:, None], 0.0)}
    for reduction, divisor in (("sum", 1.0), ("mean", counts.sum())):
        expected[reduction], derivatives[reduction] = (x["none"] / divisor for x in (expected, derivatives))
        expected[reduction] = expected[reduction].sum()
    options = {"weight": weight, "ignore_index": ignore_index}
    for reduction in expected:
        loss, found = backend.run(scores, labels, k, 0.3, reduction=reduction, **options)
        torch.testing.assert_close(loss.cpu(), expected[reduction])
        torch.testing.assert_close(found.cpu(), derivatives[reduction])
        alone, nothing = backend.run(scores, labels, k, 0.3, reduction=reduction, needs_gradient=False, **options)
        assert nothing is None
        assert torch.equal(alone, loss)
    chunks = [slice(0, 60), slice(60, 150)]
    whole = counts.sum().to(backend.device)
    parts = [
        backend.run(scores[part], labels[part], k, 0.3, reduction="mean", normaliser=whole, **options)
        for part in chunks
    ]
    torch.testing.assert_close(sum(loss for loss, _ in parts).cpu(), expected["mean"])
    torch.testing.assert_close(torch.cat([part for _, part in parts]).cpu(), derivatives["mean"])


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("k", [5, 20])
def test_the_number_of_threads_changes_nothing(backend, rows, k, threads):
    scores, labels = random_scores(rows, 1_200)
    threads(1)
    expected = backend.run(scores, labels, k, 1.0, reduction="mean")
    threads(2)
    for _ in range(5):
        found = backend.run(scores, labels, k, 1.0, reduction="mean")
        if "numba" in backend.name:
            assert all(map(torch.equal, found, expected))
        torch.testing.assert_close(found[1], expected[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("label", [-1, 30, 10**9, -(10**15)])
def test_a_label_that_is_not_a_class_is_refused_where_it_can_be_looked_at(backend, label):
    scores, labels = random_scores(9, 30)
    labels[4] = label
    for k in (5, 20):
        if backend.device == "cpu":
            with pytest.raises(IndexError, match=str(label)):
                backend.run(scores, labels, k, 1.0)
        else:
            losses, gradient = backend.run(scores, labels, k, 1.0)
            assert losses.isnan().nonzero().tolist() == [[4]]
            assert gradient.isnan().all(1).nonzero().tolist() == [[4]]


def test_tensors_without_numbers_are_left_to_plain_torch(backend):
    if backend.module is not torch_backend:
        assert not backend.module.supports(torch.zeros(1, 50, device="meta"), 5)
        with FakeTensorMode():
            assert not backend.module.supports(torch.zeros(1, 50), 5)
        return
    settings = numba_backend.Settings(20, 1.0, 0.7, -100, "mean", 0.0)
    with FakeTensorMode():
        for device in ("meta", "cpu"):
            scores, labels = torch.zeros(4, 60, device=device), torch.zeros(4, dtype=torch.int64, device=device)
            losses, gradient = torch_backend.loss_and_gradient(scores, labels, None, settings)
            assert (losses.shape, gradient.shape, gradient.device.type) == ((), (4, 60), device)
