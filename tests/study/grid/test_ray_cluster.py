"""The grid on a real Ray cluster of two nodes on this machine."""

import contextlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import psutil
import pytest
from small_runs import assert_same_results, fit_small, small_config

from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.runs import read_runs
from smooth_topk.study.training.checkpoints import load_checkpoint

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("ray")]
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
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'smooth-topk[cluster]'")
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

    import ray

    def start(*arguments, **options):
        node = inspect.signature(start_raylet).bind(*arguments, **options).arguments
        for name in AGENT_PORTS:
            ray._raylet.persist_port(node["session_dir"], node["node_id"], name, -1)
        return start_raylet(*arguments, **options)

    return start


def add_node(cluster, **options):
    """Adds a node of one CPU."""
    options = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False} | options
    node = cluster.add_node(wait=False, **options)
    cluster.wait_for_nodes(timeout=WAIT_SECONDS)
    return node


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
                with contextlib.suppress(psutil.Error):  # it has just ended
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


PROGRAM = """
import json, sys
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid import run_grid
folder, data, executor, configs, minutes = sys.argv[1:]
run_grid([RunConfig.from_dict(values) for values in json.loads(configs)], results_folder=folder + "/results",
         runs_folder=folder + "/runs", data_folder=data, executor=executor, progress=False,
         checkpoint_minutes=float(minutes))
"""


def start_driver(folder, data, cluster, configs, checkpoint_minutes=0):
    """Starts a grid on the cluster in a process of its own."""
    values = json.dumps([config.to_dict() for config in configs])
    arguments = [folder, data, f"ray:{cluster.address}", values, str(checkpoint_minutes)]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments])


def tasks_of(node):
    """The processes that train a run on one node."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [child for child in raylet.children(recursive=True) if child in running_tasks()]


def test_a_node_that_is_lost_with_its_run_and_replaced_changes_no_bit(local, cluster, data, tmp_path):
    """The driver is a process of its own; this thread, which started the nodes, takes one away and adds another."""
    driver = start_driver(tmp_path, data, cluster, SIX)
    (node,) = cluster.worker_nodes
    deadline = time.monotonic() + WAIT_SECONDS
    while not (tasks_of(node) and list(tmp_path.glob("runs/*/checkpoint-*.pt"))):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    cluster.remove_node(node, allow_graceful=False)
    add_node(cluster)
    assert driver.wait(WAIT_SECONDS) == 0
    assert_same_results(tmp_path, local)


def test_two_drivers_train_every_run_once(local, cluster, data, tmp_path):
    drivers = [start_driver(tmp_path, data, cluster, SIX) for _ in range(2)]
    assert [driver.wait(WAIT_SECONDS) for driver in drivers] == [0, 0]
    assert read_runs(tmp_path / "results")["resumes"].tolist() == [0] * len(SIX)
    assert_same_results(tmp_path, local)


def test_ctrl_c_cancels_the_runs_with_checkpoints_and_they_go_on(cluster, data, tmp_path):
    config = small_config(epochs=12, batch_size=1)
    executor = f"ray:{cluster.address}"
    stops, within_an_epoch, seen = 0, False, set()
    while not within_an_epoch and stops < 5:  # a signal at the very end of an epoch meets a checkpoint in any case
        driver = start_driver(tmp_path, data, cluster, [config], checkpoint_minutes=60)
        while driver.poll() is None and not set(tmp_path.glob("runs/*/checkpoint-*.pt")) - seen:
            time.sleep(0.01)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(WAIT_SECONDS) != 0
        stops, seen = stops + 1, set(tmp_path.glob("runs/*/checkpoint-*.pt"))
        within_an_epoch = load_checkpoint(tmp_path / "runs" / config.run_id)["progress"]["batch"] > 0
    assert within_an_epoch, "the cancelled run writes a checkpoint where it is"
    run_grid([config], **folders(tmp_path, data), executor=executor, progress=False)
    assert read_runs(tmp_path / "results")["resumes"].item() == stops
    fit_small(tmp_path / "alone", data, config)
    assert_same_results(tmp_path, tmp_path / "alone")
