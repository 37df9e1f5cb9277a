"""What the recorded runs found, beside what the paper says: as numbers with intervals, as a long table, and in short.

The numbers are read from book/results. The words were written with them in view; tests/study/tables/test_findings.py
holds the words against the numbers. Every number says its scale: features (a small head on built-in features of
CIFAR-100, five seeds), images (a small network on CIFAR-100, two seeds), or the paper's own setting, which was not run.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from smooth_topk.study.experiments import registry
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records import evidence, paths
from smooth_topk.study.records.gradient_sparsity import read_sparsity
from smooth_topk.study.records.paper import paper_table
from smooth_topk.study.tables.accuracy import with_best_validation
from smooth_topk.study.tables.cells import NOT_RUN, of_grouping
from smooth_topk.study.tables.comparisons import GROUPINGS, falls
from smooth_topk.study.tables.differences import (
    differences_by_margin,
    differences_by_seed,
    interval_text,
    paper_gain,
    paper_gain_by_share,
    signed,
    t_interval,
)

STOPPED, LAST = "test_top5", "last_test_top5"  # columns of runs.csv: the epoch that validation chose, the last one
RECORDED_SEEDS = range(5)  # of the runs on features
FEATURES, IMAGES = "features, 5 seeds", "images, 2 seeds"
NO_NUMBER = "(the paper gives no number)"
CLAIM_COLUMNS = ["key", "claim", "chapter", "scale", "paper", "mean", "low", "high"]
CHAPTERS = {
    "noise": "09_noisy_labels_study",
    "tau": "08_temperature_study",
    "small": "10_small_data_study",
    "margin": "12_margin_study",
    "crops": "11_topk_probabilities",
}


class Records:
    """The recorded rows of one folder, by experiment; a grid that is not complete gives None."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder or paths.published_folder()

    def runs(self, grid: Sequence[RunConfig]) -> pd.DataFrame | None:
        """Returns the recorded runs of a grid, or None where some are missing."""
        found = evidence.published(grid, self.folder)
        return found if set(found["run_id"]) == {run.run_id for run in grid} else None

    def noise(self, scale: str) -> pd.DataFrame | None:
        """Returns the runs of Table 1: scale "tuned" and "papers_pair" on features, "images"."""
        grids = {
            "tuned": lambda: registry.table_1_noise("quick", seeds=RECORDED_SEEDS),
            "papers_pair": registry.noise_with_the_papers_pair,
            "images": lambda: registry.table_1_noise("laptop"),
        }
        return self.runs(grids[scale]())

    def margins(self, k: int, profile: str) -> pd.DataFrame | None:
        """Returns the runs of Table 7 or 8 with best_validation, their best validation accuracy over all epochs."""
        table = registry.table_7_margin_top1 if k == 1 else registry.table_8_margin_top5
        runs = self.runs(table(profile, seeds=RECORDED_SEEDS if profile == "quick" else None))
        if runs is None:
            return None
        return with_best_validation(runs, evidence.epochs_of(runs, self.folder), f"top{k}")


def claims(folder: Path | None = None) -> pd.DataFrame:
    """Returns the claims of the paper that are one difference in points: the paper's number, ours and its interval.

    Args:
        folder: by default book/results. A claim whose runs are not all recorded is left out.

    Returns:
        Columns key, claim, chapter, scale, paper, mean, low, high; 95 % t-intervals over seeds.
    """
    return pd.DataFrame(_claims(Records(folder)), columns=CLAIM_COLUMNS)


