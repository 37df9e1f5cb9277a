"""Tables 1, 2, 6, 7, 8 and 9: accuracies of trained networks, in percent, the paper's beside ours.

`runs` and `epochs` are those of records.read_runs and read_epochs, filtered to one data set, network and schedule.
"""

import pandas as pd

from smooth_topk.study.tables.cells import NOT_IN_PAPER, NOT_RUN, loss_names, mean_and_std, paper_cell
from smooth_topk.study.tables.paper import paper_table

METRICS = {"top1": "top-1 accuracy (%)", "top5": "top-5 accuracy (%)"}
PAPER, OURS = "paper", "ours"


def noise_table(runs: pd.DataFrame, *, grouping: str = "superclass", which: str = "test") -> pd.DataFrame:
    """Returns Tables 1 and 9: accuracy by noise level for each loss.

    Args:
        runs: runs of all noise levels; without noise the grouping does not matter, so those runs always count.
        grouping: "superclass" or "index_blocks".
        which: "test" for the epoch with the best validation top-5, "last_test" for the last one.
    """
    runs = runs[(runs["noise_grouping"] == grouping) | (runs["noise_level"] == 0)]
    paper = paper_table(9)
    levels = sorted(set(paper["noise_level"]) | set(runs["noise_level"]))
    rows = {level: _by_loss(paper, runs, "noise_level", level, which, METRICS) for level in levels}
    return _table(rows, "noise level", _losses(paper, runs))


def small_data_table(runs: pd.DataFrame, *, which: str = "test", data: str = "CIFAR-100") -> pd.DataFrame:
    """Returns Table 2: top-5 accuracy by the share of the training set; the paper's data set is ImageNet.

    Our own data set is part of the heading, since it need not be the paper's; `data` is its name where nothing was run.
    """
    paper = paper_table(2)
    sizes = runs["train_size"].map(size_name) if len(runs) else pd.Series(dtype=object)
    runs, paper = runs.assign(size=sizes), paper.assign(size=paper["share"].map(size_name))
    order = {
        **dict(zip(runs["size"], runs["train_images"], strict=True)),
        **dict(zip(paper["size"], paper["images"], strict=True)),
    }
    rows = {
        size: _by_loss(paper, runs, "size", size, which, {"top5": METRICS["top5"]})
        for size in sorted(order, key=order.get, reverse=True)
    }
    data = "ours, " + (" and ".join(sorted(set(runs["dataset"]))) if len(runs) else data)
    return _table(rows, "training set", _losses(paper, runs), {PAPER: "paper, ImageNet", OURS: data})


def temperature_table(runs: pd.DataFrame, epochs: pd.DataFrame, *, which: str = "last_test") -> pd.DataFrame:
    """Returns Table 6: training and test top-5 accuracy of the last epoch by tau; tau 0 is the hard loss.

    The paper does not say which accuracy its table holds; Figure 2(a) shows the top-5 error of the same runs.
    """
    runs = runs[runs["loss"].isin(["smooth", "hard"])]
    runs = runs.assign(tau_or_zero=runs["tau"].where(runs["loss"] == "smooth", 0.0).astype(float))
    runs = runs.merge(_last_train(epochs), on="run_id", how="left")
    paper = paper_table(6)
    taus = sorted(set(paper["tau"]) | set(runs["tau_or_zero"]))
    rows = {}
    for tau in taus:
        ours, printed = runs[runs["tau_or_zero"] == tau], paper[paper["tau"] == tau]
        rows[f"{tau:g}"] = {
            ("training accuracy (%)", PAPER): paper_cell(printed[printed["split"] == "train"]),
            ("training accuracy (%)", OURS): mean_and_std(ours, "last_train_top5"),
            ("test accuracy (%)", PAPER): paper_cell(printed[printed["split"] == "test"]),
            ("test accuracy (%)", OURS): mean_and_std(ours, f"{which}_top5"),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("tau")


def margin_table(runs: pd.DataFrame, *, k: int, which: str = "validation") -> pd.DataFrame:
    """Returns Table 7 (k=1, top-1) or Table 8 (k=5, top-5): accuracy with margin 0 and margin 1.

    The margin 0 of k=1, tau=1 is cross-entropy: such runs count as its margin 0 where no other run is given.
    The paper reports its validation set, so the default here is the validation accuracy too.
    """
    if k not in (1, 5):
        raise ValueError(f"The paper compares margins for k=1 (Table 7) and k=5 (Table 8), got k={k}.")
    paper, metric = paper_table(7 if k == 1 else 8), f"top{k}"
    smooth = runs[(runs["loss"] == "smooth") & (runs["k"] == k)]
    plain = smooth[smooth["margin"] == 0]
    if k == 1 and plain.empty:
        smooth = pd.concat([smooth, runs[runs["loss"] == "cross_entropy"].assign(margin=0.0)])
    rows = {
        f"{margin:g}": {
            f"paper, ImageNet: {METRICS[metric]}": paper_cell(paper[paper["margin"] == margin]),
            f"ours: {METRICS[metric]}": mean_and_std(smooth[smooth["margin"] == margin], f"{which}_{metric}"),
        }
        for margin in sorted(set(paper["margin"]) | set(smooth["margin"]))
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("margin")


def size_name(size) -> str:
    """Returns a training set's size as a share, such as 25 %, or as a number of images."""
    if size is None or pd.isna(size):
        return "100 %"
    return f"{size:,} images" if isinstance(size, int) else f"{100 * size:g} %"


def _losses(paper: pd.DataFrame, runs: pd.DataFrame) -> dict[str, list[str]]:
    """The columns of each side; a kind of loss that was not run has the paper's name in ours, and says so below."""
    printed, ours = list(dict.fromkeys(paper["loss"])), set(loss_names(runs))
    kinds = {name[0] for name in ours}
    return {PAPER: printed, OURS: sorted(ours | {name for name in printed if name[0] not in kinds})}


def _by_loss(paper, runs, column, value, which, metrics):
    """The cells of one row: every metric, both sides, every loss."""
    printed, ours = paper[paper[column] == value], runs[runs[column] == value]
    names, cells = loss_names(ours), {}
    for metric, heading in metrics.items():
        for side, losses in _losses(paper, runs).items():
            for loss in losses:
                if side == PAPER:
                    cell = paper_cell(printed[(printed["loss"] == loss) & (printed["metric"] == metric)])
                else:
                    cell = mean_and_std(ours[names == loss], f"{which}_{metric}") if len(ours) else NOT_RUN
                cells[heading, side, loss] = cell
    return cells


def _table(rows, index, losses, headings=None):
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(index)
    table.columns = pd.MultiIndex.from_tuples(table.columns).rename(["", "", ""])
    return table.rename(columns=headings or {}, level=1)


def _last_train(epochs: pd.DataFrame) -> pd.DataFrame:
    if epochs.empty:
        return pd.DataFrame({"run_id": pd.Series(dtype=object), "last_train_top5": pd.Series(dtype=float)})
    last = epochs.sort_values("epoch").groupby("run_id").tail(1)
    return last[["run_id", "train_top5"]].rename(columns={"train_top5": "last_train_top5"})


__all__ = ["NOT_IN_PAPER", "margin_table", "noise_table", "size_name", "small_data_table", "temperature_table"]
