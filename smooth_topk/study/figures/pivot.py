"""The figure of chapter 6: the pivot algorithm step by step."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from smooth_topk.study.figures.polynomials import PALE
from smooth_topk.study.figures.style import BLUE, BROWN, DARK, GREY, bars, new_panels

PIVOT_HEIGHT = 0.08  # of its bar, whose distance is zero


def pivot_steps(
    names: Sequence[str],
    distance: Sequence[float],
    steps: Sequence[tuple[Tensor, Tensor | None]],
    *,
    step: int,
    axes: Sequence[Axes] | None = None,
) -> Sequence[Axes]:
    """Draws which classes have joined, and below the table of S_j that they fill, with the arithmetic of this step.

    Args:
        names: of the classes other than the true one, in descending order of their scores.
        distance: of each score to the pivot's, the k-th.
        steps: S_0..S_k of the tail alone (with None) and after each class of the head, with the k factors of the step.
        step: how many classes of the head have joined.
    """
    above, below = new_panels(axes, nrows=2, figsize=(4.4, 5.6))
    _draw_classes(above, names, distance, len(steps) - 1, step)
    _fill_table(below, names, steps, step)
    return above, below


def _draw_classes(ax: Axes, names: Sequence[str], distance: Sequence[float], k: int, step: int) -> None:
    newest = range(k - step, k - step + 1) if step else range(0)
    for places, face, edge, name in (
        (range(k, len(names)), GREY, GREY, "tail"),
        (range(k - step), "white", BLUE, "head, waiting"),
        (newest, DARK, DARK, "joins now"),
        (range(k - step + 1, k), BLUE, BLUE, "head, joined"),
    ):
        if len(places):
            heights = [distance[place] or PIVOT_HEIGHT for place in places]
            bars(ax, places, heights, facecolor=face, edgecolor=edge, label=name)
    ax.axhline(0, color=BROWN, linewidth=1)
    ax.set_xticks(range(len(names)), names)
    ax.set(ylabel="score − score of the pivot")
    ax.legend(loc="lower left")  # below the head, whose bars point upwards
    ax.grid(axis="x", visible=False)


def _fill_table(ax: Axes, names: Sequence[str], steps: Sequence[tuple[Tensor, Tensor | None]], step: int) -> None:
    k = len(steps) - 1
    for column, (values, _) in enumerate(steps[: step + 1]):
        colour = PALE if column == step else "white"
        for row, value in enumerate(values.tolist()):
            ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="#cccccc"))
            ax.text(column, row, f"{value:.3g}", ha="center", va="center", color=DARK)
    values, factors = steps[step]
    for row in range(1, k + 1):  # below the table, where a phone shows it without scrolling
        text = f"$S_{row}$ of the tail: {values[row]:.3g}"
        if factors is not None:
            before = steps[step - 1][0]
            parts = f"{factors[row - 1]:.2g} × {before[row]:.3g} + {before[row - 1]:.3g}"
            text = f"$S_{row}$  ←  {parts}  =  {values[row]:.3g}"
        ax.text(-0.45, -1.7 - 0.62 * (k - row), text, color=BLUE, va="center")
    ax.set_xticks(range(k + 1), ["tail", *(f"+ {name}" for name in reversed(names[:k]))])
    ax.set_yticks(range(k + 1), [f"$S_{{{j}}}$" for j in range(k + 1)])
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.set_title("tail first, then the head", pad=22)
    ax.set(xlim=(-0.5, k + 0.5), ylim=(-2 - 0.62 * (k - 1), k + 0.5))
    ax.spines[:].set_visible(False)
    ax.grid(False)
