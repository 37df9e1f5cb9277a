"""The functions under test: cross-entropy, the paper's algorithms, ours in every form, and losses of other packages.

Each is called f(scores, labels, k=..., tau=...) and returns the mean over the batch. What cannot run here comes with
the reason instead.
"""

import contextlib
import functools
import importlib.util
import os
import shutil
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import backend_for
from smooth_topk.targets import Algorithm

Loss = Callable[..., Tensor]
PAPER: tuple[Algorithm, ...] = ("summation", "divide_and_conquer", "divide_and_conquer_autograd")
BACKENDS = ("numba", "triton")
OURS = ("pivot", *(f"fused_{name}" for name in BACKENDS))


def find_contenders(device: torch.device | str = "cpu") -> tuple[dict[str, Loss], dict[str, str]]:
    """Returns the functions that can run on a device, and name -> reason for those that cannot.

    "auto" takes the fused kernels where they exist, so that is how they are timed.
    """
    found: dict[str, Loss] = {"cross_entropy": lambda scores, labels, **_: F.cross_entropy(scores, labels)}
    found |= {name: partial(smooth_topk_loss, algorithm=name) for name in PAPER}
    found["pivot"] = partial(smooth_topk_loss, backend="torch")
    missing = {}
    if reason := compiler_missing(device):
        missing["pivot_compiled"] = reason
    else:
        found["pivot_compiled"] = lambda *tensors, **options: _compiled_pivot()(*tensors, **options)
    for name in BACKENDS:
        if reason := backend_missing(name, device):
            missing[f"fused_{name}"] = reason
        else:
            found[f"fused_{name}"] = smooth_topk_loss
    return found, missing


@functools.cache
def _compiled_pivot() -> Loss:
    """Made when it is first called: loading the compiler takes seconds."""
    return torch.compile(smooth_topk_loss, dynamic=False)


def compiler_missing(device: torch.device | str = "cpu") -> str:
    """Returns why torch.compile cannot work here, or nothing."""
    if torch.device(device).type == "cuda":
        return "" if importlib.util.find_spec("triton") else "torch.compile needs Triton on a GPU"
    candidates = [os.environ.get("CXX"), "g++", "clang++"]
    return "" if any(name and shutil.which(name) for name in candidates) else "torch.compile needs a C++ compiler"


def backend_missing(name: str, device: torch.device | str) -> str:
    """Returns why the fused kernels of a back end cannot run on a device, or nothing."""
    if name == "numba" and torch.device(device).type != "cpu":
        return "Numba kernels are for the CPU"
    if name == "triton" and torch.device(device).type != "cuda":
        return "Triton kernels are for a GPU: --device cuda"
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed: pip install 'smooth-topk[fused]'"
    if not is_fused(name, device):
        return f"smooth_topk_loss does not choose the {name} kernels on {device}"
    return ""


def is_fused(name: str, device: torch.device | str, k: int = 1) -> bool:
    """Whether `smooth_topk_loss` itself takes these kernels, for float32 scores and this k."""
    chosen = backend_for(torch.empty(1, k + 2, device=device), k)
    return getattr(chosen, "__name__", "").rpartition(".")[2].startswith(name)  # numba_backend, numba_large_k


def find_peers(device: torch.device | str = "cpu") -> tuple[dict[str, Callable[..., Loss]], dict[str, str]]:
    """Returns makers of other packages' losses, called maker(classes, k, tau), and package -> reason where absent."""
    makers: dict[str, dict[str, Callable[..., Loss]]] = {
        "difftopk": {
            "difftopk smooth top-k (the paper's)": partial(_difftopk_smooth, device=device),
            "difftopk sorting network": partial(_difftopk_network, device=device),
        },
        "pytopk": {"pytopk noised top-k": _pytopk_noised},
        "entmax": {"entmax sparsemax": _entmax("sparsemax_loss"), "entmax 1.5": _entmax("entmax15_loss")},
    }
    found, missing = {}, {}
    for package, losses in makers.items():
        if importlib.util.find_spec(package) is None:
            missing[package] = f"{package} is not installed: pip install 'smooth-topk[peers]'"
            continue
        for name, make in losses.items():
            try:
                make(20, 5, 1.0)(torch.randn(2, 20, device=device), torch.tensor([0, 1], device=device))
                found[name] = make
            except Exception as error:  # another package may fail in any way beside this torch
                missing[name] = f"it fails with {type(error).__name__}: {error}"
    return found, missing


def _difftopk_smooth(classes: int, k: int, tau: float, device: torch.device | str) -> Loss:
    with contextlib.redirect_stdout(None):  # it prints what optional packages it does not find
        from difftopk import SmoothTopKLoss

    return SmoothTopKLoss(classes, k, tau, device=str(device))


def _difftopk_network(classes: int, k: int, tau: float, device: torch.device | str) -> Loss:
    """The 16 largest scores enter a sorting network: its own way with many classes."""
    with contextlib.redirect_stdout(None):
        from difftopk import TopKCrossEntropyLoss

        return TopKCrossEntropyLoss(
            "bitonic__non_sparse", 1 / tau, [1 / k] * k, classes, m=16, distribution="cauchy", device=str(device)
        )


def _pytopk_noised(classes: int, k: int, tau: float) -> Loss:
    from pytopk import BalNoisedTopK

    return BalNoisedTopK(k=k, epsilon=tau)


def _entmax(name: str) -> Callable[..., Loss]:
    """Not top-k losses, but sparse alternatives to cross-entropy."""

    def make(classes: int, k: int, tau: float) -> Loss:
        import entmax

        return lambda scores, labels: getattr(entmax, name)(scores, labels).mean()

    return make
