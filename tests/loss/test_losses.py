"""The public losses: what they share with cross-entropy, what they refuse, and what they do at the edges."""

import copy
import itertools
import math
import pickle
import subprocess
import sys
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from smooth_topk import HardTopKLoss, SmoothTopKLoss, hard_topk_loss, losses, smooth_topk_loss
from smooth_topk.pivot import backend_for, numba_backend, torch_backend
from smooth_topk.torch_internals import is_transformed

FLOAT32 = 2e-6  # a few roundings of float32
FLOAT64 = 1e-12
AS_CROSS_ENTROPY = {"k": 1, "tau": 1.0, "margin": 0.0}


def value_and_gradient(function, scores, *arguments, **options):
    scores = scores.detach().clone().requires_grad_()
    value = function(scores, *arguments, **options)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return value.detach(), gradient


@given(
    seed=st.integers(0, 2**31),
    shape=st.sampled_from([(7, 5), (1, 2), (4, 6, 3), (2, 5, 2, 3), (9,)]),
    scale=st.sampled_from([1e-2, 1.0, 30.0]),
    reduction=st.sampled_from(["none", "mean", "sum"]),
    weighted=st.booleans(),
    ignoring=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    label_dtype=st.sampled_from([torch.int64, torch.int32]),
)
def test_with_k_1_tau_1_and_no_margin_it_is_cross_entropy(
    seed, shape, scale, reduction, weighted, ignoring, dtype, label_dtype
):
    generator = torch.Generator().manual_seed(seed)
    classes = shape[min(1, len(shape) - 1)]
    scores = scale * torch.randn(shape, generator=generator, dtype=dtype)
    labels = torch.randint(classes, shape[:1] + shape[2:] if len(shape) > 1 else (), generator=generator)
    options = {"reduction": reduction}
    if weighted:
        options["weight"] = torch.rand(classes, generator=generator, dtype=dtype) + 0.1
    if ignoring:
        options["ignore_index"] = 1
    ours = value_and_gradient(smooth_topk_loss, scores, labels.to(label_dtype), **AS_CROSS_ENTROPY, **options)
    theirs = value_and_gradient(F.cross_entropy, scores, labels, **options)
    tolerance = FLOAT32 if dtype == torch.float32 else FLOAT64
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=5 * tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_half_precision_is_computed_in_float32_and_returned_as_cross_entropy_does(dtype, autocast, reduction):
    scores = torch.randn(6, 30, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    labels = torch.arange(6)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        ours = smooth_topk_loss(scores, labels, k=5, reduction=reduction)
        theirs = F.cross_entropy(scores, labels, reduction=reduction)
    assert ours.dtype == theirs.dtype
    wide = smooth_topk_loss(scores.detach().float(), labels, k=5, reduction=reduction)
    torch.testing.assert_close(ours, wide.to(ours.dtype), rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(ours.sum(), scores)
    assert gradient.dtype == dtype


@pytest.mark.parametrize("loss", [smooth_topk_loss, hard_topk_loss])
def test_images_are_batches_of_pixels(loss):
    scores = torch.randn(2, 9, 3, 4, dtype=torch.float64)
    labels = torch.randint(9, (2, 3, 4))
    rows = loss(scores.movedim(1, -1).reshape(-1, 9), labels.reshape(-1), k=3, reduction="none")
    assert torch.equal(loss(scores, labels, k=3, reduction="none"), rows.reshape(2, 3, 4))


@pytest.mark.parametrize("loss", [smooth_topk_loss, hard_topk_loss])
def test_a_batch_is_a_loop_over_its_rows_and_need_not_be_contiguous(loss):
    scores = torch.randn(12, 8, dtype=torch.float64).T  # (8, 12)
    labels = torch.randint(12, (8,))
    together, gradient = value_and_gradient(loss, scores, labels, k=4, reduction="none")
    for row, label, value, derivatives in zip(scores, labels, together, gradient, strict=True):
        one, one_gradient = value_and_gradient(loss, row, label, k=4)
        torch.testing.assert_close(one, value, rtol=FLOAT64, atol=FLOAT64)
        torch.testing.assert_close(one_gradient, derivatives, rtol=FLOAT64, atol=FLOAT64)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("k", [5, 40])
def test_an_empty_batch_has_no_losses_and_sums_to_zero(backend, k):
    loss = partial(smooth_topk_loss, k=k, backend=backend)
    scores, labels = torch.empty(0, 60, requires_grad=True), torch.empty(0, dtype=torch.int64)
    assert loss(scores, labels, reduction="none").shape == (0,)
    total = loss(scores, labels, reduction="sum")
    total.backward()
    assert total == 0
    assert scores.grad.shape == (0, 60)
    assert loss(scores, labels).isnan() == F.cross_entropy(scores, labels).isnan()


def test_the_modules_hold_hyper_parameters_and_give_the_functions_values():
    scores, labels = torch.randn(5, 12), torch.randint(12, (5,))
    weight = torch.rand(12)
    smooth = SmoothTopKLoss(k=3, tau=0.2, margin=0.5, weight=weight, reduction="none")
    expected = smooth_topk_loss(scores, labels, k=3, tau=0.2, margin=0.5, weight=weight, reduction="none")
    for module in (smooth, copy.deepcopy(smooth), pickle.loads(pickle.dumps(smooth)), smooth.to("cpu")):
        assert torch.equal(module(scores, labels), expected)
    assert repr(smooth) == "SmoothTopKLoss(k=3, tau=0.2, margin=0.5, reduction='none')"
    assert not list(SmoothTopKLoss().parameters())
    assert not SmoothTopKLoss().state_dict()
    hard = HardTopKLoss(k=3, margin=2.0)
    assert torch.equal(hard(scores, labels), hard_topk_loss(scores, labels, k=3, margin=2.0))
    assert repr(hard) == "HardTopKLoss(k=3, margin=2.0, reduction='mean')"


OPTIONS = {  # none of them a default, and each changes the result
    "k": 3,
    "margin": 0.25,
    "weight": torch.linspace(0.5, 2.0, 12),
    "ignore_index": 1,
    "reduction": "sum",
    "label_smoothing": 0.3,
}
SMOOTH_OPTIONS = OPTIONS | {"tau": 0.2, "algorithm": "summation", "series_order": 0}


@pytest.mark.parametrize(
    ("module", "function", "option"),
    [(SmoothTopKLoss, smooth_topk_loss, option) for option in SMOOTH_OPTIONS]
    + [(HardTopKLoss, hard_topk_loss, option) for option in OPTIONS],
)
def test_the_modules_hand_every_option_on(module, function, option, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(6, 12, generator=generator, dtype=torch.float64), torch.tensor([0, 1, 5, 1, 11, 4])
    needed = {"algorithm": "divide_and_conquer"} if option == "series_order" else {}
    given = needed | {option: SMOOTH_OPTIONS[option]}
    expected, gradient = value_and_gradient(function, scores, labels, **given)
    value, same_gradient = value_and_gradient(module(**given), scores, labels)
    assert torch.equal(value, expected)
    assert torch.equal(same_gradient, gradient)
    if option in ("algorithm", "series_order"):  # another way to nearly the same numbers
        seen = {}
        polynomials = losses.log_symmetric_polynomials
        monkeypatch.setattr(
            losses,
            "log_symmetric_polynomials",
            lambda *a, **options: (seen.update(options), polynomials(*a, **options))[1],
        )
        module(**given)(scores, labels)
        assert seen[option] == given[option]
    else:
        assert not torch.allclose(value_and_gradient(module(), scores, labels)[1], gradient)


def test_the_defaults_are_those_of_the_paper():
    scores, labels = torch.randn(6, 12), torch.tensor([0, 1, 5, -100, 11, 4])
    smooth = smooth_topk_loss(scores, labels, k=5, tau=1.0, margin=1.0, ignore_index=-100, reduction="mean")
    assert torch.equal(smooth_topk_loss(scores, labels), smooth)
    assert torch.equal(SmoothTopKLoss()(scores, labels), smooth)
    hard = hard_topk_loss(scores, labels, k=5, margin=1.0, ignore_index=-100, reduction="mean")
    assert torch.equal(hard_topk_loss(scores, labels), hard)
    assert torch.equal(HardTopKLoss()(scores, labels), hard)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [0, 7, 11])  # the smallest label, one between, the largest
@pytest.mark.parametrize("loss", [smooth_topk_loss, hard_topk_loss])
def test_weights_ignored_labels_and_reductions_are_those_of_cross_entropy(loss, ignored, weighted, reduction):
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(5, 12, generator=generator, dtype=torch.float64), torch.tensor([0, 7, 5, 7, 11])
    weight = torch.linspace(0.5, 2.0, 12, dtype=torch.float64) if weighted else None
    rows = torch.stack([loss(row[None], label[None], k=3) for row, label in zip(scores, labels, strict=True)])
    counts = (weight[labels] if weighted else torch.ones(5, dtype=torch.float64)) * (labels != ignored)
    expected = {"none": rows * counts, "sum": (rows * counts).sum(), "mean": (rows * counts).sum() / counts.sum()}
    value = loss(scores, labels, k=3, weight=weight, ignore_index=ignored, reduction=reduction)
    torch.testing.assert_close(value, expected[reduction], rtol=FLOAT64, atol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
@pytest.mark.parametrize("loss", [smooth_topk_loss, partial(smooth_topk_loss, backend="torch"), hard_topk_loss])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_labels_may_be_integers_of_any_size(loss, smoothing, dtype):
    scores, labels = torch.randn(4, 12), torch.tensor([0, 11, 7, 3])
    expected = loss(scores, labels, k=3, label_smoothing=smoothing, ignore_index=7)
    assert torch.equal(loss(scores, labels.to(dtype), k=3, label_smoothing=smoothing, ignore_index=7), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weights_of_half_precision_are_summed_in_float32(smoothing):
    scores, labels = torch.randn(5001, 3), torch.arange(5001) % 3  # float16 has no 5001
    weight = torch.ones(3, dtype=torch.float16)
    expected = smooth_topk_loss(scores, labels, k=1, label_smoothing=smoothing)
    value = smooth_topk_loss(scores, labels, k=1, label_smoothing=smoothing, weight=weight)
    torch.testing.assert_close(value, expected, rtol=FLOAT32, atol=0)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_weights_that_require_a_gradient_get_one(backend, reduction):
    scores, labels = torch.randn(4, 6, dtype=torch.float64, requires_grad=True), torch.tensor([0, 5, 0, -100])
    weight = torch.linspace(0.5, 2.0, 6, dtype=torch.float64, requires_grad=True)
    loss = partial(smooth_topk_loss, k=2, backend=backend, reduction=reduction)
    assert torch.autograd.gradcheck(lambda s, w: loss(s, labels, weight=w), (scores, weight))


def test_a_learned_temperature_may_be_the_smallest_number():
    scores, labels = torch.tensor([[1.0, 1.0, 1.0, 0.0]], dtype=torch.float64), torch.tensor([3])
    tau = torch.tensor(1e-310, dtype=torch.float64, requires_grad=True)
    value = smooth_topk_loss(scores, labels, k=2, tau=tau)
    torch.testing.assert_close(value, hard_topk_loss(scores, labels, k=2))


SCORES, LABELS = torch.zeros(4, 10), torch.zeros(4, dtype=torch.int64)
REFUSED = {
    "k must be between 1 and the number of classes minus one, got k=10 for 10 classes": (ValueError, {"k": 10}),
    "k must be at least 1, got k=0": (ValueError, {"k": 0}),
    "k must be an integer, got 2.5": (TypeError, {"k": 2.5}),
    "k must be an integer, got True": (TypeError, {"k": True}),
    "tau must be a positive finite number, got 0": (ValueError, {"tau": 0}),
    "tau must be a positive finite number, got -1.0": (ValueError, {"tau": -1.0}),
    "tau must be a positive finite number, got inf": (ValueError, {"tau": float("inf")}),
    "tau must be a positive finite number, got nan": (ValueError, {"tau": float("nan")}),
    "tau must be a number, got '1'": (TypeError, {"tau": "1"}),
    "tau must be a number, got tensor([1., 2.])": (TypeError, {"tau": torch.tensor([1.0, 2.0])}),
    "tau must be a positive finite number, got tensor(0.)": (ValueError, {"tau": torch.tensor(0.0)}),
    "tau must be a number, got (1+2j)": (TypeError, {"tau": np.complex128(1 + 2j)}),
    "tau must be a number, got 'one'": (TypeError, {"tau": np.array("one")}),
    "margin must be a finite number, zero or more, got -0.5": (ValueError, {"margin": -0.5}),
    "margin must be a finite number, zero or more, got inf": (ValueError, {"margin": float("inf")}),
    "margin must be a number, got '1'": (TypeError, {"margin": "1"}),
    "margin must not require a gradient, got tensor(1.": (
        ValueError,
        {"margin": torch.tensor(1.0, requires_grad=True)},
    ),
    "label_smoothing must be between 0 and 1, got 1.5": (ValueError, {"label_smoothing": 1.5}),
    "label_smoothing must be between 0 and 1, got -0.5": (ValueError, {"label_smoothing": -0.5}),
    "label_smoothing must be a number, got '0.1'": (TypeError, {"label_smoothing": "0.1"}),
    "ignore_index must be an integer, got 1.5": (TypeError, {"ignore_index": 1.5}),
    "series_order belongs to algorithm 'divide_and_conquer', got algorithm 'pivot'": (ValueError, {"series_order": 2}),
    "series_order must be an integer of at least zero, got -1": (
        ValueError,
        {"series_order": -1, "algorithm": "divide_and_conquer"},
    ),
    "Soft labels need algorithm 'pivot', got 'summation'": (
        ValueError,
        {"label_smoothing": 0.1, "algorithm": "summation"},
    ),
    "reduction must be one of 'none', 'mean', 'sum', got 'median'": (ValueError, {"reduction": "median"}),
    "algorithm must be one of 'pivot', 'enumeration'": (ValueError, {"algorithm": "quantum"}),
    "'divide_and_conquer_autograd', got ['pivot']": (ValueError, {"algorithm": ["pivot"]}),
    "backend must be one of 'auto', 'torch', 'numba', 'triton', got 'cuda'": (ValueError, {"backend": "cuda"}),
    "backend 'triton' needs a GPU with Triton installed, got torch.float32 on cpu": (
        RuntimeError,
        {"backend": "triton"},
    ),
    "backend 'numba' computes algorithm 'pivot' only, got algorithm 'summation'": (
        ValueError,
        {"backend": "numba", "algorithm": "summation"},
    ),
    "weight must have shape (10,), one per class, got (3,)": (ValueError, {"weight": torch.ones(3)}),
    "weight must be a tensor of float16, bfloat16, float32 or float64, got list": (TypeError, {"weight": [1.0] * 10}),
    "got the label 10": (IndexError, {"labels": torch.tensor([0, 1, 2, 10])}),
    "got the label -1": (IndexError, {"labels": torch.tensor([0, -1, 2, 3])}),
    "got the label 12": (IndexError, {"labels": torch.tensor([0, 3, 2, 12]), "ignore_index": 3}),
    "labels must have shape (4,) for scores of shape (4, 10), got (3,)": (ValueError, {"labels": LABELS[:3]}),
    "integers, or of probabilities in the shape of the scores, (4, 10), got torch.float32 of shape (4,)": (
        TypeError,
        {"labels": LABELS.float()},
    ),
    "in the shape of the scores, (4, 10), got torch.float32 of shape (3, 10)": (TypeError, {"labels": SCORES[:3]}),
    "labels must be a tensor of integers, got torch.complex64": (TypeError, {"labels": LABELS.to(torch.complex64)}),
    "labels must be a tensor of integers, got torch.bool": (TypeError, {"labels": LABELS.bool()}),
    "labels must be a tensor of integers, got list": (TypeError, {"labels": [0, 1, 2, 3]}),
    "float16, bfloat16, float32 or float64, got torch.int64": (TypeError, {"scores": SCORES.long()}),
    "scores must be a tensor of float16, bfloat16, float32 or float64, got list": (TypeError, {"scores": [1.0]}),
    "float32 or float64, got torch.float8_e4m3fn": (TypeError, {"scores": SCORES.to(torch.float8_e4m3fn)}),
    "got a scalar": (ValueError, {"scores": torch.tensor(1.0)}),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_bad_input_gets_a_sentence_that_names_the_value(sentence):
    kind, change = REFUSED[sentence]
    options = {"scores": SCORES, "labels": LABELS} | change
    with pytest.raises(kind) as caught:
        smooth_topk_loss(options.pop("scores"), options.pop("labels"), **options)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


def by_composition(scores, labels, **options):
    """Each sample through torch.func.vmap, which takes the differentiable composition."""
    one = partial(smooth_topk_loss, **options | {"reduction": "none"})
    return vmap(lambda row, label: one(row[None], label[None]))(scores, labels)[:, 0]


PATHS = {"auto": smooth_topk_loss, "torch": partial(smooth_topk_loss, backend="torch"), "composition": by_composition}
EVERY_PATH = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)


@pytest.mark.parametrize("k", [5, 40])
def test_the_paths_are_three_different_ones(k, monkeypatch):
    scores, labels = torch.randn(2, 60), torch.tensor([0, 1])
    called = []
    for backend in (numba_backend, torch_backend):
        kept = backend.loss_and_gradient
        monkeypatch.setattr(
            backend, "loss_and_gradient", lambda *a, b=backend, f=kept, **o: (called.append(b), f(*a, **o))[1]
        )
    smooth_topk_loss(scores, labels, k=k)
    smooth_topk_loss(scores, labels, k=k, backend="torch")
    assert called == [numba_backend if find_spec("numba") else torch_backend, torch_backend]
    by_composition(scores, labels, k=k)
    assert len(called) == 2
    vmap(lambda row: pytest.fail("torch.func is not seen") if not is_transformed() else row)(scores)


@EVERY_PATH
@pytest.mark.parametrize("spoiler", [torch.nan, torch.inf])
@pytest.mark.parametrize("k", [1, 4, 12])
def test_a_nan_or_plus_infinity_makes_its_own_row_nan_and_no_other(path, spoiler, k):
    scores = torch.randn(4, 20, generator=torch.Generator().manual_seed(0))
    scores[1, 7] = spoiler  # of another class
    scores[2, 2] = spoiler  # of the label
    labels = torch.tensor([0, 0, 2, 2])
    values, gradient = value_and_gradient(path, scores, labels, k=k, reduction="none")
    assert values.isnan().tolist() == [False, True, True, False]
    assert gradient.isnan().any(1).tolist() == [False, True, True, False]
    assert F.cross_entropy(scores, labels, reduction="none").isnan().tolist() == [False, True, True, False]


@EVERY_PATH
@pytest.mark.parametrize("tau", [1e-30, 1e-39, 1e-45, 1e-300])
def test_the_smallest_temperatures_give_the_hard_loss_also_where_scores_tie(path, tau):
    scores, labels = torch.tensor([[1.0, 1.0, 1.0, 0.0], [3.0, 1.0, 1e30, 0.0]]), torch.tensor([3, 0])
    value, gradient = value_and_gradient(path, scores, labels, k=2, tau=tau, reduction="none")
    torch.testing.assert_close(value, hard_topk_loss(scores, labels, k=2, reduction="none"))
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient.sum(1), torch.zeros(2))


@EVERY_PATH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("k", [5, 9, 33])
def test_half_precision_has_the_values_and_the_gradient_of_float32_rounded(path, dtype, k):
    scores = torch.randn(6, 40, generator=torch.Generator().manual_seed(k)).to(dtype)
    labels = torch.arange(6)
    value, gradient = value_and_gradient(path, scores, labels, k=k, reduction="none")
    wide, wide_gradient = value_and_gradient(path, scores.float(), labels, k=k, reduction="none")
    assert value.dtype == gradient.dtype == dtype
    torch.testing.assert_close(value, wide.to(dtype), rtol=0, atol=0)
    torch.testing.assert_close(gradient, wide_gradient.to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(path(scores.float(), labels, k=k, reduction="none"), wide)


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"algorithm": "summation"}, {"tau": torch.ones(1)}])
def test_autocast_does_not_take_digits_from_the_other_ways(options):
    scores, labels = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = smooth_topk_loss(scores, labels, k=3, **options)
    assert torch.equal(value, smooth_topk_loss(scores, labels, k=3, **options))


@EVERY_PATH
def test_a_gradient_far_below_one_keeps_its_digits(path):
    """The factor from above, times 1 / C(n, k), leaves the range of float32 here."""
    for classes, k, true_score in ((1000, 17, 400.0), (180, 33, 1200.0)):
        scores = torch.zeros(1, classes)
        scores[0, 0] = true_score
        _, gradient = value_and_gradient(path, scores, torch.tensor([0]), k=k, reduction="none")
        assert gradient[0, 0] < 0
        assert gradient.sum().abs() < 1e-5 * gradient.abs().max()
        _, exact = value_and_gradient(path, scores.double(), torch.tensor([0]), k=k, reduction="none")
        torch.testing.assert_close(gradient, exact.float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("algorithm", "k"),
    [("pivot", 5), ("pivot", 18)]
    + [(name, 3) for name in ("enumeration", "summation", "divide_and_conquer", "divide_and_conquer_autograd")],
)
def test_an_ignored_row_may_hold_anything(algorithm, k):
    scores = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, -100, 2])
    value, gradient = value_and_gradient(smooth_topk_loss, scores, labels, k=k, algorithm=algorithm)
    scores[1] = torch.nan
    spoilt, spoilt_gradient = value_and_gradient(smooth_topk_loss, scores, labels, k=k, algorithm=algorithm)
    assert torch.equal(spoilt, value)
    assert torch.equal(spoilt_gradient, gradient)
    assert gradient[1].eq(0).all()


