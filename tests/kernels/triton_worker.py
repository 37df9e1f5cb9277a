"""Runs the Triton kernels on CPU tensors, in a process of its own: Triton interprets from its import on or never."""

import os
from unittest import mock


def start() -> None:
    """Makes this process an interpreting one; called before anything imports Triton."""
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy
    import torch

    torch.set_num_threads(1)
    numpy.seterr(all="ignore")  # a kernel computes both sides of a `where`, as -inf - -inf


def run(scores, labels, k, tau, margin=1.0, grad_loss=None, block=None):
    """Losses, gradient and state; `block` classes at a time, so that short rows stream too."""
    import torch

    from smooth_topk.pivot import triton_backend as backend

    grad_loss = torch.ones(len(scores)) if grad_loss is None else grad_loss
    launch = {} if block is None else {"return_value": backend.Launch(block, warps=1)}
    with (
        mock.patch.object(backend, "forward_launch", **(launch or {"wraps": backend.forward_launch})),
        mock.patch.object(backend, "backward_launch", **(launch or {"wraps": backend.backward_launch})),
    ):
        losses, *state = backend.forward(scores, labels, k, tau, margin)
        return losses, backend.backward(scores, state, grad_loss, k, tau), tuple(state)


def run_compiled(scores, labels, k, tau):
    """Losses and gradient with both kernels inside one graph of torch.compile."""
    import torch

    from smooth_topk.pivot import triton_backend as backend

    def both(scores, labels):
        losses, *state = backend.forward(scores * 2, labels, k, tau, 1.0)
        return losses, backend.backward(scores * 2, tuple(state), torch.ones_like(losses), k, tau)

    return torch.compile(both, fullgraph=True, backend="aot_eager")(scores, labels)


def supported(dtype_name, k):
    """What `supports` says about CPU scores here."""
    import torch

    from smooth_topk.pivot import triton_backend as backend

    return backend.supports(torch.zeros(1, 50, dtype=getattr(torch, dtype_name)), k)


def public_loss(scores, labels, **options):
    """The public loss and its gradient where Numba does not stand before Triton, and the backend that was chosen."""
    import torch

    from smooth_topk import losses
    from smooth_topk.pivot import backend_for

    leaf = scores.clone().requires_grad_()
    value = losses.smooth_topk_loss(leaf, labels, **options)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient, backend_for(scores, options["k"]).__name__
