"""Runs the Numba kernels on CPU tensors, with the contract of eager.py: scores in, losses and a RowState out.

Numba is an optional extra, imported when a kernel is first needed. The first call in a new environment compiles for
several seconds; Numba keeps the machine code beside the package or in the user's cache folder, and later processes
load it. The threads are torch's own: its OpenMP library shares out the rows, so `torch.set_num_threads` holds here too.
"""

import ctypes
import math
import threading
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from .. import eager

NUMBA_INSTALLED = find_spec("numba") is not None
SERIAL_ELEMENTS = 1 << 14  # so many scores, or fewer, are faster on one thread
LARGEST_BATCH = 64  # rows whose k numbers are worked on together: a few vectors each
STATE_ELEMENTS = 1 << 12  # k (k + 1) numbers a row of a batch stay in cache


def is_available() -> bool:
    """Whether Numba is installed."""
    return NUMBA_INSTALLED


def supports(scores: Tensor, k: int) -> bool:
    """Whether the kernels take these scores: on the CPU, float32 or float64, and a k that eager.py takes too.

    The kernels need an address, which neither the tensors of a compiler nor other stand-ins have.
    """
    if not NUMBA_INSTALLED or torch.compiler.is_compiling() or type(scores) not in (Tensor, torch.nn.Parameter):
        return False
    fits = scores.device.type == "cpu" and scores.dtype in eager.FLOAT64_LIMIT
    return fits and eager.working_dtype(scores.dtype, k) is not None


def forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
    """Losses (N,) of scores (N, C), and the four tensors of a RowState; labels (N,) are in [0, C), and k < C."""
    rows, dtype = len(scores), eager.working_dtype(scores.dtype, k)
    state = eager.RowState(
        kth_score=scores.new_empty(rows, 1),
        tail=scores.new_empty(k, rows, dtype=dtype),
        index=labels.new_empty(rows, k + 1, dtype=torch.int64),
        head=scores.new_empty(k + 1, rows, dtype=torch.float64),
    )
    losses = scores.new_empty(rows)
    labels = labels.to(torch.int64).contiguous()
    _run("forward", scores.contiguous(), state, k, tau, margin=margin, labels=labels, losses=losses)
    return losses, *state


def backward(scores: Tensor, state: eager.RowState, grad_loss: Tensor, k: int, tau: float) -> Tensor:
    """Derivatives by the scores, (N, C)."""
    scores = scores.contiguous()
    gradient = torch.empty_like(scores)
    state = eager.RowState(*(tensor.contiguous() for tensor in state))
    grad_loss = grad_loss.to(torch.float64).contiguous()
    _run("backward", scores, state, k, tau, grad_loss=grad_loss, gradient=gradient)
    return gradient


def _run(name: str, scores: Tensor, state: eager.RowState, k: int, tau: float, margin: float = 0.0, **tensors: Tensor):
    """Every thread runs the same function on the same task, and takes rows from it until none are left."""
    rows, classes = scores.shape
    threads = min(torch.get_num_threads(), rows) if scores.numel() > SERIAL_ELEMENTS else 1
    functions, Task, _ = _compiled(scores.dtype, state.tail.dtype)
    tensors.update(scores=scores, **state._asdict())
    task = Task(
        rows=rows,
        classes=classes,
        k=k,
        batch=max(1, min(LARGEST_BATCH, SERIAL_ELEMENTS // classes, STATE_ELEMENTS // (k * (k + 1)))),
        # A finite scale: infinity times a difference of zero is not a number.
        scale=min(math.log2(math.e) / (k * tau), torch.finfo(state.tail.dtype).max),
        tau=tau,
        margin=margin,
        **{name: tensor.data_ptr() for name, tensor in tensors.items()},
    )
    _in_parallel(functions[name], ctypes.byref(task), threads)


def _in_parallel(function, argument, threads: int) -> None:
    """Calls the function on every thread of a team at once; ctypes lets other Python threads run meanwhile."""
    if threads <= 1:
        function(argument)
    elif (parallel := _openmp_parallel()) is not None:
        parallel(function, argument, threads, 0)
    else:
        team = [threading.Thread(target=function, args=(argument,)) for _ in range(threads)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()


@cache
def _compiled(score_dtype: torch.dtype, working_dtype: torch.dtype) -> tuple[dict, type[ctypes.Structure], tuple]:
    """The two passes for these dtypes, and the structure that they take."""
    import numpy as np

    from . import numba_kernels

    dtypes = [getattr(np, str(dtype).removeprefix("torch.")) for dtype in (score_dtype, working_dtype)]
    try:
        kernels = numba_kernels.compiled(*dtypes)
    except RuntimeError:  # no folder for the cache can be written to
        kernels = numba_kernels.compiled(*dtypes, cache=False)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    functions = {kernel.__name__: prototype(kernel.address) for kernel in kernels}
    return functions, numba_kernels.Task, kernels  # machine code lives as long as the objects it came with


@cache
def _openmp_parallel():
    """GOMP_parallel of the OpenMP library that torch is linked with, or None where that has no such function."""
    try:
        parallel = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (AttributeError, OSError):
        return None
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return parallel
