"""The runs of what the paper did not train: fair searches, causes taken apart, the family of losses, many classes.

Most of them are on the built-in features, where a run takes seconds; each says on what it is.
"""

from collections.abc import Sequence
from dataclasses import replace

from smooth_topk.study.experiments.paper_runs import (
    FEATURE_SMOOTH,
    FEATURES,
    LAPTOP,
    LAPTOP_LOSSES,
    SHARES,
    Fields,
    table_1_noise,
    table_7_margin_top1,
    table_8_margin_top5,
)
from smooth_topk.study.experiments.run_config import RunConfig


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
FAMILY_RATES, FAMILY_DECAYS = (0.05, 0.2), (5e-4, 2e-3, 8e-3)  # of cross-entropy; those of the others by their factor


def family_search() -> tuple[RunConfig, ...]:
    """Six trials per loss of the family and noise level (0 and 0.8), on features, one seed: two rates, three decays.

    Where a loss has a smaller gradient, its rates are larger and its decays smaller by the same factor. Parameters of
    its own, such as the q of generalised cross-entropy, stay at the values that their authors use.
    """
    return tuple(
        replace(FEATURES, noise_level=level, learning_rate=rate * factor, weight_decay=decay / factor, **loss)
        for loss, factor in FAMILY_LOSSES.values()
        for level in (0.0, 0.8)
        for rate in FAMILY_RATES
        for decay in FAMILY_DECAYS
    )


# By name: the rates and decays of a second search, both of cross-entropy. It looks beyond the end of the grid at which
# the best point of the first lay: for three losses the smallest decay, for one the smaller rate, for nine the larger.
_FOUR_DECAYS = (FAMILY_DECAYS[0] / 4, *FAMILY_DECAYS)
_SMALLER_DECAYS = (FAMILY_DECAYS[0] / 4, FAMILY_DECAYS[0] / 16)
FAMILY_WIDENED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    **dict.fromkeys(FAMILY_LOSSES, ((0.8,), _FOUR_DECAYS)),
    "top-5 transition": ((0.0125,), _FOUR_DECAYS),
    "generalised cross-entropy": ((0.2, 0.8), _SMALLER_DECAYS),
    "hard top-5": ((0.05, 0.2), _SMALLER_DECAYS),
    "difftopk": ((0.2, 0.8), _SMALLER_DECAYS),
}


def family_wider_search() -> tuple[RunConfig, ...]:
    """Four more trials per loss of the family and noise level, beyond the end of the grid where its best point lay."""
    return tuple(
        replace(FEATURES, noise_level=level, learning_rate=rate * factor, weight_decay=decay / factor, **loss)
        for name, (rates, decays) in FAMILY_WIDENED.items()
        for loss, factor in (FAMILY_LOSSES[name],)
        for level in (0.0, 0.8)
        for rate in rates
        for decay in decays
    )


def family_trials_left_behind() -> tuple[RunConfig, ...]:
    """Trials of two losses with a third, larger rate, before their smaller decays took its place in the search."""
    return tuple(
        replace(FEATURES, noise_level=level, learning_rate=0.8 * factor, weight_decay=decay / factor, **loss)
        for name in ("generalised cross-entropy", "hard top-5")
        for loss, factor in (FAMILY_LOSSES[name],)
        for level in (0.0, 0.8)
        for decay in FAMILY_DECAYS
    )


# By name: the best rate and decay of both searches, by the mean of validation top-5 at p = 0 and 0.8.
FAMILY_CHOSEN: dict[str, tuple[float, float]] = {
    "cross-entropy": (0.2, 0.002),
    "label smoothing": (0.2, 0.002),
    "generalised cross-entropy": (0.2, 0.000125),
    "hard top-5": (0.4, 6.25e-05),
    "top-5 hinge α": (0.2, 0.002),
    "top-5 hinge β": (0.2, 0.002),
    "top-5 entropy": (0.2, 0.002),
    "truncated top-5 entropy": (0.2, 0.002),
    "top-5 transition": (0.05, 0.002),
    "difftopk": (0.2, 0.0005),
    "balanced noised top-5": (0.2, 0.002),
    "L_{5,1}": (1.6, 0.00025),
    "L_{5,0.1}": (1.6, 0.00025),
}


