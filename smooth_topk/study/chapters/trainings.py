"""The trainings of a study chapter: configurations in, the records of all out, with those trained that are missing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.paths import checkpoints_folder, records_folder


def adjusted(runs: Sequence[RunConfig], **changes: Any) -> tuple[RunConfig, ...]:
    """Returns the runs with some fields changed; a change that is None changes nothing.

    Example:
        >>> [run.epochs for run in adjusted([RunConfig(epochs=8)], epochs=3, train_size=None)]
        [3]
    """
    given = {name: value for name, value in changes.items() if value is not None}
    return tuple(replace(run, **given) for run in runs)


def run_missing(grid: Sequence[RunConfig], profile: str) -> pd.DataFrame:
    """Trains the runs that the profile has not recorded, and returns the records of all, one row per run.

    The progress bar goes away at the end: an executed chapter shows one sentence in its place.

    Raises:
        RuntimeError: some runs failed; started again, the others are not trained again.
    """
    from IPython.display import clear_output  # chapters alone need it

    distinct = {run.run_id: run for run in grid}
    folders = {"records_folder": records_folder(profile), "checkpoints_folder": checkpoints_folder(profile)}
    runs = run_grid(list(distinct.values()), **folders)
    if (failed := runs[runs["status"] == "failed"]).size:
        raise RuntimeError(f"{len(failed)} of {len(runs)} runs failed: {'; '.join(failed['failure'])}")
    clear_output(wait=True)
    before = runs.attrs["recorded_before"]
    print(f"{len(runs)} runs: {before} recorded before, {len(runs) - before} trained now.")
    return runs
