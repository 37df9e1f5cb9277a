"""How far the smooth loss is from the hard loss and from the top-k error (Propositions 2 to 4): numbers of chapter 2.

With h = α + (s_[k] - s_y)/k, the hard margin, the smooth loss is τ softplus(h/τ + c) with -log k <= c <= log(n - k):
a hard loss max(h, 0) with a bounded correction c. Chapter 6 derives it.
"""

import math
from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from smooth_topk import hard_topk_loss, smooth_topk_loss


def hard_margins(scores: Tensor, labels: Tensor, *, k: int, margin: float = 1.0) -> Tensor:
    """Returns h = α + (s_[k] - s_y) / k, shape (N,), with s_[k] over the other classes; the hard loss is max(h, 0)."""
    label = labels[:, None]
    kth = scores.scatter(1, label, -torch.inf).topk(k).values[:, -1:]
    return (margin + (kth - scores.gather(1, label)) / k).squeeze(1)


def smooth_loss_table(scores: Tensor, labels: Tensor, *, k: int, tau: float, margin: float = 1.0) -> pd.DataFrame:
    """Returns the hard margin h and the smooth loss of each sample: columns hard_margin, smooth."""
    scores = scores.double()
    smooth = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="none")
    return pd.DataFrame({"hard_margin": hard_margins(scores, labels, k=k, margin=margin), "smooth": smooth})


def correction_bounds(k: int, classes: int) -> tuple[float, float]:
    """Returns the least and the largest correction c, -log k and log(n - k); both are limits of scores.

    The least: Lemma 3 with the k-th score as the label. The largest: taking the smallest member, which weighs at most
    exp x_[k], out of a k-subset leaves a (k-1)-subset, and n - k subsets of the n - 1 others leave the same one.
    """
    return -math.log(k), math.log(classes - k)


def gap_table(scores: Tensor, labels: Tensor, *, k: int, taus: Sequence[float], margin: float = 1.0) -> pd.DataFrame:
    """Returns the smooth loss minus the hard loss: columns sample, tau, gap."""
    scores = scores.double()
    hard = hard_topk_loss(scores, labels, k=k, margin=margin, reduction="none")
    parts = []
    for tau in taus:
        smooth = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="none")
        parts.append(pd.DataFrame({"sample": range(len(labels)), "tau": tau, "gap": smooth - hard}))
    return pd.concat(parts, ignore_index=True)


def counterexample(hard: Tensor, *, k: int, classes: int) -> tuple[Tensor, Tensor]:
    """Returns scores (N, n) and labels (N,) of the proof of Proposition 3, with the given values of the hard loss.

    The true class has score 0, k others tie at k (hard - 1), and the rest is at -inf.
    """
    scores = torch.full((len(hard), classes), -torch.inf, dtype=torch.float64)
    scores[:, 0] = 0.0
    scores[:, 1 : k + 1] = k * (hard.double()[:, None] - 1)
    return scores, torch.zeros(len(hard), dtype=torch.long)


def counterexample_table(ks: Sequence[int], *, tau: float) -> pd.DataFrame:
    """Returns the smooth loss minus the hard loss in the example of Proposition 3, by k and the value of the hard loss.

    The number of classes does not matter: all but k + 1 have the score -inf.

    Returns:
        Columns k, hard (from 0 to 6), gap.
    """
    hard = torch.linspace(0.0, 6.0, 121, dtype=torch.float64)
    parts = []
    for k in ks:
        smooth = smooth_topk_loss(*counterexample(hard, k=k, classes=k + 1), k=k, tau=tau, reduction="none")
        parts.append(pd.DataFrame({"k": k, "hard": hard, "gap": smooth - hard}))
    return pd.concat(parts, ignore_index=True)
