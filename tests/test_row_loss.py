"""The pivot algorithm's losses and gradients: their accuracy, and every way to differentiate them."""

import itertools

import pytest
import torch
from reference import reference_gradient, reference_loss
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from smooth_topk import eager, smooth_topk_loss
from smooth_topk.row_loss import composed_losses, row_losses

TAUS = [10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4]
SCALES = [1e-2, 1.0, 10.0, 100.0]
SHAPES = [(1, 2), (2, 3), (3, 40), (5, 6), (5, 100), (8, 9), (10, 12), (16, 20), (20, 22)]
SHAPES += [pytest.param(50, 100, marks=pytest.mark.slow)]  # the reference takes its time
LARGE_SHAPES = [(1, 1000), (5, 1000), (20, 1000)]
KINDS = ["random", "ties", "deleted"]
# What the package promises: relative error of the loss where it exceeds 1e-6, error of the gradient relative to its
# largest entry.
PROMISED = {torch.float32: (2e-6, 1e-5), torch.float64: (1e-12, 1e-11)}
SMALLEST_LOSS = 1e-6
SMALLEST_GRADIENT = 1e-30  # float32 holds nothing smaller with full precision


def make_scores(kind, classes, scale, dtype, generator):
    scores = torch.randn(classes, generator=generator, dtype=torch.float64)
    if kind == "ties":
        scores = (2 * scores).round() / 2
    scores = (scale * scores).to(dtype)
    if kind == "deleted":
        scores[torch.rand(classes, generator=generator) < 0.2] = -torch.inf
    return scores


def worst_errors(losses_of, k, classes, dtype, kind, taus=TAUS, scales=SCALES):
    generator = torch.Generator().manual_seed(1000 * k + classes)
    worst_loss = worst_gradient = 0.0
    for tau, scale in itertools.product(taus, scales):
        scores = make_scores(kind, classes, scale, dtype, generator)
        label = int(torch.randint(classes, (), generator=generator))
        scores[label] = scores[label].nan_to_num(neginf=0.0)
        if (scores > -torch.inf).sum() <= k:
            continue
        leaf = scores.clone().requires_grad_()
        loss = losses_of(leaf[None], torch.tensor([label]), k, tau)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        truth = reference_loss(scores.tolist(), label, k, tau)
        if truth > SMALLEST_LOSS:
            worst_loss = max(worst_loss, float(abs(loss.item() - truth) / truth))
        true_gradient = reference_gradient(scores.tolist(), label, k, tau)
        largest = max(abs(entry) for entry in true_gradient)
        if largest > SMALLEST_GRADIENT:
            errors = (abs(a - b) for a, b in zip(gradient.tolist(), true_gradient, strict=True))
            worst_gradient = max(worst_gradient, float(max(errors) / largest))
    return worst_loss, worst_gradient


def assert_accurate(losses_of, k, classes, dtype, kind, **grid):
    loss, gradient = worst_errors(losses_of, k, classes, dtype, kind, **grid)
    promised_loss, promised_gradient = PROMISED[dtype]
    assert loss < promised_loss
    assert gradient < promised_gradient


