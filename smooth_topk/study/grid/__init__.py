"""Many runs: trains those of a list of configurations that are not recorded yet, and returns the records of all.

`local` gives every run a process of this machine, `ray_cluster` a task of a Ray cluster. In both, `fit` trains the run
and writes its record, and the record file is the result.
"""

import math
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from tqdm.auto import tqdm

from smooth_topk.study.experiments.expected_cost import expected_seconds
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid.local import LocalPool, default_workers
from smooth_topk.study.records.files import make_writable_folder
from smooth_topk.study.records.paths import absolute, check_executor, data_folder_or_default, executor_setting
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
    **fit_options,
) -> pd.DataFrame:
    """Trains the runs that are not recorded yet, the longest first, and returns the records of all.

    A run that fails is reported at the end, with a warning, and does not stop the others. After Ctrl-C, a kill or a
    power cut, the same call continues from the checkpoints.

    Args:
        records_folder: one JSON file per finished run; on a cluster, a folder that all nodes share.
        checkpoints_folder: the checkpoints of unfinished runs, shared likewise.
        data_folder: where the data are, see `data_folder_or_default`.
        workers: runs at a time; by default one per GPU, or one per core with one thread each.
        executor: "local", "ray" or "ray:ADDRESS"; by default that of the variable SMOOTH_TOPK_EXECUTOR, or local.
        progress: whether to show a bar with the time left.
        fit_options: further arguments of `fit`: keep_best, checkpoint_minutes.

    Returns:
        One row per configuration, in order, with the columns of `read_runs`. A failed run has the status "failed", the
        reason under "failure", and no results. `attrs["recorded_before"]` is the number of runs that were not trained.
    """
    kind, _, address = check_executor(executor or executor_setting()).partition(":")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got workers={workers}.")
    recorded = recorded_ids(Path(records_folder))
    missing = {config.run_id: config for config in configs if config.run_id not in recorded}
    device = "gpu" if torch.cuda.is_available() else "cpu"
    longest_first = sorted(missing.values(), key=lambda config: expected_seconds(config, device), reverse=True)
    failures: dict[str, str] = {}
    if longest_first:
        folders = {"records_folder": records_folder, "checkpoints_folder": checkpoints_folder}
        options = {name: str(absolute(make_writable_folder(Path(folder)))) for name, folder in folders.items()}
        options["data_folder"] = str(data_folder_or_default(data_folder))
        with _Bar(longest_first, progress) as bar:
            if kind == "local":
                pool = LocalPool({**options, **fit_options}, workers or default_workers(), bar.epoch, bar.end)
                failures = pool.run(longest_first)
            else:
                from smooth_topk.study.grid.ray_cluster import connected, train_on_ray

                with connected(address or None):
                    failures = train_on_ray(longest_first, {**options, **fit_options}, workers, bar.epoch, bar.end)
    _report(failures, missing)
    table = _records(configs, read_runs(Path(records_folder)), failures)
    table.attrs["recorded_before"] = len({config.run_id for config in configs}) - len(missing)
    return table


class _Bar:
    """Progress in expected seconds of work, so that the time left is right for runs of different lengths."""

    def __init__(self, configs: Sequence[RunConfig], show: bool):
        self.work = {config.run_id: expected_seconds(config) for config in configs}
        self.done = dict.fromkeys(self.work, 0.0)  # shares
        self.ended = 0
        shape = "{desc} {percentage:3.0f}% |{bar}| {elapsed} spent, {remaining} left"
        self.bar = tqdm(total=sum(self.work.values()), bar_format=shape, disable=not show)
        in_a_file = not sys.stderr.isatty() and not hasattr(self.bar, "container")  # a widget of a notebook
        self.pause = 30.0 if in_a_file else 0.0  # seconds between two lines
        self.shown = -math.inf

    def __enter__(self) -> "_Bar":
        self._show()
        return self

    def __exit__(self, *_) -> None:
        self.bar.close()

    def epoch(self, config: RunConfig, epochs_done: int) -> None:
        self.done[config.run_id] = max(self.done[config.run_id], epochs_done / config.epochs)
        self._show()

    def end(self, config: RunConfig) -> None:
        self.ended += 1
        self.done[config.run_id] = 1.0
        self._show()

    def _show(self) -> None:
        self.bar.set_description_str(f"{self.ended} of {len(self.work)} runs", refresh=False)
        done = sum(share * self.work[run_id] for run_id, share in self.done.items())
        self.bar.n = min(done, self.bar.total)  # a sum of shares may exceed the total by a rounding error
        if time.monotonic() - self.shown >= self.pause:
            self.bar.refresh()
            self.shown = time.monotonic()


def _report(failures: dict[str, str], missing: dict[str, RunConfig]) -> None:
    if failures:
        lines = [f"  {run_id} ({missing[run_id].describe()}): {message}" for run_id, message in failures.items()]
        text = f"{len(failures)} of {len(missing)} runs failed; start again to try them once more:"
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
