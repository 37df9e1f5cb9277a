import os
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
from smooth_topk.study.records.files import exclusive
from smooth_topk.study.records.runs import read_record, read_runs, recorded_ids

FOUR = [
    small_config(seed=0, epochs=2),
    small_config(seed=1, epochs=4),
    small_config(loss="smooth", tau=0.5, epochs=3),
    small_config(loss="hard", k=2, epochs=3),
]
PATIENCE = 300  # seconds until a process that should have reacted is given up


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


def start_grid(folder, data, **options):
    process = processes.Process(target=grid_of, args=(folder, data), kwargs={"checkpoint_minutes": 0, **options})
    process.start()
    return process


def wait_until(happened):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_grid_gives_the_records_of_single_runs_in_the_order_asked_for(one_by_one, data, tmp_path):
    table = grid_of(tmp_path, data, [*FOUR, FOUR[0]])
    assert table["run_id"].tolist() == [config.run_id for config in [*FOUR, FOUR[0]]]
    assert set(table["status"]) == {"finished"}
    assert table.attrs["recorded_before"] == 0
    assert_same_results(tmp_path, one_by_one)


def test_a_recorded_grid_starts_no_process_and_needs_no_folder_for_checkpoints(one_by_one, tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "LocalPool", None)
    table = run_grid(FOUR[::-1], records_folder=one_by_one / "results", checkpoints_folder="/proc/nowhere")
    assert table["seed"].tolist() == [0, 0, 1, 0]
    assert table.attrs["recorded_before"] == 4


