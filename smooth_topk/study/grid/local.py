"""Runs on worker processes of this machine: one per core with one thread, or one per GPU."""

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.machine import available_cores
from smooth_topk.study.records.paths import workers_setting

logger = logging.getLogger(__name__)
ATTEMPTS = 3  # a worker that dies, say for lack of memory, leaves a checkpoint; its run goes on in a new one
SECONDS_TO_STOP = 120  # for a step and a checkpoint
COMMAND = [sys.executable, "-m", "smooth_topk.study.grid.worker"]


class _Worker:
    """One process, at work on one run or waiting for the next."""

    def __init__(self, number: int, log_folder: Path):
        self.number, self.log = number, log_folder / f"worker-{number}.log"
        self.config: RunConfig | None = None
        self.unread = b""
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(number),
                start_new_session=True,  # Ctrl-C reaches the grid alone, which then stops its workers in order
            )
        if self.process.stdin is None or self.process.stdout is None:  # never: both are pipes
            raise RuntimeError("A process was started without its pipes.")
        self.orders, self.answers = self.process.stdin, self.process.stdout

    def give(self, config: RunConfig | None, options: dict) -> None:
        self.config = config
        order = None if config is None else {"config": config.to_dict(), **options}
        with contextlib.suppress(BrokenPipeError):  # it died: the end of its output says so
            self.orders.write((json.dumps(order) + "\n").encode())
            self.orders.flush()

    def events(self) -> list[dict] | None:
        """Returns what has arrived, or None when nothing more can."""
        chunk = os.read(self.answers.fileno(), 65536)
        *lines, self.unread = (self.unread + chunk).split(b"\n")
        return [json.loads(line) for line in lines] if chunk else None

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.orders.close()

    def end(self, deadline: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.answers.close()


class LocalGrid:
    """Hands runs to workers until none is left.

    Args:
        options: the keyword arguments of `fit` that are the same for all runs, as JSON knows them.
        log_folder: where each worker's log lines go.
        on_epoch: called with a configuration and the number of its epochs that are done.
        on_end: called with a configuration when it is recorded or has failed.
    """

    def __init__(self, options: dict, log_folder: Path, on_epoch: Callable, on_end: Callable):
        self.options, self.log_folder, self.on_epoch, self.on_end = options, log_folder, on_epoch, on_end
        self.waiting: deque[tuple[RunConfig, bool]] = deque()
        self.failures: dict[str, str] = {}
        self.deaths: dict[str, int] = {}
        self.selector = selectors.DefaultSelector()
        self.workers: set[_Worker] = set()

    def run(self, configs: Sequence[RunConfig], workers: int) -> dict[str, str]:
        """Trains all configurations, in their order; returns the messages of those that failed by run id."""
        self.waiting.extend((config, False) for config in configs)
        try:
            for number in range(min(workers, len(configs))):
                self._start(number)
            while self.workers:
                for key, _ in self.selector.select():
                    self._read_events(key.data)
        finally:
            self._stop()
        return self.failures

    def _start(self, number: int) -> None:
        worker = _Worker(number, self.log_folder)
        self.workers.add(worker)
        self.selector.register(worker.answers, selectors.EVENT_READ, worker)
        self._next(worker)

    def _next(self, worker: _Worker) -> None:
        config, wait = self.waiting.popleft() if self.waiting else (None, False)
        worker.give(config, {**self.options, "wait": wait})

    def _read_events(self, worker: _Worker) -> None:
        events = worker.events()
        if events is None:
            self._replace_dead_worker(worker)
        for event in events or ():
            self._handle_event(event, worker)

    def _handle_event(self, event: dict, worker: _Worker) -> None:
        """Shows an epoch; at the end of a run gives the worker the next one."""
        config, kind = worker.config, event["event"]
        if config is None:
            raise RuntimeError(f"Worker {worker.number} has no run and reports {event}.")
        if kind == "epoch":
            self.on_epoch(config, event["epoch"])
            return
        if kind == "held":  # another grid trains it: the others first, then wait for its record
            self.waiting.append((config, True))
        else:
            if kind == "failed":
                self.failures[config.run_id] = event["message"]
            self.on_end(config)
        self._next(worker)

    def _replace_dead_worker(self, worker: _Worker) -> None:
        """Gives the run of a worker that died to a new one; the third death of a run makes it a failed run."""
        self.selector.unregister(worker.answers)
        self.workers.remove(worker)
        worker.close()
        worker.end(time.monotonic() + SECONDS_TO_STOP)
        config = worker.config
        if config is None:
            return
        cause = _cause(worker.process.returncode)
        self.deaths[config.run_id] = self.deaths.get(config.run_id, 0) + 1
        if self.deaths[config.run_id] < ATTEMPTS:
            logger.warning("The worker of run %s %s; the run goes on in a new one.", config.run_id, cause)
            self.waiting.appendleft((config, True))
        else:
            message = f"its worker {cause}, {ATTEMPTS} times, for lack of memory perhaps; see {worker.log}."
            self.failures[config.run_id] = message
            self.on_end(config)
        if self.waiting:
            self._start(worker.number)

    def _stop(self) -> None:
        """Ends what still runs, after an error or Ctrl-C: every worker writes a checkpoint first."""
        deadline = time.monotonic() + SECONDS_TO_STOP
        for worker in self.workers:
            worker.close()
        for worker in self.workers:
            worker.end(deadline)
        self.selector.close()


def default_workers() -> int:
    """Returns $SMOOTH_TOPK_WORKERS, or the number of GPUs, or the number of cores."""
    return workers_setting() or torch.cuda.device_count() or available_cores()


def _environment(number: int) -> dict[str, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
        environment["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
    return environment


def _cause(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
