"""The trainings of a study chapter: trains those that are missing, and shows them next to the published ones."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from smooth_topk.study import tables
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.experiments.selections import trained
from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.evidence import published, yours
from smooth_topk.study.records.paths import records_folder, runs_folder

SETTING: dict[str, Callable[[RunConfig], Any]] = {  # what runs of a chapter differ in, besides their seed
    "loss": lambda run: run.loss_name,
    "noise": lambda run: f"{run.noise_level:g}",
    "grouping": lambda run: tables.GROUPING_NAMES[run.noise_grouping] if run.noise_level else "–",
    "training set": lambda run: tables.size_name(run.train_size),
}
NOT_RUN = "not run"


def runs_of(experiment: str, profile: str, *, seeds: Sequence[int] | None = None, **changes: Any) -> list[RunConfig]:
    """Returns the runs of an experiment that this profile trains, with some fields changed; None changes nothing.

    Example:
        >>> [run.epochs for run in runs_of("table_2_small_data", "smoke", epochs=3, train_size=None)]
        [3, 3, 3, 3]
    """
    given = {name: value for name, value in changes.items() if value is not None}
    return [replace(run, **given) for run in trained(experiment, profile, seeds)]


def run_missing(grid: Sequence[RunConfig], profile: str) -> pd.DataFrame:
    """Trains the runs that the profile has not recorded, and returns the records of all, one row per run.

    Raises:
        ValueError: there is no run.
        RuntimeError: some runs failed; started again, the others are not trained again.
    """
    from IPython.display import clear_output  # chapters alone need it

    if not grid:
        raise ValueError(f"No run is left: the parameters above name none that the profile {profile} has.")
    distinct = list({run.run_id: run for run in grid}.values())
    folder = runs_folder(profile) / "checkpoints"
    runs = run_grid(distinct, records_folder=records_folder(profile), checkpoints_folder=folder)
    if (failed := runs[runs["status"] == "failed"]).size:
        raise RuntimeError(f"{len(failed)} of {len(runs)} runs failed: {'; '.join(failed['failure'])}")
    clear_output(wait=True)  # one sentence in the place of the progress bar
    found = runs.attrs["recorded_before"]
    print(f"{len(runs)} runs: {found} found, {len(runs) - found} trained now.")
    return runs


def published_and_yours(grid: Sequence[RunConfig], profile: str, metric: str = "test_top5") -> pd.DataFrame:
    """Returns a metric in percent by loss and setting: the mean of the published runs, and of the same runs on this
    machine."""
    grid = list({run.run_id: run for run in grid}.values())
    settings = [{name: describe(run) for name, describe in SETTING.items()} for run in grid]
    table = pd.DataFrame(settings, index=[run.run_id for run in grid])
    names = [name for name in SETTING if name == "loss" or table[name].nunique() > 1]
    for name, runs in (("published", published(grid)), ("yours", yours(grid, profile))):
        table[name] = 100 * runs.set_index("run_id")[metric].astype(float)
    table["difference"] = table["yours"] - table["published"]
    groups = table.groupby(names, sort=False)
    means = groups[["published", "yours", "difference"]].mean()
    shown = means.map(lambda value: NOT_RUN if pd.isna(value) else f"{value:.2f}")
    shown.insert(0, "runs", groups.size())
    return shown
