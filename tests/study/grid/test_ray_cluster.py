"""The grid on a real Ray cluster of two nodes on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from small_runs import assert_same_results, fit_small, small_config

from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.runs import read_runs, recorded_ids
from smooth_topk.study.training.checkpoints import load_checkpoint

ray_cluster = pytest.importorskip(
    "smooth_topk.study.grid.ray_cluster", reason="needs Ray: pip install 'smooth-topk[cluster]'", exc_type=ImportError
)
SIX = [
    small_config(loss=loss, k=2, seed=seed, epochs=3 + seed)
    for loss in ("cross_entropy", "smooth", "hard")
    for seed in (0, 1)
]
PATIENCE = 900  # seconds for Ray to start its workers on a busy machine; a hang must end as a failure
PROGRAM = """
import json, sys
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid import run_grid
folder, data, executor, configs, minutes = sys.argv[1:]
run_grid([RunConfig.from_dict(values) for values in json.loads(configs)], records_folder=folder + "/results",
         checkpoints_folder=folder + "/runs", data_folder=data, executor=executor, progress=False,
         checkpoint_minutes=float(minutes))
"""


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory, data):
    """The folder of the six runs, trained in this process."""
    folder = tmp_path_factory.mktemp("one_by_one")
    for config in SIX:
        fit_small(folder, data, config)
    return folder


@pytest.fixture(scope="module")
def cluster():
    """A head and a second node, each with one CPU, on this machine."""
    from small_cluster import small_cluster

    with small_cluster(nodes=2) as started:
        yield started


def start_driver(folder, data, cluster, configs, checkpoint_minutes=0):
    """Starts a grid on the cluster in a process of its own."""
    values = json.dumps([config.to_dict() for config in configs])
    arguments = [folder, data, f"ray:{cluster.address}", values, str(checkpoint_minutes)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], env=environment)


def wait_for_checkpoints(folder, driver):
    end = time.monotonic() + PATIENCE
    while not list(folder.glob("runs/*/checkpoint-*.pt")):
        assert driver.poll() is None
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.01)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.xdist_group("ray")
class TestCluster:
    def test_failed_runs_are_reported_and_the_others_recorded(self, cluster, data, tmp_path):
        bad, good = small_config(train_size=7), small_config(epochs=1)
        folders = {"records_folder": tmp_path / "results", "checkpoints_folder": tmp_path / "runs", "data_folder": data}
        with pytest.warns(UserWarning, match=bad.run_id):
            table = run_grid([bad, good], **folders, executor=f"ray:{cluster.address}", progress=False)
        assert table["status"].tolist() == ["failed", "finished"]
        assert recorded_ids(tmp_path / "results") == {good.run_id}
        (tmp_path / "results" / f"{good.run_id}.json").unlink()
        table = run_grid([good], **folders, executor=f"ray:{cluster.address}", progress=False)
        assert table.attrs["recorded_before"] == 0, "a run whose record was deleted is trained again"
        assert recorded_ids(tmp_path / "results") == {good.run_id}

    def test_a_node_that_is_lost_and_replaced_and_a_killed_task_change_no_bit(
        self, cluster, one_by_one, data, tmp_path
    ):
        """The driver is a process of its own; this thread, which started the nodes, takes one away and adds another."""
        driver = start_driver(tmp_path, data, cluster, SIX)
        wait_for_checkpoints(tmp_path, driver)
        for task in cluster.tasks()[:1]:
            task.kill()
        (node,) = cluster.further_nodes
        cluster.kill_node(node)
        cluster.add_node()
        assert driver.wait(PATIENCE) == 0
        assert_same_results(tmp_path, one_by_one)
        assert not list((tmp_path / "runs").glob("*/checkpoint-*.pt"))

    def test_two_drivers_train_every_run_once(self, cluster, one_by_one, data, tmp_path):
        drivers = [start_driver(tmp_path, data, cluster, SIX) for _ in range(2)]
        assert [driver.wait(PATIENCE) for driver in drivers] == [0, 0]
        assert read_runs(tmp_path / "results")["resumes"].tolist() == [0] * len(SIX)
        assert_same_results(tmp_path, one_by_one)

    def test_ctrl_c_cancels_the_runs_with_checkpoints_and_they_continue(self, cluster, data, tmp_path):
        config = small_config(epochs=20, batch_size=2)
        driver = start_driver(tmp_path, data, cluster, [config], checkpoint_minutes=0)
        wait_for_checkpoints(tmp_path, driver)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(PATIENCE) != 0
        assert not recorded_ids(tmp_path / "results"), "the run ended before the signal"
        assert load_checkpoint(tmp_path / "runs" / config.run_id)["progress"]["resumes"] == 0
        assert start_driver(tmp_path, data, cluster, [config]).wait(PATIENCE) == 0
        assert read_runs(tmp_path / "results")["resumes"].tolist() == [1]
        fit_small(tmp_path / "alone", data, config)
        assert_same_results(tmp_path, tmp_path / "alone")


@pytest.mark.parametrize("address", ["gpu-server", "host:", ":6379", "host:port"])
def test_an_address_of_another_form_is_refused(address):
    with pytest.raises(ValueError, match=address):
        ray_cluster.check_address(address)


def test_an_address_at_which_nothing_listens_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ray_cluster.check_address(address)
        ray_cluster.check_address(f"ray://{address}")
    with pytest.raises(ConnectionError, match=address):
        ray_cluster.check_address(address)
