"""The smooth and the hard top-k loss: scores (N, C) and labels (N,) in, a loss out, as F.cross_entropy (section 3)."""

import math

import torch
from torch import Tensor, nn

from .eager import softplus
from .row_loss import HALF, row_losses
from .symmetric_polynomials import ALGORITHMS, log_symmetric_polynomials, without_label


def smooth_topk_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    tau: float = 1.0,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    algorithm: str = "auto",
    series_order: int | None = None,
) -> Tensor:
    """The smooth top-k loss L_{k,τ}, eq. (9), a drop-in for `torch.nn.functional.cross_entropy`.

        L = τ log Σ_{ȳ ∈ Y^(k)} exp((α 1(y ∉ ȳ) + Σ_{j ∈ ȳ} s_j / k) / τ) - τ log Σ_{ȳ ∋ y} exp(Σ_{j ∈ ȳ} s_j / (kτ))

    k = 1, tau = 1, margin = 0 is cross-entropy. A score of -inf deletes its class.

    Args:
        scores: (N, C), (C,) or (N, C, d1, ...), any floating dtype; half precision is computed in float32.
        labels: (N,), () or (N, d1, ...), integers in [0, C) or `ignore_index`.
        k: size of the prediction, 1 <= k <= C - 1.
        tau: temperature, positive; as it goes to zero the loss becomes `hard_topk_loss`.
        margin: the paper's α, at least zero.
        weight: (C,) weight of each class, as in cross-entropy ("mean" is the weighted mean).
        ignore_index: a label whose samples do not count.
        reduction: "none", "mean" or "sum".
        algorithm: "auto" and "pivot" are ours, exact and fast; "enumeration", "summation", "divide_and_conquer" and
            "divide_and_conquer_autograd" are the paper's, for study.
        series_order: p of the paper's approximate backward pass ("divide_and_conquer" only); max(1, round(k/5)).

    Returns:
        The loss: a scalar, or the shape of `labels` with reduction "none".

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.5, -1.0]])
        >>> smooth_topk_loss(scores, torch.tensor([2]), k=2, tau=0.1)
        tensor(1.2493)

    Explained in notebooks/02_smoothing_with_tau.
    """
    _check_settings(k, margin, reduction)
    _check_choice("algorithm", algorithm, ALGORITHMS)
    if not (isinstance(tau, (int, float)) and 0 < tau < math.inf):
        raise ValueError(f"tau must be a positive finite number, got {tau!r}.")

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        if algorithm in ("auto", "pivot"):
            return row_losses(rows, row_labels, k, float(tau), float(margin), fused=algorithm == "auto")
        x = _widened(rows) / (k * tau)
        others = without_label(x, row_labels)
        log_sigma = log_symmetric_polynomials(others, k, algorithm=algorithm, series_order=series_order)
        true_x = x.gather(1, row_labels[:, None]).squeeze(1)
        return tau * softplus(margin / tau - true_x + log_sigma[:, k] - log_sigma[:, k - 1])

    return _reduced(losses_of, scores, labels, k, weight, ignore_index, reduction)


