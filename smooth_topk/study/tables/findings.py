"""What the recorded runs found, in short, beside what the paper says.

The numbers are read from book/results. The words were written with them in view; tests/test_findings.py holds the words
against the numbers.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from smooth_topk.study import configs, evidence, notebook, sparsity
from smooth_topk.study.run_config import RunConfig
from smooth_topk.study.tables.cells import NOT_RUN
from smooth_topk.study.tables.comparisons import GROUPINGS, of_grouping, paper_gain
from smooth_topk.study.tables.paper import paper_table

STOPPED, LAST = "test_top5", "last_test_top5"  # columns of runs.csv: the epoch that validation chose, the last one


def findings_table(folder: Path | None = None) -> pd.DataFrame:
    """Returns a row a claim; where its runs are not all recorded, it says "not run".

    Args:
        folder: by default book/results.
    """
    folder = folder or notebook.recorded_folder()

    def row(claim: str, printed: str, grid: Sequence[RunConfig], say: Callable[[pd.DataFrame], str]) -> list[str]:
        runs = evidence.recorded_runs(grid, folder)
        complete = set(runs["run_id"]) == {run.run_id for run in grid}
        return [claim, printed, say(runs) if complete else NOT_RUN]

    noise = configs.table_1_noise("laptop")
    printed = pd.Series(paper_gain("top5"))
    plain = paper_table(9).query("metric == 'top5' and loss == 'CE'").set_index("noise_level")["mean"]
    small = paper_table(2).pivot(index="share", columns="loss", values="mean")
    rows = [
        row("under label noise the smooth loss leads in top-5 (Table 1)",
            f"{_span(printed[0.2:])} points", noise, _gains_under_noise),
        row("without noise the two are equal", _signed(printed[0.0], 2), noise,
            lambda runs: f"no: the smooth loss leads by {gains(runs)[0.0]:.1f}"),
        row("cross-entropy needs early stopping, the smooth loss does not", "in words", noise, _stopping),
        row("noise is drawn within superclasses, where cross-entropy falls by",
            _list(plain - plain[0.0]), noise, _falls),
        row("(does the lead under noise need labels learned by heart?)", "not asked",
            configs.noise_without_memorising(), _brief),
        row("τ = 0, 0.001, 0.01, 0.1, 1, 10, 100: the smallest fail, 0.1 is best (Table 6)",
            ", ".join(f"{mean:.1f}" for mean in paper_table(6).query("split == 'test'").sort_values("tau")["mean"]),
            configs.figure_2_temperature("laptop"), _temperatures),
        ["at a small τ most derivatives are zero at first (Figure 2b)", "a curve", _shares_of_derivatives(folder)],
        row("a falling τ gains nothing over a fixed one", "in words", configs.temperature_annealing("laptop"),
            lambda runs: "yes: from 1 to 0.01 {:.1f}, always 1 {:.1f}".format(*annealed(runs))),
        row("5, 10, 25, 50, 100 % of the images: the smooth loss leads with few (Table 2)",
            f"ImageNet: {_list(small['L_{5,0.1}'] - small['CE'])}", configs.table_2_small_data("laptop"),
            lambda runs: f"no: CIFAR-100, 12 epochs, one seed: {_list(gains(runs, 'train_images'))}"),
        row("margin 1 against 0 in top-1, k = 1 (Table 7)", _paper_margin(7), configs.table_7_margin_top1("laptop"),
            lambda runs: _worth(runs, "validation_top1")),
        row("margin 1 against 0 in top-5, k = 5 (Table 8)", _paper_margin(8), configs.table_8_margin_top5("laptop"),
            lambda runs: _worth(runs, "validation_top5")),
        ["ten crops: averaged marginals beat averaged softmax in top-5", "at least +0.2", _ten_crops(folder)],
    ]  # fmt: skip
    columns = ["what the paper says", "the paper's numbers", "ours, at this scale"]
    return pd.DataFrame(rows, columns=columns).set_index(columns[0])


def gains(runs: pd.DataFrame, by: str = "noise_level") -> pd.Series:
    """Smooth loss minus cross-entropy in points of top-5, the mean over seeds."""
    means = 100 * runs.groupby([by, "loss"])[STOPPED].mean().unstack("loss")
    return means["smooth"] - means["cross_entropy"]


def gained_by_stopping(runs: pd.DataFrame) -> pd.DataFrame:
    """Points of top-5 within superclasses, by noise level and loss."""
    runs = of_grouping(runs, "superclass")
    return 100 * (runs[STOPPED] - runs[LAST]).groupby([runs["noise_level"], runs["loss"]]).mean().unstack()


def falls_of_cross_entropy(runs: pd.DataFrame, grouping: str) -> pd.Series:
    """Its top-5 by noise level below that without noise, in points."""
    runs = of_grouping(runs[runs["loss"] == "cross_entropy"], grouping)
    means = 100 * runs.groupby("noise_level")[STOPPED].mean()
    return means - means[0.0]


def by_temperature(runs: pd.DataFrame) -> pd.Series:
    """Top-5 after the last epoch; 0 is the hard loss."""
    return 100 * runs.groupby(runs["tau"].where(runs["loss"] == "smooth", 0.0))[LAST].mean()


def annealed(runs: pd.DataFrame) -> tuple[float, float]:
    """Top-5 after the last epoch with τ from 1 to 0.01, and with τ = 1."""
    falling = runs["tau_final"].notna()
    return tuple(100 * runs[chosen][LAST].mean() for chosen in (falling, ~falling & (runs["tau"] == 1)))


def worth_of_margin(runs: pd.DataFrame, metric: str) -> tuple[float, float]:
    """Mean and standard deviation over seeds of what margin 1 adds to margin 0, in points."""
    by_seed = 100 * runs.pivot(index="seed", columns="margin", values=metric)
    difference = by_seed[1.0] - by_seed[0.0]
    return difference.mean(), difference.std(ddof=1)


def _gains_under_noise(runs: pd.DataFrame) -> str:
    classes, blocks = (_span(gains(of_grouping(runs, grouping))[0.2:]) for grouping in GROUPINGS)
    return f"yes: {classes} within superclasses, {blocks} within index blocks; two seeds"


def _stopping(runs: pd.DataFrame) -> str:
    gained = gained_by_stopping(runs)[0.6:]
    plain, smooth = (_span(gained[loss]) for loss in ("cross_entropy", "smooth"))
    return f"yes: from p = 0.6 stopping early gives cross-entropy {plain}, the smooth loss {smooth}"


def _falls(runs: pd.DataFrame) -> str:
    classes, blocks = (_list(falls_of_cross_entropy(runs, grouping)) for grouping in GROUPINGS)
    return f"nearer to it than index blocks: {classes}; blocks {blocks}"


def _brief(runs: pd.DataFrame) -> str:
    classes, blocks = (_signed(gains(runs[runs["noise_grouping"] == grouping])[0.8]) for grouping in GROUPINGS)
    return f"it seems so: 20,000 images, 6 epochs, p = 0.8: {classes} within superclasses, {blocks} within index blocks"


def _temperatures(runs: pd.DataFrame) -> str:
    found = ", ".join(f"{mean:.1f}" for mean in by_temperature(runs))
    return f"the same shape, but 0.01 is half-way: {found}"


def _worth(runs: pd.DataFrame, metric: str) -> str:
    mean, spread = worth_of_margin(runs, metric)
    return f"CIFAR-100: {_signed(mean, 2)}, not beyond the spread of two seeds ({spread:.2f})"


def _shares_of_derivatives(folder: Path) -> str:
    shares = sparsity.read_sparsity(folder).set_index("tau")["share"]
    if shares.empty:
        return NOT_RUN
    shown = ", ".join(f"τ = {tau:g}: {share:.0%}" for tau, share in shares[:0.01].items())
    return f"yes: not zero at {shown}"


def _ten_crops(folder: Path) -> str:
    path = folder / "imagenet_ten_crops.csv"
    if not path.exists():
        return NOT_RUN
    rows = pd.read_csv(path).set_index(["method", "metric"])
    row = rows.loc["ten crops, top-5 marginals averaged", "top5"]
    mean, low, high = (_signed(100 * row[name]) for name in ("difference", "difference_low", "difference_high"))
    return f"not shown: {mean} ({low} to {high}), another network"


def _paper_margin(number: int) -> str:
    means = paper_table(number).set_index("margin")["mean"]
    return f"ImageNet: {_signed(means[1] - means[0], 2)}"


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _span(values: pd.Series) -> str:
    return f"{_signed(values.min())} to {_signed(values.max())}"


def _list(values: pd.Series) -> str:
    return ", ".join(_signed(value) for value in values if value)