def family_comparison(seeds: Sequence[int] = (0, 1, 2, 3, 4)) -> tuple[RunConfig, ...]:
    """Every loss of the family with its chosen pair: three noise levels, both groupings, and the sizes of Table 2."""
    settings: list[Fields] = [
        {"noise_level": level, "noise_grouping": grouping, "seed": seed}
        for level in (0.0, 0.4, 0.8)
        for grouping in ("superclass", "index_blocks")
        if level or grouping == "superclass"
        for seed in seeds
    ]
    settings += [{"train_size": share, "epochs": 16, "seed": seed} for share in SHARES for seed in seeds]
    return tuple(
        replace(FEATURES, learning_rate=rate, weight_decay=decay, **loss, **setting)
        for (loss, _), (rate, decay) in zip(FAMILY_LOSSES.values(), FAMILY_CHOSEN.values(), strict=True)
        for setting in settings
    )


# By loss: decays beyond the chosen one, where that was chosen without this noise in view.
DECAYS_UNDER_BLOCKS = {
    "cross_entropy": (4e-3, 8e-3, 1.6e-2),
    "generalised_cross_entropy": (5e-4, 2e-3, 8e-3),
    "smooth": (1e-3, 4e-3),
}


def decays_under_index_blocks() -> tuple[RunConfig, ...]:
    """Four losses of the family at p = 0.8 within index blocks, the setting with the largest leads: larger decays.

    `family_search` saw noise within superclasses only.
    """
    hardest = [run for run in family_comparison() if (run.noise_level, run.noise_grouping) == (0.8, "index_blocks")]
    return tuple(
        replace(run, weight_decay=decay)
        for run in hardest
        if run.loss in DECAYS_UNDER_BLOCKS
        for decay in (run.weight_decay, *DECAYS_UNDER_BLOCKS[run.loss])
    )


