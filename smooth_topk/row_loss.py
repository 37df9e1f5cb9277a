"""The smooth loss of every row with the pivot algorithm: scores (N, C) in, losses (N,) out, one pass each way.

    L = τ softplus(z),   z = margin/τ + (s_[k] - s_y)/(kτ) + log(S_k / S_{k-1})

The forward pass keeps O(k) numbers a row (`RowState`); the backward pass reads the scores again. Derivatives of higher
order, forward mode and very large k use the differentiable composition in symmetric_polynomials/pivot.py.
Derived in notebooks/06_pivot.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .symmetric_polynomials import pivot


class RowState(NamedTuple):
    """What the backward pass needs beside the scores."""

    pivot: Tensor  # (N, 1) the k-th largest score of the other classes
    tail: Tensor  # (N, k) the derivative of a tail class is u * polynomial(u): its coefficients
    index: Tensor  # (N, k + 1) the head's classes, and the label
    head: Tensor  # (N, k + 1) their derivatives


def row_losses(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """L_{k,τ} of each row, shape (N,); scores (N, C) in float32 or float64, labels (N,)."""
    function = _TracedRowLoss if torch.compiler.is_compiling() else _RowLoss
    return function.apply(scores, labels, k, tau, margin)[0]


def composed_row_losses(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """The same values from differentiable torch functions: any order of derivative, any transform, any k."""
    label = labels[:, None].long()
    others = scores.scatter(1, label, -torch.inf)
    sigmas, _ = pivot.scaled_sigmas(others, k, 1 / (k * tau))
    kth_score = pivot.smallest_finite(others.detach().topk(k).values)
    empty = sigmas[:, -2:].detach() == 0  # fewer than k other classes exist: the label is always in the top k
    log_ratio = pivot.safe_log(sigmas[:, -1]) - torch.where(empty[:, 0], 0.0, pivot.safe_log(sigmas[:, -2]))
    hard = margin / tau + (kth_score - scores.gather(1, label).double())[:, 0] / (k * tau)
    return (tau * softplus(torch.where(empty[:, 1], -torch.inf, hard + log_ratio))).to(scores.dtype)


def composed_backward(scores: Tensor, labels: Tensor, grad_loss: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """Derivatives of `composed_row_losses`, themselves differentiable."""
    _, pull_back = torch.func.vjp(lambda rows: composed_row_losses(rows, labels, k, tau, margin), scores)
    return pull_back(grad_loss)[0]


def softplus(z: Tensor) -> Tensor:
    """log(1 + exp z) to full precision (torch's own softplus switches to z above 20)."""
    return -torch.nn.functional.logsigmoid(-z)


class _TracedRowLoss(torch.autograd.Function):
    """Fast values and first derivatives; this plain form is the one that torch.compile can trace."""

    @staticmethod
    def forward(scores, labels, k, tau, margin):
        return forward(scores, labels, k, tau, margin)

    @staticmethod
    def setup_context(ctx, inputs, output):
        scores, labels, *ctx.settings = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, labels, *output[1:])
        ctx.save_for_forward(scores, labels)

    @staticmethod
    def backward(ctx, grad_loss, *_):
        scores, labels, *state = ctx.saved_tensors
        return backward(scores, RowState(*state), grad_loss, *ctx.settings[:2]), None, None, None, None


class _RowLoss(_TracedRowLoss):
    """The same with derivatives of higher order, forward mode and vmap."""

    @staticmethod
    def backward(ctx, grad_loss, *_):
        if grad_loss is None:
            return None, None, None, None, None
        scores, labels, *state = ctx.saved_tensors
        if torch.is_grad_enabled() or not state[1].numel():  # a derivative of the derivative may be asked for
            return composed_backward(scores, labels, grad_loss, *ctx.settings), None, None, None, None
        return backward(scores, RowState(*state), grad_loss, *ctx.settings[:2]), None, None, None, None

    @staticmethod
    def jvp(ctx, scores_tangent, *_):
        scores, labels = ctx.saved_tensors
        gradient = composed_backward(scores, labels, scores.new_ones(len(scores)), *ctx.settings)
        return (gradient * scores_tangent).sum(1), None, None, None, None

    @staticmethod
    def vmap(info, in_dims, scores, labels, *settings):
        """Rows are independent: the mapped dimension joins the batch."""
        size = info.batch_size
        scores, labels = (
            x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((scores, labels), in_dims[:2], strict=True)
        )
        outputs = _RowLoss.apply(scores.flatten(0, 1), labels.flatten(0, 1), *settings)
        return tuple(x.unflatten(0, (size, -1)) for x in outputs), (0,) * len(outputs)


