"""The losses as functions of the true score: a figure of chapters 0, 1, 2 and of the landing page."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import GREY, look_of_loss, new_axes, tau_colour

DASHES = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (2, 1)))  # of several taus, told apart without colour too
ERROR_LOOK: dict[str, Any] = {"color": GREY, "linestyle": "-.", "marker": "", "drawstyle": "steps-mid"}


def loss_curves(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the losses against the true score: a table of `measure.loss_curve_table`.

    One smooth curve is blue; several take the colours of their tau. The legend is above the axes, off the data.
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
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
    return ax
