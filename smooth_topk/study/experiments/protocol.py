"""The protocol of every comparison between losses: what is searched, how a winner is chosen, which seeds judge it.

A comparison is settings × losses × independent searches × trials, and then fresh seeds. book/protocol.md says the same
in words and names the commit in which this module preceded the first run.

    images = COMPARISONS["images"]
    images.trials(setting, contender, search=0)       24 runs, drawn at random
    images.finalists(trials, accuracy)                the best four, on two more tuning seeds
    images.winner(trials, accuracy)                   by the mean of validation top-5
    images.fresh(setting, winner)                     the runs that are reported
    images.runs(accuracy)                             all of these that are known so far

`accuracy` is the validation top-5 by run_id of what is recorded; a run that diverged has 0.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

from smooth_topk.study.experiments.run_config import RunConfig

RATES = (0.02, 2.0)  # learning rates of a loss whose derivative is at most 1, as that of cross-entropy
PRODUCTS = (1e-5, 1e-2)  # learning rate times weight decay, which governs networks with batch normalisation
DIGITS = 4  # significant digits of what is drawn
FRESH = 100  # the first fresh seed; searches and tuning use the seeds below it
MARGIN_OF_INDIFFERENCE = 0.01  # one point of top-5 accuracy


@dataclass(frozen=True)
class Contender:
    """A loss of a comparison.

    Attributes:
        title: how tables and figures call it.
        fields: what distinguishes it in a RunConfig.
        scale: its learning rates are drawn from RATES times this: k where no derivative of the loss exceeds 1/k.
        own: its own parameters, fields or options of the loss, with the range from which each is drawn, log-uniformly.
    """

    title: str
    fields: Mapping[str, Any]
    scale: float = 1.0
    own: Mapping[str, tuple[float, float]] | None = None


@dataclass(frozen=True)
class Setting:
    """Data and labels of a comparison: a name, the fields of a RunConfig, and the number of fresh seeds."""

    title: str
    fields: Mapping[str, Any]
    fresh: int


@dataclass(frozen=True)
class Comparison:
    """Settings × contenders, with one search budget for all of them.

    Attributes:
        base: the run that settings and contenders change.
        searches: independent searches; each draws its own trials, training images, noise and weights.
        trials: of one search.
        finalists: the best trials of a search that are trained again on the tuning seeds; 1: the best trial wins.
        tuning_seeds: on which the finalists are trained again.
        references: fixed runs, such as those with the paper's hyper-parameters, that get the fresh seeds too.
    """

    base: RunConfig
    settings: Mapping[str, Setting]
    contenders: Mapping[str, Contender]
    searches: int
    trials_per_search: int
    finalists_per_search: int = 1
    tuning_seeds: tuple[int, ...] = ()
    references: Mapping[str, Mapping[str, Any]] | None = None

    def trials(self, setting: str, contender: str, search: int) -> list[RunConfig]:
        """Returns the runs of one search. The same random numbers serve every setting and every loss."""
        start = replace(self.base, **self.settings[setting].fields, seed=search, split_seed=search)
        loss = self.contenders[contender]
        return [_drawn(replace(start, **loss.fields), loss, search, trial) for trial in range(self.trials_per_search)]

    def finalists(self, trials: Sequence[RunConfig], accuracy: Mapping[str, float]) -> list[RunConfig]:
        """Returns the best trials on every tuning seed, given the validation top-5 of the trials by run_id."""
        if self.finalists_per_search == 1:
            return []
        best = sorted(trials, key=lambda run: accuracy[run.run_id], reverse=True)[: self.finalists_per_search]
        return [replace(run, seed=seed, split_seed=seed) for run in best for seed in self.tuning_seeds]

    def winner(self, trials: Sequence[RunConfig], accuracy: Mapping[str, float]) -> RunConfig:
        """Returns the trial that goes on to the fresh seeds: the highest mean of validation top-5 over its seeds."""
        if self.finalists_per_search == 1:
            return max(trials, key=lambda run: accuracy[run.run_id])
        best = sorted(trials, key=lambda run: accuracy[run.run_id], reverse=True)[: self.finalists_per_search]

        def mean(run: RunConfig) -> float:
            again = [replace(run, seed=seed, split_seed=seed) for seed in self.tuning_seeds]
            return sum(accuracy[one.run_id] for one in (run, *again)) / (1 + len(again))

        return max(best, key=mean)

    def winners(self, accuracy: Mapping[str, float]) -> dict[tuple[str, str, int], RunConfig]:
        """Returns the winner of every (setting, contender, search) whose trials and finalists are all recorded."""
        found = {}
        for setting, contender, search in self.cells():
            trials = self.trials(setting, contender, search)
            if all(run.run_id in accuracy for run in trials) and all(
                run.run_id in accuracy for run in self.finalists(trials, accuracy)
            ):
                found[setting, contender, search] = self.winner(trials, accuracy)
        return found

    def restricted(self, setting: str) -> "Comparison":
        """Returns the comparison in one of its settings alone."""
        return replace(self, settings={setting: self.settings[setting]})

    def cells(self) -> list[tuple[str, str, int]]:
        """Returns every (setting, contender, search), the settings in their order of importance."""
        return [(s, c, n) for s in self.settings for c in self.contenders for n in range(self.searches)]

    def runs(self, accuracy: Mapping[str, float]) -> list[RunConfig]:
        """Returns every run that is known, each once: trials, then finalists and fresh seeds as results allow."""
        found: list[RunConfig] = []
        winners = self.winners(accuracy)
        for setting, contender, search in self.cells():
            trials = self.trials(setting, contender, search)
            found += trials
            if all(run.run_id in accuracy for run in trials):
                found += self.finalists(trials, accuracy)
            if winner := winners.get((setting, contender, search)):
                found += self.fresh(setting, winner)
        for name in self.references or {}:
            found += [run for setting in self.settings for run in self.reference(setting, name)]
        return list({run.run_id: run for run in found}.values())

    def fresh(self, setting: str, winner: RunConfig) -> list[RunConfig]:
        """Returns the winner on the fresh seeds, which draw images, noise and weights, alike for every loss."""
        seeds = range(FRESH, FRESH + self.settings[setting].fresh)
        return [replace(winner, seed=seed, split_seed=seed) for seed in seeds]

    def reference(self, setting: str, name: str) -> list[RunConfig]:
        """Returns a run with fixed hyper-parameters on the fresh seeds."""
        start = replace(self.base, **self.settings[setting].fields, **(self.references or {})[name])
        return self.fresh(setting, start)


def verdict(interval_90: tuple[float, float], interval_95: tuple[float, float]) -> str:
    """Returns the answer to the primary question, for the difference smooth minus cross-entropy in test top-5.

    Args:
        interval_90: its 90 % interval, as shares of images.
        interval_95: its 95 % interval.

    Example:
        >>> verdict((-0.004, 0.006), (-0.006, 0.008)), verdict((0.015, 0.03), (0.012, 0.033))
        ('caught up', 'smooth leads')
    """
    if interval_90[0] >= -MARGIN_OF_INDIFFERENCE and interval_90[1] <= MARGIN_OF_INDIFFERENCE:
        return "caught up"
    if interval_95[0] > MARGIN_OF_INDIFFERENCE:
        return "smooth leads"
    if interval_95[1] < -MARGIN_OF_INDIFFERENCE:
        return "cross-entropy leads"
    return "undecided"


def _drawn(run: RunConfig, loss: Contender, search: int, trial: int) -> RunConfig:
    """Returns the run with learning rate, weight decay and the loss's own parameters drawn log-uniformly."""
    numbers = random.Random(f"search {search}, trial {trial}")
    rate = _between(RATES, numbers.random()) * loss.scale
    product = _between(PRODUCTS, numbers.random())
    own = {name: _rounded(_between(ends, numbers.random())) for name, ends in (loss.own or {}).items()}
    changes: dict[str, Any] = {name: value for name, value in own.items() if name in run.to_dict()}
    changes["loss_options"] = {name: value for name, value in own.items() if name not in changes}
    return replace(run, learning_rate=_rounded(rate), weight_decay=_rounded(product / rate), **changes)


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] * (ends[1] / ends[0]) ** share


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def place(ends: tuple[float, float], value: float) -> float:
    """Returns where a drawn value lies in its range, 0 to 1: a winner near either end asks for a wider range."""
    return log(value / ends[0]) / log(ends[1] / ends[0])


