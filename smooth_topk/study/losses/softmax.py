"""Losses of the softmax probabilities: label smoothing, generalised cross-entropy, and the top-k transition loss."""

import torch
from torch import Tensor
from torch.nn import functional as F

from smooth_topk.study.losses.rows import check_number, others, reduced, true_score


def cross_entropy(scores: Tensor, labels: Tensor, *, label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
    """Cross-entropy with the true class, or with a mixture of it and the uniform distribution.

        L = -Σ_j q_j log p_j,   q = (1 - ε) e_y + ε / C,   p = softmax(s)

    Args:
        scores: (N, C).
        labels: (N,) integers in [0, C).
        label_smoothing: ε, in [0, 1]; 0 is plain cross-entropy. Szegedy et al. (2016), section 7, use 0.1.
        reduction: "none", "mean" or "sum".

    Returns:
        The loss: a scalar, or (N,) with reduction "none".

    Example:
        >>> cross_entropy(torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([1]), label_smoothing=0.1)
        tensor(1.4477)
    """
    check_number("label_smoothing", label_smoothing, 0, 1, low_included=True)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        return F.cross_entropy(rows, row_labels, label_smoothing=label_smoothing, reduction="none")

    return reduced(losses_of, scores, labels, reduction)


def generalised_cross_entropy(scores: Tensor, labels: Tensor, *, q: float = 0.7, reduction: str = "mean") -> Tensor:
    """The L_q loss of Zhang and Sabuncu (2018), made for noisy labels: between cross-entropy and absolute error.

        L = (1 - p_y^q) / q,   p = softmax(s)

    It tends to cross-entropy as q goes to 0; q = 1 is half the absolute error |e_y - p|. A larger q weighs samples that
    the network gets wrong less: the derivative is that of cross-entropy times p_y^q. The paper uses q = 0.7. Its
    truncated variant, which drops samples during training, is not this loss.

    Args:
        scores, labels, reduction: as in `cross_entropy`.
        q: in (0, 1].

    Example:
        >>> generalised_cross_entropy(torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([1]))
        tensor(0.9160)
    """
    check_number("q", q, 0, 1)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        log_probability = -F.cross_entropy(rows, row_labels, reduction="none")
        return -torch.expm1(q * log_probability) / q  # keeps its digits where p_y is near 1, and where q is near 0

    return reduced(losses_of, scores, labels, reduction)


def topk_transition_loss(scores: Tensor, labels: Tensor, *, k: int = 5, reduction: str = "mean") -> Tensor:
    """Cross-entropy in which the top-k classes count as one class, the more so the further inside the label is.

        L = -log(p_y + w Σ_{j ∈ T} p_j),   w = max(0, tanh((s_y - s_[k]) / 2)),   p = softmax(s)

    T are the k - 1 other classes with the largest scores and s_[k] is the first score beyond them, the k-th largest of
    the other classes. While the label is outside the top k, w = 0 and the loss is cross-entropy. The further the label
    is inside, the more the loss becomes -log of the probability of the whole top k, which no longer cares about the
    order within it. k = 1 is cross-entropy. The loss is continuous; its derivative jumps where the label enters.

    Which variant this is: Sawada, Kaneko and Sagi (2020) describe their loss as cross-entropy that groups the current
    top-k classes into a single class, with an adaptive transition from normal cross-entropy so that the boundary is
    robust. Their printed formula of the transition could not be consulted, so the weight w is ours: the simplest one
    that is 0 where the label is about to leave the top k, 1 far inside, and has no parameter. tanh(x / 2) is the
    probability that the label beats the first class beyond T in a duel of softmax, minus that of losing it.

    Args:
        scores, labels, reduction: as in `cross_entropy`.
        k: size of the prediction, 1 <= k <= C - 1.

    Example:
        >>> topk_transition_loss(torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(0.9541)
    """

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        largest = others(rows, row_labels).topk(k).values  # (N, k)
        of_label = of_group = true_score(rows, row_labels)
        if k > 1:
            ahead = of_label - largest[:, -1]
            inside = ahead > 0
            log_weight = torch.log(torch.tanh(torch.where(inside, ahead, 1.0) / 2))  # log 0 would make NaN derivatives
            companions = torch.logsumexp(largest[:, :-1], 1)
            of_group = torch.where(inside, torch.logaddexp(of_label, log_weight + companions), of_label)
        return torch.logsumexp(rows, 1) - of_group

    return reduced(losses_of, scores, labels, reduction, k=k)
