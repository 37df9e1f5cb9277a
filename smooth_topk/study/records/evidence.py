"""Which runs a study chapter shows: what is published, what was trained here, and where both come from."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from smooth_topk.study.experiments.names import data_name, network_name
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.paths import published_folder, records_folder
from smooth_topk.study.records.published import EPOCHS, RUNS, published_epochs, published_runs
from smooth_topk.study.records.runs import read_epochs, read_runs

CONDITIONS = ("device", "cpu", "machine", "threads", "dtype", "batch", "batch_size", "k", "tau")


def published(grid: Sequence[RunConfig], folder: Path | None = None) -> pd.DataFrame:
    """Returns the published rows of a grid, in its order; of `folder`, by default book/results."""
    return _rows_of(grid, published_runs(folder))


def yours(grid: Sequence[RunConfig], profile: str) -> pd.DataFrame:
    """Returns the rows of a grid that were trained here, in its order."""
    return _rows_of(grid, read_runs(records_folder(profile)))


def epochs_of(runs: pd.DataFrame, folder: Path | None = None) -> pd.DataFrame:
    """Returns the published epochs of some runs; of `folder`, by default book/results."""
    epochs = published_epochs(folder)
    return epochs[epochs["run_id"].isin(set(runs["run_id"]))]


def your_epochs(runs: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Returns the epochs of some runs that were trained here."""
    epochs = read_epochs(records_folder(profile))
    return epochs[epochs["run_id"].isin(set(runs["run_id"]))]


def origin(runs: pd.DataFrame, grid: Sequence[RunConfig]) -> str:
    """Returns in one sentence how many runs of a grid are there, what they are, and where and when they ran.

    Example:
        >>> origin(pd.DataFrame({"run_id": []}), [RunConfig()])
        '0 of 1 runs recorded: not run.'
    """
    distinct = {run.run_id: run for run in grid}
    found = f"{runs['run_id'].nunique()} of {len(distinct)} runs recorded"
    if runs.empty:
        return f"{found}: not run."
    lengths: dict[str, set[int]] = {}
    for run in distinct.values():
        lengths.setdefault(f"{data_name(run.dataset)}, {network_name(run.model)}", set()).add(run.epochs)
    setting = _and(f"{name}, {_and(sorted(epochs), comma=', ')} epochs" for name, epochs in lengths.items())
    return f"{found}: {setting}; {where_and_when(runs)}."


def where_and_when(rows: pd.DataFrame) -> str:
    """Returns machines, torch and days of some rows, as far as they are recorded."""
    names = [name for name in ("device", "cpu", "machine", "torch") if name in rows]
    labels = {"torch": "torch {}"}
    parts = [_and(labels.get(name, "{}").format(value) for value in rows[name].dropna()) for name in names]
    days = sorted({str(day)[:10] for day in rows["date"].dropna()}) if "date" in rows else []
    parts += [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []
    return ", ".join(part for part in parts if part) or "machine not recorded"


def measurements(columns: Sequence[str], folder: Path | None = None, **wanted) -> list[pd.DataFrame]:
    """Returns the measurements with these columns, one table for each machine and condition.

    Args:
        columns: what a CSV file must have to count, such as algorithm, direction, n, seconds.
        folder: by default book/results.
        wanted: values of further columns; rows with another value are left out, files without the column are not.
    """
    found = []
    for path in sorted((folder or published_folder()).glob("*.csv")):
        if path.name in (RUNS, EPOCHS):
            continue
        table = pd.read_csv(path)
        if not set(columns) <= set(table.columns):
            continue
        for name, value in wanted.items():
            table = table[table[name] == value] if name in table else table
        conditions = [name for name in CONDITIONS if name in table and name not in columns]
        found += [part for _, part in table.groupby(conditions, dropna=False)] if conditions else [table]
    return [part for part in found if len(part)]


def _rows_of(grid: Sequence[RunConfig], runs: pd.DataFrame) -> pd.DataFrame:
    runs = runs.set_index("run_id", drop=False)
    found = dict.fromkeys(run.run_id for run in grid if run.run_id in runs.index)
    return runs.loc[list(found)].reset_index(drop=True)


def _and(texts, comma: str = " and ") -> str:
    """Joins what is different: a and b and c, or with a comma a, b and c."""
    *first, last = dict.fromkeys(str(text) for text in texts) or [""]
    return " and ".join([comma.join(first), last]) if first else last
