"""What other devices need, shown on the CPU: arithmetic without float64, and wrong labels that nobody looks at."""

import itertools

import pytest
import torch
from accuracy import random_scores
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from smooth_topk import hard_topk_loss, smooth_topk_loss, targets
from smooth_topk.pivot import torch_backend
from smooth_topk.targets import checked_settings

ALLOWED = 1e-5  # without float64, for k up to 10


class NoFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **options or {})
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64 and tensor.dim():
                raise TypeError(f"{function} made a tensor of float64, which this device does not have.")
        return result


@pytest.fixture
def no_float64(monkeypatch):
    monkeypatch.setattr(targets, "WITHOUT_FLOAT64", {"cpu"})
    for module in (torch_backend, targets, __import__("smooth_topk.polynomials.pivot").polynomials.pivot):
        monkeypatch.setattr(module, "WITHOUT_FLOAT64", {"cpu"})
    return NoFloat64


@pytest.mark.parametrize(("k", "classes"), [(1, 5), (3, 40), (5, 7), (5, 1000), (10, 12), (10, 1000), (20, 50)])
def test_the_loss_is_accurate_where_there_is_no_float64(k, classes, no_float64):
    for tau, scale in itertools.product((10.0, 1.0, 0.1, 1e-3, 1e-4), (0.1, 1.0, 30.0)):
        scores, labels = random_scores(4, classes, scale)
        exact = scores.double().requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            for module in (torch_backend, targets, __import__("smooth_topk.polynomials.pivot").polynomials.pivot):
                patch.setattr(module, "WITHOUT_FLOAT64", set())
            truth = smooth_topk_loss(exact, labels, k=k, tau=tau, reduction="none")
            (derivatives,) = torch.autograd.grad(truth.sum(), exact)
        leaf = scores.clone().requires_grad_()
        with no_float64():
            losses = smooth_topk_loss(leaf, labels, k=k, tau=tau, reduction="none")
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        size = torch.maximum(truth.detach(), scores.abs().amax(1))  # the hard margin is a difference of scores
        assert ((losses - truth).abs() <= ALLOWED * size).all()
        if k <= 10 and scale / tau < 1e3:
            largest = derivatives.abs().amax(1)
            assert ((gradient - derivatives).abs().amax(1) <= ALLOWED * largest.clamp(min=1e-6)).all()


def test_every_option_works_where_there_is_no_float64(no_float64):
    scores, labels = random_scores(4, 12)
    scores.requires_grad_()
    options = [
        {},
        {"label_smoothing": 0.1},
        {"backend": "torch"},
        {"weight": torch.rand(12)},
        {"tau": torch.tensor(0.5)},
    ]
    options += [{"tau": torch.tensor(0.5, requires_grad=True)}, {"reduction": "sum"}]
    with no_float64():
        for chosen in options:
            (gradient,) = torch.autograd.grad(smooth_topk_loss(scores, labels, k=3, **chosen), scores)
            assert gradient.isfinite().all()
        (gradient,) = torch.autograd.grad(smooth_topk_loss(scores, labels, k=3), scores, create_graph=True)
        assert torch.autograd.grad(gradient.square().sum(), scores)[0].isfinite().all()
        assert hard_topk_loss(scores, labels, k=3).isfinite()


PATHS = {
    "smooth": {},
    "plain torch, large k": {"k": 40},
    "weights": {"weight": torch.ones(60)},
    "soft labels": {"label_smoothing": 0.1},
    "composition": {"tau": torch.tensor(0.5, requires_grad=True)},
}


@pytest.mark.parametrize("path", [*PATHS, "hard"])
@pytest.mark.parametrize("wrong", [-1, 60, 10**12, -(10**12)])
def test_a_wrong_label_that_cannot_be_looked_at_gives_nan_and_reads_no_memory(path, wrong, monkeypatch):
    monkeypatch.setattr(targets, "check_label_range", lambda *_: False)
    scores, labels = random_scores(4, 60)
    labels[1], labels[2] = wrong, -100
    scores.requires_grad_()
    loss = hard_topk_loss if path == "hard" else smooth_topk_loss
    options = {} if path == "hard" else {"backend": "torch"} | PATHS[path]
    losses = loss(scores, labels, reduction="none", **options)
    assert losses.isnan().tolist() == [False, True, False, False]
    (gradient,) = torch.autograd.grad(losses[[0, 2, 3]].sum(), scores)
    assert gradient[[0, 2, 3]].isfinite().all()
    assert loss(scores, labels, **options).isnan()


def test_a_temperature_in_a_module_moves_with_it():
    from smooth_topk import SmoothTopKLoss

    module = SmoothTopKLoss(k=3, tau=torch.tensor(0.5))
    assert not module.state_dict()
    assert module.to("meta").tau.device.type == "meta"
    assert checked_settings(3, torch.tensor(0.5), 1.0, -100, "mean", 0.0).tau == 0.5
