"""A Ray cluster of several nodes on this machine, whose nodes and tasks can be killed.

Ray's own `Cluster` starts the nodes. It expects a node to be up within seconds, which a busy machine can miss, so here
Ray is given minutes.
"""

import contextlib
import inspect
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import psutil
import ray
from ray.cluster_utils import Cluster

from smooth_topk.study.grid.ray_cluster import sigterm_as_before

WAIT_SECONDS = 300  # for Ray to start its processes; a hang must end as a failure
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_register_timeout_seconds": str(WAIT_SECONDS),
    "RAY_agent_register_timeout_ms": str(1000 * WAIT_SECONDS),
}
AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


class SmallCluster:
    """A head and further nodes, each with one CPU; made by `small_cluster`. Only the main thread may start nodes."""

    def __init__(self) -> None:
        self._cluster = Cluster()

    @property
    def address(self) -> str:
        return self._cluster.address

    @property
    def further_nodes(self) -> list[Any]:
        """The nodes other than the head, which may be lost."""
        return list(self._cluster.worker_nodes)

    def add_node(self) -> Any:
        """Starts a node, waits until the cluster has it, and returns it."""
        with sigterm_as_before():
            node = self._cluster.add_node(wait=False, **NODE)
        self._cluster.wait_for_nodes(timeout=WAIT_SECONDS)
        return node

    def kill_node(self, node: Any) -> None:
        """Kills every process of a node, as a power cut would."""
        self._cluster.remove_node(node, allow_graceful=False)

    def tasks(self, node: Any = None) -> list[psutil.Process]:
        """Returns the processes that train a run, on one node or on all; Ray names them after the task."""
        root = psutil.Process(node.all_processes["raylet"][0].process.pid if node else None)
        found = []
        for process in root.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                found += [process] if "smooth_topk_run" in " ".join(process.cmdline()) else []
        return found

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def small_cluster(nodes: int = 2) -> Iterator[SmallCluster]:
    """Starts a cluster of so many nodes, the head included; it ends with this block, and its files are removed."""
    folder = tempfile.mkdtemp(prefix="ray")  # short: the names of Ray's sockets begin with it and must be short
    os.mkdir(f"{folder}/ray")
    services = ray._private.services
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(mock.patch.dict(os.environ, ENVIRONMENT | {"RAY_TMPDIR": folder}))
        stack.enter_context(mock.patch.object(services, "get_node", _patient(services.get_node)))
        stack.enter_context(mock.patch.object(services, "start_raylet", _without_metrics(services.start_raylet)))
        cluster = SmallCluster()
        stack.callback(cluster.shutdown)
        for _ in range(nodes):
            cluster.add_node()
        yield cluster


def _patient(get_node: Callable) -> Callable:
    """Ray gives a node 30 seconds to start; here its question is repeated until it has an answer."""

    def get_started_node(*arguments: Any) -> Any:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    return get_started_node


def _without_metrics(start_raylet: Callable) -> Callable:
    """Ray ends a node whose agents do not report their ports within 15 seconds.

    Here the ports are written beforehand as -1, which means none.
    """

    compiled: Any = ray._raylet  # has no types

    def start(*arguments: Any, **options: Any) -> Any:
        node = inspect.signature(start_raylet).bind(*arguments, **options).arguments
        for name in AGENT_PORTS:
            compiled.persist_port(node["session_dir"], node["node_id"], name, -1)
        return start_raylet(*arguments, **options)

    return start
