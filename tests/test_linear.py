"""Classifier and loss without a score matrix: equal to F.linear and the plain loss, in less memory."""

import pytest
import torch
from torch.nn.functional import linear

from smooth_topk import LinearSmoothTopKLoss, linear_smooth_topk_loss, smooth_topk_loss

FLOAT64, FLOAT32 = 1e-12, 1e-6  # of the largest entry: sums of products in another order
HALF = 0.02  # bfloat16 has eight bits; the plain path rounds as often


def problem(rows=37, features=16, classes=50, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(rows, features), (classes, features), (classes,)]
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    labels = torch.randint(classes, (rows,), generator=generator)
    labels[3] = -100
    return [tensor.requires_grad_() for tensor in tensors], labels


def plain(input, linear_weight, labels, *, linear_bias=None, chunk_rows=None, **options):
    return smooth_topk_loss(linear(input, linear_weight, linear_bias), labels, **options)


def assert_equal(ours, theirs, tolerance):
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * max(1e-3, b.abs().max())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, FLOAT64), (torch.float32, FLOAT32)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("chunk_rows", [1, 5, 37, 1000, None])
def test_loss_and_gradients_are_those_of_the_plain_functions(dtype, tolerance, reduction, weighted, chunk_rows):
    (input, classifier, bias), labels = problem(dtype=dtype)
    weight = torch.arange(50, dtype=dtype) / 10 if weighted else None
    options = {"reduction": reduction, "weight": weight, "k": 3, "tau": 0.5, "margin": 0.7, "linear_bias": bias}
    results = []
    for function in (linear_smooth_topk_loss, plain):
        loss = function(input, classifier, labels, chunk_rows=chunk_rows, **options)
        incoming = torch.linspace(-1, 2, 37, dtype=dtype) if reduction == "none" else torch.tensor(0.7, dtype=dtype)
        results.append((loss, *torch.autograd.grad(loss, (input, classifier, bias), incoming)))
    assert_equal(*results, tolerance)


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 2)])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_only_some_of_the_inputs_may_need_a_gradient(needed, reduction):
    tensors, labels = problem()
    tensors = [tensor.detach().requires_grad_(place in needed) for place, tensor in enumerate(tensors)]
    wanted = [tensors[place] for place in needed]
    results = []
    for function in (linear_smooth_topk_loss, plain):
        loss = function(*tensors[:2], labels, linear_bias=tensors[2], reduction=reduction).sum()
        results.append(torch.autograd.grad(loss, wanted, retain_graph=True))
        assert_equal(results[-1], torch.autograd.grad(loss, wanted), FLOAT64)  # a second time
    assert_equal(*results, FLOAT64)


def test_without_gradients_and_for_one_sample_it_is_the_loss_alone():
    (input, classifier, bias), labels = problem()
    with torch.no_grad():
        loss = linear_smooth_topk_loss(input, classifier, labels, linear_bias=bias, chunk_rows=8)
        assert not loss.requires_grad
        torch.testing.assert_close(loss, plain(input, classifier, labels, linear_bias=bias))
    for reduction in ("mean", "none"):
        one = linear_smooth_topk_loss(input[0], classifier, labels[0], reduction=reduction)
        torch.testing.assert_close(one, plain(input[0], classifier, labels[0], reduction=reduction))


