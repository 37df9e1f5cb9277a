"""Figures of chapter 6: head, pivot and tail, the bounded correction, the one polynomial of the tail's derivatives."""

import math
from collections.abc import Sequence

import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from smooth_topk import log_symmetric_polynomials
from smooth_topk.study.figures.style import BLUE, BROWN, DARK, GREY, new_axes

# Wide lines instead of bars: one object each, so that a slider redraws fast.
HEAD, TAIL = {"color": BLUE, "linewidth": 8}, {"color": "#b5b5b5", "linewidth": 8}


def head_and_tail(
    scores: Tensor, *, k: int, tau: float, shown: int = 20, axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Draws the largest scores as distances to the pivot, and the weights u of the tail.

    Args:
        scores: (n,) scores of the classes other than the true one.
        shown: how many of the largest are drawn.

    Returns:
        The axes of the distances and those of the weights.
    """
    left, right = axes if axes is not None else new_axes(ncols=2, figsize=(9.6, 3.4))
    ordered = scores.detach().double().sort(descending=True).values[:shown]
    distance = (ordered - ordered[k - 1]).tolist()
    places = list(range(1, len(ordered) + 1))
    left.vlines(places[:k], 0, distance[:k], label=f"head, the {k} largest", **HEAD)
    left.vlines(places[k:], 0, distance[k:], label="tail", **TAIL)
    left.axhline(0, color=BROWN, linewidth=1)
    left.plot([k], [0], "D", color=BROWN, label="pivot, the last of the head")
    left.legend()
    left.set(xlabel="rank of the class", ylabel="score − score of the pivot")
    weights = [math.exp(value / (k * tau)) for value in distance[k:]]
    right.vlines(places[k:], 0, weights, **TAIL)
    right.axhline(1, color=BROWN, linewidth=1)
    right.set(xlabel="rank of the class", ylabel=f"u of the tail, τ = {tau:.3g}", ylim=(0, 1.08))
    for ax in (left, right):
        ax.set(xlim=(0, len(ordered) + 1), xticks=range(5, len(ordered) + 1, 5))
    return left, right


def correction_curve(table: pd.DataFrame, *, k: int, classes: int, ax: Axes | None = None) -> Axes:
    """Draws log(S_k / S_{k-1}), what the smooth loss adds to the hard margin, over τ, between its two bounds.

    Args:
        table: columns tau, correction and sample, one curve a sample.
    """
    ax = new_axes(ax)
    for _, part in table.groupby("sample"):
        ax.plot(part["tau"], part["correction"], color=BLUE, linewidth=1)
    low, high = -math.log(k), math.log(classes - k)
    for bound, name in ((low, "−log k"), (high, "log(n − k)")):
        ax.axhline(bound, color=GREY, linestyle="--", linewidth=1.2)
        away = 4 if bound > 0 else -4  # points from the line, outside the band
        place = {"textcoords": "offset points", "va": "bottom" if bound > 0 else "top"}
        ax.annotate(name, (table["tau"].min(), bound), (2, away), color=DARK, **place)
    ax.set(xscale="log", xlabel="τ", ylabel="log($S_k$ / $S_{k-1}$)", ylim=(low - 0.9, high + 0.9))
    return ax


def tail_table(others: Tensor, *, k: int, tau: float) -> pd.DataFrame:
    """Returns u and ∂(log σ_k - log σ_{k-1})/∂x of the tail's classes, by automatic differentiation in float64.

    Args:
        others: (n,) scores of the classes other than the true one.
    """
    x = (others.detach().double() / (k * tau)).sort(descending=True).values.requires_grad_()
    log_sigma = log_symmetric_polynomials(x, k, algorithm="divide_and_conquer_autograd")
    (derivative,) = torch.autograd.grad(log_sigma[k] - log_sigma[k - 1], x)
    u = torch.exp(x - x[k - 1]).detach()
    return pd.DataFrame({"u": u[k:].numpy(), "derivative": derivative[k:].numpy()})


def tail_derivatives(table: pd.DataFrame, coefficients: Sequence[float], *, ax: Axes | None = None) -> Axes:
    """Draws the derivatives of the tail's classes on the one polynomial that gives them all.

    Args:
        table: columns u and derivative, one row a class of the tail.
        coefficients: c_0..c_{k-1} of the polynomial; the line is u Σ c_m u^m.
    """
    ax = new_axes(ax)
    u = torch.linspace(0, 1, 101, dtype=torch.float64)
    line = u * sum(float(coefficient) * u**m for m, coefficient in enumerate(coefficients))
    ax.plot(u, line, color=DARK, linewidth=1, label="u × one polynomial in u")
    ax.plot(table["u"], table["derivative"], "o", color=BLUE, markersize=4, label="a class of the tail, autograd")
    ax.set(xlabel="u = exp((s − pivot) / (kτ))", ylabel="$q^{(k)} - q^{(k-1)}$", xlim=(-0.02, 1.02))
    ax.legend()
    return ax
