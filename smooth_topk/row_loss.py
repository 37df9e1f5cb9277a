"""The smooth loss of every row with the pivot algorithm: scores (N, C) in, losses (N,) out.

    L = τ softplus(z),   z = margin/τ + (s_[k] - s_y)/(kτ) + log(S_k / S_{k-1})

Values and first derivatives take one pass each way (eager.py, fused/). Derivatives of higher order, forward mode and
very large k use the differentiable composition of symmetric_polynomials/pivot.py. Derived in notebooks/06_pivot.
"""

import torch
from torch import Tensor

from . import eager
from .symmetric_polynomials import pivot


def row_losses(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """L_{k,τ} of each row, shape (N,); scores (N, C) in float32 or float64, labels (N,) valid."""
    function = _TracedRowLoss if torch.compiler.is_compiling() else _RowLoss
    return function.apply(scores, labels, k, tau, margin)[0]


def composed_losses(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """The same values from differentiable torch functions: any order of derivative, any transform, any k."""
    label = labels[:, None]
    others = scores.scatter(1, label, -torch.inf)
    sigmas, _ = pivot.scaled_sigmas(others, k, 1 / (k * tau))
    kth_score = pivot.smallest_finite(others.detach().topk(k).values)
    empty = sigmas[-2:].detach() == 0  # fewer than k other classes exist: the label is always in the top k
    log_ratio = pivot.safe_log(sigmas[-1]) - torch.where(empty[0], 0.0, pivot.safe_log(sigmas[-2]))
    hard = margin / tau + (kth_score - scores.gather(1, label).double())[:, 0] / (k * tau)
    return (tau * eager.softplus(torch.where(empty[1], -torch.inf, hard + log_ratio))).to(scores.dtype)


def composed_backward(scores: Tensor, labels: Tensor, grad_loss: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """Derivatives of `composed_losses`, themselves differentiable; in blocks of rows, to bound the memory."""
    rows = max(1, eager.BLOCK // max(1, k * scores.shape[1]))
    pieces = []
    for part, part_labels, part_grad in zip(scores.split(rows), labels.split(rows), grad_loss.split(rows), strict=True):
        pull_back = torch.func.vjp(lambda x, y=part_labels: composed_losses(x, y, k, tau, margin), part)[1]
        pieces.append(pull_back(part_grad)[0])
    return torch.cat(pieces)


class _TracedRowLoss(torch.autograd.Function):
    """Values and first derivatives; this plain form is the one that torch.compile can trace."""

    @staticmethod
    def forward(scores, labels, k, tau, margin):
        if eager.working_dtype(scores.dtype, k) is None:
            return composed_losses(scores, labels, k, tau, margin), *eager.RowState(*[labels[:0]] * 4)
        return eager.forward(scores, labels, k, tau, margin)

    @staticmethod
    def setup_context(ctx, inputs, output):
        scores, labels, *ctx.settings = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, labels, *output[1:])
        ctx.save_for_forward(scores, labels)

    @staticmethod
    def backward(ctx, grad_loss, *_):
        scores, labels, *state = ctx.saved_tensors
        k, tau, _ = ctx.settings
        if eager.working_dtype(scores.dtype, k) is None:
            gradient = composed_backward(scores, labels, grad_loss, *ctx.settings)
        else:
            gradient = eager.backward(scores, eager.RowState(*state), grad_loss, k, tau)
        return gradient, None, None, None, None


class _RowLoss(_TracedRowLoss):
    """The same with derivatives of higher order, forward mode and vmap."""

    @staticmethod
    def backward(ctx, grad_loss, *_):
        if grad_loss is None or not torch.is_grad_enabled():
            return (None,) * 5 if grad_loss is None else _TracedRowLoss.backward(ctx, grad_loss)
        scores, labels, *_ = ctx.saved_tensors  # a derivative of the derivative may be asked for
        return composed_backward(scores, labels, grad_loss, *ctx.settings), None, None, None, None

    @staticmethod
    def jvp(ctx, scores_tangent, *_):
        scores, labels = ctx.saved_tensors
        gradient = composed_backward(scores, labels, torch.ones_like(scores[:, 0]), *ctx.settings)
        return (gradient * scores_tangent).sum(1), None, None, None, None

    @staticmethod
    def vmap(info, in_dims, scores, labels, *settings):
        """Rows are independent: the mapped dimension joins the batch."""
        size = info.batch_size
        scores, labels = (
            x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((scores, labels), in_dims[:2], strict=True)
        )
        outputs = _RowLoss.apply(scores.flatten(0, 1), labels.flatten(0, 1), *settings)
        return tuple(x.unflatten(0, (size, -1)) for x in outputs), (0,) * len(outputs)
