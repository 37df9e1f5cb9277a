"""The grid on a real Ray cluster of two nodes on this machine."""

import contextlib
import inspect
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import psutil
import pytest
from small_runs import assert_same_results, fit_small, small_config

from smooth_topk.study.grid import run_grid
from smooth_topk.study.records import read_runs

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'smooth-topk[cluster]'")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SIX = [
    small_config(loss=loss, k=2, seed=seed, epochs=3 + seed)
    for loss in ("cross_entropy", "smooth", "hard")
    for seed in (0, 1)
]
AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
WAIT_SECONDS = 300  # for Ray to start its workers; a hang must end as a failure


@pytest.fixture(scope="module")
def local(tmp_path_factory, data):
    """The folder of the six runs, trained by the local grid."""
    folder = tmp_path_factory.mktemp("local")
    run_grid(SIX, **folders(folder, data), workers=2, executor="local", progress=False)
    return folder


@pytest.fixture(scope="module")
def cluster():
    """A head and a second node, each with one CPU, on this machine."""
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray")  # the names of Ray's sockets must be short, those of tmp_path are not
    os.mkdir(f"{folder}/ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")
        patch.setenv("RAY_worker_register_timeout_seconds", str(WAIT_SECONDS))
        patch.setenv("RAY_agent_register_timeout_ms", str(1000 * WAIT_SECONDS))
        services = ray._private.services
        patch.setattr(services, "get_node", patient(services.get_node))
        patch.setattr(services, "start_raylet", without_metrics(services.start_raylet))
        started = Cluster()
        try:
            add_node(started)
            add_node(started)
            yield started
        finally:
            started.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def patient(get_node):
    """Ray gives a node 30 seconds to start, which a busy machine can miss; here its question waits for the answer."""

    def get_started_node(*arguments):
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    return get_started_node


def without_metrics(start_raylet):
    """A node ends itself when its agents need 15 seconds to name their ports; here they are known: none, or -1."""

    def start(*arguments, **options):
        node = inspect.signature(start_raylet).bind(*arguments, **options).arguments
        for name in AGENT_PORTS:
            ray._raylet.persist_port(node["session_dir"], node["node_id"], name, -1)
        return start_raylet(*arguments, **options)

    return start


def add_node(cluster, **options):
    """Adds a node of one CPU."""
    options = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False} | options
    node = cluster.add_node(wait=False, runtime_env_agent_port=free_port(), **options)
    cluster.wait_for_nodes(timeout=WAIT_SECONDS)
    return node


def free_port():
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def folders(folder, data):
    return {"results_folder": folder / "results", "runs_folder": folder / "runs", "data_folder": data}


def running_tasks():
    """The processes of this test's cluster that train a run: Ray names them after the task."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += [process] if "smooth_topk_run" in " ".join(process.cmdline()) else []
    return found


def kill_a_task_after_a_checkpoint(folder, killed):
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and not killed:
        if list(folder.glob("runs/*/checkpoint-*.pt")):
            for process in running_tasks()[:1]:
                process.kill()
                killed.append(process.pid)
        time.sleep(0.005)


def test_six_runs_on_two_nodes_with_a_worker_killed_equal_those_of_the_local_grid(local, cluster, data, tmp_path):
    killed = []
    killer = threading.Thread(target=kill_a_task_after_a_checkpoint, args=(tmp_path, killed))
    killer.start()
    executor = f"ray:{cluster.address}"
    table = run_grid(SIX, **folders(tmp_path, data), executor=executor, progress=False, checkpoint_minutes=0)
    killer.join()
    assert killed
    assert table["run_id"].tolist() == [config.run_id for config in SIX]
    assert set(table["status"]) == {"finished"}
    assert_same_results(tmp_path, local)
    assert not list((tmp_path / "runs").glob("*/checkpoint-*.pt"))


def test_a_failed_run_is_reported_and_the_others_are_recorded(cluster, data, tmp_path):
    bad, good = small_config(train_size=7), small_config(epochs=1)
    with pytest.warns(UserWarning, match="1 of 2 runs failed"):
        table = run_grid([bad, good], **folders(tmp_path, data), executor=f"ray:{cluster.address}", progress=False)
    assert table["status"].tolist() == ["failed", "finished"]
    assert read_runs(tmp_path / "results")["run_id"].tolist() == [good.run_id]


def test_ctrl_c_cancels_the_runs_with_checkpoints_and_they_go_on(cluster, data, tmp_path):
    config = small_config(epochs=40)
    program = (
        "import sys, json\n"
        "from smooth_topk.study.grid import run_grid\n"
        "from smooth_topk.study.run_config import RunConfig\n"
        "folder, data, executor, values = sys.argv[1:]\n"
        "run_grid([RunConfig.from_dict(json.loads(values))], results_folder=folder + '/results',"
        " runs_folder=folder + '/runs', data_folder=data, executor=executor, progress=False)"
    )
    values = json.dumps(config.to_dict())
    executor = f"ray:{cluster.address}"
    driver = subprocess.Popen([sys.executable, "-c", program, tmp_path, data, executor, values])
    while driver.poll() is None and not list(tmp_path.glob("runs/*/checkpoint-*.pt")):
        time.sleep(0.01)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(WAIT_SECONDS) != 0
    assert list(tmp_path.glob("runs/*/checkpoint-*.pt"))
    run_grid([config], **folders(tmp_path, data), executor=executor, progress=False)
    assert read_runs(tmp_path / "results")["resumes"].item() == 1
    fit_small(tmp_path / "alone", data, config)
    assert_same_results(tmp_path, tmp_path / "alone")
