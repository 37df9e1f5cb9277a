"""The family of losses side by side, what k and tau change, and many classes: rows of runs.csv in, tables out.

Differences are paired: two runs of one seed and one setting meet the same images, noise and initial weights.
"""

from collections.abc import Mapping

import pandas as pd

from smooth_topk.study.experiments.further_runs import FAMILY_LOSSES, MANY_LOSSES, TRAINED_CLASSES, TRAINED_K
from smooth_topk.study.experiments.names import data_name
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.tables.accuracy import with_best_validation
from smooth_topk.study.tables.cells import NOT_RUN, finished, loss_names, mean_and_std, refuse_mixture, seeds_text
from smooth_topk.study.tables.comparisons import GROUPING_NAMES
from smooth_topk.study.tables.differences import differences_by_seed, interval_text, intervals, t_interval

NAMES = {RunConfig(**fields).loss_name: name for name, (fields, _) in FAMILY_LOSSES.items()}
BASELINE = "cross-entropy"
TOP, TOP_OF_ALL = (1, 3, 5, 10), (1, 3, 5, 10, 20)
CONSTRUCTED = ("constructed_1000", "constructed_10000")
TAU_COLUMNS = ["classes", "k", "tau", "accuracy", "mean", "low", "high", "seeds"]


def family_settings(runs: pd.DataFrame) -> pd.Series:
    """Returns the setting of each run: its images where the labels are clean, such as 2,200 images, else its noise."""
    return pd.Series([_setting(*row)[1] for row in _described(runs)], index=runs.index, dtype=object)


def family_differences(runs: pd.DataFrame, *, metric: str = "test_top5") -> pd.DataFrame:
    """Returns the accuracy of every loss minus that of cross-entropy, in points, with its 95 % t-interval.

    Args:
        runs: of `family_comparison`, one rate and decay per loss and setting; seeds are paired.
        metric: a column of runs.csv.

    Returns:
        Columns setting, loss, mean, low, high, seeds: settings without noise first, losses in the family's order.
    """
    runs = finished(runs)
    order = [setting for _, setting in sorted({_setting(*row) for row in _described(runs)})]
    by_seed = differences_by_seed(runs.assign(setting=family_settings(runs)), metric=metric, by="setting")
    found = intervals(by_seed, ["setting", "loss"])
    found["loss"] = found["loss"].map(lambda name: NAMES.get(name, name)).astype(object)
    losses = [*NAMES.values(), *found["loss"]]
    return found.sort_values(
        ["setting", "loss"], key=lambda column: column.map((order if column.name == "setting" else losses).index)
    ).reset_index(drop=True)


def family_table(runs: pd.DataFrame, cost: pd.DataFrame, *, setting: str = "20,000 images") -> pd.DataFrame:
    """Returns one row per loss of the family: test accuracies at four k, time per step and memory.

    Args:
        runs: of `family_comparison`.
        cost: family_cost.csv, with the columns loss, ratio and memory_ratio; may be empty.
        setting: one of `family_settings`.
    """
    chosen = runs[family_settings(runs) == setting]
    names = loss_names(chosen).map(lambda name: NAMES.get(name, name))
    rows = {}
    for name in NAMES.values():
        part = chosen[names == name]
        rows[name] = {f"top-{top} (%)": mean_and_std(part, f"test_top{top}") for top in TOP}
        rows[name] |= {"time / CE": _ratio(cost, name, "ratio"), "memory / CE": _ratio(cost, name, "memory_ratio")}
    heading = f"{setting}, {seeds_text(chosen)}"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("loss").rename_axis(heading, axis=1)


