"""What all paths share, whatever τ is: the scale of the exponents, and the end of the loss, τ log(1 + exp(m/τ))."""

import math
import sys
from typing import overload

import torch
from torch import Tensor

LARGE = 700.0  # exp(700) is still a number in float64


@overload
def exponent_scale(k: int, tau: float, largest: float = ...) -> float: ...
@overload
def exponent_scale(k: int, tau: Tensor, largest: float = ...) -> Tensor: ...
def exponent_scale(k: int, tau: float | Tensor, largest: float = sys.float_info.max) -> float | Tensor:
    """1 / (kτ), but never infinite: infinity times a difference of zero, a tie, is not a number."""
    if isinstance(tau, Tensor):
        return (1 / (k * tau)).clamp(max=largest)
    return min(_over_k_tau(1.0, k, tau), largest)


def binary_scale(k: int, tau: float, dtype: torch.dtype) -> float:
    """log2(e) / (kτ), never infinite in the dtype: exp((s - s_[k]) / (kτ)) as a power of two, as machines do."""
    return min(_over_k_tau(math.log2(math.e), k, tau), torch.finfo(dtype).max)


def loss_of_margin(margin: Tensor, tau: float | Tensor) -> Tensor:
    """τ log(1 + exp(m/τ)) (N,) of the smooth margin m = α + (s_[k] - s_y)/k + τ log(S_k/S_{k-1}), differentiable.

    For m beyond 700 τ it is m itself, so that nothing overflows where τ is tiny.
    """
    far = margin.detach() > LARGE * tau
    z = torch.where(far, 0.0, margin) / tau
    # In two halves, each of which has all derivatives to the last digit: those of logsigmoid are 1 minus nearly 1.
    below, above = torch.where(z > 0, 0.0, z), torch.where(z > 0, z, 0.0)
    softplus = torch.where(z > 0, above + torch.log1p(torch.exp(-above)), torch.log1p(torch.exp(below)))
    return torch.where(far, margin, tau * softplus)


def share_of_margin(margin: Tensor, tau: float) -> Tensor:
    """The derivative of `loss_of_margin` by the margin."""
    return torch.sigmoid(margin / tau)


def _over_k_tau(number: float, k: int, tau: float) -> float:
    """number / (kτ), also where kτ is beyond the largest number: a factor of zero would make NaN of a score of -inf."""
    return number / (k * tau) if k * tau < math.inf else number / k / tau
