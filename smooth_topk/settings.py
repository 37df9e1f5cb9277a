"""The settings of a loss: arguments as people have them in, checked numbers out."""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arguments import check_choice, holds_numbers, positive_number, real_number, whole_number
from .polynomials import ALGORITHMS, check_series_order
from .reduction import REDUCTIONS

PLAIN = {int, float, str, type(None)}  # types whose values can be remembered: equal ones mean the same


class Settings(NamedTuple):
    """What a loss is computed with beside its tensors; `smooth_topk_loss` explains each."""

    k: int
    tau: float | Tensor  # a tensor where a derivative by it may be asked for
    margin: float
    ignore_index: int
    reduction: str
    label_smoothing: float
    algorithm: str = "auto"
    series_order: int | None = None

    @property
    def learns_tau(self) -> bool:
        return isinstance(self.tau, Tensor)


def checked_settings(*arguments: Any) -> Settings:
    """The fields of Settings in their order, checked; remembered, because a loss is called again with the same ones."""
    if torch.compiler.is_compiling() or not all(map(PLAIN.__contains__, map(type, arguments))):
        return _checked(*arguments)
    return _remembered(*arguments)


def _checked(
    k: Any,
    tau: Any,
    margin: Any,
    ignore_index: Any,
    reduction: Any,
    label_smoothing: Any,
    algorithm: Any = "auto",
    series_order: Any = None,
) -> Settings:
    check_choice("reduction", reduction, REDUCTIONS)
    check_choice("algorithm", algorithm, ALGORITHMS)
    check_series_order(series_order, algorithm)
    size = whole_number("k", k)
    if size < 1:
        raise ValueError(f"k must be at least 1, got k={size}.")
    alpha = real_number("margin", margin)
    if not 0 <= alpha < math.inf:
        raise ValueError(f"margin must be a finite number, zero or more, got {margin!r}.")
    smoothing = real_number("label_smoothing", label_smoothing)
    if not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1, got {label_smoothing!r}.")
    ignored = whole_number("ignore_index", ignore_index)
    if not -(1 << 63) <= ignored < 1 << 63:
        raise ValueError(f"ignore_index must be within the range of int64, as labels are, got {ignored}.")
    return Settings(size, _temperature(tau), alpha, ignored, reduction, smoothing, algorithm, series_order)


_remembered = lru_cache(maxsize=256, typed=True)(_checked)


def _temperature(tau: Any) -> float | Tensor:
    """A number; or, where a derivative by it may be asked for, a tensor without dimensions."""
    if not isinstance(tau, Tensor) or tau.numel() != 1:
        return positive_number("tau", tau)
    if tau.device.type != "meta" and holds_numbers(tau) and not torch._C._functorch.is_functorch_wrapped_tensor(tau):
        number = positive_number("tau", tau.detach())
        if not tau.requires_grad:
            return number
    return tau.reshape(())
