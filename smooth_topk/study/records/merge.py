"""Results of another machine brought home: two folders with runs.csv and epochs.csv in, the runs of both out.

Records come from other hands, so they are held to what must be true of any run: its id is the hash of its
configuration, its status is one of two words, accuracies lie between 0 and 1, its best epoch is one of its epochs, and
a finished run has every epoch.
"""

from dataclasses import fields
from pathlib import Path

import pandas as pd

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.runs import (
    EPOCH_KEY,
    EPOCHS,
    RESULT_TYPES,
    RUN_KEY,
    RUNS,
    STATUSES,
    append_rows,
    both_files,
    read_epochs,
    read_runs,
)

# What two trainings of the same run may differ in without contradicting each other.
WHERE_AND_WHEN = {"seconds", "images_per_second", "processes", "resumes", "date", *describe_machine()}
ACCURACIES = [name for name in RESULT_TYPES if "_top" in name]
NOTHING = "Nothing was merged."


def merge_records(source: Path, target: Path) -> tuple[int, int]:
    """Adds the runs of `source` that `target` does not have, each with its epochs.

    A run that both folders have, with the same results, stays as `target` has it. Nothing is written when anything is
    in doubt.

    Returns:
        How many runs were added, and how many both folders have.

    Raises:
        FileNotFoundError: `source` has no runs.csv.
        ValueError: a file cannot be understood, a record cannot be true, the two folders disagree about a run, or
            epochs of a run are missing.
    """
    source, target = Path(source), Path(target)
    if not (source / RUNS).exists():
        raise FileNotFoundError(
            f"{source / RUNS} does not exist: --merge takes a folder that holds {RUNS} and {EPOCHS}."
        )
    theirs, epochs = read_runs(source), read_epochs(source)
    _refuse_untrue_runs(theirs, source / RUNS)
    new, _, common = _new_records(theirs, epochs, source, target)  # refuses before even a folder is made
    if new.empty:
        return 0, common
    with both_files(target):  # another merge, or a study, may have added runs since
        new, new_epochs, common = _new_records(theirs, epochs, source, target)
        append_rows(target / EPOCHS, new_epochs.to_dict("records"), key=EPOCH_KEY, instead=True)
        return append_rows(target / RUNS, new.to_dict("records"), key=RUN_KEY), common


def _new_records(
    theirs: pd.DataFrame, epochs: pd.DataFrame, source: Path, target: Path
) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Returns the runs that `target` does not have, their epochs, and how many runs both folders have."""
    ours = read_runs(target)
    common = set(theirs["run_id"]) & set(ours["run_id"])
    _refuse_contradictions(common, theirs, ours, source, target)
    new = theirs[~theirs["run_id"].isin(common)]
    epochs = epochs[epochs["run_id"].isin(set(new["run_id"]))]
    _refuse_impossible_accuracies(epochs, source / EPOCHS)
    _refuse_wrong_epochs(new, epochs, source)
    return new, epochs, len(common)


def _refuse_untrue_runs(runs: pd.DataFrame, path: Path) -> None:
    for row in runs.to_dict("records"):
        where, run_id = f"{path}, run_id {row['run_id']!r}", row["run_id"]
        try:
            expected = _configuration(row).run_id
        except ValueError as error:
            raise ValueError(f"{where}: {error} {NOTHING}") from None
        if run_id != expected:
            raise ValueError(
                f"{where}: the id of the configuration in this row is {expected}, so the column run_id or a column of "
                f"the configuration was changed. {NOTHING}"
            )
        if (status := row.get("status")) not in STATUSES:
            raise ValueError(f"{where}: status must be {' or '.join(STATUSES)}, got status={status!r}. {NOTHING}")
        best, last = row.get("best_epoch"), row["epochs"] - 1
        if status == "finished" if pd.isna(best) else not 0 <= best <= last:
            got = "none" if pd.isna(best) else f"best_epoch={best}"
            raise ValueError(f"{where}: best_epoch must lie between 0 and {last}, got {got}. {NOTHING}")
    _refuse_impossible_accuracies(runs, path)


def _configuration(row: dict) -> RunConfig:
    """Returns the configuration of a row; `read_runs` has put defaults where a column is newer than the row."""
    values = {field.name: row.get(field.name) for field in fields(RunConfig)}
    blank = {name for name, value in values.items() if not isinstance(value, tuple) and pd.isna(value)}
    values |= dict.fromkeys(blank)  # None, so that the refusal of a value that must be there reads well
    return RunConfig.from_dict(values)


def _refuse_impossible_accuracies(table: pd.DataFrame, path: Path) -> None:
    """Blank ones are possible: a run that diverged has none, nor has a row that is older than the column."""
    for name in ACCURACIES:
        if name in table and len(wrong := table[table[name].notna() & ~table[name].between(0, 1)]):
            row = wrong.iloc[0]
            where = ", ".join(f"{key} {row[key]}" for key in EPOCH_KEY if key in table)
            raise ValueError(f"{path}, {where}: {name} must lie between 0 and 1, got {name}={row[name]}. {NOTHING}")


def _refuse_contradictions(
    common: set[str], theirs: pd.DataFrame, ours: pd.DataFrame, source: Path, target: Path
) -> None:
    shared = [name for name in theirs if name in ours and name not in WHERE_AND_WHEN]
    known = {row["run_id"]: row for row in ours[shared].to_dict("records")}
    for there in theirs.loc[theirs["run_id"].isin(common), shared].to_dict("records"):
        here = known[there["run_id"]]
        differing = [name for name in shared if str(here[name]) != str(there[name])]  # as texts, blank equals blank
        if differing:
            values = "; ".join(f"{name} is {here[name]} here and {there[name]} there" for name in differing)
            raise ValueError(
                f"The run {there['run_id']} is recorded with different results in {target / RUNS} and {source / RUNS}: "
                f"{values}. {NOTHING} Delete the row that should not count from its {RUNS}, then merge again."
            )


def _refuse_wrong_epochs(runs: pd.DataFrame, epochs: pd.DataFrame, source: Path) -> None:
    """A finished run has all its epochs, one that diverged has those before; there are no others."""
    recorded = {run_id: sorted(part) for run_id, part in epochs.groupby("run_id")["epoch"]}
    for run in runs.itertuples():
        found = recorded.get(run.run_id, [])
        for epoch in found:
            if not 0 <= epoch < run.epochs:
                raise ValueError(
                    f"{source / EPOCHS}, run_id {run.run_id}: epoch must lie between 0 and {run.epochs - 1}, got "
                    f"epoch={epoch}. {NOTHING}"
                )
        count = run.epochs if run.status == "finished" else max(found, default=-1) + 1
        if found != list(range(count)):
            raise ValueError(
                f"{source / EPOCHS} has {len(found)} of the {count} epochs of run {run.run_id}: copy "
                f"{EPOCHS} together with {RUNS}. {NOTHING}"
            )
