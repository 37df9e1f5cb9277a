"""The pivot algorithm's losses and gradients: their accuracy, and every way to differentiate them."""

import itertools

import pytest
import torch
from compiler import needs_compiler
from reference import reference_gradient, reference_loss

from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import numba_backend, pivot_loss, torch_backend
from smooth_topk.pivot.composition import composed_losses

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


def torch_losses(scores, labels, k, tau):
    return pivot_loss(scores, labels, None, "none", k, tau, 1.0, fused=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", PROMISED)
@pytest.mark.parametrize(("k", "classes"), SHAPES)
def test_loss_and_gradient_are_exact(k, classes, dtype, kind):
    assert_accurate(torch_losses, k, classes, dtype, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", PROMISED)
@pytest.mark.parametrize(("k", "classes"), LARGE_SHAPES)
def test_loss_and_gradient_are_exact_for_many_classes(k, classes, dtype, kind):
    assert_accurate(torch_losses, k, classes, dtype, kind, scales=[1.0, 100.0], taus=[1.0, 1e-2, 1e-4])


@pytest.mark.parametrize("dtype", PROMISED)
def test_a_hundred_of_a_thousand_classes_are_exact(dtype):
    assert_accurate(torch_losses, 100, 1000, dtype, "random", taus=[1.0], scales=[1.0])


@pytest.mark.parametrize("dtype", PROMISED)
@pytest.mark.parametrize("k", [5, 8, 16, 32])
@pytest.mark.parametrize("equals", [0, 1, 2, 5])
def test_equal_scores_around_the_pivot_are_the_hardest_case_and_exact(k, equals, dtype):
    """k + equals + 1 classes tie and the rest are far below: the alternating sums lose most here."""
    scores = torch.full((1, 60), -30.0, dtype=dtype)
    scores[0, : k + equals + 1] = 1.0
    leaf = scores.clone().requires_grad_()
    loss = torch_losses(leaf, torch.tensor([0]), k, 1 / k)
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


def test_the_kernels_are_taken_unless_they_are_forbidden():
    scores, labels = torch.randn(2, 20, requires_grad=True), torch.tensor([0, 1])
    *_, backend = pivot_loss(scores, labels, None, "mean", 5, 1.0, 1.0).grad_fn.settings
    assert backend is (numba_backend if numba_backend.NUMBA_INSTALLED else torch_backend)
    *_, backend = pivot_loss(scores, labels, None, "mean", 5, 1.0, 1.0, fused=False).grad_fn.settings
    assert backend is torch_backend


def test_the_backward_pass_keeps_no_second_copy_of_the_scores():
    scores = torch.randn(64, 500, requires_grad=True)
    labels = torch.randint(500, (64,))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        smooth_topk_loss(scores, labels, k=5)
    large = {x.untyped_storage().data_ptr() for x in saved if x.numel() >= scores.numel()}
    assert large == {scores.untyped_storage().data_ptr()}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_loss_is_as_exact(kind):
    torch._dynamo.reset()
    compiled = torch.compile(torch_losses, fullgraph=True, dynamic=False)
    assert_accurate(compiled, 5, 100, torch.float32, kind, taus=[1.0, 1e-4], scales=[1.0, 100.0])


def test_blocks_of_rows_do_not_change_the_result(monkeypatch):
    scores, labels = torch.randn(37, 50), torch.randint(50, (37,))

    def run():
        leaf = scores.clone().requires_grad_()
        loss = torch_losses(leaf, labels, 5, 0.5)
        return loss, *torch.autograd.grad(loss.sum(), leaf)

    whole = run()
    monkeypatch.setattr(torch_backend, "BLOCK", 150)
    assert torch_backend._rows_per_block(scores, 5) == 3  # of 50 classes
    assert torch_backend._rows_per_block(scores, 12) == 1  # of 144 numbers
    assert torch_backend._rows_per_block(scores[:2], 5) == 2
    assert len(list(torch_backend._with_buffers(scores, 5, scores.dtype))) == 13
    ((rows, _),) = torch_backend._with_buffers(scores.to("meta"), 5, scores.dtype)  # a GPU takes all rows at once
    assert rows == slice(0, 37)
    for a, b in zip(whole, run(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
