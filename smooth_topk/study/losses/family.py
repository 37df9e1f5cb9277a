"""The registry of the losses that the book compares: the name in a RunConfig, the function, its hyper-parameters.

FAMILY["topk_entropy"].bound(k=3)(scores, labels) is the mean top-k entropy of a batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from torch import Tensor

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study.losses.entropies import topk_entropy, truncated_topk_entropy
from smooth_topk.study.losses.hinges import switched_topk_loss, topk_hinge_alpha, topk_hinge_beta
from smooth_topk.study.losses.lapsum import lapsum_topk_loss
from smooth_topk.study.losses.peers import difftopk_loss, noised_topk_loss
from smooth_topk.study.losses.softmax import (
    aldr_kl_loss,
    cross_entropy,
    generalised_cross_entropy,
    logit_adjusted_cross_entropy,
)


@dataclass(frozen=True)
class FamilyLoss:
    """One loss of the family. Registering one here is all that a new loss needs: `RunConfig` and `fit` read it.

    Attributes:
        title: how tables and figures call it.
        function: called as `f(scores, labels, **hyper_parameters, reduction=...)`.
        hyper_parameters: name -> default. k, tau and margin are fields of RunConfig; the others are its loss_options.
        reference: key of book/references.bib.
        description: one sentence.
        checked_against: what its definition was compared with.
        convex: whether it is a convex function of the scores for every k.
        package: the package that computes it beside torch, or nothing.
        needs_counts: whether it takes the number of training samples of each class, as `counts`.
    """

    title: str
    function: Callable[..., Tensor]
    hyper_parameters: Mapping[str, float | int]
    reference: str
    description: str
    checked_against: str
    convex: bool
    package: str = ""
    needs_counts: bool = False

    def bound(self, **chosen: float | int) -> Callable[..., Tensor]:
        """Returns the function with its hyper-parameters set, the defaults where nothing is chosen.

        Example:
            >>> FAMILY["topk_hinge_beta"].bound(k=3).keywords
            {'k': 3, 'margin': 1.0}
        """
        if unknown := set(chosen) - set(self.hyper_parameters):
            raise ValueError(
                f"{self.title} has the hyper-parameters {', '.join(self.hyper_parameters) or 'none'}, "
                f"got {', '.join(sorted(unknown))}."
            )
        return partial(self.function, **(dict(self.hyper_parameters) | chosen))


FAMILY: Mapping[str, FamilyLoss] = MappingProxyType(
    {
        "cross_entropy": FamilyLoss(
            "cross-entropy",
            cross_entropy,
            {},
            "berrada2018smooth",
            "The negative logarithm of the softmax probability of the true class.",
            "torch.nn.functional.cross_entropy",
            convex=True,
        ),
        "label_smoothing": FamilyLoss(
            "label smoothing",
            cross_entropy,
            {"label_smoothing": 0.1},
            "szegedy2016rethinking",
            "Cross-entropy with a mixture of the true class and the uniform distribution.",
            "torch.nn.functional.cross_entropy, and accounts of section 7 of the paper",
            convex=True,
        ),
        "generalised_cross_entropy": FamilyLoss(
            "generalised cross-entropy",
            generalised_cross_entropy,
            {"q": 0.7},
            "zhang2018generalized",
            "(1 - p^q) / q of the true class's probability p, between cross-entropy and absolute error.",
            "the formula as published with the abstract",
            convex=False,
        ),
        "aldr_kl": FamilyLoss(
            "ALDR-KL",
            aldr_kl_loss,
            {"temperature": 1.0, "adaptivity": 2.0},
            "zhu2023label",
            "Cross-entropy at a temperature that adapts to each sample.",
            "a program of other authors with the same update of λ; not the paper's own text",
            convex=True,
        ),
        "logit_adjusted": FamilyLoss(
            "logit-adjusted cross-entropy",
            logit_adjusted_cross_entropy,
            {"adjustment": 1.0},
            "menon2021long",
            "Cross-entropy of scores that are raised by the log share of their class.",
            "the balanced error of a toy distribution, which its minimiser attains",
            convex=True,
            needs_counts=True,
        ),
        "hard": FamilyLoss(
            "hard top-k hinge",
            hard_topk_loss,
            {"k": 5, "margin": 1.0},
            "berrada2018smooth",
            "The hinge of the k-th largest other score minus the true score, divided by k.",
            "equation (8) of the paper and its authors' program",
            convex=False,
        ),
        "topk_hinge_alpha": FamilyLoss(
            "top-k hinge α",
            topk_hinge_alpha,
            {"k": 5, "margin": 1.0},
            "lapin2015topk",
            "The hinge of the mean of the k largest violations of the margin.",
            "the authors' program libsdca (hinge of top-k)",
            convex=True,
        ),
        "topk_hinge_beta": FamilyLoss(
            "top-k hinge β",
            topk_hinge_beta,
            {"k": 5, "margin": 1.0},
            "lapin2015topk",
            "The mean of the hinges of the k largest violations of the margin.",
            "the authors' program libsdca (top-k of hinges)",
            convex=True,
        ),
        "topk_entropy": FamilyLoss(
            "top-k entropy",
            topk_entropy,
            {"k": 5},
            "lapin2016loss",
            "Cross-entropy whose convex conjugate is restricted to the top-k simplex.",
            "the optimisation problem stated in the authors' program libsdca",
            convex=True,
        ),
        "truncated_topk_entropy": FamilyLoss(
            "truncated top-k entropy",
            truncated_topk_entropy,
            {"k": 5},
            "lapin2016loss",
            "Cross-entropy without the k - 1 strongest of the other classes.",
            "two public programs of other authors, which differ where the label is outside the top k",
            convex=False,
        ),
        "difftopk": FamilyLoss(
            "difftopk",
            difftopk_loss,
            {"k": 5, "inverse_temperature": 2.0, "top1_share": 0.5},
            "petersen2022differentiable",
            "Cross-entropy of the top-k probabilities of a differentiable sorting network.",
            "the authors' package difftopk, which gives the same mean",
            convex=False,
            package="difftopk",
        ),
        "lapsum": FamilyLoss(
            "LapSum soft top-k",
            lapsum_topk_loss,
            {"k": 5, "scale": 1.0, "top1_share": 0.5},
            "struski2025lapsum",
            "Cross-entropy of top-k probabilities from a sum of Laplace distributions.",
            "the soft top-k as published with the paper and its program; the mixture is difftopk's",
            convex=False,
        ),
        "noised_topk": FamilyLoss(
            "balanced noised top-k",
            noised_topk_loss,
            {"k": 5, "epsilon": 1.0},
            "garcin2022stochastic",
            "The calibrated top-k hinge with a threshold that is smoothed by noise.",
            "the authors' package pytopk, which gives the same mean",
            convex=False,
        ),
        "smooth": FamilyLoss(
            "smooth top-k, L_{k,τ}",
            smooth_topk_loss,
            {"k": 5, "tau": 1.0, "margin": 1.0},
            "berrada2018smooth",
            "The hard top-k hinge smoothed by a log-sum-exp over all k-subsets of classes.",
            "equation (9) of the paper and its authors' program",
            convex=False,
        ),
        "switched_topk": FamilyLoss(
            "smooth top-k with the switch",
            switched_topk_loss,
            {"k": 5, "tau": 1.0, "margin": 1.0, "threshold": 1000.0},
            "berrada2018smooth",
            "L_{k,τ} as its authors' program computes it, with the hard loss where one k-subset dominates.",
            "the authors' program",
            convex=False,
        ),
    }
)
