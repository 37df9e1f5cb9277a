"""The pivot algorithm: exact elementary symmetric polynomials in linear space, O(kn), for any temperature.

Scores go in, sigma_0..sigma_k come out, each divided by its own largest term. Nothing overflows, and what underflows
is negligible. Beyond the paper; derived in notebooks/06_pivot.

With x = scale * scores, the *head* is the k largest x_[1] >= ... >= x_[k], the *pivot* is x_[k], and the *tail* is the
rest. Every polynomial is kept as

    S_j = σ_j(exp x) / exp(x_[1] + ... + x_[j]),   1 <= S_j <= C(n, j).

Everything here is a composition of differentiable torch functions whose reverse mode only adds and multiplies positive
numbers, so derivatives of any order are as accurate as the values. Quantities with k numbers a sample are in float64
and have the samples last, (k, N), so that every step is a few contiguous vectors.

The bound C(n, j) decides the arithmetic, never the scores: in the dtype of the scores while it fits, then in float64,
and in logarithms of float64 where even the number of subsets exceeds it (n = 2,000 and k = 1,000: 10^600).
"""

from collections.abc import Iterator
from math import comb

import torch
from torch import Tensor

from . import divide_and_conquer

MEMORY = 1 << 21  # numbers in one level of the product tree of a block of rows


def log_sigma(x: Tensor, k: int) -> Tensor:
    """log σ_0, ..., log σ_k of exp(x), shape (N, k + 1), for x of shape (N, n)."""
    log_scaled, log_largest_term = log_scaled_sigmas(x, k)
    return (log_scaled + log_largest_term).T.to(x.dtype)


def marginals(x: Tensor, k: int) -> Tensor:
    """Probability that class i is in a random k-subset drawn with weight exp(Σ x): ∂ log σ_k / ∂x_i, shape (N, n).

    Appendix C, Proposition 7. Rows sum to k.
    """
    pieces = []
    for (part,) in blocks(k, x):
        log_sigma_k, pull_back = torch.func.vjp(lambda rows: log_scaled_sigmas(rows, k)[0][-1], part)
        pieces.append(pull_back(torch.ones_like(log_sigma_k))[0])
    return torch.cat(pieces)


