"""The loss and its gradient for any k from 1 to n - 1, in plain torch: O(kn), accurate to rounding.

Power sums and Horner's rule lose about 2**k while odds are measured from the pivot s_[k] (torch_backend.py). Measured
from the right point, they lose next to nothing, whatever k is. Throw a coin for every class i but the label, with

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

import torch
from torch import Tensor

from .margins import exponent_scale, loss_of_margin, share_of_margin

BLOCK = 1 << 17  # scores whose odds are worked on at a time: two buffers of float64 that stay in cache
RESCALED_EVERY = 32  # steps in which a polynomial grows by (2k)**32 at most


def balanced_rows(
    scores: Tensor, labels: Tensor, factors: Tensor, *, k: int, tau: float, margin: float, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Losses (N,) of scores (N, C), and derivatives by the scores times the factors (N,)."""
    classes = scores.shape[1]
    values, index = largest_others(scores, labels, min(classes - 1, 2 * k - 1))
    missing = values[:, k - 1] == -torch.inf  # fewer than k other classes: the label is always in the top k
    kth_score = values[:, k - 1 : k].double().masked_fill(missing[:, None], 0.0)
    x = exponents(scores, kth_score, k, tau).scatter_(1, index[:, -1:], -torch.inf)
    shift = balancing_shift(x.float(), k).double()  # (N, 1) (s_[k] - b) / (kτ)
    largest = (exponents(values, kth_score, k, tau) + shift).T  # (2k - 1, N)
    in_head = largest > 0
    largest_odds, inverse_odds = largest.clamp(max=0).exp(), (-largest).exp().masked_fill(~in_head, 0.0)
    odds = x.add_(shift).clamp_(max=0).exp_().scatter_(1, index[:, :-1], largest_odds.masked_fill(in_head, 0.0).T)
    tail = newton(power_sums(odds.T, k))
    head = reversed_from(newton(power_sums(inverse_odds, len(largest))), in_head.sum(0))
    sigmas = multiply(tail, head)

    true_score = scores.gather(1, index[:, -1:]).double()
    log_ratio = torch.log(sigmas[k] / sigmas[k - 1]) - shift[:, 0]
    smooth_margin = margin + ((kth_score - true_score) / k)[:, 0] + tau * log_ratio
    spoilt = ~(scores.amax(1) < torch.inf)  # true for NaN
    smooth_margin = smooth_margin.masked_fill(missing, -torch.inf).masked_fill(spoilt, torch.nan)
    losses = loss_of_margin(smooth_margin, tau).to(scores.dtype)
    if not needs_gradient:
        return losses, None
    share = share_of_margin(smooth_margin, tau) * (factors / k)
    by_tail, by_head = tail_coefficients(sigmas[: k + 1]), head_coefficients(sigmas, tail, head)
    by_largest = torch.where(in_head, polynomial(inverse_odds, by_head), polynomial(largest_odds, by_tail))
    by_largest = torch.cat([by_largest, -torch.ones_like(share)[None]])
    by_tail, by_largest = (torch.where(share == 0, 0.0, share * derivative) for derivative in (by_tail, by_largest))
    gradient = polynomial(odds, by_tail.unsqueeze(2)).to(scores.dtype)
    return losses, gradient.scatter_(1, index, by_largest.T.to(scores.dtype))


def largest_others(scores: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of the classes other than the label, (N, k), and their classes with the label last."""
    labels = labels[:, None]
    values, index = scores.topk(k + 1)
    places = (index == labels).cumsum(1)[:, :k] + torch.arange(k, device=scores.device)  # steps over the label
    return values.gather(1, places), torch.cat([index.gather(1, places), labels], 1)


def exponents(scores: Tensor, kth_score: Tensor, k: int, tau: float) -> Tensor:
    """(s - s_[k]) / (kτ) in float64."""
    return (scores.double() - kth_score).mul_(exponent_scale(k, tau))


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


def tail_coefficients(sigmas: Tensor) -> Tensor:
    """(-1)^m (Z_{k-1-m} / Z_k - Z_{k-2-m} / Z_{k-1}) for m = 0..k-1, (k, N), from Z_0..Z_k."""
    below = sigmas[:-1].flip(0)
    by_tail = below / sigmas[-1]
    by_tail[:-1] -= below[1:] / sigmas[-2]
    by_tail[1::2].neg_()
    return by_tail


def head_coefficients(sigmas: Tensor, tail: Tensor, head: Tensor) -> Tensor:
    """(-1)^m (Z_{k+m} / Z_k - (Z_{k-1+m} - ε_k H_{m-1}) / Z_{k-1}) for m = 1..h, (2k - 1, N)."""
    k = len(tail) - 1
    by_head = sigmas[k + 1 :] / sigmas[k] - (sigmas[k:-1] - tail[k] * head[:-1]) / sigmas[k - 1]
    by_head[::2].neg_()
    return by_head


def polynomial(x: Tensor, coefficients: Tensor) -> Tensor:
    """c_1 x + c_2 x² + ... by Horner's rule; the coefficients are in the first dimension."""
    *lower, last = coefficients.unbind()
    total = last.expand_as(x).clone()
    for coefficient in reversed(lower):
        torch.addcmul(coefficient, total, x, out=total)
    return total.mul_(x)
