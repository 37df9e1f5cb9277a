"""What the public functions check alike: arguments as people have them in, plain numbers and checked tensors out.

Every refusal is a full sentence that names the value received.
"""

import math
import operator
import sys
from collections.abc import Collection
from numbers import Real
from typing import Any

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
FLOATING_POINT = (torch.float32, torch.float64, *HALF)  # what torch computes with; float8 is for storage


def whole_number(name: str, value: Any) -> int:
    """An int from an int, an integer of numpy or a tensor that holds one integer."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}.") from None


def size_of_prediction(k: Any, count: int, *, things: str = "classes", spare: int = 0) -> int:
    """k as an int between 1 and the number of classes, or that number minus one where one class must be `spare`."""
    k = whole_number("k", k)
    if not 1 <= k <= count - spare:
        bound = f"the number of {things}" + " minus one" * spare
        raise ValueError(f"k must be between 1 and {bound}, got k={k} for {count} {things}.")
    return k


def real_number(name: str, value: Any) -> float:
    """A float from a number of Python or numpy, or a tensor that holds one number and needs no derivative."""
    if type(value) is float:
        return value  # as it is: a compiler may treat it as a variable
    if isinstance(value, int) and not -sys.float_info.max <= value <= sys.float_info.max:
        raise ValueError(f"{name} must be within the range of float64, got an integer of {value.bit_length()} bits.")
    if isinstance(value, int):
        return float(value)
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        if value.requires_grad:
            raise ValueError(f"{name} must not require a gradient, got {value!r}.")
        return float(value)
    if getattr(value, "shape", None) == () and not isinstance(value, Tensor):  # of numpy
        value = value.item()
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{name} must be a number, got {value!r}.")


def positive_number(name: str, value: Any) -> float:
    """A positive finite float, from what `real_number` takes."""
    number = real_number(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}.")
    return number


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuses what is not among the choices."""
    if value not in tuple(choices):  # what cannot be hashed is no choice either
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_floating_point(name: str, tensor: Any) -> None:
    """Refuses what is not a tensor of real floating-point numbers of 16 bits or more."""
    if not (isinstance(tensor, Tensor) and tensor.dtype in FLOATING_POINT):
        raise TypeError(f"{name} must be a tensor of float16, bfloat16, float32 or float64, got {_kind(tensor)}.")


def check_integers(name: str, tensor: Any) -> None:
    """Refuses what is not a tensor of integers."""
    wrong = not isinstance(tensor, Tensor) or tensor.is_floating_point() or tensor.is_complex()
    if wrong or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be a tensor of integers, got {_kind(tensor)}.")


def check_label_range(labels: Tensor, classes: int, ignore_index: int | None = None) -> bool:
    """Raises IndexError, as cross-entropy does, for a label outside [0, classes) that is not `ignore_index`.

    Returns True if the values were seen and no label is ignored. Values are looked at on the CPU only: on a GPU that
    would wait for the device, and there the loss of a row with such a label is NaN.
    """
    if torch.compiler.is_compiling():
        return False
    while torch._C._functorch.is_functorch_wrapped_tensor(labels):  # what torch.func maps or differentiates
        labels = torch._C._functorch.get_unwrapped(labels)
    if labels.device.type != "cpu" or not holds_numbers(labels) or not labels.numel():
        return False
    smallest, largest = (int(bound) for bound in labels.aminmax())
    inside = smallest >= 0 and largest < classes
    if inside and (ignore_index is None or not smallest <= ignore_index <= largest):
        return True
    wrong = labels[(labels < 0) | (labels >= classes)]
    wrong = wrong[wrong != ignore_index] if ignore_index is not None else wrong
    if len(wrong):
        allowed = f"in [0, {classes})" + ("" if ignore_index is None else " or be ignore_index")
        raise IndexError(f"labels must lie {allowed}, got the label {int(wrong[0])}.")
    return False


def widened(scores: Tensor) -> Tensor:
    """Half precision in float32; other dtypes as they are."""
    return scores.float() if scores.dtype in HALF else scores


def holds_numbers(tensor: Tensor) -> bool:
    """Whether the tensor is one of numbers in memory: not a stand-in of a compiler, a tracer or a device mesh.

    Under a dispatch mode (make_fx, FakeTensorMode) every operation may be recorded or faked, so the answer is no.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or type(tensor) not in (Tensor, torch.nn.Parameter):
        return False
    return torch._C._len_torch_dispatch_stack() == 0


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
