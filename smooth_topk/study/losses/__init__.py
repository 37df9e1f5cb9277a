"""The family of top-k losses: each f(scores, labels, *, ..., reduction), and the registry FAMILY that names them all.

They map scores (N, C) and labels (N,) to a loss and import torch and the core alone; difftopk needs a package.
"""

from smooth_topk.study.losses.entropies import soft_topk_mean, topk_entropy, truncated_topk_entropy
from smooth_topk.study.losses.family import FAMILY, FamilyLoss
from smooth_topk.study.losses.hinges import switched_topk_loss, topk_hinge_alpha, topk_hinge_beta
from smooth_topk.study.losses.lapsum import lapsum_topk_loss
from smooth_topk.study.losses.peers import difftopk_loss, noised_topk_loss
from smooth_topk.study.losses.softmax import (
    aldr_kl_loss,
    cross_entropy,
    generalised_cross_entropy,
    logit_adjusted_cross_entropy,
)

__all__ = [
    "FAMILY",
    "FamilyLoss",
    "aldr_kl_loss",
    "cross_entropy",
    "difftopk_loss",
    "generalised_cross_entropy",
    "lapsum_topk_loss",
    "logit_adjusted_cross_entropy",
    "noised_topk_loss",
    "soft_topk_mean",
    "switched_topk_loss",
    "topk_entropy",
    "topk_hinge_alpha",
    "topk_hinge_beta",
    "truncated_topk_entropy",
]
