"""Figures of chapter 11: probabilities over the classes."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from smooth_topk import topk_probabilities
from smooth_topk.study.figures.style import BLUE, DARK, bars, new_axes


def probability_table(scores: Tensor, names: Sequence[str], *, k: int) -> pd.DataFrame:
    """Returns softmax and top-k marginals of one sample's scores (n,): columns name, softmax, marginal."""
    marginals = topk_probabilities(scores, k)
    return pd.DataFrame({"name": list(names), "softmax": scores.softmax(-1), "marginal": marginals})


def crop_table(scores: Tensor, names: Sequence[str], *, k: int) -> pd.DataFrame:
    """Returns the probabilities of each crop and their mean, for the scores (crops, n) of one image.

    Returns:
        Columns crop ("crop 1", ..., "mean"), name, softmax, marginal.
    """
    crops = [probability_table(row, names, k=k).assign(crop=f"crop {place}") for place, row in enumerate(scores, 1)]
    mean = pd.DataFrame(
        {
            "name": list(names),
            "softmax": scores.softmax(-1).mean(0),
            "marginal": topk_probabilities(scores, k, crops=0),
            "crop": "mean",
        }
    )
    return pd.concat([*crops, mean], ignore_index=True)


def membership_bars(scores: Tensor, names: Sequence[str], *, k: int, ax: Axes | None = None) -> Axes:
    """Draws how a marginal comes about: each class's bar is the stack of the shares of the k-sets that contain it."""
    ax = new_axes(ax)
    sets = list(combinations(range(len(scores)), k))
    shares = torch.stack([scores[list(members)].sum() for members in sets]).softmax(0).tolist()
    heights = np.zeros(len(scores))
    for members, share in sorted(zip(sets, shares, strict=True), key=lambda pair: -pair[1]):
        for index in members:
            ax.bar(index, share, 0.7, bottom=heights[index], facecolor=BLUE, alpha=0.75, edgecolor="white")
            if share > 0.05:
                text = "".join(names[member] for member in members)
                ax.text(index, heights[index] + share / 2, text, ha="center", va="center", color="white", fontsize=9)
            heights[index] += share
    ax.set_xticks(range(len(scores)), names)
    ax.set(xlabel="class", ylabel=f"probability of being in the set, k = {k}", ylim=(0, 1.02))
    ax.grid(axis="x", visible=False)
    return ax


def probability_bars(
    table: pd.DataFrame, *, k: int, ax: Axes | None = None, count: int = 12, true_name: str | None = None
) -> Axes:
    """Draws softmax beside top-k marginals for the classes with the largest marginals.

    Args:
        table: columns name, softmax (sums to 1) and marginal (sums to k), one row a class.
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
    """Draws softmax beside top-k marginals, one panel a crop and one for their mean: a table of `crop_table`."""
    crops = list(dict.fromkeys(table["crop"]))
    if axes is None:
        axes = new_axes(ncols=len(crops), sharey=True, figsize=(3.2 * len(crops), 3.2))
    for ax, crop in zip(axes, crops, strict=True):
        part = table[table["crop"] == crop]
        _pairs(ax, part, k)
        answers = {way: " ".join(sorted(part.nlargest(k, way)["name"])) for way in ("softmax", "marginal")}
        ax.set_title(f"{crop}\nby softmax: {answers['softmax']}\nby marginals: {answers['marginal']}")
    axes[-1].legend()
    for ax in axes[1:]:
        ax.set(ylabel="")
        ax.tick_params(labelleft=False)
    return axes


def _pairs(ax, shown, k):
    places = np.arange(len(shown))
    hatched = {"facecolor": "white", "edgecolor": DARK, "hatch": "//"}
    bars(ax, places - 0.2, shown["marginal"], width=0.4, color=BLUE, label=f"in the top {k} (sums to {k})")
    bars(ax, places + 0.2, shown["softmax"], width=0.4, label="softmax (sums to 1)", **hatched)
    ax.grid(axis="x", visible=False)
    ax.set_xticks(places, shown["name"].astype(str))
    ax.set(ylabel="probability", ylim=(0, 1.05), yticks=(0, 0.25, 0.5, 0.75, 1))
