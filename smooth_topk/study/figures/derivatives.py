"""Figures of chapters 1 and 2: which classes a loss pulls and pushes."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from torch import Tensor
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study.figures.style import GREY, bars, look_of_loss, new_axes

SMALLEST = 1e-6  # derivatives below it are drawn as zero


def derivatives(scores: Tensor, labels: Tensor, *, k: int, taus: Sequence[float], margin: float = 1.0) -> dict:
    """Returns the derivatives (N, n) of each sample's own loss: hard, smooth for each tau, and cross-entropy."""
    scores = scores.detach().double().requires_grad_()
    losses = {"hard": hard_topk_loss(scores, labels, k=k, margin=margin, reduction="sum")}
    for tau in taus:
        losses[f"smooth, τ = {tau:g}"] = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="sum")
    losses["cross_entropy"] = F.cross_entropy(scores, labels, reduction="sum")
    return {name: torch.autograd.grad(loss, scores)[0] for name, loss in losses.items()}


def derivative_table(
    scores: Tensor,
    label: int,
    *,
    k: int,
    taus: Sequence[float],
    names: Sequence[str] | None = None,
    margin: float = 1.0,
) -> pd.DataFrame:
    """Returns the derivatives of one sample: columns loss, name, score, derivative, true, by descending score."""
    names = list(names) if names else [str(index) for index in range(len(scores))]
    order = scores.argsort(descending=True, stable=True).tolist()
    found = derivatives(scores[None], torch.tensor([label]), k=k, taus=taus, margin=margin)
    rows = [
        (loss, names[index], scores[index].item(), values[0, index].item(), index == label)
        for loss, values in found.items()
        for index in order
    ]
    return pd.DataFrame(rows, columns=["loss", "name", "score", "derivative", "true"])


def derivative_bars(table: pd.DataFrame, *, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws the derivative with respect to every score, one panel a loss: a table of `derivative_table`."""
    losses = list(dict.fromkeys(table["loss"]))
    if axes is None:
        axes = new_axes(nrows=len(losses), sharex=True, figsize=(6.4, 1.6 * len(losses) + 0.8))
    reach = 1.25 * table.loc[table["loss"] != "cross_entropy", "derivative"].abs().max()
    for ax, loss in zip(axes, losses, strict=True):
        part = table[table["loss"] == loss]
        places = np.arange(len(part))
        colour = look_of_loss(loss.split(",")[0])["color"]
        for true, hatch in ((False, None), (True, "//")):
            chosen = (part["true"] == true).to_numpy()
            bars(ax, places[chosen], part["derivative"][chosen], facecolor=colour, edgecolor="white", hatch=hatch)
        ax.axhline(0, color=GREY, linewidth=0.8)
        count = int((part["derivative"].abs() > SMALLEST).sum())
        ax.set_title(f"{loss.replace('_', '-')}: {count} of {len(part)} are not zero")
        ax.set(ylabel="∂loss / ∂score")
        ax.set_ylim(*((-1.1, 1.1) if loss == "cross_entropy" else (-reach, reach)))
        ax.grid(axis="x", visible=False)
        last = ax is axes[-1]
        ax.tick_params(bottom=last, labelbottom=last)
        ax.set_xticks(places if last else [], part["name"] if last else [])
    axes[-1].set(xlabel="class, in descending order of the scores")
    return axes


def derivative_map(found: Mapping[str, Tensor], *, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws the size of the derivatives of a batch, a row a sample and a column a class; white is zero.

    Args:
        found: derivatives (N, n) by the name of their loss, such as those of `derivatives`.
    """
    if axes is None:
        axes = new_axes(ncols=len(found), sharey=True, figsize=(3.4 * len(found), 3.2))
    for ax, (name, values) in zip(axes, found.items(), strict=True):
        sizes = np.ma.masked_less(values.abs().numpy(), SMALLEST)
        picture = ax.imshow(sizes, norm=LogNorm(SMALLEST, 1), cmap="viridis_r", aspect="auto", interpolation="none")
        ax.set_title(f"{name.replace('_', '-')}: {1 - sizes.mask.mean():.0%} not zero")
        ax.set(xlabel="class")
        ax.grid(False)
    axes[0].set(ylabel="sample")
    axes[0].figure.colorbar(picture, ax=list(axes), label="size of the derivative (white: zero)")
    return axes
