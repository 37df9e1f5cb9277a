"""The Triton kernels, interpreted on the CPU, against 60-digit arithmetic and against float64."""

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
import triton_worker
from accuracy import GRADIENT, LOSS, assert_exact, random_scores
from reference import reference_loss, relative_error

from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import triton_backend
from smooth_topk.pivot.composition import composed_losses

pytestmark = [
    pytest.mark.skipif(not triton_backend.TRITON_INSTALLED, reason="needs Triton: pip install triton"),
    pytest.mark.slow,  # the interpreter takes a second for what a GPU does in a microsecond
]


@pytest.fixture(scope="module")
def kernels():
    """Calls a function of triton_worker in an interpreting process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=triton_worker.start) as pool:
        yield lambda function, *args, **kwargs: pool.submit(function, *args, **kwargs).result()


@pytest.mark.parametrize("tau", [10.0, 0.3, 1e-2, 1e-4])
@pytest.mark.parametrize(("k", "classes"), [(1, 2), (3, 17), (5, 6), (5, 33), (8, 11)])
def test_losses_and_gradients_are_exact_at_every_temperature_and_scale(kernels, k, classes, tau):
    scores, labels = random_scores(3, classes, scale=torch.tensor([[1e-2], [1.0], [100.0]]))
    losses, gradient = kernels(triton_worker.run, scores, labels, k, tau)
    assert losses.dtype == torch.float32
    assert_exact(scores, labels, k, tau, losses, gradient)


@pytest.mark.parametrize(
    ("k", "classes", "tau"),
    [(9, 11, 10.0), (20, 22, 10.0), (20, 22, 1e-4), (20, 45, 1.0), (32, 33, 1.0), (32, 40, 10.0), (32, 40, 1e-4)],
)
def test_large_k_is_exact_also_when_it_is_close_to_the_number_of_classes(kernels, k, classes, tau):
    scores, labels = random_scores(1, classes)
    losses, gradient = kernels(triton_worker.run, scores, labels, k, tau)
    assert_exact(scores, labels, k, tau, losses, gradient)


def test_a_loss_far_below_one_keeps_its_digits(kernels):
    scores, labels = torch.zeros(1, 6), torch.zeros(1, dtype=torch.int64)
    scores[0, 0] = 60.0
    losses, _ = kernels(triton_worker.run, scores, labels, 2, 1.0)
    truth = reference_loss(scores[0].tolist(), 0, 2, 1.0)
    assert 0 < truth < 1e-6
    assert relative_error(losses.item(), truth) < LOSS[torch.float32]


@pytest.mark.parametrize("order", ["random", "ascending", "descending"])
def test_rows_longer_than_a_block_are_exact_in_any_order_of_classes(kernels, order):
    scores, labels = random_scores(2, 45, scale=3.0)
    if order != "random":
        scores = scores.sort(1, descending=order == "descending").values
    losses, gradient = kernels(triton_worker.run, scores, labels, 5, 0.5, block=8)
    assert_exact(scores, labels, 5, 0.5, losses, gradient)


def test_blocks_smaller_than_k_and_double_accumulation_are_exact(kernels):
    scores, labels = random_scores(1, 41, scale=3.0)
    losses, gradient = kernels(triton_worker.run, scores, labels, 12, 0.5, block=4)
    assert_exact(scores, labels, 12, 0.5, losses, gradient)


@pytest.mark.parametrize("tau", [1.0, 1e-3])
@pytest.mark.parametrize("block", [4, None])
def test_ties_are_exact_wherever_the_head_cuts_them(kernels, block, tau):
    scores = torch.tensor([[1.0, 0, 1, 1, 0, 1, 1, 1, 0, 1], [2.0] * 10, [0.0, 0, 0, 0, 0, 0, 0, 0, 0, 5]])
    labels = torch.tensor([0, 3, 9])
    for k in (1, 3, 8):
        losses, gradient = kernels(triton_worker.run, scores, labels, k, tau, block=block)
        assert_exact(scores, labels, k, tau, losses, gradient)


@pytest.mark.parametrize("block", [4, None])
def test_a_class_at_minus_infinity_is_a_deleted_class(kernels, block):
    scores, labels = random_scores(3, 13)
    labels = labels.clamp(max=6)
    scores[:, 7:11] = -math.inf  # a whole block of four, and a head that fills late
    losses, gradient = kernels(triton_worker.run, scores, labels, 4, 1.0, block=block)
    kept = scores[:, [*range(7), 11, 12]]
    short_losses, short_gradient = kernels(triton_worker.run, kept, labels, 4, 1.0)
    assert_exact(kept, labels, 4, 1.0, losses, gradient[:, [*range(7), 11, 12]])
    torch.testing.assert_close(losses, short_losses)
    torch.testing.assert_close(gradient[:, [*range(7), 11, 12]], short_gradient)
    assert gradient[:, 7:11].eq(0).all()


@pytest.mark.parametrize("block", [2, None])
def test_the_loss_is_zero_when_fewer_than_k_other_classes_exist(kernels, block):
    scores = torch.full((2, 6), -math.inf)
    scores[0, :3] = torch.tensor([1.0, 2.0, 3.0])
    scores[1, 0] = 1.0
    losses, gradient = kernels(triton_worker.run, scores, torch.tensor([0, 0]), 3, 1.0, block=block)
    assert losses.tolist() == [0.0, 0.0]
    assert gradient.eq(0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("block", [4, None])
def test_nan_and_plus_infinity_make_their_own_row_nan_and_no_other(kernels, block, bad):
    scores, _ = random_scores(4, 11)
    labels = torch.tensor([2, 2, 2, 2])
    scores[0, 7] = bad
    scores[1, 2] = bad  # the label's own score
    scores[2] = bad
    losses, gradient = kernels(triton_worker.run, scores, labels, 3, 1.0, block=block)
    assert losses.isnan().tolist() == [True, True, True, False]
    assert gradient[3].isfinite().all()
    assert gradient[:3, 2].isnan().all()
    assert_exact(scores[3:], labels[3:], 3, 1.0, losses[3:], gradient[3:])


def test_a_label_at_minus_infinity_costs_infinitely_much(kernels):
    scores = torch.tensor([[1.0, -math.inf, 0.5, 0.0]])
    losses, gradient = kernels(triton_worker.run, scores, torch.tensor([1]), 2, 1.0)
    assert losses.item() == math.inf
    assert gradient.isfinite().all()


@pytest.mark.parametrize("k", [5, 12])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_scores_are_computed_in_float32(kernels, dtype, k):
    scores, labels = random_scores(2, 30, scale=3.0)
    losses, gradient = kernels(triton_worker.run, scores.to(dtype), labels, k, 0.5)
    same, same_gradient = kernels(triton_worker.run, scores.to(dtype).float(), labels, k, 0.5)
    assert losses.dtype == torch.float32
    assert gradient.dtype == dtype
    assert torch.equal(losses, same)
    torch.testing.assert_close(
        gradient, same_gradient.to(dtype)
    )  # the interpreter truncates bfloat16, the hardware rounds


def test_any_strides_give_the_same_answer(kernels):
    scores, labels = random_scores(3, 14)
    losses, gradient = kernels(triton_worker.run, scores, labels, 4, 0.5)
    spread = torch.stack([labels, labels], 1)[:, 0]
    for strided in (scores.t().contiguous().t(), torch.stack([scores, scores + 1], 2)[..., 0]):
        assert not strided.is_contiguous()
        other_losses, other_gradient = kernels(triton_worker.run, strided, spread, 4, 0.5, block=4)
        torch.testing.assert_close(other_losses, losses)
        torch.testing.assert_close(other_gradient, gradient)


def test_a_hard_margin_that_cancels_keeps_its_digits(kernels):
    # 0.3 + (1 - 1.6)/2 is -1e-8 with 1.6 in float32; a margin rounded to float32 would add 1e-8, a tenth of tau.
    scores, labels = torch.tensor([[2.0, 1.0, 0.5, -1.0, 1.6]]), torch.tensor([4])
    losses, gradient = kernels(triton_worker.run, scores, labels, 2, 1e-7, margin=0.3)
    truth = reference_loss(scores[0].tolist(), 4, 2, 1e-7, 0.3)
    assert relative_error(losses.item(), truth) < LOSS[torch.float32]
    assert_exact(scores, labels, 2, 1e-7, losses, gradient, margin=0.3)


@pytest.mark.parametrize(("k", "classes", "tau"), [(5, 1000, 0.1), (5, 9001, 1.0), (20, 5003, 1.0)])
def test_long_rows_equal_float64(kernels, k, classes, tau):
    scores, labels = random_scores(2, classes, scale=3.0)
    losses, gradient = kernels(triton_worker.run, scores, labels, k, tau)
    assert_equals_float64(scores, labels, k, tau, losses, gradient)


def test_two_hundred_thousand_classes_equal_float64(kernels):
    scores, labels = random_scores(1, 200_003, scale=3.0)
    losses, gradient = kernels(triton_worker.run, scores, labels, 5, 0.5)
    assert_equals_float64(scores, labels, 5, 0.5, losses, gradient)


def assert_equals_float64(scores, labels, k, tau, losses, gradient):
    exact_scores = scores.double().requires_grad_()
    exact = composed_losses(exact_scores, labels, k, tau, 1.0)
    (truth,) = torch.autograd.grad(exact.sum(), exact_scores)
    assert ((losses - exact).abs() / exact).max() < LOSS[torch.float32]
    assert ((gradient - truth).abs().amax(1) / truth.abs().amax(1)).max() < GRADIENT[torch.float32]


def test_an_empty_batch_gives_empty_losses(kernels):
    losses, gradient = kernels(triton_worker.run, torch.zeros(0, 7), torch.zeros(0, dtype=torch.int64), 3, 1.0)
    assert losses.shape == (0,)
    assert gradient.shape == (0, 7)


def test_double_precision_and_k_beyond_32_are_left_to_plain_torch(kernels):
    assert kernels(triton_worker.supported, "float32", 32)
    assert kernels(triton_worker.supported, "bfloat16", 5)
    assert not kernels(triton_worker.supported, "float64", 5)
    assert not kernels(triton_worker.supported, "float32", 33)


def test_without_the_interpreter_a_cpu_has_no_triton_kernels(monkeypatch):
    monkeypatch.setattr(triton_backend, "INTERPRETED", False)
    assert not triton_backend.is_available("cpu")
    assert triton_backend.is_available("cuda")


@pytest.mark.parametrize("classes", [2, 100, 256, 257, 1000, 4096, 200_000])
def test_a_thread_has_eight_scores_or_more_where_there_are_several_warps_and_never_too_many(classes):
    block, warps = triton_backend.launch(classes)
    assert block == 4096 < classes or block // 2 < classes <= block
    assert warps == 1 or block >= 8 * 32 * warps
    assert block <= 16 * 32 * warps


def test_a_label_out_of_range_gives_nan_and_reads_no_memory(kernels):
    scores, labels = random_scores(4, 20)[0], torch.tensor([-1, 20, 10**9, 3])
    losses, gradient = kernels(triton_worker.run, scores, labels, 5, 1.0)
    assert losses.isnan().tolist() == [True, True, True, False]
    assert gradient.isnan().any(1).tolist() == [True, True, True, False]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_public_loss_takes_this_kernel_with_weights_and_ignored_labels(kernels, reduction, weighted):
    scores, labels = random_scores(4, 20)
    labels[1] = -100
    scores[1, 3] = math.nan
    options = {"k": 5, "tau": 0.5, "reduction": reduction}
    options["weight"] = torch.linspace(0.5, 2.0, 20) if weighted else None
    value, gradient, backend, warned = kernels(triton_worker.public_loss, scores, labels, **options)
    assert (backend, warned) == ("triton_backend", [])
    leaf = scores.clone().requires_grad_()
    expected = smooth_topk_loss(leaf, labels, **options)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), leaf)[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("spoil", "reason"), [("raises", "no such instruction"), ("wrong", "an error of")])
def test_a_kernel_that_raises_or_computes_something_else_is_replaced_with_one_warning(kernels, spoil, reason):
    scores, labels = random_scores(4, 20)
    value, gradient, backend, warned = kernels(triton_worker.public_loss, scores, labels, spoil, k=5, tau=0.5)
    assert backend != "triton_backend"
    assert len(warned) == 1
    assert reason in warned[0]
    leaf = scores.clone().requires_grad_()
    expected = smooth_topk_loss(leaf, labels, k=5, tau=0.5)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, leaf)[0], rtol=1e-5, atol=1e-7)
