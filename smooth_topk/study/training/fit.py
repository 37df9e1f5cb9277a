"""One training run: RunConfig in, record out; killed at any moment and started again, it gives the same bits on a CPU.

`fit` is the entry. It returns the record of a run that is already recorded, goes on from the last checkpoint of one
that was interrupted, and trains the others. Inside torchrun, every process calls `fit`; the global batch, the rate and
the epochs stay those of the configuration, and the first process alone writes.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.files import LockHeldError, exclusive, make_writable_folder
from smooth_topk.study.records.runs import append_run, find_run
from smooth_topk.study.training.checkpoints import remove_checkpoints, save_weights
from smooth_topk.study.training.loop import Run

if TYPE_CHECKING:
    from lightning_fabric import Fabric  # takes seconds to import, so only where a run starts

logger = logging.getLogger(__name__)


def fit(
    config: RunConfig,
    *,
    results_folder: str | Path,
    runs_folder: str | Path,
    data_folder: str | Path | None = None,
    fabric: Fabric | None = None,
    progress: bool = True,
    keep_best: bool = False,
    wait: bool = False,
    checkpoint_minutes: float = 10.0,
    on_epoch: Callable[[dict], None] = lambda row: None,
) -> dict:
    """Trains one run to its end, records it, and returns the record.

    Whatever is raised, the same call goes on where this one stopped.

    Args:
        results_folder: where runs.csv and epochs.csv are.
        runs_folder: where the checkpoints are, in a folder named after the run; removed when the run is recorded.
        fabric: device and processes; by default a GPU if there is one, and the processes that torchrun started.
        progress: whether to show a bar with the time left.
        keep_best: whether the weights with the best validation top-5 stay, as best.pt in the folder of the run.
        wait: whether to wait for another process that trains this very run, or to raise LockHeldError.
        checkpoint_minutes: the longest time between two checkpoints; there is one after every epoch in any case.
        on_epoch: called with the row of every epoch as it ends.

    Returns:
        The row of runs.csv. Its status is "finished", or "diverged" where the loss became infinite or NaN; such a run
        has no results and is not tried again.

    Raises:
        OSError: a folder cannot be written to.
        LockHeldError: another process trains this very run, and `wait` is false.
        OutOfMemoryError: the run does not fit into the memory of the device.
        KeyboardInterrupt: after Ctrl-C or SIGTERM.
    """
    config = config.canonical()
    results_folder, runs_folder = Path(results_folder), Path(runs_folder)
    fabric = fabric or make_fabric(config)
    _refuse_other_precision(config, fabric)
    run_folder, lock = runs_folder / config.run_id, runs_folder / f"{config.run_id}.lock"
    record = find_run(results_folder, config.run_id) if fabric.is_global_zero else None
    if fabric.is_global_zero and record is not None:
        _tidy_up(run_folder, lock, keep_best)
    with contextlib.ExitStack() as stack:
        if fabric.is_global_zero and record is None:
            make_writable_folder(results_folder)
            make_writable_folder(runs_folder)
            warning = f"Run {config.run_id} is being trained by %s; waiting for it."
            stack.enter_context(exclusive(lock, wait=wait, on_wait=lambda owner: logger.warning(warning, owner)))
            record = find_run(results_folder, config.run_id)  # another process may have recorded it in the meantime
        record = fabric.broadcast(record)
        if record is not None:
            return record
        run = Run(config, load_data(config, data_folder), fabric, run_folder, checkpoint_minutes)
        row, epoch_rows = run.train(progress, on_epoch)
        if fabric.is_global_zero:
            if keep_best and run.progress.best_weights:
                save_weights(run_folder / "best.pt", run.progress.best_weights)
            record = append_run(results_folder, row, epoch_rows)
            remove_checkpoints(run_folder)
        return fabric.broadcast(record or {})  # the other processes have none and receive it


def _tidy_up(run_folder: Path, lock: Path, keep_best: bool) -> None:
    """Removes what a process left that was killed between recording the run and removing its checkpoints."""
    if keep_best and not (run_folder / "best.pt").exists():
        logger.warning(
            "Run %s is recorded already, so its weights are not kept. To train it again, delete its row from runs.csv.",
            run_folder.name,
        )
    if run_folder.exists() or lock.exists():
        # Not while another process holds the lock, and not where the folder cannot be written to.
        with contextlib.suppress(LockHeldError, OSError), exclusive(lock, wait=False):
            remove_checkpoints(run_folder)


def _refuse_other_precision(config: RunConfig, fabric: Fabric) -> None:
    """A record must say what ran: Fabric computes in bfloat16 where a CPU is asked for half precision."""
    used = fabric.strategy.precision.precision
    if used != config.precision:
        raise ValueError(
            f"precision={config.precision!r} would run as {used!r} on {fabric.device}: give the configuration "
            f"precision={used!r}, or another device."
        )


def make_fabric(config: RunConfig) -> Fabric:
    """Returns Fabric on a GPU if there is one, else on the CPU, over all processes where torchrun started this one."""
    if config.precision == "16-mixed" and not torch.cuda.is_available():
        raise ValueError(
            "precision='16-mixed' needs a GPU: a CPU would compute in bfloat16 and the record would be wrong. Choose "
            "precision='bf16-mixed' or precision='32-true'."
        )
    from lightning_fabric import Fabric

    precision: Any = config.precision
    local, world = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), int(os.environ.get("WORLD_SIZE", 1))
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        devices=local,
        num_nodes=world // local,
        strategy="ddp" if world > 1 else "auto",
        precision=precision,
    )
    fabric.launch()
    return fabric
