"""Figures of the family of losses: their curves, the comparison in one picture, and the best tau for every k.

A loss that leads cross-entropy beyond its interval points up, one that is behind points down, and one that the seeds
cannot tell from cross-entropy is a hollow circle: readable without colour.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import BLUE, BROWN, DARK, GREY, maths, new_panels, shared_legend
from smooth_topk.study.losses import FAMILY
from smooth_topk.study.tables.cells import NOT_RUN, count_text
from smooth_topk.study.tables.family import BASELINE, NAMES

VERDICTS: dict[str, dict[str, Any]] = {
    "ahead of cross-entropy": {"color": BLUE, "marker": "^"},
    "cannot be told from it": {"color": GREY, "marker": "o", "markerfacecolor": "white"},
    "behind it": {"color": BROWN, "marker": "v"},
}
LIMIT = 4.0  # points: what lies beyond stands at the edge with its number
COLUMNS = 2  # of panels: a phone shows two between its edges, next to the names of the losses
K_LOOKS = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"), ("v", (0, (5, 1, 1, 1, 1, 1))))


def family_curves(curves: pd.DataFrame, highlight: str, *, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws loss and pull on the true score of the whole family, thin, with one loss in front of the others.

    Args:
        curves: of `measure.family_curves.family_curve_table`.
        highlight: a name of FAMILY.
    """
    left, right = axes = new_panels(axes, ncols=2, figsize=(9.2, 3.8))
    for ax, column in ((left, "value"), (right, "pull")):
        for name, curve in curves.groupby("loss", sort=False):
            look: dict[str, Any] = {"color": GREY, "linewidth": 0.8, "alpha": 0.6}
            if name == "cross_entropy":
                look = {"color": DARK, "linestyle": "--", "linewidth": 1.4, "label": "cross-entropy", "zorder": 3}
            if name == highlight:
                look = {"color": BLUE, "linewidth": 2.4, "label": maths(FAMILY[highlight].title), "zorder": 4}
            ax.plot(curve["true_score"], curve[column], **look)
        if highlight not in set(curves["loss"]):
            ax.text(0.5, 0.5, f"needs {FAMILY[highlight].package}", transform=ax.transAxes, ha="center")
        ax.axvline(curves["kth"].iloc[0], color=GREY, linestyle=":", linewidth=1)
        ax.set(xlabel="score of the true class", ylim=(0, None))
    left.set(ylabel="loss", ylim=(0, 6))
    right.set(ylabel="−derivative by the true score", ylim=(-0.1, 1.4))
    left.legend(loc="upper right")
    return axes


def family_figure(differences: pd.DataFrame, *, limit: float = LIMIT) -> dict[str, Axes]:
    """Draws the difference to cross-entropy of every loss (rows) in every setting (panels), with 95 % intervals.

    Settings without noise come first, those with noise begin a row of their own.

    Args:
        differences: of `tables.family_differences`; where there is none, the figure says so.
        limit: points beyond which a loss stands at the edge, with its number.

    Returns:
        The panels by the name of their setting.
    """
    settings = list(dict.fromkeys(differences["setting"])) or [NOT_RUN]
    kinds = ([name for name in settings if name.startswith("p =") == noisy] for noisy in (False, True))
    lines = [kind[start : start + COLUMNS] for kind in kinds for start in range(0, len(kind), COLUMNS)]
    losses = [name for name in NAMES.values() if name != BASELINE]
    columns, height = max(map(len, lines)), 0.21 * len(losses) + 0.55
    size = (1.8 * columns + 1.8, len(lines) * height + 0.7)
    figure, grid = plt.subplots(len(lines), columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    panels = {name: ax for axes, line in zip(grid, lines, strict=True) for ax, name in zip(axes, line, strict=False)}
    for setting, ax in panels.items():
        part = differences[differences["setting"] == setting]
        _draw_setting(ax, part, {name: place for place, name in enumerate(losses)}, limit)
        ax.set_title(setting if len(part) else NOT_RUN, fontsize="medium")
        ax.set_yticks(range(len(losses)), [maths(name) for name in losses])
        ax.set(xlim=(-limit * 1.12, limit * 1.12), ylim=(len(losses) - 0.4, -0.6), xticks=limit * np.linspace(-1, 1, 5))
        ax.tick_params(labelbottom=True)
        ax.grid(visible=False, axis="y")
    for ax in set(grid.flat) - set(panels.values()):
        ax.set_axis_off()
    handles = [plt.Line2D([], [], linestyle="none", label=name, **look) for name, look in VERDICTS.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), handletextpad=0.1, columnspacing=1)
    seeds = count_text(differences["seeds"].tolist())
    words = f"accuracy minus that of cross-entropy, in points,\nwith its 95 % interval over {seeds}"
    figure.supxlabel(words, fontsize="medium")
    return panels


def tau_figure(differences: pd.DataFrame, *, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws how far every tau is behind the best tau of its k, one line per k, one panel per number of classes.

    Args:
        differences: of `tables.tau_differences`; where there is none, the figure says so.
    """
    numbers = sorted(set(differences["classes"])) or [NOT_RUN]
    axes = new_panels(axes, ncols=len(numbers), figsize=(3.6 * len(numbers), 3.6), sharey=True)
    ks, taus = sorted(set(differences["k"])), sorted(set(differences["tau"]))
    shades = mpl.colormaps["cividis"](
        np.linspace(0, 0.62, len(ks))
    )  # lighter ones cannot be read, on white or inverted
    for ax, number in zip(axes, numbers, strict=True):
        for place, k in enumerate(ks):
            part = differences[(differences["classes"] == number) & (differences["k"] == k)].sort_values("tau")
            marker, line = K_LOOKS[place % len(K_LOOKS)]
            if len(part):
                look: dict[str, Any] = {"color": shades[place], "marker": marker, "linestyle": line}
                ax.plot(part["tau"], part["mean"], label=f"k = {k}", **look)
        ax.axhline(0, color=GREY, linewidth=1)
        ax.set(xscale="log", xlabel="τ")
        ax.set_xticks(taus, [f"{tau:g}" for tau in taus])
        ax.minorticks_off()
        ax.set(title=number if number == NOT_RUN else f"{number} classes")
    axes[0].set_ylabel("validation top-k,\npoints behind the best τ")
    shared_legend(axes)
    return axes


def _draw_setting(ax: Axes, part: pd.DataFrame, places: dict[str, int], limit: float) -> None:
    ax.axvline(0, color=DARK, linestyle="--", linewidth=1)
    for row in part.to_dict("records"):
        if row["loss"] not in places:
            continue
        place, look = places[row["loss"]], VERDICTS[verdict(row)]
        if abs(row["mean"]) > limit:
            side = 1 if row["mean"] > 0 else -1
            ax.plot([side * limit], [place], color=look["color"], marker=">" if side > 0 else "<")
            ax.text(side * limit * 0.88, place, f"{row['mean']:+.1f}".replace("-", "−"), va="center", fontsize="small",
                    ha="right" if side > 0 else "left")  # fmt: skip
            continue
        if pd.notna(row["low"]):
            ends = [max(row["low"], -limit), min(row["high"], limit)]
            ax.plot(ends, [place, place], color=look["color"], linewidth=1.8)
        ax.plot([row["mean"]], [place], linestyle="none", **look)


def verdict(row: dict) -> str:
    """Returns what a difference with its interval says; a difference without an interval says nothing."""
    ahead, unknown, behind = VERDICTS
    if row["low"] > 0:
        return ahead
    return behind if row["high"] < 0 else unknown