@pytest.mark.parametrize("integer", [np.int64, np.int32, torch.tensor])
@pytest.mark.parametrize("real", [np.float64, np.float32, torch.tensor, lambda number: torch.tensor([number])])
def test_numbers_may_be_those_of_numpy_and_of_torch(integer, real):
    scores = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2])
    expected = smooth_topk_loss(scores, labels, k=3, tau=0.5, margin=0.25, label_smoothing=0.125)
    given = smooth_topk_loss(
        scores, labels, k=integer(3), tau=real(0.5), margin=real(0.25), label_smoothing=real(0.125)
    )
    assert torch.equal(given, expected)
    hard = hard_topk_loss(scores, labels, k=integer(3), margin=real(0.25))
    assert torch.equal(hard, hard_topk_loss(scores, labels, k=3, margin=0.25))


@EVERY_PATH
@pytest.mark.parametrize("options", [{"tau": 10**20}, {"margin": 10**20}, {"tau": 10**18, "k": 18}])
def test_integers_may_be_larger_than_those_of_torch(path, options):
    scores, labels = torch.randn(3, 20, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2])
    same = {name: float(value) if name != "k" else value for name, value in options.items()}
    assert torch.equal(path(scores, labels, **options), path(scores, labels, **same))
    if path is smooth_topk_loss:
        assert torch.equal(
            path(scores, labels, label_smoothing=0.1, **options), path(scores, labels, label_smoothing=0.1, **same)
        )


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("deleted", [0, 4])
def test_a_temperature_that_requires_a_gradient_is_learned(soft, deleted):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 9, generator=generator, dtype=torch.float64)
    scores[:, 9 - deleted :] = -torch.inf
    labels = torch.tensor([0, 1, 2, 3])
    if soft:
        labels = torch.rand(4, 9, generator=generator, dtype=torch.float64) * (scores > -torch.inf)
    tau = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: smooth_topk_loss(scores, labels, k=3, tau=t, reduction="none"), tau)
    assert torch.autograd.gradgradcheck(lambda t: smooth_topk_loss(scores, labels, k=3, tau=t), tau)
    learned = smooth_topk_loss(scores, labels, k=3, tau=tau)
    torch.testing.assert_close(learned, smooth_topk_loss(scores, labels, k=3, tau=0.5))
    (expected,) = torch.autograd.grad(learned, tau)
    for shape in ((), (1,)):
        module = SmoothTopKLoss(k=3, tau=torch.nn.Parameter(torch.full(shape, 0.5)))
        value = module(scores, labels)
        value.backward()
        assert value.shape == ()
        torch.testing.assert_close(module.tau.grad, expected.float().reshape(shape))


