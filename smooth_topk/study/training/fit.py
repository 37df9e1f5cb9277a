"""One training run: from a RunConfig to its record. Killed at any moment and started again, it gives the same bits.

`fit` is the entry: it returns the record of a recorded run, continues from the last checkpoint of an interrupted one,
and trains the others. Inside torchrun every process calls `fit`; the global batch, the learning rate and the epochs
stay those of the configuration, and the first process alone writes.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.files import exclusive, make_folder, make_writable_folder
from smooth_topk.study.records.runs import read_record, write_record
from smooth_topk.study.training.checkpoints import remove_checkpoints, save_weights
from smooth_topk.study.training.loop import Run

if TYPE_CHECKING:
    from lightning_fabric import Fabric  # takes seconds to import, so only where a run starts

logger = logging.getLogger(__name__)


def fit(
    config: RunConfig,
    *,
    records_folder: str | Path,
    checkpoints_folder: str | Path,
    data_folder: str | Path | None = None,
    fabric: Fabric | None = None,
    progress: bool = True,
    keep_best: bool = False,
    wait: bool = False,
    checkpoint_minutes: float = 1.0,
    on_epoch: Callable[[dict], None] = lambda row: None,
) -> dict:
    """Trains one run to its end, records it, and returns the record.

    Whatever is raised, the same call goes on where this one stopped.

    Args:
        records_folder: where RUN_ID.json will be; a run whose file is there is not trained again.
        checkpoints_folder: where the checkpoints are, in a folder named after the run; removed when it is recorded.
        fabric: device and processes; by default a GPU if there is one, and the processes that torchrun started.
        progress: whether to show a bar with the time left.
        keep_best: whether the weights with the best validation top-5 stay, as best.pt in the folder of the run.
        wait: whether to wait for another process that trains this very run, or to raise LockHeldError.
        checkpoint_minutes: the time between two checkpoints; a run that is killed repeats at most that much.
        on_epoch: called with the row of every epoch as it ends.

    Returns:
        The recorded row. Its status is "finished", or "diverged" where the loss became infinite or NaN; such a run
        has no results and is not tried again.

    Raises:
        OSError: a folder cannot be written to.
        LockHeldError: another process trains this very run, and `wait` is false.
        OutOfMemoryError: the run does not fit into the memory of the device.
        KeyboardInterrupt: after Ctrl-C or SIGTERM.
    """
    config = config.canonical()
    records_folder, checkpoints_folder = Path(records_folder), Path(checkpoints_folder)
    fabric = fabric or make_fabric(config)
    _refuse_other_precision(config, fabric)
    folder = checkpoints_folder / config.run_id
    with contextlib.ExitStack() as stack:
        record = None
        if fabric.is_global_zero:
            record = read_record(records_folder, config.run_id)
            if record is None:
                make_writable_folder(records_folder)
                make_writable_folder(checkpoints_folder)
                stack.enter_context(_lock(config, checkpoints_folder, wait))
                record = read_record(records_folder, config.run_id)  # another process may have recorded it by now
        record = fabric.broadcast(record)
        if record is not None:
            with contextlib.suppress(OSError):  # left by a process that was killed just after it recorded the run
                remove_checkpoints(folder)
            return record
        stack.enter_context(one_thread(fabric.device))
        run = Run(config, load_data(config, data_folder), fabric, folder, checkpoint_minutes)
        row, epochs = run.train(progress, on_epoch)
        if fabric.is_global_zero:
            if keep_best and run.progress.best_weights:
                save_weights(make_folder(folder) / "best.pt", run.progress.best_weights)
            record = write_record(records_folder, row, epochs)
            remove_checkpoints(folder)
        return fabric.broadcast(record or {})  # the other processes have none and receive it


def _lock(config: RunConfig, folder: Path, wait: bool) -> contextlib.AbstractContextManager[None]:
    warning = f"Run {config.run_id} is being trained by %s; waiting for it."
    return exclusive(folder / f"{config.run_id}.lock", wait=wait, on_wait=lambda owner: logger.warning(warning, owner))


@contextlib.contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """On a CPU, torch uses one thread: with several, small steps take longer and the last digits differ."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
