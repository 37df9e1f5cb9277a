"""Figures of chapter 3: the summation algorithm and the product tree at work."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from smooth_topk.study.figures.style import BLUE, DARK, GREY, new_axes

PALE = "#e3edf7"  # BLUE as a background
Node = tuple[list, float, bool]  # of the tree: coefficients, place from left to right, whether terms were dropped
TREE_SIZE = (7.4, 3.8)  # inches: wide enough for eight leaves


def summation_grid(e: list, k: int, *, step: int | None = None, ax: Axes | None = None) -> Axes:
    """Draws the table that Algorithm 3 fills: σ_j(e_1, ..., e_i) in column i and row j, up to column `step`.

    The last column filled is dark, and arrows show the two cells that its last cell comes from.
    """
    ax = new_axes(ax, figsize=(8, 2.6))
    step = len(e) if step is None else step
    columns = [[1] + [0] * k]
    for value in e[:step]:
        last = columns[-1]
        columns.append([1] + [last[j] + value * last[j - 1] for j in range(1, k + 1)])
    for i, column in enumerate(columns):
        for j, value in enumerate(column):
            ax.add_patch(_cell(i, j, PALE if i == step else "white"))
            ax.text(i, j, short(value), ha="center", va="center", color=GREY if value == 0 else DARK)
    top = min(k, step)
    if step:
        for row in (top, top - 1):
            ends = {"shrinkA": _beside(columns[step - 1][row]), "shrinkB": _beside(columns[step][top])}
            arrow = {"arrowstyle": "->", "color": BLUE, "linewidth": 1.4} | ends
            ax.annotate("", (step, top), (step - 1, row), arrowprops=arrow)
        ax.text(step - 0.47, top - 0.72, f"× {short(e[step - 1])}", color=BLUE, fontsize=9, ha="left", va="center")
    ax.set_xticks(range(len(e) + 1), ["start", *(f"$e_{{{i}}}$ = {short(value)}" for i, value in enumerate(e, 1))])
    ax.set_yticks(range(k + 1), [f"$\\sigma_{j}$" for j in range(k + 1)])
    ax.set(xlim=(-0.5, len(e) + 0.5), ylim=(-0.5, k + 0.5))
    ax.grid(False)
    return ax


def product_tree(e: list, k: int, *, levels: int | None = None, ax: Axes | None = None) -> Axes:
    """Draws the tree of Algorithm 1: leaves 1 + e_i X, each node the product of its two children up to degree k.

    Args:
        e: the elements, eight at most; an odd level is padded by the polynomial 1.
        levels: how many levels of products are shown; default all.
    """
    ax = new_axes(ax, figsize=TREE_SIZE)
    nodes: list[Node] = [([1, value], float(place), False) for place, value in enumerate(e)]
    full = int(np.ceil(np.log2(len(e))))
    widest, height, levels = nodes, 0, full if levels is None else levels
    while True:
        for coefficients, place, dropped in nodes:
            _write_polynomial(ax, place, height, coefficients, dropped)
        if len(nodes) == 1 or height == levels:
            break
        if len(nodes) % 2:
            nodes.append(([1], nodes[-1][1] + 2.0**height, False))
            widest = max(widest, nodes, key=lambda row: row[-1][1])
            _write_polynomial(ax, nodes[-1][1], height, [1], False)
        nodes, below = [_merge(left, right, k) for left, right in zip(nodes[::2], nodes[1::2], strict=True)], nodes
        for number, (_, place, _) in enumerate(below):
            ax.plot([place, nodes[number // 2][1]], [height, height + 1], color=GREY, linewidth=1, zorder=0)
        height += 1
    names = ["leaves", *(f"level {level}" for level in range(1, full + 1))]
    ax.set_yticks(range(full + 1), names)
    ax.set(xlim=(-0.7, max(node[1] for node in widest) + 0.7), ylim=(-0.5, full + 0.6), xticks=[])
    ax.grid(False)
    ax.spines[:].set_visible(False)
    return ax


def short(value: float) -> str:
    """Returns a number with one decimal below 100 and none from there on; whole numbers have none.

    Example:
        >>> short(16.72), short(12345.6), short(3)
        ('16.7', '12,346', '3')
    """
    return f"{value:,.1f}" if value < 100 and value != int(value) else f"{value:,.0f}"


def polynomial_text(coefficients: list) -> list[str]:
    """Returns the terms of a polynomial for a figure.

    Example:
        >>> polynomial_text([1, 3, 2])
        ['1', '3X', '2X²']
        >>> polynomial_text([1, 1])
        ['1', 'X']
    """
    small = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    powers = ["", "X", *(f"X{str(degree).translate(small)}" for degree in range(2, len(coefficients)))]
    pairs = zip(coefficients, powers, strict=False)
    return [power if coefficient == 1 and power else f"{short(coefficient)}{power}" for coefficient, power in pairs]


def _merge(left: Node, right: Node, k: int) -> Node:
    """The product of two nodes up to degree k, between them, and whether terms above k were dropped."""
    full = np.convolve(left[0], right[0])
    return full[: k + 1].tolist(), (left[1] + right[1]) / 2, len(full) > k + 1 or left[2] or right[2]


def _write_polynomial(ax: Axes, place: float, height: int, coefficients: list, dropped: bool) -> None:
    """Writes a node as terms joined by plus, three terms per line; dots stand for dropped terms."""
    terms = polynomial_text(coefficients) + (["…"] if dropped else [])
    lines = [" + ".join(terms[start : start + 3]) for start in range(0, len(terms), 3)]
    box = {"boxstyle": "round,pad=0.25", "facecolor": PALE, "edgecolor": BLUE, "linewidth": 0.8}
    ax.text(place, height, "\n+ ".join(lines), ha="center", va="center", fontsize=10, color=DARK, bbox=box)


def _beside(value: float) -> float:
    """How far from the middle of a number an arrow ends, in points, so that it does not touch the digits."""
    return 6 + 3.2 * len(short(value))


def _cell(i: int, j: int, colour: str) -> Rectangle:
    return Rectangle((i - 0.5, j - 0.5), 1, 1, facecolor=colour, edgecolor="#cccccc", linewidth=0.8)
