"""From the arguments of cross-entropy to rows: scores and labels of any shape in, one sample or pixel per row out."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arguments import check_floating_point, check_integers, check_label_range, size_of_prediction


class Rows(NamedTuple):
    """Scores and labels whose shapes, dtypes and devices fit."""

    scores: Tensor  # (N, C)
    labels: Tensor  # (N,) integers, or (N, C) probabilities
    soft: bool  # whether labels are probabilities
    shape: torch.Size  # of the losses, with reduction "none"


def as_rows(scores: Tensor, labels: Tensor, weight: Tensor | None, k: int) -> Rows:
    """Checks the tensors of a loss against each other, and brings them to rows; arguments as in `smooth_topk_loss`."""
    check_floating_point("scores", scores)
    if scores.dim() == 0:
        raise ValueError("scores must have shape (N, C), (C,) or (N, C, d1, ...), got a scalar.")
    classes = scores.shape[min(1, scores.dim() - 1)]
    shape = scores.shape[:1] + scores.shape[2:] if scores.dim() > 1 else torch.Size()
    size_of_prediction(k, classes, spare=1)
    soft = isinstance(labels, Tensor) and labels.is_floating_point() and labels.shape == scores.shape
    if not soft:
        if isinstance(labels, Tensor) and labels.is_floating_point():
            raise TypeError(
                "labels must be a tensor of integers, or of probabilities in the shape of the scores, "
                f"{tuple(scores.shape)}, got {labels.dtype} of shape {tuple(labels.shape)}."
            )
        check_integers("labels", labels)
        if labels.shape != shape:
            raise ValueError(
                f"labels must have shape {tuple(shape)} for scores of shape {tuple(scores.shape)}, "
                f"got {tuple(labels.shape)}."
            )
    if labels.device != scores.device:
        raise RuntimeError(f"labels must be on the device of the scores, {scores.device}, got {labels.device}.")
    if weight is not None:
        _check_weight(weight, scores, classes)
    if scores.dim() == 2:
        return Rows(scores, labels, soft, shape)
    labels = _class_last(labels, classes) if soft else labels.reshape(-1)
    return Rows(_class_last(scores, classes), labels, soft, shape)


def counted_labels(rows: Rows, weight: Tensor | None, ignore_index: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Labels (N,) with zero for those that are ignored, the weight of each row (N,), and which are ignored (N,).

    Where every row counts once, the weights are None; where no label is known to be ignored, so is the last. A label
    that cannot be looked at, on a GPU, and is not a class gets the weight NaN.
    """
    labels, ignored, wrong = rows.labels.long(), None, None
    dtype, classes = torch.promote_types(rows.scores.dtype, torch.float32), rows.scores.shape[1]
    if not check_label_range(labels, classes, ignore_index):
        ignored = labels == ignore_index
        wrong = ((labels < 0) | (labels >= classes)) & ~ignored
        labels = labels.masked_fill(ignored | wrong, 0)
    weights = None if weight is None else weight.to(dtype)[labels]
    if ignored is not None:
        weights = torch.ones_like(labels, dtype=dtype) if weights is None else weights
        weights = weights.masked_fill(ignored, 0.0).masked_fill(wrong, torch.nan)
    return labels, weights, ignored


def mixture_of_labels(
    rows: Rows, weight: Tensor | None, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor | None]:
    """What the loss of each label counts (N, C), and what each row counts in the mean (N,), None for ones.

    As in cross-entropy: ((1 - ε) q + ε/C) w, where q is one-hot for integer labels, and zero for those ignored.
    Probabilities count once per row in the mean, whatever the weights of the classes.
    """
    classes = rows.scores.shape[1]
    dtype = torch.promote_types(rows.scores.dtype, torch.float32)
    row_weights, ignored, probabilities = None, None, rows.labels
    if not rows.soft:
        labels, row_weights, ignored = counted_labels(rows, weight, ignore_index)
        probabilities = labels[:, None] == torch.arange(classes, device=labels.device)  # one_hot would read values
    mixture = probabilities.to(dtype) * (1 - smoothing) + smoothing / classes
    mixture = mixture if weight is None else mixture * weight.to(dtype)
    return mixture if ignored is None else mixture.masked_fill(ignored[:, None], 0.0), row_weights


def _class_last(tensor: Tensor, classes: int) -> Tensor:
    """(N, C, d1, ...) or (C,) as rows of classes."""
    return (tensor.movedim(1, -1) if tensor.dim() > 1 else tensor).reshape(-1, classes)


def _check_weight(weight: Any, scores: Tensor, classes: int) -> None:
    check_floating_point("weight", weight)
    if tuple(weight.shape) != (classes,):
        raise ValueError(f"weight must have shape ({classes},), one per class, got {tuple(weight.shape)}.")
    if weight.device != scores.device:
        raise RuntimeError(f"weight must be on the device of the scores, {scores.device}, got {weight.device}.")
