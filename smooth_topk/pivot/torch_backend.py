"""The loss and its gradient in plain torch, one pass over the scores each way, O(kn).

The forward pass keeps O(k) numbers per row (`RowState`), and the backward pass reads the scores again. The tail's
polynomials come from power sums by Newton's identities, and the gradient of the tail is one polynomial evaluated by
Horner's rule. Both lose about 2**k in the worst case, whatever n is, hence `working_dtype`. Everything of size (N, k)
is in float64. Derived in notebooks/06_pivot.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..arguments import widened
from ..polynomials.pivot import add_head, decays, scaled
from .margins import exponent_scale, loss_of_margin, share_of_margin

FLOAT32_LIMIT = 5  # beyond, an error of 4e-7 of the largest derivative was seen; 2**5 * 6e-8 = 2e-6 is a bound
FLOAT64_LIMIT = {torch.float32: 32, torch.float64: 16}  # likewise in float64, for 1e-5 and for 1e-11
BLOCK = 1 << 19  # elements worked on at a time: few calls, and two buffers that stay in cache


class RowState(NamedTuple):
    """What the backward pass needs beside the scores."""

    kth_score: Tensor  # (N, 1) s_[k], the pivot: the k-th largest score of the other classes
    tail: Tensor  # (k, N) the derivative of a tail class is u times a polynomial in u: its coefficients
    columns: Tensor  # (N, k + 1) the classes of the head, and the label
    head: Tensor  # (k + 1, N) their derivatives


def working_dtype(dtype: torch.dtype, k: int) -> torch.dtype | None:
    """The arithmetic that makes this k exact for scores of this dtype, or None where only positive sums do.

    Half precision counts as float32, in which it is computed.
    """
    dtype = torch.promote_types(dtype, torch.float32)
    if k <= FLOAT32_LIMIT:
        return dtype
    return torch.float64 if k <= FLOAT64_LIMIT[dtype] else None


def supports(scores: Tensor, k: int) -> bool:
    """Whether the alternating sums are exact enough for this k; device and kind of tensor do not matter."""
    return working_dtype(scores.dtype, k) is not None


def forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
    """Losses (N,) of scores (N, C), and the four tensors of a RowState; in blocks of rows, to bound the memory."""
    if _all_at_once(scores):
        return _forward_block(widened(scores), labels, k, tau, margin)
    size = _rows_per_block(scores, k)
    pieces = [
        _forward_block(*part, k, tau, margin)
        for part in zip(widened(scores).split(size), labels.split(size), strict=True)
    ]
    if len(pieces) == 1:
        return pieces[0]
    return tuple(torch.cat(parts, dim) for parts, dim in zip(zip(*pieces, strict=True), (0, 0, 1, 0, 1), strict=True))


def backward(scores: Tensor, state: tuple[Tensor, ...], grad_loss: Tensor, k: int, tau: float) -> Tensor:
    """Derivatives by the scores, (N, C): a polynomial for the tail, and k + 1 others put in place."""
    scores = widened(scores)
    kth_score, tail, index, head = state
    coefficients = (tail * grad_loss).unsqueeze(2)  # (k, N, 1)
    scale = exponent_scale(k, tau, torch.finfo(tail.dtype).max)
    gradient = torch.empty_like(scores, memory_format=torch.contiguous_format)
    for rows, (u, spare) in _with_buffers(scores, k, tail.dtype):
        u = tail_weights(scores[rows], kth_score[rows], scale, tail.dtype, u)
        *columns, polynomial = coefficients[:, rows].unbind()
        for column in reversed(columns):
            polynomial = torch.addcmul(column, polynomial, u, out=spare)
        gradient[rows] = torch.mul(polynomial, u, out=spare)
    return gradient.scatter_(1, index, (head * grad_loss).T.to(scores.dtype))


def _forward_block(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
    dtype = working_dtype(scores.dtype, k)
    assert dtype is not None
    head_scores, index = largest_others(scores, labels, k)
    true_score = scores.gather(1, index[:, -1:]).double()
    missing = head_scores[:, -1:] == -torch.inf  # fewer than k other classes exist: the loss is zero
    kth_score = head_scores[:, -1:].masked_fill(missing, 0.0)
    scale = exponent_scale(k, tau, torch.finfo(dtype).max)
    tail_sigmas = newton(power_sums(scores, kth_score, index, scale, dtype))
    head = scaled(head_scores.double() - kth_score, exponent_scale(k, tau))
    log_ratio, by_head, by_tail = ratio(head.masked_fill(missing, 0.0).T.contiguous(), tail_sigmas)

    # The hard margin comes first: divided by tau, its terms would lose what is left when they cancel.
    smooth_margin = margin + (kth_score - true_score)[:, 0] / k + tau * log_ratio
    smooth_margin = smooth_margin.masked_fill(missing[:, 0], -torch.inf)
    largest = torch.maximum(head_scores[:, 0], true_score[:, 0])  # a score of +inf, or NaN, spoils its row
    smooth_margin = smooth_margin.masked_fill(~(largest < torch.inf), torch.nan)
    share = share_of_margin(smooth_margin, tau) / k
    by_head = torch.cat([by_head * share, -share[None]])
    losses = loss_of_margin(smooth_margin, tau)
    return losses.to(scores.dtype), kth_score, (by_tail * share).to(dtype), index, by_head


def largest_others(scores: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of the classes other than the label, (N, k), and their classes with the label last."""
    labels = labels[:, None]
    values, index = scores.topk(k + 1)
    places = (index == labels).cumsum(1)[:, :k] + torch.arange(k, device=scores.device)  # steps over the label
    return values.gather(1, places), torch.cat([index.gather(1, places), labels], 1)


