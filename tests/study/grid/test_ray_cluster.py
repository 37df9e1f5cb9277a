"""The grid on a real Ray cluster of two nodes on this machine."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from small_runs import assert_same_results, fit_small, small_config

from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.runs import read_runs

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("ray")]
SIX = [
    small_config(loss=loss, k=2, seed=seed, epochs=3 + seed)
    for loss in ("cross_entropy", "smooth", "hard")
    for seed in (0, 1)
]
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
    pytest.importorskip("ray", reason="needs Ray: pip install 'smooth-topk[cluster]'")
    from smooth_topk.study.grid.small_cluster import small_cluster

    with small_cluster(nodes=2) as started:
        yield started


def folders(folder, data):
    return {"results_folder": folder / "results", "runs_folder": folder / "runs", "data_folder": data}


def kill_a_task_after_a_checkpoint(cluster, folder, killed):
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and not killed:
        if list(folder.glob("runs/*/checkpoint-*.pt")):
            for process in cluster.tasks()[:1]:
                process.kill()
                killed.append(process.pid)
        time.sleep(0.005)


def test_six_runs_on_two_nodes_with_a_worker_killed_equal_those_of_the_local_grid(local, cluster, data, tmp_path):
    killed = []
    killer = threading.Thread(target=kill_a_task_after_a_checkpoint, args=(cluster, tmp_path, killed))
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
folder, data, executor, configs = sys.argv[1:]
run_grid([RunConfig.from_dict(values) for values in json.loads(configs)], results_folder=folder + "/results",
         runs_folder=folder + "/runs", data_folder=data, executor=executor, progress=False, checkpoint_minutes=0)
"""


def start_driver(folder, data, cluster, configs):
    """Starts a grid on the cluster in a process of its own."""
    values = json.dumps([config.to_dict() for config in configs])
    return subprocess.Popen([sys.executable, "-c", PROGRAM, folder, data, f"ray:{cluster.address}", values])


def test_a_node_that_is_lost_with_its_run_and_replaced_changes_no_bit(local, cluster, data, tmp_path):
    """The driver is a process of its own; this thread, which started the nodes, takes one away and adds another."""
    driver = start_driver(tmp_path, data, cluster, SIX)
    (node,) = cluster.further_nodes
    deadline = time.monotonic() + WAIT_SECONDS
    while not (cluster.tasks(node) and list(tmp_path.glob("runs/*/checkpoint-*.pt"))):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    cluster.kill_node(node)
    cluster.add_node()
    assert driver.wait(WAIT_SECONDS) == 0
    assert_same_results(tmp_path, local)


def test_two_drivers_train_every_run_once(local, cluster, data, tmp_path):
    drivers = [start_driver(tmp_path, data, cluster, SIX) for _ in range(2)]
    assert [driver.wait(WAIT_SECONDS) for driver in drivers] == [0, 0]
    assert read_runs(tmp_path / "results")["resumes"].tolist() == [0] * len(SIX)
    assert_same_results(tmp_path, local)


def test_ctrl_c_cancels_the_runs_with_checkpoints_and_they_go_on(cluster, data, tmp_path):
    config = small_config(epochs=40)
    executor = f"ray:{cluster.address}"
    driver = start_driver(tmp_path, data, cluster, [config])
    while driver.poll() is None and not list(tmp_path.glob("runs/*/checkpoint-*.pt")):
        time.sleep(0.01)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(WAIT_SECONDS) != 0
    assert list(tmp_path.glob("runs/*/checkpoint-*.pt"))
    run_grid([config], **folders(tmp_path, data), executor=executor, progress=False)
    assert read_runs(tmp_path / "results")["resumes"].item() == 1
    fit_small(tmp_path / "alone", data, config)
    assert_same_results(tmp_path, tmp_path / "alone")
