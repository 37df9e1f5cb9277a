"""From the loss of each row to one number, as cross-entropy does it: losses (N,) and weights (N,) in, the loss out."""

import torch
from torch import Tensor

REDUCTIONS = ("none", "mean", "sum")


def reduced(losses: Tensor, row_weights: Tensor | None, reduction: str) -> Tensor:
    """Σ w l for "sum", Σ w l / Σ w for "mean", and w l, shape (N,), for "none".

    Args:
        losses: (N,).
        row_weights: (N,), or None where every row counts once; a row of weight zero adds nothing, even if it is NaN.
        reduction: one of REDUCTIONS.
    """
    if row_weights is None:
        return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()
    weighted = torch.where(row_weights == 0, 0.0, losses * row_weights)
    if reduction == "none":
        return weighted
    return weighted.sum() if reduction == "sum" else weighted.sum() / row_weights.sum()


def row_derivatives(grad: Tensor, row_weights: Tensor | None, reduction: str, rows: int) -> Tensor:
    """Derivatives by the losses (N,), from the derivative by what `reduced` returned."""
    if row_weights is None:
        return grad if reduction == "none" else (grad if reduction == "sum" else grad / rows).expand(rows)
    return grad * (row_weights / row_weights.sum() if reduction == "mean" else row_weights)


def without_ignored(rows: Tensor, row_weights: Tensor | None) -> Tensor:
    """Scores or a gradient (N, C), with zeros in rows of weight zero whatever they hold: zero times NaN is NaN."""
    return rows if row_weights is None else rows.masked_fill((row_weights == 0)[:, None], 0.0)


def mixed(losses: Tensor, mixture: Tensor, row_weights: Tensor | None, reduction: str) -> Tensor:
    """Like `reduced`, for labels that are mixtures: a row's loss is Σ_y m_y l_y, and "mean" divides by Σ w.

    Args:
        losses: (N, C), the loss of each label.
        mixture: (N, C) what each label counts; a label that counts zero adds nothing, even if its loss is infinite.
        row_weights: (N,), or None where every row counts once in the mean; no further factor of the losses.
        reduction: one of REDUCTIONS.
    """
    harmless = torch.where((mixture == 0) & ~losses.isfinite(), 0.0, losses)
    of_rows = (mixture * harmless).sum(1)
    if reduction == "none":
        return of_rows
    count = of_rows.shape[0] if row_weights is None else row_weights.sum()
    return of_rows.sum() if reduction == "sum" else of_rows.sum() / count
