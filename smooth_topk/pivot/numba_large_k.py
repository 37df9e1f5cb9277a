"""Runs the Numba kernels for large k on CPU tensors: the results of torch_large_k.py, for any k from 1 to n - 1."""

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from ..arguments import widened
from .margins import binary_scale
from .numba_runtime import NUMBA_INSTALLED, check_labels, check_unpacked, has_address, in_parallel, load_kernels

SERIAL_OPERATIONS = 1 << 17  # so many multiplications, or fewer, are faster on one thread


class RowState(NamedTuple):
    """What the backward pass needs beside the scores: 3k + 3 numbers in float64 and the label, per row."""

    labels: Tensor  # (N,) int64
    balance: Tensor  # (N, 4) the pivot s_[k], the factor of the odds, sigmoid(z)/k, the number of classes in the head
    tail: Tensor  # (N, k) coefficients of the tail's derivatives
    head: Tensor  # (N, 2k - 1) coefficients of the head's derivatives


def supports(scores: Tensor, k: int) -> bool:
    """Whether the kernels take these scores: any k, numbers in the CPU's memory, and Numba works."""
    if not NUMBA_INSTALLED or not has_address(scores) or not scores.is_floating_point():
        return False
    return load_kernels("numba_large_k_kernels", torch.promote_types(scores.dtype, torch.float32)) is not None


def forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
    """Losses (N,) of scores (N, C), and the four tensors of a RowState; half precision is computed in float32.

    A row that holds a NaN or +inf has the loss NaN, and the loss is zero where fewer than k other classes are finite.
    """
    rows, classes = scores.shape
    if not 1 <= k < classes:
        raise ValueError(f"k must be between 1 and the number of classes minus one, got k={k} for {classes} classes.")
    check_labels(scores, labels)
    scores = widened(scores).contiguous()
    state = RowState(
        labels=labels.to(torch.int64).contiguous(),
        balance=scores.new_empty(rows, 4, dtype=torch.float64),
        tail=scores.new_empty(rows, k, dtype=torch.float64),
        head=scores.new_empty(rows, min(classes - 1, 2 * k - 1), dtype=torch.float64),
    )
    losses = scores.new_empty(rows)
    _run("forward", scores, state, k, tau, margin=margin, losses=losses)
    return losses, *state


def backward(scores: Tensor, state: tuple[Tensor, ...], grad_loss: Tensor, k: int, tau: float) -> Tensor:
    """Derivatives by the scores, (N, C)."""
    check_unpacked(scores, torch.Size([len(state[0]), scores.shape[1]]))
    scores = widened(scores).contiguous()
    gradient = torch.empty_like(scores)
    # In the CPU's memory, whatever it was before and whatever the default device is.
    of_rows = torch.empty(len(scores), dtype=torch.float64, device="cpu").copy_(grad_loss)
    _run("backward", scores, RowState(*state), k, tau, grad_loss=of_rows, gradient=gradient)
    return gradient


def _run(
    name: str, scores: Tensor, state: RowState, k: int, tau: float, margin: float = 0.0, **tensors: Tensor
) -> None:
    """Every thread runs the same function on the same task, and takes rows from it until none are left."""
    rows, classes = scores.shape
    threads = min(torch.get_num_threads(), rows) if scores.numel() * k > SERIAL_OPERATIONS else 1
    kernels = load_kernels("numba_large_k_kernels", scores.dtype)
    assert kernels is not None
    task = kernels.task(
        wrong_row=-1,
        rows=rows,
        classes=classes,
        k=k,
        scale=binary_scale(k, tau, torch.float64),
        tau=tau,
        margin=margin,
        scores=scores.data_ptr(),
        labels=state.labels.data_ptr(),
        balance=state.balance.data_ptr(),
        tail=state.tail.data_ptr(),
        head=state.head.data_ptr(),
        **{name: tensor.data_ptr() for name, tensor in tensors.items()},
    )
    in_parallel(getattr(kernels, name), ctypes.byref(task), threads)
    if task.wrong_row >= 0:
        wrong = state.labels[task.wrong_row].item()
        raise IndexError(f"labels must lie in [0, {classes}), got the label {wrong}.")
