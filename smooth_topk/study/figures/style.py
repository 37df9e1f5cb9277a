"""What colours, lines and markers mean in every figure of the book.

Cross-entropy is dark and dashed, the smooth loss blue, the hard loss brown and dotted; tau is a sequential map on a log
scale; the paper's values are hollow markers, ours filled. Lines and markers tell them apart without colour too.
"""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap, LogNorm

DARK, BLUE, BROWN, GREY = "#222222", "#1f6fb4", "#a3541a", "#8a8a8a"
LOOKS = {
    "cross_entropy": {"color": DARK, "linestyle": "--", "marker": "s"},
    "smooth": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "hard": {"color": BROWN, "linestyle": ":", "marker": "^"},
}
# The light end of viridis cannot be read on white.
TAU_MAP = ListedColormap(mpl.colormaps["viridis"].resampled(256)(range(225)), name="tau")
TAU_NORM = LogNorm(1e-4, 1e2, clip=True)


def look_of_loss(loss: str, *, paper: bool = False) -> dict:
    """Returns the keywords of Axes.plot for a loss: "cross_entropy", "smooth" or "hard", or a name such as CE, L_{5,1}.

    Args:
        loss: the field of RunConfig, or the paper's notation.
        paper: hollow markers and a thin line, for values of the paper.
    """
    kind = {"C": "cross_entropy", "L": "smooth", "l": "hard"}.get(loss[:1]) if loss not in LOOKS else loss
    if kind is None:
        raise ValueError(f"A loss is cross_entropy, smooth or hard, or CE, L_{{k,tau}} or l_k, got {loss!r}.")
    look = dict(LOOKS[kind])
    return look | {"markerfacecolor": "white", "linewidth": 1.0, "alpha": 0.85} if paper else look


def tau_colour(tau: float):
    """Returns the colour of a temperature; that of tau = 0 is the hard loss's."""
    return BROWN if tau == 0 else TAU_MAP(TAU_NORM(tau))


def show_tau_scale(ax: Axes) -> None:
    """Puts the colour scale of tau beside a figure with too many curves for a legend."""
    ax.figure.colorbar(mpl.cm.ScalarMappable(TAU_NORM, TAU_MAP), ax=ax, label="τ")


def new_axes(ax: Axes | None = None, **options) -> Axes:
    """Returns the axes given, or those of a new figure."""
    return plt.subplots(**options)[1] if ax is None else ax


def bars(ax: Axes, places, heights, *, width: float = 0.8, **look) -> None:
    """Draws bars from zero as one object. Axes.bar makes one of each, too slow for a slider."""
    places, heights = np.asarray(places, float), np.asarray(heights, float)
    left, right, zero = places - width / 2, places + width / 2, np.zeros_like(heights)
    corners = np.stack([left, zero, left, heights, right, heights, right, zero], axis=1).reshape(-1, 4, 2)
    ax.add_collection(PolyCollection(corners, **look))
    ax.autoscale_view()


def maths(name: str) -> str:
    """Returns a loss's name as matplotlib typesets it: L_{5,1} becomes $L_{5,1}$, CE stays.

    Example:
        >>> maths("L_{5,1} margin 0")
        '$L_{5,1}$ margin 0'
    """
    head, space, tail = name.replace("→", r"\to ").partition(" margin")
    return f"${head}${space}{tail}" if "_" in head else name
