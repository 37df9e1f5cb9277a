"""Each private interface of torch may go away: the loss still gives right answers."""

from types import SimpleNamespace

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from smooth_topk import smooth_topk_loss, torch_internals

SCORES = torch.randn(4, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([1, 8, -100, 0])


def loss(scores, labels=LABELS, **options):
    return smooth_topk_loss(scores, labels, k=3, tau=0.4, **options)


def answers():
    leaf = SCORES.clone().requires_grad_()
    value = loss(leaf)
    yield value.detach()
    for kept in (True, True, False):  # the saved gradient is given away only when nobody asks for it again
        (gradient,) = torch.autograd.grad(value, leaf, retain_graph=kept)
        yield gradient.clone()
        gradient.zero_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    yield torch.autograd.grad(gradient.square().sum(), leaf)[0]
    basis = torch.eye(4, dtype=torch.float64)
    yield torch.autograd.grad(loss(leaf, reduction="none"), leaf, basis, is_grads_batched=True)[0]
    yield from (grad(loss)(SCORES), hessian(loss)(SCORES), jvp(loss, (SCORES,), (SCORES,))[1])
    yield vmap(grad(loss))(SCORES[:2], LABELS[:2])
    with forward_ad.dual_level():
        yield forward_ad.unpack_dual(loss(forward_ad.make_dual(SCORES, SCORES))).tangent
    yield make_fx(lambda scores, labels: loss(scores, labels))(SCORES, LABELS)(SCORES.flip(0), LABELS)
    yield smooth_topk_loss(SCORES, LABELS, tau=torch.tensor(0.3))


EXPECTED = list(answers())


@pytest.mark.parametrize("name", [*torch_internals.PRIVATE, "level"])
def test_without_a_private_interface_the_answers_are_the_same(name, monkeypatch):
    if name == "level":
        monkeypatch.setattr(torch_internals, "forward_ad", SimpleNamespace())
    else:
        monkeypatch.setitem(torch_internals.PRIVATE, name, None)
    for found, expected in zip(answers(), EXPECTED, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_a_name_that_torch_does_not_have_is_none():
    assert torch_internals._find("_functorch.no_such_name.at_all") is None
    assert all(function is not None for function in torch_internals.PRIVATE.values())