def _rows_per_block(scores: Tensor, k: int) -> int:
    """Rows whose scores, or whose k² numbers, fit a block."""
    rows, classes = scores.shape
    return max(1, min(rows, BLOCK // max(classes, k * k)))


def _all_at_once(scores: Tensor) -> bool:
    """A compiler fuses better than blocks do, and takes any number of rows; a GPU has no such cache."""
    return torch.compiler.is_compiling() or scores.device.type != "cpu"


def _with_buffers(scores: Tensor, k: int, dtype: torch.dtype) -> Iterator[tuple[slice, list[Tensor | None]]]:
    """Slices of rows, each with two buffers of its shape that are used again for the next; a compiler needs none."""
    rows, classes = scores.shape
    if _all_at_once(scores):
        yield slice(0, rows), [None, None]
        return
    size = _rows_per_block(scores, k)
    spare = scores.new_empty(2, size, classes, dtype=dtype)
    for start in range(0, rows, size):
        yield slice(start, start + size), list(spare[:, : rows - start].unbind())


def tail_weights(scores: Tensor, kth_score: Tensor, scale: float, dtype: torch.dtype, out: Tensor | None) -> Tensor:
    """u = exp((s - s_[k]) / (kτ)); the difference comes first, because s / (kτ) alone has lost its small digits."""
    return torch.sub(scores.to(dtype), kth_score, out=out).mul_(scale).exp_()


def power_sums(scores: Tensor, kth_score: Tensor, index: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Σ u^m over the tail for m = 1..k, shape (k, N), in float64."""
    u = tail_weights(scores, kth_score, scale, dtype, None).scatter_(1, index, 0.0)
    power, sums = u, [u.sum(1)]
    for m in range(2, index.shape[1]):
        power = power * u if m == 2 else power.mul_(u)
        sums.append(power.sum(1))
    return torch.stack(sums).double()


def newton(sums: Tensor) -> Tensor:
    """ε_0, ..., ε_k from power sums by m ε_m = Σ_r (-1)^(r-1) ε_{m-r} p_r, shape (k + 1, N)."""
    signed = sums.clone()
    signed[1::2].neg_()
    sigmas = torch.ones_like(sums[:1])  # ε_m, ..., ε_0
    for m in range(1, len(sums) + 1):
        sigmas = torch.cat([(signed[:m] * sigmas).sum(0, keepdim=True).div_(m), sigmas])
    return sigmas.flip(0).clamp_(min=0)


def ratio(head: Tensor, tail_sigmas: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log(S_k / S_{k-1}) (N,), its derivatives by the head (k, N), and the tail's polynomial (k, N).

    The head's derivatives are the reverse mode of its recursion. A tail class of weight u has
    q^(k) - q^(k-1) = u Σ_m (-u)^m (σ_{k-1-m}/σ_k - σ_{k-2-m}/σ_{k-1}).
    """
    decay = decays(head)
    *polynomials, sigmas = add_head(tail_sigmas, decay)
    lower, upper = sigmas[-2:]

    adjoint = torch.zeros_like(head)  # of S_1..S_k
    adjoint[-1] = 1 / upper
    if len(head) > 1:
        adjoint[-2] = -1 / lower
    adjoints = [adjoint]  # without the first class of the head, without the first two, ...
    for factor in decay.unbind()[:-1]:
        adjoint = adjoint * factor
        adjoint[:-1] += adjoints[-1][1:]
        adjoints.append(adjoint)
    by_head = (torch.stack(adjoints) * torch.stack(polynomials[::-1])[:, :-1]).sum(1)

    spans = head.flip(0).cumsum(0).neg_().exp_()  # exp(-(t_{k-m} + ... + t_k)); t_k is zero
    below = sigmas[:-1].flip(0) * spans  # σ_{k-1-m}, in the scale of σ_k and of σ_{k-1}
    by_tail = below / upper
    by_tail[:-1] -= below[1:] / lower
    by_tail[1::2].neg_()
    return torch.log(upper / lower), by_head, by_tail