@pytest.mark.parametrize("labels", [torch.full((37,), -100), torch.zeros(0, dtype=torch.long)])
def test_where_no_row_counts_the_mean_is_nan_and_the_sum_zero(labels):
    (input, classifier, _), _ = problem()
    input = input[: len(labels)]
    assert linear_smooth_topk_loss(input, classifier, labels).isnan()
    total = linear_smooth_topk_loss(input, classifier, labels, reduction="sum")
    (gradient,) = torch.autograd.grad(total, classifier)
    assert total.item() == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_second_derivatives_a_learned_temperature_and_torch_func_take_the_plain_functions(reduction):
    (input, classifier, _), labels = problem(5, 4, 6)
    function = lambda x, w: linear_smooth_topk_loss(x, w, labels, k=2, reduction=reduction, chunk_rows=2)  # noqa: E731
    assert torch.autograd.gradgradcheck(function, (input, classifier))
    tau = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(linear_smooth_topk_loss(input, classifier, labels, tau=tau), tau)
    (expected,) = torch.autograd.grad(plain(input, classifier, labels, tau=tau), tau)
    torch.testing.assert_close(slope, expected)
    slopes = torch.func.grad(lambda w: function(input, w).sum())(classifier)
    torch.testing.assert_close(slopes, torch.autograd.grad(function(input, classifier).sum(), classifier)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast_have_dtypes_and_values_of_the_plain_functions(dtype):
    (input, classifier, bias), labels = problem(dtype=torch.float32)
    results = []
    for function in (linear_smooth_topk_loss, plain):
        with torch.autocast("cpu", dtype):
            loss = function(input, classifier, labels, linear_bias=bias, chunk_rows=8)
        results.append((loss, *torch.autograd.grad(loss, (input, classifier, bias))))
    assert_equal(*results, HALF)
    halves = [tensor.detach().to(dtype).requires_grad_() for tensor in (input, classifier)]
    losses = [function(*halves, labels) for function in (linear_smooth_topk_loss, plain)]
    assert_equal(*[(loss, *torch.autograd.grad(loss, halves)) for loss in losses], HALF)


def test_the_gradient_of_the_weight_is_accumulated_in_float32():
    """512 rows of equal features: in bfloat16 a sum of equal terms stops growing after 256 of them."""
    classifier = torch.zeros(8, 1, dtype=torch.bfloat16, requires_grad=True)
    input, labels = torch.ones(1024, 1, dtype=torch.bfloat16), torch.zeros(1024, dtype=torch.long)
    loss = linear_smooth_topk_loss(input, classifier, labels, k=2, reduction="sum", chunk_rows=1)
    (gradient,) = torch.autograd.grad(loss, classifier)
    exact = classifier.detach().float().requires_grad_()
    (truth,) = torch.autograd.grad(plain(input.float(), exact, labels, k=2, reduction="sum"), exact)
    torch.testing.assert_close(gradient.float(), truth, rtol=2**-7, atol=0.0)


def test_a_chunk_of_scores_is_all_that_is_added_to_inputs_and_gradients():
    pytest.importorskip("pandas", reason="the measures of the study need its packages")
    from smooth_topk.study.measure.memory import peak_bytes

    (input, classifier, _), labels = problem(256, 32, 4000, torch.float32)
    backward = lambda function, **options: torch.autograd.grad(  # noqa: E731
        function(input, classifier, labels, **options), (input, classifier)
    )
    gradients = 4 * (input.numel() + classifier.numel())
    beyond = peak_bytes(lambda: backward(linear_smooth_topk_loss)) - gradients
    assert beyond <= (peak_bytes(lambda: backward(plain)) - gradients) / 10
    assert beyond <= 2.5 * 4 * 16 * 4000  # scores and derivatives of 16 rows


def test_a_compiled_program_calls_it():
    (input, classifier, _), labels = problem()
    function = lambda x, w: linear_smooth_topk_loss(2 * x, w, labels, chunk_rows=8) + 1  # noqa: E731
    results = []
    for each in (torch.compile(function, backend="aot_eager"), function):
        loss = each(input, classifier)
        results.append((loss, *torch.autograd.grad(loss, (input, classifier))))
    assert_equal(*results, FLOAT64)


def test_the_module_passes_every_option_on():
    (input, classifier, bias), labels = problem()
    options = {"weight": torch.rand(50, dtype=torch.float64), "ignore_index": 7, "reduction": "sum", "chunk_rows": 4}
    labels[3] = 7
    loss = LinearSmoothTopKLoss(3, 0.5, 0.7, **options)
    expected = linear_smooth_topk_loss(input, classifier, labels, linear_bias=bias, k=3, tau=0.5, margin=0.7, **options)
    assert loss(input, classifier, labels, bias).item() == expected.item()
    assert "k=3" in repr(loss)


X, W, Y = torch.zeros(2, 3), torch.zeros(4, 3), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: linear_smooth_topk_loss(X[None], W, Y, k=2), ValueError, r"\(1, 2, 3\)"),
        (lambda: linear_smooth_topk_loss(X, W.T, Y, k=2), ValueError, r"\(3, 4\)"),
        (lambda: linear_smooth_topk_loss(X, W[0], Y, k=2), ValueError, r"\(3,\)"),
        (lambda: linear_smooth_topk_loss(X, W, Y, k=2, linear_bias=torch.zeros(3)), ValueError, r"\(3,\)"),
        (lambda: linear_smooth_topk_loss(X, W.double(), Y, k=2), TypeError, "float64"),
        (lambda: linear_smooth_topk_loss(X.long(), W, Y, k=2), TypeError, "int64"),
        (lambda: linear_smooth_topk_loss(X, W, torch.zeros(2, 4), k=2), TypeError, "float32"),
        (lambda: linear_smooth_topk_loss(X, W, Y[:1], k=2), ValueError, r"\(1,\)"),
        (lambda: linear_smooth_topk_loss(X, W, Y + 3, k=2), IndexError, "label 4"),
        (lambda: linear_smooth_topk_loss(X, W, Y, k=4), ValueError, "k=4"),
        (lambda: linear_smooth_topk_loss(X, W, Y, k=2, chunk_rows=0), ValueError, "0"),
        (lambda: linear_smooth_topk_loss(X, W, Y, k=2, chunk_rows=1.5), TypeError, "1.5"),
        (lambda: linear_smooth_topk_loss(X, W, Y, k=2, reduction="max"), ValueError, "'max'"),
    ],
)
def test_bad_input_is_refused_with_its_value(call, error, value):
    with pytest.raises(error, match=value):
        call()
