"""From scores to predictions: the top-k error, and the probability of being among the top k (eq. 5, appendix C).

Scores (N, C) and labels (N,) in, a share of samples out; or scores (..., C) in, probabilities (..., C) out.
"""

from typing import Any

from torch import Tensor

from .arguments import (
    check_floating_point,
    check_integers,
    check_label_range,
    positive_number,
    size_of_prediction,
    whole_number,
    widened,
)
from .pivot.margins import exponent_scale
from .symmetric_polynomials.pivot import marginals


def topk_error(scores: Tensor, labels: Tensor, k: int = 5) -> Tensor:
    """Share of the samples whose label is not among the k largest scores, the mean of Λ_k = 1(s_[k] > s_y), eq. (5).

    A label that ties with the k-th largest score counts as correct. A NaN score counts as the largest, and a label
    with a NaN score counts as an error.

    Args:
        scores: (N, C), or (C,) for one sample.
        labels: (N,), or (): integers in [0, C).
        k: size of the prediction, 1 <= k <= C.

    Returns:
        A scalar between 0 and 1.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> topk_error(scores, torch.tensor([1, 2]), k=2)
        tensor(0.5000)

    Explained in notebooks/01_topk_error_and_hard_loss.
    """
    k = _checked_k(scores, k)
    _check_labels(scores, labels)
    true_score = scores.gather(-1, labels[..., None].long())
    larger = (~(scores <= true_score)).sum(-1)
    return (larger >= k).float().mean()


def topk_accuracy(scores: Tensor, labels: Tensor, k: int = 5) -> Tensor:
    """Share of the samples whose label is among the k largest scores: 1 - `topk_error`, same arguments.

    Example:
        >>> import torch
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
        tau: with None, x = scores, as in the paper; with a temperature, x = scores / (k tau), as in the loss.
        crops: a dimension of `scores` that holds crops of one image; the probabilities are averaged over it.
        normalize: divide by k.

    Returns:
        Probabilities of the shape of `scores`, without the dimension `crops`. They sum to k, or to 1 if `normalize`;
        all are 0 in a row with fewer than k classes left.

    Example:
        >>> import torch
        >>> topk_probabilities(torch.tensor([1.0, 1.0, 2.0]).log(), k=2)  # the pairs weigh 1, 2 and 2 of 5
        tensor([0.6000, 0.6000, 0.8000])

    Explained in notebooks/11_topk_probabilities.
    """
    k = _checked_k(scores, k)
    scale = 1.0 if tau is None else exponent_scale(k, positive_number("tau", tau))
    crops = None if crops is None else whole_number("crops", crops)
    if crops is not None and not -scores.ndim <= crops < scores.ndim:
        raise ValueError(f"crops must be a dimension of the scores, got crops={crops} for shape {tuple(scores.shape)}.")
    if crops is not None and crops % scores.ndim == scores.ndim - 1:
        raise ValueError(f"crops must not be the last dimension, which holds the classes, got crops={crops}.")
    rows = widened(scores).reshape(-1, scores.shape[-1])
    probabilities = marginals(rows, k, scale).reshape(scores.shape)
    if crops is not None:
        probabilities = probabilities.mean(crops)
    return (probabilities / k if normalize else probabilities).to(scores.dtype)


def _checked_k(scores: Tensor, k: Any) -> int:
    """k as an int that fits the scores (..., C)."""
    check_floating_point("scores", scores)
    if scores.ndim == 0:
        raise ValueError("scores must have a dimension of classes, got a scalar.")
    return size_of_prediction(k, scores.shape[-1])


def _check_labels(scores: Tensor, labels: Tensor) -> None:
    check_integers("labels", labels)
    if scores.ndim > 2 or labels.shape != scores.shape[:-1]:
        raise ValueError(
            "scores must be (N, C) with labels (N,), or (C,) with a scalar label, "
            f"got shapes {tuple(scores.shape)} and {tuple(labels.shape)}."
        )
    if labels.device != scores.device:
        raise RuntimeError(f"labels must be on the device of the scores, {scores.device}, got {labels.device}.")
    check_label_range(labels.long(), scores.shape[-1])
