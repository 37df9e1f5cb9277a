"""Runs the Triton kernel on CPU tensors, in a process of its own: Triton interprets from its import on or never."""

import os
import warnings
from unittest import mock


def start() -> None:
    """Makes this process an interpreting one; called before anything imports Triton."""
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy
    import torch

    torch.set_num_threads(1)
    numpy.seterr(all="ignore")  # a kernel computes both sides of a `where`, as -inf - -inf


def run(scores, labels, k, tau, margin=1.0, block=None, weight=None, reduction="none"):
    """Loss and gradient; `block` classes at a time, so that short rows stream too."""
    from smooth_topk.pivot import triton_backend as backend
    from smooth_topk.targets import checked_settings

    launch = {"wraps": backend.launch} if block is None else {"return_value": backend.Launch(block, warps=1)}
    settings = checked_settings(k, tau, margin, -100, reduction, 0.0)
    with mock.patch.object(backend, "launch", **launch):
        loss, gradient = backend.loss_and_gradient(scores, labels, weight, settings)
        alone, _ = backend.loss_and_gradient(scores, labels, weight, settings, needs_gradient=False)
    assert alone.equal(loss) or (alone.isnan() == loss.isnan()).all()
    return loss, gradient


def supported(dtype_name, k):
    """What `supports` says about CPU scores here."""
    import torch

    from smooth_topk.pivot import triton_backend as backend

    return backend.supports(torch.zeros(1, 50, dtype=getattr(torch, dtype_name)), k)


def public_loss(scores, labels, spoil=None, **options):
    """The public loss, its gradient, the backend that was chosen and the warnings.

    `spoil` makes the kernel raise ("raises") or compute a wrong gradient ("wrong").
    """
    import torch

    from smooth_topk import losses
    from smooth_topk.pivot import backend_for, triton_backend, triton_kernels

    class Spoilt:
        def __getitem__(self, grid):
            if spoil == "raises":
                raise RuntimeError("no such instruction")
            return lambda *arguments, **constants: (launch(*arguments, **constants), arguments[5].mul_(1.001))

    kernel = triton_kernels.loss_kernel
    launch = kernel[(len(scores),)]
    triton_backend._works.cache_clear()
    leaf = scores.clone().requires_grad_()
    with (
        warnings.catch_warnings(record=True) as caught,
        mock.patch.object(triton_kernels, "loss_kernel", kernel if spoil is None else Spoilt()),
    ):
        warnings.simplefilter("always")
        losses.smooth_topk_loss(leaf, labels, **options)
        value = losses.smooth_topk_loss(leaf, labels, **options)
        chosen = backend_for(scores, options["k"]).__name__.rpartition(".")[2]
    triton_backend._works.cache_clear()
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient, chosen, [str(warning.message) for warning in caught]
