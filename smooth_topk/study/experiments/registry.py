"""The registry of experiments: what the paper trained, and what we add, as data from seconds to GPU weeks.

An experiment knows its title, where it is in the paper, its chapter, and its runs in every profile of `profiles.py`.
Chapters, cost pages, the results page, the dry run and the tests all read EXPERIMENTS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from smooth_topk.study.experiments.profiles import check_profile
from smooth_topk.study.experiments.run_config import RunConfig

Fields = dict[str, Any]  # fields of RunConfig and their values

NOISE_LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # Table 1
TEMPERATURES = (0.0, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # Figure 2 and Table 6; 0 is the hard loss
SHARES = (0.05, 0.1, 0.25, 0.5, None)  # section 5.2: of the training images
IMAGENET_SIZES = (64_000, 128_000, 320_000, 640_000, None)  # the same shares of ImageNet, 64 images per class and more

PAPER_CIFAR = RunConfig(
    dataset="cifar100",
    model="densenet40_40_bc",  # section 5.1 says DenseNet 40-40; the authors' code builds it with bottlenecks
    epochs=300,  # DenseNet paper, section 4.2, to which sections 2 and 5.1 refer; so are the next five
    batch_size=64,
    learning_rate=0.1,
    weight_decay=1e-4,
    schedule="steps",
    milestones=(150, 225),  # also read off Figure 2a
)
PAPER_IMAGENET = RunConfig(
    dataset="imagenet",
    model="resnet18",  # section 5.2, as everything here
    epochs=120,
    batch_size=256,
    learning_rate=0.1,
    weight_decay=1e-4,
    schedule="steps",
    milestones=(30, 60, 90),
)
# Reductions of ours. One-cycle rates suit short trainings; the subsets are small enough to be memorised.
SMOKE = RunConfig(train_size=200, epochs=2, batch_size=50)
# Laptop: cross-entropy at p = 0.8 learns 99 % of the noisy labels by heart in 24 epochs (run dc3be17fd4c3). With flips
# and crops it was far from that after 16 of 40 epochs, where the trial was stopped.
LAPTOP = RunConfig(dataset="cifar100", train_size=5_000, epochs=24, batch_size=64, augment=False)

# Features: 12 epochs of 20,000 images take seconds on one core, and the head can learn wrong labels by heart.
FEATURES = RunConfig(dataset="cifar100_features", model="head", train_size=20_000, epochs=12, batch_size=128)

CROSS_ENTROPY: Fields = {"loss": "cross_entropy", "learning_rate": 0.1, "weight_decay": 1e-4}
PAPER_SMOOTH_CIFAR: Fields = {"loss": "smooth", "tau": 1.0}  # section 5.1: the same rate and decay as cross-entropy
# Section 5.2.
PAPER_SMOOTH_IMAGENET: Fields = {"loss": "smooth", "tau": 0.1, "learning_rate": 1.0, "weight_decay": 2.5e-5}
# Scores count as s / (k tau). With k tau = 1, as in cross-entropy, a short training reaches the scale it needs. The
# gradient is k times smaller than that of cross-entropy: a rate about k times larger, a decay about k times smaller.
SHORT_SMOOTH: Fields = {"loss": "smooth", "tau": 0.2, "learning_rate": 0.4, "weight_decay": 2.5e-5}
LONG_SMOOTH: Fields = {"loss": "smooth", "tau": 1.0, "learning_rate": 1.6, "weight_decay": 2.5e-5}  # the paper's tau
SEARCHED = (CROSS_ENTROPY, SHORT_SMOOTH, LONG_SMOOTH)  # where the search on "laptop" starts
# What it chose, by validation top-5 alone: 32.3 % against 31.6 to 32.1, and 36.9 % against 34.4 to 36.8.
# On features: chosen by `feature_search`, by the mean of validation top-5 at p = 0 and 0.8.
FEATURE_CROSS_ENTROPY: Fields = {"loss": "cross_entropy", "learning_rate": 0.1, "weight_decay": 2e-3}
FEATURE_SMOOTH: Fields = {"loss": "smooth", "tau": 1.0, "learning_rate": 3.2, "weight_decay": 2.5e-4}
# Tables 2 and 8.
FEATURE_SMOOTH_LOW: Fields = {"loss": "smooth", "tau": 0.1, "learning_rate": 1.6, "weight_decay": 2.5e-4}
LAPTOP_LOSSES = (CROSS_ENTROPY | {"weight_decay": 5e-4}, LONG_SMOOTH | {"weight_decay": 1.25e-4})


def table_1_noise(
    profile: str = "paper", *, model: str | None = None, seeds: Sequence[int] | None = None
) -> tuple[RunConfig, ...]:
    """Tables 1 and 9: label noise, cross-entropy against the smooth loss.

    Args:
        profile: "paper" is 6 noise levels x 2 losses x 2 groupings x 3 seeds.
        model: another network, such as "densenet40_40", the variant without bottlenecks.
        seeds: by default those of the profile; the recorded runs on features have five.

    Returns:
        The runs. Without noise both groupings are the same run, with one run_id.
    """
    base = _base(profile, PAPER_CIFAR, model)
    levels = (0.0, 0.8) if profile == "smoke" else NOISE_LEVELS
    return tuple(
        replace(base, noise_grouping=grouping, noise_level=level, seed=seed, **loss)
        for grouping in ("superclass", "index_blocks")
        for level in levels
        for seed in seeds or _seeds(profile)
        for loss in _losses(profile)
    )


def noise_with_the_papers_pair(seeds: Sequence[int] = (0, 1, 2, 3, 4)) -> tuple[RunConfig, ...]:
    """The runs of Table 1 on features with rate 0.1 and decay 1e-4 for both losses, as in section 5.1.

    Beside the runs whose pairs a search chose, they separate what the loss does from what its regularisation does.
    """
    runs = table_1_noise("quick", seeds=seeds)
    return tuple(replace(run, learning_rate=0.1, weight_decay=1e-4) for run in runs)


def noisy_validation(seeds: Sequence[int] = (0, 1, 2, 3, 4)) -> tuple[RunConfig, ...]:
    """The runs of Table 1 on features at p = 0.4 and 0.8 with validation labels as noisy as the training labels."""
    runs = [run for run in table_1_noise("quick", seeds=seeds) if run.noise_level in (0.4, 0.8)]
    return tuple(replace(run, validation_labels="noisy") for run in runs)


def noise_search(profile: str = "paper", *, model: str | None = None) -> tuple[RunConfig, ...]:
    """The rates and decays tried for each loss of Table 1, at one noise level and one seed; judged on validation data.

    One of the two changes at a time. The paper takes those of DenseNet for both losses, so "paper" searches nothing:
    one run per loss, those of Table 1.
    """
    chosen = [
        run
        for run in table_1_noise(profile, model=model)
        if (run.noise_level, run.noise_grouping, run.seed) == (0.8, "superclass", 0)
    ]
    if profile != "laptop":
        return tuple(chosen)
    starts = [replace(chosen[0], **loss) for loss in SEARCHED]
    factors = [(0.5, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, 0.2), (1.0, 5.0)]
    return tuple(
        replace(start, learning_rate=rate * start.learning_rate, weight_decay=round(decay * start.weight_decay, 9))
        for start in starts
        for rate, decay in factors
    )


FEATURE_SEARCH = {  # loss -> (rates, decays): 25 trials per loss at each noise level
    "cross_entropy": ((0.025, 0.05, 0.1, 0.2, 0.4), (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)),
    1.0: ((0.4, 0.8, 1.6, 3.2, 6.4), (6.25e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3)),
    0.1: ((0.2, 0.4, 0.8, 1.6, 3.2), (6.25e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3)),
}


def feature_search() -> tuple[RunConfig, ...]:
    """The trials that chose rates and decays on the built-in features: p = 0 and 0.8, one seed, validation images.

    Every loss has as many trials as the others; the paper's own pair, rate 0.1 and decay 1e-4, is tried with each.
    """
    trials = []
    for loss, (rates, decays) in FEATURE_SEARCH.items():
        chosen = {"loss": loss} if loss == "cross_entropy" else {"loss": "smooth", "tau": loss}
        pairs = [(rate, decay) for rate in rates for decay in decays] + [(0.1, 1e-4)]
        trials += [
            replace(FEATURES, noise_level=level, learning_rate=rate, weight_decay=decay, **chosen)
            for level in (0.0, 0.8)
            for rate, decay in pairs
        ]
    return tuple(trials)


def trials_left_behind() -> tuple[RunConfig, ...]:
    """The trials of `feature_search` before its grid was moved so that its best points lie inside it."""
    low: Fields = {"loss": "smooth", "tau": 0.1, "learning_rate": 0.1}
    return (
        *(replace(FEATURES, learning_rate=rate, weight_decay=2.5e-4) for rate in (0.05, 0.1, 0.2, 0.4)),
        *(
            replace(FEATURES, noise_level=level, weight_decay=decay, **low)
            for level in (0.0, 0.8)
            for decay in FEATURE_SEARCH[0.1][1]
        ),
    )


# By name: the fields of the loss, and how much smaller its gradient is than that of cross-entropy.
FAMILY_LOSSES: dict[str, tuple[Fields, int]] = {
    "cross-entropy": ({"loss": "cross_entropy"}, 1),
    "label smoothing": ({"loss": "label_smoothing"}, 1),
    "generalised cross-entropy": ({"loss": "generalised_cross_entropy"}, 1),
    "hard top-5": ({"loss": "hard"}, 8),
    "top-5 hinge α": ({"loss": "topk_hinge_alpha"}, 1),
    "top-5 hinge β": ({"loss": "topk_hinge_beta"}, 1),
    "top-5 entropy": ({"loss": "topk_entropy"}, 1),
    "truncated top-5 entropy": ({"loss": "truncated_topk_entropy"}, 1),
    "top-5 transition": ({"loss": "topk_transition"}, 1),
    "difftopk": ({"loss": "difftopk"}, 1),
    "balanced noised top-5": ({"loss": "noised_topk"}, 1),
    "L_{5,1}": ({"loss": "smooth", "tau": 1.0}, 8),
    "L_{5,0.1}": ({"loss": "smooth", "tau": 0.1}, 8),
}
FAMILY_LEVELS = (0.0, 0.4, 0.8)
FAMILY_SHARES = (0.05, 0.25)


def family_search() -> tuple[RunConfig, ...]:
    """Nine trials per loss of the family and noise level (0 and 0.8), on features, one seed: three rates, three decays.

    Where a loss has a smaller gradient, its rates are larger and its decays smaller by the same factor. Parameters of
    its own, such as the q of generalised cross-entropy, stay at the values that their authors use.
    """
    return tuple(
        replace(FEATURES, noise_level=level, learning_rate=rate * factor, weight_decay=decay / factor, **loss)
        for loss, factor in FAMILY_LOSSES.values()
        for level in (0.0, 0.8)
        for rate in (0.05, 0.2, 0.8)
        for decay in (5e-4, 2e-3, 8e-3)
    )


def noise_without_memorising() -> tuple[RunConfig, ...]:
    """The "laptop" runs of Table 1 at p = 0.8 with four times the images and a quarter of the epochs.

    As many steps, but too few looks at each image to learn its label by heart.
    """
    runs = [run for run in table_1_noise("laptop") if run.noise_level == 0.8]
    return tuple(replace(run, train_size=4 * (run.train_size or 0), epochs=run.epochs // 4) for run in runs)


def table_2_small_data(
    profile: str = "paper", *, model: str | None = None, seeds: Sequence[int] | None = None
) -> tuple[RunConfig, ...]:
    """Table 2: training sets of five sizes, the same number of epochs at each; off "paper", not on ImageNet."""
    sizes: Sequence[int | float | None] = SHARES
    base, losses, chosen_seeds = _base(profile, PAPER_IMAGENET, model), _losses(profile), seeds or (0,)
    if profile == "paper":
        base, sizes = replace(base, ten_crop=True), IMAGENET_SIZES
        losses = CROSS_ENTROPY, PAPER_SMOOTH_IMAGENET
    if profile == "laptop":
        base = replace(base, epochs=12)  # all of CIFAR-100 is in the grid
    if profile == "quick":
        base, losses = replace(base, epochs=16), (*losses, FEATURE_SMOOTH_LOW)
        chosen_seeds = seeds or _seeds(profile)
    if profile == "smoke":
        sizes = 100, 200
    return tuple(
        replace(base, train_size=size, seed=seed, **loss) for size in sizes for seed in chosen_seeds for loss in losses
    )


def figure_2_temperature(
    profile: str = "paper", *, model: str | None = None, seeds: Sequence[int] | None = None
) -> tuple[RunConfig, ...]:
    """Figure 2 and Table 6: the smooth loss at 7 temperatures and nothing else changed; 0 is the hard loss."""
    paper = replace(PAPER_CIFAR, model="densenet40_12")  # section 3.3: DenseNet 40-12, its hyper-parameters
    base = _base(profile, paper, model)
    if profile != "paper":
        smooth = _losses(profile)[-1]
        base = replace(base, learning_rate=smooth["learning_rate"], weight_decay=smooth["weight_decay"])
    temperatures = (0.0, 0.1, 1.0) if profile == "smoke" else TEMPERATURES
    losses = [{"loss": "smooth", "tau": tau} if tau else {"loss": "hard"} for tau in temperatures]
    return tuple(replace(base, seed=seed, **loss) for loss in losses for seed in seeds or _pair_of_seeds(profile))


def temperature_annealing(profile: str = "paper", *, model: str | None = None) -> tuple[RunConfig, ...]:
    """Appendix D.1.3: tau falling from 1 to a small value, between runs of Figure 2 that keep either."""
    high, low = 1.0, 0.1 if profile == "smoke" else 0.01
    runs = [run for run in figure_2_temperature(profile, model=model) if run.loss == "smooth"]
    first, last = ([run for run in runs if run.tau == tau] for tau in (high, low))
    return *first, *(replace(run, tau_final=low) for run in first), *last


def table_7_margin_top1(
    profile: str = "paper", *, model: str | None = None, seeds: Sequence[int] | None = None
) -> tuple[RunConfig, ...]:
    """Table 7: (k, tau) = (1, 1) with margin 0, which is cross-entropy, and larger ones; judged on validation data.

    The best epoch is that of the best validation top-1; the runs recorded as "laptop" chose theirs by top-5, and the
    table takes their top-1 from all epochs.
    """
    base = _base(profile, PAPER_IMAGENET, model)  # no ten crops, appendix D.2.2
    if profile == "quick":
        base = replace(base, **FEATURE_CROSS_ENTROPY)  # the hyper-parameters of cross-entropy
    if profile in ("quick", "paper"):
        base = replace(base, chosen_by="top1")
    losses: list[Fields] = [{"loss": "smooth", "k": 1, "tau": 1.0, "margin": margin} for margin in _margins(profile)]
    return tuple(replace(base, seed=seed, **loss) for loss in losses for seed in seeds or _margin_seeds(profile))


def table_8_margin_top5(
    profile: str = "paper", *, model: str | None = None, seeds: Sequence[int] | None = None
) -> tuple[RunConfig, ...]:
    """Table 8: (k, tau) = (5, 0.1), for "smoke" and "laptop" the tau of Table 1, with several margins."""
    base = _base(profile, PAPER_IMAGENET, model)
    smooth = {"paper": PAPER_SMOOTH_IMAGENET, "quick": FEATURE_SMOOTH_LOW}.get(profile) or _losses(profile)[-1]
    losses = [{"margin": margin, **smooth} for margin in _margins(profile)]
    return tuple(replace(base, seed=seed, **loss) for loss in losses for seed in seeds or _margin_seeds(profile))


def margin_against_decay(seeds: Sequence[int] = (0, 1, 2)) -> tuple[RunConfig, ...]:
    """Proposition 8 in a network: twice the margin with half the decay, beside margin 1, on features.

    Where only their product counted, as for the linear classifier of the proposition, both would give the same answers.
    """
    runs = []
    for table in (table_7_margin_top1, table_8_margin_top5):
        for run in table("quick", seeds=seeds):
            if run.margin == 1:
                runs += [run, replace(run, margin=2.0, weight_decay=run.weight_decay / 2)]
    return tuple(runs)


@dataclass(frozen=True)
class Experiment:
    """One question that trainings answer.

    Attributes:
        title: what it varies, for tables of contents and costs.
        paper: its tables and figures in the paper, or "not in the paper".
        chapter: the notebook that shows it.
        runs: function (profile) -> the runs; where two experiments share a run, it has one run_id.
    """

    title: str
    paper: str
    chapter: str
    runs: Callable[[str], tuple[RunConfig, ...]]

    @property
    def in_paper(self) -> bool:
        return self.paper != "not in the paper"


TEMPERATURE, NOISE, SMALL_DATA, MARGIN, FAMILY = (
    "08_temperature_study",
    "09_noisy_labels_study",
    "10_small_data_study",
    "12_margin_study",
    "15_the_family",
)
EXPERIMENTS = {
    "figure_2_temperature": Experiment("The temperature", "Figure 2(a) and Table 6", TEMPERATURE, figure_2_temperature),
    "temperature_annealing": Experiment("A falling temperature", "appendix D.1.3", TEMPERATURE, temperature_annealing),
    "table_1_noise": Experiment("Noisy labels", "Tables 1 and 9", NOISE, table_1_noise),
    "noise_search": Experiment("Rates and decays under noise", "not in the paper", NOISE, noise_search),
    "noise_with_the_papers_pair": Experiment(
        "Noisy labels with the paper's rate and decay",
        "not in the paper",
        NOISE,
        lambda profile: noise_with_the_papers_pair() if profile == "quick" else (),
    ),
    "noisy_validation": Experiment(
        "Noisy validation labels",
        "not in the paper",
        NOISE,
        lambda profile: noisy_validation() if profile == "quick" else (),
    ),
    "table_2_small_data": Experiment("Small training sets", "Table 2", SMALL_DATA, table_2_small_data),
    "feature_search": Experiment(
        "Rates and decays on features",
        "not in the paper",
        NOISE,
        lambda profile: feature_search() if profile == "quick" else (),
    ),
    "trials_left_behind": Experiment(
        "Trials outside the final grid",
        "not in the paper",
        NOISE,
        lambda profile: trials_left_behind() if profile == "quick" else (),
    ),
    "family_search": Experiment(
        "Rates and decays of the family of losses",
        "not in the paper",
        FAMILY,
        lambda profile: family_search() if profile == "quick" else (),
    ),
    "margin_against_decay": Experiment(
        "Twice the margin, half the decay",
        "not in the paper",
        MARGIN,
        lambda profile: margin_against_decay() if profile == "quick" else (),
    ),
    "table_7_margin_top1": Experiment("The margin, k = 1", "Table 7", MARGIN, table_7_margin_top1),
    "table_8_margin_top5": Experiment("The margin, k = 5", "Table 8", MARGIN, table_8_margin_top5),
}


def runs_by_chapter(profile: str = "paper") -> dict[str, list[RunConfig]]:
    """Returns the runs of the paper's experiments by the chapter that shows them, every run once.

    Example:
        >>> {name: len(runs) for name, runs in runs_by_chapter("paper").items()}
        {'08_temperature_study': 8, '09_noisy_labels_study': 66, '10_small_data_study': 10, '12_margin_study': 4}
    """
    chapters: dict[str, dict[str, RunConfig]] = {}
    for experiment in EXPERIMENTS.values():
        if experiment.in_paper:
            chapters.setdefault(experiment.chapter, {}).update({run.run_id: run for run in experiment.runs(profile)})
    return {name: list(runs.values()) for name, runs in chapters.items()}


def _losses(profile: str) -> tuple[dict, ...]:
    """Cross-entropy and the smooth loss of Table 1, with their hyper-parameters."""
    return {
        "smoke": (CROSS_ENTROPY, SHORT_SMOOTH),
        "quick": (FEATURE_CROSS_ENTROPY, FEATURE_SMOOTH),
        "laptop": LAPTOP_LOSSES,
        "paper": (CROSS_ENTROPY, PAPER_SMOOTH_CIFAR),
    }[profile]


def _margins(profile: str) -> tuple[float, ...]:
    return (0.0, 0.25, 1.0, 4.0) if profile == "quick" else (0.0, 1.0)


def _seeds(profile: str) -> tuple[int, ...]:
    return {"smoke": (0,), "quick": (0, 1), "laptop": (0, 1), "paper": (0, 1, 2)}[profile]  # section 5.1: three


def _pair_of_seeds(profile: str) -> tuple[int, ...]:
    return (0, 1) if profile in ("quick", "laptop") else (0,)  # small differences need their spread beside them


def _margin_seeds(profile: str) -> tuple[int, ...]:
    return (0, 1, 2) if profile == "quick" else _pair_of_seeds(profile)


def _base(profile: str, paper: RunConfig = PAPER_CIFAR, model: str | None = None) -> RunConfig:
    check_profile(profile)
    base = {"smoke": SMOKE, "quick": FEATURES, "laptop": LAPTOP, "paper": paper}[profile]
    return replace(base, model=model or base.model)