def blocks(k: int, scores: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The rows of the scores (N, n), and of tensors to match, in blocks that bound the memory of the product tree."""
    rows = max(1, MEMORY // max(1, k * scores.shape[1]))
    return zip(*(tensor.split(rows) for tensor in (scores, *others)), strict=True)


def log_scaled_sigmas(scores: Tensor, k: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """log S_0..S_k (k + 1, N), differentiable, and the logarithms of the terms S was divided by (constants).

    The normalisers are constants for differentiation, which leaves ∂ log S_j = ∂ log σ_j. Where S may exceed float64,
    the tail's tree is that of Algorithm 1, and the head joins in logarithms too. A sum of logarithms rounds in
    proportion to their size; here that is log C(n, k) at most, whatever the temperature, because a term far below the
    largest one is negligible: three of float64's sixteen digits for the largest n and k in use.
    """
    if fits(scores, k, torch.float64):
        sigmas, log_largest_term = scaled_sigmas(scores, k, scale)
        return safe_log(sigmas), log_largest_term
    log_sigmas, log_largest_terms = [], []
    for (part,) in blocks(k, scores.double()):
        head, constant, log_tail, log_largest_term = around_pivot(part, k, scale)
        log_tail_sigmas = divide_and_conquer.log_sigma(log_tail, k).T
        log_sigmas.append(log_add_head(log_tail_sigmas, constant, head - constant))
        log_largest_terms.append(log_largest_term)
    return torch.cat(log_sigmas, 1), torch.cat(log_largest_terms, 1)


def scaled_sigmas(scores: Tensor, k: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """S_0..S_k (k + 1, N) themselves, for n and k that fit float64, and what `log_scaled_sigmas` returns with them."""
    rows = scores if fits(scores, k, scores.dtype) else scores.double()
    head, constant, log_tail, log_largest_term = around_pivot(rows, k, scale)
    live = torch.exp(head - constant)  # ones, that carry the derivatives; zero for a class of -inf
    tail = product_tree(torch.exp(log_tail), k).double().T
    return add_head(tail, decays(constant), live)[-1], log_largest_term


def fits(scores: Tensor, k: int, dtype: torch.dtype) -> bool:
    """Whether S_k <= C(n, k), and 1 / S_k in the derivatives, keep all their digits in the dtype."""
    classes = scores.shape[1]
    return comb(classes, min(k, classes // 2)) < 1 / torch.finfo(dtype).tiny


def around_pivot(scores: Tensor, k: int, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Head (k, N), the same as a constant, tail (N, n) in [-inf, 0], and the log of each S_j's largest term (k + 1, N).

    Head and tail are measured from the pivot. A class of -inf has the constant 0, the tail has -inf for the head.
    """
    head_scores, head_index = scores.topk(k)
    pivot = smallest_finite(head_scores.detach())  # (N, 1)
    head = ((head_scores.double() - pivot) * scale).T  # (k, N), descending to zero
    tail = (scores.scatter(1, head_index, -torch.inf) - pivot.to(scores.dtype)) * scale
    constant = head.detach()
    constant = constant.masked_fill(constant == -torch.inf, 0.0)
    degrees = torch.arange(k + 1, device=scores.device)[:, None]
    log_largest_term = torch.cat([torch.zeros_like(constant[:1]), constant.cumsum(0)])
    return head, constant, tail, log_largest_term + degrees * (pivot.T * scale)


def smallest_finite(head_scores: Tensor) -> Tensor:
    """The pivot (N, 1) in float64: the smallest score of the head that is not -inf (0 where there is none)."""
    pivot = head_scores.double().masked_fill(head_scores == -torch.inf, torch.inf).amin(1, keepdim=True)
    return pivot.masked_fill(pivot == torch.inf, 0.0)


def safe_log(scaled: Tensor) -> Tensor:
    """log S with -inf, and a derivative of zero, where S is zero: no subset of that size exists.

    Divided by its own value as a constant, because 1 / S² of a second derivative underflows long before S overflows.
    """
    empty = scaled == 0
    constant = torch.where(empty, 1.0, scaled.detach())
    return torch.where(empty, -torch.inf, torch.log(torch.where(empty, 1.0, scaled / constant)) + constant.log())


def decays(head: Tensor) -> Tensor:
    """exp(t_{i+j} - t_i), at most one, (i, j, N) with i, j = 1..k; beyond the head, t is zero."""
    places = torch.arange(len(head), device=head.device)
    return (torch.cat([head, torch.zeros_like(head)])[places[:, None] + places + 1] - head[:, None]).exp()


def add_head(tail_sigmas: Tensor, decays: Tensor, live: Tensor | None = None) -> list[Tensor]:
    """The scaled polynomials of the tail, then with t_k, with t_k and t_{k-1}, ..., with the whole head.

    Class i joins by S_j <- exp(t_{i+j} - t_i) S_j + S_{j-1}, because the largest term of degree j becomes
    exp(t_i + ... + t_{i+j-1}). Each has shape (k + 1, N).
    """
    polynomials = [tail_sigmas]
    for i in reversed(range(len(decays))):
        last = polynomials[-1]
        below = last[:-1] if live is None else live[i] * last[:-1]
        polynomials.append(torch.cat([last[:1], torch.addcmul(below, decays[i], last[1:])]))
    return polynomials


def log_add_head(log_tail_sigmas: Tensor, head: Tensor, live: Tensor) -> Tensor:
    """The last of `add_head`, in logarithms: `live` holds zeros that carry the derivatives."""
    k, log_sigmas = len(head), log_tail_sigmas
    beyond = torch.cat([head, torch.zeros_like(head)])
    for i in reversed(range(k)):
        terms = beyond[i + 1 : i + 1 + k] - head[i] + log_sigmas[1:], live[i] + log_sigmas[:-1]
        log_sigmas = torch.cat([log_sigmas[:1], divide_and_conquer.log_sum_exp(torch.stack(terms, -1))])
    return log_sigmas


def product_tree(u: Tensor, k: int) -> Tensor:
    """Coefficients 0..k of Π_i (1 + u_i X), shape (N, k + 1), by a tree of truncated products of positive numbers."""
    polynomials = torch.stack([torch.ones_like(u), u], 2)  # (N, n, 2)
    while polynomials.shape[1] > 1:
        half, odd = divmod(polynomials.shape[1], 2)
        product = multiply(polynomials[:, :half], polynomials[:, half : 2 * half], k)
        if odd:
            last = polynomials[:, -1:]
            last = torch.nn.functional.pad(last, (0, product.shape[2] - last.shape[2]))
            product = torch.cat([product, last], 1)
        polynomials = product
    coefficients = polynomials[:, 0] if u.shape[1] else torch.ones_like(u[:, :0]).sum(1, keepdim=True) + 1
    return torch.nn.functional.pad(coefficients, (0, k + 1 - coefficients.shape[1]))


def multiply(a: Tensor, b: Tensor, k: int) -> Tensor:
    """Products of polynomials along the last dimension, (N, m, d + 1) each, truncated at degree k."""
    degree = min(k, a.shape[2] + b.shape[2] - 2)
    terms = []
    for i in range(min(a.shape[2], degree + 1)):
        shifted = b[..., : degree + 1 - i]
        terms.append(torch.nn.functional.pad(a[..., i : i + 1] * shifted, (i, degree + 1 - i - shifted.shape[2])))
    product = terms[0]
    for term in terms[1:]:
        product = product + term
    return product