def eager_losses(scores, labels, k, tau):
    return row_losses(scores, labels, k, tau, 1.0, fused=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", PROMISED)
@pytest.mark.parametrize(("k", "classes"), SHAPES)
def test_loss_and_gradient_are_exact(k, classes, dtype, kind):
    assert_accurate(eager_losses, k, classes, dtype, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", PROMISED)
@pytest.mark.parametrize(("k", "classes"), LARGE_SHAPES)
def test_loss_and_gradient_are_exact_for_many_classes(k, classes, dtype, kind):
    assert_accurate(eager_losses, k, classes, dtype, kind, scales=[1.0, 100.0], taus=[1.0, 1e-2, 1e-4])


@pytest.mark.parametrize("dtype", PROMISED)
def test_a_hundred_of_a_thousand_classes_are_exact(dtype):
    assert_accurate(eager_losses, 100, 1000, dtype, "random", taus=[1.0], scales=[1.0])


@pytest.mark.parametrize("dtype", PROMISED)
@pytest.mark.parametrize("k", [5, 8, 16, 32])
@pytest.mark.parametrize("equals", [0, 1, 2, 5])
def test_equal_scores_around_the_pivot_are_the_hardest_case_and_exact(k, equals, dtype):
    """k + equals + 1 classes tie and the rest are far below: the alternating sums lose most here."""
    scores = torch.full((1, 60), -30.0, dtype=dtype)
    scores[0, : k + equals + 1] = 1.0
    leaf = scores.clone().requires_grad_()
    loss = eager_losses(leaf, torch.tensor([0]), k, 1 / k)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    truth = [float(entry) for entry in reference_gradient(scores[0].tolist(), 0, k, 1 / k)]
    _, promised = PROMISED[dtype]
    assert abs(loss.item() / float(reference_loss(scores[0].tolist(), 0, k, 1 / k)) - 1) < PROMISED[dtype][0]
    assert (gradient[0].double() - torch.tensor(truth, dtype=torch.float64)).abs().max() < promised / k


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", PROMISED)
def test_the_differentiable_composition_is_exact_too(dtype, kind):
    def losses_of(scores, labels, k, tau):
        return composed_losses(scores, labels, k, tau, 1.0)

    assert_accurate(losses_of, 5, 40, dtype, kind)


def test_the_gradient_sums_to_zero_and_pushes_every_other_class_down():
    scores = torch.randn(20, 50, requires_grad=True)
    labels = torch.randint(50, (20,))
    (gradient,) = torch.autograd.grad(smooth_topk_loss(scores, labels, k=5, reduction="sum"), scores)
    torch.testing.assert_close(gradient.sum(1), torch.zeros(20), atol=1e-6, rtol=0)
    others = gradient.scatter(1, labels[:, None], 0.0)
    assert (others >= -1e-7).all()
    assert (gradient.gather(1, labels[:, None]) < 0).all()


def test_the_backward_pass_keeps_no_second_copy_of_the_scores():
    scores = torch.randn(64, 500, requires_grad=True)
    labels = torch.randint(500, (64,))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        smooth_topk_loss(scores, labels, k=5)
    large = {x.untyped_storage().data_ptr() for x in saved if x.numel() >= scores.numel()}
    assert large == {scores.untyped_storage().data_ptr()}


SMALL = torch.randn(3, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
SMALL_LABELS = torch.tensor([1, 8, 4])


def small_loss(scores, labels=SMALL_LABELS, k=3):
    return smooth_topk_loss(scores, labels, k=k, tau=0.4)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_derivatives_of_first_and_second_order_match_finite_differences(k):
    def losses(scores):
        return smooth_topk_loss(scores, SMALL_LABELS, k=k, tau=0.4, reduction="none")

    leaf = SMALL.clone().requires_grad_()
    assert torch.autograd.gradcheck(losses, leaf, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(losses, leaf)


def test_a_tie_at_the_pivot_has_second_derivatives():
    tied = torch.tensor([[1.0, 1.0, 1.0, 0.0, 1.0, -1.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda s: smooth_topk_loss(s, torch.tensor([3]), k=2, tau=0.5), tied)


def test_the_function_transforms_agree_with_autograd():
    leaf = SMALL.clone().requires_grad_()
    (expected,) = torch.autograd.grad(small_loss(leaf), leaf)
    tangent = torch.randn_like(SMALL)

    def each(scores, label):
        return smooth_topk_loss(scores, label, k=3, tau=0.4)

    one_by_one = vmap(grad(each))(SMALL, SMALL_LABELS) / 3
    through_vmap = grad(lambda scores: vmap(each)(scores, SMALL_LABELS).mean())(SMALL)
    for gradient in (grad(small_loss)(SMALL), one_by_one, through_vmap, jacfwd(small_loss)(SMALL)):
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(jvp(small_loss, (SMALL,), (tangent,))[1], (expected * tangent).sum())


def test_hessians_agree_in_every_mode():
    expected = torch.autograd.functional.hessian(small_loss, SMALL)
    torch.testing.assert_close(hessian(small_loss)(SMALL), expected)
    torch.testing.assert_close(jacrev(jacrev(small_loss))(SMALL), expected)


def test_per_sample_gradients_with_one_set_of_labels_for_all():
    batches = torch.randn(4, 3, 9, dtype=torch.float64)
    together = vmap(grad(small_loss))(batches)
    torch.testing.assert_close(together, torch.stack([grad(small_loss)(batch) for batch in batches]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "options"),
    [
        (1, {}),
        (5, {}),
        (5, {"reduction": "none", "ignore_index": 3}),
        (5, {"weight": torch.rand(50)}),
        (12, {}),
        (34, {}),
    ],
)
def test_it_is_traced_whole_by_the_compiler(k, options):
    torch._dynamo.reset()
    scores, labels = torch.randn(8, 50, requires_grad=True), torch.arange(8)

    def loss(scores):
        return smooth_topk_loss(scores, labels, k=k, **options)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(scores)
    torch.testing.assert_close(compiled, loss(scores))
    (gradient,) = torch.autograd.grad(compiled.sum(), scores)
    (expected,) = torch.autograd.grad(loss(scores).sum(), scores)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_loss_is_as_exact(kind):
    torch._dynamo.reset()
    compiled = torch.compile(eager_losses, fullgraph=True, dynamic=False)
    assert_accurate(compiled, 5, 100, torch.float32, kind, taus=[1.0, 1e-4], scales=[1.0, 100.0])


def test_blocks_of_rows_do_not_change_the_result(monkeypatch):
    scores, labels = torch.randn(37, 50), torch.randint(50, (37,))

    def run():
        leaf = scores.clone().requires_grad_()
        loss = eager_losses(leaf, labels, 5, 0.5)
        return loss, *torch.autograd.grad(loss.sum(), leaf)

    whole = run()
    monkeypatch.setattr(eager, "BLOCK", 150)
    for a, b in zip(whole, run(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