def noise_without_memorising() -> tuple[RunConfig, ...]:
    """The "laptop" runs of Table 1 at p = 0.8 with four times the images and a quarter of the epochs.

    As many steps, but too few looks at each image to memorise its label.
    """
    runs = [run for run in table_1_noise("laptop") if run.noise_level == 0.8]
    return tuple(replace(run, train_size=4 * (run.train_size or 0), epochs=run.epochs // 4) for run in runs)


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


def small_temperatures_on_images() -> tuple[RunConfig, ...]:
    """The failing rows of Table 6 on images, with one suspected cause changed at a time; one seed.

    The rate of the paper, 0.1, in place of 1.6; the authors' switch to the hard loss, which their program applies to a
    sample whose k-th score is clear of the next one; three times the epochs, and with them the switch.
    """
    smooth: Fields = LAPTOP_LOSSES[-1]
    losses: list[Fields] = [{"loss": "hard"}, {"tau": 1e-3}, {"tau": 1e-2}]
    low_rate = [replace(LAPTOP, **smooth | {"learning_rate": 0.1} | loss) for loss in losses]
    switch: Fields = {"loss": "switched_topk", "tau": 1e-3}
    switched = [replace(LAPTOP, **smooth | switch | {"learning_rate": rate}) for rate in (1.6, 0.1)]
    longer = [replace(LAPTOP, **smooth | loss, epochs=72) for loss in ({"tau": 1e-2}, {"tau": 1e-3}, switch)]
    return *low_rate, *switched, *longer


def small_data_on_images(seeds: Sequence[int] = (0, 1, 2)) -> tuple[RunConfig, ...]:
    """Table 2 on images with 64 and 128 images per class, trained five times as long as "laptop" trains all sizes.

    Beside cross-entropy both temperatures of the smooth loss; the paper's 0.1 takes the rate and decay of 1, which the
    search chose and with which it was the best of Figure 2.
    """
    cross_entropy, smooth = LAPTOP_LOSSES
    return tuple(
        replace(LAPTOP, train_size=size, epochs=60, seed=seed, **loss)
        for size in (6_400, 12_800)
        for loss in (cross_entropy, smooth, smooth | {"tau": 0.1})
        for seed in seeds
    )


def larger_decays_on_images() -> tuple[RunConfig, ...]:
    """The runs of `small_data_on_images` with larger decays, because the search under noise chose its largest one.

    One seed; the decay that validation images prefer for cross-entropy at each size has three.
    """
    plain, *smooth, more, _, _ = small_data_on_images(seeds=(0,))
    trials = [(plain, (2e-3, 8e-3, 3.2e-2)), (more, (2e-3, 8e-3)), *((run, (5e-4,)) for run in smooth)]
    best = [
        replace(run, weight_decay=decay, seed=seed) for run, decay in ((plain, 8e-3), (more, 2e-3)) for seed in (1, 2)
    ]
    return *(replace(run, weight_decay=decay) for run, decays in trials for decay in decays), *best


def annealing_of_a_trained_network(profile: str, seeds: Sequence[int] = (0, 1, 2, 3, 4)) -> tuple[RunConfig, ...]:
    """Appendix D.1.3 as the paper did it: a network trained with tau = 1, then fine-tuned while tau falls to 0.01.

    The paper gives no settings for it, so these are ours. Beside it the same fine-tuning with tau = 1. Features have
    five seeds, images one.
    """
    base, smooth = (FEATURES, FEATURE_SMOOTH) if profile == "quick" else (LAPTOP, LAPTOP_LOSSES[-1])
    return tuple(
        replace(base, **smooth, epochs=2 * base.epochs, cycles=2, tau_final=tau_final, seed=seed)
        for tau_final in (None, 0.01)
        for seed in (seeds if profile == "quick" else (0,))
    )


TRAINED_K, TRAINED_TAUS, TRAINED_CLASSES = (1, 3, 5, 10, 20), (0.1, 0.3, 1.0, 3.0), (20, 50, 100)


def k_and_tau(seeds: Sequence[int] = (0, 1, 2)) -> tuple[RunConfig, ...]:
    """The smooth loss with every k, tau and number of classes, on features; each run is judged by its own top-k.

    Every run has 200 images per class and the same number of steps. The rate is 0.32 k and the decay 0.00125 / k, since
    the gradient is about k times smaller than that of cross-entropy; there was no search for each k and tau.
    """
    return tuple(
        replace(
            FEATURES,
            loss="smooth",
            k=k,
            tau=tau,
            learning_rate=0.32 * k,
            weight_decay=1.25e-3 / k,
            chosen_by=f"top{k}",
            classes=None if classes == 100 else classes,
            train_size=200 * classes,
            epochs=FEATURES.epochs * 100 // classes,
            seed=seed,
        )
        for classes in TRAINED_CLASSES
        for k in TRAINED_K
        if k < classes
        for tau in TRAINED_TAUS
        for seed in seeds
    )


CONSTRUCTED = RunConfig(dataset="constructed_1000", model="linear", epochs=12, batch_size=256)
# By name: the fields of the loss, and the factors by which its rates are larger and its decays smaller.
MANY_LOSSES: dict[str, tuple[Fields, int, int]] = {
    "CE": ({"loss": "cross_entropy"}, 1, 1),
    "L_{5,1}": ({"loss": "smooth", "tau": 1.0}, 32, 8),
    "L_{5,0.1}": ({"loss": "smooth", "tau": 0.1}, 4, 8),
}


def many_classes_search() -> tuple[RunConfig, ...]:
    """Nine trials per loss on 1,000 constructed classes, one seed: three rates, three decays."""
    return _constructed_trials((0.0125, 0.05, 0.2), (1e-5, 1e-4, 1e-3))


def many_classes_left_behind() -> tuple[RunConfig, ...]:
    """The trials before the grid of `many_classes_search` was moved, twice for tau = 0.1, so that its best points lie
    inside it."""
    low, _, smaller = MANY_LOSSES["L_{5,0.1}"]
    first = MANY_LOSSES | {"L_{5,0.1}": (low, 16, smaller)}
    return (
        *_constructed_trials((0.8,), (1e-6, 1e-5, 1e-4), first),
        *_constructed_trials((0.2,), (1e-6,), first),
        *_constructed_trials((0.8,), (1e-5, 1e-4, 1e-3), {"L_{5,0.1}": (low, 4, smaller)}),
    )


def _constructed_trials(
    rates: Sequence[float], decays: Sequence[float], losses: dict[str, tuple[Fields, int, int]] = MANY_LOSSES
) -> tuple[RunConfig, ...]:
    return tuple(
        replace(CONSTRUCTED, learning_rate=rate * larger, weight_decay=decay / smaller, **loss)
        for loss, larger, smaller in losses.values()
        for rate in rates
        for decay in decays
    )


# By name: the best rate and decay of the search, by validation top-5.
MANY_CHOSEN: dict[str, tuple[float, float]] = {
    "CE": (0.05, 1e-05),
    "L_{5,1}": (1.6, 1.25e-06),
    "L_{5,0.1}": (0.2, 0.000125),
}


def many_classes(seeds: Sequence[int] = (0, 1, 2)) -> tuple[RunConfig, ...]:
    """1,000 constructed classes with the chosen pairs; 10,000 with the same pairs, fewer epochs and one seed."""
    runs = []
    for (loss, _, _), (rate, decay) in zip(MANY_LOSSES.values(), MANY_CHOSEN.values(), strict=True):
        run = replace(CONSTRUCTED, learning_rate=rate, weight_decay=decay, **loss)
        runs += [replace(run, seed=seed) for seed in seeds] + [replace(run, dataset="constructed_10000", epochs=3)]
    return tuple(runs)
