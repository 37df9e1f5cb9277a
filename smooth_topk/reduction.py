"""From the loss of each row to one number, as cross-entropy does it: losses (N,) and weights (N,) in, the loss out."""

import torch
from torch import Tensor

REDUCTIONS = ("none", "mean", "sum")


def reduced(losses: Tensor, row_weights: Tensor | None, reduction: str, normaliser: Tensor | None = None) -> Tensor:
    """Σ w l for "sum", Σ w l / Σ w for "mean", and w l, shape (N,), for "none".

    Args:
        losses: (N,).
        row_weights: (N,), or None where every row counts once; a row of weight zero adds nothing, even if it is NaN.
        reduction: one of REDUCTIONS.
        normaliser: what "mean" divides by instead of Σ w, where the rows are a part of a batch.
    """
    weighted = losses if row_weights is None else torch.where(row_weights == 0, 0.0, losses * row_weights)
    if reduction == "none":
        return weighted
    if reduction == "mean" and row_weights is None and normaliser is None:
        return losses.mean()
    return weighted.sum() if reduction == "sum" else weighted.sum() / _divisor(losses, row_weights, normaliser)


def row_factors(like: Tensor, row_weights: Tensor | None, reduction: str, normaliser: Tensor | None = None) -> Tensor:
    """Derivatives (N,) of what `reduced` returns by the losses of the rows; for "none", of each by its own."""
    weights = like.new_ones(len(like)) if row_weights is None else row_weights
    return weights / _divisor(like, row_weights, normaliser) if reduction == "mean" else weights


def _divisor(like: Tensor, row_weights: Tensor | None, normaliser: Tensor | None) -> Tensor | int:
    return normaliser if normaliser is not None else len(like) if row_weights is None else row_weights.sum()


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
