"""What the study chapters compare next to the paper's own tables: differences between losses, groupings and epochs.

`runs` is that of records.read_runs, filtered to one data set, network and schedule.
"""

import numpy as np
import pandas as pd

from smooth_topk.study.experiments.names import data_name
from smooth_topk.study.records.paper import paper_table
from smooth_topk.study.tables.cells import (
    NOT_IN_PAPER,
    NOT_RUN,
    count_text,
    decay_text,
    finished,
    loss_names,
    mean_and_std,
    of_grouping,
    seeds_text,
)
from smooth_topk.study.tables.differences import differences_by_seed, interval_text, intervals, paper_gain, signed

GROUPINGS = ("superclass", "index_blocks")
GROUPING_NAMES = {"superclass": "superclasses", "index_blocks": "index blocks"}
SCALES = {"points": "points", "log-odds": "log-odds"}


def gain_table(runs: pd.DataFrame, *, metric: str = "test_top5", by: str = "noise_level") -> pd.DataFrame:
    """Returns accuracy of each smooth loss minus that of cross-entropy, paired by seed, with its 95 % t-interval.

    Args:
        runs: for noise, those of one grouping.
        metric: a column of runs.csv that ends in top1 or top5.
        by: "noise_level" or "train_images"; the paper's differences stand next to ours for the noise level.
    """
    found = intervals(differences_by_seed(runs, metric=metric, by=by), [by, "loss"])
    smooth = sorted(set(found["loss"])) or ["L_{5,1}"]
    seeds = count_text(found["seeds"].tolist())
    paper = paper_gain(metric[-4:]) if by == "noise_level" else {}
    rows = {}
    for value in sorted({*paper, *found[by]}):
        cells = {"paper: L_{5,1} − CE": signed(paper[value], 2) if value in paper else NOT_IN_PAPER} if paper else {}
        for name in smooth:
            row = found[(found[by] == value) & (found["loss"] == name)]
            text = interval_text(*row.iloc[0][["mean", "low", "high"]]) if len(row) else NOT_RUN
            cells[f"ours, {seeds}: {name} − CE"] = text
        rows[f"{value:,}" if by == "train_images" else value] = cells
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis({"noise_level": "noise level p"}.get(by, "images"))


