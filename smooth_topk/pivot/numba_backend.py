"""Runs the Numba kernels on CPU tensors: loss and gradient in one pass, for any k.

Numba is an optional extra, imported when a kernel is first needed. The first call in a new environment compiles; Numba
keeps the machine code next to the package or in the user's cache folder, and later processes load it. Where Numba is
installed but does not work, one warning says why, and plain torch takes over.

Kernels see NumPy arrays, so they know where memory ends.
"""

import contextlib
import os
import threading
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..targets import Settings
from ..torch_internals import holds_numbers
from .margins import binary_scale
from .torch_backend import working_dtype

NUMBA_INSTALLED = find_spec("numba") is not None
NUMBA_BROKEN: list[str] = []  # why Numba does not work, said once
LARGEST_K = 16  # of `pivot_rows`; beyond, alternating sums measured from the pivot lose too much
SERIAL_OPERATIONS = 1 << 14  # so many scores, or fewer, are faster on one thread
ATTEMPTS = 3  # to load machine code, to compile anew what cannot be loaded, to go on with what cannot be written

_team = threading.Lock()  # Numba's threads serve one caller at a time; after a fork they serve nobody
os.register_at_fork(after_in_child=lambda: _team.acquire(blocking=False))


def supports(scores: Tensor, k: int) -> bool:
    """Whether the kernels take these scores: numbers in the CPU's memory, and Numba works."""
    if not NUMBA_INSTALLED or scores.device.type != "cpu" or not holds_numbers(scores):
        return False
    return _kernel(torch.promote_types(scores.dtype, torch.float32), k) is not None


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    settings: Settings,
    normaliser: Tensor | None = None,
    needs_gradient: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """See `smooth_topk.pivot.loss_and_gradient`; a label that is neither a class nor ignored raises IndexError."""
    import numpy as np

    from .numba_kernels import reduce_rows, weigh_rows

    k, tau, margin, ignore_index, reduction, *_ = settings
    assert not isinstance(tau, Tensor)
    scores = scores.detach().resolve_neg().contiguous()
    values, targets = _array("scores", scores, np.from_dlpack), _array("labels", labels)
    weights = np.empty(0, values.dtype) if weight is None else _array("weight", weight.detach().to(scores.dtype))
    rows, classes = values.shape
    if targets.shape != (rows,):
        raise ValueError(f"labels must have shape ({rows},), got {targets.shape}.")
    row_weights, losses = np.empty(rows), np.empty(rows)
    total, wrong = weigh_rows(targets, classes, weights, ignore_index, row_weights)
    if wrong >= 0:
        raise IndexError(f"labels must lie in [0, {classes}) or be ignore_index, got the label {targets[wrong]}.")
    divisor = 1.0 if reduction != "mean" else total if normaliser is None else float(normaliser)
    gradient = torch.empty_like(scores) if needs_gradient else None
    out = np.empty((0, classes), values.dtype) if gradient is None else gradient.numpy()
    _, working, scale = _plan(scores.dtype, k, tau)
    _run(scores.dtype, values, targets, row_weights, losses, out, working, k, tau, margin, scale, divisor)
    reduced = reduce_rows(losses, row_weights, divisor)
    if reduction == "none":
        return torch.from_numpy(losses).to(scores.dtype), gradient
    return torch.tensor(reduced, dtype=scores.dtype, device="cpu"), gradient


def _array(name: str, tensor: Tensor, convert: Callable[[Tensor], Any] = Tensor.numpy) -> Any:
    """The numbers of a CPU tensor; its storage may have been taken away, as FSDP does between passes.

    The storage of a tensor whose `numpy()` was asked for cannot be resized ever after; a DLPack tensor's can.
    """
    tensor = tensor.resolve_neg().contiguous()
    found, needed = (
        tensor.untyped_storage().nbytes(),
        (tensor.storage_offset() + tensor.numel()) * tensor.element_size(),
    )
    if found < needed:
        raise RuntimeError(f"{name} of shape {tuple(tensor.shape)} must have {needed} bytes of storage, got {found}.")
    return convert(tensor)