def findings_table(folder: Path | None = None) -> pd.DataFrame:
    """Returns one row per claim with the numbers of all scales; where runs are missing, the cell says "not run"."""
    records = Records(folder)
    printed = pd.Series(paper_gain("top5"))
    plain = paper_table(9).query("metric == 'top5' and loss == 'CE'").set_index("noise_level")["mean"]
    tuned, pair, images = (records.noise(scale) for scale in ("tuned", "papers_pair", "images"))
    taus = paper_table(6).query("split == 'test'").sort_values("tau")["mean"]
    small = {profile: records.runs(registry.table_2_small_data(profile, seeds=seeds))
             for profile, seeds in (("quick", RECORDED_SEEDS), ("laptop", None))}  # fmt: skip
    rows = [
        ["under label noise the smooth loss leads in top-5, p = 0.2 to 1 (Table 1)", _list(printed[0.2:]),
         say(tuned, _gains_of_groupings) + "; with the paper's rate and decay " + say(pair, _gains_of_groupings),
         say(images, _gains_of_groupings)],
        ["without noise the two are equal in top-5", signed(printed[0.0], 2),
         say(tuned, _gain_without_noise), say(images, _gain_without_noise)],
        ["the smooth loss leads in top-1 too, p = 0.2 to 1 (Table 1)", _list(pd.Series(paper_gain("top1"))[0.2:]),
         say(tuned, lambda runs: _gains_of_groupings(runs, "test_top1")),
         say(images, lambda runs: _gains_of_groupings(runs, "test_top1"))],
        ["early stopping helps cross-entropy and not the smooth loss", "no number given",
         say(tuned, _stopping) + "; with the paper's rate and decay " + say(pair, _stopping),
         say(images, _stopping)],
        ["noise lowers the top-5 accuracy of cross-entropy, p = 0.2 to 1 (Table 1)",
         _list((plain - plain[0.0])[0.2:]), say(tuned, _falls), say(images, _falls)],
        ["(our question) does the smooth loss lead where no wrong label is learned by heart?", "not asked", NOT_RUN,
         say(records.runs(registry.noise_without_memorising()), _brief)],
        ["τ = 0, 0.001, 0.01, 0.1, 1, 10, 100: the smallest fail, 0.1 is best (Table 6)",
         ", ".join(f"{mean:.1f}" for mean in taus),
         say(records.runs(registry.figure_2_temperature("quick")), _temperatures),
         say(records.runs(registry.figure_2_temperature("laptop")), _temperatures)],
        ["at a small τ most derivatives are zero at first (Figure 2b)", "a curve without numbers", NOT_RUN,
         _shares_of_derivatives(records.folder)],
        ["a falling τ gains nothing over a fixed one", "no number given",
         say(records.runs(registry.temperature_annealing("quick")), _annealed),
         say(records.runs(registry.temperature_annealing("laptop")), _annealed)],
        ["5, 10, 25, 50, 100 % of the images: L_{5,0.1} leads with few (Table 2)",
         f"ImageNet: {_list(pd.Series(paper_gain_by_share()).sort_index())}",
         say(small["quick"], lambda runs: _list(gains(runs, 'train_images', 'L_{5,0.1}'))),
         say(small["laptop"], lambda runs: _list(gains(runs, 'train_images')) + " (one seed, L_{5,1})")],
        *(_margin_row(records, k) for k in (1, 5)),
        ["ten crops: averaged marginals beat averaged softmax in top-5", "at least +0.2", NOT_RUN,
         _ten_crops(records.folder)],
    ]  # fmt: skip
    columns = ["what the paper says", "the paper's numbers", "ours on features", "ours on images"]
    return pd.DataFrame(rows, columns=columns).set_index(columns[0])


def readme_table(folder: Path | None = None) -> pd.DataFrame:
    """Returns eight claims in short: claim, verdict and one number of ours, the paper's in brackets."""
    records = Records(folder)
    tuned, pair = records.noise("tuned"), records.noise("papers_pair")
    printed, share = paper_gain("top5"), paper_gain_by_share()
    taus = records.runs(registry.figure_2_temperature("laptop"))
    small = records.runs(registry.table_2_small_data("quick", seeds=RECORDED_SEEDS))
    rows: list[list[Any]] = [
        ["Label noise, p = 0.8: the smooth loss leads in top-5", "yes, but by less once each loss is tuned", tuned,
         lambda runs: _beside(_at(runs, 0.8).mean(), printed[0.8])],
        ["The same with the paper's hyper-parameters for both losses", "yes, about half the paper's lead", pair,
         lambda runs: _beside(_at(runs, 0.8).mean(), printed[0.8])],
        ["Label noise, p = 0.8: it leads in top-1 too", "not within superclasses, once each loss is tuned", tuned,
         lambda runs: _beside(_at(runs, 0.8, metric="test_top1").mean(), paper_gain("top1")[0.8])],
        ["No noise: both losses are equal in top-5", "nearly, cross-entropy is ahead", tuned,
         lambda runs: _beside(_at(runs, 0.0).mean(), printed[0.0], digits=2)],
        ["Label noise: cross-entropy needs early stopping",
         "with the paper's hyper-parameters, within index blocks only", pair, _stopping_in_short],
        ["Networks do not train at a small τ", "true on images, not on features", taus,
         lambda runs: "top-5 of {:.1f} % at τ = 0 and {:.1f} % at τ = 0.1".format(*by_temperature(runs)[[0.0, 0.1]])],
        ["Few images, 5 %: L_{5,0.1} leads in top-5", "not on features, 22 images per class", small,
         lambda runs: _beside(gains(runs, "train_images", "L_{5,0.1}").iloc[0], share[0.05])],
        ["Margin 1 is better than margin 0, k = 5", "five seeds do not show it", records.margins(5, "quick"),
         lambda runs: _beside(worth_of_margin(runs).mean(), _paper_margin(5))],
    ]  # fmt: skip
    shown = [[claim, NOT_RUN if runs is None else verdict, say(runs, number)] for claim, verdict, runs, number in rows]
    return pd.DataFrame(shown, columns=["what the paper says", "found here", "our number"])


