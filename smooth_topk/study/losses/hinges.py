"""Hinge losses for the top k: Lapin's α and β, and the smooth loss with its authors' switch to the hard one."""

import math

import torch
from torch import Tensor

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study.losses.rows import check_number, others, reduced, true_score


def topk_hinge_alpha(
    scores: Tensor, labels: Tensor, *, k: int = 5, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Lapin's top-k hinge α: the hinge of the mean of the k largest violations. Convex; k = 1 is Crammer and Singer's.

        L = max(0, 1/k Σ_{i ≤ k} (α + s_[i] - s_y)),   s_[i] the i-th largest score of the other classes

    Which variant this is: Lapin et al. (2015, 2016) write the sum over the k largest of the vector a + c, whose entry
    for the label is 0. Their convex conjugate and their own program (libsdca) leave the label out, and so does this
    function; with the label in, its 0 would take the place of a negative violation.

    Args:
        scores: (N, C).
        labels: (N,) integers in [0, C).
        k: size of the prediction, 1 <= k <= C - 1.
        margin: α, at least zero; the papers use 1.
        reduction: "none", "mean" or "sum".

    Returns:
        The loss: a scalar, or (N,) with reduction "none".

    Example:
        >>> topk_hinge_alpha(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(2.)
    """
    check_number("margin", margin, 0, low_included=True)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        largest = others(rows, row_labels).topk(k).values
        return torch.relu(margin + largest.mean(1) - true_score(rows, row_labels))

    return reduced(losses_of, scores, labels, reduction, k=k)


def topk_hinge_beta(
    scores: Tensor, labels: Tensor, *, k: int = 5, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Lapin's top-k hinge β: the mean of the hinges of the k largest violations. Convex, and never below α.

        L = 1/k Σ_{i ≤ k} max(0, α + s_[i] - s_y),   s_[i] the i-th largest score of the other classes

    Whether the label, whose violation is 0, belongs to the vector makes no difference here. The loss is the one of
    Usunier et al. (2009) with equal weights.

    The arguments are those of `topk_hinge_alpha`.

    Example:
        >>> topk_hinge_beta(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([0]), k=2)
        tensor(0.)
    """
    check_number("margin", margin, 0, low_included=True)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        largest = others(rows, row_labels).topk(k).values
        return torch.relu(margin + largest - true_score(rows, row_labels)[:, None]).mean(1)

    return reduced(losses_of, scores, labels, reduction, k=k)


def switched_topk_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    tau: float = 1.0,
    margin: float = 1.0,
    threshold: float = 1000.0,
    reduction: str = "mean",
) -> Tensor:
    """L_{k,τ} as its authors' public program computes it: some samples get the hard loss instead.

        l_k where s_[k] - s_[k+1] >= k τ log(threshold), L_{k,τ} elsewhere;   s_[i] over all classes, the label too

    At such a gap one k-subset weighs at least `threshold` times any other, so the authors replace the smooth loss by
    its limit. The smaller τ is, the more samples are switched. The paper does not mention it, and our own loss needs no
    such rule: it is accurate to rounding at every τ.

    Args:
        scores, labels, k, margin, reduction: as in `topk_hinge_alpha`.
        tau: temperature, positive.
        threshold: above 1; the authors use 1,000.

    Example:
        >>> scores = torch.tensor([[9.0, 8.0, 0.5, -1.0]])
        >>> switched_topk_loss(scores, torch.tensor([2]), k=2, tau=0.1)
        tensor(4.7500)
    """
    check_number("tau", tau, 0)
    check_number("margin", margin, 0, low_included=True)
    check_number("threshold", threshold, 1)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        largest = rows.detach().topk(k + 1).values
        is_hard = largest[:, k - 1] - largest[:, k] >= k * tau * math.log(threshold)
        hard = hard_topk_loss(rows, row_labels, k=k, margin=margin, reduction="none")
        smooth = smooth_topk_loss(rows, row_labels, k=k, tau=tau, margin=margin, reduction="none")
        return torch.where(is_hard, hard, smooth)

    return reduced(losses_of, scores, labels, reduction, k=k)
