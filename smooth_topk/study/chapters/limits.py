"""Limits of axes that hold for all frames of a figure."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

Limits = tuple[Bbox, tuple[str, str]]  # of one panel, with the scales of its axes


def widened(limits: list[Limits], axes: list[Axes]) -> list[Limits]:
    """Returns the limits of axes that also show what these axes show, with their scales."""
    shown = [(Bbox.from_extents(*np.transpose([ax.get_xlim(), ax.get_ylim()]).ravel()), scales(ax)) for ax in axes]
    if len(limits) != len(shown):
        return limits or shown
    return [
        (_both(old, new), kind) if kind == now else (old, kind)
        for (old, kind), (new, now) in zip(limits, shown, strict=True)
    ]


def _both(old: Bbox, new: Bbox) -> Bbox:
    """Returns a box around two boxes; an axis keeps its direction."""
    pairs = [(old.intervalx, new.intervalx), (old.intervaly, new.intervaly)]
    (x0, x1), (y0, y1) = (
        (min(a[0], b[0]), max(a[1], b[1])) if a[0] <= a[1] else (max(a[0], b[0]), min(a[1], b[1])) for a, b in pairs
    )
    return Bbox.from_extents(x0, y0, x1, y1)


def scales(ax: Axes) -> tuple[str, str]:
    return ax.get_xscale(), ax.get_yscale()


def common(boxes) -> Bbox:
    """What all of the boxes have in common."""
    corners = np.array([box.extents for box in boxes])
    return Bbox.from_extents(*corners[:, :2].max(axis=0), *corners[:, 2:].min(axis=0))
