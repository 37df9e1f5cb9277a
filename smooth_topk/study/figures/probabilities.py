"""Figures of chapter 11: probabilities over the classes."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import BLUE, DARK, new_axes


def probability_bars(table: pd.DataFrame, *, k: int, ax: Axes | None = None, count: int = 12) -> Axes:
    """Draws softmax beside top-k marginals for the classes with the largest marginals.

    Args:
        table: columns name, softmax (sums to 1) and marginal (sums to k), one row a class.
        k: the size of the answer; its first k classes are left of the vertical line.
        count: number of classes shown.
    """
    ax = new_axes(ax)
    shown = table.nlargest(count, "marginal")
    places = np.arange(len(shown))
    ax.bar(places - 0.2, shown["marginal"], 0.4, color=BLUE, label=f"in the top {k} (sums to {k})")
    ax.bar(
        places + 0.2, shown["softmax"], 0.4, facecolor="white", edgecolor=DARK, hatch="//", label="softmax (sums to 1)"
    )
    ax.axvline(k - 0.5, color=DARK, linewidth=1, linestyle=":")
    ax.set_xticks(places, shown["name"].astype(str), rotation=40, ha="right")
    ax.set(ylabel="probability", ylim=(0, 1.05))
    ax.grid(axis="x", visible=False)
    ax.legend()
    return ax
