"""Figures of chapters 1 and 2: which classes a loss pulls and pushes."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from torch import Tensor

from smooth_topk.study.figures.style import GREY, bars, look_of_loss, new_panels

VISIBLE = 0.02  # of the largest derivative: less cannot be seen in a bar
SMALLEST = 1e-6  # of the colour scale; what is smaller, and not zero, has the lightest colour


def derivative_bars(table: pd.DataFrame, *, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws the derivative with respect to every score, one panel per loss: a table of `measure.derivative_table`."""
    losses = list(dict.fromkeys(table["loss"]))
    axes = new_panels(axes, nrows=len(losses), sharex=True, figsize=(5.4, 1.6 * len(losses) + 0.8))
    reach = 1.25 * table.loc[table["loss"] != "cross_entropy", "derivative"].abs().max()
    for ax, loss in zip(axes, losses, strict=True):
        part = table[table["loss"] == loss]
        places = np.arange(len(part))
        colour = look_of_loss(loss.split(",")[0])["color"]
        for true, hatch, edge in ((False, None, "none"), (True, "//", "white")):  # a white edge would hide a thin bar
            chosen = (part["true"] == true).to_numpy()
            bars(ax, places[chosen], part["derivative"][chosen], facecolor=colour, edgecolor=edge, hatch=hatch)
        ax.axhline(0, color=GREY, linewidth=0.8)
        sizes = part["derivative"].abs()
        count = int((sizes > VISIBLE * sizes.max()).sum())
        ax.set_title(f"{loss.replace('_', '-')}: {count} of {len(part)} exceed 2 % of the largest")
        ax.set(ylabel="∂loss / ∂score")
        ax.set_ylim(*((-1.1, 1.1) if loss == "cross_entropy" else (-reach, reach)))
        ax.grid(axis="x", visible=False)
        last = ax is axes[-1]
        ax.tick_params(bottom=last, labelbottom=last)
        ax.set_xticks(places if last else [], part["name"] if last else [])
    axes[-1].set(xlabel="class, in descending order of the scores")
    return axes


def derivative_map(found: Mapping[str, Tensor], *, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws the size of the derivatives of a batch, a row per sample and a column per class; empty is exactly zero.

    Args:
        found: derivatives (N, n) by the name of their loss, such as those of `measure.derivatives`.
    """
    axes = new_panels(axes, ncols=len(found), sharey=True, figsize=(3.4 * len(found), 3.2))
    for ax, (name, values) in zip(axes, found.items(), strict=True):
        sizes = np.ma.masked_equal(values.abs().numpy(), 0.0)
        scale = LogNorm(SMALLEST, 1, clip=True)
        picture = ax.imshow(sizes, norm=scale, cmap="viridis_r", aspect="auto", interpolation="none")
        ax.set_title(f"{name.replace('_', '-')}: {100 * sizes.count() / sizes.size:.0f} % not zero")
        ax.set(xlabel="class")
        ax.grid(False)
    axes[0].set(ylabel="sample")
    axes[0].figure.colorbar(picture, ax=list(axes), label="size of the derivative (empty: zero)", extend="min")
    return axes
