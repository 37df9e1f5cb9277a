"""Figures of chapters 4 to 6: errors of the algorithms."""

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle
from torch import Tensor

from smooth_topk.study.figures.speed import looks_of_algorithms
from smooth_topk.study.figures.style import BLUE, DARK, new_axes

EXACT = 1e-16  # errors below it are drawn as it: a log scale has no zero
LABELS = {"tau": "τ", "scale": "scale of the scores", "e": "$e_i$, the others are near 1", "k": "k"}
ERRORS = {"loss_error": "relative error of the loss", "gradient_error": "error of the gradient ÷ its largest entry"}
COLOUR_LABEL = "relative error (crossed: not finite)"


def error_map(
    table: pd.DataFrame, *, x: str = "tau", y: str = "scale", error: str = "error", ax: Axes | None = None, scale=None
) -> Axes:
    """Draws the error of an algorithm over two parameters; a crossed cell is no finite number.

    Args:
        table: columns x, y and error (relative; NaN or inf where the result is not finite), one row a cell.
        scale: (lowest, highest) error of the colours, the same for figures that are compared; default 1e-16 to 1.
    """
    ax = new_axes(ax)
    mesh = _draw_map(ax, table.pivot(index=y, columns=x, values=error), scale)
    ax.set(xlabel=LABELS.get(x, x), ylabel=LABELS.get(y, y))
    ax.figure.colorbar(mesh, ax=ax, label=COLOUR_LABEL)
    return ax


def error_maps(
    table: pd.DataFrame,
    *,
    panels: str = "algorithm",
    x: str = "tau",
    y: str = "scale",
    error: str = "error",
    axes: Sequence[Axes] | None = None,
    scale=(1e-8, 1.0),
) -> Sequence[Axes]:
    """Draws one error map for each value of the column `panels`, side by side with one colour scale.

    Args:
        table: columns panels, x, y and error, one row a cell.

    Returns:
        The axes, in the order in which the values first stand in the table.
    """
    names = list(dict.fromkeys(table[panels]))
    if axes is None:
        size = (1.6 + 2.9 * len(names), 3.2)
        axes = plt.subplots(ncols=len(names), figsize=size, sharey=True, squeeze=False)[1][0]
    for ax, name in zip(axes, names, strict=True):
        mesh = _draw_map(ax, table[table[panels] == name].pivot(index=y, columns=x, values=error), scale)
        ax.set(xlabel=LABELS.get(x, x), title=str(name).replace("_", " "))
        ax.tick_params(axis="x", labelrotation=45)
    axes[0].set_ylabel(LABELS.get(y, y))
    axes[0].figure.colorbar(mesh, ax=list(axes), label=COLOUR_LABEL, extend="min")
    return axes


def error_curves(
    table: pd.DataFrame,
    *,
    x: str,
    error: str = "error",
    curves: str = "algorithm",
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws errors against one parameter on log scales, one line a curve; a cross at the top is no finite number.

    Args:
        table: columns x, error and curves, one row a point. Algorithms of the package keep their colour and marker.
        limits: lowest and highest error shown; default all.
    """
    ax = new_axes(ax)
    for name, look in looks_of_algorithms(table[curves].unique()).items():
        points = table[table[curves] == name].sort_values(x)
        finite = points[np.isfinite(points[error])]
        label = str(name) if "$" in str(name) else str(name).replace("_", " ")
        ax.plot(finite[x], finite[error].clip(lower=EXACT), label=label, **look | {"markersize": 4})
        lost = points[~np.isfinite(points[error])]
        if len(lost):  # an empty line that is not clipped counts as a point in the figure's corner
            place = ax.get_xaxis_transform()
            ax.plot(lost[x], np.full(len(lost), 0.97), "x", color=look["color"], transform=place, clip_on=False)
    xscale = "linear" if x == "k" else "log"
    ax.set(xscale=xscale, yscale="log", xlabel=LABELS.get(x, x), ylabel=ERRORS.get(error, "relative error"))
    ax.set_ylim(*(limits or (None, None)))
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def stability_figure(table: pd.DataFrame, *, dtype: str = "float32", axes: tuple[Axes, Axes] | None = None):
    """Draws the errors of loss and gradient against tau, one line an algorithm: Table 5 with its errors.

    Args:
        table: columns algorithm, dtype, tau, error and gradient_error, as in stability.csv.

    Returns:
        The axes of the loss and those of the gradient.
    """
    left, right = axes or new_axes(ncols=2, figsize=(9.6, 3.8))
    table = table[table["dtype"] == dtype]
    names = {"error": "relative error of the loss", "gradient_error": ERRORS["gradient_error"]}
    for ax, (column, name) in zip((left, right), names.items(), strict=True):
        error_curves(table, x="tau", error=column, limits=(torch.finfo(getattr(torch, dtype)).eps / 10, 1.0), ax=ax)
        ax.set(ylabel=name, title=dtype)
        ax.minorticks_off()
    left.legend(loc="upper right", title="×: not a finite number", title_fontsize="small", alignment="left")
    right.get_legend().remove()
    return left, right


def largest_terms(scores: Tensor, *, k: int, tau: float, ax: Axes | None = None) -> Axes:
    """Draws the decimal exponent of the largest term of σ_1..σ_k, exp(x_[1] + ... + x_[j]), and the dtypes' limits.

    Args:
        scores: (n,) scores of one sample; x = s/(kτ).
    """
    ax = new_axes(ax)
    exponents = scores.double().topk(k).values.cumsum(0).div(k * tau * math.log(10))
    ax.bar(range(1, k + 1), exponents.clamp(min=0).tolist(), color=BLUE, width=0.6)
    for dtype, style in (("float16", ":"), ("float32", "--"), ("float64", "-.")):
        limit = math.log10(torch.finfo(getattr(torch, dtype)).max)
        ax.axhline(limit, color=DARK, linestyle=style, linewidth=1.2, label=f"largest {dtype}: $10^{{{limit:.1f}}}$")
    ax.set(yscale="log", ylim=(0.1, 1e5), xticks=range(1, k + 1), xlabel="degree j")
    ax.set(ylabel=f"decimal exponent, τ = {tau:.3g}")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _draw_map(ax: Axes, grid: pd.DataFrame, scale):
    values = grid.to_numpy(dtype=float)
    shown = np.ma.masked_invalid(np.maximum(values, EXACT))
    mesh = ax.pcolormesh(shown, norm=LogNorm(*(scale or (EXACT, 1.0)), clip=True), cmap="magma_r", rasterized=True)
    for row, column in zip(*np.nonzero(~np.isfinite(values)), strict=True):
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor="white", edgecolor="#888888", hatch="xx", linewidth=0))
    ax.set_xticks(np.arange(len(grid.columns)) + 0.5, [f"{value:g}" for value in grid.columns])
    ax.set_yticks(np.arange(len(grid.index)) + 0.5, [f"{value:g}" for value in grid.index])
    ax.grid(False)
    return mesh
