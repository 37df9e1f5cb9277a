"""What the losses of the family share: the checks of their arguments, the true score and the others, the reduction.

Scores (N, C) and labels (N,) in; a function of rows gives one loss per sample (N,); a reduced loss out.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
REDUCTIONS = ("none", "mean", "sum")

RowLosses = Callable[[Tensor, Tensor], Tensor]


def reduced(losses_of: RowLosses, scores: Tensor, labels: Tensor, reduction: str, *, k: int = 1) -> Tensor:
    """Returns losses_of(scores, labels), (N,), reduced as in cross-entropy, once the arguments are known to fit.

    Half precision is computed in float32, because sums of exponentials and differences of close scores need its digits.

    Args:
        losses_of: called with scores (N, C) in float32 or float64 and labels (N,) in int64.
        scores: (N, C) floating-point.
        labels: (N,) integers in [0, C).
        reduction: "none", "mean" or "sum".
        k: size of the prediction, which must leave at least one class out.
    """
    check_choice("reduction", reduction, REDUCTIONS)
    _check_tensors(scores, labels, k)
    with torch.autocast(scores.device.type, enabled=False):
        rows = scores.float() if scores.dtype in HALF else scores
        losses = losses_of(rows, labels.long())
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.mean()


def true_score(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns the score of each label, (N,)."""
    return scores.gather(1, labels[:, None]).squeeze(1)


def others(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns the scores (N, C) with -inf in place of the label's, so that the label is never among the largest."""
    return scores.scatter(1, labels[:, None], -torch.inf)


def softplus(z: Tensor) -> Tensor:
    """log(1 + exp z) to full precision; torch's own softplus switches to z above 20."""
    return -torch.nn.functional.logsigmoid(-z)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_number(name: str, value: float, low: float, high: float = math.inf, *, low_included: bool = False) -> None:
    """Raises a sentence unless low < value <= high, or low <= value with `low_included`; infinity never fits."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if is_number and value <= high and (value > low or (low_included and value == low)):
        return
    bound = f"at least {low:g}" if low_included else f"above {low:g}"
    limit = f" and at most {high:g}" if math.isfinite(high) else ""
    raise ValueError(f"{name} must be a finite number {bound}{limit}, got {value!r}.")


def _check_tensors(scores: Tensor, labels: Tensor, k: int) -> None:
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"scores must be a floating-point tensor, got {kind}.")
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integers, got {kind}.")
    if scores.dim() != 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            f"scores must have shape (N, C) and labels shape (N,), got {tuple(scores.shape)} and {tuple(labels.shape)}."
        )
    classes = scores.shape[1]
    if not isinstance(k, int) or isinstance(k, bool):
        raise TypeError(f"k must be an integer, got {k!r}.")
    if not 1 <= k <= classes - 1:
        raise ValueError(f"k must be between 1 and the number of classes minus one, got k={k} for {classes} classes.")
    if labels.device.type == "cpu" and labels.numel():  # elsewhere, looking at values would stall the device
        smallest, largest = (int(bound) for bound in labels.aminmax())
        if smallest < 0 or largest >= classes:
            wrong = smallest if smallest < 0 else largest
            raise ValueError(f"labels must lie in [0, {classes}), got the label {wrong}.")
