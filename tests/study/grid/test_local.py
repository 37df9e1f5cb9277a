import contextlib
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
from small_runs import assert_same_results, fit_small, processes, small_config

from smooth_topk.study import grid
from smooth_topk.study.experiments.expected_cost import makespan
from smooth_topk.study.grid import local, run_grid
from smooth_topk.study.grid.local import LocalGrid
from smooth_topk.study.records.files import exclusive
from smooth_topk.study.records.runs import read_runs

FOUR = [
    small_config(seed=0, epochs=2),
    small_config(seed=1, epochs=4),
    small_config(loss="smooth", tau=0.5, epochs=3),
    small_config(loss="hard", k=2, epochs=3),
]


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory, data):
    """The folder of the four runs, trained in this process."""
    folder = tmp_path_factory.mktemp("one_by_one")
    for config in FOUR:
        fit_small(folder, data, config)
    return folder


def grid_of(folder, data, configs=FOUR, **options):
    options = {"workers": 2, "progress": False, "executor": "local"} | options
    folders = {"records_folder": folder / "results", "checkpoints_folder": folder / "runs", "data_folder": data}
    return run_grid(configs, **folders, **options)


@pytest.mark.slow
def test_a_grid_gives_the_records_of_single_runs_in_the_order_asked_for(one_by_one, data, tmp_path):
    table = grid_of(tmp_path, data, [*FOUR, FOUR[0]])
    assert table["run_id"].tolist() == [config.run_id for config in [*FOUR, FOUR[0]]]
    assert set(table["status"]) == {"finished"}
    assert_same_results(tmp_path, one_by_one)


def test_a_recorded_grid_starts_no_worker(one_by_one, data, monkeypatch):
    monkeypatch.setattr(grid, "LocalGrid", None)
    table = grid_of(one_by_one, data, FOUR[::-1])
    assert table["seed"].tolist() == [0, 0, 1, 0]


@pytest.mark.slow
def test_a_grid_killed_twice_on_the_way_ends_with_the_same_records(one_by_one, data, tmp_path):
    """SIGKILL for the whole grid, once after the first checkpoint and once after the first record."""
    for awaited in ("runs/*/checkpoint-*.pt", "results/*.json"):
        process = processes.Process(target=grid_of, args=(tmp_path, data), kwargs={"checkpoint_minutes": 0})
        process.start()
        while process.is_alive() and not list(tmp_path.glob(awaited)):
            time.sleep(0.01)
        workers = psutil.Process(process.pid).children() if process.is_alive() else []
        process.kill()
        process.join()
        _, left = psutil.wait_procs(workers, timeout=300)
        assert not left, "a killed grid leaves no worker behind"
    assert len(grid_of(tmp_path, data)) == 4
    assert_same_results(tmp_path, one_by_one)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_its_run_goes_on(one_by_one, data, tmp_path, monkeypatch):
    real, killed = grid._Bar.epoch, []

    def epoch(bar, config, epochs_done):
        if not killed:
            killed.append(config.run_id)
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error):  # what has just ended has no command
                    if "smooth_topk.study.grid.worker" in child.cmdline():
                        child.kill()
        real(bar, config, epochs_done)

    monkeypatch.setattr(grid._Bar, "epoch", epoch)
    table = grid_of(tmp_path, data)
    assert killed
    assert set(table["status"]) == {"finished"}
    assert_same_results(tmp_path, one_by_one)


@pytest.mark.slow
def test_failed_runs_are_reported_at_the_end_and_do_not_stop_the_others(data, tmp_path):
    good, bad = small_config(epochs=1), replace(small_config(epochs=1), train_size=7, seed=3)
    with pytest.warns(UserWarning, match="1 of 2 runs failed") as warned:
        table = grid_of(tmp_path, data, [bad, good], workers=1)
    assert bad.describe() in str(warned[0].message)
    assert table["status"].tolist() == ["failed", "finished"]
    assert isinstance(table["failure"][0], str)
    assert table["test_top5"].isna().tolist() == [True, False]
    assert read_runs(tmp_path / "results")["run_id"].tolist() == [good.run_id]


@pytest.mark.slow
def test_a_run_that_another_process_trains_waits_for_the_others(data, tmp_path):
    held, free = small_config(epochs=2), small_config(epochs=1)
    (tmp_path / "runs").mkdir()
    process = processes.Process(target=grid_of, args=(tmp_path, data, [held, free]), kwargs={"workers": 1})
    with exclusive(tmp_path / "runs" / f"{held.run_id}.lock", wait=False):
        process.start()
        while process.is_alive() and not list(tmp_path.glob("results/*.json")):
            time.sleep(0.01)
    process.join()
    assert set(read_runs(tmp_path / "results")["run_id"]) == {free.run_id, held.run_id}