# The fast path. Newton's identities and Horner's rule lose about 2**k in the worst case, whatever n is.
FLOAT32_LIMIT = 8  # 2**8 * 6e-8 stays below 1e-5 of the largest derivative
FLOAT64_LIMIT = {torch.float32: 32, torch.float64: 16}  # the same for 1e-5 and for 1e-11 in float64 arithmetic
BLOCK = 1 << 17  # elements worked on at a time, so that they stay in cache


def working_dtype(dtype: torch.dtype, k: int) -> torch.dtype | None:
    """The arithmetic that makes the fast path exact enough for this k, or None beyond its reach."""
    if k <= FLOAT32_LIMIT:
        return dtype
    return torch.float64 if k <= FLOAT64_LIMIT[dtype] else None


def forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
    """Losses (N,) and the four tensors of a RowState."""
    dtype = working_dtype(scores.dtype, k)
    if dtype is None:
        nothing = scores.new_empty(len(scores), 0)
        return composed_row_losses(scores, labels, k, tau, margin), nothing, nothing, nothing, nothing
    scale = 1 / (k * tau)
    head_scores, index = largest_others(scores, labels, k)
    kth_score = head_scores[:, -1:]
    exists = kth_score != -torch.inf  # else fewer than k other classes exist, and the loss is zero
    kth_score = torch.where(exists, kth_score, 0.0)
    tail_sigmas = newton(power_sums(scores, kth_score, index, k, scale, dtype))
    head = torch.where(exists, (head_scores.double() - kth_score) * scale, 0.0)
    sigmas, without, weights = merge(head, tail_sigmas)

    true_score = scores.gather(1, index[:, -1:]).double()
    z = margin / tau + (kth_score - true_score) * scale + torch.log(sigmas[:, -1:] / sigmas[:, -2:-1])
    z = torch.where(exists, z, -torch.inf)
    share = torch.sigmoid(z) / k
    tail = share * tail_coefficients(sigmas, weights)
    head = share * (without[..., -2] / sigmas[:, -2:-1] - without[..., -1] / sigmas[:, -1:])
    head = torch.cat([head, -share], 1)
    return (tau * softplus(z[:, 0])).to(scores.dtype), kth_score.to(scores.dtype), tail.to(dtype), index, head


def backward(scores: Tensor, state: RowState, grad_loss: Tensor, k: int, tau: float) -> Tensor:
    """Derivatives by the scores, (N, C): u_i times a polynomial in u_i for the tail, k + 1 others put in place."""
    gradient = torch.empty_like(scores, memory_format=torch.contiguous_format)
    coefficients = state.tail * grad_loss[:, None]
    for rows in blocks(scores):
        u = tail_weights(scores[rows], state.pivot[rows], 1 / (k * tau), state.tail.dtype)
        columns = coefficients[rows].unsqueeze(2).unbind(1)  # k of (block, 1)
        polynomial = columns[-1]
        for column in reversed(columns[:-1]):
            polynomial = torch.addcmul(column, polynomial, u)
        torch.mul(polynomial, u, out=gradient[rows]) if u.dtype == scores.dtype else gradient[rows].copy_(
            polynomial * u
        )
    return gradient.scatter_(1, state.index, (state.head * grad_loss[:, None]).to(scores.dtype))


