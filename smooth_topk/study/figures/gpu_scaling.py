"""When more GPUs stop helping: the table of `gpu_scaling.scaling_table` in, Axes out."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import DARK, GREY, new_axes

LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "one_by_one": ("chapter after chapter", {"color": GREY, "linestyle": "-"}),
    "together": ("all runs in one grid", {"color": DARK, "linestyle": "-"}),
    "least": ("shortest possible", {"color": DARK, "linestyle": ":"}),
}


def scaling_figure(table: pd.DataFrame, useful: float, ax: Axes | None = None) -> Axes:
    """Draws the days that a study takes against the number of GPUs.

    Args:
        table: of `scaling_table`, in hours, by the number of GPUs.
        useful: of `useful_gpus`; marked, since more GPUs cannot help.
    """
    ax = new_axes(ax, figsize=(5.0, 3.8))
    for name, (label, look) in LINES.items():
        ax.plot(table.index, table[name] / 24, label=label, marker="", **look)
    ax.axvline(useful, color=GREY, linewidth=0.8, linestyle="--")
    ax.annotate(f"W/d = {useful:.1f}", (useful, 1), (4, -4), ("data", "axes fraction"), "offset points", va="top")
    ax.set(xscale="log", yscale="log", xlabel="GPUs, with one run per GPU", ylabel="length of the study (days)")
    ticks = [count for count in (1, 2, 4, 8, 16, 32, 64) if count in table.index]
    ax.set_xticks(ticks, [str(count) for count in ticks])
    ax.set_yticks(days := [2, 5, 10, 20, 50], [str(day) for day in days])
    ax.minorticks_off()
    ax.legend()
    return ax
