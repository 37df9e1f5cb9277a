"""The smooth and the hard top-k loss: scores (N, C) and labels (N,) in, a loss out, as F.cross_entropy (section 3)."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from .distributed import is_distributed, loss_on_mesh
from .pivot import pivot_loss
from .pivot.every_label import losses_of_every_label
from .polynomials import log_symmetric_polynomials, without_label
from .targets import (
    Algorithm,
    Backend,
    Reduction,
    Rows,
    Settings,
    as_rows,
    checked_settings,
    counted_labels,
    mixed,
    mixture_of_labels,
    reduced,
    widened,
    without_ignored,
)


def smooth_topk_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    tau: float | Tensor = 1.0,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    algorithm: Algorithm = "pivot",
    series_order: int | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """The smooth top-k loss L_{k,τ}, eq. (9), a drop-in for `torch.nn.functional.cross_entropy`.

        L = τ log Σ_{ȳ ∈ Y^(k)} exp((α 1(y ∉ ȳ) + Σ_{j ∈ ȳ} s_j / k) / τ)
          - τ log Σ_{ȳ ∋ y} exp(Σ_{j ∈ ȳ} s_j / (kτ))

    Start with the k you are judged by, tau = 1 and margin = 1. No derivative exceeds 1/k: with SGD take at least k
    times the learning rate of cross-entropy and its weight decay divided by k; with AdamW keep both; with Adam keep the
    rate and divide the decay by k.

    With k = 1, tau = 1 and margin = 0 this is cross-entropy. A score of -inf deletes its class. A score of +inf or NaN
    makes the loss of its row NaN, as in cross-entropy. A label out of range raises IndexError on the CPU; on a GPU,
    where looking at it would stall the device, the loss of its row is NaN.

    Args:
        scores: (N, C), (C,) or (N, C, d1, ...), any floating dtype; half precision is computed in float32.
        labels: (N,), () or (N, d1, ...), integers in [0, C) or `ignore_index`; or class probabilities q in the shape
            of the scores (MixUp, CutMix), whose loss is Σ_y q_y L(s, y).
        k: size of the prediction, 1 <= k <= C - 1.
        tau: temperature, positive. As it goes to zero the loss becomes `hard_topk_loss`. If it is a tensor that
            requires a gradient, it gets one, which takes a slower path.
        margin: the paper's α, at least zero.
        weight: (C,) weight of each class, as in cross-entropy ("mean" is the weighted mean).
        ignore_index: samples with this label do not count.
        reduction: "none", "mean" or "sum".
        label_smoothing: share of the label's probability that is spread over all classes, as in cross-entropy. Label
            smoothing and class probabilities need the loss of every class in float64, O(C k) operations for k up to 8
            and O(C k log k) beyond, which is many times slower than the loss of one label.
        algorithm: "pivot" is accurate to rounding. "enumeration", "summation", "divide_and_conquer" and
            "divide_and_conquer_autograd" are the paper's algorithms, for study.
        series_order: p of the paper's approximate backward pass ("divide_and_conquer" only); by default
            max(1, round(k/5)).
        backend: where the pivot algorithm runs: "torch", "numba" (CPU), "triton" (GPU), or "auto", the fastest one
            that is installed and works for these scores.

    Returns:
        The loss: a scalar, or the shape of integer labels with reduction "none".

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.5, -1.0]])
        >>> smooth_topk_loss(scores, torch.tensor([2]), k=2, tau=0.1)
        tensor(1.2493)

    Explained in notebooks/02_smoothing_with_tau.
    """
    if algorithm in ("auto", "numba", "triton"):
        algorithm, backend = _deprecated(algorithm, backend)
    settings = checked_settings(
        k, tau, margin, ignore_index, reduction, label_smoothing, algorithm, series_order, backend
    )  # fmt: skip
    return _loss(_smooth_loss, scores, labels, weight, settings)


def hard_topk_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The top-k hinge loss l_k, eq. (8): max(α + (s_[k] - s_y) / k, 0), where s_[k] is taken over the other classes.

    At most two of its derivatives are non-zero. The arguments are those of `smooth_topk_loss`. A NaN makes the loss of
    its row NaN. The loss is zero where fewer than k other classes exist.

    Example:
        >>> hard_topk_loss(torch.tensor([[2.0, 1.0, 0.5, -1.0]]), torch.tensor([2]), k=2)
        tensor(1.2500)

    Explained in notebooks/01_topk_error_and_hard_loss.
    """
    settings = checked_settings(k, 1.0, margin, ignore_index, reduction, label_smoothing)
    return _loss(_hard_loss, scores, labels, weight, settings)


class SmoothTopKLoss(nn.Module):
    """`smooth_topk_loss` as a module. It holds hyper-parameters and, if given, a class weight.

    A temperature that is a tensor moves with the module. To learn one, learn its logarithm, which keeps it positive,

        log_tau = nn.Parameter(torch.zeros(()))
        loss = smooth_topk_loss(scores, labels, tau=log_tau.exp()) + penalty(log_tau)

    and add a penalty: the loss usually grows with τ, so that a temperature that follows its gradient alone falls to
    zero. Learning it takes the differentiable composition, which is many times slower.
    """

    weight: Tensor | None

    def __init__(
        self,
        k: int = 5,
        tau: float | Tensor = 1.0,
        margin: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        algorithm: Algorithm = "pivot",
        series_order: int | None = None,
        backend: Backend = "auto",
    ):
        super().__init__()
        self.k, self.margin = k, margin
        if isinstance(tau, Tensor) and not isinstance(tau, nn.Parameter):
            self.register_buffer("tau", tau, persistent=False)
        else:
            self.tau = tau
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing
        self.algorithm, self.series_order, self.backend = algorithm, series_order, backend

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
            label_smoothing=self.label_smoothing,
            algorithm=self.algorithm,
            series_order=self.series_order,
            backend=self.backend,
        )

    def extra_repr(self) -> str:
        return f"k={self.k}, tau={self.tau}, margin={self.margin}, reduction={self.reduction!r}"


