"""The loss and its gradient for any k from 1 to n - 1, in plain torch: O(kn), accurate to rounding.

Power sums and Horner's rule lose about 2**k while odds are measured from the pivot s_[k] (torch_backend.py). Measured
from the right point, they lose next to nothing, whatever k is. Throw a coin for every class i beside the label, with

    odds v_i = exp((s_i - b)/(kτ)),   probability p_i = v_i / (1 + v_i).

Then P_j = σ_j(v) / Π(1 + v_i) is the probability that j classes come up. Choose b, the *balance*, such that k - 1/2
classes are expected, Σ p_i = k - 1/2. Now k - 1 and k are the two most probable numbers, neither is six times as
probable as the other, and both are more probable than 1 / (6n). What is 1e-16 of one is therefore all that can be lost:

* tail, v_i <= 1: ε_m = σ_m(v) for m <= k, from power sums by Newton's identities (`newton`: why they are stable);
* head, v_i > 1, less than 2k classes because each adds more than 1/2 to the sum: count those that do *not* come up,
  with odds 1/v_i < 1. η_m = σ_m(1/v) in the same way, and H_j = η_{h-j} for the h classes of the head;
* together: Z = ε H, a product of two polynomials. Z_j = P_j for j <= k, but for one factor common to all j, so

    L = τ softplus(z),   z = margin/τ + (b - s_y)/(kτ) + log(Z_k / Z_{k-1}).

The derivative by a class divides its factor (1 + v X) out of Z, from below for the tail and from above for the head:

    tail   ∂L/∂s_i = w Σ_{m>=0} (-1)^m v_i^{m+1} (Z_{k-1-m} / Z_k - Z_{k-2-m} / Z_{k-1}),     w = sigmoid(z)/k
    head   ∂L/∂s_i = w Σ_{m>=1} (-1)^m v_i^{-m}  (Z_{k+m} / Z_k - (Z_{k-1+m} - ε_k H_{m-1}) / Z_{k-1})

Powers of numbers below one, and coefficients whose sum is below 1 / P_k: again nothing grows. (Beyond degree k the
product Z lacks what ε beyond k would add. That is right for H divided by a class: it meets no other ε. The term ε_k H
is taken out of the second sum because there it meets ε up to k - 1 only.)

A row that holds a NaN or +inf, or whose label is not a class, has a loss and derivatives of NaN. Where fewer than k
other classes are finite, loss and derivatives are zero.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..arguments import widened
from .margins import exponent_scale, loss_of_margin, share_of_margin
from .torch_backend import largest_others

BLOCK = 1 << 17  # scores whose odds are worked on at a time: two buffers of float64 that stay in cache
RESCALED_EVERY = 32  # steps in which a polynomial grows by (2k)**32 at most


class RowState(NamedTuple):
    """What the backward pass needs beside the scores, O(k) numbers per row."""

    kth_score: Tensor  # (N, 1) s_[k], the pivot
    shift: Tensor  # (N, 1) (s_[k] - b) / (kτ), from the pivot to the balance
    tail: Tensor  # (k, N) the derivative of a tail class is a polynomial in v: its coefficients
    columns: Tensor  # (N, 2k) the 2k - 1 largest classes beside the label, or all, with the head; then the label
    largest: Tensor  # (2k, N) their derivatives


State = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]  # losses and the fields of a RowState


def supports(scores: Tensor, k: int) -> bool:
    """Any k, any device, any floating-point dtype, and stand-ins without numbers: no step looks at the scores."""
    return scores.is_floating_point()


def forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> tuple[Tensor, ...]:
    """Losses (N,) of scores (N, C), and the five tensors of a RowState; half precision is computed in float32."""
    scores = widened(scores)
    return (forward_operator if torch.compiler.is_compiling() else _forward)(scores, labels, k, tau, margin)


def backward(scores: Tensor, state: tuple[Tensor, ...], grad_loss: Tensor, k: int, tau: float) -> Tensor:
    """Derivatives by the scores, (N, C)."""
    scores = widened(scores)
    compute: Callable[..., Tensor] = backward_operator if torch.compiler.is_compiling() else _backward
    return compute(scores, *state, grad_loss, k, tau)


def _forward(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> State:
    classes = scores.shape[1]
    right = (labels >= 0) & (labels < classes) & (scores.amax(1) < torch.inf)  # false for NaN
    labels = labels.clamp(0, classes - 1)
    values, index = largest_others(scores, labels, min(classes - 1, 2 * k - 1))
    missing = values[:, k - 1] == -torch.inf  # fewer than k other classes: the label is always in the top k
    kth_score = values[:, k - 1 : k].double().masked_fill(missing[:, None], 0.0)
    shift, tail_sums = balanced_power_sums(scores, kth_score, index, k, tau)

    largest = (exponents(values, kth_score, k, tau) + shift).T  # (2k - 1, N)
    in_head = largest > 0
    odds, inverse_odds = largest.clamp(max=0).exp(), (-largest).exp().masked_fill(~in_head, 0.0)
    tail = newton(tail_sums)
    head = reversed_from(newton(power_sums(inverse_odds, len(largest))), in_head.sum(0))
    sigmas = multiply(tail, head)

    true_score = scores.gather(1, index[:, -1:]).double()
    log_ratio = torch.log(sigmas[k] / sigmas[k - 1]) - shift[:, 0]
    smooth_margin = margin + ((kth_score - true_score) / k)[:, 0] + tau * log_ratio
    smooth_margin = smooth_margin.masked_fill(missing, -torch.inf).masked_fill(~right, torch.nan)
    losses = loss_of_margin(smooth_margin, tau)
    share = share_of_margin(smooth_margin, tau) / k

    by_tail, by_head = coefficients(sigmas, tail, head)
    by_largest = torch.where(in_head, polynomial(inverse_odds, by_head), polynomial(odds, by_tail))
    by_largest = torch.cat([by_largest, -torch.ones_like(share)[None]])
    by_tail, by_largest = (torch.where(share == 0, 0.0, share * derivative) for derivative in (by_tail, by_largest))
    return losses.to(scores.dtype), kth_score, shift, by_tail, index, by_largest


def _backward(
    scores: Tensor,
    kth_score: Tensor,
    shift: Tensor,
    tail: Tensor,
    index: Tensor,
    largest: Tensor,
    grad_loss: Tensor,
    k: int,
    tau: float,
) -> Tensor:
    by_tail = (tail * grad_loss).unsqueeze(2)  # (k, N, 1)
    gradient = torch.empty_like(scores, memory_format=torch.contiguous_format)
    for rows in blocks(scores):
        odds = (exponents(scores[rows], kth_score[rows], k, tau) + shift[rows]).clamp_(max=0).exp_()
        gradient[rows] = polynomial(odds, by_tail[:, rows])
    return gradient.scatter_(1, index, (largest * grad_loss).T.to(scores.dtype))


def _empty_state(scores: Tensor, labels: Tensor, k: int, tau: float, margin: float) -> State:
    rows, classes = scores.shape
    widest = min(classes, 2 * k)
    losses, index = scores.new_empty(rows), labels.new_empty(rows, widest, dtype=torch.int64)
    shapes = (rows, 1), (rows, 1), (k, rows), (widest, rows)
    kth_score, shift, tail, largest = (scores.new_empty(shape, dtype=torch.float64) for shape in shapes)
    return losses, kth_score, shift, tail, index, largest


# A compiler sees one operator per pass: unrolled, the 10k small steps of a pass would take minutes to compile.
forward_operator = torch.library.custom_op("smooth_topk::large_k_forward", _forward, mutates_args=())
forward_operator.register_fake(_empty_state)
backward_operator = torch.library.custom_op("smooth_topk::large_k_backward", _backward, mutates_args=())
backward_operator.register_fake(lambda scores, *_: torch.empty_like(scores, memory_format=torch.contiguous_format))


def blocks(scores: Tensor) -> list[slice]:
    """Slices of rows that stay in cache; all rows at once for a GPU."""
    rows, classes = scores.shape
    if scores.device.type != "cpu":
        return [slice(0, rows)]
    size = max(1, BLOCK // classes)
    return [slice(start, start + size) for start in range(0, rows, size)]


def exponents(scores: Tensor, kth_score: Tensor, k: int, tau: float) -> Tensor:
    """(s - s_[k]) / (kτ) in float64."""
    return (scores.double() - kth_score).mul_(exponent_scale(k, tau))


def balanced_power_sums(scores: Tensor, kth_score: Tensor, index: Tensor, k: int, tau: float) -> tuple[Tensor, Tensor]:
    """The shift from pivot to balance (N, 1), and the power sums of the tail's odds (k, N)."""
    shifts, sums = [scores.new_empty(0, 1, dtype=torch.float64)], [scores.new_empty(k, 0, dtype=torch.float64)]
    for rows in blocks(scores):
        x = exponents(scores[rows], kth_score[rows], k, tau).scatter_(1, index[rows, -1:], -torch.inf)
        shift = balancing_shift(x.float(), k).double()
        largest = x.gather(1, index[rows]) + shift
        odds = (x + shift).clamp_(max=0).exp_().scatter_(1, index[rows], largest.exp().masked_fill(largest > 0, 0.0))
        shifts.append(shift)
        sums.append(power_sums(odds.T, k))
    return torch.cat(shifts), torch.cat(sums, 1)


