"""Every transform and kind of tensor that cross-entropy works with: the loss works, and gives the same numbers."""

import io
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from smooth_topk import SmoothTopKLoss, balanced_subset, corrupt_within_superclass, hard_topk_loss, smooth_topk_loss

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.randn(4, 9, dtype=torch.float64, generator=GENERATOR)
LABELS = torch.tensor([1, 8, 4, 0])
TANGENT = torch.randn(4, 9, dtype=torch.float64, generator=GENERATOR)


def loss(scores, labels=LABELS):
    return smooth_topk_loss(scores, labels, k=3, tau=0.4)


def losses(scores, labels=LABELS):
    return smooth_topk_loss(scores, labels, k=3, tau=0.4, reduction="none")


def gradient_of(function, scores=SCORES):
    leaf = scores.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf)[0]


GRADIENT = gradient_of(loss)
JACOBIAN = torch.autograd.functional.jacobian(losses, SCORES)
HESSIAN = torch.autograd.functional.hessian(loss, SCORES)


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_derivatives_in_every_mode_match_finite_differences(k):
    def function(scores):
        return smooth_topk_loss(scores, LABELS, k=k, tau=0.4, reduction="none")

    leaf = SCORES.clone().requires_grad_()
    modes = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(function, leaf, **modes)
    assert torch.autograd.gradgradcheck(function, leaf)


