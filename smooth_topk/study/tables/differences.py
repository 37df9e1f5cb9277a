"""Differences between losses, seed by seed, with their 95 % intervals: rows of runs.csv in, tidy tables out.

Two runs of one seed meet the same images, the same noise and the same initial weights. Their difference is therefore
less noisy than either accuracy, and its spread over seeds is what a difference must be held against.
"""

import math
from collections.abc import Sequence

import pandas as pd

from smooth_topk.study.records.paper import paper_table
from smooth_topk.study.tables.cells import finished, loss_names, refuse_mixture

# 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
NORMAL_QUANTILE = 1.959964
COLUMNS = ["loss", "seed", "difference"]


def differences_by_seed(
    runs: pd.DataFrame, *, metric: str = "test_top5", by: str = "noise_level", baseline: str = "CE"
) -> pd.DataFrame:
    """Returns the accuracy of every loss minus that of the baseline, in points: columns `by`, loss, seed, difference.

    Args:
        runs: for noise, those of one grouping; a seed that only one of the losses has does not count.
        metric: a column of runs.csv.
        by: the column that the runs vary, such as "noise_level" or "train_images".
        baseline: a loss in the paper's notation.
    """
    runs = finished(runs)
    runs = runs.assign(name=loss_names(runs))
    rows = []
    for value, part in runs.groupby(by):
        for _, cell in part.groupby("name"):
            refuse_mixture(cell)
        by_seed = 100 * part.pivot(index="seed", columns="name", values=metric).astype(float)
        if baseline not in by_seed:
            continue
        for name in by_seed.columns.drop(baseline):
            found = (by_seed[name] - by_seed[baseline]).dropna()
            rows += [(value, name, seed, difference) for seed, difference in found.items()]
    return pd.DataFrame(rows, columns=[by, *COLUMNS])


def differences_by_margin(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns what each margin adds to margin 0, in points: columns margin, seed, difference.

    Args:
        runs: of one k, with the column best_validation of `with_best_validation`.
    """
    by_seed = 100 * runs.pivot(index="seed", columns="margin", values="best_validation").astype(float)
    if 0.0 not in by_seed:
        return pd.DataFrame(columns=["margin", "seed", "difference"])
    gained = by_seed.drop(columns=0.0).sub(by_seed[0.0], axis=0)
    return (
        gained.melt(ignore_index=False, value_name="difference")
        .dropna()
        .reset_index()[["margin", "seed", "difference"]]
    )


def intervals(differences: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Returns mean, low, high and seeds of every group of differences; the interval of one seed is missing.

    Args:
        differences: one row per seed, with the columns of `by` and difference.
    """
    rows = []
    for values, part in differences.groupby(list(by), sort=False):
        mean, low, high = t_interval(part["difference"])
        rows.append((*values, mean, low, high, len(part)))
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "seeds"])


def t_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the mean of some seeds and the ends of its 95 % interval by Student's t; NaN ends for one seed.

    Example:
        >>> print(*(round(end, 2) for end in t_interval([1.0, 2.0, 3.0])))
        2.0 -0.48 4.48
    """
    series = pd.Series(values, dtype=float)
    mean, count = series.mean(), len(series)
    if count < 2:
        return mean, math.nan, math.nan
    half = _t_quantile(count - 1) * series.std(ddof=1) / math.sqrt(count)
    return mean, mean - half, mean + half


def resolvable(differences: Sequence[float]) -> float:
    """Returns the half width of the 95 % interval: a true difference smaller than this cannot be told from none."""
    mean, low, _ = t_interval(differences)
    return mean - low


def interval_text(mean: float, low: float, high: float, *, digits: int = 1) -> str:
    """Returns a difference with its interval, such as `+0.6 (+0.2 to +1.0)`; without an interval the mean alone.

    Example:
        >>> interval_text(0.63, -0.21, 1.05)
        '+0.6 (−0.2 to +1.1)'
    """
    shown = signed(mean, digits)
    return shown if math.isnan(low) else f"{shown} ({signed(low, digits)} to {signed(high, digits)})"


def signed(value: float, digits: int = 1) -> str:
    """Returns a number with its sign; what rounds to zero is 0 without one.

    Example:
        >>> signed(-0.26), signed(-0.01)
        ('−0.3', '0.0')
    """
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def paper_gain(metric: str) -> dict[float, float]:
    """Returns the paper's L_{5,1} minus CE by noise level, metric "top1" or "top5"."""
    table = paper_table(9)
    table = table[table["metric"] == metric].pivot(index="noise_level", columns="loss", values="mean")
    return (table["L_{5,1}"] - table["CE"]).to_dict()


def paper_gain_by_share() -> dict[float, float]:
    """Returns the paper's L_{5,0.1} minus CE on ImageNet by the share of its training images (Table 2)."""
    table = paper_table(2).pivot(index="share", columns="loss", values="mean")
    return (table["L_{5,0.1}"] - table["CE"]).to_dict()


def _t_quantile(degrees: int) -> float:
    """The 97.5 % quantile; beyond the table the first terms of its expansion in 1 / degrees, right to three digits."""
    if degrees <= len(T_QUANTILES):
        return T_QUANTILES[degrees - 1]
    z = NORMAL_QUANTILE
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