def hard_topk_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The top-k hinge loss l_k, eq. (8): max(α + (s_[k] - s_y) / k, 0), where s_[k] is taken over the other classes.

    At most two of its derivatives are non-zero. Arguments as in `smooth_topk_loss`.

    Example:
        >>> hard_topk_loss(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(1.2500)

    Explained in notebooks/01_topk_error_and_hard_loss.
    """
    _check_settings(k, margin, reduction)

    def losses_of(rows: Tensor, row_labels: Tensor) -> Tensor:
        rows, label = _widened(rows), row_labels[:, None]
        kth_score = rows.scatter(1, label, -torch.inf).topk(k).values[:, -1:]
        return torch.relu(margin + (kth_score - rows.gather(1, label)) / k).squeeze(1)

    return _reduced(losses_of, scores, labels, k, weight, ignore_index, reduction)


class SmoothTopKLoss(nn.Module):
    """`smooth_topk_loss` as a module: hyper-parameters only, no tensors but an optional class weight."""

    def __init__(
        self,
        k: int = 5,
        tau: float = 1.0,
        margin: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        algorithm: str = "auto",
        series_order: int | None = None,
    ):
        super().__init__()
        self.k, self.tau, self.margin = k, tau, margin
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction = ignore_index, reduction
        self.algorithm, self.series_order = algorithm, series_order

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return smooth_topk_loss(
            scores,
            labels,
            k=self.k,
            tau=self.tau,
            margin=self.margin,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            algorithm=self.algorithm,
            series_order=self.series_order,
        )

    def extra_repr(self) -> str:
        return f"k={self.k}, tau={self.tau}, margin={self.margin}, reduction={self.reduction!r}"


class HardTopKLoss(nn.Module):
    """`hard_topk_loss` as a module."""

    def __init__(
        self,
        k: int = 5,
        margin: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ):
        super().__init__()
        self.k, self.margin = k, margin
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return hard_topk_loss(
            scores,
            labels,
            k=self.k,
            margin=self.margin,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"k={self.k}, margin={self.margin}, reduction={self.reduction!r}"


def _reduced(losses_of, scores, labels, k, weight, ignore_index, reduction) -> Tensor:
    """What both losses share with cross-entropy: shapes, dtypes, class weights, ignored labels, reduction."""
    classes = _check_tensors(scores, labels, k, weight)
    rows = (scores.movedim(1, -1) if scores.dim() > 1 else scores).reshape(-1, classes)
    labels_of_rows = labels.reshape(-1).long()
    ignored = labels_of_rows == ignore_index
    labels_of_rows = labels_of_rows.masked_fill(ignored, 0)
    _check_label_range(labels_of_rows, classes)
    with torch.autocast(scores.device.type, enabled=False):  # the polynomials need every bit of float32
        losses = losses_of(rows, labels_of_rows)
    losses = losses.masked_fill(ignored, 0.0)
    counts = ~ignored
    if weight is not None:
        counts = counts * weight.to(losses.dtype)[labels_of_rows]
        losses = losses * counts
    if reduction == "none":
        losses = losses.reshape(labels.shape)
    else:
        losses = losses.sum() if reduction == "sum" else losses.sum() / counts.sum()
    return losses if torch.is_autocast_enabled(scores.device.type) else losses.to(scores.dtype)


def _widened(scores: Tensor) -> Tensor:
    """Half precision in float32."""
    return scores.float() if scores.dtype in HALF else scores


def _check_settings(k: int, margin: float, reduction: str) -> None:
    if not isinstance(k, int) or isinstance(k, bool):
        raise TypeError(f"k must be an integer, got {k!r}.")
    if k < 1:
        raise ValueError(f"k must be at least 1, got k={k}.")
    if not (isinstance(margin, (int, float)) and 0 <= margin < math.inf):
        raise ValueError(f"margin must be a finite number, zero or more, got {margin!r}.")
    _check_choice("reduction", reduction, ("none", "mean", "sum"))


def _check_choice(name: str, value: str, choices) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def _check_tensors(scores: Tensor, labels: Tensor, k: int, weight: Tensor | None) -> int:
    """The number of classes, once shapes and dtypes are known to fit."""
    if not (isinstance(scores, Tensor) and scores.is_floating_point()):
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"scores must be a floating-point tensor, got {kind}.")
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integers, got {kind}.")
    if scores.dim() == 0:
        raise ValueError("scores must have shape (N, C), (C,) or (N, C, d1, ...), got a scalar.")
    classes = scores.shape[min(1, scores.dim() - 1)]
    expected = scores.shape[:1] + scores.shape[2:] if scores.dim() > 1 else torch.Size()
    if labels.shape != expected:
        raise ValueError(
            f"labels must have shape {tuple(expected)} for scores of shape {tuple(scores.shape)}, "
            f"got {tuple(labels.shape)}."
        )
    if k > classes - 1:
        raise ValueError(f"k must be between 1 and the number of classes minus one, got k={k} for {classes} classes.")
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ValueError(f"weight must have shape ({classes},), one a class, got {tuple(weight.shape)}.")
    return classes


def _check_label_range(labels: Tensor, classes: int) -> None:
    """On CPU only, where looking at values is free; elsewhere the indexing itself fails, as in cross-entropy."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or labels.device.type != "cpu":
        return
    if labels.numel():
        smallest, largest = (int(bound) for bound in labels.aminmax())
        if smallest < 0 or largest >= classes:
            wrong = smallest if smallest < 0 else largest
            raise ValueError(f"labels must lie in [0, {classes}) or be ignore_index, got the label {wrong}.")
