"""Differences between losses with their 95 % intervals: the tidy tables of `tables.differences` in, Axes out.

Ours are filled markers with an interval, the seeds small dots next to them, the paper's values hollow.
"""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.accuracy import noise_figure
from smooth_topk.study.figures.style import BLUE, BROWN, DARK, GREY, maths, new_axes, new_panels
from smooth_topk.study.tables.cells import count_text, of_grouping
from smooth_topk.study.tables.differences import differences_by_seed, intervals, paper_gain

SERIES = (
    {"color": BLUE, "marker": "o"},
    {"color": "#5a9bd0", "marker": "D"},
    {"color": BROWN, "marker": "^"},
    {"color": GREY, "marker": "v"},
)
WIDTH = 0.44  # of all series of one place, in steps between places
NAMES = {"noise_level": "noise level p", "train_images": "training images", "margin": "margin α", "share": "share"}


def difference_figure(
    differences: pd.DataFrame,
    *,
    by: str = "noise_level",
    series: str = "loss",
    paper: Mapping[float, float] | None = None,
    paper_label: str = "paper",
    ax: Axes | None = None,
) -> Axes:
    """Draws a difference in points against what the runs vary: one dot per seed, the mean and its 95 % t-interval.

    Args:
        differences: one row per seed with the columns of `by`, `series` and difference; may be empty.
        by: the column of the horizontal axis; its values stand side by side, whatever their distance.
        series: the column that tells several means of one place apart.
        paper: the paper's differences by the same values, drawn hollow.
    """
    ax, paper = new_axes(ax), paper or {}
    places = {value: place for place, value in enumerate(sorted({*differences[by], *paper}))}
    ax.axhline(0, color=GREY, linewidth=1)
    if paper:
        ax.plot([places[value] for value in paper], list(paper.values()), "o", color=DARK, markerfacecolor="white",
                zorder=5, label=paper_label)  # fmt: skip
    names = list(dict.fromkeys(differences[series]))
    for number, name in enumerate(names):
        part = differences[differences[series] == name]
        offset = WIDTH * ((number + 1) / (len(names) + 1) - 0.5) if len(names) > 1 or paper else 0.0
        offset += 0.12 if paper and len(names) == 1 else 0.0  # next to the paper's marker, not upon it
        _draw_series(ax, part, by, {value: place + offset for value, place in places.items()}, name, SERIES[number])
    ax.set_xticks(list(places.values()), [f"{value:,}" if value >= 100 else f"{value:g}" for value in places])
    ax.set(xlabel=NAMES.get(by, by), ylabel="difference in points")
    if names or paper:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    return ax


def noise_differences(
    parts: Mapping[str, pd.DataFrame],
    *,
    metric: str = "test_top5",
    grouping: str = "superclass",
    ax: Axes | None = None,
) -> Axes:
    """Draws the smooth loss minus cross-entropy by noise level for several sets of runs, next to the paper's.

    Args:
        parts: runs by the name of their setting, such as "each loss tuned"; each may be empty.
    """
    found = [
        differences_by_seed(of_grouping(runs, grouping), metric=metric).assign(setting=name)
        for name, runs in parts.items()
    ]
    ax = difference_figure(pd.concat(found), series="setting", paper=paper_gain(metric[-4:]), ax=ax)
    ax.set_ylabel(f"top-{metric[-1]}, smooth loss − CE (points)")
    return ax


def noise_summary(
    tuned: pd.DataFrame, papers_pair: pd.DataFrame, *, grouping: str = "superclass", axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Draws Table 1 in short: top-5 against noise, the paper hollow, ours filled, and differences with intervals.

    Args:
        tuned: runs with the rate and decay that a search chose for each loss.
        papers_pair: runs with the paper's own rate and decay for both.
    """
    left, right = axes = new_panels(axes, ncols=2, figsize=(9.6, 3.9))
    noise_figure(tuned, grouping=grouping, ax=left).set_title("top-5 accuracy, each loss tuned")
    noise_differences(
        {"ours, each loss tuned": tuned, "ours, the paper's rate and decay": papers_pair}, grouping=grouping, ax=right
    ).set_title("smooth loss minus cross-entropy")
    return axes


def claims_figure(claims: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws one line per claim: the paper's number hollow, ours filled with its 95 % interval.

    Args:
        claims: columns claim, scale, paper, mean, low, high; NaN where there is no number.
    """
    ax = new_axes(ax, figsize=(5.0, 0.8 * len(claims) + 1.0))
    ax.axvline(0, color=GREY, linewidth=1)
    left = ax.get_yaxis_transform()
    for place, row in enumerate(claims.to_dict("records")):
        look = SERIES[0] if row["scale"].startswith("features") else SERIES[2]
        if pd.notna(row["low"]):
            ax.plot([row["low"], row["high"]], [place, place], color=look["color"], linewidth=2.2)
        ax.plot([row["mean"]], [place], look["marker"], color=look["color"])
        ax.plot([row["paper"]], [place + 0.2], "o", color=DARK, markerfacecolor="white")
        # Above its line and not next to it: the figure is narrow enough for a phone.
        claim, ground = " ".join(row["claim"].split()), {"facecolor": "white", "edgecolor": "none", "pad": 1}
        ax.text(0.0, place - 0.36, claim, fontsize=9, transform=left, va="center", bbox=ground)
    ax.plot([], [], color=SERIES[0]["color"], marker=SERIES[0]["marker"], label="ours, features")
    ax.plot([], [], color=SERIES[2]["color"], marker=SERIES[2]["marker"], label="ours, images")
    ax.plot([], [], "o", color=DARK, markerfacecolor="white", label="paper")
    ax.set(yticks=[], ylim=(len(claims) - 0.6, -0.7), xlabel="difference in points, with its 95 % interval over seeds")
    ax.spines["left"].set_visible(False)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False)
    return ax


def _draw_series(ax: Axes, part: pd.DataFrame, by: str, places: Mapping[float, float], name: str, look: dict) -> None:
    found = intervals(part.assign(series=name), [by, "series"]).sort_values(by)
    x = found[by].map(places)
    half = (found["high"] - found["mean"]).fillna(0)
    ax.plot(part[by].map(places) + 0.07, part["difference"], ".", color=look["color"], markersize=4, alpha=0.5)
    label = f"{maths(str(name))} ({count_text(found['seeds'].tolist())})"
    ax.errorbar(x, found["mean"], half, linestyle="none", label=label, **look)
