"""Runs on a Ray cluster, one task per run; needs the extra `cluster`.

Every node needs the package and the data, at the same path. The folder of the checkpoints must be one that all nodes
share: then a run whose worker was killed goes on from its last checkpoint wherever Ray tries it again. A finished run
is recorded by its task, in a folder that all nodes share.
"""

import contextlib
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from smooth_topk.study.experiments.expected_cost import expected_seconds
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid.cluster_address import check_address
from smooth_topk.study.records.runs import recorded_ids
from smooth_topk.study.training.fit import fit
from smooth_topk.study.training.loop import OutOfMemoryError

try:
    import ray
except ImportError as error:
    raise ImportError(
        "The executor 'ray' needs Ray on the driver and on every node: pip install 'smooth-topk[cluster]'."
    ) from error

logger = logging.getLogger(__name__)
RETRIES = 10  # of a run whose worker was killed: it goes on from its checkpoint; its own errors are not tried again
SECONDS_TO_STOP = 120  # for a step and a checkpoint
POLL_SECONDS = 1.0
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # the same bits as a local worker


@contextlib.contextmanager
def shared_cluster(address: str | None) -> Iterator[str]:
    """Yields the address of a cluster for several processes: the one given, or one that Ray finds or starts here.

    A cluster that is started here ends with this block. Ray protects it by a token of its own.
    """
    if address:
        check_address(address)
        yield address
        return
    with connected(None):
        yield ray.get_runtime_context().gcs_address


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connects this process with a cluster for the duration of a block, unless it is connected already.

    Raises:
        ConnectionError: in a full sentence; within seconds where nothing answers at the address.
    """
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
        token = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
        hint = "" if token else " If it was started with a token, copy ~/.ray/auth_token and set RAY_AUTH_MODE=token."
        reason = str(error).strip().partition("\n")[0]
        raise ConnectionError(f"Could not connect to the Ray cluster {address or 'here'}: {reason}.{hint}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def sigterm_as_before() -> Iterator[None]:
    """Puts back the handler of SIGTERM that Ray replaces: with Ray's, its processes end before a checkpoint is written.

    Where there was no handler, Ray's own stays.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


class RayGrid:
    """Hands runs to a Ray cluster until none is left.

    Args:
        options: the keyword arguments of `fit` that are the same for all runs; also cpus and gpus, what one run takes:
            by default one CPU, and one GPU where the cluster has any.
        address: of the cluster; None joins the one that Ray finds, or starts one on this machine.
        on_epoch: called with a configuration and the number of its epochs that are done.
        on_end: called with a configuration when it is recorded or has failed.
    """

    def __init__(self, options: dict, address: str | None, on_epoch: Callable, on_end: Callable):
        self.options, self.address, self.on_epoch, self.on_end = dict(options), address, on_epoch, on_end
        self.resources = {"num_cpus": self.options.pop("cpus", 1), "num_gpus": self.options.pop("gpus", None)}
        self.failures: dict[str, str] = {}

    def run(self, configs: Sequence[RunConfig], workers: int | None) -> dict[str, str]:
        """Trains all configurations, at most `workers` at a time; returns the messages of the failed ones by run id."""
        with connected(self.address):
            self._run(deque(configs), workers or len(configs))
        return self.failures

    def _run(self, waiting: deque[RunConfig], at_a_time: int) -> None:
        if self.resources["num_gpus"] is None:
            self.resources["num_gpus"] = 1 if ray.cluster_resources().get("GPU") else 0
        if self.resources["num_gpus"]:  # which run is the longest there, the driver's machine may not know
            waiting = deque(sorted(waiting, key=lambda config: expected_seconds(config, "gpu"), reverse=True))
        # Beside the driver, which alone reads it.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        board = ray.remote(_Board).options(num_cpus=0, scheduling_strategy=here, max_restarts=-1).remote()
        task = ray.remote(_train).options(
            **self.resources, max_retries=RETRIES, runtime_env={"env_vars": ENVIRONMENT}, name="smooth_topk_run"
        )
        running: dict[ray.ObjectRef, RunConfig] = {}
        try:
            while waiting or running:
                while waiting and len(running) < at_a_time:
                    config = waiting.popleft()
                    if config.run_id in recorded_ids(self.options["records_folder"]):  # by another driver by now
                        self.on_end(config)
                    else:
                        running[task.remote(config.to_dict(), self.options, board)] = config
                if not running:
                    continue
                ended, _ = ray.wait(list(running), timeout=POLL_SECONDS)
                self._show(board, {config.run_id: config for config in running.values()})
                for reference in ended:
                    self._collect(reference, running.pop(reference))
        finally:
            self._stop(list(running))

    def _show(self, board, running: dict[str, RunConfig]) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # no answer in time, or the board restarts: shown later
            for run_id, epochs in ray.get(board.take.remote(), timeout=POLL_SECONDS).items():
                if run_id in running:
                    self.on_epoch(running[run_id], epochs)

    def _collect(self, reference: ray.ObjectRef, config: RunConfig) -> None:
        try:
            answer = ray.get(reference)
        except ray.exceptions.RayError as error:
            answer = {"failure": f"{type(error).__name__}: {error}"}
        if "failure" in answer:
            self.failures[config.run_id] = answer["failure"]
        self.on_end(config)

    def _stop(self, references: list[ray.ObjectRef]) -> None:
        """Cancels what still runs, after an error or Ctrl-C: every run writes a checkpoint first."""
        for reference in references:
            ray.cancel(reference)
        _, left = ray.wait(references, num_returns=len(references), timeout=SECONDS_TO_STOP) if references else ([], [])
        for reference in left:
            ray.cancel(reference, force=True)


class _Board:
    """How many epochs of each run are done since the driver last looked."""

    def __init__(self):
        self.epochs: dict[str, int] = {}

    def put(self, run_id: str, epochs: int) -> None:
        self.epochs[run_id] = epochs

    def take(self) -> dict[str, int]:
        taken, self.epochs = self.epochs, {}
        return taken


def _train(values: dict, options: dict, board) -> dict:
    """Trains and records one run on a node; returns its row, at once where it is recorded already."""
    config = RunConfig.from_dict(values)
    try:
        row = fit(
            config,
            progress=False,
            wait=True,
            on_epoch=lambda row: board.put.remote(config.run_id, row["epoch"] + 1),
            **options,
        )
    except (OSError, ValueError, OutOfMemoryError) as error:
        return {"failure": str(error)}
    return row
