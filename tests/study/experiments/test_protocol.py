"""The protocol: equal searches for every loss, ranges, finalists, winners and paired fresh seeds."""

import pytest

from smooth_topk.study.experiments import protocol
from smooth_topk.study.experiments.protocol import COMPARISONS, FRESH, PRODUCTS, RATES, place, verdict

IMAGES = COMPARISONS["images"]
ROUNDING = 1e-3


@pytest.mark.parametrize("comparison", COMPARISONS.values(), ids=COMPARISONS)
def test_every_loss_has_the_same_trials_within_its_ranges(comparison):
    for setting in comparison.settings:
        for name, contender in comparison.contenders.items():
            trials = comparison.trials(setting, name, 0)
            assert len({run.run_id for run in trials}) == comparison.trials_per_search
            for run in trials:
                assert -ROUNDING <= place(RATES, run.learning_rate / contender.scale) <= 1 + ROUNDING
                assert -ROUNDING <= place(PRODUCTS, run.learning_rate * run.weight_decay) <= 1 + ROUNDING
                values = {**run.to_dict(), **dict(run.loss_options)}
                assert all(low <= values[own] <= high for own, (low, high) in (contender.own or {}).items())


def test_all_losses_share_their_random_numbers_and_two_searches_do_not():
    rates = [
        [run.learning_rate / contender.scale for run in IMAGES.trials("clean", name, 0)]
        for name, contender in IMAGES.contenders.items()
    ]
    assert all(other == pytest.approx(rates[0], rel=ROUNDING) for other in rates[1:])
    assert IMAGES.trials("clean", "smooth", 1)[0].learning_rate != IMAGES.trials("clean", "smooth", 0)[0].learning_rate


def test_the_winner_has_the_best_mean_over_the_tuning_seeds():
    trials = IMAGES.trials("clean", "smooth", 0)
    accuracy = {run.run_id: index / 100 for index, run in enumerate(trials)}
    finalists = IMAGES.finalists(trials, accuracy)
    assert len(finalists) == 4 * len(IMAGES.tuning_seeds)
    assert {run.learning_rate for run in finalists} == {run.learning_rate for run in trials[-4:]}
    again = {run.run_id: 0.5 if run.learning_rate == trials[-3].learning_rate else 0.1 for run in finalists}
    assert IMAGES.winner(trials, accuracy | again) == trials[-3]


def test_the_runs_become_known_stage_by_stage_until_all_are_recorded():
    accuracy: dict[str, float] = {}
    sizes = []
    while missing := [run for run in IMAGES.runs(accuracy) if run.run_id not in accuracy]:
        sizes.append(len(missing))
        accuracy |= {run.run_id: run.learning_rate % 0.1 for run in missing}
    cells = len(IMAGES.cells())
    references = 2 * (8 + 8 + 12)
    assert sizes == [24 * cells + references, 8 * cells, 3 * (8 + 8 + 12)]
    assert len(IMAGES.winners(accuracy)) == cells == 9


def test_fresh_seeds_draw_images_noise_and_weights_alike_for_every_loss():
    runs = [IMAGES.fresh("superclass", IMAGES.trials("superclass", name, 0)[0]) for name in IMAGES.contenders]
    seeds = list(range(FRESH, FRESH + 8))
    assert all([(run.seed, run.split_seed) for run in one] == [(seed, seed) for seed in seeds] for one in runs)
    assert [run.seed for run in IMAGES.reference("superclass", "smooth")] == seeds


@pytest.mark.parametrize(
    ("interval_90", "interval_95", "expected"),
    [
        ((-0.01, 0.01), (-0.02, 0.02), "caught up"),
        ((0.02, 0.03), (0.0101, 0.04), "smooth leads"),
        ((-0.03, -0.02), (-0.04, -0.0101), "cross-entropy leads"),
        ((0.001, 0.02), (-0.001, 0.03), "undecided"),
    ],
)
def test_the_verdict_follows_from_the_intervals(interval_90, interval_95, expected):
    assert verdict(interval_90, interval_95) == expected
    assert protocol.MARGIN_OF_INDIFFERENCE == 0.01