@pytest.mark.slow
def test_a_grid_that_is_killed_leaves_no_process_and_continues_with_the_same_bits(one_by_one, data, tmp_path):
    """SIGKILL, once after the first checkpoint and once after the first record."""
    for awaited in ("runs/*/checkpoint-*.pt", "results/*.json"):
        process = start_grid(tmp_path, data)
        wait_until(lambda found=awaited: list(tmp_path.glob(found)))
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.join()
        assert not psutil.wait_procs(children, timeout=PATIENCE)[1]
    assert len(grid_of(tmp_path, data)) == 4
    assert_same_results(tmp_path, one_by_one)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_grid_that_is_interrupted_writes_checkpoints_and_continues(one_by_one, data, tmp_path, number):
    program = (
        "import signal, sys\n"
        "from test_local import grid_of\n"
        "from pathlib import Path\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "grid_of(Path(sys.argv[1]), sys.argv[2], checkpoint_minutes=60)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    process = subprocess.Popen([sys.executable, "-c", program, tmp_path, data], env=environment)
    wait_until(lambda: list(tmp_path.glob("runs/*/checkpoint-*.pt")) or recorded_ids(tmp_path / "results"))
    process.send_signal(number)
    assert process.wait(PATIENCE) != 0
    assert "Traceback" not in "".join(path.read_text() for path in (tmp_path / "runs").glob("worker-*.log"))
    grid_of(tmp_path, data)
    assert_same_results(tmp_path, one_by_one)


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_its_run_continues(one_by_one, data, tmp_path):
    process = start_grid(tmp_path, data)
    wait_until(lambda: list(tmp_path.glob("runs/*/checkpoint-*.pt")))
    for server in psutil.Process(process.pid).children():
        for worker in server.children():
            worker.kill()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert_same_results(tmp_path, one_by_one)
    assert read_runs(tmp_path / "results")["resumes"].sum() >= 1


@pytest.mark.slow
def test_two_grids_at_once_train_every_run_once(one_by_one, data, tmp_path):
    both = [start_grid(tmp_path, data), start_grid(tmp_path, data)]
    for process in both:
        process.join(PATIENCE)
    assert [process.exitcode for process in both] == [0, 0]
    assert read_runs(tmp_path / "results")["resumes"].tolist() == [0] * 4
    logs = "".join(path.read_text() for path in (tmp_path / "runs").glob("worker-*.log"))
    assert logs.count("epoch 1/") == 4
    assert_same_results(tmp_path, one_by_one)


@pytest.mark.slow
def test_failed_runs_are_reported_at_the_end_and_do_not_stop_the_others(data, tmp_path):
    good, bad = small_config(epochs=1), replace(small_config(epochs=1), train_size=7, seed=3)
    with pytest.warns(UserWarning, match=bad.run_id):
        table = grid_of(tmp_path, data, [bad, good], workers=1)
    assert table["status"].tolist() == ["failed", "finished"]
    assert "7" in table["failure"][0]
    assert table["test_top5"].isna().tolist() == [True, False]
    assert recorded_ids(tmp_path / "results") == {good.run_id}


@pytest.mark.slow
def test_a_run_that_another_process_trains_waits_for_the_others(data, tmp_path):
    held, free = small_config(epochs=2), small_config(epochs=1)
    (tmp_path / "runs").mkdir()
    with exclusive(tmp_path / "runs" / f"{held.run_id}.lock", wait=False):
        process = start_grid(tmp_path, data, configs=[held, free], workers=1)
        wait_until(lambda: recorded_ids(tmp_path / "results"))
        assert recorded_ids(tmp_path / "results") == {free.run_id}
    process.join(PATIENCE)
    assert recorded_ids(tmp_path / "results") == {free.run_id, held.run_id}


@pytest.mark.slow
def test_a_run_is_trained_again_after_its_record_was_deleted(data, tmp_path):
    config = small_config(epochs=1)
    before = grid_of(tmp_path, data, [config])
    (tmp_path / "results" / f"{config.run_id}.json").unlink()
    after = grid_of(tmp_path, data, [config])
    assert after.attrs["recorded_before"] == 0
    assert after["test_top5"].tolist() == before["test_top5"].tolist()
    assert read_record(tmp_path / "results", config.run_id)["resumes"] == 0


@pytest.mark.slow
def test_a_script_without_a_guarded_main_can_call_a_grid(data, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from smooth_topk.study.grid import run_grid\nfrom small_runs import small_config\n"
        f"folders = dict(records_folder='r', checkpoints_folder='c', data_folder='{data}')\n"
        "table = run_grid([small_config(epochs=1)], **folders)\n"
        "assert table['status'].tolist() == ['finished']\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, check=True, timeout=PATIENCE)


def dies(config, *_):
    if config["epochs"] == 4:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_whose_process_dies_three_times_has_failed_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_train", dies)
    started, real, ended = [], local.start, []
    monkeypatch.setattr(local, "start", lambda *arguments, log: started.append(log) or real(*arguments, log=log))
    good, bad = small_config(epochs=1), small_config(epochs=4)
    failures = local.LocalPool({"checkpoints_folder": tmp_path}, 1, None, ended.append).run([bad, good])
    assert list(failures) == [bad.run_id]
    assert "SIGKILL" in failures[bad.run_id]
    assert ended == [bad, good]
    assert len(started) == 4


def test_the_longest_runs_come_first(data, tmp_path, monkeypatch):
    asked = []

    def run(_pool, configs):
        asked.extend(configs)
        return {config.run_id: "not trained here" for config in configs}

    monkeypatch.setattr(local.LocalPool, "run", run)
    with pytest.warns(UserWarning, match="not trained here"):
        grid_of(tmp_path, data)
    assert [config.epochs for config in asked] == [4, 3, 3, 2]


@pytest.mark.parametrize(("options", "value"), [({"executor": "slurm"}, "slurm"), ({"workers": 0}, "0")])
def test_an_unknown_executor_or_no_worker_is_an_error(data, tmp_path, options, value):
    with pytest.raises(ValueError, match=value):
        grid_of(tmp_path, data, **options)


def test_every_process_sees_one_gpu_of_those_that_are_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(local.torch.cuda, "is_available", lambda: False)
    assert local.gpu_of(0) is None
    monkeypatch.setattr(local.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 3)
    assert [local.gpu_of(slot) for slot in range(4)] == ["0", "1", "2", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc")
    assert [local.gpu_of(slot) for slot in range(3)] == ["5", "GPU-abc", "5"]


def test_the_number_of_workers_is_the_variable_then_the_gpus_then_the_cores(monkeypatch):
    monkeypatch.setenv("SMOOTH_TOPK_WORKERS", "7")
    assert local.default_workers() == 7
    monkeypatch.setenv("SMOOTH_TOPK_WORKERS", "")
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 3)
    assert local.default_workers() == 3
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 0)
    assert local.default_workers() == local.available_cores()
    monkeypatch.setenv("SMOOTH_TOPK_WORKERS", "-1")
    with pytest.raises(ValueError, match="-1"):
        local.default_workers()


def test_the_makespan_is_never_shorter_than_the_longest_run_or_the_mean_load():
    seconds = [5.0, 3.0, 3.0, 2.0, 2.0]
    assert makespan(seconds, 1) == sum(seconds)
    assert makespan(seconds, 10**30) == 5.0
    assert makespan(seconds, 2) == 8.0
    assert makespan([], 2) == 0.0
