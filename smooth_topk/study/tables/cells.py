"""One cell of a table: several runs that differ in their seed only become mean (std).

The number of seeds stands in the heading of a table, once, and not in every cell.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

import pandas as pd

from smooth_topk.study.experiments.run_config import RunConfig

NOT_RUN = "not run"
NOT_IN_PAPER = "not in the paper"
FIELDS = [field.name for field in fields(RunConfig)]


def finished(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs that may enter a mean: a diverged run has no accuracy to average."""
    return runs[runs["status"] == "finished"] if "status" in runs else runs


def of_grouping(runs: pd.DataFrame, grouping: str) -> pd.DataFrame:
    """Returns the runs with noise of one grouping, and those without noise, which both groupings share."""
    return runs[(runs["noise_grouping"] == grouping) | (runs["noise_level"] == 0)]


def loss_names(runs: pd.DataFrame) -> pd.Series:
    """Returns the loss of each run in the paper's notation, such as CE, l_5 or L_{5,0.1}."""
    return pd.Series([config.loss_name for config in configs_of(runs)], index=runs.index, dtype=object)


def configs_of(runs: pd.DataFrame) -> list[RunConfig]:
    """Returns the configuration of each run, with every field that cannot matter at its default."""
    rows = runs[[name for name in FIELDS if name in runs]].to_dict("records")
    present = [{name: value for name, value in row.items() if not _is_missing(value)} for row in rows]
    return [RunConfig.from_dict(row).canonical() for row in present]


def mean_and_std(runs: pd.DataFrame, metric: str, *, scale: float = 100.0) -> str:
    """Returns one cell such as `62.41 (0.31)`, with what else became of a seed, such as `1 diverged`.

    Args:
        runs: rows of runs.csv that share every setting but the seed; a mean over anything else is refused.
        metric: the column to average, a share, which becomes percent.
    """
    if runs.empty:
        return NOT_RUN
    refuse_mixture(runs)
    values = 100 * finished(runs)[metric].dropna().astype(float)
    others = runs.loc[runs["status"] != "finished", "status"] if "status" in runs else pd.Series(dtype=object)
    parts = [_mean(values)] if len(values) else []
    parts += [f"{count} {status}" for status, count in others.value_counts().items()]
    return ", ".join(parts) or NOT_RUN


def seeds_text(runs: pd.DataFrame) -> str:
    """Returns how many seeds the settings of some runs have, for a heading: `5 seeds`, `1 to 3 seeds` or `not run`."""
    settings: dict[RunConfig, set[int]] = {}
    for config in configs_of(finished(runs)):
        settings.setdefault(replace(config, seed=0), set()).add(config.seed)
    return count_text([len(seeds) for seeds in settings.values()])


def count_text(counts: Sequence[int]) -> str:
    """Returns numbers of seeds in words: `1 seed`, `5 seeds`, `2 to 5 seeds`, or `not run` where there are none.

    Example:
        >>> count_text([2, 5, 5])
        '2 to 5 seeds'
    """
    if not len(counts):
        return NOT_RUN
    low, high = min(counts), max(counts)
    if low < high:
        return f"{low} to {high} seeds"
    return "1 seed" if low == 1 else f"{low} seeds"


def decay_text(decay: float) -> str:
    """Returns a weight decay in powers of ten, whatever its size, so that decays can be compared at a glance.

    Example:
        >>> decay_text(0.00025), decay_text(6.25e-05)
        ('2.5e-4', '6.25e-5')
    """
    mantissa, exponent = f"{decay:.6e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}" if decay else "0"


def _mean(values: pd.Series) -> str:
    return f"{values.iloc[0]:.2f}" if len(values) == 1 else f"{values.mean():.2f} ({values.std(ddof=1):.2f})"


def refuse_mixture(runs: pd.DataFrame) -> None:
    """Raises ValueError where runs that differ in more than their seed would enter one mean."""
    configs = [config.to_dict() for config in configs_of(runs)]
    mixed = [name for name in FIELDS if name != "seed" and any(row[name] != configs[0][name] for row in configs)]
    if mixed:
        found = [{name: row[name] for name in mixed} for row in configs]
        raise ValueError(
            f"Runs with different {', '.join(mixed)} cannot be averaged, choose one setting first: got {found}."
        )


def paper_cell(table: pd.DataFrame) -> str:
    """Returns one cell of the paper: its number, with its standard deviation where it prints one."""
    if table.empty:
        return NOT_IN_PAPER
    row = table.iloc[0]
    return f"{row['mean']:.2f} ({row['std']:.2f})" if "std" in row else f"{row['mean']:.2f}"


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NA or value != value
