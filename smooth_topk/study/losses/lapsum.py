"""LapSum: soft top-k selection by a sum of Laplace distributions, in closed form (Struski et al., ICML 2025)."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from smooth_topk.study.losses.rows import check_number, reduced, true_score


def lapsum_topk_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    scale: float = 1.0,
    top1_share: float = 0.5,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy of the soft top-k probabilities of Struski et al. (2025).

        L = -log(P_1 softmax(s)_y + P_k p_y),   p_j = F((s_j - b) / α),   b such that Σ_j p_j = k

    F is the distribution function of Laplace's distribution, α = scale, P_1 = top1_share and P_k = 1 - P_1. As α goes
    to 0, p goes to the indicator of the k largest scores.

    Which variant this is: the paper replaces the sorting network of Petersen et al. (2022) by this p, in the same loss;
    so the mixture of top-1 and top-k is that of `difftopk_loss`, with the same share by default.

    Args:
        scores: (N, C).
        labels: (N,) integers in [0, C).
        k: size of the prediction, 1 <= k <= C - 1.
        scale: α, positive.
        top1_share: P_1, in [0, 1].
        reduction: "none", "mean" or "sum".

    Returns:
        The loss: a scalar, or (N,) with reduction "none".

    Example:
        >>> lapsum_topk_loss(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(1.2950)
    """
    check_number("scale", scale, 0)
    check_number("top1_share", top1_share, 0, 1, low_included=True)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        log_top1 = -F.cross_entropy(rows, row_labels, reduction="none")
        log_topk = log_laplace((true_score(rows, row_labels) - threshold(rows, k, scale)) / scale)
        parts = [math.log(p) + log_p for p, log_p in ((top1_share, log_top1), (1 - top1_share, log_topk)) if p]
        return -torch.logsumexp(torch.stack(parts), 0)

    return reduced(losses_of, scores, labels, reduction, k=k)


def soft_topk(scores: Tensor, k: int, scale: float) -> Tensor:
    """Returns the soft indicator p of the k largest scores, (N, C); every row sums to k."""
    return log_laplace((scores - threshold(scores, k, scale)[:, None]) / scale).exp()


def log_laplace(x: Tensor) -> Tensor:
    """Returns log F(x) for Laplace's distribution: log(1/2) + x below 0, log(1 - e^{-x} / 2) above."""
    below = x <= 0
    return torch.where(below, x - math.log(2), torch.log1p(-torch.exp(-torch.where(below, 0.0, x)) / 2))


def threshold(scores: Tensor, k: int, scale: float) -> Tensor:
    """Returns b with Σ_j F((s_j - b) / α) = k, (N,), in closed form after one sort.

    Between two neighbouring scores, with j scores above b, z = e^{b/α} solves A z² - 2 (j - k) z - B = 0, where
    A = Σ_{i ≤ j} e^{-s_i/α} and B = Σ_{i > j} e^{s_i/α}. Sums are kept as logarithms, so that no scale overflows.
    """
    x = scores.sort(dim=1, descending=True).values / scale
    none = x.new_full((len(x), 1), -torch.inf)
    log_above = torch.cat([none, torch.logcumsumexp(-x, 1)], 1)  # (N, C + 1): log A for j = 0 .. C
    log_below = torch.cat([torch.logcumsumexp(x.flip(1), 1).flip(1), none], 1)
    with torch.no_grad():  # the sum at b = s_j, which grows with j
        above, below = (log_above[:, 1:] + x).exp(), (log_below[:, 1:] - x).exp()
        place = torch.arange(1, x.shape[1] + 1, device=x.device)
        j = (place - above / 2 + below / 2 <= k).sum(1, keepdim=True)
    log_a, log_b = log_above.gather(1, j).squeeze(1), log_below.gather(1, j).squeeze(1)
    m, log_ab = (j.squeeze(1) - k).to(x), log_a + log_b
    size = torch.where(m == 0, 1.0, m.abs())
    log_root = torch.where(m == 0, log_ab / 2, torch.log(size + torch.sqrt(size.square() + torch.exp(log_ab))))
    return scale * torch.where(m > 0, log_root - log_a, log_b - log_root)  # without a difference of close numbers