def with_own_validation(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs with a column best_validation: the best validation top-k accuracy of a run trained with k."""
    parts = [with_best_validation(part, epochs, f"top{k}") for k, part in runs.groupby("k")]
    return pd.concat(parts) if parts else runs.assign(best_validation=pd.Series(dtype=float))


def tau_differences(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns how far every tau is behind the best tau of its k and number of classes, by validation top-k.

    Args:
        runs: of `k_and_tau` with the column best_validation of `with_own_validation`.

    Returns:
        Columns classes, k, tau, accuracy (mean in percent), and mean, low, high, seeds of the paired difference to the
        best tau in points. The best tau itself has 0, and a tau whose high end is above 0 is not told from it.
    """
    rows = []
    for (classes, k), part in finished(runs).groupby(["num_classes", "k"]):
        for _, cell in part.groupby("tau"):
            refuse_mixture(cell)
        by_seed = 100 * part.pivot(index="seed", columns="tau", values="best_validation").astype(float)
        best = by_seed.mean().idxmax()
        for tau in by_seed.columns:
            found = (by_seed[tau] - by_seed[best]).dropna()
            rows.append((classes, k, tau, by_seed[tau].mean(), *t_interval(found), len(found)))
    return pd.DataFrame(rows, columns=TAU_COLUMNS)


def best_tau_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the best tau by validation top-k for every k and number of classes, and those not told from it.

    Args:
        runs: as in `tau_differences`.
    """
    found = tau_differences(runs)
    rows = {}
    for k in TRAINED_K:
        rows[k] = {f"{classes} classes": _best_tau(found, classes, k) for classes in TRAINED_CLASSES}
    heading = f"best τ by validation top-k, {seeds_text(runs)}; in brackets those that the seeds cannot tell from it"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("trained k").rename_axis(heading, axis=1)


def k_against_metric_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns test accuracies at every k of networks trained with one k, each with its best tau by validation top-k.

    Args:
        runs: of `k_and_tau` with the column best_validation of `with_own_validation`; those with all classes count.

    Returns:
        One row per trained k; the last column says whether it is the best one by its own metric, and the paired
        difference to the best of the others with its 95 % interval.
    """
    runs = finished(runs)
    runs = runs[runs["num_classes"] == max(TRAINED_CLASSES)]
    found = tau_differences(runs)
    best = found.loc[found.groupby("k")["accuracy"].idxmax()].set_index("k")["tau"]
    chosen = runs[runs["tau"] == runs["k"].map(best)]
    rows = {}
    for k in TRAINED_K:
        part = chosen[chosen["k"] == k]
        cells = {f"top-{top} (%)": mean_and_std(part, f"test_top{top}") for top in TOP_OF_ALL}
        rows[k, f"{best[k]:g}" if k in best else NOT_RUN] = cells | {"by its own metric": _own_metric(chosen, k)}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(seeds_text(chosen), axis=1)
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["trained k", "best τ"])
    return table


def many_classes_table(runs: pd.DataFrame, best: Mapping[str, Mapping[int, float]]) -> pd.DataFrame:
    """Returns test accuracies on constructed classes, the difference to cross-entropy, and the best possible accuracy.

    Args:
        runs: of `many_classes`.
        best: the accuracy that no classifier can exceed, by data set and k (`data.constructed.best_accuracy`).
    """
    found = intervals(differences_by_seed(runs, by="dataset"), ["dataset", "loss"])
    names, rows = loss_names(runs), {}
    for dataset in CONSTRUCTED:
        for name in MANY_LOSSES:
            part = runs[(runs["dataset"] == dataset) & (names == name)]
            row = found[(found["dataset"] == dataset) & (found["loss"] == name)]
            cells = {f"top-{top} (%)": mean_and_std(part, f"test_top{top}") for top in TOP}
            gain = interval_text(*row.iloc[0][["mean", "low", "high"]]) if len(row) else NOT_RUN
            is_baseline = name == "CE" and len(part) > 0
            rows[data_name(dataset), f"ours: {name}"] = cells | {"top-5 − CE": "" if is_baseline else gain}
        if dataset in best:
            cells = {f"top-{top} (%)": f"{100 * best[dataset][top]:.2f}" for top in TOP}
            rows[data_name(dataset), "best possible"] = cells | {"top-5 − CE": ""}
    seeds = [f"{data_name(name)}: {seeds_text(runs[runs['dataset'] == name])}" for name in CONSTRUCTED]
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("; ".join(seeds), axis=1)
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["data", "loss"])
    return table


def _described(runs: pd.DataFrame) -> list[tuple[float, str, int]]:
    return list(zip(runs["noise_level"], runs["noise_grouping"], runs["train_images"], strict=True))


def _setting(level: float, grouping: str, images: int) -> tuple[tuple[int, float], str]:
    """The place of a setting in tables and figures, and its name."""
    if level == 0:
        return (0, images), f"{images:,} images"
    return (1 + list(GROUPING_NAMES).index(grouping), level), f"p = {level:g}, {GROUPING_NAMES[grouping]}"


def _ratio(cost: pd.DataFrame, name: str, column: str) -> str:
    row = cost[cost["loss"] == name] if len(cost) else cost
    return f"{row[column].iloc[0]:.1f}" if len(row) else NOT_RUN


def _best_tau(found: pd.DataFrame, classes: int, k: int) -> str:
    if k >= classes and len(found):
        return "k is too large"
    part = found[(found["classes"] == classes) & (found["k"] == k)].set_index("tau")
    if part.empty:
        return NOT_RUN
    best = part["accuracy"].idxmax()
    others = [f"{tau:g}" for tau in part.index if tau != best and part.loc[tau, "high"] > 0]
    return f"{best:g}" + (f" ({', '.join(others)})" if others else "")


def _own_metric(runs: pd.DataFrame, k: int) -> str:
    """Who is best by top-k accuracy: the networks trained with this k, or others."""
    by_seed = 100 * runs.pivot(index="seed", columns="k", values=f"test_top{k}").astype(float)
    if k not in by_seed or len(by_seed.columns) < 2:
        return NOT_RUN
    rival = by_seed.drop(columns=k).mean().idxmax()
    difference = interval_text(*t_interval((by_seed[k] - by_seed[rival]).dropna()))
    place = "best" if by_seed[k].mean() > by_seed[rival].mean() else "not best"
    return f"{place}: {difference} against k = {rival}"