CROSS_ENTROPY = Contender("cross-entropy", {"loss": "cross_entropy"})
SMOOTH = Contender("L_{5,τ}", {"loss": "smooth"}, scale=5.0, own={"tau": (0.03, 3.0)})
LABEL_SMOOTHING = Contender("label smoothing", {"loss": "label_smoothing"}, own={"label_smoothing": (0.01, 0.6)})
THREE = {"cross_entropy": CROSS_ENTROPY, "smooth": SMOOTH, "label_smoothing": LABEL_SMOOTHING}
# Section 5.1: the same learning rate and weight decay for both losses, tau = 1, k = 5.
PAPERS = {
    "cross_entropy": {"loss": "cross_entropy", "learning_rate": 0.1, "weight_decay": 1e-4},
    "smooth": {"loss": "smooth", "tau": 1.0, "learning_rate": 0.1, "weight_decay": 1e-4},
}
CLEAN: Mapping[str, Any] = {"noise_level": 0.0}
WITHIN_SUPERCLASSES: Mapping[str, Any] = {"noise_level": 0.8, "noise_grouping": "superclass"}
WITHIN_BLOCKS: Mapping[str, Any] = {"noise_level": 0.8, "noise_grouping": "index_blocks"}
SMALL_IMAGES = RunConfig(
    dataset="cifar100",
    model="small",
    train_size=5_000,
    epochs=24,
    batch_size=64,
    augment=False,
    precision="bf16-mixed",
)

COMPARISONS: Mapping[str, Comparison] = {
    "images": Comparison(
        base=SMALL_IMAGES,
        settings={
            "superclass": Setting("80 % noise within superclasses", WITHIN_SUPERCLASSES, fresh=8),
            "clean": Setting("clean labels", CLEAN, fresh=8),
            "index_blocks": Setting("80 % noise within index blocks", WITHIN_BLOCKS, fresh=12),
        },
        contenders=THREE,
        searches=1,
        trials_per_search=24,
        finalists_per_search=4,
        tuning_seeds=(1, 2),
        references=PAPERS,
    ),
    "more_images": Comparison(
        base=replace(SMALL_IMAGES, model="small_wide", train_size=20_000, epochs=20, batch_size=128),
        settings={"superclass": Setting("80 % noise within superclasses", WITHIN_SUPERCLASSES, fresh=5)},
        contenders=THREE,
        searches=1,
        trials_per_search=12,
    ),
}
