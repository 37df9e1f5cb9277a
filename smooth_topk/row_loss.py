"""The smooth loss of every row with the pivot algorithm: scores (N, C) in, losses (N,) out.

    L = τ softplus(z),   z = margin/τ + (s_[k] - s_y)/(kτ) + log(S_k / S_{k-1})

Values and first derivatives take one pass each way (eager.py, fused/). Derivatives of higher order, forward mode and
very large k use the differentiable composition of symmetric_polynomials/pivot.py. Derived in notebooks/06_pivot.
"""

import torch
from torch import Tensor

from . import eager
from .fused import numba_backend, triton_backend
from .symmetric_polynomials import pivot

HALF = (torch.float16, torch.bfloat16)


def row_losses(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float, fused: bool = True) -> Tensor:
    """L_{k,τ} of each row, shape (N,); scores (N, C), labels (N,) in range.

    Half precision is computed, and returned, in float32. `fused` allows the kernels of fused/ where they apply.
    """
    if scores.dtype in HALF and _backend(scores, k, fused) is not triton_backend:
        scores = scores.float()
    settings = k, tau, margin, fused
    if not torch.compiler.is_compiling():
        return _RowLoss.apply(scores, labels, *settings)[0]
    if _backend(scores, k, fused) is None:
        return composed_losses(scores, labels, k, tau, margin)
    return _TracedRowLoss.apply(scores, labels, *settings)[0]


def composed_losses(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """The same values from differentiable torch functions: any order of derivative, any transform, any k."""
    scores = scores.float() if scores.dtype in HALF else scores
    label = labels[:, None]
    others = scores.scatter(1, label, -torch.inf)
    log_sigmas, _ = pivot.log_scaled_sigmas(others, k, 1 / (k * tau))
    lower, upper = log_sigmas[-2:]
    kth_score = pivot.smallest_finite(others.detach().topk(k).values)
    empty = upper.detach() == -torch.inf  # fewer than k other classes exist: the label is always in the top k
    log_ratio = upper - torch.where(empty, 0.0, lower)
    hard = margin / tau + (kth_score - scores.gather(1, label).double())[:, 0] / (k * tau)
    return (tau * eager.softplus(torch.where(empty, -torch.inf, hard + log_ratio))).to(scores.dtype)


def composed_backward(scores: Tensor, labels: Tensor, grad_loss: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """Derivatives of `composed_losses`, themselves differentiable; in blocks of rows, to bound the memory."""
    pieces = []
    for part, part_labels, part_grad in pivot.blocks(k, scores, labels, grad_loss):
        pull_back = torch.func.vjp(lambda x, y=part_labels: composed_losses(x, y, k, tau, margin), part)[1]
        pieces.append(pull_back(part_grad)[0])
    return torch.cat(pieces)


def _backend(scores: Tensor, k: int, fused: bool):
    """The module whose `forward` and `backward` are exact for this k, or None where only positive sums are."""
    if fused and triton_backend.supports(scores, k):
        return triton_backend
    if fused and not torch.compiler.is_compiling() and numba_backend.supports(scores, k):
        return numba_backend
    return eager if eager.working_dtype(scores.dtype, k) else None


class _TracedRowLoss(torch.autograd.Function):
    """Values and first derivatives; this plain form is the one that torch.compile can trace."""

    @staticmethod
    def forward(scores, labels, k, tau, margin, fused):
        backend = _backend(scores, k, fused)
        if backend is None:
            return (composed_losses(scores, labels, k, tau, margin),)
        return backend.forward(scores, labels, k, tau, margin)

    @staticmethod
    def setup_context(ctx, inputs, output):
        scores, labels, *ctx.settings = inputs
        ctx.outputs = len(output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, labels, *output[1:])
        ctx.save_for_forward(scores, labels)

    @staticmethod
    def backward(ctx, grad_loss, *_):
        scores, labels, *state = ctx.saved_tensors
        k, tau, margin, fused = ctx.settings
        backend = _backend(scores, k, fused)
        if backend is None:
            gradient = composed_backward(scores, labels, grad_loss, k, tau, margin)
        else:
            gradient = backend.backward(scores, eager.RowState(*state), grad_loss, k, tau)
        return gradient, None, None, None, None, None


class _RowLoss(_TracedRowLoss):
    """The same with derivatives of higher order, forward mode and vmap."""

    @staticmethod
    def backward(ctx, grad_loss, *_):
        if grad_loss is None:
            return (None,) * 6
        if not torch.is_grad_enabled():
            return _TracedRowLoss.backward(ctx, grad_loss)
        scores, labels, *_ = ctx.saved_tensors  # a derivative of the derivative may be asked for
        return composed_backward(scores, labels, grad_loss, *ctx.settings[:3]), None, None, None, None, None

    @staticmethod
    def jvp(ctx, scores_tangent, *_):
        scores, labels = ctx.saved_tensors
        ones = torch.ones_like(scores[:, 0], dtype=torch.float32 if scores.dtype in HALF else None)
        gradient = composed_backward(scores, labels, ones, *ctx.settings[:3])
        return (gradient * scores_tangent).sum(1), *[None] * (ctx.outputs - 1)

    @staticmethod
    def vmap(info, in_dims, scores, labels, *settings):
        """Rows are independent: the mapped dimension joins the batch. The state stays there, for nobody asks for it:
        transforms differentiate the composition."""
        scores, labels = (
            x.unsqueeze(0).expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((scores, labels), in_dims[:2], strict=True)
        )
        losses, *state = _RowLoss.apply(scores.flatten(0, 1), labels.flatten(0, 1), *settings)
        return (losses.unflatten(0, (info.batch_size, -1)), *state), (0, *[None] * len(state))