def _run(dtype: torch.dtype, scores: Any, *arguments: Any) -> None:
    """Calls the kernel on as many threads as torch uses, or on this one where Numba's threads are taken."""
    k, rows = arguments[5], len(scores)
    threads = min(torch.get_num_threads(), rows) if scores.size * max(1, k // 8) > SERIAL_OPERATIONS else 1
    if threads > 1 and _team.acquire(blocking=False):
        try:
            if (kernel := _kernel(dtype, k, "_in_parallel")) is not None:
                return _with_threads(threads, kernel, scores, *arguments)
        finally:
            _team.release()
    _kernel(dtype, k)(scores, *arguments, 0, rows)


def _with_threads(threads: int, kernel: Callable[..., None], *arguments: Any) -> None:
    from numba import config, get_num_threads, set_num_threads

    before, threads = get_num_threads(), min(threads, config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    set_num_threads(threads)
    try:
        kernel(*arguments, threads)
    finally:
        set_num_threads(before)


@lru_cache(maxsize=64)
def _plan(dtype: torch.dtype, k: int, tau: float) -> tuple[str, Any, float]:
    """Which kernel, an empty array of the dtype in which it sums powers, and log2(e) / (kτ)."""
    small = k <= LARGEST_K
    working = working_dtype(dtype, k) if small else torch.float64
    empty = torch.empty(0, dtype=working, device="cpu").numpy()
    return "pivot_rows" if small else "balanced_rows", empty, binary_scale(k, tau, dtype if small else torch.float64)


@cache
def _kernel(dtype: torch.dtype, k: int, how: str = "") -> Any:
    name, working, _ = _plan(dtype, k, 1.0)
    return _compiled(name + how, dtype, str(working.dtype))


@cache
def _compiled(name: str, dtype: torch.dtype, working: str) -> Any:
    """The kernel of this name, compiled for these dtypes; None where Numba is missing or does not work."""
    if not NUMBA_INSTALLED or NUMBA_BROKEN:
        return None
    for _ in range(ATTEMPTS):
        try:
            return _tried(name, dtype, working)
        except Exception as error:  # whatever a broken installation may raise, or machine code that was cut short
            reason = f"{type(error).__name__}: {error}"
            _delete_machine_code()
    NUMBA_BROKEN.append(reason)
    warnings.warn(
        f"Numba is installed but cannot compile the kernels of smooth_topk, so plain torch is used instead: {reason}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _delete_machine_code() -> None:
    """What cannot be loaded is compiled anew, and not by every process."""
    with contextlib.suppress(Exception):  # Numba cannot even be imported, or the folder is another user's
        from .numba_kernels import pivot_rows

        for file in Path(pivot_rows.stats.cache_path).glob("numba_kernels.*.nb[ic]"):
            file.unlink(missing_ok=True)


def _tried(name: str, dtype: torch.dtype, working: str) -> Any:
    """Calls the three functions once, which compiles them or loads their machine code."""
    import numpy as np
    from numba import config

    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise RuntimeError("NUMBA_DISABLE_JIT is set.")
    from . import numba_kernels

    scores, labels = torch.zeros(1, 3, dtype=dtype, device="cpu").numpy(), np.zeros(1, np.int64)
    losses, row_weights, kernel = np.zeros(1), np.zeros(1), getattr(numba_kernels, name)
    numba_kernels.weigh_rows(labels, 3, scores[0], -100, row_weights)
    numba_kernels.reduce_rows(losses, row_weights, 1.0)
    rows = (1,) if name.endswith("in_parallel") else (0, 1)
    kernel(scores, labels, row_weights, losses, scores.copy(), np.empty(0, working), 1, 1.0, 1.0, 1.0, 1.0, *rows)
    return kernel
