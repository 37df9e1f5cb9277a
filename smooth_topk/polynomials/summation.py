"""The summation algorithm, Algorithm 3: log e (N, n) in, log σ_0..σ_k (N, k + 1) out (appendix B.3).

Linear space, as in the paper: it is accurate while exp(x) and its products fit the floating point range, and overflows
beyond. One step for each of the n elements; the loop over j is one vector operation.
"""

import torch
from torch import Tensor


def log_sigma(x: Tensor, k: int) -> Tensor:
    """log σ_j by σ_j(e_1..e_i) = σ_j(e_1..e_{i-1}) + e_i σ_{j-1}(e_1..e_{i-1}), for j = 0..k.

    -inf also where a sum underflows.

    Example:
        >>> log_sigma(torch.tensor([[1.0, 2.0, 3.0]]).log(), 2).exp()
        tensor([[ 1.0000,  6.0000, 11.0000]])
    """
    one = torch.ones_like(x[:, :1])
    sigma = torch.cat([one, torch.zeros_like(one).expand(-1, k)], 1)  # (N, k + 1)
    for e in x.exp().split(1, dim=1):
        sigma = torch.cat([one, sigma[:, 1:] + e * sigma[:, :-1]], 1)
    empty = sigma == 0
    return torch.where(empty, -torch.inf, torch.where(empty, one, sigma).log())
