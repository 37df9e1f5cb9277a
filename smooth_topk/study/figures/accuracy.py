"""Figures of chapters 8, 9, 10 and 12: trainings, from the tables of records.read_runs and read_epochs."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from smooth_topk.study.experiments.names import network_name
from smooth_topk.study.figures.style import BLUE, GREY, look_of_loss, maths, new_axes, new_panels, tau_colour
from smooth_topk.study.records.paper import paper_table
from smooth_topk.study.tables.cells import NOT_RUN, count_text, finished, loss_names, of_grouping, refuse_mixture
from smooth_topk.study.tables.comparisons import GROUPING_NAMES, setting_name

LABELS = {
    "train_top1": "top-1 accuracy on the training labels (%)",
    "train_top5": "top-5 accuracy on the training labels (%)",
    "validation_top1": "top-1 accuracy on the validation set (%)",
    "validation_top5": "top-5 accuracy on the validation set (%)",
    "test_top1": "top-1 accuracy on the test set (%)",
    "test_top5": "top-5 accuracy on the test set (%)",
    "last_test_top1": "top-1 accuracy, last epoch (%)",
    "last_test_top5": "top-5 accuracy, last epoch (%)",
    "train_loss": "training loss",
}
SETS = {"train": "training set", "validation": "validation set", "test": "test set"}
OTHER_SMOOTH: tuple[dict[str, Any], ...] = (
    {"color": "#5a9bd0", "linestyle": "-.", "marker": "D"},
    {"color": "#9ec6e8", "linestyle": (0, (1, 1)), "marker": "v"},
)


def noise_figure(
    runs: pd.DataFrame | None,
    *,
    metric: str = "test_top5",
    grouping: str = "superclass",
    paper: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draws accuracy against the noise level: Table 1 as a figure, the paper hollow, ours filled with seeds' spread.

    Args:
        runs: runs of one data set, network and schedule; None draws the paper alone.
        metric: a column of runs.csv that ends in top1 or top5.
        grouping: which noise; runs without noise belong to both.
    """
    ax = new_axes(ax)
    if paper:
        printed = paper_table(9)
        _draw_paper(ax, printed[printed["metric"] == metric[-4:]], "noise_level")
    ax.set(xlabel="noise level p", ylabel=LABELS.get(metric, metric))
    if runs is None:
        ax.legend()
        return ax
    runs = finished(runs)
    _draw_ours(ax, of_grouping(runs, grouping), "noise_level", metric)
    return _legend_or_not_run(ax, runs)


def noise_beside_paper(
    runs: pd.DataFrame,
    *,
    metric: str = "test_top5",
    grouping: str = "superclass",
    axes: Sequence[Axes] | None = None,
) -> Sequence[Axes]:
    """Draws accuracy against the noise level, the paper on the left and ours on the right, each on a scale of its own.

    Args:
        runs: as noise_figure takes them; may be empty.

    Returns:
        The axes of both panels.
    """
    left, right = axes = new_panels(axes, ncols=2, figsize=(9.6, 3.8))
    noise_figure(None, metric=metric, ax=left).set_title("the paper: CIFAR-100, DenseNet 40-40")
    noise_figure(runs, metric=metric, grouping=grouping, paper=False, ax=right)
    right.set(title=f"ours: {setting_name(finished(runs))}", xlim=left.get_xlim())
    return axes


def noise_curves(
    epochs: pd.DataFrame,
    runs: pd.DataFrame,
    *,
    noise_level: float,
    grouping: str = "superclass",
    metrics: tuple[str, str] = ("train_top1", "validation_top5"),
    axes: Sequence[Axes] | None = None,
) -> Sequence[Axes]:
    """Draws who overfits: accuracy on the training labels, noisy ones included, next to that on the validation set.

    Args:
        epochs: rows of epochs.csv of the runs.
        noise_level: the nearest level that was run is drawn, and named in the title.
        metrics: the columns of epochs.csv of the left and the right panel.

    Returns:
        The axes of both panels. A dot marks the epoch that early stopping keeps.
    """
    axes = new_panels(axes, ncols=2, figsize=(9.6, 3.8))
    runs = finished(runs)
    runs = of_grouping(runs, grouping)
    if runs.empty:
        for ax in axes:
            _legend_or_not_run(ax, runs)
        return axes
    level = min(runs["noise_level"], key=lambda found: abs(found - noise_level))
    runs = runs[runs["noise_level"] == level]
    for ax, metric in zip(axes, metrics, strict=True):
        _draw_curves(ax, epochs, runs, metric)
    axes[0].set_title(f"p = {level:g}, {GROUPING_NAMES[grouping]}")
    axes[1].set_title(setting_name(runs))
    axes[0].legend()
    return axes