class HardTopKLoss(nn.Module):
    """`hard_topk_loss` as a module."""

    weight: Tensor | None

    def __init__(
        self,
        k: int = 5,
        margin: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ):
        super().__init__()
        self.k, self.margin = k, margin
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return hard_topk_loss(
            scores,
            labels,
            k=self.k,
            margin=self.margin,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        return f"k={self.k}, margin={self.margin}, reduction={self.reduction!r}"


def _loss(
    compute: Callable[[Rows, Tensor | None, Settings], Tensor],
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    settings: Settings,
) -> Tensor:
    """What both losses share with cross-entropy: shapes, device meshes, autocast, the dtype of the result."""
    if is_distributed(scores):
        return loss_on_mesh(partial(_loss, compute), scores, labels, weight, settings, merges=compute is _smooth_loss)
    rows = as_rows(scores, labels, weight, settings.k)
    if _autocasts(scores):  # the polynomials need every bit of float32
        with torch.autocast(scores.device.type, enabled=False):
            loss = compute(rows, weight, settings)
    else:
        loss = compute(rows, weight, settings).to(scores.dtype)
    return loss if settings.reduction != "none" or loss.shape == rows.shape else loss.reshape(rows.shape)


def _smooth_loss(rows: Rows, weight: Tensor | None, settings: Settings) -> Tensor:
    """L_{k,τ}, reduced: dispatch to soft labels, the pivot algorithm, or the paper's algorithms."""
    k, tau, margin, ignore_index, reduction, smoothing, algorithm, series_order, _ = settings
    if rows.soft or smoothing:
        if algorithm != "pivot":
            raise ValueError(f"Soft labels need algorithm 'pivot', got {algorithm!r}.")
        mixture, row_weights = mixture_of_labels(rows, weight, ignore_index, smoothing)
        spoilt = ~(rows.scores.detach().amax(1) < torch.inf)  # a row that counts nothing may hold anything
        scores = rows.scores.masked_fill(((mixture == 0).all(1) & spoilt)[:, None], 0.0)
        return mixed(losses_of_every_label(scores, k, tau, margin), mixture, row_weights, reduction)
    if algorithm == "pivot":
        return pivot_loss(widened(rows.scores), rows.labels, weight, settings)
    labels, row_weights, _ = counted_labels(rows, weight, ignore_index)
    scores = without_ignored(rows.scores, row_weights)
    losses = _losses_by_the_paper(scores, labels, k, tau, margin, algorithm, series_order)
    return reduced(losses, row_weights, reduction)


def _deprecated(algorithm: str, backend: str) -> tuple[Algorithm, Backend]:
    """What algorithm "auto", "numba" or "triton" means now: the pivot algorithm, and a backend."""
    name = backend if algorithm == "auto" else algorithm
    warnings.warn(
        f"algorithm={algorithm!r} is deprecated: use algorithm='pivot' with backend={name!r}.",
        DeprecationWarning,
        stacklevel=3,
    )
    return "pivot", cast(Backend, name)


def _hard_loss(rows: Rows, weight: Tensor | None, settings: Settings) -> Tensor:
    """l_k, reduced."""
    losses = _hard_losses_of_every_label(widened(rows.scores), settings.k, settings.margin)
    if rows.soft or settings.label_smoothing:
        mixture, row_weights = mixture_of_labels(rows, weight, settings.ignore_index, settings.label_smoothing)
        return mixed(losses, mixture, row_weights, settings.reduction)
    labels, row_weights, _ = counted_labels(rows, weight, settings.ignore_index)
    return reduced(losses.gather(1, labels[:, None])[:, 0], row_weights, settings.reduction)


def _losses_by_the_paper(
    scores: Tensor,
    labels: Tensor,
    k: int,
    tau: float | Tensor,
    margin: float,
    algorithm: str,
    series_order: int | None,
) -> Tensor:
    """Losses (M,) from log σ_k and log σ_{k-1}, the last line of eq. (10), with one of the paper's algorithms."""
    x = widened(scores) / (k * tau)
    log_sigma = log_symmetric_polynomials(without_label(x, labels), k, algorithm=algorithm, series_order=series_order)
    true_x = x.gather(1, labels[:, None]).squeeze(1)
    finite = scores.detach().amax(1) < torch.inf  # false for NaN
    losses = -tau * logsigmoid(true_x - margin / tau + log_sigma[:, k - 1] - log_sigma[:, k])
    return losses * torch.where(finite, 1.0, torch.nan)


def _hard_losses_of_every_label(scores: Tensor, k: int, margin: float) -> Tensor:
    """max(α + (s_[k] - s_y) / k, 0) (M, C), where s_[k] is the k-th largest score of the classes other than y."""
    *_, kth, next_one = scores.topk(k + 1).values.split(1, 1)
    kth_of_others = torch.where(scores >= kth, next_one, kth)
    half = kth_of_others / 2 - scores / 2  # the difference itself may be too large for its dtype
    losses = torch.relu(margin + half / (k / 2))
    losses = torch.where(kth_of_others == -torch.inf, 0.0, losses)  # fewer than k other classes exist
    finite = scores.detach().amax(1, keepdim=True) < torch.inf  # false for NaN: loss and derivatives of the row are NaN
    spoilt = torch.where(finite, 0.0, torch.nan) * scores.nan_to_num(0.0, 0.0, 0.0)
    return losses + spoilt.sum(1, keepdim=True)


def _autocasts(scores: Tensor) -> bool:
    kind = scores.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
