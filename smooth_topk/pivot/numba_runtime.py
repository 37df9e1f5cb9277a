"""What the two Numba backends share: whether Numba works here, machine code from its cache, and torch's threads.

Numba is an optional extra, imported when a kernel is first needed. The first call in a new environment compiles; Numba
keeps the machine code beside the package or in the user's cache folder, and later processes load it. Where Numba is
installed but does not work, one warning says why, and plain torch takes over.
"""

import ctypes
import hashlib
import threading
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..arguments import holds_numbers

NUMBA_INSTALLED = find_spec("numba") is not None
NUMBA_BROKEN: list[str] = []  # why Numba does not work, said once


class Kernels(NamedTuple):
    """The two passes for one choice of dtypes, as functions that ctypes can call."""

    forward: Callable[[Any], None]
    backward: Callable[[Any], None]
    task: Any  # the structure whose address they take
    machine_code: tuple[object, ...]  # lives as long as these objects


def has_address(tensor: Tensor) -> bool:
    """Whether the tensor's numbers stand in the CPU's memory as torch shows them."""
    if tensor.device.type != "cpu" or not holds_numbers(tensor):
        return False
    return not (tensor.is_neg() or tensor._is_zerotensor())


def check_labels(scores: Tensor, labels: Tensor) -> None:
    """Refuses labels whose numbers the kernels cannot read: one per row, in the CPU's memory."""
    if not has_address(labels) or labels.shape != scores.shape[:1]:
        place = f"{type(labels).__name__} of shape {tuple(labels.shape)} on the device {labels.device}"
        raise ValueError(f"labels must be a plain tensor of shape ({len(scores)},) on the CPU, got a {place}.")


def check_unpacked(scores: Tensor, shape: torch.Size) -> None:
    """Refuses scores that a hook for saved tensors has changed into something that is not theirs."""
    if scores.shape != shape or scores.device.type != "cpu":
        place = f"shape {tuple(scores.shape)} on the device {scores.device}"
        raise RuntimeError(
            f"The scores of the forward pass have shape {tuple(shape)} on the CPU, but a hook for saved tensors gave "
            f"back {place}."
        )


@cache
def load_kernels(module: str, *dtypes: torch.dtype) -> Kernels | None:
    """The kernels of a module of this package for some dtypes; None where Numba is missing, or broken."""
    if not NUMBA_INSTALLED or NUMBA_BROKEN:
        return None
    try:
        return _load(module, dtypes)
    except Exception as error:  # whatever a broken installation may raise
        NUMBA_BROKEN.append(f"{type(error).__name__}: {error}")
        warnings.warn(
            "Numba is installed but cannot compile the kernels of smooth_topk, so plain torch is used instead: "
            f"{NUMBA_BROKEN[0]}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _load(module: str, dtypes: tuple[torch.dtype, ...]) -> Kernels:
    import numpy as np
    from numba import config

    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise RuntimeError("NUMBA_DISABLE_JIT is set.")
    kernels = import_module(f".{module}", __package__)
    numpy_dtypes = [getattr(np, str(dtype).removeprefix("torch.")) for dtype in dtypes]
    try:
        machine_code = kernels.compiled(*numpy_dtypes, cache_name=_cache_name(dtypes))
    except Exception:  # the cache cannot be written to, or a file in it is damaged; else it fails once more
        machine_code = kernels.compiled(*numpy_dtypes, cache_name=None)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    forward, backward = (prototype(kernel.address) for kernel in machine_code)
    return Kernels(forward, backward, kernels.Task, machine_code)


def _cache_name(dtypes: tuple[torch.dtype, ...]) -> str:
    """A name for everything that machine code is made from: sources, dtypes, Numba and the processor.

    Numba numbers the machine code of a function, and writes its index before the code itself. Under one name, a process
    that starts or dies in between would take what another source or dtype left under the same number.
    """
    import numba
    from numba.core.registry import cpu_target

    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("numba*.py"))]
    origin = sources, dtypes, numba.__version__, cpu_target.target_context.codegen().magic_tuple()
    return hashlib.sha256(repr(origin).encode()).hexdigest()[:16]


def in_parallel(function: Callable[[Any], None], argument: Any, threads: int) -> None:
    """Calls the function on every thread of a team at once; ctypes lets other Python threads run meanwhile.

    The threads are torch's own OpenMP team, so `torch.set_num_threads` holds here too and no second pool competes for
    the cores.
    """
    if threads <= 1:
        function(argument)
    elif (parallel := openmp_parallel()) is not None:
        parallel(function, argument, threads, 0)
    else:
        team = [threading.Thread(target=function, args=(argument,)) for _ in range(threads)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()


@cache
def openmp_parallel() -> Callable[..., None] | None:
    """GOMP_parallel of the OpenMP library that torch is linked with, or None where that has no such function."""
    try:
        parallel = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (AttributeError, OSError):
        return None
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return parallel
