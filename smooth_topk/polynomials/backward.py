"""Divide and conquer with the paper's own backward pass, Algorithm 2 (section 4.3 and appendix B.2.2).

log e (N, n) in, log σ_0..σ_k (N, k + 1) out; the derivatives δ_j,i = ∂σ_j/∂e_i come from the results of the forward
pass instead of its buffers. The recursion subtracts nearly equal numbers when e_i dominates; those elements get the
p-th order series, whose error nothing controls at run time. For study: "pivot" is exact.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from . import divide_and_conquer


def log_sigma(x: Tensor, k: int, series_order: int | None = None) -> Tensor:
    """log σ_0..σ_k as `divide_and_conquer.log_sigma`, differentiated once by Algorithm 2.

    Args:
        x: (N, n) log e; -inf deletes an element.
        k: largest degree.
        series_order: p of the series; the forward pass computes k + p coefficients. None is `default_series_order(k)`.

    Returns:
        (N, k + 1); -inf where no subset of that size exists.

    Example:
        >>> log_e = torch.tensor([[1.0, 2.0, 3.0]]).log().requires_grad_()
        >>> log_sigma(log_e, 2)[0, 2].exp().backward()
        >>> log_e.grad  # e_i σ_1 without e_i
        tensor([[5.0000, 8.0000, 9.0000]])
    """
    order = default_series_order(k) if series_order is None else series_order
    return _LogSigma.apply(x, k, order)[0]


def default_series_order(k: int) -> int:
    """The paper's rule of thumb p ≈ 0.2 k, and at least one."""
    return max(1, round(0.2 * k))


class _LogSigma(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, k, order):
        all_coefficients = divide_and_conquer.log_sigma(x, k + order)
        return all_coefficients[:, : k + 1].clone(), all_coefficients

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.k, ctx.order = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])

    @staticmethod
    def backward(ctx, grad_log_sigma, _):
        return _LogSigmaBackward.apply(grad_log_sigma, *ctx.saved_tensors, ctx.k, ctx.order), None, None


class _LogSigmaBackward(torch.autograd.Function):
    """A function of its own, so that a second derivative is refused instead of taken for zero."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad_log_sigma, x, all_coefficients, k, order):
        derivatives = log_sigma_derivatives(x, all_coefficients, k, order)
        return (grad_log_sigma[:, 1:, None] * derivatives).sum(1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError(
            "Algorithm 2 gives first derivatives only; for second derivatives take algorithm 'pivot' "
            "or 'divide_and_conquer_autograd'."
        )


def log_sigma_derivatives(x: Tensor, all_coefficients: Tensor, k: int, order: int) -> Tensor:
    """∂ log σ_j / ∂x_i = e_i δ_j,i / σ_j for j = 1..k, shape (N, k, n), from log σ_0..σ_{k+p} (N, k + p + 1)."""
    log_delta, unstable = recursion(x, all_coefficients, k)
    value = torch.exp(x[:, None] + log_delta - all_coefficients[:, 1 : k + 1, None])
    value = torch.where(unstable, series(x, all_coefficients, k, order), value)
    exists = (x != -torch.inf)[:, None] & (all_coefficients[:, 1 : k + 1] != -torch.inf)[:, :, None]
    return torch.where(exists, value, 0.0)


def recursion(x: Tensor, log_sigmas: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """log δ_j,i for j = 1..k by δ_j,i = σ_{j-1} - e_i δ_{j-1,i}, eq. (18), and where it is unstable, (N, k, n) each.

    The rule of the paper: unstable where the subtracted terms have a very small relative difference. A step hands its
    error to the next, so the differences of all steps are multiplied. The paper gives no number for "very small"; here
    half of the digits are gone, or the difference drowns in the rounding of log σ.
    """
    eps = torch.finfo(x.dtype).eps
    log_delta, unstable = [torch.zeros_like(x)], [torch.zeros_like(x, dtype=torch.bool)]
    accuracy = torch.ones_like(x)
    for j in range(2, k + 1):  # the printed loop starts at j = 1
        log_sigma_before = log_sigmas[:, j - 1, None]
        difference = -torch.expm1(x + log_delta[-1] - log_sigma_before)
        accuracy = accuracy * difference
        rounding = 8 * eps * log_sigma_before.abs()
        unstable.append(unstable[-1] | ~(accuracy > rounding.clamp(eps**0.5, 0.5)))
        log_delta.append(log_sigma_before + difference.log())
    return torch.stack(log_delta, 1), torch.stack(unstable, 1)


def series(x: Tensor, log_sigmas: Tensor, k: int, order: int) -> Tensor:
    """e_i δ_j,i / σ_j for j = 1..k by the p-th order approximation, eq. (60) corrected, shape (N, k, n).

        δ_j,i ≈ Σ_{m=0..p} (-1)^m σ_{j+m} / e_i^(m+1)

    Relative to its first term σ_j / e_i the sum starts at one.
    """
    log_sigmas = pad(log_sigmas, (0, k + order + 1 - log_sigmas.shape[1]), value=-torch.inf)
    first = log_sigmas[:, 1 : k + 1, None]
    total = torch.ones_like(x)[:, None].repeat(1, k, 1)
    for m in range(1, order + 1):
        total = total + (-1) ** m * torch.exp(log_sigmas[:, 1 + m : k + 1 + m, None] - first - m * x[:, None])
    return total