@pytest.mark.slow
def test_ctrl_c_stops_a_grid_with_checkpoints_and_it_goes_on(one_by_one, data, tmp_path):
    program = (
        "import sys, json\n"
        "from smooth_topk.study.grid import run_grid\n"
        "from smooth_topk.study.experiments.run_config import RunConfig\n"
        "run_grid([RunConfig.from_dict(c) for c in json.loads(sys.argv[1])], records_folder=sys.argv[2] + '/results',"
        " checkpoints_folder=sys.argv[2] + '/runs', data_folder=sys.argv[3], workers=2, progress=False)"
    )
    configs = json.dumps([config.to_dict() for config in FOUR])
    process = subprocess.Popen([sys.executable, "-c", program, configs, tmp_path, data], stderr=subprocess.PIPE)
    while process.poll() is None and not list(tmp_path.glob("runs/*/checkpoint-*.pt")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1].decode()
    assert process.returncode == -signal.SIGINT, errors
    assert "Traceback" not in "".join(path.read_text() for path in (tmp_path / "runs").glob("worker-*.log"))
    grid_of(tmp_path, data)
    assert_same_results(tmp_path, one_by_one)


def test_the_longest_runs_come_first(data, tmp_path, monkeypatch):
    asked = []

    class Grid:
        def __init__(self, *_):
            pass

        def run(self, configs, workers):
            asked.extend(configs)
            return {config.run_id: "not trained here" for config in configs}

    monkeypatch.setattr(grid, "LocalGrid", Grid)
    with pytest.warns(UserWarning, match="4 of 4 runs failed"):
        grid_of(tmp_path, data)
    assert [config.epochs for config in asked] == [4, 3, 3, 2]


@pytest.mark.parametrize(("options", "message"), [({"executor": "slurm"}, "'slurm'"), ({"workers": 0}, "workers=0")])
def test_an_unknown_executor_or_no_worker_is_an_error(data, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        grid_of(tmp_path, data, **options)


DIES_AT_FOUR_EPOCHS = """
import json, os, signal, sys
for order in map(json.loads, sys.stdin):
    if order is None:
        break
    if order["config"]["epochs"] == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps({"event": "done"}), flush=True)
"""


def test_a_run_whose_worker_dies_three_times_has_failed_and_the_others_go_on(tmp_path, monkeypatch):
    started, real = [], local._Worker

    def start(*arguments):
        started.append(arguments)
        assert len(started) <= 4, "a run is not tried for ever"
        return real(*arguments)

    monkeypatch.setattr(local, "COMMAND", [sys.executable, "-c", DIES_AT_FOUR_EPOCHS])
    monkeypatch.setattr(local, "_Worker", start)
    ended = []
    good, bad = small_config(epochs=1), small_config(epochs=4)
    failures = LocalGrid({}, tmp_path, None, ended.append).run([bad, good], workers=1)
    assert list(failures) == [bad.run_id]
    assert "its worker was killed by SIGKILL, 3 times, for lack of memory perhaps; see" in failures[bad.run_id]
    assert ended == [bad, good]
    assert len(started) == 4


def test_a_worker_that_cannot_start_is_tried_three_times(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "COMMAND", [sys.executable, "-c", "raise SystemExit(7)"])
    ended = []
    failures = LocalGrid({}, tmp_path, None, ended.append).run(FOUR[:2], workers=1)
    assert ended == FOUR[:2]
    assert all("its worker ended with exit code 7, 3 times" in message for message in failures.values())


def test_every_worker_sees_one_gpu_of_those_that_are_visible(monkeypatch):
    monkeypatch.setattr(local.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [local._environment(number)["CUDA_VISIBLE_DEVICES"] for number in range(4)] == ["0", "1", "2", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc")
    assert [local._environment(number)["CUDA_VISIBLE_DEVICES"] for number in range(3)] == ["5", "GPU-abc", "5"]
    assert local._environment(0)["OMP_NUM_THREADS"] == "1"


def test_the_number_of_workers_is_the_variable_then_the_gpus_then_the_cores(monkeypatch):
    monkeypatch.setenv("SMOOTH_TOPK_WORKERS", "7")
    assert local.default_workers() == 7
    monkeypatch.setenv("SMOOTH_TOPK_WORKERS", "")
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 3)
    assert local.default_workers() == 3
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 0)
    assert local.default_workers() == local.available_cores()
    monkeypatch.setenv("SMOOTH_TOPK_WORKERS", "-1")
    with pytest.raises(ValueError, match="SMOOTH_TOPK_WORKERS must be a whole number from 1 to 999999999, got '-1'"):
        local.default_workers()


def test_a_recorded_grid_needs_no_folder_that_can_be_written_to(one_by_one, data, tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    folders = {"records_folder": one_by_one / "results", "checkpoints_folder": tmp_path / "runs"}
    table = run_grid(FOUR, **folders, progress=False, executor="local")
    assert set(table["status"]) == {"finished"}
    assert table.attrs["recorded_before"] == 4


def test_the_makespan_is_never_shorter_than_the_longest_run_or_the_mean_load():
    seconds = [5.0, 3.0, 3.0, 2.0, 2.0]
    assert makespan(seconds, 1) == sum(seconds)
    assert makespan(seconds, 10**30) == 5.0
    assert makespan(seconds, 2) == 8.0
