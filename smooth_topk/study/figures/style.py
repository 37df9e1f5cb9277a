"""What colours, lines and markers mean in every figure of the book.

Cross-entropy is dark and dashed, the smooth loss blue, the hard loss brown and dotted; tau is a sequential map on a log
scale; the paper's values are hollow markers, ours filled. Lines and markers tell them apart without colour too.
"""

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.typing import ColorType
from numpy.typing import ArrayLike

STYLE_FILE = Path(__file__).with_name("book.mplstyle")
DARK, BLUE, BROWN, GREY = "#222222", "#1f6fb4", "#a3541a", "#8a8a8a"
LOSS = re.compile(r"\b[Ll]_(?:\{[^}]*\}|\d+)")
LINES = ("-", "--", "-.", ":")  # of several curves of one colour
LOOKS = {
    "cross_entropy": {"color": DARK, "linestyle": "--", "marker": "s"},
    "smooth": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "hard": {"color": BROWN, "linestyle": ":", "marker": "^"},
}
LUMA = np.array([0.2126, 0.7152, 0.0722])
TAU_LUMA = (0.17, 0.56)  # a lighter colour cannot be read on white, nor its inverse on the book's dark pages


def _tau_map() -> ListedColormap:
    """The hues of viridis from dark to not quite light."""
    colours = mpl.colormaps["viridis"](np.linspace(0, 1, 256))[:, :3]
    wanted = np.linspace(*TAU_LUMA, len(colours))
    return ListedColormap(np.clip(colours * (wanted / (colours @ LUMA))[:, None], 0, 1), name="tau")


TAU_MAP = _tau_map()
TAU_NORM = LogNorm(1e-4, 1e2, clip=True)


def look_of_loss(loss: str, *, paper: bool = False) -> dict[str, Any]:
    """Returns the keywords of Axes.plot for a loss: "cross_entropy", "smooth" or "hard", or a name such as CE, L_{5,1}.

    Args:
        loss: the field of RunConfig, or the paper's notation.
        paper: hollow markers and a thin line, for values of the paper.
    """
    kind = {"C": "cross_entropy", "L": "smooth", "l": "hard"}.get(loss[:1]) if loss not in LOOKS else loss
    if kind is None:
        raise ValueError(f"A loss is cross_entropy, smooth or hard, or CE, L_{{k,tau}} or l_k, got {loss!r}.")
    look: dict[str, Any] = dict(LOOKS[kind])
    return look | {"markerfacecolor": "white", "linewidth": 1.0, "alpha": 0.85} if paper else look


def tau_colour(tau: float) -> ColorType:
    """Returns the colour of a temperature; that of tau = 0 is the hard loss's."""
    return BROWN if tau == 0 else TAU_MAP(TAU_NORM(tau))


def new_axes(ax: Axes | None = None, *, figsize: tuple[float, float] | None = None) -> Axes:
    """Returns the axes given, or those of a new figure."""
    return plt.subplots(figsize=figsize)[1] if ax is None else ax


def new_panels(axes: Sequence[Axes] | None = None, **options: Any) -> Sequence[Axes]:
    """Returns the axes given, or those of a new figure with several panels in a row or a column.

    Args:
        options: of plt.subplots, such as ncols=2.
    """
    return list(np.ravel(plt.subplots(squeeze=False, **options)[1])) if axes is None else axes


def shared_legend(axes: Sequence[Axes]) -> None:
    """Puts one legend for several panels above the first of them, where a phone shows it before the panels scroll."""
    names = {name: handle for ax in axes for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    if names:
        figure = axes[0].figure
        figure.legend(list(names.values()), list(names), loc="outside upper left", ncols=len(names), columnspacing=1.2)


def bars(ax: Axes, places: ArrayLike, heights: ArrayLike, *, width: float = 0.8, **look: Any) -> None:
    """Draws bars from zero as one object. Axes.bar makes one of each, too slow for a slider."""
    x, y = np.asarray(places, float), np.asarray(heights, float)
    left, right, zero = x - width / 2, x + width / 2, np.zeros_like(y)
    corners = np.stack([left, zero, left, y, right, y, right, zero], axis=1).reshape(-1, 4, 2)
    ax.add_collection(PolyCollection(list(corners), **look))
    ax.autoscale_view()


def maths(name: str) -> str:
    """Returns a name with its losses as matplotlib typesets them: `L_{5,1}` becomes `$L_{5,1}$`, CE stays.

    Example:
        >>> maths("L_{5,1} margin 0"), maths("smooth top-k, L_{k,τ}")
        ('$L_{5,1}$ margin 0', 'smooth top-k, $L_{k,\\\\tau}$')
    """
    return LOSS.sub(lambda found: f"${found[0]}$".replace("→", r"\to ").replace("τ", r"\tau"), name)


def use_style() -> None:
    """Applies `book.mplstyle`; inside a notebook, figures become sharp on dense screens too."""
    mpl.style.use(STYLE_FILE)
    pd.set_option("display.max_colwidth", None)  # a cell of a table is never cut short
    if importlib.util.find_spec("IPython") is None:
        return
    from IPython import get_ipython

    if get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("retina")