def falls(runs: pd.DataFrame, *, metric: str = "test_top5", scale: str = "points") -> pd.DataFrame:
    """Returns how far cross-entropy falls below its accuracy without noise: rows noise level, columns paper, groupings.

    Args:
        scale: "points" of accuracy, or "log-odds", log(a / (1 − a)), in which the step from 90 to 80 % is as large as
            that from 20 to 10 %, so that a fall from 94 % can be compared with a fall from 89 %.
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be points or log-odds, got scale={scale!r}.")
    printed = paper_table(9)
    printed = printed[(printed["loss"] == "CE") & (printed["metric"] == metric[-4:])]
    columns = {"paper": _on_scale(printed.set_index("noise_level")["mean"] / 100, scale)}
    runs = finished(runs)
    runs = runs[runs["loss"] == "cross_entropy"]
    for grouping in GROUPINGS:
        chosen = of_grouping(runs, grouping)
        columns[grouping] = _on_scale(chosen.groupby("noise_level")[metric].mean().astype(float), scale)
    table = pd.DataFrame(columns)
    return table - table.loc[0.0] if 0.0 in table.index else table


def drop_table(runs: pd.DataFrame, *, metric: str = "test_top5") -> pd.DataFrame:
    """Returns how far cross-entropy falls below its accuracy without noise, in points and in log-odds."""
    plain = runs[runs["loss"] == "cross_entropy"]
    names = {"paper": "paper"} | {name: f"ours, {shown}" for name, shown in GROUPING_NAMES.items()}
    parts = {}
    for scale, digits in (("points", 1), ("log-odds", 2)):
        table = falls(plain, metric=metric, scale=scale).drop(index=0.0, errors="ignore")
        for column, name in names.items():
            missing = NOT_IN_PAPER if column == "paper" else NOT_RUN
            parts[scale, name] = [missing if pd.isna(value) else signed(value, digits) for value in table[column]]
    return pd.DataFrame(parts, index=table.index.rename("noise level p"))


def early_stopping_table(runs: pd.DataFrame, *, grouping: str = "superclass") -> pd.DataFrame:
    """Returns test top-5 of the epoch with the best validation top-5, of the last epoch, and what stopping gained."""
    runs = of_grouping(finished(runs), grouping)
    rows = {}
    for (level, loss), part in runs.groupby(["noise_level", loss_names(runs)]):
        gained = part.assign(loss=loss, difference=100 * (part["test_top5"] - part["last_test_top5"]))
        mean, low, high = intervals(gained, ["loss"]).iloc[0][["mean", "low", "high"]]
        rows[f"{level:g}", loss] = {
            "epoch kept": f"{(part['best_epoch'] + 1).mean():.0f} of {part['epochs'].iloc[0]}",
            "best epoch (%)": mean_and_std(part, "test_top5"),
            "last epoch (%)": mean_and_std(part, "last_test_top5"),
            "gained by stopping": interval_text(mean, low, high, digits=2),
        }
    if not rows:
        rows = {("all", "all"): dict.fromkeys(("epoch kept", "best epoch (%)", "last epoch (%)"), NOT_RUN)}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(f"test top-5, {seeds_text(runs)}", axis=1)
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["noise level p", "loss"])
    return table


def loss_table(runs: pd.DataFrame, metrics: dict[str, str]) -> pd.DataFrame:
    """Returns one row per loss, rate and decay.

    Args:
        metrics: columns of runs.csv and the headings they get.
    """
    keys = [loss_names(runs), runs["learning_rate"], runs["weight_decay"]]
    rows = {
        (name, f"{rate:g}", decay_text(decay)): {title: mean_and_std(part, metric) for metric, title in metrics.items()}
        for (name, rate, decay), part in runs.groupby(keys, sort=False)
    } or {("all", "all", "all"): dict.fromkeys(metrics.values(), NOT_RUN)}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(seeds_text(runs), axis=1)
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["loss", "rate", "decay"])
    return table


def with_best_decay(runs: pd.DataFrame, *, metric: str = "validation_top5") -> pd.DataFrame:
    """Returns of every loss, at each number of training images, the runs with the decay that was best on validation.

    Args:
        runs: some decays per loss; those that have more seeds than others are compared by the seeds that all have.
        metric: what decides, in the mean over seeds.
    """
    keys = ["name", "train_images", "weight_decay"]
    named = runs.assign(name=loss_names(runs))
    decays = named.groupby(keys[:2])["weight_decay"].transform("nunique")
    have_seed = named.groupby([*keys[:2], "seed"])["weight_decay"].transform("nunique")
    judged = named[have_seed == decays].groupby(keys)[metric].mean()
    best = judged.groupby(level=keys[:2]).idxmax()
    return runs[named.set_index(keys).index.isin(list(best))]


def small_temperature_table(runs: pd.DataFrame, *, metric: str = "last_test_top5") -> pd.DataFrame:
    """Returns the small temperatures, 0 for the hard loss, with one suspected cause of their failure changed at a time.

    Args:
        runs: runs of small temperatures that differ in rate, epochs and the authors' switch to the hard loss.
        metric: "last_test_top5" or "last_train_top5", of the last epoch.
    """
    runs = runs.assign(tau_or_zero=runs["tau"].where(runs["loss"] != "hard", 0.0).astype(float))
    rows: dict[str, dict[str, str]] = {}
    keys = ["learning_rate", "epochs", runs["loss"] == "switched_topk"]
    for (rate, epochs, switched), part in runs.groupby(keys, sort=False):
        setting = f"rate {rate:g}, {epochs} epochs{', with the switch' if switched else ''}"
        rows[setting] = {f"τ = {tau:g}": mean_and_std(cell, metric) for tau, cell in part.groupby("tau_or_zero")}
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index(axis=1).fillna(NOT_RUN).rename_axis("setting")
    which = "training" if metric == "last_train_top5" else "test"
    return table.rename_axis(f"{which} top-5, last epoch (%), {seeds_text(runs)}", axis=1)


def search_table(runs: pd.DataFrame, *, metric: str = "validation_top5") -> pd.DataFrame:
    """Returns what a search for rates and decays chose, next to the paper's own pair: one row per loss and pair.

    A pair is judged by the mean of validation accuracy over the noise levels of the search.

    Args:
        runs: one run per loss, rate, decay and noise level.
    """
    runs = finished(runs)
    runs = runs.assign(name=loss_names(runs))
    rows = {}
    for name, part in runs.groupby("name", sort=False):
        by_pair = 100 * part.pivot_table(index=["learning_rate", "weight_decay"], columns="noise_level", values=metric)
        by_pair = by_pair.astype(float).dropna()
        if by_pair.empty:
            continue
        chosen = {"chosen": by_pair.mean(axis=1).idxmax(), "the paper's": (0.1, 1e-4)}
        for label, pair in chosen.items():
            if pair in by_pair.index:
                cells = {f"p = {level:g}": f"{value:.1f}" for level, value in by_pair.loc[pair].items()}
                rows[name, label] = {"rate": f"{pair[0]:g}", "decay": decay_text(pair[1])} | cells
    if not rows:
        rows = {("all", "all"): {"rate": NOT_RUN, "decay": NOT_RUN}}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["loss", "pair"])
    return table


def setting_name(runs: pd.DataFrame) -> str:
    """Returns data, images and epochs of runs that share them, such as CIFAR-100 images, 5,000 images, 24 epochs."""
    if runs.empty:
        return NOT_RUN
    first = runs.iloc[0]
    sizes = set(runs["train_images"].dropna())
    size = f", {sizes.pop():,} images" if len(sizes) == 1 else ""
    return f"{data_name(first['dataset'])}{size}, {first['epochs']} epochs"


def _on_scale(shares: pd.Series, scale: str) -> pd.Series:
    return 100 * shares if scale == "points" else np.log(shares / (1 - shares))
