"""Tables 1, 2, 6, 7, 8 and 9: accuracies of trained networks, in percent, the paper's next to ours.

`runs` and `epochs` are those of records.read_runs and read_epochs, filtered to one data set, network and schedule.
Top-1 and top-5 have tables of their own, and the number of seeds stands in the heading.
"""

import pandas as pd

from smooth_topk.study.experiments.names import data_name
from smooth_topk.study.records.paper import paper_table
from smooth_topk.study.tables.cells import loss_names, mean_and_std, of_grouping, paper_cell, seeds_text

METRICS = {"top1": "top-1 accuracy (%)", "top5": "top-5 accuracy (%)"}
MARGINALS = "ten_crop_marginals_top5"  # of runs.csv: what the paper reports for ImageNet


def noise_table(
    runs: pd.DataFrame, *, grouping: str = "superclass", metric: str = "top5", which: str = "test"
) -> pd.DataFrame:
    """Returns Tables 1 and 9: accuracy by noise level for each loss.

    Args:
        runs: runs of all noise levels; without noise the grouping does not matter, so those runs always count.
        grouping: "superclass" or "index_blocks".
        metric: "top1" or "top5".
        which: "test" for the epoch with the best validation top-5, "last_test" for the last one.
    """
    runs, paper = of_grouping(runs, grouping), paper_table(9)
    paper = paper[paper["metric"] == metric]
    levels = sorted(set(paper["noise_level"]) | set(runs["noise_level"]))
    rows = {level: _by_loss(paper, runs, "noise_level", level, f"{which}_{metric}") for level in levels}
    return _table(rows, "noise level p", METRICS[metric], "paper, 3 seeds", f"ours, {seeds_text(runs)}")


def small_data_table(runs: pd.DataFrame, *, which: str = "test", data: str = "CIFAR-100 images") -> pd.DataFrame:
    """Returns Table 2: top-5 accuracy by the share of the training set; the paper's data set is ImageNet.

    The paper averages top-5 marginals over ten crops. Where a run of ours on ImageNet recorded them, its cell is that
    average; where it did not, its cell is the central crop and says so. Runs on ImageNet stand in the paper's rows.

    Args:
        data: the name of our data set where nothing was run.
    """
    paper = paper_table(2)
    paper, runs = paper.assign(size=paper["share"].map(size_name)), runs.assign(size=_sizes(runs, paper))
    order = dict(zip(runs["size"], runs["train_images"].astype(float), strict=True))
    order |= dict(zip(paper["size"], paper["images"], strict=True))
    has_crops = MARGINALS in runs and runs[MARGINALS].notna().any()
    wanted = f"{which}_top5"
    runs = runs.assign(shown=runs[MARGINALS].fillna(runs[wanted]) if has_crops else runs[wanted])
    sizes = sorted(order, key=order.__getitem__, reverse=True)
    rows = {size: _by_loss(paper, runs, "size", size, "shown") for size in sizes}
    names = " and ".join(data_name(name) for name in sorted(set(runs["dataset"]))) if len(runs) else data
    ours = f"ours, {names}{_crops(runs, has_crops)}, {seeds_text(runs)}"
    return _table(rows, "training set", METRICS["top5"], "paper, ImageNet, ten crops", ours)


