"""The smooth loss with the pivot algorithm: scores (N, C) and labels (N,) in, the reduced loss out.

    L = τ softplus(z),   z = margin/τ + (s_[k] - s_y)/(kτ) + log(S_k / S_{k-1})

Values and first derivatives come from a backend, one or two passes over the scores each way: Triton on a GPU, Numba on
a CPU, plain torch everywhere, and for large k two of their own. `backend_for` picks one by device, dtype and k, never
by the scores. The usual call on a CPU takes a shorter way, `numba_backend.fused_loss`. Whatever else is asked for comes
from the differentiable composition (composition.py): derivatives of higher order, forward mode, the transforms of
torch.func, a temperature that is learned. Derived in notebooks/06_pivot.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from ..reduction import reduced, row_derivatives, without_ignored
from . import numba_backend, numba_large_k, torch_backend, torch_large_k, triton_backend
from .composition import composed_losses, differentiable_gradient, is_transformed
from .numba_runtime import has_address


class Backend(Protocol):
    """A module that computes losses and first derivatives; its state is its own affair, O(k) numbers per row."""

    def supports(self, scores: Tensor, k: int) -> bool:
        """Whether it is accurate to rounding, and can run, for these scores and this k."""

    def forward(self, scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
        """Losses (N,) and the state; a label outside [0, C) makes its loss NaN or raises, and reads no memory."""

    def backward(self, scores: Tensor, state: tuple[Tensor, ...], grad_loss: Tensor, k: int, tau: float) -> Tensor:
        """Derivatives by the scores (N, C), from the derivatives by the losses (N,)."""


def pivot_loss(
    scores: Tensor,
    labels: Tensor,
    row_weights: Tensor | None,
    reduction: str,
    k: int,
    tau: float | Tensor,
    margin: float,
    *,
    fused: bool = True,
) -> Tensor:
    """The loss L_{k,τ}, reduced; half precision is computed, and returned, in float32.

    Args:
        scores: (N, C).
        labels: (N,) int64, in [0, C).
        row_weights: (N,) weight of each row, None for ones; rows of weight zero do not count, whatever they hold.
        reduction: "none", "mean" (the weighted mean) or "sum".
        k, tau, margin: as in `smooth_topk_loss`; a tau that is a tensor is differentiated.
        fused: allows the Numba and Triton kernels where they apply.
    """
    if isinstance(tau, Tensor) or is_transformed():
        scores = without_ignored(scores, row_weights)
        return reduced(composed_losses(scores, labels, k, tau, margin), row_weights, reduction)
    fused = fused and (labels.device.type != "cpu" or has_address(labels))
    settings = k, tau, margin, backend_for(scores, k, fused)
    if row_weights is not None and row_weights.requires_grad:
        return reduced(PivotLoss.apply(scores, labels, None, "none", *settings), row_weights, reduction)
    return PivotLoss.apply(scores, labels, row_weights, reduction, *settings)


def backend_for(scores: Tensor, k: int, fused: bool = True) -> Backend:
    """The first backend that supports these scores and this k; without `fused`, the first in plain torch."""
    return next(backend for backend in (FUSED if fused else ()) + PLAIN if backend.supports(scores, k))


FUSED: tuple[Backend, ...] = (triton_backend, numba_backend, numba_large_k)
PLAIN: tuple[Backend, ...] = (torch_backend, torch_large_k)


class PivotLoss(torch.autograd.Function):
    """Everything from scores to the reduced loss as one node, for any backend."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        labels: Tensor,
        row_weights: Tensor | None,
        reduction: str,
        k: int,
        tau: float,
        margin: float,
        backend: Backend,
    ) -> Tensor:
        losses, *state = backend.forward(scores, labels, k, tau, margin)
        if torch.compiler.is_compiling():
            ctx.save_for_backward(scores, labels, row_weights, *state)
        else:  # hooks change what is saved, and the state must come back bit by bit
            ctx.save_for_backward(scores, labels, row_weights)
            ctx.state = state
        ctx.settings = reduction, k, tau, margin, backend
        return reduced(losses, row_weights, reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, labels, row_weights, *saved = ctx.saved_tensors
        compiling = torch.compiler.is_compiling()
        state = tuple(saved if compiling else ctx.state)
        reduction, k, tau, margin, backend = ctx.settings
        # This derivative may be differentiated in turn, or a mode that began after the forward pass may fake it.
        if not compiling and (torch.is_grad_enabled() or not backend.supports(scores, k)):
            gradient = differentiable_gradient(scores, labels, row_weights, grad, reduction, k, tau, margin)
            return gradient, *[None] * 7
        grad_loss = row_derivatives(grad, row_weights, reduction, len(scores))
        if compiling or not torch._C._functorch.is_legacy_batchedtensor(grad):
            gradient = backend.backward(scores, state, grad_loss, k, tau)
        else:  # is_grads_batched: several derivatives by the loss at once
            ones = torch.ones(len(scores), dtype=grad.dtype, device=grad.device)
            gradient = backend.backward(scores, state, ones, k, tau) * grad_loss[:, None]
        return without_ignored(gradient, row_weights).to(scores.dtype), *[None] * 7
