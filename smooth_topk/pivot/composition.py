"""The loss of every row as a composition of differentiable torch functions: any order of derivative, any k.

Slower than the backends, which give values and first derivatives only. The polynomials are those of
polynomials/pivot.py, in float64, because a derivative of a polynomial as large as C(n, k) carries the factor
1 / C(n, k) on its way back.
"""

import torch
from torch import Tensor

from ..polynomials.pivot import blocks, log_scaled_sigmas, smallest_finite
from ..targets import Rows, Settings, counted_labels, row_factors, wide, without_ignored
from .margins import exponent_scale, loss_of_margin


def composed_losses(scores: Tensor, labels: Tensor, k: int, tau: float | Tensor, margin: float) -> Tensor:
    """Losses (N,) of scores (N, C) and labels (N,), at least float32: the values of the backends.

    A temperature that is a tensor of one number is differentiated too.
    """
    tau = wide(tau) if isinstance(tau, Tensor) else tau
    label = labels[:, None]
    others = scores.scatter(1, label, -torch.inf)
    largest = torch.finfo(wide(scores[:0]).dtype).max
    log_sigmas, _ = log_scaled_sigmas(others, k, exponent_scale(k, tau, largest))
    lower, upper = log_sigmas[-2:]
    kth_score = smallest_finite(others.detach().topk(k).values)
    empty = upper.detach() == -torch.inf  # fewer than k other classes exist: the label is always in the top k
    log_ratio = torch.where(empty, 0.0, upper) - torch.where(empty, 0.0, lower)
    hard_margin = margin + (kth_score - wide(scores.gather(1, label)))[:, 0] / k
    losses = loss_of_margin(torch.where(empty, 0.0, hard_margin + tau * log_ratio), tau)
    losses = torch.where(empty, 0.0, losses)  # and not the loss of a margin of -inf: its derivative by tau is NaN
    finite = scores.detach().amax(1) < torch.inf  # false for NaN
    losses = losses * torch.where(finite, 1.0, torch.nan)
    return losses.to(torch.promote_types(scores.dtype, torch.float32))


def composed_rows(
    scores: Tensor, labels: Tensor, factors: Tensor, *, k: int, tau: float | Tensor, margin: float, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Losses (N,) of scores (N, C), and derivatives by the scores times the factors (N,), in any arithmetic."""
    losses = composed_losses(scores, labels, k, tau, margin)
    return losses, composed_gradient(scores, labels, k, tau, margin) * factors[:, None] if needs_gradient else None


def composed_gradient(scores: Tensor, labels: Tensor, k: int, tau: float | Tensor, margin: float) -> Tensor:
    """Derivatives of `composed_losses` (N, C), themselves differentiable; in blocks of rows, to bound the memory."""
    pieces = []
    for part, part_labels in blocks(k, scores, labels):
        losses, pull_back = torch.func.vjp(lambda x, y=part_labels: composed_losses(x, y, k, tau, margin), part)[:2]
        pieces.append(pull_back(torch.ones_like(losses))[0])
    return torch.cat(pieces)


def differentiable_gradient(
    scores: Tensor, labels: Tensor, weight: Tensor | None, grad: Tensor, settings: Settings
) -> Tensor:
    """Derivatives of the reduced loss by the scores, times `grad`: what a backward pass returns, differentiable."""
    k, tau, margin, ignore_index, reduction, *_ = settings
    assert not isinstance(tau, Tensor)
    labels, row_weights, _ = counted_labels(Rows(scores, labels, False, labels.shape), weight, ignore_index)
    grad_loss = row_factors(scores, row_weights, reduction) * grad
    counted = without_ignored(scores, row_weights)
    gradient = composed_gradient(counted, labels, k, tau, margin) * grad_loss[:, None]
    return without_ignored(gradient, row_weights)