def test_a_tie_at_the_pivot_has_second_derivatives():
    tied = torch.tensor([[1.0, 1.0, 1.0, 0.0, 1.0, -1.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda s: smooth_topk_loss(s, torch.tensor([3]), k=2, tau=0.5), tied)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_several_derivatives_at_once(backend):
    leaf = SCORES.clone().requires_grad_()
    basis = torch.eye(4, dtype=torch.float64)
    values = smooth_topk_loss(leaf, LABELS, k=3, tau=0.4, reduction="none", backend=backend)
    (jacobian,) = torch.autograd.grad(values, leaf, basis, is_grads_batched=True, retain_graph=True)
    assert_equal(jacobian, JACOBIAN)
    (jacobian,) = torch.autograd.grad(values, leaf, basis, is_grads_batched=True, create_graph=True)
    assert_equal(jacobian, JACOBIAN)
    (second,) = torch.autograd.grad(jacobian[:, :, 0].sum(), leaf)
    assert_equal(second, 4 * HESSIAN[:, 0].sum(0))


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_vectorised_jacobians(strategy):
    assert_equal(torch.autograd.functional.jacobian(losses, SCORES, vectorize=True, strategy=strategy), JACOBIAN)


def test_products_with_the_hessian():
    _, product = torch.autograd.functional.hvp(loss, SCORES, TANGENT)
    assert_equal(product, (HESSIAN * TANGENT).sum((2, 3)))
    _, product = torch.autograd.functional.vhp(loss, SCORES, TANGENT)
    assert_equal(product, (HESSIAN * TANGENT).sum((2, 3)))


def test_forward_mode():
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(loss(forward_ad.make_dual(SCORES, TANGENT))).tangent
    assert_equal(tangent, (GRADIENT * TANGENT).sum())
    assert_equal(jvp(loss, (SCORES,), (TANGENT,))[1], (GRADIENT * TANGENT).sum())
    value, push_forward = linearize(loss, SCORES)
    assert_equal(value, loss(SCORES))
    assert_equal(push_forward(TANGENT), (GRADIENT * TANGENT).sum())


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_reverse_mode_of_torch_func_whatever_the_mode_around_it(mode):
    with mode():
        assert_equal(grad(loss)(SCORES), GRADIENT)
        assert_equal(vjp(loss, SCORES)[1](torch.tensor(1.0, dtype=torch.float64))[0], GRADIENT)
        assert_equal(jacrev(losses)(SCORES), JACOBIAN)


@pytest.mark.parametrize("outer", [jacfwd, jacrev])
@pytest.mark.parametrize("inner", [jacfwd, jacrev])
def test_second_derivatives_nested_in_any_way(outer, inner):
    assert_equal(outer(inner(loss))(SCORES), HESSIAN)
    assert_equal(hessian(loss)(SCORES), HESSIAN)


def test_derivatives_by_the_temperature():
    def of_tau(tau):
        return smooth_topk_loss(SCORES, LABELS, k=3, tau=tau)

    tau = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(of_tau(tau), tau)
    assert_equal(grad(of_tau)(tau.detach()), expected)
    taus = torch.tensor([0.4, 0.7], dtype=torch.float64)
    assert_equal(vmap(of_tau)(taus), torch.stack([of_tau(0.4), of_tau(0.7)]))


def test_samples_one_by_one():
    assert_equal(vmap(loss)(SCORES, LABELS), losses(SCORES))
    assert_equal(vmap(grad(loss))(SCORES, LABELS) / 4, GRADIENT)
    assert_equal(grad(lambda scores: vmap(loss)(scores, LABELS).mean())(SCORES), GRADIENT)
    batches = torch.stack([SCORES, TANGENT])
    assert_equal(vmap(grad(loss))(batches), torch.stack([GRADIENT, gradient_of(loss, TANGENT)]))


@pytest.mark.parametrize("wrong", [25, -1, 10**9])
def test_a_label_out_of_range_is_refused_under_vmap_as_without_it(wrong):
    labels = torch.tensor([1, 8, wrong, 0])
    for function in (loss, vmap(loss), vmap(grad(loss))):
        with pytest.raises(IndexError, match=rf"labels must lie in \[0, 9\) or be ignore_index, got the label {wrong}"):
            function(SCORES, labels)


def test_tracing_records_the_loss_and_its_gradient():
    other = SCORES.flip(0)

    def of_both(scores, labels):
        return loss(scores, labels), grad(loss)(scores, labels)

    for mode in ("real", "symbolic"):
        traced = make_fx(of_both, tracing_mode=mode)(SCORES, LABELS)
        ignored = torch.tensor([1, -100, 4, 0])  # was not when the trace was made
        for a, b in zip(traced(other, ignored), of_both(other, ignored), strict=True):
            assert_equal(a, b)


@pytest.mark.parametrize("k", [3, 8])
def test_tensors_without_numbers_have_shapes(k):
    def shapes(device):
        scores = torch.empty(4, 9, device=device, requires_grad=True)
        labels = torch.empty(4, dtype=torch.int64, device=device)
        value = smooth_topk_loss(scores, labels, k=k)
        value.backward()
        return value.shape, value.device.type, scores.grad.shape

    assert shapes("meta") == ((), "meta", (4, 9))
    with FakeTensorMode():
        assert shapes("cpu") == ((), "cpu", (4, 9))


def test_a_learned_temperature_without_a_number_is_taken_as_it_is():
    module = SmoothTopKLoss(k=3, tau=torch.nn.Parameter(torch.tensor(0.5))).to("meta")
    value = module(SCORES.to("meta"), LABELS.to("meta"))
    value.backward()
    assert (value.shape, module.tau.grad.shape) == ((), ())


MODES = {
    "counted": partial(FlopCounterMode, display=False),
    "faked": partial(FakeTensorMode, allow_non_fake_inputs=True),
    "compiled": lambda: torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")),
}


@pytest.mark.parametrize("k", [3, 20])
@pytest.mark.parametrize("mode", MODES)
def test_the_backward_pass_alone_may_be_counted_faked_or_compiled(mode, k):
    scores, labels = torch.randn(4, 30, dtype=torch.float64, requires_grad=True), torch.tensor([1, 8, 4, 0])
    expected = gradient_of(lambda s: smooth_topk_loss(s, labels, k=k), scores.detach())
    value = smooth_topk_loss(scores, labels, k=k)
    with MODES[mode]():
        value.backward()
    assert scores.grad.shape == scores.shape
    if mode == "faked":
        assert isinstance(scores.grad, FakeTensor)
    else:
        assert_equal(scores.grad, expected)


@pytest.mark.filterwarnings("ignore")  # of the tracer, which is deprecated and sees Python numbers
@pytest.mark.parametrize("k", [3, 20])
@pytest.mark.parametrize(
    "options", [{}, {"backend": "torch"}, {"algorithm": "summation"}, {"label_smoothing": 0.1}, {"weight": None}]
)
def test_a_trace_can_be_saved_and_takes_other_rows_and_other_labels(options, k):
    weight = torch.rand(30) if "weight" in options else None
    module = SmoothTopKLoss(k=k, **options | {"weight": weight})
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, (torch.randn(6, 30), torch.arange(6))), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    scores, labels = torch.randn(9, 30), torch.tensor([4, -100, 3, 29, 0, 1, 1, 2, -100])  # some are ignored now
    torch.testing.assert_close(loaded(scores, labels), module(scores, labels))
    expected = gradient_of(lambda s: module(s, labels), scores)
    torch.testing.assert_close(gradient_of(lambda s: loaded(s, labels), scores), expected, rtol=1e-5, atol=1e-7)


def test_labels_of_another_device_are_refused():
    with pytest.raises(RuntimeError, match=r"labels must be on the device of the scores, cpu, got meta\."):
        loss(SCORES, torch.empty(4, dtype=torch.int64, device="meta"))
    with pytest.raises(RuntimeError, match=r"weight must be on the device of the scores, cpu, got meta\."):
        smooth_topk_loss(SCORES, LABELS, weight=torch.empty(9, device="meta"))


@pytest.mark.parametrize("k", [5, 40])
def test_the_default_device_does_not_matter(k):
    """Under torch.set_default_device, what the kernels write to must still be in the memory of the scores."""
    scores, labels = torch.randn(3, 60, requires_grad=True), torch.tensor([0, 7, 59])
    expected, *_ = torch.autograd.grad(smooth_topk_loss(scores, labels, k=k, reduction="none").sum(), scores)
    drawn = [
        partial(corrupt_within_superclass, labels, 0.5, seed=0, groups=[label // 5 for label in range(60)]),
        partial(balanced_subset, labels, 1.0, seed=0),
        partial(balanced_subset, labels, 3, seed=0),
    ]
    before = [draw() for draw in drawn]
    with torch.device("meta"):
        losses = smooth_topk_loss(scores, labels, k=k, reduction="none")
        (gradient,) = torch.autograd.grad(losses.sum(), scores)
        assert all(map(torch.equal, [draw() for draw in drawn], before))
    assert torch.equal(gradient, expected)


def test_views_whose_memory_holds_other_numbers():
    negative = torch._neg_view(SCORES)
    assert negative.is_neg()
    assert_equal(losses(negative), losses(-SCORES))
    assert_equal(losses(torch._efficientzerotensor(4, 9, dtype=torch.float64)), losses(torch.zeros_like(SCORES)))


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def test_the_operator_of_compiled_programs_describes_its_results():
    operator = torch.ops.smooth_topk.loss_and_gradient.default
    leaf = SCORES.clone().requires_grad_()
    for reduction in ("mean", "none"):
        arguments = leaf, LABELS, torch.rand(9, dtype=torch.float64), 3, 0.4, 1.0, -100, reduction, "auto", True
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))
        loss, _ = operator(*arguments)
        expected = gradient_of(lambda s, a=arguments: operator(s, *a[1:])[0].sum())
        assert_equal(torch.autograd.grad(loss.sum(), leaf)[0], expected)


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 12, 40])
def test_the_compiler_traces_the_loss_whole_also_for_a_second_number_of_classes(k):
    def function(scores, labels):
        return smooth_topk_loss(scores, labels, k=k)

    traced = compiled(function)
    for classes in (50, 60, 70):
        scores = torch.randn(4, classes, generator=torch.Generator().manual_seed(classes), requires_grad=True)
        value = traced(scores, LABELS)
        torch.testing.assert_close(value, function(scores, LABELS))
        (gradient,) = torch.autograd.grad(value, scores)
        torch.testing.assert_close(gradient, gradient_of(lambda s: function(s, LABELS), scores.detach()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"reduction": "none", "ignore_index": 4},
        {"weight": torch.rand(9, generator=GENERATOR)},
        {"label_smoothing": 0.1},
        {"k": 1},
    ],
)
def test_the_compiler_traces_every_option(options):
    def function(scores):
        return smooth_topk_loss(scores, LABELS, **{"k": 3} | options)

    scores = SCORES.float().requires_grad_()
    value = compiled(function)(scores)
    torch.testing.assert_close(value, function(scores))
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    torch.testing.assert_close(gradient, gradient_of(lambda s: function(s).sum(), scores.detach()))


