"""Figures of calibration: where each loss finds the most probable classes, from the table of measure.calibration."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import BLUE, BROWN, DARK, GREY, maths, new_axes
from smooth_topk.study.losses import FAMILY
from smooth_topk.study.tables.calibration import calibration_table

LOOKS: dict[str, dict[str, Any]] = {
    "right": {"color": BLUE},
    "tie": {"color": "#d9d9d9", "hatch": "///", "edgecolor": GREY},
    "wrong": {"color": BROWN, "hatch": "xxx", "edgecolor": "white"},
}
MEANING = {"right": "right", "tie": "a tie of the k-th class and the next", "wrong": "wrong"}
MARKERS: dict[str, dict[str, Any]] = {
    "right": {"marker": "o", "color": BLUE},
    "tie": {"marker": "o", "facecolors": "white", "edgecolors": GREY},
    "wrong": {"marker": "x", "color": BROWN},
}


def calibration_bars(measured: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws, for every loss and setting, the share of toy distributions whose best top k the minimiser has.

    Args:
        measured: calibration.csv; temperatures and values of k are pooled.
    """
    table = calibration_table(measured).iloc[::-1].reset_index(drop=True)
    ax = new_axes(ax, figsize=(5.4, 0.3 * len(table) + 1.2))
    left = np.zeros(len(table))
    for verdict, look in LOOKS.items():
        share = 100 * (table[verdict] / table["problems"]).to_numpy()
        ax.barh(table.index, share, left=left, height=0.72, label=MEANING[verdict], linewidth=0.5, **look)
        left += share
    names = [
        f"{loss}, {setting}" if setting else loss for loss, setting in zip(table["loss"], table["setting"], strict=True)
    ]
    ax.set_yticks(table.index, [maths(name) for name in names])
    ax.set(xlabel="toy distributions (%)", xlim=(0, 100), ylim=(-0.6, max(len(table), 1) - 0.4))
    if len(table):
        handles, labels = ax.get_legend_handles_labels()
        ax.figure.legend(handles, labels, loc="outside upper left", ncols=3, columnspacing=1, handlelength=1.4)
    ax.grid(visible=False, axis="y")
    return ax


def calibration_map(measured: pd.DataFrame, loss: str, *, legend: bool = True, ax: Axes | None = None) -> Axes:
    """Draws where one loss is right: every distribution at its k-th probability and at the sum of those beyond.

    The dashed line is p_[k] = Σ_{j > k} p_[j]: hinges need the k-th class to outweigh all that are less likely.

    Args:
        measured: calibration.csv, or the rows of one setting of this loss.
        loss: a name of FAMILY.
    """
    ax = new_axes(ax)
    part = measured[measured["loss"] == loss]
    if part.empty:
        raise ValueError(f"The table has no rows of {loss!r}; it has {', '.join(sorted(set(measured['loss'])))}.")
    kth, beyond = np.array([_kth_and_beyond(row.probabilities, row.k) for row in part.itertuples()]).T
    for verdict, look in MARKERS.items():
        chosen = (part["verdict"] == verdict).to_numpy()
        if chosen.any():
            ax.scatter(beyond[chosen], kth[chosen], s=22, linewidths=1.1, label=MEANING[verdict], zorder=3, **look)
    line = np.array([0, max(kth.max(), beyond.max())])
    ax.plot(line, line, color=DARK, linestyle="--", linewidth=0.9, zorder=1)
    ax.set(
        xlabel="probability beyond the k-th class",
        ylabel="k-th largest probability",
        title=maths(FAMILY[loss].title),
    )
    if legend:
        ax.legend()
    return ax


def local_minima_curves(measured: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the share of random starts from which the smooth loss reaches the right top k, against tau.

    The best minimum is right at every temperature. With a margin above τ log 2 others can exist, and descent may end
    there: the dotted line marks τ = margin / log 2 for the margin 1.

    Args:
        measured: calibration.csv; distributions and values of k are pooled.
    """
    ax = new_axes(ax)
    part = measured[measured["loss"] == "smooth"]
    for (margin, rows), line, marker in zip(part.groupby("margin"), ("-", "--"), ("o", "s"), strict=False):
        sums = rows.groupby("tau")[["starts_right", "starts"]].sum()
        share = 100 * sums["starts_right"] / sums["starts"]
        ax.plot(sums.index, share, color=BLUE, linestyle=line, marker=marker, label=f"margin {margin:g}")
    ax.axvline(1 / math.log(2), color=DARK, linestyle=":", linewidth=1, label="τ = 1 / log 2")
    ax.set(xscale="log", xlabel="τ", ylabel="starts that end right (%)", ylim=(0, 104))
    ax.legend()
    return ax


def _kth_and_beyond(probabilities: str, k: int) -> tuple[float, float]:
    ordered = sorted((float(value) for value in probabilities.split()), reverse=True)
    return ordered[k - 1], sum(ordered[k:])