def test_a_temperature_that_changes_in_its_tensor_is_seen():
    scores, labels, tau = torch.randn(3, 12), torch.tensor([0, 1, 2]), torch.tensor(0.5)
    for number in (0.5, 2.0):
        tau.fill_(number)
        assert torch.equal(smooth_topk_loss(scores, labels, tau=tau), smooth_topk_loss(scores, labels, tau=number))


def test_the_hard_loss_of_a_row_with_a_nan_or_with_too_few_classes():
    scores = torch.tensor([[0.0, torch.nan, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0, torch.nan], [1.0] * 5])
    assert hard_topk_loss(scores, torch.zeros(3, dtype=torch.int64), k=2, reduction="none").isnan().tolist() == [
        True,
        True,
        False,
    ]
    few = torch.full((2, 5), -torch.inf)
    few[:, 1] = 1.0
    values, gradient = value_and_gradient(hard_topk_loss, few, torch.tensor([0, 1]), k=2, reduction="none")
    assert values.tolist() == [0.0, 0.0]
    assert gradient.eq(0).all()
    assert smooth_topk_loss(few, torch.tensor([0, 1]), k=2, reduction="none").tolist() == [0.0, 0.0]


@EVERY_PATH
@pytest.mark.parametrize("k", [1, 3, 5, 9])
@pytest.mark.parametrize("deleted", [3, 8, 14])
def test_a_score_of_minus_infinity_deletes_its_class(path, k, deleted):
    generator = torch.Generator().manual_seed(k)
    scores = torch.randn(4, 16, generator=generator, dtype=torch.float64)
    gone = torch.stack([torch.randperm(15, generator=generator)[:deleted] + 1 for _ in range(4)])
    labels = torch.zeros(4, dtype=torch.int64)
    masked = scores.scatter(1, gone, -torch.inf)
    values, gradient = value_and_gradient(path, masked, labels, k=k, tau=0.3, reduction="none")
    assert (gradient.gather(1, gone) == 0).all()
    for row in range(4):
        kept = [i for i in range(16) if i not in gone[row].tolist()]
        if k >= len(kept):  # fewer than k other classes are left: the label is always in the top k
            assert values[row] == 0
            assert (gradient[row] == 0).all()
            continue
        value, derivatives = value_and_gradient(smooth_topk_loss, scores[row, kept], labels[row], k=k, tau=0.3)
        torch.testing.assert_close(values[row], value, rtol=FLOAT64, atol=FLOAT64)
        torch.testing.assert_close(gradient[row, kept], derivatives, rtol=FLOAT64, atol=FLOAT64)


