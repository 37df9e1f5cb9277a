"""The pivot algorithm: exact elementary symmetric polynomials in linear space, O(kn), for any temperature.

Scores go in, sigma_0..sigma_k come out, each divided by its own largest term. Nothing overflows, and what underflows
is negligible. Beyond the paper; derived in notebooks/06_pivot.

With x = scale * scores, the *head* is the k largest x_[1] >= ... >= x_[k], the *pivot* is x_[k], and the *tail* is the
rest. Every polynomial is kept as

    S_j = σ_j(exp x) / exp(x_[1] + ... + x_[j]),   1 <= S_j <= C(n, j).

Everything here is a composition of differentiable torch functions whose reverse mode only adds and multiplies positive
numbers, so derivatives of any order are as accurate as the values. All of it is in float64 (float32 on a device that
has no float64), and what has k numbers per sample has the samples last, (k, N), so that every step is a few contiguous
vectors.

The bound C(n, j) decides the arithmetic, never the scores: float64 while it fits, with room for the derivatives, and
logarithms of float64 where it does not (n = 2,000 and k = 1,000: 10^600 subsets).
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ..targets import WITHOUT_FLOAT64, wide
from . import divide_and_conquer

MEMORY = 1 << 21  # numbers in one level of the product tree of a block of rows
LARGEST_EXPONENT = {torch.float64: 1e300, torch.float32: 1e30}  # sums of exponents stay finite
# A derivative passes the tree divided by S_k and multiplied by a factor from above. Logarithm of the smallest factor
# that keeps its digits: any that float32 can hold; in float64 half of the exponents are S_k's, half the factor's.
SMALLEST_LOG_FACTOR = {torch.float32: -104.0, torch.float64: -354.0}
LARGEST_LOG_SUBSETS = 69.0  # 1e30, where float32 computes


def log_sigma(x: Tensor, k: int) -> Tensor:
    """log σ_0, ..., log σ_k of exp(x), shape (N, k + 1), for x of shape (N, n)."""
    log_scaled, log_largest_term = log_scaled_sigmas(x, k)
    log_sigmas = torch.where(log_scaled == -torch.inf, -torch.inf, log_scaled + log_largest_term)
    return log_sigmas.T.to(x.dtype)


def marginals(scores: Tensor, k: int, scale: float = 1.0) -> Tensor:
    """Probability (N, n) that class i is in a random k-subset drawn with weight exp(Σ x): ∂ log σ_k / ∂x_i.

    Appendix C, Proposition 7, with x = scale * scores. Rows sum to k. A common shift of x changes nothing, so x is
    measured from the pivot: scaled scores far from zero would have lost their small digits.
    """
    pieces = []
    for (part,) in blocks(k, scores):
        finite = part.detach().amax(1, keepdim=True) < torch.inf  # false for NaN
        x = scaled(wide(part) - smallest_finite(part.detach().topk(k).values), scale)
        log_sigma_k, pull_back = torch.func.vjp(lambda rows: log_scaled_sigmas(rows, k)[0][-1], x)[:2]
        pieces.append(torch.where(finite, pull_back(torch.ones_like(log_sigma_k))[0], torch.nan))
    return torch.cat(pieces).to(scores.dtype)


def blocks(k: int, scores: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The rows of the scores (N, n), and of tensors to match, in blocks that bound the memory of the product tree."""
    rows = max(1, MEMORY // max(1, k * scores.shape[1]))
    return zip(*(tensor.split(rows) for tensor in (scores, *others)), strict=True)


def log_scaled_sigmas(scores: Tensor, k: int, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """log S_0..S_k (k + 1, N), differentiable, and the logarithms of the terms S was divided by (constants).

    The normalisers are constants for differentiation, which leaves ∂ log S_j = ∂ log σ_j. Where S may exceed float64,
    the tail's tree is that of Algorithm 1, and the head joins in logarithms too. A sum of logarithms rounds in
    proportion to their size; here that is log C(n, k) at most, whatever the temperature, because a term far below the
    largest one is negligible: three of float64's sixteen digits for the largest n and k in use.
    """
    if fits(scores, k):
        sigmas, log_largest_term = scaled_sigmas(scores, k, scale)
        return safe_log(sigmas), log_largest_term
    log_sigmas, log_largest_terms = [], []
    for (part,) in blocks(k, wide(scores)):
        head, change, log_tail, log_largest_term = around_pivot(part, k, scale)
        log_tail_sigmas = divide_and_conquer.log_sigma(log_tail, k).T
        log_sigmas.append(log_add_head(log_tail_sigmas, head, change)[-1])
        log_largest_terms.append(log_largest_term)
    return torch.cat(log_sigmas, 1), torch.cat(log_largest_terms, 1)


def scaled_sigmas(scores: Tensor, k: int, scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """S_0..S_k (k + 1, N) themselves, for n and k that fit float64, and what `log_scaled_sigmas` returns with them."""
    head, change, log_tail, log_largest_term = around_pivot(wide(scores), k, scale)
    tail = product_tree(torch.exp(log_tail), k).T
    return add_head(tail, decays(head), torch.exp(change))[-1], log_largest_term


def fits(scores: Tensor, k: int) -> bool:
    """Whether S_k <= C(n, k), and a derivative divided by it, keep all their digits in float64."""
    classes = scores.shape[1]
    degree = min(k, classes // 2)  # where C(n, j) is largest among j <= k
    log_subsets = math.lgamma(classes + 1.0) - math.lgamma(degree + 1.0) - math.lgamma(classes - degree + 1.0)
    if scores.device.type in WITHOUT_FLOAT64:
        return log_subsets < LARGEST_LOG_SUBSETS
    log_smallest = math.log(torch.finfo(torch.float64).tiny)
    return log_smallest + log_subsets < SMALLEST_LOG_FACTOR.get(scores.dtype, SMALLEST_LOG_FACTOR[torch.float32])


def around_pivot(scores: Tensor, k: int, scale: float | Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Head (k, N), its change (k, N), tail (N, n) in [-inf, 0], and the log of each S_j's largest term (k + 1, N).

    Scores (N, n) in float64. Head and tail are measured from the pivot. The head is a constant for differentiation,
    finite also where differences overflow; its change, zeros, carries the derivatives. A class of -inf has the head 0
    and the change -inf, and the tail has -inf for the head.
    """
    head_scores, head_index = scores.topk(k)
    known = head_scores.detach()
    deleted = known == -torch.inf
    pivot = smallest_finite(known)  # (N, 1)
    distance = torch.where(deleted, 0.0, known - pivot)  # descending to zero
    difference = torch.where(deleted, 0.0, head_scores - known)  # of two infinities, it is no number
    change = torch.where(deleted, -torch.inf, difference * scale)
    known_scale = scale
    if isinstance(scale, Tensor):
        known_scale = scale.detach()
        change = change + distance * (scale - known_scale)
    tail = scaled(scores.scatter(1, head_index, -torch.inf) - pivot, scale)
    log_terms = (torch.where(deleted, 0.0, known) * known_scale).T.cumsum(0)
    head = (distance * known_scale).clamp(max=torch.finfo(distance.dtype).max)
    return head.T, change.T, tail, torch.cat([torch.zeros_like(log_terms[:1]), log_terms])


def scaled(differences: Tensor, scale: float | Tensor) -> Tensor:
    """Exponents from differences of scores; beyond LARGEST_EXPONENT a class is in every subset that counts."""
    if not isinstance(scale, Tensor):
        return (differences * scale).clamp(max=LARGEST_EXPONENT[differences.dtype])
    deleted = differences == -torch.inf  # whose derivative by the scale is no number
    exponents = (torch.where(deleted, 0.0, differences) * scale).clamp(max=LARGEST_EXPONENT[differences.dtype])
    return torch.where(deleted, -torch.inf, exponents)


def smallest_finite(head_scores: Tensor) -> Tensor:
    """The pivot (N, 1) in float64: the smallest score of the head that is not -inf (0 where there is none)."""
    pivot = wide(head_scores).masked_fill(head_scores == -torch.inf, torch.inf).amin(1, keepdim=True)
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


def log_add_head(log_tail_sigmas: Tensor, head: Tensor, live: Tensor) -> list[Tensor]:
    """`add_head` in logarithms: `live` (k, N) holds zeros that carry the derivatives, -inf for a class of -inf."""
    k, log_polynomials = len(head), [log_tail_sigmas]
    beyond = torch.cat([head, torch.zeros_like(head)])
    for i in reversed(range(k)):
        last = log_polynomials[-1]
        terms = beyond[i + 1 : i + 1 + k] - head[i] + last[1:], live[i] + last[:-1]
        log_polynomials.append(torch.cat([last[:1], divide_and_conquer.log_sum_exp(torch.stack(terms, -1))]))
    return log_polynomials


def log_add_below(head: Tensor, live: Tensor) -> list[Tensor]:
    """Logarithms of the scaled polynomials of nothing, of t_1, of t_1 and t_2, ..., of the whole head, (k + 1, N) each.

    The other way round than `log_add_head`: class i is the smallest so far, S_j <- S_j + exp(t_i - t_j) S_{j-1}.
    """
    nothing = torch.full_like(head, -torch.inf)
    log_polynomials = [torch.cat([torch.zeros_like(head[:1]), nothing])]
    for i in range(len(head)):
        last = log_polynomials[-1]
        terms = last[1:], live[i] + (head[i] - head).clamp(max=0.0) + last[:-1]
        log_polynomials.append(torch.cat([last[:1], divide_and_conquer.log_sum_exp(torch.stack(terms, -1))]))
    return log_polynomials


def product_tree(u: Tensor, k: int) -> Tensor:
    """Coefficients 0..k of Π_i (1 + u_i X), shape (N, k + 1), by a tree of truncated products of positive numbers."""
    polynomials = torch.stack([torch.ones_like(u), u], 2)  # (N, n, 2)
    while polynomials.shape[1] > 1:
        half = polynomials.shape[1] // 2
        product = multiply(polynomials[:, :half], polynomials[:, half : 2 * half], k)
        if polynomials.shape[1] % 2:
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
