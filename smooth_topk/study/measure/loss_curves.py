"""The losses and the top-k error as functions of one number: tables behind the curves of chapters 0, 1 and 2."""

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss, topk_error


def loss_curve_table(
    others: Tensor,
    *,
    k: int,
    taus: Sequence[float],
    margin: float = 1.0,
    cross_entropy: bool = True,
    error: bool = False,
    points: int = 201,
) -> pd.DataFrame:
    """Returns the losses of one sample as its true score moves across the other scores.

    Args:
        others: scores of the classes that are not the true one, shape (n - 1,).
        taus: one smooth curve each; the hard loss is always there.
        cross_entropy: whether cross-entropy is there too.
        error: whether the prediction loss Λ_k of eq. (5), a step, is there too.

    Returns:
        Columns true_score, value, loss ("smooth", "hard", "cross_entropy", "error"), tau (missing but for "smooth").
    """
    others = others.detach().double()
    top = others.topk(k).values[-1].item()
    # The hard loss ends k margins above the k-th score; the bend of the smooth loss is as wide as k tau.
    bend = 6 * k * min(max(taus, default=0.0), 1.0)
    true_scores = torch.linspace(top - k * margin - 2, top + k * margin + bend + 2, points, dtype=torch.float64)
    scores = torch.cat([true_scores[:, None], others.expand(points, -1)], dim=1)
    labels = torch.zeros(points, dtype=torch.long)
    hard = hard_topk_loss(scores, labels, k=k, margin=margin, reduction="none")
    curves: list[tuple[str, float | None, Tensor]] = [("hard", None, hard)]
    for tau in taus:
        smooth = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="none")
        curves.append(("smooth", tau, smooth))
    if cross_entropy:
        curves.append(("cross_entropy", None, F.cross_entropy(scores, labels, reduction="none")))
    if error:
        curves.append(("error", None, (top > true_scores).double()))
    parts = [
        pd.DataFrame({"true_score": true_scores.numpy(), "value": value.numpy(), "loss": loss, "tau": tau})
        for loss, tau, value in curves
    ]
    return pd.concat([part.astype({"tau": float}) for part in parts], ignore_index=True)


def margin_curve_table(others: Tensor, *, k: int, tau: float, margins: Sequence[float]) -> pd.DataFrame:
    """Returns the curves of `loss_curve_table` for several margins: the smooth and the hard loss, with a column margin.

    A margin moves both curves along the true score by k times the margin, so one computation serves all margins.
    """
    widest = max(margins)
    table = loss_curve_table(others, k=k, taus=[tau], margin=widest, cross_entropy=False)
    parts = [table.assign(margin=margin, true_score=table["true_score"] + k * (margin - widest)) for margin in margins]
    return pd.concat(parts, ignore_index=True)


def error_by_k_table(scores: Tensor, labels: Tensor, *, ks: Sequence[int]) -> pd.DataFrame:
    """Returns the top-k error between 0 and 1 of scores (N, n) and labels (N,): columns k, error."""
    return pd.DataFrame({"k": list(ks), "error": [topk_error(scores, labels, k).item() for k in ks]})
