"""Figures of chapters 3 to 6: algorithms and their errors."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from smooth_topk.study.figures.style import new_axes

EXACT = 1e-16  # errors below it are drawn as it: a log scale has no zero


def error_map(
    table: pd.DataFrame, *, x: str = "tau", y: str = "scale", error: str = "error", ax: Axes | None = None, scale=None
) -> Axes:
    """Draws the error of an algorithm over two parameters; a crossed cell is no finite number.

    Args:
        table: columns x, y and error (relative; NaN or inf where the result is not finite), one row a cell.
        scale: (lowest, highest) error of the colours, the same for figures that are compared; default 1e-16 to 1.
    """
    ax = new_axes(ax)
    grid = table.pivot(index=y, columns=x, values=error)
    values = grid.to_numpy(dtype=float)
    shown = np.ma.masked_invalid(np.maximum(values, EXACT))
    mesh = ax.pcolormesh(shown, norm=LogNorm(*(scale or (EXACT, 1.0)), clip=True), cmap="magma_r", rasterized=True)
    for row, column in zip(*np.nonzero(~np.isfinite(values)), strict=True):
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor="white", edgecolor="#888888", hatch="xx", linewidth=0))
    ax.set_xticks(np.arange(len(grid.columns)) + 0.5, [f"{value:g}" for value in grid.columns])
    ax.set_yticks(np.arange(len(grid.index)) + 0.5, [f"{value:g}" for value in grid.index])
    ax.set(xlabel={"tau": "τ"}.get(x, x), ylabel={"scale": "scale of the scores"}.get(y, y))
    ax.grid(False)
    ax.figure.colorbar(mesh, ax=ax, label="relative error (crossed: not finite)")
    return ax
