"""From scores to predictions: the top-k error, and the probability of being among the top k (eq. 5, appendix C).

The error takes scores and labels as the losses do; the probabilities take scores (..., C) and have their shape.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .pivot.margins import exponent_scale
from .polynomials.pivot import marginals
from .targets import (
    check_choice,
    check_floating_point,
    check_integers,
    check_label_range,
    positive_number,
    size_of_prediction,
    whole_number,
    widened,
)

Average = Literal["micro", "macro"]


def topk_error(
    scores: Tensor, labels: Tensor, k: int = 5, *, ignore_index: int = -100, average: Average = "micro"
) -> Tensor:
    """Share of the samples whose label is not among the k largest scores, the mean of Λ_k = 1(s_[k] > s_y), eq. (5).

    A label that ties with the k-th largest score counts as correct. A NaN score counts as the largest, and a label
    with a NaN score counts as an error.

    Args:
        scores: (N, C), (C,) or (N, C, d1, ...), as in `smooth_topk_loss`.
        labels: (N,), () or (N, d1, ...): integers in [0, C) or `ignore_index`.
        k: size of the prediction, 1 <= k <= C.
        ignore_index: samples with this label do not count.
        average: "micro" is the mean over samples; "macro" is the mean over classes of the error of each class, for
            unbalanced classes. A class without a sample does not count.

    Returns:
        A scalar between 0 and 1; NaN if no sample counts.

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> labels = torch.tensor([1, 1, 1, 2])
        >>> topk_error(scores, labels, k=2), topk_error(scores, labels, k=2, average="macro")
        (tensor(0.2500), tensor(0.5000))

    Explained in notebooks/01_topk_error_and_hard_loss.
    """
    check_floating_point("scores", scores)
    check_integers("labels", labels)
    check_choice("average", average, get_args(Average))
    ignore_index = whole_number("ignore_index", ignore_index)
    scores = scores.movedim(1, -1) if scores.ndim > 2 else scores
    k = _checked_k(scores, k)
    _check_shapes(scores, labels)
    classes = scores.shape[-1]
    check_label_range(labels.long(), classes, ignore_index)
    rows, row_labels = scores.reshape(-1, classes), labels.long().reshape(-1)
    counts = row_labels != ignore_index
    valid = (row_labels >= 0) & (row_labels < classes)  # false for a wrong label on a GPU, whose error is NaN
    row_labels = torch.where(valid, row_labels, 0)
    larger = (~(rows <= rows.gather(1, row_labels[:, None]))).sum(1)
    errors = torch.where(valid, (larger >= k).float(), torch.nan).masked_fill(~counts, 0.0)
    if average == "micro":
        return errors.sum() / counts.sum()
    samples, missed = (errors.new_zeros(classes).index_add(0, row_labels, each) for each in (counts.float(), errors))
    return torch.where(samples > 0, missed / samples, 0.0).sum() / (samples > 0).sum()


def topk_accuracy(
    scores: Tensor, labels: Tensor, k: int = 5, *, ignore_index: int = -100, average: Average = "micro"
) -> Tensor:
    """Share of the samples whose label is among the k largest scores: 1 - `topk_error`, same arguments.

    Example:
        >>> topk_accuracy(torch.tensor([3.0, 2.0, 1.0]), torch.tensor(1), k=2)
        tensor(1.)
    """
    return 1 - topk_error(scores, labels, k, ignore_index=ignore_index, average=average)


def topk_probabilities(
    scores: Tensor, k: int = 5, *, tau: float = 1.0, crops: int | None = None, normalize: bool = False
) -> Tensor:
    """Probability that each class is in a random k-subset drawn with weight exp(Σ x), Proposition 7 of appendix C.

        p_i = ∂ log σ_k(exp x) / ∂x_i = exp(x_i) σ_{k-1}(exp x without i) / σ_k(exp x),   x = scores / (k tau)

    With k = 1 this is the softmax, and like it NaN in a row with a score of NaN or +inf. Differentiable to any order.

    Args:
        scores: (..., C), any floating dtype; a score of -inf deletes its class.
        k: size of the prediction, 1 <= k <= C.
        tau: temperature, the same as in the loss. The paper has x = scores, which is tau = 1 / k.
        crops: a dimension of `scores` that holds crops of one image; the probabilities are averaged over it.
        normalize: divide by k.

    Returns:
        Probabilities of the shape of `scores`, without the dimension `crops`. They sum to k, or to 1 if `normalize`;
        all are 0 in a row with fewer than k classes left.

    Example:
        >>> topk_probabilities(torch.tensor([1.0, 1.0, 2.0]).log(), k=2, tau=0.5)  # the pairs weigh 1, 2 and 2 of 5
        tensor([0.6000, 0.6000, 0.8000])

    Explained in notebooks/11_topk_probabilities.
    """
    k = _checked_k(scores, k)
    scale = exponent_scale(k, positive_number("tau", tau))
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


def _check_shapes(scores: Tensor, labels: Tensor) -> None:
    """Scores (..., C), classes last, and labels (...) on one device."""
    if labels.shape != scores.shape[:-1]:
        raise ValueError(
            "scores must be (N, C, ...) with labels (N, ...), or (C,) with a scalar label, "
            f"got labels of shape {tuple(labels.shape)} for {scores.shape[-1]} classes and {tuple(scores.shape[:-1])}."
        )
    if labels.device != scores.device:
        raise RuntimeError(f"labels must be on the device of the scores, {scores.device}, got {labels.device}.")