@given(seed=st.integers(0, 2**31), k=st.integers(1, 11), tau=st.sampled_from([1e-4, 0.1, 1.0, 10.0]))
def test_shifting_all_scores_changes_nothing_and_permuting_classes_permutes_the_gradient(seed, k, tau):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-40, 40, (3, 12), generator=generator).double() / 8  # shifts of these are exact
    labels = torch.randint(12, (3,), generator=generator)
    value, gradient = value_and_gradient(smooth_topk_loss, scores, labels, k=k, tau=tau, reduction="none")
    shifted, same = value_and_gradient(smooth_topk_loss, scores + 1024, labels, k=k, tau=tau, reduction="none")
    torch.testing.assert_close(shifted, value, rtol=FLOAT64, atol=FLOAT64)
    torch.testing.assert_close(same, gradient, rtol=FLOAT64, atol=FLOAT64)
    order = torch.randperm(12, generator=generator)
    moved = order.argsort()[labels]
    permuted, places = value_and_gradient(smooth_topk_loss, scores[:, order], moved, k=k, tau=tau, reduction="none")
    torch.testing.assert_close(permuted, value, rtol=FLOAT64, atol=FLOAT64)
    torch.testing.assert_close(places, gradient[:, order], rtol=FLOAT64, atol=FLOAT64)


