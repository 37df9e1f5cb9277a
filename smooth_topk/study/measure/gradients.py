"""Which classes a loss pulls and pushes, and which derivatives are zero: numbers of chapters 1, 2, 8 and 13."""

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss


def derivatives(
    scores: Tensor, labels: Tensor, *, k: int, taus: Sequence[float], margin: float = 1.0
) -> dict[str, Tensor]:
    """Returns the derivatives (N, n) of each sample's own loss: hard, smooth for each tau, and cross-entropy."""
    scores = scores.detach().double().requires_grad_()
    losses = {"hard": hard_topk_loss(scores, labels, k=k, margin=margin, reduction="sum")}
    for tau in taus:
        losses[f"smooth, τ = {tau:g}"] = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="sum")
    losses["cross_entropy"] = F.cross_entropy(scores, labels, reduction="sum")
    return {name: torch.autograd.grad(loss, scores)[0] for name, loss in losses.items()}


def derivative_table(
    scores: Tensor,
    label: int,
    *,
    k: int,
    taus: Sequence[float],
    names: Sequence[str] | None = None,
    margin: float = 1.0,
) -> pd.DataFrame:
    """Returns the derivatives of one sample: columns loss, k, name, derivative, true, by descending score."""
    names = list(names) if names else [str(index) for index in range(len(scores))]
    order = scores.argsort(descending=True, stable=True).tolist()
    found = derivatives(scores[None], torch.tensor([label]), k=k, taus=taus, margin=margin)
    rows = [
        (loss, k, names[index], values[0, index].item(), index == label)
        for loss, values in found.items()
        for index in order
    ]
    return pd.DataFrame(rows, columns=["loss", "k", "name", "derivative", "true"])


def nonzero_shares(scores: Tensor, labels: Tensor, *, k: int, taus: Sequence[float]) -> pd.DataFrame:
    """Returns how many derivatives ∂loss/∂s are not zero in the precision of the scores, and how many count, by tau.

    Args:
        scores: (N, n).
        labels: (N,).
        taus: 0 is the hard loss, which has at most two derivatives per sample that are not zero.

    Returns:
        Columns tau, share (of derivatives that are not zero, 0 to 1), effective (see `effective_number`, the mean).

    Example:
        >>> nonzero_shares(torch.zeros(1, 4), torch.tensor([0]), k=2, taus=[1.0])["share"].tolist()
        [1.0]
    """
    scores = scores.detach().requires_grad_()
    rows = []
    for tau in taus:
        # The sum, not the mean: dividing by N could turn the smallest derivatives into zeros.
        if tau:
            loss = smooth_topk_loss(scores, labels, k=k, tau=tau, reduction="sum")
        else:
            loss = hard_topk_loss(scores, labels, k=k, reduction="sum")
        (found,) = torch.autograd.grad(loss, scores)
        rows.append((float(tau), (found != 0).double().mean().item(), effective_number(found).mean().item()))
    return pd.DataFrame(rows, columns=["tau", "share", "effective"])


def effective_number(derivatives: Tensor) -> Tensor:
    """Returns (Σ|g|)² / Σg² of each row, (N,): how many classes the derivatives reach, however small the others are.

    It is 2 for two derivatives of one size, n for n of them, and 0 where all are zero.

    Example:
        >>> effective_number(torch.tensor([[1.0, -1.0, 0.0, 1e-40], [0.0, 0.0, 0.0, 0.0]])).tolist()
        [2.0, 0.0]
    """
    sizes = derivatives.abs().double()
    largest = sizes.amax(1, keepdim=True)
    sizes = torch.where(largest > 0, sizes / largest, 0.0)
    return sizes.sum(1).square() / sizes.square().sum(1).clamp(min=1.0)
