"""Many runs: a list of RunConfigs in, their records out, in order; the caller chooses where the runs are computed.

The path of a run: `run_grid` finds out what is missing; `LocalGrid` writes it to the standard input of a worker
process, or `RayGrid` submits it as a task; there `fit` trains it and writes the record.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from tqdm.auto import tqdm

from smooth_topk.study.experiments.expected_cost import expected_seconds
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid.local import LocalGrid, default_workers
from smooth_topk.study.records.files import make_writable_folder
from smooth_topk.study.records.paths import absolute, check_executor, executor_setting
from smooth_topk.study.records.runs import read_runs, recorded_ids


def run_grid(
    configs: Sequence[RunConfig],
    *,
    records_folder: str | Path,
    checkpoints_folder: str | Path,
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
        records_folder: where the records are, one file per run; on a cluster, a path that all nodes share.
        checkpoints_folder: where the checkpoints are, as in `fit`; on a cluster, a path that all nodes share.
        data_folder: where the data are, see `data_folder_or_default`.
        workers: processes at a time; by default one per GPU, or one per core with one thread each.
        executor: "local", "ray" or "ray:ADDRESS"; by default that of the variable SMOOTH_TOPK_EXECUTOR, or local.
        progress: whether to show a bar with the time left.
        options: further arguments of `fit`: keep_best, checkpoint_minutes; with Ray also those of `RayGrid`.

    Returns:
        One row per configuration, in order, with the columns of `read_runs`. A failed run has the status "failed", the
        reason under "failure", and no results. `attrs["recorded_before"]` is the number of runs that were not trained.
    """
    kind, _, address = check_executor(executor or executor_setting()).partition(":")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got workers={workers}.")
    records_folder, checkpoints_folder = Path(records_folder), Path(checkpoints_folder)
    recorded = recorded_ids(records_folder)
    pending = {config.run_id: config for config in configs if config.run_id not in recorded}
    longest_first = sorted(pending.values(), key=lambda config: expected_seconds(config, _kind()), reverse=True)
    failures = {}
    if longest_first:
        for folder in (records_folder, checkpoints_folder):
            make_writable_folder(folder)
        data_folder = None if data_folder is None else str(absolute(data_folder))
        folders = {
            "records_folder": str(absolute(records_folder)),
            "checkpoints_folder": str(absolute(checkpoints_folder)),
        }
        options = {**folders, "data_folder": data_folder, **options}
        with _Bar(longest_first, progress) as bar:
            if kind == "local":
                local = LocalGrid(options, checkpoints_folder, bar.epoch, bar.end)
                failures = local.run(longest_first, workers or default_workers())
            else:
                from smooth_topk.study.grid.ray_cluster import RayGrid

                cluster = RayGrid(options, address or None, bar.epoch, bar.end)
                failures = cluster.run(longest_first, workers)
    runs = read_runs(records_folder)
    _report(failures, pending)
    table = _records(configs, runs, failures)
    table.attrs["recorded_before"] = len({config.run_id for config in configs}) - len(pending)
    return table


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
