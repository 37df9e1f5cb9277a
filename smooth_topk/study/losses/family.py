"""The registry of the losses that the book compares: a name, the function, its hyper-parameters, where it comes from.

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
from smooth_topk.study.losses.peers import difftopk_loss, noised_topk_loss
from smooth_topk.study.losses.softmax import cross_entropy, generalised_cross_entropy, topk_transition_loss


@dataclass(frozen=True)
class FamilyLoss:
    """One loss of the family.

    Attributes:
        title: how tables and figures call it.
        function: called as `f(scores, labels, **hyper_parameters, reduction=...)`.
        hyper_parameters: name -> default, all that the function takes beside the reduction and given noise.
        reference: key of book/references.bib.
        description: one sentence.
        checked_against: what its definition was compared with.
        convex: whether it is a convex function of the scores for every k.
        package: the package that computes it beside torch, or nothing.
    """

    title: str
    function: Callable[..., Tensor]
    hyper_parameters: Mapping[str, float | int]
    reference: str
    description: str
    checked_against: str
    convex: bool
    package: str = ""

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
            title="cross-entropy",
            function=cross_entropy,
            hyper_parameters={},
            reference="berrada2018smooth",
            description="The negative logarithm of the softmax probability of the true class.",
            checked_against="torch.nn.functional.cross_entropy",
            convex=True,
        ),
        "label_smoothing": FamilyLoss(
            title="label smoothing",
            function=cross_entropy,
            hyper_parameters={"label_smoothing": 0.1},
            reference="szegedy2016rethinking",
            description="Cross-entropy with a mixture of the true class and the uniform distribution.",
            checked_against="torch.nn.functional.cross_entropy, and accounts of section 7 of the paper",
            convex=True,
        ),
        "generalised_cross_entropy": FamilyLoss(
            title="generalised cross-entropy",
            function=generalised_cross_entropy,
            hyper_parameters={"q": 0.7},
            reference="zhang2018generalized",
            description="(1 - p^q) / q of the true class's probability p, between cross-entropy and absolute error.",
            checked_against="the formula as published with the abstract",
            convex=False,
        ),
        "hard_topk": FamilyLoss(
            title="hard top-k hinge",
            function=hard_topk_loss,
            hyper_parameters={"k": 5, "margin": 1.0},
            reference="berrada2018smooth",
            description="The hinge of the k-th largest other score minus the true score, divided by k.",
            checked_against="equation (8) of the paper and its authors' program",
            convex=False,
        ),
        "topk_hinge_alpha": FamilyLoss(
            title="top-k hinge α",
            function=topk_hinge_alpha,
            hyper_parameters={"k": 5, "margin": 1.0},
            reference="lapin2015topk",
            description="The hinge of the mean of the k largest violations of the margin.",
            checked_against="the authors' program libsdca (hinge of top-k)",
            convex=True,
        ),
        "topk_hinge_beta": FamilyLoss(
            title="top-k hinge β",
            function=topk_hinge_beta,
            hyper_parameters={"k": 5, "margin": 1.0},
            reference="lapin2015topk",
            description="The mean of the hinges of the k largest violations of the margin.",
            checked_against="the authors' program libsdca (top-k of hinges)",
            convex=True,
        ),
        "topk_entropy": FamilyLoss(
            title="top-k entropy",
            function=topk_entropy,
            hyper_parameters={"k": 5},
            reference="lapin2016loss",
            description="Cross-entropy whose convex conjugate is restricted to the top-k simplex.",
            checked_against="the optimisation problem stated in the authors' program libsdca",
            convex=True,
        ),
        "truncated_topk_entropy": FamilyLoss(
            title="truncated top-k entropy",
            function=truncated_topk_entropy,
            hyper_parameters={"k": 5},
            reference="lapin2016loss",
            description="Cross-entropy without the k - 1 strongest of the other classes.",
            checked_against="two public programs of other authors, which differ where the label is outside the top k",
            convex=False,
        ),
        "topk_transition": FamilyLoss(
            title="top-k transition",
            function=topk_transition_loss,
            hyper_parameters={"k": 5},
            reference="sawada2020tradeoffs",
            description="Cross-entropy in which the top-k classes come to count as one class once the label is inside.",
            checked_against="the abstract alone: the weight of the transition is ours",
            convex=False,
        ),
        "difftopk": FamilyLoss(
            title="difftopk",
            function=difftopk_loss,
            hyper_parameters={"k": 5, "inverse_temperature": 2.0, "top1_share": 0.5},
            reference="petersen2022differentiable",
            description="Cross-entropy of the top-k probabilities of a differentiable sorting network.",
            checked_against="the authors' package difftopk, which computes it",
            convex=False,
            package="difftopk",
        ),
        "noised_topk": FamilyLoss(
            title="balanced noised top-k",
            function=noised_topk_loss,
            hyper_parameters={"k": 5, "epsilon": 1.0, "samples": 5},
            reference="garcin2022stochastic",
            description="The calibrated top-k hinge with a threshold that is smoothed by noise.",
            checked_against="the authors' package pytopk, which computes it",
            convex=False,
            package="pytopk",
        ),
        "smooth_topk": FamilyLoss(
            title="smooth top-k, L_{k,τ}",
            function=smooth_topk_loss,
            hyper_parameters={"k": 5, "tau": 1.0, "margin": 1.0},
            reference="berrada2018smooth",
            description="The hard top-k hinge smoothed by a log-sum-exp over all k-subsets of classes.",
            checked_against="equation (9) of the paper and its authors' program",
            convex=False,
        ),
        "switched_topk": FamilyLoss(
            title="smooth top-k with the switch",
            function=switched_topk_loss,
            hyper_parameters={"k": 5, "tau": 1.0, "margin": 1.0, "threshold": 1000.0},
            reference="berrada2018smooth",
            description="L_{k,τ} as its authors' program computes it, with the hard loss where one k-subset dominates.",
            checked_against="the authors' program",
            convex=False,
        ),
    }
)
