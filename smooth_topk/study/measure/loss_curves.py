"""The losses and the top-k error as functions of the true score: the table behind the curves of chapters 0, 1 and 2."""

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss


def loss_curve_table(
    others: Tensor,
    true_scores: Tensor,
    *,
    k: int,
    taus: Sequence[float],
    margin: float = 1.0,
    cross_entropy: bool = True,
    error: bool = False,
) -> pd.DataFrame:
    """Returns the losses of one sample as its true score moves and the other scores stay.

    Args:
        others: (n - 1,) scores of the classes that are not the true one.
        true_scores: (points,).
        taus: one smooth curve each; the hard loss is always there.
        cross_entropy: whether cross-entropy is there too.
        error: whether the top-k error Λ_k of eq. (5), a step, is there too.

    Returns:
        Columns true_score, value, loss ("smooth", "hard", "cross_entropy", "error"), tau (missing but for "smooth").
    """
    others, true_scores = others.detach().double(), true_scores.double()
    scores = torch.cat([true_scores[:, None], others.expand(len(true_scores), -1)], dim=1)
    labels = torch.zeros(len(true_scores), dtype=torch.long)
    hard = hard_topk_loss(scores, labels, k=k, margin=margin, reduction="none")
    curves: list[tuple[str, float | None, Tensor]] = [("hard", None, hard)]
    for tau in taus:
        smooth = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="none")
        curves.append(("smooth", tau, smooth))
    if cross_entropy:
        curves.append(("cross_entropy", None, F.cross_entropy(scores, labels, reduction="none")))
    if error:
        curves.append(("error", None, (others.topk(k).values[-1] > true_scores).double()))
    parts = [
        pd.DataFrame({"true_score": true_scores.numpy(), "value": value.numpy(), "loss": loss, "tau": tau})
        for loss, tau, value in curves
    ]
    return pd.concat([part.astype({"tau": float}) for part in parts], ignore_index=True)
