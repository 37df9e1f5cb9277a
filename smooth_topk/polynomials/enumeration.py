"""Elementary symmetric polynomials by their definition: log e (N, n) in, log σ_0..σ_k (N, k + 1) out (section 4.1).

Every subset is written out. This is the truth for small n, and the cost the paper's algorithms avoid.
"""

from itertools import combinations
from math import comb

import torch
from torch import Tensor

from .divide_and_conquer import log_sum_exp

LARGEST_ENUMERATION = 1_000_000  # subsets of one size; beyond it, seconds and hundreds of megabytes a row


def log_sigma(x: Tensor, k: int) -> Tensor:
    """log σ_j, σ_j(e) = Σ_{i_1 < ... < i_j} e_{i_1} ... e_{i_j} with e = exp(x), for j = 0..k.

    Example:
        >>> log_sigma(torch.tensor([[1.0, 2.0, 3.0]]).log(), 2).exp()  # 1, 1 + 2 + 3, 1·2 + 1·3 + 2·3
        tensor([[ 1.0000,  6.0000, 11.0000]])
    """
    n = x.shape[1]
    largest = max(comb(n, j) for j in range(k + 1))
    if largest > LARGEST_ENUMERATION:
        raise ValueError(
            f"Enumeration sums at most {LARGEST_ENUMERATION} subsets of one size, got {largest} for n={n} and k={k}."
        )
    return torch.stack([_log_sum_of_products(x, j) for j in range(k + 1)], 1)


def _log_sum_of_products(x: Tensor, j: int) -> Tensor:
    """log of the sum over all j-subsets of the product of their elements, shape (N,)."""
    count = comb(x.shape[1], j)
    subsets = torch.tensor(list(combinations(range(x.shape[1]), j)), dtype=torch.long, device=x.device)
    return log_sum_exp(x[:, subsets.reshape(count, j)].sum(2))
