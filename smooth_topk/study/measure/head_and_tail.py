"""Head, pivot and tail of one sample's scores, and the derivatives of the tail: numbers of chapter 6."""

import pandas as pd
import torch
from torch import Tensor

from smooth_topk import log_symmetric_polynomials


def head_and_tail_table(others: Tensor, *, k: int, tau: float, shown: int = 20) -> pd.DataFrame:
    """Returns how far the largest scores are from the pivot, the k-th largest, and their weights u.

    Args:
        others: (n,) scores of the classes other than the true one.
        shown: how many of the largest the table has.

    Returns:
        Columns rank (from 1; the head is ranks 1 to k), distance (score - pivot), weight (exp(distance / (kτ))).
    """
    ordered = others.detach().double().sort(descending=True).values[:shown]
    distance = ordered - ordered[k - 1]
    weight = torch.exp(distance / (k * tau))
    return pd.DataFrame({"rank": range(1, len(ordered) + 1), "distance": distance, "weight": weight})


def joining_table(others: Tensor, *, k: int, tau: float) -> pd.DataFrame:
    """Returns how the scaled polynomials S_0..S_k grow from those of the tail while the head joins, smallest first.

    Class i of the head joins by S_j <- exp(t_{i+j} - t_i) S_j + S_{j-1}, with t the distance to the pivot ÷ (kτ).

    Args:
        others: (n,) scores of the classes other than the true one, n > k.

    Returns:
        Columns step (0: the tail alone; k: all classes), degree j, value S_j, decay (the factor at most one of S_j in
        this step; missing for the tail and for degree 0).

    Example:
        >>> joining_table(torch.tensor([1.0, 0.0]), k=1, tau=1.0)["value"].round(3).tolist()
        [1.0, 0.368, 1.0, 1.368]
    """
    x = (others.detach().double() / (k * tau)).sort(descending=True).values
    t = torch.cat([x[:k] - x[k - 1], x.new_zeros(k)])  # beyond the head, t is zero
    sigma = x.new_tensor([1.0] + [0.0] * k)
    for u in torch.exp(x[k:] - x[k - 1]):
        sigma[1:] = sigma[1:] + u * sigma[:-1].clone()
    parts = [pd.DataFrame({"step": 0, "degree": range(k + 1), "value": sigma, "decay": torch.nan})]
    for step, i in enumerate(reversed(range(k)), 1):
        decay = torch.exp(t[i + 1 : i + 1 + k] - t[i])
        sigma = torch.cat([sigma[:1], decay * sigma[1:] + sigma[:-1]])
        decays = torch.cat([decay.new_full((1,), torch.nan), decay])
        parts.append(pd.DataFrame({"step": step, "degree": range(k + 1), "value": sigma, "decay": decays}))
    return pd.concat(parts, ignore_index=True)


def tail_table(others: Tensor, *, k: int, tau: float) -> pd.DataFrame:
    """Returns u and ∂(log σ_k - log σ_{k-1})/∂x of the tail's classes, by automatic differentiation in float64.

    Args:
        others: (n,) scores of the classes other than the true one.
    """
    x = (others.detach().double() / (k * tau)).sort(descending=True).values.requires_grad_()
    log_sigma = log_symmetric_polynomials(x, k, algorithm="divide_and_conquer_autograd")
    (derivative,) = torch.autograd.grad(log_sigma[k] - log_sigma[k - 1], x)
    u = torch.exp(x - x[k - 1]).detach()
    return pd.DataFrame({"u": u[k:].numpy(), "derivative": derivative[k:].numpy()})