def temperature_table(runs: pd.DataFrame, epochs: pd.DataFrame, *, which: str = "last_test") -> pd.DataFrame:
    """Returns Table 6: training and test top-5 accuracy of the last epoch by tau; tau 0 is the hard loss.

    The paper does not say which accuracy its table holds; Figure 2(a) shows the top-5 error of the same runs.
    """
    runs = runs[runs["loss"].isin(["smooth", "hard"])]
    runs = runs.assign(tau_or_zero=runs["tau"].where(runs["loss"] == "smooth", 0.0).astype(float))
    runs = runs.merge(_last_train(epochs), on="run_id", how="left")
    paper, side = paper_table(6), f"ours, {seeds_text(runs)}"
    rows = {}
    for tau in sorted(set(paper["tau"]) | set(runs["tau_or_zero"])):
        ours, printed = runs[runs["tau_or_zero"] == tau], paper[paper["tau"] == tau]
        rows[f"{tau:g}"] = {
            ("training top-5 (%)", "paper, 1 seed"): paper_cell(printed[printed["split"] == "train"]),
            ("training top-5 (%)", side): mean_and_std(ours, "last_train_top5"),
            ("test top-5 (%)", "paper, 1 seed"): paper_cell(printed[printed["split"] == "test"]),
            ("test top-5 (%)", side): mean_and_std(ours, f"{which}_top5"),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("τ")


def margin_table(runs: pd.DataFrame, epochs: pd.DataFrame, *, k: int) -> pd.DataFrame:
    """Returns Table 7 (k=1, top-1) or Table 8 (k=5, top-5): validation accuracy by margin, as in the paper.

    The number of a run is its best validation accuracy over all epochs, by the metric of the table. The margin 0 of
    k=1, tau=1 is cross-entropy: such runs count as its margin 0 where no other run is given.

    Args:
        epochs: rows of epochs.csv of the runs; a run without epochs keeps the accuracy of its chosen epoch.
    """
    if k not in (1, 5):
        raise ValueError(f"The paper compares margins for k=1 (Table 7) and k=5 (Table 8), got k={k}.")
    paper, metric = paper_table(7 if k == 1 else 8), f"top{k}"
    smooth = with_best_validation(runs[(runs["loss"] == "smooth") & (runs["k"] == k)], epochs, metric)
    if k == 1 and smooth[smooth["margin"] == 0].empty:
        plain = with_best_validation(runs[runs["loss"] == "cross_entropy"], epochs, metric)
        smooth = pd.concat([smooth, plain.assign(margin=0.0)])
    data = " and ".join(data_name(name) for name in sorted(set(smooth["dataset"])))
    ours = f"ours, {data}, {seeds_text(smooth)}" if len(smooth) else f"ours, {seeds_text(smooth)}"
    rows = {
        f"{margin:g}": {
            "paper, ImageNet": paper_cell(paper[paper["margin"] == margin]),
            ours: mean_and_std(smooth[smooth["margin"] == margin], "best_validation"),
        }
        for margin in sorted(set(paper["margin"]) | set(smooth["margin"]))
    }
    return (
        pd.DataFrame.from_dict(rows, orient="index")
        .rename_axis("margin")
        .rename_axis(f"validation {METRICS[metric]}", axis=1)
    )


def with_best_validation(runs: pd.DataFrame, epochs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Returns the runs with a column best_validation: their best validation accuracy over all epochs.

    A run that chose its epoch by top-5 has its top-1 of another epoch in runs.csv. Here every metric has its own.

    Args:
        metric: "top1" or "top5".
    """
    best = epochs.groupby("run_id")[f"validation_{metric}"].max() if len(epochs) else pd.Series(dtype=float)
    found = runs["run_id"].map(best).astype(float)
    chosen = f"validation_{metric}"  # runs.csv has it for top-1 and top-5
    return runs.assign(best_validation=found.fillna(runs[chosen]) if chosen in runs else found)


def size_name(size: int | float | None) -> str:
    """Returns a training set's size as a share, such as 25 %, or as a number of images."""
    if size is None or pd.isna(size):
        return "100 %"
    return f"{size:,} images" if isinstance(size, int) else f"{100 * size:g} %"


def _sizes(runs: pd.DataFrame, paper: pd.DataFrame) -> pd.Series:
    """The row of each run: on ImageNet 64,000 images are the paper's 5 %, and so on."""
    shares = dict(zip(paper["images"], paper["share"], strict=True))
    imagenet = runs["dataset"] == "imagenet"
    sizes = [
        size_name(shares.get(size, size) if of_paper else size)
        for size, of_paper in zip(runs["train_size"], imagenet, strict=True)
    ]
    return pd.Series(sizes, index=runs.index, dtype=object)


def _crops(runs: pd.DataFrame, has_crops: bool) -> str:
    if runs.empty or set(runs["dataset"]) != {"imagenet"}:
        return ""
    if not has_crops:
        return ", central crop"
    return ", ten crops" if runs[MARGINALS].notna().all() else ", ten crops where recorded, else central crop"


def _by_loss(
    paper: pd.DataFrame, runs: pd.DataFrame, column: str, value: float | str, metric: str
) -> dict[tuple[str, str], str]:
    """The cells of one row, by side and loss; a kind of loss that was not run has the paper's name in ours."""
    printed, ours = paper[paper[column] == value], runs[runs[column] == value]
    cells = {("paper", loss): paper_cell(printed[printed["loss"] == loss]) for loss in dict.fromkeys(paper["loss"])}
    found = set(loss_names(runs))
    kinds = {name[0] for name in found}
    names = loss_names(ours)
    for loss in sorted(found | {name for name in paper["loss"] if name[0] not in kinds}):
        cells["ours", loss] = mean_and_std(ours[names == loss], metric)
    return cells


def _table(rows: dict, index: str, metric: str, paper: str, ours: str) -> pd.DataFrame:
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(index)
    table.columns = pd.MultiIndex.from_tuples(table.columns).rename([metric, ""])
    return table.rename(columns={"paper": paper, "ours": ours}, level=0)


def _last_train(epochs: pd.DataFrame) -> pd.DataFrame:
    if epochs.empty:
        return pd.DataFrame({"run_id": pd.Series(dtype=object), "last_train_top5": pd.Series(dtype=float)})
    last = epochs.sort_values("epoch").groupby("run_id").tail(1)
    return last[["run_id", "train_top5"]].rename(columns={"train_top5": "last_train_top5"})
