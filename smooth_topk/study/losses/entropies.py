"""Top-k entropy and truncated top-k entropy of Lapin et al. (2016): softmax losses that care less about the top k.

Both have the form softplus(V - s_y), where V sums up the scores of the other classes. Cross-entropy is the case
V = log Σ_{j ≠ y} exp s_j.
"""

import math

import torch
from torch import Tensor

from smooth_topk.study.losses.rows import others, reduced, softplus, true_score


def topk_entropy(scores: Tensor, labels: Tensor, *, k: int = 5, reduction: str = "mean") -> Tensor:
    """Top-k entropy: cross-entropy whose convex conjugate is restricted to the top-k simplex. Convex; k = 1 is CE.

        L = max <a, x> - <x, log x> - (1 - <1, x>) log(1 - <1, x>),   a_j = s_j - s_y for j ≠ y,
            over x with <1, x> <= 1 and 0 <= x_j <= <1, x> / k

    With x = σ w, where w sums to 1, the best σ is a sigmoid and the problem becomes

        L = softplus(V - s_y),   V = max <s, w> + H(w)  over w with Σ w = 1 and 0 <= w_j <= 1/k

    with the entropy H(w) = -<w, log w>. V is a soft mean of the k largest of the other scores. In its solution the u
    largest classes sit at the bound 1/k and the rest share 1 - u/k by softmax, so that with Z_u = Σ_{i > u} exp s_[i]

        V = 1/k Σ_{i ≤ u} (s_[i] + log k) + (k - u)/k (log Z_u + log(k / (k - u)))

    for the smallest u with s_[u+1] <= log Z_u - log(k - u); u = k - 1 always fits. The gradient of V is w, and
    automatic differentiation of this formula gives just that: u is constant around almost every s, and where it changes
    the two formulas agree in value and in derivative.

    Lapin et al. (2016) state the problem over x; the reduction to V is a change of variables.

    Args:
        scores: (N, C).
        labels: (N,) integers in [0, C).
        k: size of the prediction, 1 <= k <= C - 1.
        reduction: "none", "mean" or "sum".

    Returns:
        The loss: a scalar, or (N,) with reduction "none".

    Example:
        >>> topk_entropy(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(1.9159)
    """

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        return softplus(soft_topk_mean(others(rows, row_labels), k) - true_score(rows, row_labels))

    return reduced(losses_of, scores, labels, reduction, k=k)


def truncated_topk_entropy(scores: Tensor, labels: Tensor, *, k: int = 5, reduction: str = "mean") -> Tensor:
    """Truncated top-k entropy: cross-entropy without the k - 1 strongest of the other classes. Not convex; k = 1 is CE.

        L = log(1 + Σ_{j ∈ J} exp(s_j - s_y)),   J the C - k classes other than y with the smallest scores

    Which variant this is: J holds C - k classes whatever the rank of the label, as in Lapin et al. (2016). A public
    program drops the k largest of all classes instead, which leaves one class fewer where the label is outside the
    top k.

    The arguments are those of `topk_entropy`.

    Example:
        >>> truncated_topk_entropy(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(1.0550)
    """

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        _, log_tail = _head_and_tail(others(rows, row_labels), k)
        return softplus(log_tail - true_score(rows, row_labels))

    return reduced(losses_of, scores, labels, reduction, k=k)


def soft_topk_mean(scores: Tensor, k: int) -> Tensor:
    """Returns V(s) = max <s, w> + H(w) over w with Σ w = 1 and 0 <= w_j <= 1/k, for every row of scores, (N,).

    A score of -inf deletes its class; at least k classes must be left.

    Example:
        >>> soft_topk_mean(torch.tensor([[3.0, 3.0, -9.0]]), 2)  # the mean of the two, and the entropy log 2
        tensor([3.6932])
    """
    head, log_tail = _head_and_tail(scores, k)
    from_tail = [log_tail]  # log Z_{k-1}, ..., log Z_0
    for column in head.unbind(1)[::-1]:
        from_tail.append(torch.logaddexp(from_tail[-1], column))
    log_sums = torch.stack(from_tail[::-1], 1)  # (N, k)

    bounded = torch.arange(k, device=scores.device)  # u
    left = (k - bounded).to(scores.dtype)
    head_sums = torch.cat([torch.zeros_like(log_tail)[:, None], head.cumsum(1)], 1)  # (N, k)
    values = (head_sums + bounded * math.log(k) + left * (log_sums + math.log(k) - left.log())) / k
    fits = head <= log_sums[:, :-1] - left[:-1].log()  # (N, k - 1): s_[u+1] stays within the bound
    always = torch.ones_like(log_sums[:, :1], dtype=torch.bool)
    first_fit = torch.cat([fits, always], 1)  # (N, k)
    return values.gather(1, first_fit.to(torch.uint8).argmax(1, keepdim=True)).squeeze(1)


def _head_and_tail(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the k - 1 largest scores in order, (N, k - 1), and the log-sum-exp of all the others, (N,)."""
    head, index = scores.topk(k - 1)
    return head, torch.logsumexp(scores.scatter(1, index, -torch.inf), 1)