@pytest.mark.slow
def test_the_compiler_traces_the_transforms_and_a_temperature_that_changes():
    per_sample = compiled(vmap(grad(loss)))
    for classes in (9, 12):
        scores = torch.randn(4, classes, generator=torch.Generator().manual_seed(classes))
        torch.testing.assert_close(per_sample(scores, LABELS), vmap(grad(loss))(scores, LABELS))
    traced = compiled(lambda scores, tau: smooth_topk_loss(scores, LABELS, k=3, tau=tau))
    for tau in (0.5, 0.7, 0.9):
        assert_equal(traced(SCORES, tau), smooth_topk_loss(SCORES, LABELS, k=3, tau=tau))


def test_cross_entropy_itself_passes_the_hardest_of_these():
    """What is asked here is asked of cross-entropy too, but for the sentence."""
    with pytest.raises(RuntimeError, match="out of bounds"):
        vmap(F.cross_entropy)(SCORES, torch.tensor([1, 8, 25, 0]))
    with pytest.raises(IndexError, match="out of bounds"):
        F.cross_entropy(SCORES, torch.tensor([1, 8, 25, 0]))


class Wrapped(torch.Tensor):
    """A tensor whose numbers stand in another one: its own memory must never be read."""

    @staticmethod
    def __new__(cls, inside):
        outside = torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype, device=inside.device)
        outside.inside = inside
        return outside

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        def unwrapped(value):
            return value.inside if isinstance(value, Wrapped) else value

        return function(*tree_map(unwrapped, arguments), **tree_map(unwrapped, options or {}))


