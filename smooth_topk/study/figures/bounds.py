"""Figures of chapter 2: how far the smooth loss is from the hard loss and from the top-k error (Propositions 2 to 4).

With h = α + (s_[k] - s_y)/k, the hard margin, the smooth loss is τ softplus(h/τ + c) with -log k <= c <= log(n - k):
a hard loss max(h, 0) with a bounded correction c. Chapter 6 derives it.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study.figures.style import BLUE, DARK, GREY, look_of_loss, new_axes


def hard_margins(scores: Tensor, labels: Tensor, *, k: int, margin: float = 1.0) -> Tensor:
    """Returns h = α + (s_[k] - s_y) / k, shape (N,), with s_[k] over the other classes; the hard loss is max(h, 0)."""
    label = labels[:, None]
    kth = scores.scatter(1, label, -torch.inf).topk(k).values[:, -1:]
    return (margin + (kth - scores.gather(1, label)) / k).squeeze(1)


def correction_bounds(k: int, classes: int) -> tuple[float, float]:
    """Returns the least and the largest correction c, -log k and log(n - k); both are limits of scores.

    The least: Lemma 3 with the k-th score as the label. The largest: taking the smallest member, which weighs at most
    exp x_[k], out of a k-subset leaves a (k-1)-subset, and n - k subsets of the n - 1 others leave the same one.
    """
    return -math.log(k), math.log(classes - k)


def gap_table(scores: Tensor, labels: Tensor, *, k: int, taus: Sequence[float], margin: float = 1.0) -> pd.DataFrame:
    """Returns the smooth loss minus the hard loss: columns sample, tau, gap."""
    options = {"k": k, "margin": margin, "reduction": "none"}
    scores = scores.double()
    hard = hard_topk_loss(scores, labels, **options)
    parts = [
        {"sample": range(len(labels)), "tau": tau, "gap": smooth_topk_loss(scores, labels, tau=tau, **options) - hard}
        for tau in taus
    ]
    return pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True)


def gap_figure(table: pd.DataFrame, *, k: int, classes: int, ax: Axes | None = None) -> Axes:
    """Draws smooth minus hard loss against tau, a thin line a sample, between its bounds: Proposition 2."""
    ax = new_axes(ax)
    for _, sample in table.groupby("sample"):
        ax.plot(sample["tau"], sample["gap"], color=BLUE, linewidth=0.7, alpha=0.6)
    taus = np.sort(table["tau"].unique())
    ax.plot([], [], color=BLUE, linewidth=0.9, label="samples")
    ax.plot(taus, taus * math.log(classes - k + 1), color=DARK, linestyle="--", label="τ log(n − k + 1)")
    ax.plot(taus, -taus * math.log(k), color=DARK, linestyle=":", label="−τ log k")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set(xscale="log", xlabel="τ", ylabel="smooth loss − hard loss")
    ax.legend()
    return ax


def counterexample(hard: Tensor, *, k: int, classes: int) -> tuple[Tensor, Tensor]:
    """Returns scores (N, n) and labels (N,) of the proof of Proposition 3, with the given values of the hard loss.

    The true class has score 0, k others tie at k (hard - 1), and the rest is at -inf.
    """
    scores = torch.full((len(hard), classes), -torch.inf, dtype=torch.float64)
    scores[:, 0] = 0.0
    scores[:, 1 : k + 1] = k * (hard.double()[:, None] - 1)
    return scores, torch.zeros(len(hard), dtype=torch.long)


def counterexample_figure(
    *, ks: Sequence[int], tau: float, classes: int = 10, longest: float = 6.0, ax: Axes | None = None
) -> Axes:
    """Draws smooth minus hard loss over the value of the hard loss in the example of Proposition 3, one line a k."""
    ax = new_axes(ax)
    hard = torch.linspace(0.0, longest, 121, dtype=torch.float64)
    for k, line in zip(ks, ("-", "--", "-.", ":"), strict=False):
        scores, labels = counterexample(hard, k=k, classes=classes)
        smooth = smooth_topk_loss(scores, labels, k=k, tau=tau, reduction="none")
        ax.plot(
            hard,
            smooth - hard,
            color=BLUE,
            linestyle=line,
            label=f"k = {k}, limit −τ log k = {0.0 - tau * math.log(k):.2f}",
        )
    ax.axhline(0, **look_of_loss("hard") | {"marker": ""}, label="hard loss")
    ax.set(xlabel="hard loss", ylabel="smooth loss − hard loss", title=f"τ = {tau:g}")
    ax.legend()
    return ax


def prediction_bound(
    scores: Tensor, labels: Tensor, *, k: int, tau: float, margin: float = 1.0, ax: Axes | None = None
) -> Axes:
    """Draws smooth losses over how far the true score is behind, above the step of Proposition 4."""
    ax = new_axes(ax)
    scores = scores.double()
    behind = k * (hard_margins(scores, labels, k=k, margin=margin) - margin)
    losses = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="none")
    ax.scatter(behind, losses, s=10, color=BLUE, alpha=0.6, label="samples")
    left, right = min(behind.min().item(), -1.0), max(behind.max().item(), 1.0)
    for height, line, name in (
        (margin - tau * math.log(k), "--", "(α − τ log k) Λ"),
        (tau * float(np.logaddexp(0.0, margin / tau - math.log(k))), "-.", "τ log(1 + exp(α/τ)/k) Λ"),
    ):
        ax.plot([left, 0, 0, right], [0, 0, height, height], color=DARK, linestyle=line, label=f"{name}: {height:.2f}")
    ax.set(xlabel="k-th other score − true score (positive: an error)", ylabel="smooth loss", title=f"τ = {tau:g}")
    ax.legend(loc="upper left")
    return ax


def correction_band(
    scores: Tensor, labels: Tensor, *, k: int, tau: float, margin: float = 1.0, ax: Axes | None = None
) -> Axes:
    """Draws smooth losses over the hard margin h, inside the band of τ softplus(h/τ + c) and beside max(h, 0)."""
    ax = new_axes(ax)
    scores = scores.double()
    h = hard_margins(scores, labels, k=k, margin=margin)
    line = torch.linspace(h.min().item() - 0.2, h.max().item() + 0.2, 200, dtype=torch.float64)
    least, largest = (
        tau * torch.nn.functional.softplus(line / tau + c, threshold=500) for c in correction_bounds(k, scores.shape[1])
    )
    ax.fill_between(line, least, largest, color=BLUE, alpha=0.15, linewidth=0, label="c from −log k to log(n − k)")
    losses = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="none")
    ax.scatter(h, losses, s=10, color=BLUE, alpha=0.7, label=f"smooth, τ = {tau:g}")
    ax.plot(line, line.clamp_min(0), **look_of_loss("hard") | {"marker": ""}, label="hard loss max(h, 0)")
    ax.set(xlabel="hard margin h", ylabel="loss")
    ax.legend(loc="upper left")
    return ax
