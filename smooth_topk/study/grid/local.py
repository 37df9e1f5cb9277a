"""Runs on this machine: one process per run, as many at a time as there are GPUs, or cores with one thread each."""

import contextlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid.processes import cause, context, start, stop
from smooth_topk.study.records.files import LockHeldError
from smooth_topk.study.records.machine import available_cores
from smooth_topk.study.records.paths import workers_setting
from smooth_topk.study.training.fit import fit
from smooth_topk.study.training.loop import OutOfMemoryError

logger = logging.getLogger(__name__)
ATTEMPTS = 3  # a process that dies, say for lack of memory, leaves a checkpoint; its run continues in a new one
EXPECTED = (OSError, ValueError, OutOfMemoryError)  # their message says all; others come with their class
HELD = "another process trains this run"


@dataclass(eq=False)
class _Job:
    """A run that waits for a process or has one."""

    config: RunConfig
    deaths: int = 0
    wait: bool = False  # until another grid has trained it
    slot: int = 0
    process: Any = None
    events: Any = None  # the numbers of epochs done; at the end perhaps the reason of a failure
    message: str = ""


class LocalPool:
    """Trains runs in processes of this machine until none is left.

    Args:
        options: the keyword arguments of `fit` that are the same for all runs.
        workers: runs at a time.
        on_epoch: called with a configuration and the number of its epochs that are done.
        on_end: called with a configuration when it is recorded or has failed.
    """

    def __init__(self, options: dict, workers: int, on_epoch: Callable, on_end: Callable):
        self.options, self.on_epoch, self.on_end = options, on_epoch, on_end
        self.free = list(range(workers))[::-1]
        self.waiting: deque[_Job] = deque()
        self.running: list[_Job] = []
        self.failures: dict[str, str] = {}

    def run(self, configs: Sequence[RunConfig]) -> dict[str, str]:
        """Trains all configurations, in their order; returns the reasons of those that failed by run id."""
        self.waiting.extend(map(_Job, configs))
        try:
            while self.waiting or self.running:
                while self.waiting and self.free:
                    self._start(self.waiting.popleft())
                connection.wait([job.process.sentinel for job in self.running], timeout=0.5)
                for job in list(self.running):
                    ended = job.process.exitcode is not None  # before the last events are read
                    self._read_events(job)
                    if ended:
                        self._end(job)
        finally:
            stop(job.process for job in self.running)
        return self.failures

    def _start(self, job: _Job) -> None:
        job.slot, job.message = self.free.pop(), ""
        job.events, events = context.Pipe(duplex=False)
        settings = {"SMOOTH_TOPK_WORKERS": str(len(self.free) + len(self.running) + 1)}  # which share the cores
        if gpu := gpu_of(job.slot):
            settings["CUDA_VISIBLE_DEVICES"] = gpu
        options = {**self.options, "wait": job.wait}
        job.process = start(_train, job.config.to_dict(), options, settings, events, log=self._log(job))
        events.close()
        self.running.append(job)

    def _read_events(self, job: _Job) -> None:
        with contextlib.suppress(EOFError, OSError):  # the process has ended
            while job.events.poll():
                event = job.events.recv()
                if isinstance(event, int):
                    self.on_epoch(job.config, event)
                else:
                    job.message = event

    def _end(self, job: _Job) -> None:
        """Puts a run whose process has died, or that another grid trains, back into the queue."""
        self.running.remove(job)
        self.free.append(job.slot)
        job.events.close()
        ended, run_id = cause(job.process.exitcode), job.config.run_id
        died = job.process.exitcode != 0 and not job.message
        job.deaths += died
        if job.message == HELD:  # the other runs first
            job.wait = True
            self.waiting.append(job)
        elif died and job.deaths < ATTEMPTS:
            logger.warning("The process of run %s %s; the run continues in a new one.", run_id, ended)
            self.waiting.appendleft(job)
        else:
            if died:
                reason = f"its process {ended}, {ATTEMPTS} times, for lack of memory perhaps"
                job.message = f"{reason}; see {self._log(job)}."
            if job.message:
                self.failures[run_id] = job.message
            self.on_end(job.config)

    def _log(self, job: _Job) -> Path:
        return Path(self.options["checkpoints_folder"]) / f"worker-{job.slot}.log"


def default_workers() -> int:
    """Returns $SMOOTH_TOPK_WORKERS, or the number of GPUs, or the number of cores."""
    return workers_setting() or torch.cuda.device_count() or available_cores()


def gpu_of(slot: int) -> str | None:
    """Returns which of the visible GPUs a process takes, None without a GPU."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    devices = visible or [str(index) for index in range(torch.cuda.device_count())]
    return devices[slot % len(devices)] if torch.cuda.is_available() else None


def _train(values: dict, options: dict, settings: dict[str, str], events: connection.Connection) -> None:
    """Trains one run in a process of its own."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.update(settings)  # before CUDA starts

    def send(event: int | str) -> None:
        with contextlib.suppress(OSError):  # the grid has ended
            events.send(event)

    try:
        fit(RunConfig.from_dict(values), progress=False, on_epoch=lambda row: send(row["epoch"] + 1), **options)
    except KeyboardInterrupt as stopped:
        logging.warning("%s", stopped)
        sys.exit(128 + signal.SIGTERM)
    except LockHeldError:
        send(HELD)
    except EXPECTED as error:
        send(str(error))
    except Exception as error:
        logging.exception("The run failed.")
        send(f"{type(error).__name__}: {error}")