HOOKS = {
    "halved": (lambda saved: saved.bfloat16() if saved.is_floating_point() else saved, torch.Tensor.float),
    "as float32": (lambda saved: saved.float() if saved.is_floating_point() else saved, None),
    "every other row": (lambda saved: saved.repeat_interleave(2, 0)[::2] if saved.dim() else saved, None),
    "by columns": (lambda saved: saved.t().contiguous().t() if saved.dim() == 2 else saved, None),
}


@pytest.mark.parametrize("k", [5, 20, 40])
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_may_change_what_is_saved_for_the_backward_pass(hook, k):
    pack, unpack = HOOKS[hook]
    scores, labels = torch.randn(64, 50, requires_grad=True), torch.arange(64) % 50
    (expected,) = torch.autograd.grad(smooth_topk_loss(scores, labels, k=k), scores)
    restored = (lambda saved: unpack(saved) if saved.dtype == torch.bfloat16 else saved) if unpack else (lambda x: x)
    with torch.autograd.graph.saved_tensors_hooks(pack, restored):
        value = smooth_topk_loss(scores, labels, k=k)
    (found,) = torch.autograd.grad(value, scores)
    error = (found - expected).abs().max() / expected.abs().max()
    assert error < (0.02 if hook == "halved" else 1e-6)  # bfloat16 keeps three digits of the scores


@pytest.mark.parametrize("k", [5, 20])
def test_a_hook_that_gives_back_other_scores_is_refused(k):
    scores, labels = torch.randn(64, 50, requires_grad=True), torch.arange(64) % 50
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved[:3] if saved.dim() == 2 else saved, lambda x: x):
        value = smooth_topk_loss(scores, labels, k=k)
    with pytest.raises(RuntimeError, match=r"\[3, 50\].*\[64, 50\]"):
        value.backward()


@pytest.mark.parametrize("k", [5, 20])
def test_labels_and_derivatives_without_memory_of_their_own_are_not_read_as_memory(k):
    scores, labels = torch.randn(6, 50, requires_grad=True), torch.arange(6)
    value = smooth_topk_loss(scores, labels, k=k, reduction="none")
    torch.testing.assert_close(smooth_topk_loss(scores, Wrapped(labels), k=k, reduction="none"), value)
    (expected,) = torch.autograd.grad(value, scores, torch.ones(6), retain_graph=True)
    (found,) = torch.autograd.grad(value, scores, Wrapped(torch.ones(6)))
    assert torch.equal(found, expected)
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.zeros(6, dtype=torch.int64)
    assert isinstance(smooth_topk_loss(scores, fake, k=k), FakeTensor)


@pytest.mark.parametrize("of", [smooth_topk_loss, hard_topk_loss])
def test_label_smoothing_can_be_transformed(of):
    def smoothed(scores, labels=LABELS):
        return of(scores, labels, k=3, label_smoothing=0.1)

    value, gradient = smoothed(SCORES), gradient_of(smoothed)
    for found in vmap(grad(smoothed))(SCORES.expand(2, 4, 9), LABELS.expand(2, 4)):
        assert_equal(found, gradient)
    linear_value, derivative = linearize(smoothed, SCORES)
    assert_equal(linear_value, value)
    assert_equal(derivative(TANGENT), (gradient * TANGENT).sum())
    assert_equal(make_fx(lambda scores: smoothed(scores))(SCORES)(SCORES), value)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("k", [3, 20, 40])
def test_an_exported_loss_takes_any_number_of_rows(k, strict):
    class Loss(torch.nn.Module):
        def forward(self, scores, labels):
            return smooth_topk_loss(scores, labels, k=k)

    rows = {0: torch.export.Dim("rows", min=2, max=4096)}
    example = torch.randn(6, 60), torch.arange(6)
    exported = torch.export.export(Loss(), example, dynamic_shapes=(rows, rows), strict=strict).module()
    scores, labels = torch.randn(11, 60), torch.arange(11)
    torch.testing.assert_close(exported(scores, labels), smooth_topk_loss(scores, labels, k=k))
