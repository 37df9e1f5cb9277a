"""What the study chapters compare beside the paper's own tables: differences between losses, groupings and epochs.

`runs` is that of records.read_runs, filtered to one data set, network and schedule. All numbers are percent points.
"""

import pandas as pd

from smooth_topk.study.tables.cells import NOT_IN_PAPER, NOT_RUN, finished, loss_names, mean_and_std
from smooth_topk.study.tables.paper import paper_table

GROUPINGS = ("superclass", "index_blocks")


def of_grouping(runs: pd.DataFrame, grouping: str) -> pd.DataFrame:
    """Returns the runs with noise of one grouping, and those without noise, which both groupings share."""
    return runs[(runs["noise_grouping"] == grouping) | (runs["noise_level"] == 0)]


def gain_table(runs: pd.DataFrame, *, metric: str = "test_top5", by: str = "noise_level") -> pd.DataFrame:
    """Returns accuracy of each smooth loss minus that of cross-entropy, seed by seed, then mean (std) over seeds.

    Args:
        runs: for noise, those of one grouping.
        metric: a column of runs.csv that ends in top1 or top5.
        by: "noise_level" or "train_images"; the paper's differences stand beside ours for the noise level.
    """
    runs = finished(runs)
    names = loss_names(runs)
    smooth = [name for name in sorted(set(names)) if name != "CE"] or ["L_{5,1}"]
    paper = paper_gain(metric[-4:]) if by == "noise_level" else {}
    values = sorted({*paper, *(runs[by] if len(runs) else [])})
    rows = {}
    for value in values:
        cell, cell_names = runs[runs[by] == value], names[runs[by] == value]
        base = cell[cell_names == "CE"].set_index("seed")[metric]
        ours = {name: cell[cell_names == name].set_index("seed")[metric] - base for name in smooth}
        printed = {"paper: L_{5,1} − CE": _signed(paper.get(value)) or NOT_IN_PAPER} if by == "noise_level" else {}
        rows[value] = printed | {f"ours: {name} − CE": _signed_mean(100 * ours[name].dropna()) for name in smooth}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(by.replace("_", " "))


def drop_table(runs: pd.DataFrame, *, metric: str = "test_top5") -> pd.DataFrame:
    """Returns how far cross-entropy falls below its accuracy without noise, for the paper and for both groupings."""
    printed = paper_table(9)
    printed = printed[(printed["loss"] == "CE") & (printed["metric"] == metric[-4:])].set_index("noise_level")["mean"]
    runs = finished(runs)
    runs = runs[runs["loss"] == "cross_entropy"]
    clean = runs[runs["noise_level"] == 0].set_index("seed")[metric]
    rows = {}
    for level in sorted(set(printed.index) | set(runs["noise_level"])):
        rows[level] = {"paper": _signed(printed[level] - printed[0.0]) if level in printed else NOT_IN_PAPER}
        for grouping in GROUPINGS:
            chosen = runs[(runs["noise_level"] == level) & ((runs["noise_grouping"] == grouping) | (level == 0))]
            drops = chosen.set_index("seed")[metric] - clean
            rows[level][f"ours, {grouping.replace('_', ' ')}"] = _signed_mean(100 * drops.dropna())
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("noise level")


def early_stopping_table(runs: pd.DataFrame, *, grouping: str = "superclass") -> pd.DataFrame:
    """Returns test top-5 of the epoch with the best validation top-5, of the last epoch, and what stopping gained."""
    runs = of_grouping(finished(runs), grouping)
    rows = {}
    for (level, loss), part in runs.groupby(["noise_level", loss_names(runs)]):
        rows[f"{level:g}", loss] = {
            "epoch kept": f"{(part['best_epoch'] + 1).mean():.0f} of {part['epochs'].iloc[0]}",
            "best epoch (%)": mean_and_std(part, "test_top5"),
            "last epoch (%)": mean_and_std(part, "last_test_top5"),
            "gained by stopping": _signed_mean(100 * (part["test_top5"] - part["last_test_top5"])),
        }
    if not rows:
        rows = {("all", "all"): dict.fromkeys(("epoch kept", "best epoch (%)", "last epoch (%)"), NOT_RUN)}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["noise level", "loss"])
    return table


def loss_table(runs: pd.DataFrame, metrics: dict[str, str]) -> pd.DataFrame:
    """Returns one row a loss, rate and decay.

    Args:
        metrics: columns of runs.csv and the headings they get.
    """
    keys = [loss_names(runs), runs["learning_rate"], runs["weight_decay"]]
    rows = {
        (name, f"{rate:g}", f"{decay:g}"): {title: mean_and_std(part, metric) for metric, title in metrics.items()}
        for (name, rate, decay), part in runs.groupby(keys, sort=False)
    } or {("all", "all", "all"): dict.fromkeys(metrics.values(), NOT_RUN)}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["loss", "rate", "decay"])
    return table


def paper_gain(metric: str) -> dict[float, float]:
    """Returns the paper's L_{5,1} minus CE by noise level, metric "top1" or "top5"."""
    table = paper_table(9)
    table = table[table["metric"] == metric].pivot(index="noise_level", columns="loss", values="mean")
    return (table["L_{5,1}"] - table["CE"]).to_dict()


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


def _signed_mean(values: pd.Series) -> str:
    """One number a seed in; the seeds are paired, so their spread is that of the difference."""
    if values.empty:
        return NOT_RUN
    if len(values) == 1:
        return f"{values.iloc[0]:+.2f}, 1 seed"
    return f"{values.mean():+.2f} ({values.std(ddof=1):.2f}), {len(values)} seeds"
