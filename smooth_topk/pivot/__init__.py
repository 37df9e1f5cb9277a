"""The smooth loss with the pivot algorithm: scores (N, C) and labels (N,) in, the reduced loss out.

    L = τ softplus(z),   z = margin/τ + (s_[k] - s_y)/(kτ) + log(S_k / S_{k-1})

A backend computes loss and gradient in one pass (`loss_and_gradient`): Triton on a GPU, Numba on a CPU, plain torch
everywhere. `backend_for` picks one by device, dtype and k, never by the scores. The backward pass multiplies the saved
gradient by the incoming derivative. Whatever else is asked for comes from the differentiable composition
(composition.py): derivatives of higher order, forward mode, the transforms of torch.func, a temperature that is
learned. Derived in notebooks/06_pivot.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from ..targets import Rows, Settings, counted_labels, reduced, without_ignored
from ..torch_internals import backward_is_plain, holds_numbers, is_transformed
from . import numba_backend, torch_backend, triton_backend
from .composition import composed_losses, differentiable_gradient
from .operator import compiled_loss


class Backend(Protocol):
    """A module that computes loss and gradient in one pass."""

    def supports(self, scores: Tensor, k: int) -> bool:
        """Whether it is accurate to rounding, and can run, for these scores and this k."""

    def loss_and_gradient(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        settings: Settings,
        normaliser: Tensor | None = None,
        needs_gradient: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """See the function `loss_and_gradient` of this module."""


BACKENDS: dict[str, Backend] = {"triton": triton_backend, "numba": numba_backend, "torch": torch_backend}
PLACES = {"triton": "a GPU with Triton installed", "numba": "a CPU with Numba installed"}


def backend_for(scores: Tensor, k: int, name: str = "auto") -> Backend:
    """The backend of this name, or the first that supports these scores and this k; plain torch takes any."""
    if name in PLACES and holds_numbers(scores) and not BACKENDS[name].supports(scores, k):
        raise RuntimeError(f"backend {name!r} needs {PLACES[name]}, got {scores.dtype} on {scores.device} with k={k}.")
    names = BACKENDS if name == "auto" else (name, "torch")
    return next(BACKENDS[each] for each in names if BACKENDS[each].supports(scores, k))


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    settings: Settings,
    normaliser: Tensor | None = None,
    needs_gradient: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """The loss and its gradient in one pass over the scores, weighted and reduced; nothing is recorded for autograd.

    Rows are independent, so a batch may come in chunks of rows: with reduction "mean" and the sum of all row weights as
    `normaliser`, the losses of the chunks add up to the mean, and the gradients are those of the mean. (The weight of a
    row is `weight[label]`, or one, and zero where the label is `ignore_index`.)

    Args:
        scores: (N, C), float32 or float64.
        labels: (N,) int64, in [0, C) or `settings.ignore_index`. Another label raises IndexError on a CPU; on a GPU,
            loss and gradient are NaN.
        weight: (C,) weight of each class, or None.
        settings: of `checked_settings`; tau is a number.
        normaliser: a tensor of one number that "mean" divides by; by default the sum of the weights of these rows.
        needs_gradient: without it, only the loss is computed.

    Returns:
        The loss, a scalar or (N,) with reduction "none", and the derivatives (N, C) by the scores, in their dtype. With
        reduction "none" each row has the derivatives of its own (weighted) loss. None without `needs_gradient`.
    """
    seen = labels.device.type != "cpu" or holds_numbers(labels)
    backend = backend_for(scores, settings.k, settings.backend if seen else "torch")
    return backend.loss_and_gradient(scores, labels, weight, settings, normaliser, needs_gradient)


def pivot_loss(scores: Tensor, labels: Tensor, weight: Tensor | None, settings: Settings) -> Tensor:
    """The loss L_{k,τ}, reduced and differentiable; arguments as in `loss_and_gradient`, and tau may be a tensor."""
    k, tau, margin, ignore_index, reduction, *_ = settings
    if isinstance(tau, Tensor) or is_transformed():
        labels, row_weights, _ = counted_labels(Rows(scores, labels, False, labels.shape), weight, ignore_index)
        losses = composed_losses(without_ignored(scores, row_weights), labels, k, tau, margin)
        return reduced(losses, row_weights, reduction)
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        known, row_weights, _ = counted_labels(Rows(scores, labels, False, labels.shape), weight, ignore_index)
        losses = pivot_loss(without_ignored(scores, row_weights), known, None, settings._replace(reduction="none"))
        return reduced(losses, row_weights, reduction)
    if torch.compiler.is_compiling() and _has_kernels(scores.device.type, settings.backend):
        return compiled_loss(scores, labels, weight, settings)
    if scores.requires_grad and torch.is_grad_enabled():
        return PivotLoss.apply(scores, labels, weight, settings)
    return loss_and_gradient(scores, labels, weight, settings, needs_gradient=False)[0]


def _has_kernels(device: str, backend: str) -> bool:
    """Whether a compiled program calls the kernels of a backend; otherwise it is made of plain torch."""
    kernels = {"cpu": numba_backend.NUMBA_INSTALLED, "cuda": triton_backend.TRITON_INSTALLED}
    return backend != "torch" and kernels.get(device, False)


class PivotLoss(torch.autograd.Function):
    """Everything from scores to the reduced loss as one node, for any backend."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, weight: Tensor | None, settings: Settings) -> Tensor:
        loss, gradient = loss_and_gradient(scores, labels, weight, settings)
        ctx.save_for_backward(gradient, scores, labels, weight)
        ctx.settings = settings
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, scores, labels, weight = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # this derivative may be differentiated
            return differentiable_gradient(scores, labels, weight, grad, ctx.settings), None, None, None
        return times(gradient, grad), None, None, None


def times(gradient: Tensor, grad: Tensor) -> Tensor:
    """The saved gradient (N, C) times the incoming derivative, one number or (N,); itself where that is one."""
    if grad.dim() == 0 and grad.device.type == "cpu" and backward_is_plain(grad) and grad.item() == 1:
        return gradient
    return gradient * (grad if grad.dim() == 0 else grad.unsqueeze(-1)).to(gradient.dtype)