def small_data_figure(
    runs: pd.DataFrame, *, metric: str = "test_top5", paper: bool = True, ax: Axes | None = None
) -> Axes:
    """Draws accuracy against the number of training images on a log scale: Table 2 as a figure.

    The paper's points are ImageNet's; ours are those of the data set of the runs.
    """
    ax = new_axes(ax)
    if paper:
        _draw_paper(ax, paper_table(2), "images", suffix=", ImageNet")
    _draw_ours(ax, finished(runs), "train_images", metric)
    ax.set(xscale="log", xlabel="training images", ylabel=LABELS.get(metric, metric))
    if not paper and len(runs):
        sizes = sorted(set(runs["train_images"]))
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.minorticks_off()  # their labels would run into one another
    return _legend_or_not_run(ax, runs)


def training_curves_by_tau(
    epochs: pd.DataFrame, runs: pd.DataFrame, *, metric: str = "train_top5", classes: int = 100, ax: Axes | None = None
) -> Axes:
    """Draws top-5 error (or another column of epochs.csv) over the epochs, one curve per tau: Figure 2(a).

    Args:
        epochs: rows with run_id, epoch and the metric; an accuracy is drawn as an error.
        runs: rows with run_id, loss and tau; the hard loss is tau = 0. Seeds are averaged.
        classes: the dashed line is the top-5 error of random predictions among that many classes.
    """
    ax = new_axes(ax)
    table = epochs.merge(runs[["run_id", "loss", "tau"]], on="run_id", suffixes=("", "_of_run"))
    table = table[table["loss"].isin(["smooth", "hard"])]
    table = table.assign(tau=table["tau"].where(table["loss"] == "smooth", 0.0).astype(float))
    is_accuracy = "top" in metric
    for tau, curves in table.groupby("tau"):
        mean = curves.groupby("epoch")[metric].mean()
        line = ax.plot(mean.index + 1, 1 - mean if is_accuracy else mean, color=tau_colour(tau), label=f"τ = {tau:g}")[
            0
        ]
        line.set_linestyle(":" if tau == 0 else "-")
    if is_accuracy:
        chance = 1 - int(metric[-1]) / classes
        ax.axhline(chance, color=GREY, linestyle="--", linewidth=1, label="random")
        ax.set_ylim(0, 1.02)
    name = f"top-{metric[-1]} error, {SETS[metric.split('_')[0]]}" if is_accuracy else LABELS.get(metric, metric)
    _epochs_below(ax, name)
    return _legend_or_not_run(ax, table, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def annealing_curves(
    epochs: pd.DataFrame, runs: pd.DataFrame, *, metric: str = "validation_top5", ax: Axes | None = None
) -> Axes:
    """Draws runs of fixed tau and of falling tau; a line has the colour of the tau of its epoch, and ends in its name.

    Args:
        epochs: rows of epochs.csv with run_id, epoch, tau and the metric. Seeds are averaged.
        runs: rows of runs.csv of the smooth loss.
    """
    ax = new_axes(ax)
    for name, part in runs.groupby(loss_names(runs), sort=False):
        curve = epochs[epochs["run_id"].isin(part["run_id"])].groupby("epoch")[["tau", metric]].mean()
        values, falls = 100 * curve[metric], curve["tau"].nunique() > 1
        # Every epoch is a piece of its own, since the colour may change from one to the next.
        for (start, tau), end in zip(curve["tau"].iloc[:-1].items(), curve.index[1:], strict=True):
            pair = [start + 1, end + 1]
            ax.plot(pair, values.loc[[start, end]], color=tau_colour(tau), linewidth=3.2 if falls else 1.8)
        ax.plot([], [], color=tau_colour(curve["tau"].iloc[0]), linewidth=3.2 if falls else 1.8, label=maths(name))
    _epochs_below(ax, LABELS.get(metric, metric))
    return _legend_or_not_run(ax, runs)


def gradient_sparsity(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the share of derivatives that are not numerically zero against tau: Figure 2(b).

    Args:
        table: columns tau (0 is the hard loss), share (0 to 1) and, where there are several, network.
    """
    ax = new_axes(ax)
    networks = table["network"] if "network" in table else pd.Series("", index=table.index)
    for (network, part), marker in zip(table.groupby(networks, sort=False), "osD^v<>", strict=False):
        smooth = part[part["tau"] > 0].sort_values("tau")
        ax.plot(
            smooth["tau"],
            100 * smooth["share"],
            color=BLUE,
            marker=marker,
            label=network_name(str(network)) or "smooth loss",
        )
    hard = table.loc[table["tau"] == 0, "share"].unique()
    for share, label in zip(hard, ["hard loss (τ = 0)", *len(hard) * [None]], strict=False):
        ax.axhline(100 * share, color=look_of_loss("hard")["color"], linestyle=":", label=label)
    ax.set(xscale="log", xlabel="τ", ylabel="derivatives that are not zero (%)", ylim=(-3, 103))
    ax.minorticks_off()  # half of the drawing time, and decades are what is compared
    return _legend_or_not_run(ax, table)


def _legend_or_not_run(ax: Axes, ours: pd.DataFrame, **options: Any) -> Axes:
    """A legend where there is something to name; where nothing of ours is drawn, it says so."""
    if ours.empty:
        ax.errorbar([], [], linestyle="none", label=f"ours: {NOT_RUN}")  # stands last in the legend
    if ax.get_legend_handles_labels()[1]:
        ax.legend(**options)
    return ax


def _draw_paper(ax: Axes, table: pd.DataFrame, x: str, suffix: str = "") -> None:
    for loss, part in table.groupby("loss", sort=False):
        part = part.sort_values(x)
        error = part.get("std")
        ax.errorbar(
            part[x], part["mean"], error, label=f"{maths(loss)}, paper{suffix}", **look_of_loss(loss, paper=True)
        )


def _draw_ours(ax: Axes, runs: pd.DataFrame, x: str, metric: str) -> None:
    """One line per loss: a point is the mean over seeds, a bar their standard deviation."""
    names = loss_names(runs)
    looks = _looks(names)
    for loss, part in runs.groupby(names, sort=True):
        for _, cell in part.groupby(x):
            refuse_mixture(cell)
        points = (100 * part.set_index(x)[metric].astype(float)).groupby(level=0).agg(["mean", "std", "count"])
        seeds = count_text(points["count"].tolist())
        label = f"{maths(loss)}, ours ({seeds})"
        ax.errorbar(points.index, points["mean"], points["std"].fillna(0), label=label, **looks[loss])


def _draw_curves(ax: Axes, epochs: pd.DataFrame, runs: pd.DataFrame, metric: str) -> None:
    """One line per loss, the mean over seeds, with a dot at the mean of their best epochs."""
    names = loss_names(runs)
    looks = _looks(names)
    for loss, part in runs.groupby(names, sort=True):
        curve = 100 * epochs[epochs["run_id"].isin(part["run_id"])].groupby("epoch")[metric].mean()
        line = ax.plot(curve.index + 1, curve, label=maths(loss), **looks[loss] | {"marker": ""})[0]
        best = round(part["best_epoch"].astype(float).mean())
        ax.plot([best + 1], [curve[best]], looks[loss]["marker"], color=line.get_color())
    _epochs_below(ax, LABELS.get(metric, metric))


def _epochs_below(ax: Axes, name: str) -> None:
    """Names the axes; an epoch is a whole number."""
    ax.set(xlabel="epoch", ylabel=name)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The look of each loss; a second and third smooth loss are lighter and have other lines and markers."""
    looks = {name: look_of_loss(name) for name in sorted(set(names))}
    smooth = [name for name in looks if name.startswith("L")]
    for name, other in zip(smooth[1:], OTHER_SMOOTH, strict=False):
        looks[name] = other
    return looks
