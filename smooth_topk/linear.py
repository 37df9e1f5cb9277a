"""The smooth loss of a linear classifier without its score matrix: `F.linear` and `smooth_topk_loss` in one function.

The scores of a few rows exist at a time. The forward pass computes the loss of these rows with its gradient, and adds
their part to the gradients of the classifier; the backward pass multiplies by the incoming derivative. With reduction
"none" every row has an incoming derivative of its own, so the backward pass computes the gradients.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .distributed import is_distributed
from .losses import smooth_topk_loss
from .pivot import loss_and_gradient, times
from .targets import (
    Reduction,
    Settings,
    as_rows,
    check_floating_point,
    checked_settings,
    counted_labels,
    whole_number,
    widened,
)
from .torch_internals import is_transformed

SHARE_OF_WEIGHT = 2  # the scores of one chunk take this part of the memory of the classifier's weight
FEWEST_ROWS = 16  # of a chunk, by default: every chunk reads the whole weight


def linear_smooth_topk_loss(
    input: Tensor,
    linear_weight: Tensor,
    labels: Tensor,
    *,
    linear_bias: Tensor | None = None,
    k: int = 5,
    tau: float | Tensor = 1.0,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    chunk_rows: int | None = None,
) -> Tensor:
    """`smooth_topk_loss(F.linear(input, linear_weight, linear_bias), labels, ...)` without its (N, C) scores.

    For many classes: memory beyond inputs and gradients is that of the scores of a few rows. The gradients are
    accumulated in float32 also where the inputs are half precision. Second derivatives, a learned temperature,
    torch.func, DTensors and a `weight` that requires a gradient take the plain functions and their memory.

    Args:
        input: (N, D) or (D,), the features, in the dtype of `linear_weight` or under autocast.
        linear_weight: (C, D), weight of the classifier.
        labels: (N,) or (), integers in [0, C) or `ignore_index`. Class probabilities are refused.
        linear_bias: (C,), bias of the classifier.
        k, tau, margin, weight, ignore_index, reduction: as in `smooth_topk_loss`.
        chunk_rows: rows whose scores exist at a time; by default, as many as make the scores of a chunk half of
            `linear_weight`, and at least 16.

    Returns:
        The loss: a scalar, or the shape of the labels with reduction "none".

    Example:
        >>> features, classifier = torch.ones(2, 3), torch.eye(4, 3)
        >>> linear_smooth_topk_loss(features, classifier, torch.tensor([0, 3]), k=2)
        tensor(1.4489)
    """
    settings = checked_settings(k, tau, margin, ignore_index, reduction, 0.0)
    _check_classifier(input, linear_weight, linear_bias)
    chunk = _rows_of_chunk(input, chunk_rows)
    if isinstance(labels, Tensor) and labels.is_floating_point():
        raise TypeError(f"labels must be a tensor of integers, got {labels.dtype}.")
    needs_composition = isinstance(settings.tau, Tensor) or (weight is not None and weight.requires_grad)
    if needs_composition or is_distributed(input) or is_transformed():
        return _plain_loss(input, linear_weight, linear_bias, labels, weight, settings)
    shape = (*input.shape[:-1], len(linear_weight))
    rows = as_rows(input.new_empty(1).expand(shape), labels, weight, settings.k)  # no memory: only shapes are checked
    _, row_weights, _ = counted_labels(rows, weight, settings.ignore_index)
    divisor = input.new_tensor(rows.labels.numel(), dtype=torch.float32) if row_weights is None else row_weights.sum()
    plan = _Plan(rows.labels, weight, settings, divisor, chunk, *_dtypes(input))
    loss = _chunked(input.reshape(-1, input.shape[-1]), linear_weight, linear_bias, plan)
    return loss.reshape(rows.shape) if reduction == "none" else loss


class LinearSmoothTopKLoss(nn.Module):
    """`linear_smooth_topk_loss` as a module, which is called with input, linear_weight, labels and linear_bias.

    The classifier stays where it is: `loss(features, network.head.weight, labels, network.head.bias)`.
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
        chunk_rows: int | None = None,
    ):
        super().__init__()
        self.k, self.tau, self.margin = k, tau, margin
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.chunk_rows = ignore_index, reduction, chunk_rows

    def forward(
        self, input: Tensor, linear_weight: Tensor, labels: Tensor, linear_bias: Tensor | None = None
    ) -> Tensor:
        return linear_smooth_topk_loss(
            input,
            linear_weight,
            labels,
            linear_bias=linear_bias,
            k=self.k,
            tau=self.tau,
            margin=self.margin,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            chunk_rows=self.chunk_rows,
        )

    def extra_repr(self) -> str:
        return f"k={self.k}, tau={self.tau}, margin={self.margin}, reduction={self.reduction!r}"


class _Plan(NamedTuple):
    """What a chunk is computed with besides features and classifier."""

    labels: Tensor  # (N,) int64
    weight: Tensor | None
    settings: Settings
    divisor: Tensor  # what "mean" divides by
    chunk_rows: int
    dtype: torch.dtype  # of the scores
    loss_dtype: torch.dtype


