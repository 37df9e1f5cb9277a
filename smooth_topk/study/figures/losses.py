"""Figures of chapters 1 and 2: scores, the top-k error, and the losses as functions of the true score."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from torch import Tensor
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss, topk_error
from smooth_topk.study.figures.style import BLUE, DARK, GREY, look_of_loss, new_axes, tau_colour

DASHES = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (2, 1)))  # of several taus, told apart without colour too
ERROR_LOOK = {"color": GREY, "linestyle": "-.", "marker": "", "drawstyle": "steps-mid"}


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
    options = {"k": k, "margin": margin, "reduction": "none"}
    curves = [("hard", None, hard_topk_loss(scores, labels, **options))]
    curves += [("smooth", tau, smooth_topk_loss(scores, labels, tau=tau, **options)) for tau in taus]
    if cross_entropy:
        curves.append(("cross_entropy", None, F.cross_entropy(scores, labels, reduction="none")))
    if error:
        curves.append(("error", None, (top > true_scores).double()))
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
    several = sorted(table["tau"].dropna().unique())
    for (loss, tau), curve in table.groupby(["loss", "tau"], dropna=False, sort=False):
        look = ERROR_LOOK if loss == "error" else look_of_loss(loss) | {"marker": ""}
        if loss == "smooth" and len(several) > 1:
            look |= {"color": tau_colour(tau), "linestyle": DASHES[several.index(tau) % len(DASHES)]}
        if loss == "hard":
            look["zorder"] = 3  # a small tau would hide it
        names = {"hard": "hard", "cross_entropy": "cross-entropy", "error": "top-k error Λ"}
        ax.plot(curve["true_score"], curve["value"], label=names.get(loss, f"smooth, τ = {tau:g}"), **look)
    ax.set(xlabel="score of the true class", ylabel="loss", ylim=(0, None))
    ax.legend()
    return ax


def margin_curves(others: Tensor, *, k: int, tau: float, margins: Sequence[float], ax: Axes | None = None) -> Axes:
    """Draws the smooth loss, and thin the hard one, against the true score for several margins; others is (n - 1,)."""
    ax = new_axes(ax)
    highest = max(margins)
    for margin, line in zip(margins, ("-", "--", "-.", ":"), strict=False):
        # One range of scores for all margins: that of the widest.
        table = loss_curve_table(others, k=k, taus=[tau], margin=highest, cross_entropy=False)
        table = table.assign(true_score=table["true_score"] + k * (margin - highest))
        smooth, hard = (table[table["loss"] == loss] for loss in ("smooth", "hard"))
        look = {"color": BLUE, "linestyle": line, "label": f"smooth, τ = {tau:g}, α = {margin:g}"}
        ax.plot(smooth["true_score"], smooth["value"], **look)
        ax.plot(hard["true_score"], hard["value"], color=look_of_loss("hard")["color"], linestyle=line, linewidth=0.8)
    ax.plot([], [], color=look_of_loss("hard")["color"], linewidth=0.8, label="hard, same α")
    ax.set(xlabel="score of the true class", ylabel="loss", ylim=(0, None))
    ax.legend()
    return ax


def score_bars(scores: Tensor, label: int, *, k: int, names: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draws one sample's scores in descending order; the k bars of the prediction are filled, the true class is dark.

    Args:
        scores: (n,).
        label: the true class.
        names: of the classes.
    """
    ax = new_axes(ax)
    order = scores.argsort(descending=True, stable=True).tolist()
    for place, index in enumerate(order):
        edge = {"edgecolor": DARK, "linewidth": 2.2} if index == label else {"edgecolor": BLUE, "linewidth": 0.8}
        ax.bar(place, scores[index].item(), facecolor=BLUE if place < k else "white", alpha=0.85, **edge)
    kth = ax.axhline(scores[order[k - 1]].item(), color=DARK, linestyle=":", linewidth=1.2, label="k-th largest score")
    predicted = Patch(facecolor=BLUE, label=f"in the prediction, k = {k}")
    true = Patch(facecolor="white", edgecolor=DARK, linewidth=2.2, label="true class")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xticks(range(len(order)), [names[index] for index in order], rotation=35, ha="right")
    ax.set(xlabel="class, in descending order of the scores", ylabel="score")
    ax.grid(axis="x", visible=False)
    ax.legend(handles=[predicted, true, kth])
    return ax


def error_by_k(scores: Tensor, labels: Tensor, *, ks: Sequence[int], ax: Axes | None = None) -> Axes:
    """Draws the top-k error in percent against k, for scores (N, n) and labels (N,)."""
    ax = new_axes(ax)
    errors = [100 * topk_error(scores, labels, k).item() for k in ks]
    ax.plot(ks, errors, color=DARK, marker="o", clip_on=False)
    ax.set_xticks(list(ks))
    ax.set(xlabel="size of the prediction k", ylabel="top-k error (%)", ylim=(0, None))
    return ax


def training_accuracy(
    epochs: pd.DataFrame, names: Mapping[str, str], *, classes: int = 100, ax: Axes | None = None
) -> Axes:
    """Draws the top-5 accuracy on the training set over the epochs, one line a run, beside that of random answers.

    Args:
        epochs: rows of `read_epochs`.
        names: a label for each run_id; it begins with the kind of its loss, such as "hard, rate 1".
    """
    ax = new_axes(ax)
    markers = iter("os^Dv<>")
    for run_id, name in names.items():
        curve = epochs[epochs["run_id"] == run_id].sort_values("epoch")
        look = look_of_loss(name.split(",")[0]) | {"marker": next(markers)}
        ax.plot(curve["epoch"] + 1, 100 * curve["train_top5"], label=name, **look)
    ax.axhline(500 / classes, color=GREY, linestyle="--", linewidth=1, label="random answers")
    ax.set_xticks(np.arange(1, epochs["epoch"].max() + 2))
    ax.set(xlabel="epoch", ylabel="top-5 accuracy on the training set (%)", ylim=(0, None))
    ax.legend()
    return ax
