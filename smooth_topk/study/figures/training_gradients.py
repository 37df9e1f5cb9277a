"""Figure of chapter 8: what a loss tells the scores from epoch to epoch."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from smooth_topk.study.figures.style import look_of_loss, maths, new_panels, tau_colour

PANELS = {
    "share": "derivatives that are not zero (%)",
    "norm": "norm of the derivatives of a sample",
    "rank": "median rank of the true class",
}


def training_gradients(watched: pd.DataFrame, *, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws share, norm and rank over the epochs, one line per loss; epoch 0 is the network before training.

    Args:
        watched: rows of training_gradients.csv.
    """
    axes = new_panels(axes, ncols=3, figsize=(9.6, 3.5))
    for ax, (column, label) in zip(axes, PANELS.items(), strict=True):
        for name, part in watched.groupby("loss", sort=False):
            part = part.sort_values("epoch")
            look = look_of_loss(str(name)) | {"markersize": 3.5}
            if str(name).startswith("L"):
                look["color"] = tau_colour(float(str(name).split(",")[1].rstrip("}")))
            values = 100 * part[column] if column == "share" else part[column]
            ax.plot(part["epoch"], values, label=maths(str(name)), **look)
        ax.set(xlabel="epoch", ylabel=label)
    axes[1].set_yscale("log")
    axes[2].set_yscale("log")
    axes[0].set_ylim(0, 105)
    if len(watched):
        axes[0].legend()
    return axes
