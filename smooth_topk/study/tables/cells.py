"""One cell of a table: several runs that differ in their seed only become mean (std, number of seeds)."""

from dataclasses import fields

import pandas as pd

from smooth_topk.study.run_config import RunConfig

NOT_RUN = "not run"
NOT_IN_PAPER = "not in the paper"
FIELDS = [field.name for field in fields(RunConfig)]


def finished(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs that may enter a mean: a diverged run has no accuracy to average."""
    return runs[runs["status"] == "finished"] if "status" in runs else runs


def loss_names(runs: pd.DataFrame) -> pd.Series:
    """Returns the loss of each run in the paper's notation, such as CE, l_5 or L_{5,0.1}."""
    return pd.Series([config.loss_name for config in configs_of(runs)], index=runs.index, dtype=object)


def configs_of(runs: pd.DataFrame) -> list[RunConfig]:
    """Returns the configuration of each run, with every field that cannot matter at its default."""
    rows = runs[[name for name in FIELDS if name in runs]].to_dict("records")
    present = [{name: value for name, value in row.items() if not _is_missing(value)} for row in rows]
    return [RunConfig.from_dict(row).canonical() for row in present]


def mean_and_std(runs: pd.DataFrame, metric: str, *, scale: float = 100.0) -> str:
    """Returns one cell such as `62.41 (0.31), 3 seeds`, with what else became of a seed, such as `1 diverged`.

    Args:
        runs: rows of runs.csv that share every setting but the seed; a mean over anything else is refused.
        metric: the column to average.
        scale: 100 turns shares into percent.
    """
    if runs.empty:
        return NOT_RUN
    refuse_mixture(runs)
    values = scale * finished(runs)[metric].dropna().astype(float)
    others = runs.loc[runs["status"] != "finished", "status"] if "status" in runs else pd.Series(dtype=object)
    parts = [_mean(values)] if len(values) else []
    parts += [f"{count} {status}" for status, count in others.value_counts().items()]
    return ", ".join(parts) or NOT_RUN


def _mean(values: pd.Series) -> str:
    if len(values) == 1:
        return f"{values.iloc[0]:.2f}, 1 seed"
    return f"{values.mean():.2f} ({values.std(ddof=1):.2f}), {len(values)} seeds"


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


def _is_missing(value) -> bool:
    return value is None or value is pd.NA or value != value
