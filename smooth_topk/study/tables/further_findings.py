"""What the runs that the paper does not have found: one row per question of ours, for chapter 14 and the results page.

The numbers are read from book/results, as in findings.py. Chapters say in words what they mean.
"""

from functools import partial
from pathlib import Path

import pandas as pd

from smooth_topk.study.experiments import registry
from smooth_topk.study.records import evidence
from smooth_topk.study.tables.accuracy import with_best_validation
from smooth_topk.study.tables.cells import of_grouping
from smooth_topk.study.tables.comparisons import with_best_decay
from smooth_topk.study.tables.differences import differences_by_seed, interval_text, intervals, t_interval
from smooth_topk.study.tables.family import family_differences
from smooth_topk.study.tables.findings import LAST, RECORDED_SEEDS, Records, annealed, by_temperature, say


def further_table(folder: Path | None = None) -> pd.DataFrame:
    """Returns our questions, the numbers that answer them and the chapter; "not run" where runs are missing.

    Accuracies are top-5 on test images in percent, differences in points with 95 % intervals over seeds.
    """
    records = Records(folder)
    small_tau = records.runs(registry.small_temperatures_on_images())
    rows = [
        ["τ = 0.01 on images: does a rate of 0.1 in place of 1.6 help, do 72 epochs in place of 24?", 8,
         say(small_tau, lambda runs: _causes(runs, records))],
        ["τ = 0.001 on images: does the authors' switch to the hard loss help?", 8,
         say(small_tau, lambda runs: _switch(runs, records))],
        ["a trained network, fine-tuned: is a falling τ better than τ = 1?", 8, "; ".join(
            f"{name} " + say(records.runs(registry.annealing_of_a_trained_network(profile)), _fine_tuned)
            for name, profile in (("features", "quick"), ("images", "laptop")))],
        ["noisy validation labels, p = 0.8: smooth loss − cross-entropy", 9,
         say(records.runs(registry.noisy_validation()), _with_noisy_validation)],
        ["images, 64 and 128 per class, fitted: smooth loss − cross-entropy", 10,
         say(records.runs((*registry.small_data_on_images(), *registry.larger_decays_on_images())), _fitted_images)],
        ["twice the margin with half the decay − margin 1", 12,
         say(records.runs(registry.margin_against_decay(RECORDED_SEEDS)), lambda runs: _exchange(runs, records))],
        ["thirteen losses at p = 0.8: the largest lead over cross-entropy", 15,
         say(records.runs(registry.family_comparison()), _family)],
        ["1,000 constructed classes: smooth loss − cross-entropy", 15,
         say(records.runs(registry.many_classes()), _many)],
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["our question", "chapter", "what was found"])
    return table[["our question", "what was found", "chapter"]].set_index("our question")


def small_temperature(runs: pd.DataFrame, tau: float, **fields: object) -> float:
    """Top-5 after the last epoch of the runs with this temperature, 0 for the hard loss, and these fields, in percent.

    Example of fields: learning_rate=0.1, loss="switched_topk".
    """
    chosen = runs["tau"].where(runs["loss"] != "hard", 0.0) == tau
    for name, value in fields.items():
        chosen &= runs[name] == value
    return 100 * runs[chosen][LAST].mean()


def _causes(runs: pd.DataFrame, records: Records) -> str:
    before = _figure_2(records, 0.01)
    rate = small_temperature(runs, 0.01, epochs=24, loss="smooth")
    epochs = small_temperature(runs, 0.01, epochs=72)
    return f"{before} with rate 1.6 and 24 epochs; {rate:.1f} with rate 0.1; {epochs:.1f} with 72 epochs"


def _switch(runs: pd.DataFrame, records: Records) -> str:
    without, with_switch = (partial(small_temperature, runs, 0.001, loss=loss) for loss in ("smooth", "switched_topk"))
    low, long = {"learning_rate": 0.1}, {"epochs": 72}
    return (
        f"without and with the switch: {_figure_2(records, 0.001)} and "
        f"{with_switch(learning_rate=1.6, epochs=24):.1f}; with rate 0.1: {without(**low):.1f} and "
        f"{with_switch(**low):.1f}; with 72 epochs: {without(**long):.1f} and {with_switch(**long):.1f}"
    )


def _figure_2(records: Records, tau: float) -> str:
    runs = records.runs(registry.figure_2_temperature("laptop"))
    return say(runs, lambda runs: f"{by_temperature(runs)[tau]:.1f}")


def _fine_tuned(runs: pd.DataFrame) -> str:
    return "{:.1f} against {:.1f}".format(*annealed(runs))


def _with_noisy_validation(runs: pd.DataFrame) -> str:
    found = differences_by_seed(of_grouping(runs, "superclass"))
    return interval_text(*t_interval(found[found["noise_level"] == 0.8]["difference"]))


def _fitted_images(runs: pd.DataFrame) -> str:
    searched = runs[runs["run_id"].isin([run.run_id for run in registry.small_data_on_images()])]
    return (
        f"with the decays of the search: {_by_size(searched)}. "
        f"With the best decay of each loss: {_by_size(with_best_decay(runs))}"
    )


def _exchange(runs: pd.DataFrame, records: Records) -> str:
    words = []
    for k, part in runs.groupby("k"):
        scored = with_best_validation(part, evidence.epochs_of(part, records.folder), f"top{k}")
        by_seed = 100 * scored.pivot(index="seed", columns="margin", values="best_validation")
        words.append(f"k = {k}: {interval_text(*t_interval(by_seed[2.0] - by_seed[1.0]))}")
    return "; ".join(words)


def _family(runs: pd.DataFrame) -> str:
    found = family_differences(runs[runs["noise_level"] == 0.8])
    best = found.loc[found.groupby("setting", sort=False)["mean"].idxmax()]
    return "; ".join(
        f"{setting.removeprefix('p = 0.8, ')}: {loss} {interval_text(*ends)}"
        for setting, loss, *ends, _ in best.itertuples(index=False)
    )


def _many(runs: pd.DataFrame) -> str:
    return _by_loss(differences_by_seed(runs[runs["num_classes"] == 1000], by="num_classes"))


def _by_size(runs: pd.DataFrame) -> str:
    found = differences_by_seed(runs, by="train_images").groupby("train_images")
    return "; ".join(f"{size // 100} per class {_by_loss(differences)}" for size, differences in found)


def _by_loss(differences: pd.DataFrame) -> str:
    found = intervals(differences, ["loss"])
    return ", ".join(f"{loss} {interval_text(*ends)}" for loss, *ends, _ in found.itertuples(index=False))
