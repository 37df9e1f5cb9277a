"""How algorithms look in every figure, and the figure of chapter 7: time against the number of classes."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import BLUE, DARK, GREY, LINES, new_panels
from smooth_topk.study.tables.names import algorithm_name

# Pivot has the colour of the smooth loss it computes by default; the others are told apart by grey, line and marker.
LOOKS: dict[str, dict[str, Any]] = {
    "pivot": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "pivot_compiled": {"color": BLUE, "linestyle": ":", "marker": "^", "markerfacecolor": "white"},
    "fused_numba": {"color": "#0b3c6f", "linestyle": "-", "marker": "*"},
    "fused_triton": {"color": "#0b3c6f", "linestyle": "-", "marker": "P"},
    "cross_entropy": {"color": DARK, "linestyle": "--", "marker": "s"},
    "summation": {"color": "#7a7a7a", "linestyle": ":", "marker": "v"},
    "divide_and_conquer": {"color": "#5b5b5b", "linestyle": "-.", "marker": "D"},
    "divide_and_conquer_autograd": {"color": "#9a9a9a", "linestyle": "-.", "marker": "d"},
}
OTHER_MARKERS = "oD^sPv"
OTHER_COLOURS = ("#6a4fa0", "#2f7f5f", "#b58900", "#8c2d4f", DARK, GREY)


def speed_figure(
    times: pd.DataFrame, *, baseline: str | None = None, axes: Sequence[Axes] | None = None
) -> tuple[Axes, Axes]:
    """Draws time, and its ratio to a baseline, against the number of classes, both on log scales.

    Args:
        times: columns algorithm, n, seconds; repeated measurements give their median. Where there is a column batch,
            which may differ from size to size, the time is that of one sample. Where there is a column quiet, times
            that other processes disturbed are left out, unless the baseline has no others.
        baseline: the algorithm that the ratios are taken to; default the first in the table.

    Returns:
        The axes of the times and those of the ratios.
    """
    left, right = new_panels(axes, ncols=2, figsize=(9.6, 3.8))
    baseline = baseline or times["algorithm"].iloc[0]
    times, unit = _per_sample(_undisturbed(times, baseline))
    medians = times.groupby(["algorithm", "n"], sort=False)["seconds"].median().unstack("algorithm").sort_index()
    if baseline not in medians:
        raise ValueError(f"baseline must be one of {', '.join(medians)}, got {baseline!r}.")
    looks = looks_of_algorithms(times["algorithm"].unique())
    for name, look in looks.items():
        seconds = medians[name].dropna()
        left.plot(seconds.index, seconds, label=algorithm_name(name), **look)
        ratio = (medians[name] / medians[baseline]).dropna()
        right.plot(ratio.index, ratio, **look)
    left.set(xscale="log", yscale="log", xlabel="number of classes n", ylabel=f"{unit} (s)")
    right.set(
        xscale="log", yscale="log", xlabel="number of classes n", ylabel=f"time ÷ that of {algorithm_name(baseline)}"
    )
    left.legend()
    return left, right


def _undisturbed(times: pd.DataFrame, baseline: str) -> pd.DataFrame:
    quiet = times[times["quiet"].astype(bool)] if "quiet" in times else times
    enough = baseline in set(quiet["algorithm"]) and 2 * len(quiet) >= len(times)
    return quiet if enough else times  # on a busy machine rough times are better than an empty figure


def _per_sample(times: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    if "batch" not in times:
        return times, "time"
    return times.assign(seconds=times["seconds"] / times["batch"]), "time per sample"


def looks_of_algorithms(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns the keywords of Axes.plot for each algorithm; the same name looks the same in every figure."""
    unknown = [name for name in names if name not in LOOKS]
    spare = {
        name: {
            "color": OTHER_COLOURS[place % len(OTHER_COLOURS)],
            "linestyle": LINES[place % len(LINES)],
            "marker": OTHER_MARKERS[place % len(OTHER_MARKERS)],
        }
        for place, name in enumerate(unknown)
    }
    return {name: LOOKS.get(name) or spare[name] for name in names}
