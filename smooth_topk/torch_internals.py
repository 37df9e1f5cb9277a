"""Everything that is asked of torch beyond its public interface, each with a fallback that needs none of it.

A fallback assumes the unusual case: the answer then comes from plain torch or from the differentiable composition, as
exact and slower.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def _find(path: str) -> Callable[..., Any] | None:
    """torch._C.(path), or None where this version of torch has no such function."""
    found: Any = torch._C
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


PRIVATE = {
    name: _find(path)
    for name, path in {
        "modes": "_len_torch_dispatch_stack",
        "transforms": "_are_functorch_transforms_active",
        "is_zero": "TensorBase._is_zerotensor",
        "is_wrapped": "_functorch.is_functorch_wrapped_tensor",
        "unwrap": "_functorch.get_unwrapped",
        "is_batched": "_functorch.is_legacy_batchedtensor",
        "keeps_graph": "_autograd._get_current_graph_task_keep_graph",
    }.items()
}


def holds_numbers(tensor: Tensor) -> bool:
    """Whether the tensor is one of numbers in memory: not a stand-in of a compiler, a tracer or a device mesh.

    Under a dispatch mode (make_fx, FakeTensorMode) every operation may be recorded or faked, so the answer is no.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or type(tensor) not in (Tensor, torch.nn.Parameter):
        return False
    modes, is_zero = PRIVATE["modes"], PRIVATE["is_zero"]  # zeros may have no memory
    return modes is not None and is_zero is not None and modes() == 0 and not is_zero(tensor)


def is_transformed() -> bool:
    """Whether torch.func, forward mode or torch.jit.trace is at work, and needs functions of torch alone."""
    transforms, level = PRIVATE["transforms"], getattr(forward_ad, "_current_level", 0)
    return transforms is None or transforms() or level >= 0 or torch.jit.is_tracing()


def is_wrapped(tensor: Tensor) -> bool:
    """Whether torch.func maps or differentiates this tensor."""
    wrapped = PRIVATE["is_wrapped"]
    return is_transformed() if wrapped is None else wrapped(tensor)


def unwrapped(tensor: Tensor) -> Tensor | None:
    """The tensor that torch.func maps or differentiates, with all its numbers; None where nobody can tell."""
    while is_wrapped(tensor):
        if PRIVATE["unwrap"] is None or PRIVATE["is_wrapped"] is None:
            return None
        tensor = PRIVATE["unwrap"](tensor)
    return tensor


def backward_is_plain(grad: Tensor) -> bool:
    """In a backward pass: whether `grad` is one derivative in memory, and what is saved will not be asked for again."""
    batched, keeps_graph = PRIVATE["is_batched"], PRIVATE["keeps_graph"]
    if batched is None or keeps_graph is None or not holds_numbers(grad):
        return False
    return not batched(grad) and not keeps_graph()