def balancing_shift(x: Tensor, k: int) -> Tensor:
    """The shift (N, 1) that makes Σ sigmoid(x + shift) equal to k - 1/2, within a quarter, by halving an interval.

    x is zero at the pivot. A shift by log(2k) leaves each of k classes out with a probability below 1 / (2k), and the
    sum is above k - 1/2. A shift by -log(2n) leaves all but k - 1 classes a probability below 1 / (2n), and the sum is
    below. Its slope is Σ p(1 - p), at most k, which gives the number of steps.
    """
    classes = x.shape[1]
    low, high = (x.new_full((len(x), 1), bound) for bound in (-math.log(2 * classes), math.log(2 * k)))
    for _ in range(math.ceil(math.log2(4 * (k + 1) * math.log(4 * k * classes)))):
        middle = (low + high) / 2
        enough = torch.sigmoid(x + middle).sum(1, keepdim=True) > k - 0.5
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return (low + high) / 2


def power_sums(odds: Tensor, degree: int) -> Tensor:
    """Σ v^m for m = 1..degree over the first dimension: (n, N) in, (degree, N) out."""
    power, sums = odds.clone(), [odds.sum(0)]
    for _ in range(1, degree):
        sums.append(power.mul_(odds).sum(0))
    return torch.stack(sums)


