"""Figures of chapters 1 and 2: the losses as functions of the scores."""

import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study.figures.style import look_of_loss, new_axes, tau_colour


def loss_curve_table(
    others: Tensor, *, k: int, taus: list[float], margin: float = 1.0, cross_entropy: bool = True, points: int = 201
) -> pd.DataFrame:
    """Returns the losses of one sample as its true score moves across the other scores.

    Args:
        others: scores of the classes that are not the true one, shape (n - 1,).
        taus: one smooth curve each; the hard loss is always there.
        cross_entropy: whether cross-entropy is there too.

    Returns:
        Columns true_score, value, loss ("smooth", "hard", "cross_entropy"), tau (missing for the other two).
    """
    others = others.detach().double()
    top = others.topk(k).values[-1].item()
    # The hard loss ends k margins above the k-th score; the bend of the smooth loss is as wide as k tau.
    bend = 6 * k * min(max(taus, default=0.0), 1.0)
    true_scores = torch.linspace(top - k * margin - 2, top + k * margin + bend + 2, points, dtype=torch.float64)
    scores = torch.cat([true_scores[:, None], others.expand(points, -1)], dim=1)
    labels = torch.zeros(points, dtype=torch.long)
    options = {"k": k, "margin": margin, "reduction": "none"}
    curves = [("hard", None, hard_topk_loss(scores, labels, **options))]
    curves += [("smooth", tau, smooth_topk_loss(scores, labels, tau=tau, **options)) for tau in taus]
    if cross_entropy:
        curves.append(("cross_entropy", None, F.cross_entropy(scores, labels, reduction="none")))
    parts = [
        pd.DataFrame({"true_score": true_scores.numpy(), "value": value.numpy(), "loss": loss, "tau": tau})
        for loss, tau, value in curves
    ]
    return pd.concat([part.astype({"tau": float}) for part in parts], ignore_index=True)


def loss_curves(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the losses against the true score: a table of `loss_curve_table`.

    One smooth curve is blue; several take the colours of their tau.
    """
    ax = new_axes(ax)
    several = table["tau"].nunique() > 1
    for (loss, tau), curve in table.groupby(["loss", "tau"], dropna=False, sort=False):
        look = look_of_loss(loss) | {"marker": ""}
        if loss == "smooth" and several:
            look["color"] = tau_colour(tau)
        label = {"smooth": f"smooth, τ = {tau:g}", "hard": "hard", "cross_entropy": "cross-entropy"}[loss]
        ax.plot(curve["true_score"], curve["value"], label=label, **look)
    ax.set(xlabel="score of the true class", ylabel="loss", ylim=(0, None))
    ax.legend()
    return ax
