"""A linear top-k SVM solved to its global optimum: problem (P_{λ,α}) of appendix D.2 for k = n - 1 classes.

The k-th largest of k other scores is the smallest. For a fixed guess which class that is for every sample the problem
is convex; its dual is quadratic with one number per sample in a box. All guesses are solved side by side, so the lowest
of their dual values bounds the optimum from below: the answer comes with the gap between the two.
"""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from smooth_topk import hard_topk_loss

MAXIMUM_GUESSES = 20_000
CLOSE = 1e-13  # the gap at which the ascent ends: a few times the rounding error of objectives near one


@dataclass(frozen=True)
class Solution:
    """A global minimiser of (P_{λ,α}).

    Attributes:
        weights: (d, n).
        objective: its value.
        gap: how far below it the optimum could lie at most.
    """

    weights: Tensor
    objective: float
    gap: float


def objective(weights: Tensor, inputs: Tensor, labels: Tensor, *, regularization: float, margin: float) -> float:
    """Returns λ/2 ‖w‖² + mean of max(margin + (s without y)_[k] - s_y, 0), the loss of eq. (6), for k = n - 1.

    Args:
        weights: (d, n).
        inputs: (N, d).
        labels: (N,).
    """
    k = weights.shape[1] - 1
    # hard_topk_loss is eq. (8), which divides the scores by k.
    loss = hard_topk_loss(k * (inputs @ weights), labels, k=k, margin=margin)
    return (regularization / 2 * weights.pow(2).sum() + loss).item()


def solve(
    inputs: Tensor, labels: Tensor, *, classes: int, regularization: float, margin: float, sweeps: int = 20_000
) -> Solution:
    """Returns the global optimum of (P_{λ,α}), by dual coordinate ascent for every guess at once.

    Args:
        inputs: (N, d) float64; the number of guesses is (classes - 1)^N.
        labels: (N,).
        regularization: λ, positive; without it there is no dual of this form.
        margin: α, zero or positive.
        sweeps: the most passes over the samples.

    Example:
        >>> inputs, labels = torch.eye(2, dtype=torch.float64), torch.tensor([0, 1])
        >>> solve(inputs, labels, classes=3, regularization=0.1, margin=1.0).gap < 1e-9
        True
    """
    if regularization <= 0:
        raise ValueError(f"regularization must be positive, got regularization={regularization!r}.")
    if (classes - 1) ** len(labels) > MAXIMUM_GUESSES:
        raise ValueError(f"{len(labels)} samples of {classes} classes have too many guesses, take fewer samples.")
    features = _features(inputs, labels, classes)  # (M, N, d n)
    gram = features @ features.mT / regularization  # (M, N, N)
    beta = torch.zeros(gram.shape[:2], dtype=gram.dtype)
    upper = 1.0 / len(labels)
    best = None
    for sweep in range(sweeps):
        for i in range(len(labels)):
            slack = margin - (gram[:, i] * beta).sum(dim=1)
            beta[:, i] = (beta[:, i] + slack / gram[:, i, i]).clamp(0.0, upper)
        if sweep % 100 == 99:
            best = _best(inputs, labels, features, gram, beta, regularization, margin)
            if best.gap < CLOSE:
                break
    return best or _best(inputs, labels, features, gram, beta, regularization, margin)


def _features(inputs: Tensor, labels: Tensor, classes: int) -> Tensor:
    """∂(s_y - s_guess)/∂w of every sample under every guess."""
    others = [[c for c in range(classes) if c != label] for label in labels.tolist()]
    guesses = torch.tensor(list(product(*others)))  # (M, N)
    one_hot = torch.eye(classes, dtype=inputs.dtype)
    signs = one_hot[labels] - one_hot[guesses]  # (M, N, n)
    return (inputs[None, :, :, None] * signs[:, :, None, :]).flatten(2)


def _best(inputs, labels, features, gram, beta, regularization, margin) -> Solution:
    dual = margin * beta.sum(dim=1) - ((gram @ beta[:, :, None])[:, :, 0] * beta).sum(dim=1) / 2
    weights = (beta[:, None] @ features)[:, 0] / regularization  # (M, d n)
    hinges = (margin - (features @ weights[:, :, None])[:, :, 0]).clamp(min=0)
    primal = regularization / 2 * weights.pow(2).sum(dim=1) + hinges.mean(dim=1)
    chosen = weights[primal.argmin()].reshape(inputs.shape[1], -1)
    value = objective(chosen, inputs, labels, regularization=regularization, margin=margin)
    return Solution(chosen, value, value - dual.min().item())
