"""Figures of chapter 2: how far the smooth loss is from the hard loss and from the top-k error (Propositions 2 to 4).

The tables are those of `measure.bounds`.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import BLUE, DARK, GREY, LINES, look_of_loss, new_axes


def gap_figure(table: pd.DataFrame, *, k: int, classes: int, ax: Axes | None = None) -> Axes:
    """Draws smooth minus hard loss against tau, one thin line per sample, between its bounds: Proposition 2.

    Args:
        table: of `measure.gap_table`.
    """
    ax = new_axes(ax)
    for _, sample in table.groupby("sample"):
        ax.plot(sample["tau"], sample["gap"], color=BLUE, linewidth=0.7, alpha=0.6)
    taus = np.sort(table["tau"].unique())
    ax.plot([], [], color=BLUE, linewidth=0.9, label="samples")
    ax.plot(taus, taus * math.log(classes - k + 1), color=DARK, linestyle="--", label="τ log(n − k + 1)")
    ax.plot(taus, -taus * math.log(k), color=DARK, linestyle=":", label="−τ log k")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set(xscale="log", xlabel="τ", ylabel="smooth loss − hard loss")
    ax.legend()
    return ax


def counterexample_figure(table: pd.DataFrame, *, tau: float, ax: Axes | None = None) -> Axes:
    """Draws smooth minus hard loss over the value of the hard loss in the example of Proposition 3, one line per k.

    Args:
        table: of `measure.counterexample_table`.
    """
    ax = new_axes(ax)
    for (k, part), line in zip(table.groupby("k", sort=False), LINES, strict=False):
        limit = f"{0.0 - tau * math.log(k):.2f}".replace("-", "−")
        label = f"k = {k}, limit −τ log k = {limit}"
        ax.plot(part["hard"], part["gap"], color=BLUE, linestyle=line, label=label)
    ax.axhline(0, **look_of_loss("hard") | {"marker": ""}, label="hard loss")
    ax.set(xlabel="hard loss", ylabel="smooth loss − hard loss", title=f"τ = {tau:g}")
    ax.legend()
    return ax


def prediction_bound(table: pd.DataFrame, *, k: int, tau: float, margin: float = 1.0, ax: Axes | None = None) -> Axes:
    """Draws smooth losses over how far the true score is behind, above the step of Proposition 4.

    Args:
        table: of `measure.smooth_loss_table`, for the same k, tau and margin.
    """
    ax = new_axes(ax)
    behind = k * (table["hard_margin"] - margin)
    ax.scatter(behind, table["smooth"], s=10, color=BLUE, alpha=0.6, label="samples")
    left, right = min(behind.min(), -1.0), max(behind.max(), 1.0)
    for height, line, name in (
        (margin - tau * math.log(k), "--", "(α − τ log k) Λ"),
        (tau * float(np.logaddexp(0.0, margin / tau - math.log(k))), "-.", "τ log(1 + exp(α/τ)/k) Λ"),
    ):
        ax.plot([left, 0, 0, right], [0, 0, height, height], color=DARK, linestyle=line, label=f"{name}: {height:.2f}")
    ax.set(xlabel="k-th other score − true score (positive: an error)", ylabel="smooth loss", title=f"τ = {tau:g}")
    ax.legend(loc="upper left")
    return ax


def correction_band(table: pd.DataFrame, bounds: tuple[float, float], *, tau: float, ax: Axes | None = None) -> Axes:
    """Draws smooth losses over the hard margin h, inside the band of τ softplus(h/τ + c) and beside max(h, 0).

    Args:
        table: of `measure.smooth_loss_table`, for the same tau.
        bounds: the least and the largest correction c, of `measure.correction_bounds`.
    """
    ax = new_axes(ax)
    h = table["hard_margin"]
    line = np.linspace(h.min() - 0.2, h.max() + 0.2, 200)
    least, largest = (tau * np.logaddexp(0.0, line / tau + c) for c in bounds)
    ax.fill_between(line, least, largest, color=BLUE, alpha=0.15, linewidth=0, label="c from −log k to log(n − k)")
    ax.scatter(h, table["smooth"], s=10, color=BLUE, alpha=0.7, label=f"smooth, τ = {tau:g}")
    ax.plot(line, line.clip(min=0), **look_of_loss("hard") | {"marker": ""}, label="hard loss max(h, 0)")
    ax.set(xlabel="hard margin h", ylabel="loss")
    ax.legend(loc="upper left")
    return ax
