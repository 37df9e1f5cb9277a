"""Runs the Numba kernels for k up to 16 on CPU tensors: scores (N, C), labels (N,) in, the loss and its gradient out.

With few classes, calls of torch cost more than the kernels. So one call does everything: it checks labels, leaves out
ignored ones, weighs the rows and reduces. The state of a batch is one tensor, O(k) numbers per row.
"""

import ctypes
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from ..arguments import widened
from ..rows import Rows, counted_labels
from ..settings import Settings
from .composition import differentiable_gradient, is_transformed
from .margins import binary_scale
from .numba_runtime import (
    NUMBA_INSTALLED,
    Kernels,
    check_labels,
    check_unpacked,
    has_address,
    in_parallel,
    load_kernels,
)
from .torch_backend import working_dtype

LARGEST_K = 16  # beyond, the kernels of numba_large_k.py are faster
SERIAL_ELEMENTS = 1 << 14  # so many scores, or fewer, are faster on one thread
LARGEST_BATCH = 128  # rows whose k numbers are worked on together: a few vectors each
STATE_ELEMENTS = 1 << 12  # k (k + 1) numbers per row of a batch stay in cache
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}  # as the kernels number them
NO_LABEL = -(1 << 63)  # the ignore_index of a caller who ignores nothing


def supports(scores: Tensor, k: int) -> bool:
    """Whether the kernels take these scores: numbers in the CPU's memory, k up to 16, and Numba works."""
    if k > LARGEST_K or not NUMBA_INSTALLED or not has_address(scores):
        return False
    return _kernels(scores.dtype, k) is not None


def fused_loss(scores: Tensor, labels: Tensor, weight: Tensor | None, settings: Settings) -> Tensor | None:
    """The reduced loss as one autograd function; None where the kernels cannot take the tensors, or nothing is there.

    Args:
        scores: (N, C), float32 or float64.
        labels: (N,), any integers; a label that is neither a class nor ignored raises IndexError.
        weight: (C,) weight of each class, or None.
        settings: tau is a number.
    """
    if not has_address(labels) or is_transformed() or not supports(scores, settings.k) or not len(labels):
        return None
    if weight is not None and (weight.requires_grad or weight.dtype != scores.dtype or not has_address(weight)):
        return None
    return FusedLoss.apply(scores, labels.long(), weight, settings)