def largest_others(scores: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of the classes other than the label, (N, k), and their classes with the label last."""
    labels = labels[:, None].long()
    values, index = scores.topk(k + 1)
    skip = (index == labels).to(torch.int64).cumsum(1)[:, :k]
    places = torch.arange(k, device=scores.device) + skip
    return values.gather(1, places), torch.cat([index.gather(1, places), labels], 1)


def blocks(scores: Tensor):
    """Slices of rows that fit in cache; one slice for everything where a compiler or a GPU does better."""
    rows, classes = scores.shape
    size = rows if torch.compiler.is_compiling() or scores.is_cuda else max(1, BLOCK // max(1, classes))
    return [slice(start, start + size) for start in range(0, rows, max(1, size))]


def tail_weights(scores: Tensor, kth_score: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """u = exp((s - s_[k]) / (kτ)); the difference comes first, because s / (kτ) alone has lost its small digits."""
    return scores.to(dtype).sub(kth_score).mul_(scale).exp_()


def power_sums(scores: Tensor, kth_score: Tensor, index: Tensor, k: int, scale: float, dtype: torch.dtype) -> Tensor:
    """Σ u^m over the tail for m = 1..k, shape (N, k), in float64."""
    sums = []
    for rows in blocks(scores):
        u = tail_weights(scores[rows], kth_score[rows].to(dtype), scale, dtype).scatter_(1, index[rows], 0.0)
        powers = [u]
        while 2 * len(powers) < k:
            powers.append(powers[-1] * u)
        sums.append(
            torch.stack(
                [u.sum(1)]
                + [torch.linalg.vecdot(powers[m // 2 - 1], powers[(m + 1) // 2 - 1]) for m in range(2, k + 1)],
                1,
            )
        )
    return torch.cat(sums).double() if sums else scores.new_zeros(0, k, dtype=torch.float64)


def newton(sums: Tensor) -> Tensor:
    """ε_0..ε_k from power sums by m ε_m = Σ_r (-1)^(r-1) ε_{m-r} p_r, shape (N, k + 1)."""
    signed = sums.clone()
    signed[:, 1::2].neg_()
    sigmas = [torch.ones_like(sums[:, 0])]
    for m in range(1, sums.shape[1] + 1):
        sigmas.append((signed[:, :m] * torch.stack(sigmas[::-1], 1)).sum(1).div_(m).clamp_(min=0))
    return torch.stack(sigmas, 1)


def merge(head: Tensor, tail_sigmas: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """S_0..S_k (N, k + 1); the same without each class of the head (N, k, k + 1); the span weights.

    All k + 1 head polynomials, one for each class left out and one with all of them, grow together.
    """
    rows, k = head.shape
    factors = pivot.head_factors(head, head)
    polynomials = torch.nn.functional.pad(head.new_ones(rows, k + 1, 1), (0, k))
    kept = 1 - torch.eye(k, k + 1, dtype=head.dtype, device=head.device)
    for i in range(k):
        step = polynomials[..., :-1] * factors[:, i, None] * kept[i, :, None]
        polynomials = torch.cat([polynomials[..., :1], polynomials[..., 1:] + step], 2)
    weights = pivot.span_weights(head)
    merged = polynomials @ pivot.merge_matrix(weights, tail_sigmas)
    return merged[:, -1], merged[:, :-1], weights


def tail_coefficients(sigmas: Tensor, weights: Tensor) -> Tensor:
    """Coefficients (N, k) of q^(k) - q^(k-1) = Σ_m (-1)^m (σ_{k-1-m}/σ_k - σ_{k-2-m}/σ_{k-1}) u^(m+1)."""
    k = sigmas.shape[1] - 1
    of_k = sigmas[:, :k] * weights[:, :k, k] / sigmas[:, k:]
    of_k_minus_1 = sigmas[:, : k - 1] * weights[:, : k - 1, k - 1] / sigmas[:, k - 1 : k]
    difference = of_k.flip(1) - torch.nn.functional.pad(of_k_minus_1.flip(1), (0, 1))
    difference[:, 1::2].neg_()
    return difference
