"""Figures of chapters 1 and 2: scores, the top-k error, and the losses as functions of the true score."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from torch import Tensor

from smooth_topk.study.figures.style import BLUE, DARK, GREY, LINES, look_of_loss, new_axes, tau_colour

DASHES = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (2, 1)))  # of several taus, told apart without colour too
ERROR_LOOK: dict[str, Any] = {"color": GREY, "linestyle": "-.", "marker": "", "drawstyle": "steps-mid"}


def loss_curves(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the losses against the true score: a table of `measure.loss_curve_table`.

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


def margin_curves(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the smooth loss, and thin the hard one, against the true score, one line per margin.

    Args:
        table: of `measure.margin_curve_table`.
    """
    ax = new_axes(ax)
    hard_colour = look_of_loss("hard")["color"]
    for (margin, part), line in zip(table.groupby("margin", sort=False), LINES, strict=False):
        smooth, hard = (part[part["loss"] == loss] for loss in ("smooth", "hard"))
        label = f"smooth, τ = {smooth['tau'].iloc[0]:g}, α = {margin:g}"
        ax.plot(smooth["true_score"], smooth["value"], color=BLUE, linestyle=line, label=label)
        ax.plot(hard["true_score"], hard["value"], color=hard_colour, linestyle=line, linewidth=0.8)
    ax.plot([], [], color=hard_colour, linewidth=0.8, label="hard, same α")
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
        edge, width = (DARK, 2.2) if index == label else (BLUE, 0.8)
        face = BLUE if place < k else "white"
        ax.bar(place, scores[index].item(), facecolor=face, edgecolor=edge, linewidth=width, alpha=0.85)
    kth = ax.axhline(scores[order[k - 1]].item(), color=DARK, linestyle=":", linewidth=1.2, label="k-th largest score")
    predicted = Patch(facecolor=BLUE, label=f"in the answer, k = {k}")
    true = Patch(facecolor="white", edgecolor=DARK, linewidth=2.2, label="true class")
    ax.axhline(0, color=GREY, linewidth=0.8)
    tilt: dict[str, Any] = {"rotation": 35, "ha": "right"} if max(map(len, names)) > 3 else {}
    ax.set_xticks(range(len(order)), [names[index] for index in order], **tilt)
    ax.set(xlabel="class, in descending order of the scores", ylabel="score")
    ax.grid(axis="x", visible=False)
    ax.legend(handles=[predicted, true, kth])
    return ax


def error_by_k(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the top-k error in percent against k: a table of `measure.error_by_k_table`."""
    ax = new_axes(ax)
    ax.plot(table["k"], 100 * table["error"], color=DARK, marker="o", clip_on=False)
    ax.set_xticks(table["k"])
    ax.set(xlabel="size of the answer k", ylabel="top-k error (%)", ylim=(0, None))
    return ax


def training_accuracy(
    epochs: pd.DataFrame, names: Mapping[str, str], *, classes: int = 100, ax: Axes | None = None
) -> Axes:
    """Draws the top-5 accuracy on the training set over the epochs, one line per run, beside that of random answers.

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
