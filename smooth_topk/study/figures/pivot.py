"""Figures of chapter 6: head, pivot and tail, the algorithm step by step, its correction, the tail's derivatives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from smooth_topk.study.figures.polynomials import PALE
from smooth_topk.study.figures.style import BLUE, BROWN, DARK, GREY, bars, new_axes, new_panels

STEPS_SIZE = (7.2, 5.4)
LONGEST = 24  # characters in a cell of the table
# Wide lines instead of bars: one object each, so that a slider redraws fast.
HEAD: dict[str, Any] = {"color": BLUE, "linewidth": 8}
TAIL: dict[str, Any] = {"color": "#b5b5b5", "linewidth": 8}


def head_and_tail(table: pd.DataFrame, *, k: int, tau: float, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws the largest scores as distances to the pivot, and the weights u of the tail.

    Args:
        table: of `measure.head_and_tail_table`, for the same k and tau.

    Returns:
        The axes of the distances and those of the weights.
    """
    left, right = new_panels(axes, ncols=2, figsize=(9.6, 3.4))
    head, tail = table[:k], table[k:]
    left.vlines(head["rank"], 0, head["distance"], label=f"head, the {k} largest", **HEAD)
    left.vlines(tail["rank"], 0, tail["distance"], label="tail", **TAIL)
    left.axhline(0, color=BROWN, linewidth=1)
    left.plot([k], [0], "D", color=BROWN, label="pivot, the last of the head")
    left.legend()
    left.set(xlabel="rank of the class", ylabel="score − score of the pivot")
    right.vlines(tail["rank"], 0, tail["weight"], **TAIL)
    right.axhline(1, color=BROWN, linewidth=1)
    right.set(xlabel="rank of the class", ylabel=f"u of the tail, τ = {tau:.3g}", ylim=(0, 1.08))
    for ax in (left, right):
        ax.set(xlim=(0, len(table) + 1), xticks=range(5, len(table) + 1, 5))
    return left, right


def pivot_steps(
    classes: pd.DataFrame, joined: pd.DataFrame, *, step: int | None = None, axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Draws the pivot algorithm at work: which classes have joined, and the table of S_j that they fill.

    Args:
        classes: of `measure.head_and_tail_table`.
        joined: of `measure.joining_table`, for the same scores, k and tau.
        step: how many classes of the head have joined; default all.

    Returns:
        The axes of the classes and, below, those of the table.
    """
    above, below = new_panels(axes, nrows=2, figsize=STEPS_SIZE)
    k = int(joined["degree"].max())
    step = k if step is None else step
    _draw_joined(above, classes, k, step)
    _fill_table(below, joined, k, step)
    return above, below


def correction_curve(table: pd.DataFrame, bounds: tuple[float, float], *, ax: Axes | None = None) -> Axes:
    """Draws log(S_k / S_{k-1}), what the smooth loss adds to the hard margin, over τ, between its two bounds.

    Args:
        table: columns tau, correction and sample, one curve per sample.
        bounds: -log k and log(n - k), of `measure.correction_bounds`.
    """
    ax = new_axes(ax)
    for _, part in table.groupby("sample"):
        ax.plot(part["tau"], part["correction"], color=BLUE, linewidth=1)
    low, high = bounds
    for bound, name in ((low, "−log k"), (high, "log(n − k)")):
        ax.axhline(bound, color=GREY, linestyle="--", linewidth=1.2)
        away = 4 if bound > 0 else -4  # points from the line, outside the band
        side = "bottom" if bound > 0 else "top"
        ax.annotate(name, (table["tau"].min(), bound), (2, away), textcoords="offset points", va=side, color=DARK)
    ax.set(xscale="log", xlabel="τ", ylabel="log($S_k$ / $S_{k-1}$)", ylim=(low - 0.9, high + 0.9))
    return ax


def tail_derivatives(table: pd.DataFrame, coefficients: Sequence[float], *, ax: Axes | None = None) -> Axes:
    """Draws the derivatives of the tail's classes on the one polynomial that gives them all.

    Args:
        table: columns u and derivative, one row per class of the tail.
        coefficients: c_0..c_{k-1} of the polynomial; the line is u Σ c_m u^m.
    """
    ax = new_axes(ax)
    u = np.linspace(0, 1, 101)
    line = u * sum(float(coefficient) * u**m for m, coefficient in enumerate(coefficients))
    ax.plot(u, line, color=DARK, linewidth=1, label="u × one polynomial in u")
    ax.plot(table["u"], table["derivative"], "o", color=BLUE, markersize=4, label="a class of the tail, autograd")
    ax.set(xlabel="u = exp((s − pivot) / (kτ))", ylabel="$q^{(k)} - q^{(k-1)}$", xlim=(-0.02, 1.02))
    ax.legend()
    return ax


def _draw_joined(ax: Axes, classes: pd.DataFrame, k: int, step: int) -> None:
    """The classes by rank: the tail grey, the head hollow until it joins, and the class of this step dark."""
    waiting, newest, before = classes[: k - step], classes[k - step : k - step + 1], classes[k - step + 1 : k]
    thin = 0.02 * classes["distance"].abs().max()  # stands for the pivot, whose distance is zero
    for part, colour, edge, name in (
        (classes[k:], "#b5b5b5", "#b5b5b5", "tail"),
        (waiting, "white", BLUE, "head, still waiting"),
        (newest if step else classes[:0], DARK, DARK, "joins in this step"),
        (before, BLUE, BLUE, "head, joined before"),
    ):
        if len(part):
            heights = part["distance"].where(part["distance"] != 0, thin)
            bars(ax, part["rank"], heights, facecolor=colour, edgecolor=edge, label=name)
    ax.axhline(0, color=BROWN, linewidth=1)
    ax.plot([k], [0], "D", color=BROWN, markersize=5, label="pivot")
    ax.set_xticks(classes["rank"])
    ax.set(xlabel="rank of the class", ylabel="score − score of the pivot")
    ax.legend(loc="lower left")  # below the head, whose bars point upwards
    ax.grid(axis="x", visible=False)


def _fill_table(ax: Axes, joined: pd.DataFrame, k: int, step: int) -> None:
    """S_j in row j, one column per step up to this one; below a number of this step stands what it is made of."""
    value = joined.set_index(["step", "degree"])["value"]
    for row in joined[joined["step"] <= step].itertuples():
        newest = row.step == step
        corner = (row.step - 0.5, row.degree - 0.5)
        colour = PALE if newest else "white"
        ax.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="#cccccc", linewidth=0.8))
        made = newest and row.step > 0 and row.degree > 0
        ax.text(row.step, row.degree + 0.14 * made, f"{row.value:.3g}", ha="center", va="center", color=DARK)
        if made:
            before = value[row.step - 1]
            parts = f"{row.decay:.2g} × {before[row.degree]:.3g} + {before[row.degree - 1]:.3g}"
            size = 9 if len(parts) <= LONGEST else 7.5  # powers of ten are long
            ax.text(row.step, row.degree - 0.24, parts, ha="center", va="center", color=BLUE, fontsize=size)
    ax.set_xticks(range(k + 1), ["tail", *(f"and rank {rank}" for rank in range(k, 0, -1))])
    ax.set_yticks(range(k + 1), [f"$S_{{{j}}}$" for j in range(k + 1)])
    ax.set(xlim=(-0.5, k + 0.5), ylim=(-0.5, k + 0.5))
    ax.grid(False)
