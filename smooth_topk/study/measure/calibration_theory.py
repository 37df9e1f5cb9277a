"""What can be said about top-k calibration without a computer, and the closed forms that test the measurement.

A loss is top-k calibrated if scores that minimise its expectation Σ_y p_y L(s, y) always have the k most probable
classes as their k largest, whatever the distribution p (with p_[k] > p_[k+1], else several sets are optimal).

**Two steps that decide most cases.** Let a loss treat all classes alike: permuting the classes permutes its values.

1. *Swap.* If p_i > p_j but s_i < s_j, exchanging the two scores changes the expectation by (p_i - p_j)(L(s, j) - L(s,
   i)). That is negative when the class with the smaller score costs more. So a minimiser never has two classes in the
   wrong order: where a loss fails, its minimisers tie them.

2. *Tie.* Let s_i = s_j and let the loss be differentiable there, with a = -∂L(s, i)/∂s_i and b = ∂L(s, i)/∂s_j. By
   symmetry ∂E/∂s_i - ∂E/∂s_j = -(p_i - p_j)(a + b). For a + b > 0 this is not zero, so a tie is no minimum.

A differentiable loss that passes both steps ranks right wherever its minimum is attained. Cross-entropy, label
smoothing and generalised cross-entropy with q < 1 are of this kind, and so is **top-k entropy**: it is convex and
differentiable, and its expectation grows in every direction, because the class with the smallest score pays for its
distance to the mean of the k largest others. A hinge has a kink at ties, and step 2 says nothing about it.

**The smooth loss L_{k,τ} is top-k calibrated for every τ > 0 and every margin α >= 0.** Let π_y be the probability
that y belongs to a random k-subset drawn with weight exp(Σ_j s_j / (kτ)) (Proposition 7). Then

    L = τ φ(π_y),   φ(π) = log(1 + exp(α/τ) (1 - π) / π),   which is -log π for α = 0,

so that the loss depends on the scores through the marginal π_y alone, and φ falls strictly. Scores (up to a constant)
and marginals correspond one to one: the marginals fill the interior of {0 <= π <= 1, Σ π = k}, and larger scores have
larger ones. On this compact set minimising sequences have limits, and both steps hold for the limits with marginals
in place of scores: step 1 because φ falls, and step 2 because moving mass from π_j to π_i = π_j changes the
expectation by (p_i - p_j) φ'(π) < 0 per unit, as long as π_i < 1. A tie at π = 1 does no harm: the k + 1 largest
marginals cannot all be 1, since their sum is k. A tie at π = 0 cannot be, because φ(0) is infinite. So the k largest
marginals are those of the k most probable classes.

For α = 0 the minimum is known: π_y = min(1, c p_y) with c such that the sum is k (`optimal_marginals`). Classes that
reach π = 1 have scores that go to infinity; they all belong to the top k, but their order among each other is lost.
For α <= τ log 2 the function φ is convex, so that the expectation, as a function of the marginals, has no local
minimum but the global one. Beyond, wrong local minima can exist.

**The hard loss is not calibrated.** With s_[k] - s_[k+1] = d, the classes above rank k far up and those below as high
as they may be, the expectation is p_[k] max(α - d/k, 0) + (α + d/k) Σ_{j > k} p_[j], linear in d up to d = kα. Its
minimum is

    α min(Σ_{j >= k} p_[j], 2 Σ_{j > k} p_[j])

and for p_[k] < Σ_{j > k} p_[j] it is attained at d = 0, where the classes k to n all tie: the k-th class is not told
from the least likely one. For k = 1 this is the majority that the hinge of Crammer and Singer needs.

**The noised hinge is not calibrated with much noise.** Let k + 1 classes have the same score s, and let the others be
absent. The threshold, the smallest of the k + 1 noised scores, has the expectation s - ε m, where m is the expected
largest of k + 1 standard normal numbers. Once ε m >= 1, the margin, all of them pay nothing: a tie is a minimum,
whatever their probabilities. For k = 1, 2, 3, 5 this begins at ε = 1.77, 1.18, 0.97, 0.79 (`tying_noise`). The example
of the package has k = 5 and ε = 1.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from smooth_topk.study.measure.expected_loss import noised_order_statistic


class Known(NamedTuple):
    """What the literature, or an argument above, says about one loss."""

    answer: str  # "yes", "no", "open"
    reason: str


KNOWN: dict[str, Known] = {
    "cross_entropy": Known("yes", "for every k (Lapin et al. 2016)"),
    "label_smoothing": Known("yes", "its softmax tends to (1 − ε) p + ε/n, which has the order of p"),
    "generalised_cross_entropy": Known("yes", "its softmax tends to the normalised power 1/(1 − q) of p, for q < 1"),
    "aldr_kl": Known("yes", "for every k, with an adaptivity above 1 (Zhu, Ying and Yang 2023)"),
    "hard": Known(
        "no",
        "previous hinges are not calibrated (Yang and Koyejo 2020); right exactly where the k-th "
        "probability exceeds the sum of all smaller ones",
    ),
    "topk_hinge_alpha": Known("no", "previous hinges are not calibrated (Yang and Koyejo 2020)"),
    "topk_hinge_beta": Known("no", "previous hinges are not calibrated (Yang and Koyejo 2020)"),
    "topk_entropy": Known("yes", "convex, differentiable, symmetric: a swap or a tie is no minimum"),
    "truncated_topk_entropy": Known("yes", "Lapin et al. (2016)"),
    "lapsum": Known("open", "we know of no statement"),
    "difftopk": Known("open", "we know of no statement; it does not treat all classes alike"),
    "noised_topk": Known(
        "no",
        "yes without noise (Yang and Koyejo 2020); with much noise k + 1 classes that tie pay nothing",
    ),
    "smooth": Known("yes", "for every τ > 0 and margin: a falling function of the top-k marginal"),
}


def optimal_marginals(probabilities: Tensor, k: int) -> Tensor:
    """Returns π = min(1, c p) with Σ π = k: the top-k marginals that minimise the expected L_{k,τ} without margin.

    Args:
        probabilities: (n,), all positive.
        k: below n.

    Example:
        >>> optimal_marginals(torch.tensor([0.6, 0.2, 0.1, 0.1]), 2)  # 2 * 0.6 would exceed 1
        tensor([1.0000, 0.5000, 0.2500, 0.2500])
    """
    order = probabilities.argsort(descending=True)
    marginals = torch.ones_like(probabilities)
    for saturated in range(k):
        rest = order[saturated:]
        share = (k - saturated) * probabilities[rest] / probabilities[rest].sum()
        if share.max() <= 1:
            marginals[rest] = share
            break
    return marginals


def smooth_minimum(probabilities: Tensor, k: int, tau: float) -> float:
    """Returns the least expected L_{k,τ} with margin 0: -τ Σ_y p_y log π_y with the optimal marginals.

    Example:
        >>> round(smooth_minimum(torch.tensor([0.4, 0.3, 0.3]), 1, 1.0), 4)  # k = 1, tau = 1: the entropy
        1.0889
    """
    return -tau * (probabilities * optimal_marginals(probabilities, k).log()).sum().item()


def hard_minimum(probabilities: Tensor, k: int, margin: float) -> float:
    """Returns the least expected hard loss, α min(Σ_{j >= k} p_[j], 2 Σ_{j > k} p_[j]).

    Example:
        >>> hard_minimum(torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64), 2, 1.0)
        0.5
    """
    ordered = probabilities.sort(descending=True).values
    return margin * min(ordered[k - 1 :].sum().item(), 2 * ordered[k:].sum().item())


def hard_is_right(probabilities: Tensor, k: int) -> bool:
    """Whether every minimiser of the expected hard loss has the right top k: p_[k] > Σ_{j > k} p_[j].

    Example:
        >>> hard_is_right(torch.tensor([0.5, 0.3, 0.2]), 1), hard_is_right(torch.tensor([0.5, 0.3, 0.2]), 2)
        (False, True)
    """
    ordered = probabilities.sort(descending=True).values
    return bool(ordered[k - 1] > ordered[k:].sum())


def largest_convex_margin(tau: float) -> float:
    """Returns τ log 2, the largest margin for which the expected L_{k,τ} has no local minimum but the global one."""
    return tau * math.log(2)


def tying_noise(k: int) -> float:
    """Returns the noise ε from which on k + 1 classes that tie have a noised top-k loss of zero: 1 / E[max of k + 1 Z].

    Example:
        >>> round(tying_noise(1), 4)  # √π
        1.7725
    """
    return 1 / noised_order_statistic(torch.zeros(1, k + 1, dtype=torch.float64), 1, 1.0).item()