def newton(sums: Tensor) -> Tensor:
    """σ_0, ..., σ_k from power sums p_1..p_k (k, N) by m σ_m = Σ_r (-1)^(r-1) p_r σ_{m-r}, but for a factor per row.

    Why the changing signs do no harm: with all roundings of relative size ε in these sums, σ_j / Π(1 + v) is wrong by
    ε Σ_r p_r / r at most, which is below 2k (1 + log k) ε. For an error e in m σ_m arrives at degree j as
    ∫ e t^(m-1) c(t) dt over [0, 1], where c(t) is the coefficient of X^(j-m) in Π(1 + v X) / (1 + t v X). On the circle
    |X| = 1 this function is at most Π(1 + v) / (1 + t v) because v <= 1, and so is each of its coefficients. The errors
    e, at most ε Σ_r p_r σ_{m-r}, sum up to ε Σ_r p_r t^r Π(1 + t v). The products cancel, and the integral remains.
    """
    degree, rows = sums.shape
    signed = sums.clone()
    signed[1::2].neg_()
    sigmas = sums.new_zeros(degree + 1, rows)  # σ_k, ..., σ_0
    sigmas[degree] = 1.0
    for m in range(1, degree + 1):
        found = sigmas[degree - m + 1 :]
        sigmas[degree - m] = (signed[:m] * found).sum(0) / m
        if m % RESCALED_EVERY == 0:
            sigmas /= found.amax(0).clamp(min=1.0)
    return sigmas.flip(0)


def reversed_from(sigmas: Tensor, count: Tensor) -> Tensor:
    """H_j = η_{h-j}, zero for j > h: η (d + 1, N) and h (N,) in, (d + 1, N) out."""
    places = count - torch.arange(len(sigmas), device=sigmas.device)[:, None]
    return sigmas.gather(0, places.clamp(min=0)).masked_fill(places < 0, 0.0)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """The product of two polynomials, coefficients (d + 1, N) and (e + 1, N) in, (d + e + 1, N) out."""
    product = a.new_zeros(len(a) + len(b) - 1, a.shape[1])
    for j, coefficient in enumerate(b):
        product[j : j + len(a)].addcmul_(a, coefficient)
    return product


def coefficients(sigmas: Tensor, tail: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """The two polynomials of the derivatives, without their constant term zero: (k, N) in v, (2k - 1, N) in 1/v."""
    k = len(tail) - 1
    lower, upper = sigmas[k - 1], sigmas[k]
    by_tail = sigmas[:k].flip(0) / upper
    by_tail[:-1] -= sigmas[: k - 1].flip(0) / lower
    by_tail[1::2].neg_()
    by_head = sigmas[k + 1 :] / upper - (sigmas[k:-1] - tail[k] * head[:-1]) / lower
    by_head[::2].neg_()
    return by_tail, by_head


def polynomial(x: Tensor, coefficients: Tensor) -> Tensor:
    """c_1 x + c_2 x² + ... by Horner's rule; the coefficients are in the first dimension."""
    *lower, last = coefficients.unbind()
    total = last.expand_as(x).clone()
    for coefficient in reversed(lower):
        torch.addcmul(coefficient, total, x, out=total)
    return total.mul_(x)
