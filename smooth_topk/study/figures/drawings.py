"""Drawings that explain an idea before its numbers: where label noise sends a label, and what a tie of scores is."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from smooth_topk.study.figures.style import BLUE, BROWN, DARK, GREY, bars, maths, new_axes, new_panels

RADIUS, NODE = 1.15, 0.3  # of the circle that the classes are on, and of a class


def label_noise(group: Sequence[str], others: Sequence[str], noise_level: float, *, ax: Axes | None = None) -> Axes:
    """Draws where a label of the first class of a group goes: it stays, or an arrow leads to another of the group.

    Args:
        group: names of the classes among which labels are redrawn.
        others: names of another group, to which no arrow leads.
        noise_level: the paper's p, the probability that a label is redrawn.
    """
    ax = new_axes(ax, figsize=(7.6, 3.9))
    share, stays = noise_level / len(group), 1 - noise_level * (1 - 1 / len(group))
    for centre, names, ink in ((0.0, group, DARK), (4.1, others, GREY)):
        box = FancyBboxPatch((centre - 1.5, -1.45), 3, 3.05, boxstyle="round,pad=0.1", fill=False, edgecolor=ink)
        ax.add_patch(box)
        for (x, y), name in zip(_circle(len(names), centre), names, strict=True):
            first = names is group and name == group[0]
            ax.add_patch(_disc(ax, x, y, BLUE if first else ink))
            ax.text(x, y, name.replace(" ", "\n"), ha="center", va="center", fontsize=9, color="white")
    start, *targets = _circle(len(group), 0.0)
    for target in targets:
        gap = NODE / math.dist(start, target)
        begin, end = (_between(start, target, place) for place in (gap, 1 - gap))
        width = 1 + 6 * share
        ax.add_patch(FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=12, color=BROWN, linewidth=width))
        x, y = _between(begin, end, 0.5)
        ax.text(x, y, f"{share:.0%}", ha="center", va="center", color=BROWN, fontsize=9, bbox=_paper())
    ax.text(start[0] + NODE + 0.06, start[1] + 0.1, f"{stays:.0%} stay", color=BLUE, fontsize=10)
    ax.text(2.05, 0.1, "no label\nleaves its\ngroup", ha="center", va="center", fontsize=9, color=GREY)
    ax.set(xlim=(-1.7, 5.8), ylim=(-1.6, 1.75), aspect="equal")
    ax.set_axis_off()
    return ax


def tie_of_scores(
    probabilities: Sequence[float],
    scores: Mapping[str, Sequence[float]],
    *,
    k: int,
    axes: Sequence[Axes] | None = None,
) -> Sequence[Axes]:
    """Draws the probabilities of classes, and next to them the scores that minimise the expectation of each loss.

    Args:
        probabilities: of the classes, in descending order.
        scores: per loss, the best scores of the classes; drawn without their mean, which changes no loss.
        k: the first k classes, the best answer, are blue; a line marks the k-th score.
    """
    panels = new_panels(axes, ncols=1 + len(scores), figsize=(3.2 * (1 + len(scores)), 2.9))
    places = range(len(probabilities))
    shown = {"the truth: probabilities": probabilities}
    shown |= {
        f"best scores: {maths(name)}": [score - fmean(values) for score in values] for name, values in scores.items()
    }
    for ax, (title, heights) in zip(panels, shown.items(), strict=True):
        for chosen, colour in ((slice(0, k), BLUE), (slice(k, None), GREY)):
            bars(ax, list(places)[chosen], list(heights)[chosen], width=0.6, color=colour)
        if ax is not panels[0]:
            ax.axhline(heights[k - 1], color=BROWN, linestyle=":")
        ax.axhline(0, color=DARK, linewidth=0.8)
        ax.set(title=title, xlim=(-0.6, len(places) - 0.4))
        ax.margins(y=0.15)
        ax.set_xticks(places, [chr(ord("A") + place) for place in places])
        ax.grid(visible=False, axis="x")
    return panels


def _circle(count: int, centre: float) -> list[tuple[float, float]]:
    angles = [math.pi / 2 + 2 * math.pi * place / count for place in range(count)]
    return [(centre + RADIUS * math.cos(angle), RADIUS * math.sin(angle)) for angle in angles]


def _between(start: tuple[float, float], end: tuple[float, float], place: float) -> tuple[float, float]:
    return (start[0] + place * (end[0] - start[0]), start[1] + place * (end[1] - start[1]))


def _disc(ax: Axes, x: float, y: float, colour: str) -> FancyBboxPatch:
    return FancyBboxPatch((x, y), 0, 0, boxstyle=f"circle,pad={NODE}", color=colour, linewidth=0)


def _paper() -> dict:
    return {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