def gains(runs: pd.DataFrame, by: str = "noise_level", loss: str = "L_{5,1}", metric: str = STOPPED) -> pd.Series:
    """Smooth loss minus cross-entropy in points, the mean over seeds."""
    found = differences_by_seed(runs, metric=metric, by=by)
    return found[found["loss"] == loss].groupby(by)["difference"].mean()


def gained_by_stopping(runs: pd.DataFrame, grouping: str = "superclass") -> pd.DataFrame:
    """Points of top-5 that the epoch chosen by validation has over the last one, by noise level and loss."""
    runs = of_grouping(runs, grouping)
    return 100 * (runs[STOPPED] - runs[LAST]).groupby([runs["noise_level"], runs["loss"]]).mean().unstack()


def nearer_grouping(runs: pd.DataFrame, scale: str) -> pd.Series:
    """Returns by noise level whose fall of cross-entropy is nearer to the paper's: "superclass" or "index_blocks"."""
    table = falls(runs, scale=scale).drop(index=0.0)
    return table[list(GROUPINGS)].sub(table["paper"], axis=0).abs().idxmin(axis=1)


def by_temperature(runs: pd.DataFrame) -> pd.Series:
    """Top-5 after the last epoch; 0 is the hard loss."""
    return 100 * runs.groupby(runs["tau"].where(runs["loss"] == "smooth", 0.0))[LAST].mean()


def annealed(runs: pd.DataFrame) -> tuple[float, float]:
    """Top-5 after the last epoch with τ from 1 to 0.01, and with τ = 1."""
    falling = runs["tau_final"].notna()
    return tuple(100 * runs[chosen][LAST].mean() for chosen in (falling, ~falling & (runs["tau"] == 1)))


def worth_of_margin(runs: pd.DataFrame, margin: float = 1.0) -> pd.Series:
    """What a margin adds to margin 0 by seed, in points of the best validation accuracy."""
    found = differences_by_margin(runs)
    return found[found["margin"] == margin].set_index("seed")["difference"]


def _claims(records: Records) -> Iterator[list]:
    def one(key, claim, chapter, scale, printed, values):
        return [key, claim, CHAPTERS[chapter], scale, printed, *t_interval(values)]

    printed, share = paper_gain("top5"), paper_gain_by_share()
    names = {"tuned": "each loss tuned", "papers_pair": "the paper's rate and decay", "images": "images"}
    for key, how in names.items():
        if (runs := records.noise(key)) is not None:
            scale = IMAGES if key == "images" else FEATURES
            yield one(f"noise_{key}", f"label noise p = 0.8, {how}:\nsmooth loss − cross-entropy", "noise", scale,
                      printed[0.8], _at(runs, 0.8))  # fmt: skip
    if (runs := records.noise("tuned")) is not None:
        yield one("blocks", "label noise p = 0.8 within index blocks,\neach loss tuned", "noise", FEATURES,
                  printed[0.8], _at(runs, 0.8, "index_blocks"))  # fmt: skip
        yield one("clean", "no noise, each loss tuned:\nsmooth loss − cross-entropy", "noise", FEATURES, printed[0.0],
                  _at(runs, 0.0))  # fmt: skip
    if (runs := records.runs(registry.table_2_small_data("quick", seeds=RECORDED_SEEDS))) is not None:
        found = differences_by_seed(runs, by="train_images")
        few = found[(found["train_images"] == found["train_images"].min()) & (found["loss"] == "L_{5,0.1}")]
        yield one("small", "5 % of the images:\n$L_{5,0.1}$ − cross-entropy", "small", FEATURES, share[0.05],
                  few["difference"])  # fmt: skip
    for k in (1, 5):
        if (runs := records.margins(k, "quick")) is not None:
            yield one(f"margin_{k}", f"margin 1 − margin 0,\nk = {k}, top-{k}", "margin", FEATURES,
                      _paper_margin(k), worth_of_margin(runs))  # fmt: skip


