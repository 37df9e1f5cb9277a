"""Runs on a Ray cluster, one task per run; needs the extra `cluster`.

Every node needs the package and the data at the same path, and must share the folders of records and checkpoints: a run
whose node is lost continues from its last checkpoint on another one.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.runs import read_record
from smooth_topk.study.training.fit import fit
from smooth_topk.study.training.loop import OutOfMemoryError

try:
    import ray
except ImportError as error:
    raise ImportError(
        "The executor 'ray' needs Ray on the driver and on every node: pip install 'smooth-topk[cluster]'."
    ) from error

RETRIES = 10  # of a run whose process or node was lost; its own errors are not tried again
SECONDS_TO_ANSWER = 8
SECONDS_TO_STOP = 120  # for a step and a checkpoint
POLL_SECONDS = 1.0


def check_address(address: str) -> None:
    """Raises ConnectionError where nothing listens at HOST:PORT, ValueError for another form."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"The address of a Ray cluster is HOST:PORT, for example 10.0.0.1:6379, got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"No Ray cluster answers at {address} ({error}). Start one on that machine with `ray start --head`, or "
            "check the address and the firewall."
        ) from None


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connects this process with the cluster at an address; None joins the one that Ray finds, or starts one here."""
    if ray.is_initialized():
        yield
        return
    if address:
        check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with sigterm_as_before():
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except Exception as error:  # Ray raises this very class where its processes do not start in time
        reason = str(error).strip().partition("\n")[0]
        raise ConnectionError(
            f"Could not connect to the Ray cluster {address or 'here'}: {reason}. If it was started with a token, copy "
            "~/.ray/auth_token and set RAY_AUTH_MODE=token."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def train_on_ray(
    configs: Sequence[RunConfig], options: dict, workers: int | None, on_epoch: Callable, on_end: Callable
) -> dict[str, str]:
    """Trains all configurations, in their order; returns the reasons of those that failed by run id.

    Args:
        options: the keyword arguments of `fit` that are the same for all runs.
        workers: runs at a time; None leaves that to Ray: one per GPU, or per CPU where the cluster has no GPU.
        on_epoch: called with a configuration and the number of its epochs that are done.
        on_end: called with a configuration when it is recorded or has failed.
    """
    # Progress is kept on the driver's node, which is not lost before the driver.
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=True
    )
    progress = ray.remote(_Progress).options(num_cpus=0, scheduling_strategy=here, max_restarts=-1).remote()
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    task = ray.remote(_train).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, name="smooth_topk_run")
    waiting, failures = deque(configs), {}
    running: dict[ray.ObjectRef, RunConfig] = {}
    try:
        while waiting or running:
            while waiting and len(running) < (workers or len(configs)):
                config = waiting.popleft()
                running[task.remote(config.to_dict(), options, progress)] = config
            ended, _ = ray.wait(list(running), timeout=POLL_SECONDS)
            _show(progress, {config.run_id: config for config in running.values()}, on_epoch)
            for reference in ended:
                config = running.pop(reference)
                if reason := _failure(reference, config, options):
                    failures[config.run_id] = reason
                on_end(config)
    finally:
        _stop(list(running))
    return failures


class _Progress:
    """How many epochs of each run are done."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}

    def put(self, run_id: str, epochs: int) -> None:
        self.epochs[run_id] = epochs

    def get(self) -> dict[str, int]:
        return self.epochs


def _show(progress: Any, running: dict[str, RunConfig], on_epoch: Callable) -> None:
    with contextlib.suppress(ray.exceptions.RayError):  # no answer in time: shown later
        for run_id, epochs in ray.get(progress.get.remote(), timeout=POLL_SECONDS).items():
            if run_id in running:
                on_epoch(running[run_id], epochs)


def _train(values: dict, options: dict, progress: Any) -> str:
    """Trains one run on a node; returns why it failed, or nothing."""
    config = RunConfig.from_dict(values)

    def on_epoch(row: dict) -> None:
        progress.put.remote(config.run_id, row["epoch"] + 1)

    try:
        fit(config, progress=False, wait=True, on_epoch=on_epoch, **options)
    except (OSError, ValueError, OutOfMemoryError) as error:
        return str(error)
    return ""


def _failure(reference: Any, config: RunConfig, options: dict) -> str:
    try:
        if reason := ray.get(reference):
            return reason
    except ray.exceptions.RayError as error:
        return f"{type(error).__name__}: {error}"
    folder = options["records_folder"]
    if read_record(Path(folder), config.run_id) is None:
        return f"its record is not in {folder}: all nodes must share this folder."
    return ""


def _stop(references: list) -> None:
    """Cancels what still runs, after an error or a signal: every run writes a checkpoint first."""
    for reference in references:
        ray.cancel(reference)
    left = ray.wait(references, num_returns=len(references), timeout=SECONDS_TO_STOP)[1] if references else []
    for reference in left:
        ray.cancel(reference, force=True)


@contextlib.contextmanager
def sigterm_as_before() -> Iterator[None]:
    """Puts back the handler of SIGTERM that Ray replaces: with Ray's, a driver ends before checkpoints are written."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