@EVERY_PATH
def test_the_label_with_a_score_of_minus_infinity_costs_infinitely_much_and_pulls_with_full_force(path):
    scores = torch.tensor([[0.0, 1.0, -torch.inf, 2.0]])
    value, gradient = value_and_gradient(path, scores, torch.tensor([2]), k=2)
    assert value == torch.inf
    assert gradient[0, 2] == -0.5
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ["auto", "numba"])
def test_a_backend_as_algorithm_still_works_with_a_warning(name):
    scores, labels = torch.randn(3, 20), torch.tensor([0, 1, 2])
    with pytest.warns(DeprecationWarning, match=f"algorithm='{name}' .* backend='{name}'"):
        old = smooth_topk_loss(scores, labels, algorithm=name)
    assert torch.equal(old, smooth_topk_loss(scores, labels, backend=name))


def test_numbers_that_fit_and_rows_that_do_not():
    scores = torch.tensor([[3.4e38, -3.4e38, 3.4e38, 3.4e38]])
    assert hard_topk_loss(scores, torch.tensor([1]), k=3).item() == pytest.approx(2 * 3.4e38 / 3)
    spoilt = torch.tensor([[1.0, torch.inf, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    losses, gradient = value_and_gradient(hard_topk_loss, spoilt, torch.tensor([0, 0]), k=2, reduction="none")
    assert losses.isnan().tolist() == gradient.isnan().all(1).tolist() == [True, False]
    labels = torch.tensor([0, 2**64 - 100], dtype=torch.uint64)
    with pytest.raises(IndexError, match=str(2**64 - 100)):
        smooth_topk_loss(spoilt, labels, k=2)
    leaf = torch.tensor([[40.0, 0.0]], dtype=torch.float64, requires_grad=True)
    loss = smooth_topk_loss(leaf, torch.tensor([0]), k=1, margin=0.0)
    (first,) = torch.autograd.grad(loss, leaf, create_graph=True)
    (second,) = torch.autograd.grad(first[0, 1], leaf)
    assert second[0, 1].item() == pytest.approx(math.exp(-40), rel=1e-12)


@pytest.mark.parametrize("algorithm", ["enumeration", "summation", "divide_and_conquer", "divide_and_conquer_autograd"])
def test_the_papers_algorithms_give_the_same_loss_in_double_precision(algorithm):
    scores, labels = torch.randn(6, 12, dtype=torch.float64), torch.randint(12, (6,))
    exact, exact_gradient = value_and_gradient(smooth_topk_loss, scores, labels, k=3, tau=0.7)
    value, gradient = value_and_gradient(smooth_topk_loss, scores, labels, k=3, tau=0.7, algorithm=algorithm)
    torch.testing.assert_close(value, exact, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient, exact_gradient, rtol=1e-6, atol=1e-8)  # the series is an approximation


def test_importing_the_package_needs_torch_alone():
    probe = """
import sys, torch
before = set(sys.modules)
import smooth_topk
allowed = {"torch", "smooth_topk", "numpy"}
print({name.split(".")[0] for name in set(sys.modules) - before} - allowed - set(sys.stdlib_module_names))
"""
    printed = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_learned_temperature_has_a_derivative_where_few_classes_exist_and_where_an_ignored_row_holds_a_nan(smoothing):
    scores = torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores[0], scores[1] = -torch.inf, torch.nan
    scores[0, :2] = 1.0  # fewer than k others: the loss of this row is zero
    labels, tau = torch.tensor([0, -100, 3]), torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    leaf = scores.clone().requires_grad_()
    loss = partial(smooth_topk_loss, labels=labels, label_smoothing=smoothing, reduction="sum")
    loss(leaf, tau=tau).backward()
    alone = smooth_topk_loss(scores[2:], labels[2:], tau=tau, label_smoothing=smoothing)
    torch.testing.assert_close(tau.grad, torch.autograd.grad(alone, tau)[0])
    assert not leaf.grad.isnan().any()
    assert not torch.func.grad(loss)(scores).isnan().any()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), leaf)
    assert not second.isnan().any()


@pytest.mark.parametrize("algorithm", ["pivot", "enumeration", "summation", "divide_and_conquer"])
@pytest.mark.parametrize("k", [1, 3])
def test_plus_infinity_makes_the_loss_of_its_row_nan_whatever_computes_it(algorithm, k):
    scores = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    scores[0, 3] = scores[1, 0] = torch.inf
    losses = smooth_topk_loss(scores, torch.zeros(3, dtype=torch.int64), k=k, algorithm=algorithm, reduction="none")
    assert losses.isnan().tolist() == [True, True, False]


def test_numbers_at_the_ends_of_their_range():
    scores, labels = torch.randn(1, 50, dtype=torch.float64), torch.tensor([3])
    for outside in (2**63, -(2**63) - 1, 2**64 + 3):
        with pytest.raises(ValueError, match=f"ignore_index must be within the range of int64, .* got {outside}"):
            smooth_topk_loss(scores, labels, ignore_index=outside)
    for name in ("tau", "margin"):
        with pytest.raises(
            ValueError, match=f"{name} must be within the range of float64, got an integer of 1329 bits"
        ):
            smooth_topk_loss(scores, labels, **{name: 10**400})
    assert smooth_topk_loss(scores, labels, margin=np.array(1.0)) == smooth_topk_loss(scores, labels)
    scores[0, 30:] = -torch.inf  # deleted also where kτ is beyond the largest number, and 1 / (kτ) is not zero
    for k, backend in itertools.product((5, 20), ("auto", "torch")):
        value = smooth_topk_loss(scores, labels, k=k, tau=1e307, backend=backend)
        # All k-sets weigh the same: τ log(1 + (n - k) / k), the margin being negligible against τ.
        assert value.item() == pytest.approx(1e307 * math.log(30 / k))


@pytest.mark.parametrize("k", [5, 40])
def test_without_numba_plain_torch_gives_the_same_numbers(monkeypatch, k):
    scores, labels = torch.randn(6, 60, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    leaf = scores.clone().requires_grad_()
    expected = smooth_topk_loss(leaf, labels, k=k)
    (gradient,) = torch.autograd.grad(expected, leaf)
    monkeypatch.setattr(numba_backend, "NUMBA_INSTALLED", False)
    assert backend_for(scores, k) is torch_backend
    value = smooth_topk_loss(leaf, labels, k=k)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(torch.autograd.grad(value, leaf)[0], gradient, rtol=1e-5, atol=1e-8)
