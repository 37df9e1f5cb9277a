"""Launches the Triton kernel: loss and gradient in one pass, weighted and, but for the sum over the rows, reduced.

Triton is an optional extra: it is imported when the kernel is first launched. On first use per device and dtype, the
kernel is compared with plain torch; after an exception or a difference, one warning says so, and plain torch is used.
A label outside [0, C) makes the loss and the gradient of its row NaN: raising would wait for the GPU.
"""

import contextlib
import os
import warnings
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from ..targets import Settings
from ..torch_internals import holds_numbers
from . import torch_backend
from .margins import binary_scale
from .torch_backend import working_dtype

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OPTIONS = {"enable_fp_fusion": True}  # Horner's rule is all multiply-adds; Triton 3.10 would no longer fuse them
TRITON_INSTALLED = find_spec("triton") is not None
ALLOWED = 2e-6  # relative error of the check on first use: some roundings of float32, and no wrong formula
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes")


class Launch(NamedTuple):
    """How a row is cut up."""

    block: int  # classes worked on at a time
    warps: int


def is_available(device: torch.device | str) -> bool:
    """Whether the kernels can run on tensors of this device: CUDA with Triton, or the CPU under TRITON_INTERPRET=1."""
    kind = torch.device(device).type
    return TRITON_INSTALLED and (kind == "cuda" or (kind == "cpu" and INTERPRETED))


def supports(scores: Tensor, k: int) -> bool:
    """Whether the kernels take these scores: their device, their dtype, a small k, and the check on first use."""
    if scores.dtype not in DTYPES or not is_available(scores.device) or working_dtype(scores.dtype, k) is None:
        return False
    return holds_numbers(scores) and _works(scores.device, scores.dtype)


@cache
def _works(device: torch.device, dtype: torch.dtype) -> bool:
    """Compares loss and gradient of a small batch with plain torch, once per device and dtype; warns if they differ."""
    rows = torch.arange(4.0).sin()[:, None] * 3
    scores = (rows + (torch.arange(70.0) ** 2).cos() * 4).to(dtype)  # ties, rounded numbers, no order
    labels = torch.tensor([3, 69, -100, 0])
    settings = Settings(k=5, tau=0.5, margin=1.0, ignore_index=-100, reduction="mean", label_smoothing=0.0)
    expected = torch_backend.loss_and_gradient(scores.float(), labels, None, settings)
    try:
        found = loss_and_gradient(scores.to(device), labels.to(device), None, settings)
        pairs = [(a.cpu(), b) for a, b in zip(found, expected, strict=True) if a is not None and b is not None]
        errors = [((a - b).abs().max() / b.abs().max()).item() for a, b in pairs]
        allowed = ALLOWED if dtype == torch.float32 else torch.finfo(dtype).eps
        if max(errors) <= allowed:
            return True
        reason = f"an error of {max(errors):.1e}, more than {allowed:.1e}"
    except Exception as error:  # whatever a compiler or a driver may raise
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"The Triton kernels of smooth_topk do not work on {device} with {dtype}, so plain torch is used instead: "
        f"{reason}.",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    settings: Settings,
    normaliser: Tensor | None = None,
    needs_gradient: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """See `smooth_topk.pivot.loss_and_gradient`."""
    k, tau, margin, ignore_index, reduction, *_ = settings
    rows, classes = scores.shape
    divisor = normaliser
    if reduction == "mean" and normaliser is None:
        divisor = _sum_of_weights(labels, weight, ignore_index, classes)
    losses = scores.new_empty(rows, dtype=torch.float32)
    gradient = torch.empty_like(scores, memory_format=torch.contiguous_format) if needs_gradient else None
    if rows:
        from .triton_kernels import loss_kernel

        block, warps = launch(classes)
        nothing = losses  # stands for a tensor that the kernel does not read
        with _on_device_of(scores):
            loss_kernel[(rows,)](
                scores, labels, nothing if weight is None else weight.contiguous(),
                divisor if reduction == "mean" else nothing, losses, losses if gradient is None else gradient,
                classes, *scores.stride(), labels.stride(0), ignore_index,
                binary_scale(k, float(tau), torch.float32), tau, margin, k=k, lanes=power_of_two(k + 1),
                block=block, working=_triton_dtype(k),
                weighted=weight is not None, mean=reduction == "mean", needs_gradient=needs_gradient, num_warps=warps,
                **OPTIONS,
            )  # fmt: skip
    if reduction == "none":
        return losses, gradient
    return (losses.sum() / divisor if divisor is not None and reduction == "mean" else losses.sum()), gradient


def _sum_of_weights(labels: Tensor, weight: Tensor | None, ignore_index: int, classes: int) -> Tensor:
    """What "mean" divides by (); a label that is not a class counts nothing, its loss is NaN anyway."""
    counted = (labels != ignore_index) & (labels >= 0) & (labels < classes)
    return counted.sum().float() if weight is None else (weight.float()[labels * counted] * counted).sum()


def launch(classes: int) -> Launch:
    """Blocks of up to 4,096 classes; 16 scores a thread at most, so that a block and its powers stay in registers."""
    block = min(power_of_two(classes), 4096)
    return Launch(block, warps=min(max(block // 256, 1), 8))


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def _triton_dtype(k: int):
    import triton.language as tl

    return tl.float32 if working_dtype(torch.float32, k) == torch.float32 else tl.float64


def _on_device_of(scores: Tensor) -> contextlib.AbstractContextManager:
    """Triton launches on the current device, which need not be the tensors' own."""
    return torch.cuda.device(scores.device) if scores.is_cuda else contextlib.nullcontext()
