"""One training run: RunConfig in, record out; killed at any moment and started again, it gives the same bits on a CPU.

`fit` is the entry. It returns the record of a run that is already recorded, goes on from the last checkpoint of one
that was interrupted, and trains the others. Inside torchrun, every process calls `fit`; the global batch, the rate and
the epochs stay those of the configuration, and the first process alone writes.
"""

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from lightning_fabric import Fabric

from smooth_topk.study.checkpoints import remove_checkpoints, save_weights
from smooth_topk.study.datasets import load_data
from smooth_topk.study.evaluation import evaluate
from smooth_topk.study.files import LockHeldError, exclusive, make_writable_folder
from smooth_topk.study.records import append_run, find_run
from smooth_topk.study.run import OutOfMemoryError, Run
from smooth_topk.study.run_config import RunConfig

__all__ = ["LockHeldError", "OutOfMemoryError", "evaluate", "fit", "make_fabric"]
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
        OSError: a folder cannot be written to; LockHeldError; OutOfMemoryError; KeyboardInterrupt after Ctrl-C or
        SIGTERM. Whatever was raised, the same call goes on where this one stopped.
    """
    config = config.canonical()
    fabric = fabric or make_fabric(config)
    run_folder, lock = Path(runs_folder) / config.run_id, Path(runs_folder) / f"{config.run_id}.lock"
    record = None
    with contextlib.ExitStack() as stack:
        if fabric.is_global_zero and (record := find_run(results_folder, config.run_id)) is None:
            make_writable_folder(results_folder)
            make_writable_folder(runs_folder)
            warning = f"Run {config.run_id} is being trained by %s; waiting for it."
            stack.enter_context(exclusive(lock, wait=wait, on_wait=lambda owner: logger.warning(warning, owner)))
            record = find_run(results_folder, config.run_id)
        record = fabric.broadcast(record)
        if record is None:
            run = Run(config, load_data(config, data_folder), fabric, run_folder, checkpoint_minutes)
            row, epoch_rows = run.train(progress, on_epoch)
            if fabric.is_global_zero:
                if keep_best and run.progress.best_weights:
                    save_weights(run_folder / "best.pt", run.progress.best_weights)
                append_run(results_folder, row, epoch_rows)
                record = find_run(results_folder, config.run_id)
        if fabric.is_global_zero:
            remove_checkpoints(run_folder)
            lock.unlink(missing_ok=True)
    return fabric.broadcast(record)


def make_fabric(config: RunConfig) -> Fabric:
    """Returns Fabric on a GPU if there is one, else on the CPU, over all processes where torchrun started this one."""
    local, world = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), int(os.environ.get("WORLD_SIZE", 1))
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        devices=local,
        num_nodes=world // local,
        strategy="ddp" if world > 1 else "auto",
        precision=config.precision,
    )
    fabric.launch()
    return fabric


def main(arguments: list[str] | None = None) -> int:
    """The command line: python -m smooth_topk.study.training '{"loss": "smooth"}', alone or after torchrun -m."""
    parser = argparse.ArgumentParser(description="Train one run; start it again to go on after an interruption.")
    parser.add_argument("config", help="the fields of a RunConfig that differ from their defaults, as JSON")
    parser.add_argument("--results", default="runs/results", help="folder of runs.csv and epochs.csv")
    parser.add_argument("--runs", default="runs", help="folder of the checkpoints")
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--keep-best", action="store_true", help="keep the best weights")
    parser.add_argument("--checkpoint-minutes", type=float, default=10.0, help="longest time between two checkpoints")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        record = fit(
            RunConfig.from_dict(json.loads(options.config)),
            results_folder=options.results,
            runs_folder=options.runs,
            data_folder=options.data,
            progress=sys.stderr.isatty(),
            keep_best=options.keep_best,
            checkpoint_minutes=options.checkpoint_minutes,
        )
    except KeyboardInterrupt as stopped:
        logger.warning("%s", stopped)
        return 130
    except (OSError, ValueError, LockHeldError, OutOfMemoryError) as error:
        logger.error("%s", error)
        return 1
    except RuntimeError:
        if not torch.distributed.is_initialized():
            raise
        logger.exception("The processes of the run lost each other; start them again to go on from the checkpoint.")
        return 1
    if int(os.environ.get("RANK", 0)) == 0:
        print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
