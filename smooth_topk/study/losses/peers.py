"""Losses of two later papers, computed per sample; their authors' packages difftopk and pytopk give means.

The sorting networks are those of difftopk, which comes with pip install 'smooth-topk[peers]'.
"""

import contextlib
import math
from functools import cache

import torch
from torch import Tensor

from smooth_topk.study.losses.rows import check_number, others, reduced, true_score

SORTED = 16  # scores that enter the sorting network, at least: the value of the package's own example
KEPT, SHIFT = 1 - 2e-7, 1e-7  # the package takes the logarithm of KEPT * probability + SHIFT


def difftopk_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    inverse_temperature: float = 2.0,
    top1_share: float = 0.5,
    reduction: str = "mean",
) -> Tensor:
    """The top-k cross-entropy of Petersen et al. (2022): -log of a differentiable probability of being in the top k.

        L = -log(P_1 softmax(s)_y + P_k Σ_{r ≤ k} A_{y,r}),   P_1 = top1_share, P_k = 1 - top1_share

    A_{j,r} is the probability that class j has rank r in a differentiable sorting network with Cauchy's distribution.
    The network sorts the label and the largest of the other scores, 16 in all or the next power of two above k; with
    at most that many classes it sorts them all.

    Which variant this is: the paper mixes any distribution over ranks. Its example in the package puts half of it on
    rank 1, computed by softmax ("sm", the package's default), and half on rank 5, with 1/temperature 2: the defaults
    here. k = 1 is cross-entropy, up to the 1e-7 that the package adds inside the logarithm.

    Args:
        scores: (N, C).
        labels: (N,) integers in [0, C).
        k: size of the prediction, 1 <= k <= C - 1.
        inverse_temperature: steepness of the comparisons, positive.
        top1_share: P_1, in [0, 1].
        reduction: "none", "mean" or "sum".

    Returns:
        The loss: a scalar, or (N,) with reduction "none".

    Example:
        >>> difftopk_loss(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(1.8926)
    """
    check_number("inverse_temperature", inverse_temperature, 0)
    check_number("top1_share", top1_share, 0, 1, low_included=True)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        rows, row_labels = _strongest(rows, row_labels, k)
        probability = torch.softmax(rows, 1).gather(1, row_labels[:, None]).squeeze(1)
        if k > 1:
            ranks = _rank_probabilities(rows, k, float(inverse_temperature))  # (N, m, k)
            in_topk = ranks.sum(2).gather(1, row_labels[:, None]).squeeze(1)
            probability = top1_share * probability + (1 - top1_share) * in_topk
        return -torch.log(probability * KEPT + SHIFT)

    return reduced(losses_of, scores, labels, reduction, k=k)


def noised_topk_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    epsilon: float = 1.0,
    samples: int = 5,
    noise: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The balanced noised top-k loss of Garcin et al. (2022): a calibrated hinge whose threshold is smoothed by noise.

        L = max(0, 1 + E[(s + ε Z)_[k+1]] - s_y),   Z standard normal, (.)_[k+1] the (k+1)-th largest of all classes

    The expectation is a mean over `samples` draws per row. With ε = 0 it is the hinge max(0, 1 + s_[k+1] - s_y) that
    Yang and Koyejo (2020) prove to be top-k calibrated. The label counts among the classes, unlike in the hinges of
    Lapin et al. and of Berrada et al.; the margin is 1. It needs k + 1 <= C.

    Args:
        scores: (N, C).
        labels: (N,) integers in [0, C).
        k: size of the prediction, 1 <= k <= C - 1.
        epsilon: standard deviation of the noise, at least zero. The package's example has 1.
        samples: draws per row; the package takes 5.
        noise: (N, C, samples) to use instead of fresh draws from torch's global generator.
        reduction: "none", "mean" or "sum".

    Returns:
        The loss: a scalar, or (N,) with reduction "none".

    Example:
        >>> noised_topk_loss(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2, epsilon=0.0)
        tensor(1.)
    """
    check_number("epsilon", epsilon, 0, low_included=True)
    if noise is None and (not isinstance(samples, int) or isinstance(samples, bool) or samples < 1):
        raise ValueError(f"samples must be a positive integer, got {samples!r}.")

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        shape = (*rows.shape, samples)
        draws = torch.randn(shape, device=rows.device, dtype=rows.dtype) if noise is None else noise.to(rows)
        if draws.dim() != 3 or draws.shape[:2] != rows.shape:
            raise ValueError(
                f"noise must have shape (N, C, samples) with (N, C) = {tuple(rows.shape)}, got {tuple(draws.shape)}."
            )
        threshold = (rows[:, :, None] + epsilon * draws).topk(k + 1, dim=1).values[:, -1].mean(1)
        return torch.relu(1 + threshold - true_score(rows, row_labels))

    return reduced(losses_of, scores, labels, reduction, k=k)


def _strongest(scores: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the label's score and the largest of the others, (N, m) with the label first, and its places (N,)."""
    entering = max(SORTED, 1 << k.bit_length())
    if k == 1 or scores.shape[1] <= entering:
        return scores, labels
    largest = others(scores, labels).topk(entering - 1).values
    return torch.cat([scores.gather(1, labels[:, None]), largest], 1), torch.zeros_like(labels)


def _rank_probabilities(scores: Tensor, k: int, inverse_temperature: float) -> Tensor:
    """Returns the probability that each class has each of the k highest ranks, (N, m, k)."""
    layers, keeps = _sorting_network(scores.shape[1], str(scores.device), scores.dtype), []
    for first, second, smaller, larger in layers:  # one-hot: the two inputs of each comparison, and their new places
        a, b = scores @ first.T, scores @ second.T
        keep = torch.atan(inverse_temperature * (b - a)) / math.pi + 0.5  # the probability that a is the smaller one
        scores = (keep * a + (1 - keep) * b) @ smaller.T + ((1 - keep) * a + keep * b) @ larger.T
        keeps.append(keep[:, :, None])
    ranks = torch.eye(scores.shape[1], dtype=scores.dtype, device=scores.device)[:, -k:]
    for keep, (first, second, smaller, larger) in zip(reversed(keeps), reversed(layers), strict=True):
        low, high = smaller.T @ ranks, larger.T @ ranks  # (N, comparisons, k)
        ranks = first.T @ (keep * low + (1 - keep) * high) + second.T @ ((1 - keep) * low + keep * high)
    return ranks


@cache
def _sorting_network(size: int, device: str, dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
    """Returns the layers of a bitonic network, or of an odd-even one for a size that is no power of two."""
    try:
        with contextlib.redirect_stdout(None):  # the package prints when it is imported
            from difftopk.networks import get_sorting_network
    except ModuleNotFoundError as error:
        if error.name == "difftopk":
            error.msg = "This loss needs difftopk: pip install 'smooth-topk[peers]'"
        raise
    kind = "bitonic" if size & (size - 1) == 0 else "odd_even"
    return [tuple(matrix.to(dtype) for matrix in layer) for layer in get_sorting_network(kind, size, device)]
