"""Which scores a loss pulls and pushes: a figure of chapters 1 and 2."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import GREY, bars, look_of_loss, new_panels


def derivative_bars(table: pd.DataFrame, *, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws the derivative with respect to every score, one panel per loss: a table of `measure.derivative_table`.

    Derivatives of the top-k losses lie between -1/k and 1/k and are drawn times k, so that the axes fit every k.
    """
    losses = list(dict.fromkeys(table["loss"]))
    axes = new_panels(axes, nrows=len(losses), sharex=True, figsize=(5.4, 1.6 * len(losses) + 0.8))
    for ax, loss in zip(axes, losses, strict=True):
        part = table[table["loss"] == loss]
        scale = 1 if loss == "cross_entropy" else part["k"].iloc[0]
        places, heights = np.arange(len(part)), scale * part["derivative"]
        colour = look_of_loss(loss.split(",")[0])["color"]
        for true, hatch, edge in ((False, None, "none"), (True, "//", "white")):  # a white edge would hide a thin bar
            chosen = (part["true"] == true).to_numpy()
            bars(ax, places[chosen], heights[chosen], facecolor=colour, edgecolor=edge, hatch=hatch)
        ax.axhline(0, color=GREY, linewidth=0.8)
        ax.set(title=loss.replace("_", "-"), ylabel="∂loss/∂s" if scale == 1 else "k · ∂loss/∂s", ylim=(-1.1, 1.1))
        ax.grid(axis="x", visible=False)
        last = ax is axes[-1]
        ax.tick_params(bottom=last, labelbottom=last)
        ax.set_xticks(places if last else [], part["name"] if last else [])
    return axes
