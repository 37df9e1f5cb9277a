"""The pivot algorithm: exact elementary symmetric polynomials in linear space, O(kn), for any temperature.

Scores go in, sigma_0..sigma_k come out, each divided by its own largest term. Nothing overflows, and what underflows
is negligible. Beyond the paper; derived in notebooks/06_pivot.

With x = scale * scores, the *head* is the k largest x_[1] >= ... >= x_[k], the *pivot* is x_[k], and the *tail* is the
rest. Every polynomial is kept as

    S_j = σ_j(exp x) / exp(x_[1] + ... + x_[j]),   1 <= S_j <= C(n, j).

Everything here is a composition of differentiable torch functions whose reverse mode only adds and multiplies positive
numbers, so derivatives of any order are as accurate as the values. Per-sample quantities, (N, k), are in float64.
"""

import torch
from torch import Tensor


def log_sigma(x: Tensor, k: int) -> Tensor:
    """log σ_0, ..., log σ_k of exp(x), shape (N, k + 1), for x of shape (N, n)."""
    scaled, log_largest_term = scaled_sigmas(x, k)
    return (safe_log(scaled) + log_largest_term).to(x.dtype)


def marginals(x: Tensor, k: int) -> Tensor:
    """Probability that class i is in a random k-subset drawn with weight exp(Σ x): ∂ log σ_k / ∂x_i, shape (N, n).

    Appendix C, Proposition 7. Rows sum to k.
    """
    _, pull_back = torch.func.vjp(lambda rows: safe_log(scaled_sigmas(rows, k)[0][:, -1]), x)
    return pull_back(x.new_ones(x.shape[0], dtype=torch.float64))[0]


def scaled_sigmas(scores: Tensor, k: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """S_0..S_k (N, k + 1), differentiable, and the logarithms of the terms they were divided by (constants).

    The normalisers are constants for differentiation, which leaves ∂ log S_j = ∂ log σ_j.
    """
    head_scores, head_index = scores.topk(k)
    pivot = smallest_finite(head_scores.detach())  # (N, 1)
    head = (head_scores.double() - pivot) * scale  # (N, k), descending to zero
    tail = torch.exp((scores.scatter(1, head_index, -torch.inf) - pivot.to(scores.dtype)) * scale)  # (N, n), in [0, 1]

    constant = head.detach()
    constant = constant.masked_fill(constant == -torch.inf, 0.0)
    scaled_head = head_polynomial(head, constant)  # (N, k + 1)
    tail_sigmas = product_tree(tail, k).double()  # (N, k + 1)
    sigmas = (scaled_head[:, None] @ merge_matrix(span_weights(constant), tail_sigmas)).squeeze(1)

    degrees = torch.arange(k + 1, device=scores.device)
    log_largest_term = torch.cat([constant.new_zeros(len(constant), 1), constant.cumsum(1)], 1)
    return sigmas, log_largest_term + degrees * (pivot * scale)


def smallest_finite(head_scores: Tensor) -> Tensor:
    """The pivot (N, 1) in float64: the smallest score of the head that is not -inf (0 where there is none)."""
    pivot = head_scores.double().masked_fill(head_scores == -torch.inf, torch.inf).amin(1, keepdim=True)
    return pivot.masked_fill(pivot == torch.inf, 0.0)


def safe_log(scaled: Tensor) -> Tensor:
    """log S with -inf, and a derivative of zero, where S is zero: no subset of that size exists."""
    empty = scaled == 0
    return torch.where(empty, -torch.inf, torch.log(torch.where(empty, 1.0, scaled)))


def head_factors(head: Tensor, constant: Tensor) -> Tensor:
    """exp(t_i - t_j) for j <= i, all at most one, else zero: (N, i, j), the factors of the head's recursion."""
    k = head.shape[1]
    later = torch.ones(k, k, dtype=torch.bool, device=head.device).triu(1)
    return (head[:, :, None] - constant[:, None, :]).masked_fill(later, -torch.inf).exp()


def head_polynomial(head: Tensor, constant: Tensor) -> Tensor:
    """a_j = σ_j(exp head) / exp(t_1 + ... + t_j), shape (N, k + 1), by a_j <- a_j + exp(t_i - t_j) a_{j-1}."""
    factors = head_factors(head, constant)
    ones = torch.ones_like(head[:, :1])
    coefficients = torch.cat([ones, torch.zeros_like(head)], 1)
    for i in range(head.shape[1]):
        coefficients = torch.cat([ones, coefficients[:, 1:] + factors[:, i] * coefficients[:, :-1]], 1)
    return coefficients


def span_weights(constant: Tensor) -> Tensor:
    """exp(-(t_{i+1} + ... + t_j)) for i <= j, else zero: (N, k + 1, k + 1).

    Spans are summed afresh rather than subtracted from one running sum, which would lose what is small.
    """
    k = constant.shape[1]
    above = torch.ones(k + 1, k, dtype=torch.bool, device=constant.device).triu()  # place l of row i, where l > i
    spans = torch.where(above, constant[:, None, :], 0.0).cumsum(2)  # (N, k + 1, k)
    weights = torch.nn.functional.pad(torch.exp(-spans), (1, 0), value=1.0)
    return weights.triu()


def merge_matrix(weights: Tensor, tail_sigmas: Tensor) -> Tensor:
    """M with (scaled head) @ M = scaled sigmas of head and tail: M[i, j] = weight[i, j] ε_{j-i}."""
    places = torch.arange(tail_sigmas.shape[1], device=tail_sigmas.device)
    return weights * tail_sigmas[:, (places[None, :] - places[:, None]).clamp(min=0)]


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
