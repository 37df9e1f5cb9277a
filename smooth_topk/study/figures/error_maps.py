"""Figures of chapters 4 to 6: errors of the algorithms."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.patches import Rectangle

from smooth_topk.study.figures.speed import looks_of_algorithms
from smooth_topk.study.figures.style import new_axes, new_panels
from smooth_topk.study.tables.names import algorithm_name

EXACT = 1e-16  # errors below it are drawn as it: a log scale has no zero
LABELS = {"tau": "τ", "scale": "scale of the scores", "e": "$e_i$, the others are near 1", "k": "k"}
ERRORS = {"loss_error": "relative error of the loss", "gradient_error": "error of the gradient ÷ its largest entry"}
COLOUR_LABEL = "relative error (crossed: not finite)"
NOT_FINITE = "×: not a finite number"
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 2}  # where a legend hides no curve
# Not magma: inverted for a dark page, its upper half is one pink. Without the lightest colours, which look like paper.
ERROR_MAP = ListedColormap(mpl.colormaps["YlOrBr"].resampled(256)(range(38, 256)), name="error")
ROOM_FOR_CROSSES = 0.2  # of the height of the axes, above the curves


def error_maps(
    table: pd.DataFrame,
    *,
    panels: str = "algorithm",
    x: str = "tau",
    y: str = "scale",
    error: str = "error",
    axes: Sequence[Axes] | None = None,
    scale: tuple[float, float] = (1e-8, 1.0),
) -> Sequence[Axes]:
    """Draws one error map for each value of the column `panels`, side by side with one colour scale.

    Args:
        table: columns panels, x, y and error, one row per cell.

    Returns:
        The axes, in the order in which the values first stand in the table.
    """
    names = list(dict.fromkeys(table[panels]))
    size = (0.6 + 2.2 * len(names), 3.9)  # narrow panels, so that a page does not shrink the words
    axes = new_panels(axes, ncols=len(names), figsize=size, sharey=True)
    for ax, name in zip(axes, names, strict=True):
        mesh = _draw_map(ax, table[table[panels] == name].pivot(index=y, columns=x, values=error), scale)
        ax.set(xlabel=LABELS.get(x, x), title=algorithm_name(str(name)))
        ax.tick_params(axis="x", labelrotation=45)
    axes[0].set_ylabel(LABELS.get(y, y))
    # Below the first panels, because a telephone shows these first.
    below: dict[str, Any] = {"location": "bottom", "shrink": min(1.0, 1.8 / len(names)), "anchor": (0.0, 1.0)}
    axes[0].figure.colorbar(mesh, ax=list(axes), label=COLOUR_LABEL, extend="min", aspect=30, **below)
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
    """Draws errors against one parameter on log scales, one line per curve; a cross at the top is no finite number.

    Args:
        table: columns x, error and curves, one row per point. Algorithms of the package keep their colour and marker.
        limits: lowest and highest error shown; default all.
    """
    ax = new_axes(ax)
    xscale = "linear" if x == "k" else "log"
    ax.set(xscale=xscale, yscale="log", xlabel=LABELS.get(x, x), ylabel=ERRORS.get(error, "relative error"))
    crosses = []
    for name, look in looks_of_algorithms(table[curves].unique()).items():
        points = table[table[curves] == name].sort_values(x)
        finite = np.isfinite(points[error])
        label = algorithm_name(str(name))
        ax.plot(points[x][finite], points[error][finite].clip(lower=EXACT), label=label, **look | {"markersize": 4})
        if not finite.all():  # an empty line that is not clipped counts as a point in the figure's corner
            crosses.append((points[x][~finite], look["color"]))
    ax.set_ylim(*(limits or (None, None)))
    if crosses:
        low, high = ax.get_ylim()
        ax.set_ylim(low, high * (high / low) ** ROOM_FOR_CROSSES)
        for row, (places, colour) in enumerate(crosses):
            height = np.full(len(places), 0.97 - 0.05 * row)
            ax.plot(places, height, "x", color=colour, transform=ax.get_xaxis_transform(), clip_on=False)
    title = NOT_FINITE if crosses else None
    ax.legend(title=title, title_fontsize="small", alignment="left", **ABOVE)
    return ax


def stability_figure(
    table: pd.DataFrame, *, dtype: str = "float32", axes: Sequence[Axes] | None = None
) -> tuple[Axes, Axes]:
    """Draws the errors of loss and gradient against tau, one line per algorithm: Table 5 with its errors.

    Args:
        table: columns algorithm, dtype, tau, error and gradient_error, as in stability.csv.

    Returns:
        The axes of the loss and those of the gradient.
    """
    left, right = new_panels(axes, ncols=2, figsize=(9.6, 4.7))
    table = table[table["dtype"] == dtype]
    names = {"error": "relative error of the loss", "gradient_error": ERRORS["gradient_error"]}
    for ax, (column, name) in zip((left, right), names.items(), strict=True):
        error_curves(table, x="tau", error=column, limits=(float(np.finfo(dtype).eps) / 10, 1.0), ax=ax)
        ax.set(ylabel=name, title=dtype)
        ax.minorticks_off()
        if legend := ax.get_legend():  # one for both panels is enough
            legend.remove()
    figure = left.get_figure(root=True)
    assert figure is not None
    handles, labels = left.get_legend_handles_labels()
    # On the left, because a telephone shows the left panel first.
    figure.legend(handles, labels, title=NOT_FINITE, alignment="left", loc="outside lower left", ncols=2)
    return left, right


def _draw_map(ax: Axes, grid: pd.DataFrame, scale: tuple[float, float]) -> QuadMesh:
    values = grid.to_numpy(dtype=float)
    shown = np.ma.masked_invalid(np.maximum(values, EXACT))
    mesh = ax.pcolormesh(shown, norm=LogNorm(*scale, clip=True), cmap=ERROR_MAP, rasterized=True)
    for row, column in zip(*np.nonzero(~np.isfinite(values)), strict=True):
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor="white", edgecolor="#888888", hatch="xx", linewidth=0))
    ax.set_xticks(np.arange(len(grid.columns)) + 0.5, [f"{value:g}" for value in grid.columns])
    ax.set_yticks(np.arange(len(grid.index)) + 0.5, [f"{value:g}" for value in grid.index])
    ax.grid(False)
    return mesh
