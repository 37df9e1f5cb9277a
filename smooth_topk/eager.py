"""The loss and its gradient in plain torch, one pass over the scores each way, O(kn).

The forward pass keeps O(k) numbers a row (`RowState`), and the backward pass reads the scores again. The tail's
polynomials come from power sums by Newton's identities, and the gradient of the tail is one polynomial evaluated by
Horner's rule. Both lose about 2**k in the worst case, whatever n is, hence `working_dtype`. Everything of size (N, k)
is in float64. Derived in notebooks/06_pivot.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .symmetric_polynomials import pivot

FLOAT32_LIMIT = 8  # 2**8 * 6e-8 stays near 1e-5 of the largest derivative
FLOAT64_LIMIT = {torch.float32: 32, torch.float64: 16}  # likewise in float64, for 1e-5 and for 1e-11
BLOCK = 1 << 19  # elements worked on at a time: few calls, and two buffers that stay in cache


class RowState(NamedTuple):
    """What the backward pass needs beside the scores."""

    kth_score: Tensor  # (N, 1) s_[k], the pivot: the k-th largest score of the other classes
    tail: Tensor  # (k, N) the derivative of a tail class is u times a polynomial in u: its coefficients
    index: Tensor  # (N, k + 1) the classes of the head, and the label
    head: Tensor  # (k + 1, N) their derivatives


def working_dtype(dtype: torch.dtype, k: int) -> torch.dtype | None:
    """The arithmetic that makes this k exact, or None where only positive sums do (pivot.py)."""
    if k <= FLOAT32_LIMIT:
        return dtype
    return torch.float64 if k <= FLOAT64_LIMIT[dtype] else None


def forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
    """Losses (N,) of scores (N, C), and the four tensors of a RowState."""
    dtype = working_dtype(scores.dtype, k)
    scale = 1 / (k * tau)
    head_scores, index = largest_others(scores, labels, k)
    missing = head_scores[:, -1:] == -torch.inf  # fewer than k other classes exist: the loss is zero
    kth_score = head_scores[:, -1:].masked_fill(missing, 0.0)
    tail_sigmas = newton(power_sums(scores, kth_score, index, scale, dtype))
    head = ((head_scores.double() - kth_score) * scale).masked_fill(missing, 0.0)
    log_ratio, by_head, by_tail = ratio(head.T.contiguous(), tail_sigmas)

    true_score = scores.gather(1, index[:, -1:]).double()
    z = margin / tau + ((kth_score - true_score) * scale)[:, 0] + log_ratio
    z = z.masked_fill(missing[:, 0], -torch.inf)
    share = torch.sigmoid(z) / k
    by_head = torch.cat([by_head * share, -share[None]])
    losses = tau * softplus(z)
    return losses.to(scores.dtype), kth_score, (by_tail * share).to(dtype), index, by_head


def backward(scores: Tensor, state: RowState, grad_loss: Tensor, k: int, tau: float) -> Tensor:
    """Derivatives by the scores, (N, C): a polynomial for the tail, and k + 1 others put in place."""
    coefficients = (state.tail * grad_loss).unsqueeze(2)  # (k, N, 1)
    gradient = torch.empty_like(scores, memory_format=torch.contiguous_format)
    for rows, (u, spare) in blocks(scores, 2, state.tail.dtype):
        u = tail_weights(scores[rows], state.kth_score[rows], 1 / (k * tau), state.tail.dtype, u)
        *columns, polynomial = coefficients[:, rows].unbind()
        for column in reversed(columns):
            polynomial = torch.addcmul(column, polynomial, u, out=spare)
        gradient[rows] = torch.mul(polynomial, u, out=spare)
    return gradient.scatter_(1, state.index, (state.head * grad_loss).T.to(scores.dtype))


def largest_others(scores: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of the classes other than the label, (N, k), and their classes with the label last."""
    labels = labels[:, None]
    values, index = scores.topk(k + 1)
    places = (index == labels).cumsum(1)[:, :k] + torch.arange(k, device=scores.device)  # steps over the label
    return values.gather(1, places), torch.cat([index.gather(1, places), labels], 1)


def blocks(scores: Tensor, buffers: int, dtype: torch.dtype):
    """Slices of rows that stay in cache, each with buffers that are used again for the next.

    A compiler fuses better than that, and a GPU has no such cache: all rows at once, and no buffers.
    """
    rows, classes = scores.shape
    if torch.compiler.is_compiling() or scores.is_cuda:
        yield slice(0, rows), [None] * buffers
        return
    size = max(1, BLOCK // max(1, classes))
    spare = [torch.empty(min(size, rows), classes, dtype=dtype, device=scores.device) for _ in range(buffers)]
    for start in range(0, rows, size):
        yield slice(start, start + size), [buffer[: rows - start] for buffer in spare]


def tail_weights(scores: Tensor, kth_score: Tensor, scale: float, dtype: torch.dtype, out: Tensor | None) -> Tensor:
    """u = exp((s - s_[k]) / (kτ)); the difference comes first, because s / (kτ) alone has lost its small digits."""
    return torch.sub(scores.to(dtype), kth_score, out=out).mul_(scale).exp_()


def power_sums(scores: Tensor, kth_score: Tensor, index: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Σ u^m over the tail for m = 1..k, shape (k, N), in float64."""
    k = index.shape[1] - 1
    sums = [scores.new_zeros(k, 0, dtype=torch.float64)]
    for rows, (u, spare) in blocks(scores, 2, dtype):
        u = tail_weights(scores[rows], kth_score[rows], scale, dtype, u).scatter_(1, index[rows], 0.0)
        power, of_block = u, [u.sum(1)]
        for _ in range(1, k):
            power = torch.mul(power, u, out=spare)
            of_block.append(power.sum(1))
        sums.append(torch.stack(of_block).double())
    return torch.cat(sums, 1)


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
    decays = pivot.decays(head)
    *polynomials, sigmas = pivot.add_head(tail_sigmas, decays)
    lower, upper = sigmas[-2:]

    adjoint = torch.zeros_like(head)  # of S_1..S_k
    adjoint[-1] = 1 / upper
    if len(head) > 1:
        adjoint[-2] = -1 / lower
    adjoints = [adjoint]  # without the first class of the head, without the first two, ...
    for decay in decays.unbind()[:-1]:
        adjoint = adjoint * decay
        adjoint[:-1] += adjoints[-1][1:]
        adjoints.append(adjoint)
    by_head = (torch.stack(adjoints) * torch.stack(polynomials[::-1])[:, :-1]).sum(1)

    spans = head.flip(0).cumsum(0).neg_().exp_()  # exp(-(t_{k-m} + ... + t_k)); t_k is zero
    below = sigmas[:-1].flip(0) * spans  # σ_{k-1-m}, in the scale of σ_k and of σ_{k-1}
    by_tail = below / upper
    by_tail[:-1] -= below[1:] / lower
    by_tail[1::2].neg_()
    return torch.log(upper / lower), by_head, by_tail


def softplus(z: Tensor) -> Tensor:
    """log(1 + exp z) to full precision (torch's own softplus switches to z above 20)."""
    return -torch.nn.functional.logsigmoid(-z)
