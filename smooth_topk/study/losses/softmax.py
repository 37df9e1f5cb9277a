"""Losses of the softmax probabilities: label smoothing, generalised, adaptive and logit-adjusted cross-entropy."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from smooth_topk.study.losses.rows import check_number, reduced, true_score

FIXED_POINT_STEPS = 25


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


def aldr_kl_loss(
    scores: Tensor, labels: Tensor, *, temperature: float = 1.0, adaptivity: float = 2.0, reduction: str = "mean"
) -> Tensor:
    """ALDR-KL of Zhu, Ying and Yang (2023): cross-entropy with a temperature that adapts to each sample.

        L = max over λ of  λ log(1/C Σ_j exp((s_j - s_y) / λ)) - a/2 (λ - λ_0)²,   a = adaptivity log(C) / λ_0

    For fixed λ this is cross-entropy at the temperature λ: the worst case over distributions p of the label, minus
    λ KL(p, uniform). At the maximum λ = λ_0 - KL(p, uniform) / a with p = softmax(s / λ): where the network is sure of
    its answer, λ is lower, and a wrong label pulls less on other classes. For an infinite adaptivity λ = λ_0; with
    λ_0 = 1 that is cross-entropy minus log C. The paper proves top-k consistency for every k if adaptivity > 1.

    Which variant this is: the paper updates λ once per visit of a sample and keeps it; here it is iterated from λ_0 to
    its fixed point, so that the loss is a function of the scores. There is no margin.

    Args:
        scores, labels, reduction: as in `cross_entropy`.
        temperature: λ_0, positive.
        adaptivity: above 1; the paper's program has 2.

    Example:
        >>> aldr_kl_loss(torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([1]))
        tensor(0.3760)
    """
    check_number("temperature", temperature, 0)
    check_number("adaptivity", adaptivity, 1)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        log_classes = math.log(rows.shape[1])
        stiffness = adaptivity * log_classes / temperature
        with torch.no_grad():  # the derivative with respect to λ is zero at the fixed point
            adapted = torch.full_like(rows[:, :1], temperature)
            for _ in range(FIXED_POINT_STEPS):
                log_p = torch.log_softmax(rows / adapted, 1)
                divergence = (log_p.exp() * log_p).sum(1, keepdim=True) + log_classes
                adapted = temperature - divergence / stiffness
        adapted = adapted[:, 0]
        log_mean = torch.logsumexp(rows / adapted[:, None], 1) - true_score(rows, row_labels) / adapted - log_classes
        return adapted * log_mean - stiffness / 2 * (adapted - temperature).square()

    return reduced(losses_of, scores, labels, reduction)


def logit_adjusted_cross_entropy(
    scores: Tensor, labels: Tensor, *, counts: Tensor, adjustment: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of scores that are raised by the log share of their class (Menon et al. 2021).

        L = -log softmax(s + t log π)_y,   π_j the share of class j among the training samples

    With t = 1 its minimiser ranks the classes as a balanced data set would: scores estimate log p(x | j).

    Args:
        scores, labels, reduction: as in `cross_entropy`.
        counts: (C,) training samples of each class.
        adjustment: t, at least zero; 0 is cross-entropy.

    Example:
        >>> counts = torch.tensor([90, 9, 1])
        >>> logit_adjusted_cross_entropy(torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([1]), counts=counts)
        tensor(3.3411)
    """
    check_number("adjustment", adjustment, 0, low_included=True)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        log_share = torch.log(counts.to(rows).clamp(min=1) / counts.sum())
        return F.cross_entropy(rows + adjustment * log_share, row_labels, reduction="none")

    return reduced(losses_of, scores, labels, reduction)
