"""Launches the Triton kernels: scores (N, C) and labels (N,) in, losses (N,) and a state out, then the gradient.

The state is O(k) numbers per row: the k-th largest other score (N, 1), the coefficients of the tail's polynomial
(N, k), the head's classes and the label (N, k + 1), and their derivatives (N, k + 1). Triton is an optional extra: it
is imported when a kernel is first launched. Under torch.compile each launch is one operator, whose inside the compiler
does not enter. A label outside [0, C) makes the loss and the gradient of its row NaN: raising would wait for the GPU.
"""

import contextlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from ..targets import Rows, Settings, counted_labels, reduced, row_factors, without_ignored
from .margins import binary_scale
from .torch_backend import working_dtype

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OPTIONS = {"enable_fp_fusion": True}  # Horner's rule is all multiply-adds; Triton 3.10 would no longer fuse them
TRITON_INSTALLED = find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes")

State = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # losses, pivots, tails, indices, heads


class Launch(NamedTuple):
    """How a row is cut up."""

    block: int  # classes worked on at a time
    warps: int


def is_available(device: torch.device | str) -> bool:
    """Whether the kernels can run on tensors of this device: CUDA with Triton, or the CPU under TRITON_INTERPRET=1."""
    kind = torch.device(device).type
    return TRITON_INSTALLED and (kind == "cuda" or (kind == "cpu" and INTERPRETED))


def supports(scores: Tensor, k: int) -> bool:
    """Whether the kernels take these scores: their device, their dtype, and a k that torch_backend takes."""
    if scores.dtype not in DTYPES or not is_available(scores.device) or working_dtype(scores.dtype, k) is None:
        return False
    return type(scores) in (Tensor, torch.nn.Parameter) or torch.compiler.is_compiling()


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
    assert not isinstance(tau, Tensor)
    labels, row_weights, _ = counted_labels(Rows(scores, labels, False, labels.shape), weight, ignore_index)
    losses, *state = forward(scores, labels, k, tau, margin)
    gradient = None
    if needs_gradient:
        factors = row_factors(scores, row_weights, reduction, normaliser)
        gradient = without_ignored(backward(scores, tuple(state), factors, k, tau), row_weights)
    return reduced(losses, row_weights, reduction, normaliser), gradient


def forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> State:
    """Losses (N,) in float32 and the four tensors of the state; scores (N, C), any strides; labels (N,), int64."""
    launch = forward_operator if torch.compiler.is_compiling() else _launch_forward
    return launch(scores, labels, k, tau, margin)


def backward(scores: Tensor, state: tuple[Tensor, ...], grad_loss: Tensor, k: int, tau: float) -> Tensor:
    """Derivatives (N, C) in the scores' dtype, from the state of `forward` and the derivatives of the losses, (N,)."""
    launch: Callable[..., Tensor] = backward_operator if torch.compiler.is_compiling() else _launch_backward
    return launch(scores, *state, grad_loss, k, tau)


def _launch_forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> State:
    outputs = losses, _, tails, *_ = _empty_state(scores, labels, k, tau, margin)
    if len(losses):
        from .triton_kernels import forward_kernel

        block, warps = forward_launch(scores.shape[1])
        with _on_device_of(scores):
            forward_kernel[(len(losses),)](
                scores, labels, *outputs,
                scores.shape[1], *scores.stride(), labels.stride(0), binary_scale(k, tau, torch.float32), tau, margin,
                k=k, lanes=power_of_two(k), block=block, working=_triton_dtype(tails), num_warps=warps, **OPTIONS,
            )  # fmt: skip
    return outputs


def _launch_backward(
    scores: Tensor, pivot: Tensor, tail: Tensor, index: Tensor, head: Tensor, grad_loss: Tensor, k: int, tau: float
) -> Tensor:
    rows, classes = scores.shape
    gradient = torch.empty_like(scores, memory_format=torch.contiguous_format)
    if rows:
        from .triton_kernels import backward_kernel

        block, warps = backward_launch(classes)
        with _on_device_of(scores):
            backward_kernel[(rows, -(-classes // block))](
                scores, grad_loss, pivot, tail, index, head, gradient,
                classes, *scores.stride(), grad_loss.stride(0), *gradient.stride(), binary_scale(k, tau, torch.float32),
                k=k, lanes=power_of_two(k + 1), block=block, working=_triton_dtype(tail), num_warps=warps, **OPTIONS,
            )  # fmt: skip
    return gradient


def _empty_state(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> State:
    rows, new = len(scores), scores.new_empty
    tail_dtype = working_dtype(torch.float32, k)
    return (
        new(rows, dtype=torch.float32),
        new(rows, 1, dtype=torch.float32),
        new(rows, k, dtype=tail_dtype),
        new(rows, k + 1, dtype=torch.int64),
        new(rows, k + 1, dtype=torch.float32),
    )


forward_operator = torch.library.custom_op("smooth_topk::triton_forward", _launch_forward, mutates_args=())
forward_operator.register_fake(_empty_state)
backward_operator = torch.library.custom_op("smooth_topk::triton_backward", _launch_backward, mutates_args=())
backward_operator.register_fake(lambda scores, *_: torch.empty_like(scores, memory_format=torch.contiguous_format))


def forward_launch(classes: int) -> Launch:
    """Blocks of up to 4,096 classes; 16 scores a thread at most, so that a block and its powers stay in registers."""
    block = min(power_of_two(classes), 4096)
    return Launch(block, warps=min(max(block // 256, 1), 8))


def backward_launch(classes: int) -> Launch:
    """Blocks of up to 1,024 classes: many programs, for there is nothing to share along a row."""
    block = min(power_of_two(classes), 1024)
    return Launch(block, warps=min(max(block // 256, 1), 4))


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def _triton_dtype(tail: Tensor):
    import triton.language as tl

    return tl.float32 if tail.dtype == torch.float32 else tl.float64


def _on_device_of(scores: Tensor) -> contextlib.AbstractContextManager:
    """Triton launches on the current device, which need not be the tensors' own."""
    return torch.cuda.device(scores.device) if scores.is_cuda else contextlib.nullcontext()
