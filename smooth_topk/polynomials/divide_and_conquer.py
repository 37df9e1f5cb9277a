"""Divide and conquer, Algorithm 1, in log space: log e (N, n) in, log σ_0..σ_k (N, k + 1) out (section 4.2).

The polynomial Π_i (1 + e_i X) has the coefficients σ_0, σ_1, ...; a tree of truncated products expands it in log₂ n
levels. The paper starts from X + 1/e_i and rescales by Π e_i, which gives the same polynomial (book/errata.md).
Differentiated by autograd, each level keeps its buffers: the cost that Algorithm 2 (backward.py) avoids.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def log_sigma(x: Tensor, k: int) -> Tensor:
    """log of the coefficients 0..k of Π_i (1 + exp(x_i) X), eq. (13) and (14).

    Example:
        >>> log_sigma(torch.tensor([[1.0, 2.0, 3.0]]).log(), 2).exp()  # (1 + X)(1 + 2X)(1 + 3X)
        tensor([[ 1.0000,  6.0000, 11.0000]])
    """
    polynomials = torch.stack([torch.zeros_like(x), x], 2)  # (N, n, 2): 1 + e_i X
    while polynomials.shape[1] > 1:
        if polynomials.shape[1] % 2:
            one = torch.full_like(polynomials[:, :1], -torch.inf)
            one[..., 0] = 0.0
            polynomials = torch.cat([polynomials, one], 1)
        polynomials = log_multiply(polynomials[:, ::2], polynomials[:, 1::2], k)
    coefficients = polynomials[:, 0, : k + 1]
    return pad(coefficients, (0, k + 1 - coefficients.shape[1]), value=-torch.inf)


def log_multiply(a: Tensor, b: Tensor, k: int) -> Tensor:
    """Products of polynomials along the last dimension, in logarithms, up to degree k (Lemma 4).

    Row c of the table holds the terms a_i b_{c-i}; b_{c-i} is a window of b padded with zeros, log 0 = -inf.
    """
    degree = a.shape[2] - 1
    highest = min(k, degree + b.shape[2] - 1)
    windows = pad(b, (degree, degree), value=-torch.inf).unfold(2, degree + 1, 1)[:, :, : highest + 1]
    return log_sum_exp(a.flip(2).unsqueeze(2) + windows)  # (N, m, highest + 1)


def log_sum_exp(terms: Tensor) -> Tensor:
    """log Σ exp over the last dimension (appendix B.2.1).

    Unlike `torch.logsumexp`, a sum of nothing but zeros has the derivative 0, not NaN.
    """
    largest = terms.detach().amax(-1, keepdim=True)
    largest = torch.where(largest.isinf(), 0.0, largest)
    total = (terms - largest).exp().sum(-1)
    empty = total == 0
    return torch.where(empty, -torch.inf, torch.where(empty, 1.0, total).log() + largest.squeeze(-1))
