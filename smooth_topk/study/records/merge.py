"""Results of another machine brought home: two folders with runs.csv and epochs.csv in, the runs of both out."""

from pathlib import Path

import pandas as pd

from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.runs import EPOCH_KEY, EPOCHS, RUN_KEY, RUNS, append_rows, read_epochs, read_runs

# What two trainings of the same run may differ in without contradicting each other.
WHERE_AND_WHEN = {"seconds", "images_per_second", "processes", "resumes", "date", *describe_machine()}


def merge_records(source: Path, target: Path) -> tuple[int, int]:
    """Adds the runs of `source` that `target` does not have, each with its epochs.

    A run that both folders have, with the same results, stays as `target` has it. Nothing is written when anything is
    in doubt.

    Returns:
        How many runs were added, and how many both folders have.

    Raises:
        FileNotFoundError: `source` has no runs.csv.
        ValueError: a file cannot be understood, the two folders disagree about a run, or epochs of a run are missing.
    """
    source, target = Path(source), Path(target)
    if not (source / RUNS).is_file():
        raise FileNotFoundError(
            f"{source / RUNS} does not exist: --merge takes a folder that holds {RUNS} and {EPOCHS}."
        )
    theirs, ours = read_runs(source), read_runs(target)
    common = set(theirs["run_id"]) & set(ours["run_id"])
    for run_id in theirs["run_id"][theirs["run_id"].isin(common)]:
        _refuse_contradiction(run_id, theirs, ours, source, target)
    new = theirs[~theirs["run_id"].isin(common)]
    epochs = read_epochs(source)
    epochs = epochs[epochs["run_id"].isin(set(new["run_id"]))]
    _refuse_missing_epochs(new, epochs, source)
    append_rows(target / EPOCHS, epochs.to_dict("records"), key=EPOCH_KEY)
    return append_rows(target / RUNS, new.to_dict("records"), key=RUN_KEY), len(common)


def _refuse_contradiction(run_id: str, theirs: pd.DataFrame, ours: pd.DataFrame, source: Path, target: Path) -> None:
    here, there = (table[table["run_id"] == run_id].iloc[0] for table in (ours, theirs))
    shared = [name for name in theirs if name in ours and name not in WHERE_AND_WHEN]
    differing = [name for name in shared if str(here[name]) != str(there[name])]  # as texts, blank equals blank
    if differing:
        values = "; ".join(f"{name} is {here[name]} here and {there[name]} there" for name in differing)
        raise ValueError(
            f"The run {run_id} is recorded with different results in {target / RUNS} and {source / RUNS}: {values}. "
            f"Nothing was merged. Delete the row that shall not count from its {RUNS}, then merge again."
        )


def _refuse_missing_epochs(runs: pd.DataFrame, epochs: pd.DataFrame, source: Path) -> None:
    found = epochs["run_id"].value_counts()
    for run in runs[runs["status"] == "finished"].itertuples() if "status" in runs else ():
        if (count := found.get(run.run_id, 0)) != run.epochs:
            raise ValueError(
                f"{source / EPOCHS} has {count} of the {run.epochs} epochs of run {run.run_id}: copy "
                f"{EPOCHS} together with {RUNS}. Nothing was merged."
            )
