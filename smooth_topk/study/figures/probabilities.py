"""The picture of the landing page: the most probable names of one photograph."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import BLUE, DARK, GREY, new_axes


def plausible_names(table: pd.DataFrame, *, k: int = 5, ax: Axes | None = None) -> Axes:
    """Draws the most probable names of one picture as bars, the first k in blue and the true one with its name in bold.

    Args:
        table: columns name, probability and true (whether it is the label), the most probable first.
    """
    ax = new_axes(ax)
    places = np.arange(len(table))
    colours = [BLUE if place < k else GREY for place in places]
    ax.barh(places, 100 * table["probability"], color=colours, height=0.72)
    for place, (share, true) in enumerate(zip(table["probability"], table["true"], strict=True)):
        words = f"{100 * share:.{1 if share < 0.01 else 0}f} %" + ("   the label" if true else "")
        ax.text(100 * share + 0.8, place, words, va="center", fontsize=9)
    ax.set_yticks(places, table["name"])
    for tick, true in zip(ax.get_yticklabels(), table["true"], strict=True):
        tick.set_fontweight("bold" if true else "normal")
    ax.axhline(k - 0.5, color=DARK, linewidth=1, linestyle=":")
    ax.text(ax.get_xlim()[1], k - 0.56, f"an answer with k = {k}", ha="right", va="bottom", fontsize=9)
    ax.set(xlabel="probability by softmax (%)", ylim=(len(table) - 0.5, -0.5))
    ax.grid(axis="y", visible=False)
    return ax
