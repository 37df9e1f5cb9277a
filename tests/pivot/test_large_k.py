"""The backends for large k, Numba and plain torch, against arithmetic with 50 digits or more."""

import math
import threading
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

import numpy as np
import pytest
import torch
from compiler import needs_compiler
from kernel_accuracy import random_scores
from mpmath import mp, mpf
from reference import reference_gradient, reference_loss
from torch._subclasses.fake_tensor import FakeTensorMode

from smooth_topk.pivot import numba_large_k, numba_runtime, torch_large_k

LOSS_TOLERANCE = {torch.float32: 2e-7, torch.float64: 1e-13}  # relative
GRADIENT_TOLERANCE = {torch.float32: 4e-7, torch.float64: 1e-13}  # of the largest derivative
SMALLEST_LOSS = 1e-6  # below it the loss is the tail of an exponential, and only its size matters
SMALLEST_DERIVATIVE = torch.finfo(torch.float32).tiny  # what is smaller may be rounded to zero

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
needs_numba = pytest.mark.skipif(not numba_runtime.NUMBA_INSTALLED, reason="needs Numba: pip install numba")


@pytest.fixture(params=[pytest.param(numba_large_k, marks=needs_numba), torch_large_k], ids=["numba", "torch"])
def backend(request):
    return request.param