def _chunked(*arguments: Any) -> Tensor:
    """Runs eagerly in a compiled program; as a decorator, `disable` would load the compiler at import, for seconds."""
    loss = torch.compiler.disable(_LinearLoss.apply) if torch.compiler.is_compiling() else _LinearLoss.apply
    return loss(*arguments)


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None, plan: _Plan) -> Tensor:
        ctx.plan = plan
        needs = ctx.needs_input_grad[:3] if plan.settings.reduction != "none" else (False,) * 3
        loss, gradients = _loss_and_gradients(input, linear_weight, linear_bias, plan, needs)
        ctx.save_for_backward(input, linear_weight, linear_bias, *gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, linear_weight, linear_bias, *gradients = ctx.saved_tensors
        inputs = (input, linear_weight, linear_bias)
        needs, plan = ctx.needs_input_grad[:3], ctx.plan
        if torch.is_grad_enabled():  # this derivative may be differentiated
            wanted = [tensor for tensor, needed in zip(inputs, needs, strict=True) if needed]
            loss = _plain_loss(input, linear_weight, linear_bias, plan.labels, plan.weight, plan.settings)
            found = iter(torch.autograd.grad(loss, wanted, grad.to(loss.dtype), create_graph=True))
            return *(next(found) if needed else None for needed in needs), None
        if plan.settings.reduction == "none":
            _, gradients = _loss_and_gradients(input, linear_weight, linear_bias, plan, needs, grad)
        else:
            gradients = [gradient if gradient is None else times(gradient, grad) for gradient in gradients]
        return *(g if g is None else g.to(tensor.dtype) for g, tensor in zip(gradients, inputs, strict=True)), None


def _loss_and_gradients(
    input: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    plan: _Plan,
    needs: Sequence[bool],
    row_factors: Tensor | None = None,
) -> tuple[Tensor, Sequence[Tensor | None]]:
    """The reduced loss, and its derivatives by input, weight and bias where they are needed, at least float32.

    With reduction "none", `row_factors` (N,) are the incoming derivatives of the losses.
    """
    wide = torch.promote_types(plan.dtype, torch.float32)
    sources = (input, linear_weight, linear_bias)
    gradients = [
        torch.zeros_like(s, dtype=wide) if s is not None and n else None for s, n in zip(sources, needs, strict=True)
    ]
    classifier = linear_weight.to(plan.dtype)
    bias = None if linear_bias is None else linear_bias.to(plan.dtype)
    losses = []
    with torch.autocast(input.device.type, enabled=False):
        for start in range(0, max(1, len(input)), plan.chunk_rows):
            rows = slice(start, start + plan.chunk_rows)
            features = input[rows].to(plan.dtype)
            scores = widened(linear(features, classifier, bias))
            loss, gradient = loss_and_gradient(
                scores, plan.labels[rows], plan.weight, plan.settings, plan.divisor, any(needs)
            )
            losses.append(loss)
            if gradient is not None:
                gradient = gradient if row_factors is None else gradient.mul_(row_factors[rows, None])
                _add_gradients(gradients, rows, gradient, features, classifier)
            del scores, gradient  # before the next ones exist
    loss = torch.cat(losses) if plan.settings.reduction == "none" else torch.stack(losses).sum()
    return loss.to(plan.loss_dtype), gradients


def _add_gradients(
    gradients: list[Tensor | None], rows: slice, gradient: Tensor, features: Tensor, classifier: Tensor
) -> None:
    """Adds the derivatives by input, weight and bias that come from the derivatives by the scores of some rows."""
    by_input, by_weight, by_bias = gradients
    dtype = torch.float32 if features.dtype == torch.float16 else features.dtype  # float16 would underflow
    gradient, features = gradient.to(dtype), features.to(dtype)
    if by_input is not None:
        by_input[rows] = gradient @ classifier.to(dtype)
    if by_weight is not None and by_weight.dtype == dtype:
        by_weight.addmm_(gradient.T, features)
    elif by_weight is not None:
        by_weight += gradient.T @ features
    if by_bias is not None:
        by_bias += gradient.sum(0)


def _plain_loss(
    input: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    labels: Tensor,
    weight: Tensor | None,
    settings: Settings,
) -> Tensor:
    return smooth_topk_loss(
        linear(input, linear_weight, linear_bias),
        labels,
        k=settings.k,
        tau=settings.tau,
        margin=settings.margin,
        weight=weight,
        ignore_index=settings.ignore_index,
        reduction=cast(Reduction, settings.reduction),
    )


def _check_classifier(input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None) -> None:
    """Shapes and dtypes of features and classifier."""
    check_floating_point("input", input)
    check_floating_point("linear_weight", linear_weight)
    if input.ndim not in (1, 2):
        raise ValueError(f"input must be (N, D) or (D,), got shape {tuple(input.shape)}.")
    if linear_weight.ndim != 2 or linear_weight.shape[1] != input.shape[-1]:
        raise ValueError(f"linear_weight must be (C, {input.shape[-1]}), got shape {tuple(linear_weight.shape)}.")
    if linear_bias is not None and linear_bias.shape != linear_weight.shape[:1]:
        raise ValueError(f"linear_bias must be ({len(linear_weight)},), got shape {tuple(linear_bias.shape)}.")
    if input.dtype != linear_weight.dtype and not _autocasts(input):
        raise TypeError(f"linear_weight must have the dtype of the input, {input.dtype}, got {linear_weight.dtype}.")


def _rows_of_chunk(input: Tensor, chunk_rows: int | None) -> int:
    if chunk_rows is None:
        return max(FEWEST_ROWS, input.shape[-1] // SHARE_OF_WEIGHT)
    if whole_number("chunk_rows", chunk_rows) < 1:
        raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows}.")
    return int(chunk_rows)


def _dtypes(input: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """The dtype of the scores, and of the loss: those of `F.linear` and `smooth_topk_loss`."""
    if not _autocasts(input) or input.dtype == torch.float64:
        return input.dtype, input.dtype
    dtype = torch.get_autocast_dtype(input.device.type)
    return dtype, torch.promote_types(dtype, torch.float32)


def _autocasts(tensor: Tensor) -> bool:
    kind = tensor.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
