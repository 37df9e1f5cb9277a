"""What the project publishes: book/results/runs.csv and epochs.csv, which a study reads and `publish` alone writes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from smooth_topk.study.experiments.protocol import FRESH
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.files import write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import published_folder
from smooth_topk.study.records.runs import DTYPES, TYPES, read_records, tuple_if_list, typed_epochs, typed_runs

RUNS, EPOCHS = "runs.csv", "epochs.csv"
# What two trainings of the same run may differ in without contradicting each other.
WHERE_AND_WHEN = {"seconds", "images_per_second", "processes", "threads", "resumes", "date", *describe_machine()}


def published_runs(folder: Path | None = None) -> pd.DataFrame:
    """Returns runs.csv of book/results, or of another folder, with the columns and types of `read_runs`."""
    return _read_once((folder or published_folder()) / RUNS, typed_runs)


def published_epochs(folder: Path | None = None) -> pd.DataFrame:
    """Returns epochs.csv of book/results, or of another folder, with the columns and types of `read_epochs`."""
    return _read_once((folder or published_folder()) / EPOCHS, typed_epochs)


def publish(
    folders: Sequence[str | Path], target: Path | None = None, *, replace: bool = False, epochs: bool = True
) -> tuple[int, int]:
    """Adds the records of these folders to the published CSV files; nothing is written when a record is refused.

    Args:
        folders: folders of records, such as runs/laptop/records.
        target: by default book/results.
        replace: whether a run that was trained again replaces what was published; otherwise other numbers are refused.
        epochs: whether the epochs are published, too.

    Returns:
        How many runs are new or replaced, and how many are published already.

    Raises:
        ValueError: an id is not that of its configuration, or a run was published with other results.
    """
    target = target or published_folder()
    runs, curves = _texts(target / RUNS), _texts(target / EPOCHS)
    known = {row["run_id"]: row for row in runs.to_dict("records")}
    new: dict[str, dict] = {}
    for record in [record for folder in folders for record in read_records(folder)]:
        row = {name: _text(value) for name, value in record["row"].items()}
        if record["row"]["seed"] < FRESH:  # only the runs that are reported need the hits of their intervals
            row.pop("test_hits", None)
        run_id = row["run_id"]
        _refuse_wrong_id(record["row"])
        published = new[run_id]["row"] if run_id in new else known.get(run_id)
        differing = [] if published is None else _differing(published, row)
        if differing and not replace:
            raise ValueError(f"Run {run_id} is published with other results: {'; '.join(differing)}.")
        if published is None or differing:
            new[run_id] = record | {"row": row}
    lines = [{n: _text(v) for n, v in epoch.items()} for record in new.values() for epoch in record["epochs"] if epochs]
    _write(target / EPOCHS, curves, lines, set(new))  # first: a run that is published has its epochs
    _write(target / RUNS, runs, [record["row"] for record in new.values()], set(new))
    return len(new), len(known.keys() - new.keys())


def add_rows(path: Path, rows: Sequence[dict], key: Sequence[str]) -> None:
    """Adds measurements to a CSV file, except those whose `key` columns are in it already."""
    new = pd.DataFrame([{name: _text(value) for name, value in row.items()} for row in rows])
    whole = pd.concat([_texts(path), new]).fillna("").drop_duplicates(list(key))
    write_whole(path, whole.to_csv(index=False, lineterminator="\n").encode())


def _refuse_wrong_id(row: dict) -> None:
    values = {field.name: tuple_if_list(row[field.name]) for field in fields(RunConfig) if field.name in row}
    expected = RunConfig.from_dict(values).run_id
    if row["run_id"] != expected:
        raise ValueError(f"Run {row['run_id']!r} was changed: the id of its configuration is {expected!r}.")


def _differing(published: dict[str, str], row: dict[str, str]) -> list[str]:
    shared = [name for name in published if name in row and published[name] and name not in WHERE_AND_WHEN]
    return [f"{name} was {published[name]}, got {row[name]}" for name in shared if published[name] != row[name]]


def _write(path: Path, table: pd.DataFrame, rows: list[dict], replaced: set[str]) -> None:
    if rows:
        kept = table[~table["run_id"].isin(replaced)] if len(table) else table
        whole = pd.concat([kept, pd.DataFrame(rows)]).fillna("")
        write_whole(path, whole.to_csv(index=False, lineterminator="\n").encode())


def _texts(path: Path) -> pd.DataFrame:
    """Returns a CSV file with every field as its text, so that what is published stays as it is to the letter."""
    return pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else pd.DataFrame()


def _text(value: Any) -> str:
    """Numbers keep every digit; None is blank."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _read_once(path: Path, typed: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    """Returns the rows of a file; one that has not changed is read once, because a chapter asks dozens of times."""
    changed = path.stat().st_mtime_ns if path.exists() else None
    return _read(path, changed, typed).copy(deep=False)


@lru_cache(maxsize=8)
def _read(path: Path, changed: int | None, typed: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    if changed is None:
        return typed(pd.DataFrame())
    kinds = {name: TYPES.get(name, str) for name in pd.read_csv(path, nrows=0)}
    dtypes = {name: DTYPES.get(kind, str) for name, kind in kinds.items()}
    table = pd.read_csv(path, dtype=dtypes)
    for name, kind in kinds.items():
        if kind is not str and kind not in DTYPES:  # such as milestones, in JSON
            values = [json.loads(text) if isinstance(text, str) else None for text in table[name]]
            table[name] = pd.Series(values, dtype=object)
    return typed(table)
