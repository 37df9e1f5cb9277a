"""Many runs: a list of RunConfigs in, their records out, in order; where they are computed is a word of the caller."""

import math
import os
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pandas as pd
import torch
from tqdm.auto import tqdm

from smooth_topk.study.costs import expected_seconds
from smooth_topk.study.files import make_writable_folder
from smooth_topk.study.local_grid import LocalGrid, default_workers
from smooth_topk.study.machine import describe_machine
from smooth_topk.study.records import read_runs
from smooth_topk.study.run_config import RunConfig

EXECUTOR_VARIABLE = "SMOOTH_TOPK_EXECUTOR"


def run_grid(
    configs: Sequence[RunConfig],
    *,
    results_folder: str | Path,
    runs_folder: str | Path,
    data_folder: str | Path | None = None,
    workers: int | None = None,
    executor: str | None = None,
    progress: bool = True,
    **options,
) -> pd.DataFrame:
    """Trains the runs that are not recorded yet, the longest first, and returns the records of all.

    A run that fails is reported at the end, with a warning, and does not stop the others. Stopped at any moment, by
    Ctrl-C or a kill, the same call goes on where it was.

    Args:
        results_folder, runs_folder, data_folder: as in `fit`; on a cluster, runs_folder is a path that all nodes share.
        workers: processes at a time; by default one per GPU, or one per core with one thread each.
        executor: "local", "ray" or "ray:ADDRESS"; by default that of the variable SMOOTH_TOPK_EXECUTOR, or local.
        progress: whether to show a bar with the time left.
        options: further arguments of `fit`: keep_best, checkpoint_minutes; with Ray also those of `RayGrid`.

    Returns:
        One row a configuration, in order, with the columns of `read_runs`. A failed run has the status "failed", the
        reason under "failure", and no results.
    """
    executor = executor or os.environ.get(EXECUTOR_VARIABLE) or "local"
    kind, _, address = executor.partition(":")
    if kind not in ("local", "ray"):
        raise ValueError(f"executor must be 'local', 'ray' or 'ray:ADDRESS', got executor={executor!r}.")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got workers={workers}.")
    results_folder, runs_folder = make_writable_folder(results_folder), make_writable_folder(runs_folder)
    recorded = set(read_runs(results_folder)["run_id"])
    pending = {config.run_id: config for config in configs if config.run_id not in recorded}
    longest_first = sorted(pending.values(), key=lambda config: expected_seconds(config, _kind()), reverse=True)
    failures = {}
    if longest_first:
        data_folder = None if data_folder is None else str(Path(data_folder).absolute())
        folders = {"results_folder": str(results_folder.absolute()), "runs_folder": str(runs_folder.absolute())}
        options = {**folders, "data_folder": data_folder, **options}
        with _Bar(longest_first, progress) as bar:
            if kind == "local":
                grid = LocalGrid(options, runs_folder, bar.epoch, bar.end)
                failures = grid.run(longest_first, workers or default_workers())
            else:
                from smooth_topk.study.ray_grid import RayGrid

                grid = RayGrid(options, address or None, bar.epoch, bar.end)
                failures = grid.run(longest_first, workers)
    _report(failures, pending)
    return _records(configs, read_runs(results_folder), failures)


def dry_run(
    configs: Sequence[RunConfig],
    *,
    results_folder: str | Path,
    runs_folder: str | Path,
    workers: int | None = None,
) -> pd.DataFrame:
    """Lists the runs of a grid without training any.

    Returns:
        One row a configuration: run_id, run (in words), state ("recorded", "diverged", "begun" or "not run"), and the
        estimated seconds on one worker, 0 for what is recorded; `attrs["makespan"]` is the time of all, the longest
        first, on so many workers. The speed is that of the recorded runs of the same network on this device, or the
        assumption of `costs.py`.
    """
    runs = read_runs(results_folder)
    status = dict(zip(runs["run_id"], runs["status"], strict=True)) if "status" in runs else {}
    rows = []
    for config in configs:
        begun = any((Path(runs_folder) / config.run_id).glob("checkpoint-*.pt"))
        known = {"finished": "recorded"}.get(status.get(config.run_id), status.get(config.run_id))
        seconds = 0.0 if known else estimated_seconds(config, runs)
        state = known or ("begun" if begun else "not run")
        rows.append((config.run_id, config.describe(), state, seconds))
    table = pd.DataFrame(rows, columns=["run_id", "run", "state", "seconds"]).astype({"seconds": float})
    durations = table.drop_duplicates("run_id")["seconds"]
    table.attrs["makespan"] = makespan(durations.tolist(), workers or default_workers())
    return table