class FusedLoss(torch.autograd.Function):
    """Scores to reduced loss in one node; a derivative of the derivative comes from the composition."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, weight: Tensor | None, settings: Settings) -> Tensor:
        loss, ctx.state = _forward(scores, labels, weight, settings)  # not saved: hooks change what is saved
        ctx.save_for_backward(scores, labels, weight)
        ctx.settings, ctx.shape = settings, scores.shape
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, labels, weight = ctx.saved_tensors
        check_unpacked(scores, ctx.shape)
        k, tau, margin, ignore_index, reduction, *_ = ctx.settings
        if torch.is_grad_enabled() or not has_address(scores):  # may be differentiated in turn, recorded or faked
            rows = Rows(scores, labels, False, labels.shape)
            labels, row_weights, _ = counted_labels(rows, weight, ignore_index)
            gradient = differentiable_gradient(scores, labels, row_weights, grad, reduction, k, tau, margin)
        elif torch._C._functorch.is_legacy_batchedtensor(grad):  # is_grads_batched: several derivatives at once
            ones = scores.new_ones(len(scores) if reduction == "none" else ())
            unit = _backward(scores, ctx.state, ones, ctx.settings)
            gradient = unit * (grad[:, None] if reduction == "none" else grad)
        else:
            gradient = _backward(scores, ctx.state, grad, ctx.settings)
        return gradient, None, None, None


def forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
    """Losses (N,) of scores (N, C), and the state; a label outside [0, C) raises IndexError."""
    check_labels(scores, labels)
    return _forward(widened(scores), labels.to(torch.int64), None, _settings(k, tau, margin))


def backward(scores: Tensor, state: tuple[Tensor, ...], grad_loss: Tensor, k: int, tau: float) -> Tensor:
    """Derivatives by the scores, (N, C)."""
    return _backward(widened(scores), state[0], grad_loss, _settings(k, tau, 0.0))


def _settings(k: int, tau: float, margin: float) -> Settings:
    """Those of a caller who ignores no label and reduces nothing."""
    return Settings(k, tau, margin, ignore_index=NO_LABEL, reduction="none", label_smoothing=0.0)


def _forward(scores: Tensor, labels: Tensor, weight: Tensor | None, settings: Settings) -> tuple[Tensor, Tensor]:
    """The loss, one number or (N,), and the state of the batch."""
    rows = len(scores)
    scores, labels = scores.contiguous(), labels.contiguous()
    loss = scores.new_empty(rows if settings.reduction == "none" else ())
    state = torch.empty(rows * (3 * settings.k + 5) + 1, dtype=torch.float64, device="cpu")  # whatever the default is
    kernels, task = _task(scores, state, settings)
    task.labels, task.loss = labels.data_ptr(), loss.data_ptr()
    if weight is not None:
        weight = weight.contiguous()
        task.weight = weight.data_ptr()
    in_parallel(kernels.forward, ctypes.byref(task), _threads(scores))
    if task.wrong_row >= 0:
        wrong = int(labels[task.wrong_row])
        raise IndexError(f"labels must lie in [0, {scores.shape[1]}) or be ignore_index, got the label {wrong}.")
    return loss, state


def _backward(scores: Tensor, state: Tensor, grad: Tensor, settings: Settings) -> Tensor:
    scores = scores.contiguous()
    gradient = torch.empty_like(scores)
    if not has_address(grad) or grad.dtype != scores.dtype or (grad.dim() and not grad.is_contiguous()):
        numbers = torch.empty(grad.shape, dtype=scores.dtype, device="cpu")
        numbers.copy_(grad)
        grad = numbers
    kernels, task = _task(scores, state, settings)
    task.grad, task.grad_stride, task.gradient = grad.data_ptr(), int(grad.numel() > 1), gradient.data_ptr()
    in_parallel(kernels.backward, ctypes.byref(task), _threads(scores))
    return gradient


def _threads(scores: Tensor) -> int:
    return min(torch.get_num_threads(), len(scores)) if scores.numel() > SERIAL_ELEMENTS else 1


def _task(scores: Tensor, state: Tensor, settings: Settings) -> tuple[Kernels, Any]:
    """The kernels, and what both passes tell them; every thread takes rows of the task until none are left."""
    kernels, template = _template(scores.dtype, scores.shape[1], settings)
    task = type(template).from_buffer_copy(template)
    task.rows, task.scores, task.state = len(scores), scores.data_ptr(), state.data_ptr()
    return kernels, task


@lru_cache(maxsize=64)
def _template(dtype: torch.dtype, classes: int, settings: Settings) -> tuple[Kernels, Any]:
    kernels = _kernels(dtype, settings.k)
    assert kernels is not None
    k, tau, margin, ignore_index, reduction, *_ = settings
    assert not isinstance(tau, Tensor)
    task = kernels.task(
        wrong_row=-1,
        classes=classes,
        k=k,
        batch=max(1, min(LARGEST_BATCH, SERIAL_ELEMENTS // classes, STATE_ELEMENTS // (k * (k + 1)))),
        ignore_index=ignore_index,
        reduction=REDUCTIONS[reduction],
        scale=binary_scale(k, tau, dtype),
        tau=tau,
        margin=margin,
    )
    return kernels, task


@cache
def _kernels(dtype: torch.dtype, k: int) -> Kernels | None:
    working = working_dtype(dtype, k)
    if working is None:
        return None
    return load_kernels("numba_kernels", torch.promote_types(dtype, torch.float32), working)