def _at(runs: pd.DataFrame, level: float, grouping: str = "superclass", metric: str = STOPPED) -> pd.Series:
    """Smooth loss minus cross-entropy at one noise level, by seed."""
    found = differences_by_seed(of_grouping(runs, grouping), metric=metric)
    return found[found["noise_level"] == level]["difference"]


def _beside(ours: float, printed: float, digits: int = 1) -> str:
    return f"{signed(ours, digits)} points (paper {signed(printed, digits)})"


def say(runs: pd.DataFrame | None, words: Callable[[pd.DataFrame], str]) -> str:
    return NOT_RUN if runs is None else words(runs)


def _gains_of_groupings(runs: pd.DataFrame, metric: str = STOPPED) -> str:
    classes, blocks = (_list(gains(of_grouping(runs, grouping), metric=metric)[0.2:]) for grouping in GROUPINGS)
    return f"superclasses {classes}; index blocks {blocks}"


def _gain_without_noise(runs: pd.DataFrame) -> str:
    return interval_text(*t_interval(_at(runs, 0.0)))


def _stopping(runs: pd.DataFrame) -> str:
    gained = gained_by_stopping(runs).loc[0.8]
    return f"p = 0.8: CE {signed(gained['cross_entropy'])}, L_{{5,1}} {signed(gained['smooth'])}"


def _stopping_in_short(runs: pd.DataFrame) -> str:
    classes, blocks = (gained_by_stopping(runs, grouping).loc[0.4, "cross_entropy"] for grouping in GROUPINGS)
    return f"{signed(blocks)} points at p = 0.4, {signed(classes)} within superclasses"


def _falls(runs: pd.DataFrame) -> str:
    table = falls(runs).loc[0.2:]
    nearer = {scale: nearer_grouping(runs, scale).value_counts() for scale in ("points", "log-odds")}
    counts = ", ".join(f"{found.get('superclass', 0)} of 5 levels in {scale}" for scale, found in nearer.items())
    lists = f"superclasses {_list(table['superclass'])}; index blocks {_list(table['index_blocks'])}"
    return f"{lists}; superclasses are nearer to the paper than index blocks at {counts}"


def _brief(runs: pd.DataFrame) -> str:
    classes, blocks = (signed(_at(runs, 0.8, grouping).mean()) for grouping in GROUPINGS)
    return f"20,000 images, 6 epochs, p = 0.8: superclasses {classes}, index blocks {blocks}"


def _temperatures(runs: pd.DataFrame) -> str:
    return ", ".join(f"{mean:.1f}" for mean in by_temperature(runs))


def _annealed(runs: pd.DataFrame) -> str:
    return "τ from 1 to 0.01: {:.1f}; τ = 1 throughout: {:.1f}".format(*annealed(runs))


def _margin_row(records: Records, k: int) -> list[str]:
    cells = []
    for profile in ("quick", "laptop"):
        runs = records.margins(k, profile)
        cells.append(say(runs, lambda runs: interval_text(*t_interval(worth_of_margin(runs)), digits=2)))
    return [f"margin 1 against 0 in top-{k}, k = {k} (Table {7 if k == 1 else 8})",
            f"ImageNet: {signed(_paper_margin(k), 2)}", *cells]  # fmt: skip


def _shares_of_derivatives(folder: Path) -> str:
    shares = read_sparsity(folder).set_index("tau")["share"]
    if shares.empty:
        return NOT_RUN
    return "not zero at " + ", ".join(f"τ = {tau:g}: {100 * share:.0f} %" for tau, share in shares[:0.01].items())


def _ten_crops(folder: Path) -> str:
    path = folder / "imagenet_ten_crops.csv"
    if not path.exists():
        return NOT_RUN
    row = pd.read_csv(path).set_index(["method", "metric"]).loc["ten crops, top-5 marginals averaged", "top5"]
    return interval_text(*(100 * row[name] for name in ("difference", "difference_low", "difference_high"))) + (
        ", 1,000 images of ImageNet, another network"
    )


def _paper_margin(k: int) -> float:
    means = paper_table(7 if k == 1 else 8).set_index("margin")["mean"]
    return means[1] - means[0]


def _list(values: pd.Series) -> str:
    return ", ".join(signed(value) for value in values if not math.isnan(value))