def estimated_seconds(config: RunConfig, runs: pd.DataFrame) -> float:
    """Returns the expected time of a run on one worker of this machine, corrected by what recorded runs took."""
    kind = _kind()
    expected = expected_seconds(config, kind)
    if "status" not in runs:
        return expected
    device = describe_machine("cuda" if kind == "gpu" else "cpu")["device"]
    known = runs[(runs["status"] == "finished") & (runs["device"] == device) & (runs["processes"] == 1)]
    known = known[(known["model"] == config.model) & (known["dataset"] == config.dataset)]
    names = [field.name for field in fields(RunConfig)]
    ratios = [
        row["seconds"] / expected_seconds(RunConfig.from_dict({name: _or_none(row[name]) for name in names}), kind)
        for row in known.to_dict("records")
    ]
    return expected * statistics.median(ratios) if ratios else expected


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Returns when the last run ends if every free worker takes the longest run that is left.

    Example:
        >>> makespan([2.0, 3.0, 4.0], workers=2)
        5.0
    """
    free_at = [0.0] * workers
    for duration in sorted(seconds, reverse=True):
        free_at.sort()
        free_at[0] += duration
    return max(free_at)


class _Bar:
    """Progress in units of work, so that the time left is right for runs of different lengths."""

    def __init__(self, configs: Sequence[RunConfig], show: bool):
        self.work = {config.run_id: expected_seconds(config) for config in configs}
        self.done = dict.fromkeys(self.work, 0.0)
        self.ended = 0
        shape = "{desc} {percentage:3.0f}% |{bar}| {elapsed} spent, {remaining} left"
        self.bar = tqdm(total=sum(self.work.values()), bar_format=shape, disable=not show)

    def __enter__(self) -> "_Bar":
        self._advance("", 0.0)
        return self

    def __exit__(self, *_) -> None:
        self.bar.close()

    def epoch(self, config: RunConfig, epochs_done: int) -> None:
        self._advance(config.run_id, epochs_done / config.epochs)

    def end(self, config: RunConfig) -> None:
        self.ended += 1
        self._advance(config.run_id, 1.0)

    def _advance(self, run_id: str, share: float) -> None:
        self.bar.set_description_str(f"{self.ended} of {len(self.work)} runs", refresh=False)
        new = max(0.0, share - self.done.get(run_id, share))
        if run_id in self.done:
            self.done[run_id] += new
            self.bar.update(new * self.work[run_id])
        self.bar.refresh()


def _kind() -> str:
    return "gpu" if torch.cuda.is_available() else "cpu"


def _or_none(value):
    return None if isinstance(value, float) and math.isnan(value) else value


def _report(failures: dict[str, str], pending: dict[str, RunConfig]) -> None:
    if failures:
        lines = [f"  {run_id} ({pending[run_id].describe()}): {message}" for run_id, message in failures.items()]
        text = f"{len(failures)} of {len(pending)} runs failed; start again to try them once more:"
        warnings.warn("\n".join([text, *lines]), stacklevel=3)


def _records(configs: Sequence[RunConfig], runs: pd.DataFrame, failures: dict[str, str]) -> pd.DataFrame:
    failed = {config.run_id: config.canonical() for config in configs if config.run_id in failures}
    if failed:
        extra = pd.DataFrame(
            {"run_id": run_id, **vars(config), "status": "failed", "failure": failures[run_id]}
            for run_id, config in failed.items()
        )
        runs = pd.concat([runs, extra.astype({n: runs[n].dtype for n in extra if n in runs})], ignore_index=True)
    return runs.set_index("run_id").loc[[config.run_id for config in configs]].reset_index()
