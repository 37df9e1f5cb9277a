"""From scores to predictions: the top-k error, and the probability of being among the top k (eq. 5, appendix C).

Scores (N, C) and labels (N,) in, a share of samples out; or scores (..., C) in, probabilities (..., C) out.
"""

import math

import torch
from torch import Tensor

from .symmetric_polynomials import pivot


def topk_error(scores: Tensor, labels: Tensor, k: int = 5) -> Tensor:
    """Share of the samples whose label is not among the k largest scores, the mean of Λ_k = 1(s_[k] > s_y), eq. (5).

    A label that ties with the k-th largest score is in. A NaN score counts as the largest, and a label with a NaN
    score is out.

    Args:
        scores: (N, C), or (C,) for one sample.
        labels: (N,), or (): integers in [0, C).
        k: size of the prediction, 1 <= k <= C.

    Returns:
        A scalar between 0 and 1.

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> topk_error(scores, torch.tensor([1, 2]), k=2)
        tensor(0.5000)
    """
    _check_labelled(scores, labels, k)
    true_score = scores.gather(-1, labels[..., None].long())
    larger = (~(scores <= true_score)).sum(-1)
    return (larger >= k).float().mean()


def topk_accuracy(scores: Tensor, labels: Tensor, k: int = 5) -> Tensor:
    """Share of the samples whose label is among the k largest scores: 1 - `topk_error`, same arguments.

    Example:
        >>> topk_accuracy(torch.tensor([3.0, 2.0, 1.0]), torch.tensor(1), k=2)
        tensor(1.)
    """
    return 1 - topk_error(scores, labels, k)


def topk_probabilities(
    scores: Tensor, k: int = 5, *, tau: float | None = None, crops: int | None = None, normalize: bool = False
) -> Tensor:
    """Probability that each class is in a random k-subset drawn with weight exp(Σ x), Proposition 7 of appendix C.

        p_i = ∂ log σ_k(exp x) / ∂x_i = exp(x_i) σ_{k-1}(exp x without i) / σ_k(exp x)

    With k = 1 this is the softmax. Differentiable to any order.

    Args:
        scores: (..., C), any floating dtype; a score of -inf deletes its class.
        k: size of the prediction, 1 <= k <= C.
        tau: None takes x = scores, as the paper; a temperature takes x = scores / (k tau), the weights of the loss.
        crops: a dimension of `scores` that holds crops of one image; the probabilities are averaged over it.
        normalize: divide by k.

    Returns:
        Probabilities of the shape of `scores`, without the dimension `crops`. They sum to k, or to 1 if `normalize`;
        all are 0 in a row with fewer than k classes left.

    Example:
        >>> topk_probabilities(torch.tensor([1.0, 1.0, 2.0]).log(), k=2)  # the pairs weigh 1, 2 and 2 of 5
        tensor([0.6000, 0.6000, 0.8000])
    """
    _check_scores(scores, k)
    if tau is not None and not (isinstance(tau, int | float) and 0 < tau < math.inf):
        raise ValueError(f"tau must be None or a positive finite number, got {tau!r}.")
    if crops is not None and not -scores.ndim <= crops < scores.ndim:
        raise ValueError(f"crops must be a dimension of the scores, got crops={crops} for shape {tuple(scores.shape)}.")
    if crops is not None and crops % scores.ndim == scores.ndim - 1:
        raise ValueError(f"crops must not be the last dimension, which holds the classes, got crops={crops}.")
    x = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if tau is not None:
        x = x / (k * tau)
    rows = x.reshape(-1, x.shape[-1])
    probabilities = pivot.marginals(rows, k).reshape(x.shape)
    if crops is not None:
        probabilities = probabilities.mean(crops)
    return (probabilities / k if normalize else probabilities).to(scores.dtype)


def _check_scores(scores: Tensor, k: int) -> None:
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"scores must be a floating point tensor, got {kind}.")
    if scores.ndim == 0:
        raise ValueError("scores must have a dimension of classes, got a scalar.")
    if not isinstance(k, int) or isinstance(k, bool):
        raise TypeError(f"k must be an integer, got {k!r}.")
    if not 1 <= k <= scores.shape[-1]:
        raise ValueError(f"k must be between 1 and the number of classes, got k={k} for {scores.shape[-1]} classes.")


def _check_labelled(scores: Tensor, labels: Tensor, k: int) -> None:
    _check_scores(scores, k)
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integers, got {kind}.")
    if scores.ndim > 2 or labels.shape != scores.shape[:-1]:
        raise ValueError(
            "scores must be (N, C) with labels (N,), or (C,) with a scalar label, "
            f"got shapes {tuple(scores.shape)} and {tuple(labels.shape)}."
        )
    if labels.device.type == "cpu" and labels.numel() and not 0 <= labels.min() <= labels.max() < scores.shape[-1]:
        raise ValueError(
            f"labels must be in [0, {scores.shape[-1]}), got values from {labels.min()} to {labels.max()}."
        )
