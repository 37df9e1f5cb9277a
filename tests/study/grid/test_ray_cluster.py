"""The grid on a real Ray cluster of two nodes on this machine."""

import contextlib
import json
import signal
import subprocess
import sys
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
    return {"records_folder": folder / "results", "checkpoints_folder": folder / "runs", "data_folder": data}


def kill_a_task_after_a_checkpoint(cluster, folder, killed):
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and not killed:
        if list(folder.glob("runs/*/checkpoint-*.pt")):
            for process in cluster.tasks()[:1]:
                with contextlib.suppress(psutil.Error):  # it has just ended
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
folder, data, executor, configs, minutes = sys.argv[1:]
run_grid([RunConfig.from_dict(values) for values in json.loads(configs)], records_folder=folder + "/results",
         checkpoints_folder=folder + "/runs", data_folder=data, executor=executor, progress=False,
         checkpoint_minutes=float(minutes))
"""


def start_driver(folder, data, cluster, configs, checkpoint_minutes=0):
    """Starts a grid on the cluster in a process of its own."""
    values = json.dumps([config.to_dict() for config in configs])
    arguments = [folder, data, f"ray:{cluster.address}", values, str(checkpoint_minutes)]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments])


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
    config = small_config(epochs=20, batch_size=2)
    executor = f"ray:{cluster.address}"
    stops, within_an_epoch, seen = 0, False, set()
    while not within_an_epoch and stops < 5:  # a signal at the very end of an epoch meets a checkpoint in any case
        driver = start_driver(tmp_path, data, cluster, [config], checkpoint_minutes=60)
        while driver.poll() is None and not set(tmp_path.glob("runs/*/checkpoint-*.pt")) - seen:
            time.sleep(0.01)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(WAIT_SECONDS) != 0
        stops, seen = stops + 1, set(tmp_path.glob("runs/*/checkpoint-*.pt"))
        assert read_runs(tmp_path / "results").empty, "the run ended before the signal"
        within_an_epoch = load_checkpoint(tmp_path / "runs" / config.run_id)["progress"]["batch"] > 0
    assert within_an_epoch, "the cancelled run writes a checkpoint where it is"
    run_grid([config], **folders(tmp_path, data), executor=executor, progress=False)
    assert read_runs(tmp_path / "results")["resumes"].item() == stops
    fit_small(tmp_path / "alone", data, config)
    assert_same_results(tmp_path, tmp_path / "alone")
