"""Labels that are mixtures: probabilities and label smoothing, against cross-entropy and 60-digit arithmetic."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from reference import reference_gradient, reference_hard_loss, reference_loss

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.pivot.composition import composed_losses
from smooth_topk.pivot.every_label import losses_of_every_label
from smooth_topk.polynomials import pivot

AS_CROSS_ENTROPY = {"k": 1, "tau": 1.0, "margin": 0.0}
TOLERANCE = {torch.float32: 2e-7, torch.float64: 1e-13}  # a few roundings, relative
SMALLEST_LOSS = 1e-6  # below it the loss is the tail of an exponential


def value_and_gradient(function, scores, *arguments, **options):
    scores = scores.detach().clone().requires_grad_()
    value = function(scores, *arguments, **options)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return value.detach(), gradient


@pytest.mark.parametrize("shape", [(5, 9), (9,), (2, 9, 3)])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("labels", ["integers", "ignored", "probabilities", "one-hot"])
def test_with_k_1_tau_1_and_no_margin_it_is_cross_entropy(labels, smoothing, weighted, reduction, shape):
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    classes = torch.randint(9, shape[:1] + shape[2:] if len(shape) > 1 else (), generator=generator)
    if labels == "ignored":
        classes = classes.where(classes % 3 != 0, -100)
    if labels == "probabilities":
        classes = torch.softmax(torch.randn(shape, generator=generator, dtype=torch.float64), min(1, len(shape) - 1))
    if labels == "one-hot":
        classes = F.one_hot(classes, 9).double()
        classes = classes.movedim(-1, 1) if len(shape) > 1 else classes
    options = {"reduction": reduction, "label_smoothing": smoothing}
    options["weight"] = torch.rand(9, generator=generator, dtype=torch.float64) if weighted else None
    ours = value_and_gradient(smooth_topk_loss, scores, classes, **AS_CROSS_ENTROPY, **options)
    theirs = value_and_gradient(F.cross_entropy, scores, classes, **options)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("k", "classes"), [(1, 2), (2, 3), (3, 12), (5, 6), (5, 40), (20, 22)])
def test_every_label_has_the_loss_and_the_gradient_of_60_digits(k, classes, dtype):
    generator = torch.Generator().manual_seed(classes)
    for tau, scale, tied in itertools.product([10.0, 0.1, 1e-3], [1.0, 100.0], [False, True]):
        row = scale * torch.randn(classes, generator=generator, dtype=torch.float64)
        row = (row.round() if tied else row).to(dtype)
        probabilities = torch.rand(classes, generator=generator, dtype=torch.float64)
        losses = losses_of_every_label(row[None], k, tau, 1.0)[0]
        truth = [reference_loss(row.tolist(), label, k, tau) for label in range(classes)]
        for loss, true_loss in zip(losses.tolist(), truth, strict=True):
            assert abs(loss - true_loss) <= TOLERANCE[dtype] * max(true_loss, SMALLEST_LOSS)
        _, gradient = value_and_gradient(smooth_topk_loss, row[None], probabilities[None].to(dtype), k=k, tau=tau)
        given = probabilities.to(dtype).tolist()  # as the loss saw them
        true_gradient = [0] * classes
        for label, probability in enumerate(given):
            for i, derivative in enumerate(reference_gradient(row.tolist(), label, k, tau)):
                true_gradient[i] += probability * derivative
        largest = max(abs(derivative) for derivative in true_gradient)
        for derivative, true in zip(gradient[0].tolist(), true_gradient, strict=True):
            assert abs(derivative - true) <= 2 * TOLERANCE[dtype] * largest


@pytest.mark.parametrize(("k", "classes"), [(40, 60), (99, 100), (300, 1000)])
def test_large_k_agrees_with_one_label_at_a_time(k, classes):
    scores = torch.randn(1, classes, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
    labels = torch.arange(0, classes, max(1, classes // 10))
    expected = composed_losses(scores.expand(len(labels), -1), labels, k, 0.1, 1.0)
    torch.testing.assert_close(losses_of_every_label(scores, k, 0.1, 1.0)[0, labels], expected, rtol=1e-12, atol=1e-12)


def test_sums_in_logarithms_agree_with_plain_ones(monkeypatch):
    scores = 3 * torch.randn(4, 15, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[0, 3:6] = -torch.inf
    plain = value_and_gradient(losses_of_every_label, scores, 10, 0.5, 1.0)
    monkeypatch.setitem(pivot.SMALLEST_LOG_FACTOR, torch.float64, -1e9)
    assert not pivot.fits(scores, 10)
    for a, b in zip(value_and_gradient(losses_of_every_label, scores, 10, 0.5, 1.0), plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_a_mixture_of_two_labels_is_the_mixture_of_two_losses():
    """MixUp and CutMix."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 30, generator=generator)
    first, second = torch.randint(30, (2, 6), generator=generator)
    share = torch.rand(6, 1, generator=generator)
    probabilities = share * F.one_hot(first, 30) + (1 - share) * F.one_hot(second, 30)
    for loss in (smooth_topk_loss, hard_topk_loss):
        mixed = value_and_gradient(loss, scores, probabilities, k=5, reduction="none")

        def mixture(scores, loss=loss):
            one, other = (loss(scores, labels, k=5, reduction="none") for labels in (first, second))
            return share[:, 0] * one + (1 - share[:, 0]) * other

        for a, b in zip(mixed, value_and_gradient(mixture, scores), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_derivatives_by_scores_and_probabilities_match_finite_differences():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    probabilities = torch.rand(2, 7, generator=generator, dtype=torch.float64)
    probabilities[0, 2] = 0.0
    probabilities.requires_grad_()

    def losses(scores, probabilities):
        return smooth_topk_loss(scores, probabilities, k=3, tau=0.5, reduction="none")

    assert torch.autograd.gradcheck(losses, (scores, probabilities), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(losses, (scores, probabilities))
    each = torch.func.vmap(lambda row, q: smooth_topk_loss(row, q, k=3, tau=0.5))
    torch.testing.assert_close(each(scores, probabilities), losses(scores, probabilities))


def test_the_hard_loss_of_every_label():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    scores[0] = scores[0].round()
    for k in (1, 3, 7):
        for label in range(8):
            one_hot = F.one_hot(torch.full((5,), label), 8).double()
            losses = hard_topk_loss(scores, one_hot, k=k, reduction="none")
            truth = [float(reference_hard_loss(row.tolist(), label, k)) for row in scores]
            torch.testing.assert_close(losses, torch.tensor(truth, dtype=torch.float64))
            assert torch.equal(losses, hard_topk_loss(scores, torch.full((5,), label), k=k, reduction="none"))


def test_a_deleted_class_costs_infinitely_much_if_it_counts_and_nothing_if_not():
    scores = torch.tensor([[0.5, -torch.inf, 1.0, 2.0, -1.0]])
    probabilities = torch.tensor([[0.5, 0.0, 0.5, 0.0, 0.0]])
    value, gradient = value_and_gradient(smooth_topk_loss, scores, probabilities, k=2)
    kept = [0, 2, 3, 4]
    short, short_gradient = value_and_gradient(smooth_topk_loss, scores[:, kept], probabilities[:, kept], k=2)
    torch.testing.assert_close(value, short)
    torch.testing.assert_close(gradient[:, kept], short_gradient)
    assert gradient[0, 1] == 0
    value, gradient = value_and_gradient(smooth_topk_loss, scores, torch.tensor([0]), k=2, label_smoothing=0.1)
    assert value == F.cross_entropy(scores, torch.tensor([0]), label_smoothing=0.1) == torch.inf
    assert gradient.isfinite().all()


def test_a_nan_stays_in_its_row_and_blocks_do_not_matter(monkeypatch):
    scores = torch.randn(6, 12, generator=torch.Generator().manual_seed(0))
    scores[1, 3], scores[2, 4] = torch.nan, torch.inf
    labels = torch.arange(6)
    options = {"k": 3, "label_smoothing": 0.2, "reduction": "none"}
    value, gradient = value_and_gradient(smooth_topk_loss, scores, labels, **options)
    assert value.isnan().tolist() == gradient.isnan().any(1).tolist() == [False, True, True, False, False, False]
    monkeypatch.setattr(pivot, "MEMORY", 80)
    for a, b in zip(value_and_gradient(smooth_topk_loss, scores, labels, **options), (value, gradient), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("shape", [(5, 9), (9,), (2, 9, 3)])
def test_the_derivative_by_probabilities_that_are_all_zero_is_the_loss_of_each_class(shape):
    scores = torch.randn(shape, dtype=torch.float64)

    def derivatives(function, **options):
        nothing = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(function(scores, nothing, **options), nothing)[0]

    torch.testing.assert_close(derivatives(smooth_topk_loss, **AS_CROSS_ENTROPY), derivatives(F.cross_entropy))


def test_a_row_whose_probabilities_are_all_zero_may_hold_a_nan():
    scores, probabilities = torch.randn(3, 9), torch.rand(3, 9)
    probabilities[1] = 0.0
    expected, gradient = value_and_gradient(smooth_topk_loss, scores, probabilities, k=3)
    scores[1, 4] = torch.nan
    value, same = value_and_gradient(smooth_topk_loss, scores, probabilities, k=3)
    assert torch.equal(value, expected)
    assert torch.equal(same, gradient)