@pytest.fixture
def threads():
    """Sets the number of torch's threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def run(backend, scores, labels, k, tau, margin=1.0, grad_loss=None):
    """Losses and gradient."""
    losses, *state = backend.forward(scores, labels, k, tau, margin)
    grad_loss = torch.ones_like(losses) if grad_loss is None else grad_loss
    return losses, backend.backward(scores, tuple(state), grad_loss, k, tau)


def assert_close(loss, derivatives, true_loss, true_derivatives, dtype):
    """One row: the loss by its size, the derivatives by the largest of them."""
    if true_loss > SMALLEST_LOSS:
        assert abs(loss.item() - float(true_loss)) <= LOSS_TOLERANCE[dtype] * float(true_loss)
    else:
        assert abs(loss.item() - float(true_loss)) <= LOSS_TOLERANCE[dtype] * SMALLEST_LOSS
    truth = torch.tensor([float(derivative) for derivative in true_derivatives], dtype=torch.float64)
    bound = max(GRADIENT_TOLERANCE[dtype] * truth.abs().max().item(), SMALLEST_DERIVATIVE)
    assert (derivatives.double() - truth).abs().max() <= bound


def assert_exact(scores, labels, k, tau, losses, gradient, margin=1.0):
    """Losses and gradients equal the 60-digit reference within the tolerances."""
    for row, label, loss, derivatives in zip(scores.tolist(), labels.tolist(), losses, gradient, strict=True):
        arguments = row, label, k, tau, margin
        assert_close(loss, derivatives, reference_loss(*arguments), reference_gradient(*arguments), scores.dtype)


@DTYPES
@pytest.mark.parametrize("tau", [10.0, 0.3, 1e-2, 1e-4])
@pytest.mark.parametrize("k", range(1, 12))
def test_losses_and_gradients_are_exact_for_every_k_up_to_the_number_of_classes_minus_one(backend, k, tau, dtype):
    scale = torch.tensor([[1e-2], [1.0], [100.0]], dtype=torch.float64)
    scores, labels = random_scores(3, 12, scale, dtype)
    losses, gradient = run(backend, scores, labels, k, tau)
    assert losses.dtype == gradient.dtype == dtype
    assert_exact(scores, labels, k, tau, losses, gradient)


@DTYPES
@pytest.mark.parametrize(
    ("k", "classes", "tau"), [(9, 300, 1.0), (50, 100, 1.0), (50, 100, 0.02), (98, 100, 0.1), (149, 300, 0.05)]
)
def test_large_k_is_exact(backend, k, classes, tau, dtype):
    scores, labels = random_scores(2, classes, scale=3.0, dtype=dtype, seed=k)
    assert_exact(scores, labels, k, tau, *run(backend, scores, labels, k, tau))


def varied_scores(kind, classes, seed):
    """A row of scores: the kinds of data on which alternating sums are known to fail, and ordinary ones."""
    x = random_scores(1, classes, dtype=torch.float64, seed=seed)[0]
    return {"normal": x, "rounded": x.round(), "equal": 1 + 1e-6 * x, "heavy": x**5, "two groups": 9.0 * (x > 1)}[kind]


@DTYPES
@pytest.mark.parametrize("kind", ["normal", "rounded", "equal", "heavy", "two groups"])
@pytest.mark.parametrize("spread", [0.03, 1.0, 30.0])
@pytest.mark.parametrize(("k", "classes"), [(3, 40), (13, 40), (20, 40), (38, 40), (39, 40)])
def test_any_distribution_of_scores_is_exact_where_the_temperature_matters(backend, kind, spread, k, classes, dtype):
    tau = 0.7
    scores = (varied_scores(kind, classes, seed=k) * (spread * k * tau)).to(dtype)
    labels = torch.tensor([k % classes])
    assert_exact(scores, labels, k, tau, *run(backend, scores, labels, k, tau))


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
        (2000, 800, 1000, 1.0, 1.0),  # C(n, k) is 10^600, beyond float64
        (2000, 1500, 1000, 3.0, 1e-3),
        (10_000, 100, 200, 2.0, 0.01),
        (10_000, 5000, 5000, 0.5, 1e-3),
        (3000, 1000, 2998, 1.0, 0.1),
    ],
)
def test_thousands_of_classes_on_two_levels_are_exact(backend, classes, high, k, gap, tau, dtype):
    scores = torch.zeros(1, classes, dtype=dtype)
    scores[0, :high] = gap
    scores[0, -1] = true_score = 0.25
    losses, gradient = run(backend, scores, torch.tensor([classes - 1]), k, tau)
    loss, derivatives = two_levels(classes, high, k, gap, true_score, tau, 1.0)
    assert_close(losses[0], gradient[0, [-1, 0, high]], loss, derivatives, dtype)
    assert gradient[0, :high].unique().numel() == gradient[0, high:-1].unique().numel() == 1
    assert gradient.double().sum().abs() < classes * GRADIENT_TOLERANCE[dtype] * abs(float(derivatives[0]))


def sigmas(weights, k):
    """σ_0..σ_k by the recursion, in the current decimal context."""
    found = [Decimal(1)] + [Decimal(0)] * k
    for count, weight in enumerate(weights, 1):
        top = min(count, k) + 1
        found[1:top] = [upper + weight * lower for upper, lower in zip(found[1:top], found[: top - 1], strict=True)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "k", "tau"), [(2000, 1000, 1.0), (10_000, 200, 0.01)])
def test_thousands_of_random_scores_are_exact(backend, classes, k, tau):
    scores, _ = random_scores(1, classes, dtype=torch.float64)
    order = scores[0].argsort(descending=True).tolist()
    label, chosen = order[k + 5], order[k - 1]  # the pivot
    with localcontext(Context(prec=50, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        weights = [(Decimal(score) / (k * Decimal(tau))).exp() for score in scores[0].tolist()]
        all_others = sigmas([w for i, w in enumerate(weights) if i != label], k)
        without = sigmas([w for i, w in enumerate(weights) if i not in (label, chosen)], k - 1)
        odds = (1 / Decimal(tau)).exp() * all_others[k] / (weights[label] * all_others[k - 1])
        share = odds / (1 + odds) / k
        difference = without[k - 1] / all_others[k] - without[k - 2] / all_others[k - 1]
        loss, derivatives = Decimal(tau) * (1 + odds).ln(), (-share, share * weights[chosen] * difference)
    losses, gradient = run(backend, scores, torch.tensor([label]), k, tau)
    assert_close(losses[0], gradient[0, [label, chosen]], loss, derivatives, torch.float64)


@needs_numba
@pytest.mark.parametrize("tau", [1.0, 0.02])
@pytest.mark.parametrize("k", [1, 7, 8, 9, 16, 50])
@pytest.mark.parametrize("classes", [60, 1023, 1024, 1025, 2500])
def test_both_backends_agree_for_rows_of_any_length(classes, k, tau):
    scores, labels = random_scores(5, classes, scale=3.0, dtype=torch.float64)
    grad_loss = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    losses, gradient = run(numba_large_k, scores, labels, k, tau, 0.7, grad_loss)
    expected, expected_gradient = run(torch_large_k, scores, labels, k, tau, 0.7, grad_loss)
    torch.testing.assert_close(losses, expected, rtol=1e-13, atol=1e-19)
    assert ((gradient - expected_gradient).abs().amax(1) <= 1e-13 * expected_gradient.abs().amax(1)).all()


def test_a_class_at_minus_infinity_is_a_deleted_class(backend):
    scores, labels = random_scores(3, 80)
    labels = labels % 7
    kept = [*range(7), *range(40, 80)]
    scores[:, 7:40] = -math.inf
    for k in (4, 20, 46):  # 46: every other class that is left
        losses, gradient = run(backend, scores, labels, k, 1.0)
        assert_exact(scores[:, kept], labels, k, 1.0, losses, gradient[:, kept])
        assert gradient[:, 7:40].eq(0).all()


@DTYPES
def test_the_loss_is_zero_when_fewer_than_k_other_classes_exist(backend, dtype):
    scores = torch.full((3, 20), -math.inf, dtype=dtype)
    scores[0, :10] = torch.arange(10.0)
    scores[1, 0] = 1e30
    losses, gradient = run(backend, scores, torch.tensor([0, 0, 15]), 10, 1.0)
    assert losses.tolist() == [0.0, 0.0, 0.0]
    assert gradient.eq(0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("k", [1, 3, 40])
def test_nan_and_plus_infinity_make_their_own_row_nan_and_no_other(backend, bad, k):
    scores, _ = random_scores(6, 70)
    labels = torch.tensor([2] * 6)
    scores[0, 50] = bad
    scores[1, 2] = bad  # the label's own score
    scores[2] = bad
    scores[3] = -math.inf
    scores[3, 69] = bad
    scores[4, :60] = bad  # more than k of them
    losses, gradient = run(backend, scores, labels, k, 1.0)
    assert losses.isnan().tolist() == [True] * 5 + [False]
    assert gradient[:5].isnan().all()
    assert_exact(scores[5:], labels[5:], k, 1.0, losses[5:], gradient[5:])


def test_a_label_at_minus_infinity_costs_infinitely_much(backend):
    scores, labels = random_scores(2, 30)
    scores[0, labels[0]] = -math.inf
    losses, gradient = run(backend, scores, labels, 10, 1.0)
    assert losses[0] == math.inf
    assert gradient[0].sum().abs() < 1e-7
    assert gradient[0, labels[0]] == pytest.approx(-0.1)
    assert_exact(scores[1:], labels[1:], 10, 1.0, losses[1:], gradient[1:])


@DTYPES
def test_the_smallest_temperatures_and_the_largest_scores_give_the_hard_loss(backend, dtype):
    scores, labels = random_scores(4, 50, scale=1e30, dtype=dtype)
    scores[0] = 1.0  # ties
    others = scores.double().scatter(1, labels[:, None], -math.inf)
    hard = (1 + (others.topk(12).values[:, -1] - scores.double().gather(1, labels[:, None])[:, 0]) / 12).relu()
    for tau in (1e-300, 1e-40, 1e-20):
        losses, gradient = run(backend, scores, labels, 12, tau)
        torch.testing.assert_close(losses.double(), hard, rtol=LOSS_TOLERANCE[dtype], atol=0.0)
        assert gradient.isfinite().all()


@DTYPES
@pytest.mark.parametrize("tau", [1e6, 1e2])
def test_large_temperatures_are_exact(backend, tau, dtype):
    scores, labels = random_scores(2, 60, scale=10.0, dtype=dtype)
    assert_exact(scores, labels, 25, tau, *run(backend, scores, labels, 25, tau))


def test_small_differences_of_large_scores_count(backend):
    scores = torch.tensor([[1e8 + 8 * (j % 5) for j in range(30)]])
    labels = torch.tensor([7])
    assert_exact(scores, labels, 11, 1.0, *run(backend, scores, labels, 11, 1.0))


def test_the_margin_may_cancel_the_scores(backend):
    scores, labels = random_scores(1, 40)
    scores[0, labels] = 60.0
    assert_exact(scores, labels, 12, 1e-3, *run(backend, scores, labels, 12, 1e-3, margin=5.0), margin=5.0)


def test_a_tiny_share_times_a_huge_factor_from_above_keeps_its_digits(backend):
    scores = torch.zeros(1, 1000)
    scores[0, 0] = 4000.0
    labels = torch.tensor([0])
    _, once = run(backend, scores.double(), labels, 17, 1.0, grad_loss=torch.tensor([1.0]))
    _, gradient = run(backend, scores, labels, 17, 1.0, grad_loss=torch.tensor([1e100], dtype=torch.float64))
    assert 0 < -once[0, 0] < 1e-90
    torch.testing.assert_close(gradient.double(), once * 1e100, rtol=1e-6, atol=0.0)
    assert gradient.sum().abs() < 1e-6 * gradient.abs().max()


def test_half_precision_is_computed_in_float32(backend):
    scores, labels = random_scores(3, 40)
    for dtype in (torch.float16, torch.bfloat16):
        losses, gradient = run(backend, scores.to(dtype), labels, 12, 1.0)
        expected, expected_gradient = run(backend, scores.to(dtype).float(), labels, 12, 1.0)
        assert torch.equal(losses, expected)
        assert torch.equal(gradient, expected_gradient)


def test_any_strides_are_taken(backend):
    scores, labels = random_scores(6, 200)
    expected, expected_gradient = run(backend, scores, labels, 15, 1.0)
    strided = scores.T.contiguous().T
    grad_loss = torch.ones(()).expand(6)
    losses, gradient = run(backend, strided, labels.repeat_interleave(2)[::2].int(), 15, 1.0, grad_loss=grad_loss)
    assert torch.equal(losses, expected)
    assert torch.equal(gradient, expected_gradient)


def test_no_rows_give_no_losses(backend):
    losses, gradient = run(backend, torch.empty(0, 30), torch.empty(0, dtype=torch.int64), 13, 1.0)
    assert losses.shape == (0,)
    assert gradient.shape == (0, 30)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_blocks_of_rows_and_threads_change_nothing(backend, rows, threads, monkeypatch):
    scores, labels = random_scores(rows, 700)
    threads(1)
    expected, expected_gradient = run(backend, scores, labels, 20, 1.0)
    threads(3)
    monkeypatch.setattr(torch_large_k, "BLOCK", 1500)
    assert len(torch_large_k.blocks(scores)) == -(-rows // 2)
    losses, gradient = run(backend, scores, labels, 20, 1.0)
    torch.testing.assert_close(losses, expected, rtol=1e-7, atol=0.0)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-9)


def test_the_state_takes_a_few_numbers_per_row_and_k(backend):
    scores, labels = random_scores(7, 5000)
    _, *state = backend.forward(scores, labels, 40, 1.0, 1.0)
    per_row = 3 * 40 + 4 if backend is numba_large_k else 5 * 40 + 2
    assert sum(tensor.numel() for tensor in state) == 7 * per_row


@needs_numba
def test_calls_from_several_python_threads_do_not_disturb_each_other(threads):
    threads(2)
    problems = [random_scores(100, 150, seed=seed) for seed in range(4)]
    expected = [run(numba_large_k, *problem, 20, 1.0) for problem in problems]
    failures = []

    def work(problem, truth):
        for _ in range(10):
            if not all(map(torch.equal, run(numba_large_k, *problem, 20, 1.0), truth)):
                failures.append(truth)

    team = [threading.Thread(target=work, args=arguments) for arguments in zip(problems, expected, strict=True)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not failures


@needs_numba
@pytest.mark.parametrize("label", [-1, 30, 10**9, -(10**15)])
def test_numba_refuses_a_label_that_is_not_a_class(label):
    scores, labels = random_scores(9, 30)
    _, *state = numba_large_k.forward(scores, labels, 12, 1.0, 1.0)
    labels[4] = label
    with pytest.raises(IndexError, match=rf"labels must lie in \[0, 30\), got the label {label}\."):
        numba_large_k.forward(scores, labels, 12, 1.0, 1.0)
    with pytest.raises(IndexError, match=rf"labels must lie in \[0, 30\), got the label {label}\."):
        numba_large_k.backward(scores, (labels, *state[1:]), torch.ones(9), 12, 1.0)


@needs_numba
def test_numba_refuses_labels_elsewhere_and_a_k_out_of_range():
    scores, labels = random_scores(3, 30)
    with pytest.raises(ValueError, match=r"labels must be a plain tensor .* got .* on the device meta"):
        numba_large_k.forward(scores, labels.to("meta"), 12, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"labels must be a plain tensor of shape \(3,\) .* of shape \(2,\)"):
        numba_large_k.forward(scores, labels[:2], 12, 1.0, 1.0)
    for k in (0, 30):
        with pytest.raises(ValueError, match=f"got k={k} for 30 classes"):
            numba_large_k.forward(scores, labels, k, 1.0, 1.0)


@pytest.mark.parametrize("label", [-1, 30, 10**9])
def test_in_plain_torch_a_label_that_is_not_a_class_makes_its_row_nan(label):
    scores, labels = random_scores(3, 30)
    expected, expected_gradient = run(torch_large_k, scores, labels, 12, 1.0)
    labels[1] = label
    losses, gradient = run(torch_large_k, scores, labels, 12, 1.0)
    assert losses[1].isnan()
    assert gradient[1].isnan().all()
    assert torch.equal(losses[[0, 2]], expected[[0, 2]])
    assert torch.equal(gradient[[0, 2]], expected_gradient[[0, 2]])


def test_what_is_supported():
    assert torch_large_k.supports(torch.zeros(1, 50, device="meta"), 49)
    for k in (1, 49):
        assert numba_large_k.supports(torch.zeros(1, 50), k) == numba_runtime.NUMBA_INSTALLED
    assert not numba_large_k.supports(torch.zeros(1, 50, device="meta"), 5)
    assert not numba_large_k.supports(torch.zeros(1, 50, dtype=torch.int64), 5)
    with FakeTensorMode():
        assert not numba_large_k.supports(torch.zeros(1, 50), 5)


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_plain_torch_takes_tensors_without_numbers(device):
    with FakeTensorMode():
        place = {"device": "meta"} if device == "meta" else {}
        scores, labels = torch.zeros(4, 60, **place), torch.zeros(4, dtype=torch.int64, **place)
        losses, gradient = run(torch_large_k, scores, labels, 33, 1.0)
    assert losses.shape == (4,)
    assert gradient.shape == (4, 60)


def test_the_operators_for_compilers_describe_their_results():
    scores, labels = random_scores(4, 30)
    torch.library.opcheck(torch_large_k.forward_operator, (scores, labels, 12, 1.0, 1.0))
    state = torch_large_k.forward(scores, labels, 12, 1.0, 1.0)[1:]
    torch.library.opcheck(torch_large_k.backward_operator, (scores, *state, torch.ones(4), 12, 1.0))


@needs_compiler
@pytest.mark.slow
def test_torch_compile_traces_plain_torch_for_several_numbers_of_classes():
    compiled = torch.compile(lambda *arguments: run(torch_large_k, *arguments, 40, 0.5), fullgraph=True)
    for classes in (41, 60, 100):
        scores, labels = random_scores(4, classes)
        for result, expected in zip(compiled(scores, labels), run(torch_large_k, scores, labels, 40, 0.5), strict=True):
            torch.testing.assert_close(result, expected)


@needs_numba
@DTYPES
def test_the_kth_largest_score_is_found_among_all_kinds_of_numbers(dtype):
    from smooth_topk.pivot.numba_large_k_kernels import kth_largest

    tiny = torch.finfo(dtype).tiny
    special = [
        0.0,
        -0.0,
        tiny / 4,
        -tiny / 4,
        1.0,
        1.0,
        -1.0,
        torch.finfo(dtype).max,
        torch.finfo(dtype).min,
        -math.inf,
    ]
    rows = [torch.tensor(special, dtype=dtype), random_scores(1, 100, dtype=dtype)[0][0], torch.zeros(5, dtype=dtype)]
    for row in rows:
        for label in (0, len(row) - 1):
            others = row[[i for i in range(len(row)) if i != label]].sort(descending=True).values
            for k in range(1, len(row)):
                assert kth_largest(row.numpy(), label, k, np.empty_like(row.numpy())) == others[k - 1].item()


@pytest.mark.parametrize("count", [4, 50, 400, 1500])
def test_newtons_identities_are_stable_for_numbers_up_to_one(count):
    """All ones are the worst case; beyond 1,000 the polynomial exceeds float64 and is scaled down on the way."""
    ones = torch.ones(count, 1, dtype=torch.float64)
    found = torch_large_k.newton(torch_large_k.power_sums(ones, count))[:, 0]
    truth = torch.tensor([math.comb(count, j) / 2**count for j in range(count + 1)], dtype=torch.float64)
    torch.testing.assert_close(found / found.sum(), truth, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("k", [1, 13, 199])
def test_the_balance_expects_k_minus_a_half_classes(k):
    x, _ = random_scores(1, 200, scale=torch.logspace(-3, 3, 7)[:, None].double(), dtype=torch.float32)
    x = x - x.topk(k).values[:, -1:]
    expected = torch.sigmoid(x + torch_large_k.balancing_shift(x, k)).sum(1)
    assert ((expected - (k - 0.5)).abs() <= 0.25).all()
