"""The expected loss of scores under a distribution over the classes: Σ_y p_y L(s, y), for many scores at once.

Scores (B, n) and probabilities (B, n) in, values (B,) out, in float64 and differentiable: what `minimise` needs.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from smooth_topk.study.losses import FAMILY

STEP, REACH = 0.3, 8.5  # of the quadrature, in standard deviations: both errors are below 1e-15 for up to six classes


def expected_loss(name: str, parameters: dict[str, float]) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the expected loss (B,) as a function of scores (B, n) and probabilities (B, n).

    Args:
        name: of a loss of FAMILY.
        parameters: its hyper-parameters that differ from the defaults. The noised loss has no draws here: its threshold
            is the exact expectation, the limit of many draws.

    Example:
        >>> half = torch.full((1, 2), 0.5)
        >>> expected_loss("cross_entropy", {})(torch.zeros(1, 2), half)
        tensor([0.6931])
    """
    if name == "noised_topk" and parameters["epsilon"] > 0:
        return partial(_expected_noised, k=int(parameters["k"]), epsilon=parameters["epsilon"])
    loss = FAMILY[name].bound(**parameters)

    def value(scores: Tensor, probabilities: Tensor) -> Tensor:
        classes = scores.shape[1]
        rows, labels = scores.repeat_interleave(classes, 0), torch.arange(classes).repeat(len(scores))
        return (loss(rows, labels, reduction="none").view(-1, classes) * probabilities).sum(1)

    return value


def noised_order_statistic(scores: Tensor, rank: int, epsilon: float) -> Tensor:
    """Returns E[(s + ε Z)_[rank]], the expected rank-th largest of scores (B, n) with normal noise, (B,).

    The rank-th largest is class i at s_i + ε u if rank - 1 of the others are above it, so that the expectation is

        Σ_i ∫ (s_i + ε u) φ(u) P(rank - 1 of the others exceed s_i + ε u) du

    and the trapezoidal rule in u is accurate to rounding, however far the scores are apart.

    Example:
        >>> pair = torch.zeros(1, 2, dtype=torch.float64)
        >>> round(noised_order_statistic(pair, 1, 1.0).item(), 6)  # the larger of two normal numbers: 1/√π
        0.56419
    """
    classes = scores.shape[1]
    u = torch.arange(-REACH, REACH + STEP, STEP, dtype=scores.dtype)
    t = scores[:, :, None] + epsilon * u  # (B, n, nodes): where class i is
    # exactly[m] is the probability that m of the others exceed t; class i itself is left out by a probability of zero.
    exactly = [torch.ones_like(t)] + [torch.zeros_like(t)] * (rank - 1)
    for j in range(classes):
        above = torch.special.ndtr((scores[:, j, None, None] - t) / epsilon)
        above = above * (torch.arange(classes) != j)[:, None]
        exactly = [exactly[0] * (1 - above)] + [
            exactly[m] * (1 - above) + exactly[m - 1] * above for m in range(1, rank)
        ]
    density = STEP * torch.exp(-u.pow(2) / 2) / math.sqrt(2 * math.pi)
    # Relative to the largest score: the probabilities sum to 1 up to rounding, which scores far from 0 would magnify.
    anchor = scores.detach().amax(1)
    return anchor + ((t - anchor[:, None, None]) * density * exactly[-1]).sum((1, 2))


def _expected_noised(scores: Tensor, probabilities: Tensor, k: int, epsilon: float) -> Tensor:
    threshold = noised_order_statistic(scores, k + 1, epsilon)
    return (probabilities * torch.relu(1 + threshold[:, None] - scores)).sum(1)
