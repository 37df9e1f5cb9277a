"""Figures of chapter 11: probabilities over the classes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import BLUE, DARK, GREY, bars, new_axes, new_panels


def membership_bars(table: pd.DataFrame, names: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Draws how a marginal comes about: each class's bar is the stack of the shares of the k-sets that contain it.

    Args:
        table: of `measure.membership_table`.
        names: of the classes, from left to right.
    """
    ax = new_axes(ax)
    heights = dict.fromkeys(names, 0.0)
    for members, share in table[["members", "share"]].itertuples(index=False):
        for name in members:
            place = names.index(name)
            ax.bar(place, share, 0.7, bottom=heights[name], facecolor=BLUE, alpha=0.75, edgecolor="white")
            if share > 0.05:
                middle = heights[name] + share / 2
                ax.text(place, middle, "".join(members), ha="center", va="center", color="white", fontsize=9)
            heights[name] += share
    ax.set_xticks(range(len(names)), names)
    k = len(table["members"].iloc[0])
    ax.set(xlabel="class", ylabel=f"probability of being in the set, k = {k}", ylim=(0, 1.02))
    ax.grid(axis="x", visible=False)
    return ax


def probability_bars(
    table: pd.DataFrame, *, k: int, ax: Axes | None = None, count: int = 12, true_name: str | None = None
) -> Axes:
    """Draws softmax beside top-k marginals for the classes with the largest marginals.

    Args:
        table: columns name, softmax (sums to 1) and marginal (sums to k), one row per class.
        k: the size of the answer; its first k classes are left of the vertical line.
        count: number of classes shown.
        true_name: the name of the true class, which is set bold.
    """
    ax = new_axes(ax)
    shown = table.nlargest(count, "marginal")
    _pairs(ax, shown, k)
    ax.axvline(k - 0.5, color=DARK, linewidth=1, linestyle=":")
    for tick, name in zip(ax.get_xticklabels(), shown["name"], strict=True):
        tick.set(rotation=40, ha="right", fontweight="bold" if name == true_name else "normal")
    ax.legend()
    return ax


def crop_bars(table: pd.DataFrame, *, k: int, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws softmax beside top-k marginals, one panel per crop and one for their mean.

    Args:
        table: of `measure.crop_table`.
    """
    crops = list(dict.fromkeys(table["crop"]))
    axes = new_panels(axes, ncols=len(crops), sharey=True, figsize=(3.2 * len(crops), 3.2))
    for ax, crop in zip(axes, crops, strict=True):
        part = table[table["crop"] == crop]
        _pairs(ax, part, k)
        answers = {way: " ".join(sorted(part.nlargest(k, way)["name"])) for way in ("softmax", "marginal")}
        ax.set_title(f"{crop}\nby softmax: {answers['softmax']}\nby marginals: {answers['marginal']}")
    # Below the first panel: a phone shows that one first, and no bar grows into the legend.
    axes[0].legend(loc="upper left", bbox_to_anchor=(0.0, -0.1), frameon=False)
    for ax in axes[1:]:
        ax.set(ylabel="")
        ax.tick_params(labelleft=False)
    return axes


def _pairs(ax: Axes, shown: pd.DataFrame, k: int) -> None:
    places = np.arange(len(shown))
    hatched = {"facecolor": "white", "edgecolor": DARK, "hatch": "//"}
    bars(ax, places - 0.2, shown["marginal"], width=0.4, color=BLUE, label=f"in the top {k} (sums to {k})")
    bars(ax, places + 0.2, shown["softmax"], width=0.4, label="softmax (sums to 1)", **hatched)
    ax.grid(axis="x", visible=False)
    ax.set_xticks(places, shown["name"].astype(str))
    ax.set(ylabel="probability", ylim=(0, 1.05), yticks=(0, 0.25, 0.5, 0.75, 1))


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
